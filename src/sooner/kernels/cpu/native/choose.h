// The choice of one token from one row of logits: sampling/road.py's `scores` and `choose` without copies of the
// vocabulary. It returns the very token that the Python twin returns: scores, noise and its logarithm are exactly
// rounded operations in the same order. What hangs on the last bits of an exponential (whether a token still belongs
// to top-p) is decided only where it is certain; else the answer is UNDECIDED and the caller asks the twin.
#pragma once

#include <algorithm>

namespace {

constexpr int NOT_FINITE = -1, UNDECIDED = -2;  // instead of a token
constexpr float LN2 = 0.693147182f;
constexpr float LARGEST_GUMBEL = 36.8f;  // as in noise.py
constexpr float SLACK = 1e-3f;           // more than float32 rounds in a bound on a score near the top
constexpr int PAIRS = 16, STRIDE = 2 * PAIRS;  // tokens whose noise is made together

// Truncation sorts scores into bins by their distance from the top in nats: those NEAR it first, and all within
// WINDOW where the border lies deeper. Beyond WINDOW lies less than 1e-12 of the mass.
constexpr int NEAR = 12, WINDOW = 40, BINS_A_NAT = 16, BINS = WINDOW * BINS_A_NAT;

// Words 0 and 1 are the noise of token 2 * pair, 2 and 3 that of 2 * pair + 1.
struct Words {
  uint32_t w[4][PAIRS];
};

// Philox 4x32-10 (Salmon et al. 2011) for the counters (pair, position, sample, 0).
struct Philox {
  uint32_t position, sample, keys[10][2];

  explicit Philox(const Choose& job) : position(job.position), sample(job.sample) {
    for (uint32_t round = 0; round < 10; ++round) {
      keys[round][0] = uint32_t(job.seed) + round * 0x9E3779B9u;
      keys[round][1] = uint32_t(job.seed >> 32) + round * 0xBB67AE85u;
    }
  }

