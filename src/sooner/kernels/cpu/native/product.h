// Products with packed weights. Every output is a sum of chains of fused multiply-adds, one for each PANEL of inputs
// in order (a single long chain rounds worse), whatever rows and outputs are computed beside it: so its bits depend
// on its own row and column alone.
#pragma once

namespace {

constexpr int PANEL = 256;  // inputs of a chain, and of a widened block that stays in the first cache
constexpr int RUN = 1024;   // bytes ahead of a stream
constexpr int PART = 240;   // rows that pass over a block while it is in the cache

// Inputs of a tile: x[r * ldx + i], i < k.
struct Inputs {
  const float* x;
  size_t ldx;
  int k;
};
// Sums of a tile: a[r * lda + 16 * b + lane]. They are set, or the tile's are added to them, or continue their chains.
enum Start { SET, ADD, CONTINUE };
struct Sums {
  float* a;
  size_t lda;
  Start start;
};
// What the thread will need after the weights at hand, fetched into the second cache while it computes: of each stream
// `step` bytes for each group of inputs of a tile, from `at` on. Without it a tile of many rows waits for its weights
// and then computes, in turn.
struct Ahead {
  const uint8_t* streams[2 * 2];
  size_t at, step;
};

// sums[r][b] = sum over i < k of x[r][i] * w[b][i], for R rows and B blocks of 16 outputs, walked together so that
// enough independent chains hide the latency of the multiply-adds. With `pieces`, w holds B blocks for each k inputs
// in turn. One stream is not enough to keep the memory busy: its tiles fetch what comes later (`Ahead`), as do those that
// `fetches_ahead` names. Of the others, two or three are prefetched as they run; more the hardware follows by itself.
template <class Walk, int R, int B>
__attribute__((noinline)) void tile(const uint8_t* const* w, size_t step, const Inputs& inputs, const Sums& sums,
                                    int pieces, Ahead* ahead) {
  constexpr int jumps = Walk::streams(R, B);
  constexpr int share = jumps == 1 ? B : 1;                   // blocks that one stream stands for
  constexpr int lines = int(share * Walk::bytes + 63) / 64;  // of the second cache or of memory, a group
  constexpr int steps = Walk::group / Walk::unit;
  constexpr int spread = share > 1 && steps > 2 ? (lines + steps - 1) / steps : 0;  // lines of a step: a burst would stall
  constexpr bool full = Walk::unit > 1 && R >= 5;            // compilers then spill accumulators, if they may
  constexpr bool runs = Walk::fetch && !jumps && (R > 1 || B == 2);
  const uint8_t* jump[4];
#pragma GCC unroll 16
  for (int s = 0; s < jumps; ++s) jump[s] = ahead->streams[s] + ahead->at;
  const size_t fetch_step = jumps ? share * ahead->step : 0;
  const float* x = inputs.x;
  const size_t ldx = inputs.ldx;
  const int k = inputs.k;
  v16 acc[R][B];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int b = 0; b < B; ++b) acc[r][b] = sums.start == CONTINUE ? load(sums.a + r * sums.lda + 16 * b) : zero();

