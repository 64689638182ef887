// Products with packed weights. Every output is a sum of chains of fused multiply-adds, one for each PANEL of inputs
// in order (a single long chain rounds worse), whatever rows and outputs are computed beside it: so its bits depend
// on its own row and column alone.
#pragma once

namespace {

constexpr int ROWS = 6;         // most rows of a tile
constexpr int BLOCKS = 6;       // most blocks of 16 outputs of a tile
constexpr int PREFETCH = 2048;  // bytes ahead
constexpr int PANEL = 256;      // inputs of a chain, and of a widened block that stays in the first cache
constexpr int PART = 240;       // rows that pass over a block while it is in the cache

INLINE int lesser(int a, int b) { return a < b ? a : b; }
INLINE int greater(int a, int b) { return a > b ? a : b; }

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

// sums[r][b] = sum over i < k of x[r][i] * w[b][i], for R rows and B blocks of 16 outputs, walked together so that
// enough independent chains hide the latency of the multiply-adds. With `pieces`, w holds B blocks for each k inputs
// in turn.
template <class Walk, int R, int B>
__attribute__((noinline)) void tile(const uint8_t* const* w, size_t step, const Inputs& inputs, const Sums& sums,
                                    int pieces) {
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

#pragma GCC unroll UNROLL
    for (int i = 0; i < k; i += Walk::group) {
      typename Walk::Scale scale[B];
#pragma GCC unroll 16
      for (int b = 0; b < B; ++b) scale[b] = Walk::scale(p[b]);
#pragma GCC unroll UNROLL
      for (int j = 0; j < Walk::group; j += Walk::unit) {
#pragma GCC unroll 16
        for (int b = 0; b < B; ++b) {
          v16 weight[Walk::unit];
          if (b && R * B == Walk::tile) asm volatile("" ::: "memory");  // read x again rather than spill an accumulator
          Walk::unpack(scale[b], p[b], j, weight);
          // (three streams or more keep the hardware's own prefetching busy)
          if (Walk::fetch && B <= 2 && (Walk::group == 1 || j % 4 == 0))
            __builtin_prefetch(p[b] + PREFETCH + j * 16 / Walk::unit);
#pragma GCC unroll 16
          for (int u = 0; u < Walk::unit; ++u)
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) acc[r][b] = fma(all(x[r * ldx + i + j + u]), weight[u], acc[r][b]);
        }
      }
#pragma GCC unroll 16
      for (int b = 0; b < B; ++b) p[b] += Walk::advance(step);
    }
  }

#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int b = 0; b < B; ++b) {
      float* a = sums.a + r * sums.lda + 16 * b;
      store(a, sums.start == ADD ? add(load(a), acc[r][b]) : acc[r][b]);
    }
}

using Tile = void (*)(const uint8_t* const*, size_t, const Inputs&, const Sums&, int pieces);

// The most blocks that a tile of `rows` rows may have.
template <class Walk>
constexpr int widest(int rows) {
  return Walk::tile < 2 * rows ? 1 : Walk::tile / rows < BLOCKS ? Walk::tile / rows : BLOCKS;
}

template <class Walk, int R>
Tile tile_of(int blocks) {
  constexpr int most = widest<Walk>(R);
  static constexpr Tile table[BLOCKS] = {
      tile<Walk, R, 1>,
      tile<Walk, R, most < 2 ? most : 2>,
      tile<Walk, R, most < 3 ? most : 3>,
      tile<Walk, R, most < 4 ? most : 4>,
      tile<Walk, R, most < 5 ? most : 5>,
      tile<Walk, R, most < 6 ? most : 6>,
  };
  return table[blocks - 1];
}

// The tile for `rows` <= ROWS and `blocks` <= widest<Walk>(rows).
template <class Walk>
Tile tile_for(int rows, int blocks) {
  switch (rows) {
    case 1: return tile_of<Walk, 1>(blocks);
    case 2: return tile_of<Walk, 2>(blocks);
    case 3: return tile_of<Walk, 3>(blocks);
    case 4: return tile_of<Walk, 4>(blocks);
    case 5: return tile_of<Walk, 5>(blocks);
    default: return tile_of<Walk, 6>(blocks);
  }
}

