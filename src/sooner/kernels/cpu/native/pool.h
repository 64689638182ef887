// A small fork-join pool of its own: the calling thread works too, the others spin briefly for the next call and then
// sleep, so that a call costs about a microsecond inside a pass and nothing between passes.
#pragma once
#include <stddef.h>
#include <stdint.h>

class Pool;

// One thread's view of a job. All threads of a team run the same job function.
struct Team {
  int id, size;
  float* shared;  // one scratch for the team
  float* local;   // one for this thread
  Pool* pool;
  bool fresh = true;  // has taken no item yet

  void barrier();
  // The next unclaimed item of the job: 0, 1, ... over all threads. A thread's first is its own number.
  int take();
  // This thread's contiguous part of n items; the first thread, which waits for nobody, has the longest.
  int begin(int n) const { return part(n, id); }
  int end(int n) const { return part(n, id + 1); }

 private:
  int part(int n, int i) const { return int((int64_t(n) * i + size - 1) / size); }
};

using Job = void (*)(Team&, const void* arguments);

class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();
  // Runs the job on all threads and returns when all are done. Calls from several threads take turns.
  // shared and local are the floats of scratch wanted, aligned to 64 bytes, with undefined content.
  void run(Job job, const void* arguments, size_t shared, size_t local);
  int threads() const { return size_; }

 private:
  friend struct Team;
  struct State;
  void work(int id);
  void start();
  void help(Job job, const void* arguments, int id);

  const int size_;
  State* state_ = nullptr;
};