  for (int piece = 0; piece < pieces; ++piece, w += B, x += k) {
    const uint8_t* p[B];
#pragma GCC unroll 16
    for (int b = 0; b < B; ++b) p[b] = w[b];

    typename Walk::Scale scale[B];
    const auto multiply = [&](int i, int j) __attribute__((always_inline)) {
      if constexpr (SHARED_INPUTS && B > 1) {
#pragma GCC unroll 16
        for (int u = 0; u < Walk::unit; ++u) {
          asm volatile("" ::: "memory");  // read no input early: it would take a register
          v16 weights[B];
#pragma GCC unroll 16
          for (int b = 0; b < B; ++b) weights[b] = Walk::unpack(scale[b], p[b], j, u);
#pragma GCC unroll 16
          for (int r = 0; r < R; ++r) {
            const v16 input = all(x[r * ldx + i + j + u]);
#pragma GCC unroll 16
            for (int b = 0; b < B; ++b) acc[r][b] = fma(input, weights[b], acc[r][b]);
          }
        }
        return;
      }
#pragma GCC unroll 16
      for (int b = 0; b < B; ++b) {
        if (b && B == Walk::widest(R)) asm volatile("" ::: "memory");  // read x again rather than spill an accumulator
#pragma GCC unroll 16
        for (int u = 0; u < Walk::unit; ++u) {
          if (u && full) reload();  // the bytes that two inputs share
          const v16 weight = Walk::unpack(scale[b], p[b], j, u);
#pragma GCC unroll 16
          for (int r = 0; r < R; ++r) {
            acc[r][b] = fma(all(x[r * ldx + i + j + u]), weight, acc[r][b]);
            if (full) keep(acc[r][b]);
          }
        }
      }
    };
    int i = 0;
#pragma GCC unroll UNROLL
    for (; i + Walk::group <= k; i += Walk::group) {
#pragma GCC unroll 16
      for (int line = 0; line < (spread ? 0 : lines); ++line) {
#pragma GCC unroll 16
        for (int s = 0; s < jumps; ++s) __builtin_prefetch(jump[s] + 64 * line, 0, 2);
#pragma GCC unroll 16
        for (int b = 0; b < B; ++b)
          if (runs) __builtin_prefetch(p[b] + RUN + 64 * line);
      }
#pragma GCC unroll 16
      for (int b = 0; b < B; ++b) scale[b] = Walk::scale(p[b]);
#pragma GCC unroll UNROLL
      for (int j = 0; j < Walk::group; j += Walk::unit) {
#pragma GCC unroll 16
        for (int line = 0; line < spread; ++line)
          __builtin_prefetch(jump[0] + 64 * (j / Walk::unit * spread + line), 0, 2);
        multiply(i, j);
      }
#pragma GCC unroll 16
      for (int s = 0; s < jumps; ++s) jump[s] += fetch_step;
#pragma GCC unroll 16
      for (int b = 0; b < B; ++b) p[b] += Walk::advance(step);
    }
    if (Walk::group == 2 && i < k) multiply(i, 0);
  }
  if (jumps) ahead->at += fetch_step * size_t(pieces * (k / Walk::group));

#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int b = 0; b < B; ++b) {
      float* a = sums.a + r * sums.lda + 16 * b;
      store(a, sums.start == ADD ? add(load(a), acc[r][b]) : acc[r][b]);
    }
}

using Tile = void (*)(const uint8_t* const*, size_t, const Inputs&, const Sums&, int pieces, Ahead*);

// The tile for `rows` <= ROWS and `blocks` <= Walk::widest(rows).
template <class Walk, int R = ROWS>
INLINE Tile tile_for(int rows, int blocks) {
  if constexpr (R > 1)
    if (rows < R) return tile_for<Walk, R - 1>(rows, blocks);
  constexpr int most = Walk::widest(R);
  static constexpr Tile table[BLOCKS] = {
      tile<Walk, R, 1>,
      tile<Walk, R, lesser(most, 2)>,
      tile<Walk, R, lesser(most, 3)>,
      tile<Walk, R, lesser(most, 4)>,
      tile<Walk, R, lesser(most, 5)>,
      tile<Walk, R, lesser(most, 6)>,
  };
  return table[blocks - 1];
}

// `count` blocks at w, w + stride, ... for up to ROWS rows: a[r][16 b ..], `most` blocks at once.
template <class Walk>
void blocks_of(const uint8_t* w, size_t stride, int count, int most, const Inputs& inputs, int rows, float* a,
               Ahead& ahead) {
  for (int b = 0; b < count;) {
    const int n = lesser(count - b, most);
    for (int from = 0; from < inputs.k; from += PANEL) {
      const uint8_t* streams[BLOCKS];
      for (int i = 0; i < n; ++i) streams[i] = w + size_t(b + i) * stride + size_t(from / Walk::group) * Walk::bytes;
      tile_for<Walk>(rows, n)(streams, 0, {inputs.x + from, inputs.ldx, lesser(inputs.k - from, PANEL)},
                              {a + 16 * b, BLOCKS * 16, from ? ADD : SET}, 1, &ahead);
    }
    b += n;
  }
}