// `count` blocks at w, w + stride, ... for up to ROWS rows: a[r][16 b ..], as many blocks at once as registers allow.
template <class Walk>
void blocks_of(const uint8_t* w, size_t stride, int count, const Inputs& inputs, int rows, float* a) {
  const int most = widest<Walk>(rows);
  for (int b = 0; b < count;) {
    const int n = lesser(count - b, most);
    for (int from = 0; from < inputs.k; from += PANEL) {
      const uint8_t* streams[BLOCKS];
      for (int i = 0; i < n; ++i) streams[i] = w + size_t(b + i) * stride + size_t(from / Walk::group) * Walk::bytes;
      tile_for<Walk>(rows, n)(streams, 0, {inputs.x + from, inputs.ldx, lesser(inputs.k - from, PANEL)},
                              {a + 16 * b, BLOCKS * 16, from ? ADD : SET}, 1);
    }
    b += n;
  }
}

// Groups of at most ROWS rows, as even as possible.
struct Groups {
  int rows, count;
  explicit Groups(int rows) : rows(rows), count((rows + ROWS - 1) / ROWS) {}
  int begin(int g) const { return rows * g / count; }
};

INLINE void store_lanes(float* p, v16 a, int lanes) {
  if (lanes >= 16) return store(p, a);
  float buffer[16];
  store(buffer, a);
  memcpy(p, buffer, size_t(lanes) * sizeof(float));
}

INLINE v16 load_lanes(const float* p, int lanes) {
  if (lanes >= 16) return load(p);
  float buffer[16] = {};
  memcpy(buffer, p, size_t(lanes) * sizeof(float));
  return load(buffer);
}

// Finishes rows [row, row + rows) of blocks [block, block + count), whose sums are a[r][16 b ..], and writes them.
INLINE void finish(const Linear& job, int row, int rows, int block, int count, const float* a, size_t lda) {
  const Matrix& m = *job.matrix;
  for (int r = 0; r < rows; ++r, a += lda)
    for (int b = 0; b < count; ++b) {
      const int column = 16 * (block + b), lanes = m.n - column;
      const size_t at = size_t(row + r) * size_t(m.n) + size_t(column);
      v16 y = load(a + 16 * b);
      if (m.bias) y = add(y, load_lanes(m.bias + column, lanes));
      if (job.add) y = add(y, load_lanes(job.add + at, lanes));
      store_lanes(job.out + at, y, lanes);
    }
}

INLINE void finish_paired(const Linear& job, int row, int rows, int block, int count, const float* a, size_t lda) {
  const int width = job.matrix->n / 2;
  for (int r = 0; r < rows; ++r, a += lda)
    for (int b = 0; b < count; b += 2) {
      const int column = 8 * (block + b);
      const v16 y = mul(activate(job.activation, load(a + 16 * b)), load(a + 16 * b + 16));
      store_lanes(job.out + size_t(row + r) * size_t(width) + column, y, width - column);
    }
}

INLINE void finish_any(const Linear& job, int row, int rows, int block, int count, const float* a, size_t lda) {
  (job.matrix->paired ? finish_paired : finish)(job, row, rows, block, count, a, lda);
}

INLINE int blocks(const Matrix& m) { return m.paired ? 2 * ((m.n / 2 + 15) / 16) : (m.n + 15) / 16; }

// A piece of work: rows [row, row + rows) and blocks [block, block + count).
struct Piece {
  int row, rows, block, count;
};

// Calls body(piece) for the pieces that this thread claims: `chunk` blocks, which never part a pair, times at most
// PART rows.
template <class Body>
INLINE void each_piece(Team& team, const Linear& job, int chunk, Body&& body) {
  const int total = blocks(*job.matrix), chunks = (total + chunk - 1) / chunk, parts = (job.rows + PART - 1) / PART;
  for (int item; (item = team.take()) < chunks * parts;) {
    const int block = item / parts * chunk, part = item % parts, row = job.rows * part / parts;
    body(Piece{row, job.rows * (part + 1) / parts - row, block, lesser(total - block, chunk)});
  }
}

