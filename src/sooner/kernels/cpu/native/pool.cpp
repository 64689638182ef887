#include "pool.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto SPIN = std::chrono::microseconds(60);  // longer than Python needs between two calls of a pass

// Counts forks seen by this process: threads do not survive a fork, so a pool made before it starts afresh.
std::atomic<int> forks{0};
const int registered = pthread_atfork(nullptr, nullptr, [] { ++forks; });

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until done() or the time is over; tells which.
template <class Done>
bool spin(Done done) {
  const auto limit = Clock::now() + SPIN;
  do {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      relax();
    }
  } while (Clock::now() < limit);
  return false;
}

// For waits that end soon: other threads of the team are at work. Gives the processor away when they were interrupted.
template <class Done>
void await(Done done) {
  while (!spin(done)) std::this_thread::yield();
}

struct Buffer {
  float* data = nullptr;
  size_t floats = 0;

  float* reserve(size_t wanted) {
    if (wanted > floats) {
      release();
      data = static_cast<float*>(::operator new(wanted * sizeof(float), std::align_val_t(64)));
      floats = wanted;
    }
    return data;
  }
  void release() { ::operator delete(data, std::align_val_t(64)); }
};

}  // namespace

struct Pool::State {
  explicit State(int size) : locals(size_t(size)), forks_seen(forks) {}

  std::mutex turn;  // one job at a time
  Buffer shared;
  std::vector<Buffer> locals;
  std::vector<std::thread> threads;
  int forks_seen;

  Job job = nullptr;
  const void* arguments = nullptr;
  bool stop = false;
  std::mutex asleep;
  std::condition_variable wake;
  alignas(64) std::atomic<uint32_t> generation{0};  // of jobs
  std::atomic<int> sleepers{0};
  alignas(64) std::atomic<int> busy{0};  // helpers that have not finished the job
  alignas(64) std::atomic<int> arrived{0};
  std::atomic<uint32_t> barriers{0};
  alignas(64) std::atomic<int> next{0};  // unclaimed item
};

void Team::barrier() {
  if (size == 1) return;
  Pool::State& s = *pool->state_;
  const uint32_t now = s.barriers.load();
  if (s.arrived.fetch_add(1) + 1 == size) {
    s.arrived.store(0);
    s.barriers.store(now + 1);
  } else {
    await([&] { return s.barriers.load() != now; });
  }
}

int Team::take() {
  if (!fresh) return pool->state_->next.fetch_add(1, std::memory_order_relaxed);
  fresh = false;
  return id;
}

Pool::Pool(int threads) : size_(threads) { start(); }

Pool::~Pool() {
  State& s = *state_;
  if (s.forks_seen != forks) return;  // its threads live in the parent: leave all as it is
  {
    std::lock_guard<std::mutex> lock(s.asleep);
    s.stop = true;
    s.generation.fetch_add(1);
  }
  s.wake.notify_all();
  for (auto& thread : s.threads) thread.join();
  s.shared.release();
  for (auto& local : s.locals) local.release();
  delete state_;
}

void Pool::start() {
  state_ = new State(size_);
  for (int id = 1; id < size_; ++id) state_->threads.emplace_back([this, id] { work(id); });
}

void Pool::run(Job job, const void* arguments, size_t shared, size_t local) {
  if (state_->forks_seen != forks) start();  // the old state belongs to threads that this process does not have
  State& s = *state_;
  std::lock_guard<std::mutex> turn(s.turn);
  s.shared.reserve(shared);
  for (auto& buffer : s.locals) buffer.reserve(local);
  s.next.store(size_);  // the first items go by thread
  s.job = job;
  s.arguments = arguments;
  s.busy.store(size_ - 1);
  s.generation.fetch_add(1);
  if (s.sleepers.load() > 0) {
    std::lock_guard<std::mutex> lock(s.asleep);
    s.wake.notify_all();
  }
  help(job, arguments, 0);
  await([&] { return s.busy.load() == 0; });
}

void Pool::help(Job job, const void* arguments, int id) {
  Team team{id, size_, state_->shared.data, state_->locals[size_t(id)].data, this};
  job(team, arguments);
}

void Pool::work(int id) {
  State& s = *state_;
  for (uint32_t seen = 0;; ++seen) {
    const auto called = [&] { return s.generation.load() != seen; };
    if (!spin(called)) {
      std::unique_lock<std::mutex> lock(s.asleep);
      ++s.sleepers;
      s.wake.wait(lock, called);
      --s.sleepers;
    }
    if (s.stop) return;
    help(s.job, s.arguments, id);
    s.busy.fetch_sub(1);
  }
}