// Rows in as few groups of at most ROWS as there can be, of equal size but for the last.
struct Groups {
  int rows, count, size;
  explicit Groups(int rows) : rows(rows), count((rows + ROWS - 1) / ROWS), size((rows + count - 1) / count) {}
  int begin(int g) const { return g * size; }
  int end(int g) const { return lesser(rows, begin(g) + size); }
};

template <class Walk>
INLINE size_t block_bytes(int k) {
  return size_t((k + Walk::group - 1) / Walk::group) * Walk::bytes;
}

// Blocks of a piece of work: many where a tile walks several at once.
template <class Walk>
constexpr int chunk_of(int rows) {
  return Walk::widest(lesser(rows, ROWS)) > 1 ? BLOCKS : 2;
}

// What to fetch during a piece whose weights are passed over by `passes` tiles, `bytes` of them at each step.
INLINE Ahead ahead_of(const Matrix& m, size_t stride, int next, size_t bytes, int passes) {
  return {{m.data + size_t(greater(next, 0)) * stride}, 0, next < 0 ? 0 : (bytes + size_t(passes) - 1) / size_t(passes)};
}

// Fetches the start of what this thread will read first of the next product: the memory would otherwise idle until all
// threads are done, and through what comes before that product.
INLINE void fetch_start(const Team& team, const Matrix* m, int rows) {
  if (!m) return;
  with_walk(m->format, [&](auto walk) {
    const size_t stride = block_bytes<decltype(walk)>(m->k);
    const int chunk = chunk_of<decltype(walk)>(rows);
    const int first = lesser(team.id * chunk, blocks(*m)), count = lesser(chunk, blocks(*m) - first);
    for (int b = 0; b < count; ++b)
      for (size_t line = 0; line < START && line < stride; line += 64)
        __builtin_prefetch(m->data + size_t(first + b) * stride + line, 0, 2);
  });
}

// Weights are widened on their way to the registers, anew for each group of rows.
template <class Walk>
void direct(Team& team, const Linear& job, const float* x) {
  const size_t stride = block_bytes<Walk>(job.matrix->k), k = size_t(job.matrix->k);
  each_piece(team, job, chunk_of<Walk>(job.rows), PART, [&](const Piece& piece, int next) {
    const Groups groups(piece.rows);
    Ahead ahead = ahead_of(*job.matrix, stride, next, Walk::bytes, groups.count);
    // Three rows of seven, say, with the weights in the cache: streams side by side took longer than four rows with one.
    const int most = groups.count > 1 ? 1 : Walk::widest(groups.size);
    for (int g = 0; g < groups.count; ++g) {
      const int row = piece.row + groups.begin(g), rows = groups.end(g) - groups.begin(g);
      float a[ROWS * BLOCKS * 16];
      blocks_of<Walk>(job.matrix->data + size_t(piece.block) * stride, stride, piece.count, most,
                      {x + size_t(row) * k, k, job.matrix->k}, rows, a, ahead);
      finish_any(job, row, rows, piece.block, piece.count, a, BLOCKS * 16);
    }
  });
}

// Inputs [from, to) of one block as float32 [to - from][16].
template <class Walk>
const uint8_t* widen(const uint8_t* block, int from, int to, float* panel) {
  const uint8_t* p = block + size_t(from / Walk::group) * Walk::bytes;
  for (int i = from; i < to; i += Walk::group, p += Walk::bytes) {
    const typename Walk::Scale scale = Walk::scale(p);
    for (int j = 0; j < Walk::group; j += Walk::unit) {
      v16 w[Walk::unit];
#pragma GCC unroll 16
      for (int u = 0; u < Walk::unit; ++u) w[u] = Walk::unpack(scale, p, j, u);
      for (int u = 0; u < Walk::unit && i + j + u < to; ++u, panel += 16) store(panel, w[u]);
    }
  }
  return reinterpret_cast<const uint8_t*>(panel - 16 * size_t(to - from));
}