  // The pairs first_pair, first_pair + 1, ...
  Words operator()(int first_pair) const {
    uint32_t pairs[PAIRS];
    for (int i = 0; i < PAIRS; ++i) pairs[i] = uint32_t(first_pair + i);
    w16 a = load_words(pairs), b = words(position), c = words(sample), d = words(0);
    for (const auto& key : keys) {
      w16 high_a, low_a, high_c, low_c;
      multiply(a, 0xD2511F53u, high_a, low_a);
      multiply(c, 0xCD9E8D57u, high_c, low_c);
      a = exclusive_or(exclusive_or(high_c, b), words(key[0]));
      c = exclusive_or(exclusive_or(high_a, d), words(key[1]));
      b = low_c;
      d = low_a;
    }
    Words out;
    store_words(out.w[0], a);
    store_words(out.w[1], b);
    store_words(out.w[2], c);
    store_words(out.w[3], d);
    return out;
  }
};

// noise.py's log, of positive normal doubles.
INLINE double log(double x) {
  int64_t bits;
  memcpy(&bits, &x, 8);
  double e = double((bits >> 52) - 1022), m;
  bits = (bits & 0x000fffffffffffff) | 0x3fe0000000000000;  // the mantissa, in [1/2, 1)
  memcpy(&m, &bits, 8);
  if (m < 1.4142135623730951 / 2) {
    m *= 2.0;
    e -= 1.0;
  }
  const double s = (m - 1.0) / (m + 1.0), s2 = s * s;
  double series = 1.0 / 21;
  for (int odd = 19; odd > 0; odd -= 2) series = series * s2 + 1.0 / odd;
  return e * 0.6931471805599453 + 2.0 * s * series;
}

// noise.py's Gumbel noise of token first + i.
INLINE double gumbel(const Words& words, int i) {
  const uint64_t high = words.w[i % 2 * 2][i / 2], low = words.w[i % 2 * 2 + 1][i / 2];
  const double u = (double((high << 20) | (low >> 12)) + 0.5) * 0x1p-52;
  return -log(-log(u));
}

// e^-x to a part in 1e14 for N numbers in [0, WINDOW), 0 for greater ones. In loops that the compiler makes vectors of.
template <int N>
INLINE void weigh(const double* x, double* mass) {
  constexpr double magic = 0x1.8p52;  // adding it rounds to a whole number, which the low bits then hold
  double power[N], rest[N];
  uint64_t bits[N];
  for (int i = 0; i < N; ++i) {
    const double y = x[i] < WINDOW ? -x[i] : -double(WINDOW);
    power[i] = y * 1.4426950408889634 + magic;
    rest[i] = y - (power[i] - magic) * 0.6931471805599453;
  }
  for (int i = 0; i < N; ++i) mass[i] = 1.0;
#pragma GCC unroll 14
  for (int term = 14; term > 0; --term)
    for (int i = 0; i < N; ++i) mass[i] = 1.0 + mass[i] * rest[i] * (1.0 / term);
  memcpy(bits, power, sizeof bits);
  for (int i = 0; i < N; ++i) bits[i] = (bits[i] + 1023) << 52;
  memcpy(power, bits, sizeof bits);
  for (int i = 0; i < N; ++i) mass[i] = x[i] < WINDOW ? mass[i] * power[i] : 0.0;
}

// Of 16 logits: how far they are below the top, and their weights.
__attribute__((noinline)) void weigh_row(const float* logits, double temperature, double top, double* below,
                                         double* mass) {
  for (int i = 0; i < 16; ++i) below[i] = top - double(logits[i]) / temperature;
  weigh<16>(below, mass);
}

INLINE double weight(double below) {
  double mass;
  weigh<1>(&below, &mass);
  return mass;
}

struct Candidate {
  double score;
  int token;
};
INLINE bool before(const Candidate& a, const Candidate& b) {
  return a.score > b.score || (a.score == b.score && a.token < b.token);
}

struct Bin {
  double mass;
  int count;
};

// What the threads share.
struct Summary {
  float top;  // greatest logit of this thread's part
  bool bad;   // it holds NaN
  int token;  // the first that has `top`; later the best with noise
  double value;
};

struct Choice {
  const Choose& job;
  Team& team;
  const Philox philox;
  Summary* summaries;  // [threads]
  Candidate* last;     // the last token, in the order of `before`, that truncation keeps
  Bin* bins;           // [threads][BINS]
  Candidate* found;    // [vocabulary]
  int from, to;        // this thread's tokens
  float top;
  double top_score, least;  // greatest score, and the least that min-p keeps
  int top_token;

  static constexpr size_t room(int threads, int vocabulary) {
    return size_t(threads) * (sizeof(Summary) + BINS * sizeof(Bin)) + size_t(vocabulary + 1) * sizeof(Candidate);
  }

  Choice(const Choose& job, Team& team) : job(job), team(team), philox(job) {
    bins = reinterpret_cast<Bin*>(team.shared);
    last = reinterpret_cast<Candidate*>(bins + team.size * BINS);
    found = last + 1;
    summaries = reinterpret_cast<Summary*>(found + job.vocabulary);
    const int strides = (job.vocabulary + STRIDE - 1) / STRIDE;
    from = team.begin(strides) * STRIDE;
    to = lesser(team.end(strides) * STRIDE, job.vocabulary);
  }

  v16 logits(int token) const {
    if (token + 16 <= job.vocabulary) return load(job.logits + token);
    float padded[16];
    for (int i = 0; i < 16; ++i) padded[i] = token + i < job.vocabulary ? job.logits[token + i] : -__builtin_inff();
    return load(padded);
  }
  double score(int token) const { return double(job.logits[token]) / job.temperature; }
  // Distances of 16 scores from the top, in float32: never positive, and right to SLACK where it matters.
  v16 distances(int token) const {
    const double inverse = 1.0 / job.temperature;
    return mul(sub(logits(token), all(top)), all(inverse < 1e30 ? float(inverse) : 1e30f));
  }