// Weights are widened on their way to the registers, anew for each group of rows.
template <class Walk>
void direct(Team& team, const Linear& job, const float* x) {
  const size_t stride = size_t(job.matrix->k / Walk::group) * Walk::bytes, k = size_t(job.matrix->k);
  each_piece(team, job, job.rows > ROWS ? 2 : BLOCKS, [&](const Piece& piece) {
    const Groups groups(piece.rows);
    for (int g = 0; g < groups.count; ++g) {
      const int row = piece.row + groups.begin(g), rows = groups.begin(g + 1) - groups.begin(g);
      float a[ROWS * BLOCKS * 16];
      blocks_of<Walk>(job.matrix->data + size_t(piece.block) * stride, stride, piece.count,
                      {x + size_t(row) * k, k, job.matrix->k}, rows, a);
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
      Walk::unpack(scale, p, j, w);
      for (int u = 0; u < Walk::unit; ++u, panel += 16) store(panel, w[u]);
    }
  }
  return reinterpret_cast<const uint8_t*>(panel - 16 * size_t(to - from));
}

// A panel of a block is widened once and stays in the first cache while all groups of rows pass over it.
template <class Walk>
void by_panels(Team& team, const Linear& job, const float* x) {
  const Matrix& m = *job.matrix;
  const size_t stride = size_t(m.k / Walk::group) * Walk::bytes, k = size_t(m.k);
  float *panel = team.local, *a = panel + PANEL * 16;
  each_piece(team, job, 2, [&](const Piece& piece) {
    const Groups groups(piece.rows);
    for (int b = 0; b < piece.count; ++b)
      for (int from = 0; from < m.k; from += PANEL) {
        const int to = lesser(m.k, from + PANEL);
        const uint8_t* w = widen<Walk>(m.data + size_t(piece.block + b) * stride, from, to, panel);
        for (int g = 0; g < groups.count; ++g) {
          const int first = groups.begin(g), rows = groups.begin(g + 1) - first;
          tile_for<WalkF32>(rows, 1)(&w, 0, {x + size_t(piece.row + first) * k + from, k, to - from},
                                     {a + size_t(first) * 32 + 16 * b, 32, from ? ADD : SET}, 1);
        }
      }
    finish_any(job, piece.row, piece.rows, piece.block, piece.count, a, 32);
  });
}

// y = x / sqrt(mean(x^2) + eps) * weight (+ add). The squares are summed in sixteen strided chains.
INLINE void normalise(const float* x, int width, const float* weight, float eps, const float* plus, float* y) {
  v16 squares = zero();
  for (int i = 0; i < width; i += 16) {
    const v16 v = load_lanes(x + i, width - i);
    squares = fma(v, v, squares);
  }
  const v16 factor = all(1.0f / __builtin_sqrtf(sum(squares) / float(width) + eps));
  for (int i = 0; i < width; i += 16) {
    v16 v = mul(mul(load_lanes(x + i, width - i), factor), load_lanes(weight + i, width - i));
    if (plus) v = add(v, load_lanes(plus + i, width - i));
    store_lanes(y + i, v, width - i);
  }
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
    if constexpr (Walk::group > 1)
      if (job.rows > Walk::direct * ROWS) return by_panels<Walk>(team, job, x);
    direct<Walk>(team, job, x);
  });
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
  const uint8_t* p = m.data + size_t(row / 16) * size_t(m.k / Walk::group) * Walk::bytes;
  for (int i = 0; i < m.k; i += Walk::group, p += Walk::bytes) {
    const typename Walk::Scale scale = Walk::scale(p);
    for (int j = 0; j < Walk::group; j += Walk::unit) {
      v16 w[Walk::unit];
      Walk::unpack(scale, p, j, w);
      for (int u = 0; u < Walk::unit; ++u) {
        float lanes[16];
        store(lanes, w[u]);
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