// A panel of a block is widened once and stays in the first cache while all groups of rows pass over it.
template <class Walk>
void by_panels(Team& team, const Linear& job, const float* x) {
  const Matrix& m = *job.matrix;
  const size_t stride = block_bytes<Walk>(m.k), k = size_t(m.k);
  float *panel = team.local, *a = panel + PANEL * 16;
  each_piece(team, job, 2, PART, [&](const Piece& piece, int next) {
    const Groups groups(piece.rows);
    Ahead ahead = ahead_of(m, stride, next, (Walk::bytes + Walk::group - 1) / Walk::group, groups.count);
    for (int b = 0; b < piece.count; ++b)
      for (int from = 0; from < m.k; from += PANEL) {
        const int to = lesser(m.k, from + PANEL);
        const uint8_t* w = widen<Walk>(m.data + size_t(piece.block + b) * stride, from, to, panel);
        for (int g = 0; g < groups.count; ++g) {
          const int first = groups.begin(g), rows = groups.end(g) - first;
          tile_for<WalkF32>(rows, 1)(&w, 0, {x + size_t(piece.row + first) * k + from, k, to - from},
                                     {a + size_t(first) * 32 + 16 * b, 32, from ? ADD : SET}, 1, &ahead);
        }
      }
    finish_any(job, piece.row, piece.rows, piece.block, piece.count, a, 32);
  });
}

void linear(Team& team, const void* arguments) {
  const Linear& job = *static_cast<const Linear*>(arguments);
  const size_t k = size_t(job.matrix->k);
  const float* x = job.x;
  if (job.norm) {
    for (int r = team.begin(job.rows); r < team.end(job.rows); ++r)
      normalise(job.x + size_t(r) * k, job.matrix->k, job.norm, job.eps, nullptr, team.shared + size_t(r) * k);
    team.barrier();
    x = team.shared;
  }
  with_walk(job.matrix->format, [&](auto walk) {
    using Walk = decltype(walk);
    (job.rows > Walk::direct * ROWS ? by_panels<Walk> : direct<Walk>)(team, job, x);
  });
  fetch_start(team, job.then, job.rows);
}

void rmsnorm(Team& team, const void* arguments) {
  const RmsNorm& job = *static_cast<const RmsNorm*>(arguments);
  const size_t width = size_t(job.width);
  for (size_t r = size_t(team.begin(job.rows)); r < size_t(team.end(job.rows)); ++r)
    normalise(job.x + r * width, job.width, job.norm, job.eps, job.add ? job.add + r * width : nullptr,
              job.out + r * width);
}

// One row of a packed matrix: a lane of its block, taken group by group.
template <class Walk>
void take_row(const Matrix& m, int64_t row, float* out) {
  const uint8_t* p = m.data + size_t(row / 16) * block_bytes<Walk>(m.k);
  for (int i = 0; i < m.k; i += Walk::group, p += Walk::bytes) {
    const typename Walk::Scale scale = Walk::scale(p);
    for (int j = 0; j < Walk::group; j += Walk::unit) {
      for (int u = 0; u < Walk::unit && i + j + u < m.k; ++u) {
        float lanes[16];
        store(lanes, Walk::unpack(scale, p, j, u));
        *out++ = lanes[row % 16];
      }
    }
  }
}

void embed(Team& team, const void* arguments) {
  const Embed& job = *static_cast<const Embed*>(arguments);
  with_walk(job.matrix->format, [&](auto walk) {
    for (int r = team.begin(job.rows); r < team.end(job.rows); ++r)
      take_row<decltype(walk)>(*job.matrix, job.tokens[r], job.out + size_t(r) * size_t(job.matrix->k));
  });
}

}  // namespace