  // Finds the greatest logit and its first token; false if the row has NaN or no finite top.
  bool find_top() {
    const v16 lowest = all(-__builtin_inff());
    v16 most = lowest, bad = zero();
    for (int t = from; t < to; t += 16) {
      const v16 x = logits(t);
      most = max(x, most);
      bad = add(bad, where_ge(x, lowest, zero(), all(1.0f)));
    }
    Summary& mine = summaries[team.id];
    mine = {greatest(most), sum(bad) > 0.0f, from, 0.0};
    while (mine.token < to && job.logits[mine.token] != mine.top) ++mine.token;
    team.barrier();
    top = -__builtin_inff();
    bool fine = true;
    for (int i = 0; i < team.size; ++i) {
      fine &= !summaries[i].bad;
      if (summaries[i].top > top) top = summaries[i].top, top_token = summaries[i].token;
    }
    top_score = double(top) / job.temperature;
    least = top_score + job.log_min_p;
    return fine && top - top == 0.0f;
  }

  // Counts and weighs tokens [from, to) by bins, as deep as `limit` of them; returns the weight of all within WINDOW.
  double fill_bins(int from, int to, int limit, Bin* mine) const {
    memset(mine, 0, BINS * sizeof(Bin));
    const double depth = double(limit) / BINS_A_NAT;
    double sums[16] = {};
    for (int t = from; t < to; t += 16) {
      const float nearest = greatest(distances(t));
      if (nearest < -WINDOW - SLACK) continue;
      float row[16];
      store(row, logits(t));
      double below[16], mass[16];
      weigh_row(row, job.temperature, top_score, below, mass);
      for (int i = 0; i < 16; ++i) sums[i] += mass[i];
      if (nearest < float(-depth) - SLACK) continue;
      for (int i = 0; i < 16; ++i)
        if (below[i] < depth) {
          Bin& bin = mine[int(below[i] * BINS_A_NAT)];
          bin.mass += mass[i];
          ++bin.count;
        }
    }
    double total = 0.0;
    for (double part : sums) total += part;
    return total;
  }

  // Finds the border from all threads' bins; false if rounding could move it.
  bool truncate() {
    double total = summaries[0].value;
    for (int i = 1; i < team.size; ++i) {
      total += summaries[i].value;
      for (int b = 0; b < BINS; ++b) {
        bins[b].mass += bins[i * BINS + b].mass;
        bins[b].count += bins[i * BINS + b].count;
      }
    }
    if (cut(NEAR * BINS_A_NAT, total)) return true;
    total = fill_bins(0, job.vocabulary, BINS, bins);
    return cut(BINS, total);
  }

  // top-k, then top-p on what it left: sets *last. False if the border is not within `limit` bins or not certain.
  bool cut(int limit, double total) {
    keep_all();
    int end = limit;
    if (job.top_k > 0 && job.top_k < job.vocabulary) {
      end = cut_at_count(limit);
      total = 0.0;
      for (int b = 0; b < end; ++b) total += bins[b].mass;
    }
    return end >= 0 && (job.top_p >= 1.0 || cut_at_mass(end, total));
  }
  void keep_all() { *last = {-__builtin_inf(), job.vocabulary}; }

  // Keeps job.top_k tokens; returns the number of bins that are left, the last one reduced to what is kept of it, or
  // -1.
  int cut_at_count(int limit) {
    int b = 0, kept = 0;
    while (b < limit && kept + bins[b].count < job.top_k) kept += bins[b++].count;
    if (b == limit && limit < BINS) return -1;
    const int rest = lesser(job.top_k - kept, sorted_bin(b));
    if (rest) *last = found[rest - 1];
    if (b == BINS) return b;
    bins[b] = {0.0, rest};
    for (int i = 0; i < rest; ++i) bins[b].mass += weight(top_score - found[i].score);
    return b + 1;
  }

  // Keeps the fewest of the best tokens in bins [0, end) that have top_p of the total.
  bool cut_at_mass(int end, double total) {
    const double wanted = job.top_p * total;
    const double doubt = (1e-12 + 4e-16 * job.vocabulary) * total;  // more than rounds here and in the twin
    double mass = 0.0;
    int b = 0;
    while (b < end && mass + bins[b].mass < wanted - doubt) mass += bins[b++].mass;
    if (b == end) return false;
    const int n = lesser(sorted_bin(b), bins[b].count);
    for (int i = 0; i < n; ++i) {
      mass += weight(top_score - found[i].score);
      if (mass > wanted - doubt && mass < wanted + doubt) return false;
      if (mass < wanted) continue;
      *last = found[i];
      return true;
    }
    return false;
  }

  // Tokens of a bin, or for BINS those beyond all bins, best first; returns how many.
  int sorted_bin(int bin) {
    const double nearest = double(bin) / BINS_A_NAT, farthest = bin < BINS ? (bin + 1.0) / BINS_A_NAT : __builtin_inf();
    const float low = float(-farthest) - SLACK;
    const v16 high = all(float(-nearest) + SLACK);
    int n = 0;
    for (int t = 0; t < job.vocabulary; t += 16) {
      const v16 d = distances(t);
      if (greatest(where_ge(high, d, d, all(-__builtin_inff()))) < low) continue;
      for (int i = t; i < lesser(t + 16, job.vocabulary); ++i) {
        const double below = top_score - score(i);
        if (below >= nearest && below < farthest) found[n++] = {score(i), i};
      }
    }
    std::sort(found, found + n, before);
    return n;
  }

  bool alive(int token, double score) const { return score >= least && !before(*last, {score, token}); }

  // The best of this thread's tokens with noise. A token whose score with the most that its noise can be stays below
  // the best is passed over: from 1 - u >= rest * 2^-24 follows -log(-log u) < -log(1 - u) <= (24 - floor(log2 rest))
  // log 2.
  void draw() {
    Summary best = {top, false, top_token, top_score};
    best.value += gumbel(philox(top_token / STRIDE * PAIRS), top_token % STRIDE);
    const float cut = float(std::max(last->score, least) - top_score) - SLACK;
    for (int t = from; t < to; t += STRIDE) {
      const float reach = float(best.value - top_score) - SLACK;
      const v16 low = distances(t), high = distances(t + 16);
      const float nearest = greatest(max(low, high));
      if (nearest < cut || nearest + LARGEST_GUMBEL < reach) continue;
      const Words noise = philox(t / 2);
      float bound[STRIDE];
      store(bound, low);
      store(bound + 16, high);
      for (int i = 0; i < STRIDE; ++i) bound[i] += LN2 * float(151 - exponent(float(~noise.w[i % 2 * 2][i / 2] >> 8)));
      if (greatest(max(load(bound), load(bound + 16))) < reach) continue;
      for (int i = 0; i < STRIDE; ++i) {
        if (!(bound[i] >= reach) || t + i >= to) continue;
        const double s = score(t + i), value = s + gumbel(noise, i);
        if (value < best.value || !alive(t + i, s)) continue;
        if (value > best.value || t + i < best.token) best.value = value, best.token = t + i;
      }
    }
    summaries[team.id] = best;
  }
  static INLINE int exponent(float x) {
    int32_t bits;
    memcpy(&bits, &x, 4);
    return bits >> 23;
  }

  int best() const {
    Summary best = summaries[0];
    for (int i = 1; i < team.size; ++i) {
      const Summary& s = summaries[i];
      if (s.value > best.value || (s.value == best.value && s.token < best.token)) best = s;
    }
    return best.token;
  }

  bool truncates() const { return (job.top_k > 0 && job.top_k < job.vocabulary) || job.top_p < 1.0; }

  int run() {
    if (!find_top()) return NOT_FINITE;
    if (job.temperature == 0.0) return top_token;
    if (truncates()) {
      team.barrier();  // all have read the summaries
      summaries[team.id].value = fill_bins(from, to, NEAR * BINS_A_NAT, bins + team.id * BINS);
      team.barrier();
      if (team.id == 0) summaries[0].bad = !truncate();
    } else if (team.id == 0) {
      keep_all();
    }
    team.barrier();
    if (summaries[0].bad) return UNDECIDED;
    team.barrier();  // all have read it
    draw();
    team.barrier();
    return best();
  }
};

void choose(Team& team, const void* arguments) {
  const Choose& job = *static_cast<const Choose*>(arguments);
  const int token = Choice(job, team).run();
  if (team.id == 0) *job.token = token;
}

}  // namespace
