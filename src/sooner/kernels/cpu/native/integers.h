// Products of quantised weights with inputs that are rounded to 8 bits, in groups of 32 along a row. The dot of a group
// is exact; then, group by group in order,
//   y = fma(weight scale * input scale, dot, y), and with a minimum y = fma(minimum, input scale * sum of inputs, y),
// whatever is computed beside it: so an output's bits depend on its own row and column alone, on every instruction set.
#pragma once
// clang-format off: in the order of use
#include "table.h"
#include "lanes_math.h"
#include "pieces.h"
// clang-format on

namespace {

constexpr int GROUP = 32;
constexpr size_t AT_ONCE = BLOCKS * START;  // bytes that are fetched before a product begins

// 32 inputs of a row: x is about scale * q.
struct Rounded {
  int8_t q[GROUP];
  float scale, shift;  // shift: scale times the sum of q
  int32_t sums[2];     // of q, by halves
};

// Rounded rows lie in tiles of DOT_ROWS: [tile][group][DOT_ROWS]. Where the last tile has fewer, the rest is undefined.
INLINE size_t place(int row, int groups) {
  return size_t(row / DOT_ROWS) * size_t(groups) * DOT_ROWS + size_t(row % DOT_ROWS);
}

// The scale is the greatest magnitude / 127; quotients are rounded to the nearest, ties to even. A group whose
// magnitudes are all below 2^-100 counts as zeros, one that is not finite makes all that it meets NaN.
INLINE void round_group(const float* x, Rounded* to) {
  const v16 a = load(x), b = load(x + 16), none = zero();
  const float most = greatest(max(max(a, sub(none, a)), max(b, sub(none, b))));
  const float spoiled = sum(fma(a, none, mul(b, none)));  // 0 or NaN
  const float scale = most < 0x1p-100f ? 0.0f : most / 127.0f;
  const v16 unit = all(scale > 0.0f ? scale : __builtin_inff()), magic = all(12582912.0f);  // 1.5 * 2^23
  float rounded[GROUP];
  store(rounded, add(div(a, unit), magic));  // adding it leaves the whole number in the low bits
  store(rounded + 16, add(div(b, unit), magic));
  for (int half = 0; half < 2; ++half) {
    int32_t total = 0;
    for (int i = 16 * half; i < 16 * half + 16; ++i) {
      uint32_t word;
      memcpy(&word, rounded + i, sizeof word);
      to->q[i] = int8_t(word & 255);
      total += to->q[i];
    }
    to->sums[half] = total;
  }
  to->scale = scale + spoiled;
  to->shift = to->scale * float(to->sums[0] + to->sums[1]);
}

// How a format lies: [scales of 16 outputs, minima], then [inputs / 4][16 outputs][4 inputs], of 4 bits two times four
// inputs in a byte's low and high nibbles. A weight is scale * (q - ZERO) (+ minimum).
template <int BITS, int EACH, bool MINIMUM, int ZERO = 0, int INPUTS = GROUP>
struct Kept {
  static constexpr int bits = BITS, zero = ZERO, inputs = INPUTS;
  static constexpr bool minimum = MINIMUM;
  static constexpr size_t scales = 16 * EACH, quants = MINIMUM ? 2 * scales : scales;  // bytes
  static constexpr size_t bytes = quants + size_t(16 * INPUTS * BITS / 8);
  static INLINE v16 numbers(const uint8_t* p) {
    if constexpr (EACH == 2) return load_f16(p);
    return load(reinterpret_cast<const float*>(p));
  }
  static size_t block(int k) { return size_t(k / INPUTS) * bytes; }
};

// Calls body(kept) with how `format` lies.
template <class Body>
INLINE void with_kept(int format, Body&& body) {
  switch (format) {
    case Q8_0: return body(Kept<8, 2, false>{});
    case Q4_0: return body(Kept<4, 2, false, 8>{});
    case Q4_1: return body(Kept<4, 2, true>{});
    case G32Q4: return body(Kept<4, 4, true>{});
    case G32Q8: return body(Kept<8, 4, true>{});
    case G16Q8: return body(Kept<8, 4, false, 0, 16>{});
  }
}

// What the thread will read, fetched into the second cache: `step` bytes a group of inputs, from `at` on. A product is
// too much work for the processor to see far ahead by itself.
struct Fetch {
  const uint8_t* at;
  size_t step;
};

// a[r][lane] = the products of R rows with a block of 16 outputs.
template <class K, int R>
__attribute__((noinline)) void tile(const uint8_t* w, const Rounded* x, int groups, Fetch& fetch, float* a,
                                    size_t lda) {
  constexpr int parts = GROUP / K::inputs, lines = int(parts * K::bytes + 63) / 64;
  v16 y[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) y[r] = zero();
  for (int g = 0; g < groups; ++g, x += DOT_ROWS, fetch.at += fetch.step) {
#pragma GCC unroll 16
    for (int line = 0; line < lines; ++line) __builtin_prefetch(fetch.at + 64 * line, 0, 2);
#pragma GCC unroll 2
    for (int part = 0; part < parts; ++part, w += K::bytes) {
      const int first = part * K::inputs;
      const uint8_t* q = w + K::quants;
      Dots dots[R];
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) dots[r] = no_dots();
#pragma GCC unroll 8
      for (int i = first; i < first + K::inputs; i += 32 / K::bits, q += 64) {
        const quads weights = load_quads(q);
        if constexpr (K::bits == 8) {
#pragma GCC unroll 16
          for (int r = 0; r < R; ++r) add_dots_i8(dots[r], weights, same_quad(x[r].q + i));
        } else {
          const quads low = low_nibbles(weights), high = high_nibbles(weights);
#pragma GCC unroll 16
          for (int r = 0; r < R; ++r) {
            add_dots_u4(dots[r], low, same_quad(x[r].q + i));
            add_dots_u4(dots[r], high, same_quad(x[r].q + i + 4));
          }
        }
      }
      const v16 scale = K::numbers(w);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const int32_t inputs = parts == 2 ? x[r].sums[part] : x[r].sums[0] + x[r].sums[1];
        const v16 dot = K::bits == 8 ? total_i8(dots[r], inputs) : total_u4(dots[r], -K::zero * inputs);
        y[r] = fma(mul(scale, all(x[r].scale)), dot, y[r]);
        if constexpr (K::minimum) y[r] = fma(K::numbers(w + K::scales), all(x[r].shift), y[r]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) store(a + size_t(r) * lda, y[r]);
}

template <class K, int R = DOT_ROWS>
INLINE void tile_of(int rows, const uint8_t* w, const Rounded* x, int groups, Fetch& fetch, float* a, size_t lda) {
  if (rows == R) return tile<K, R>(w, x, groups, fetch, a, lda);
  if constexpr (R > 1) tile_of<K, R - 1>(rows, w, x, groups, fetch, a, lda);
}

// Blocks of a piece of work: two (a gate and its up projection) where there is work enough in them.
INLINE int chunk_of(int rows) { return rows > DOT_ROWS ? 2 : BLOCKS; }

template <class K>
void multiply(Team& team, const Linear& job, const Rounded* x) {
  const Matrix& m = *job.matrix;
  const int groups = m.k / GROUP, tiles = (job.rows + DOT_ROWS - 1) / DOT_ROWS;
  const size_t stride = K::block(m.k), each = GROUP / K::inputs * K::bytes;
  each_piece(team, job, chunk_of(job.rows), job.rows, [&](const Piece& piece, int next) {
    // One tile reads on; several have time for all of the next piece.
    Fetch fetch{m.data + size_t(piece.block) * stride + START, each};
    if (tiles > 1)
      fetch = {m.data + size_t(greater(next, 0)) * stride, next < 0 ? 0 : (each + size_t(tiles) - 1) / size_t(tiles)};
    for (int b = piece.block; b < piece.block + piece.count; b += 2) {
      const int count = lesser(piece.block + piece.count - b, 2);
      for (int row = 0; row < job.rows; row += DOT_ROWS) {
        const int rows = lesser(job.rows - row, DOT_ROWS);
        float a[DOT_ROWS * 32];
        for (int i = 0; i < count; ++i)
          tile_of<K>(rows, m.data + size_t(b + i) * stride, x + place(row, groups), groups, fetch, a + 16 * i, 32);
        finish_any(job, row, rows, b, count, a, 32);
      }
    }
  });
}

// As in product.h, where the next product is one of these.
INLINE void fetch_start(const Team& team, const Matrix* m, int rows) {
  if (!m || !m->integer) return;
  with_kept(m->format, [&](auto kept) {
    const int chunk = chunk_of(rows), first = lesser(team.id * chunk, blocks(*m));
    const size_t stride = kept.block(m->k), bytes = stride * size_t(lesser(chunk, blocks(*m) - first));
    for (size_t line = 0; line < bytes && line < AT_ONCE; line += 64)
      __builtin_prefetch(m->data + size_t(first) * stride + line, 0, 2);
  });
}

void linear(Team& team, const void* arguments) {
  const Linear& job = *static_cast<const Linear*>(arguments);
  const int k = job.matrix->k, groups = k / GROUP;
  Rounded* rounded = reinterpret_cast<Rounded*>(team.shared);
  for (int r = team.begin(job.rows); r < team.end(job.rows); ++r) {
    const float* x = job.x + size_t(r) * size_t(k);
    if (job.norm) {
      normalise(x, k, job.norm, job.eps, nullptr, team.local);
      x = team.local;
    }
    for (int g = 0; g < groups; ++g) round_group(x + g * GROUP, rounded + place(r, groups) + g * DOT_ROWS);
  }
  team.barrier();
  with_kept(job.matrix->format, [&](auto kept) { multiply<decltype(kept)>(team, job, rounded); });
  fetch_start(team, job.then, job.rows);
}

void linear_scratch(const Linear& job, size_t& shared, size_t& local) {
  const int k = job.matrix->k, groups = k / GROUP;
  shared = place((job.rows + DOT_ROWS - 1) / DOT_ROWS * DOT_ROWS, groups) * (sizeof(Rounded) / sizeof(float));
  local = job.norm ? size_t(k) : 0;
}

// One row of a packed matrix. A scale times a quant is exact where a minimum follows.
template <class K>
void take_row(const Matrix& m, int64_t row, float* out) {
  const int lane = int(row % 16);
  const uint8_t* p = m.data + size_t(row / 16) * K::block(m.k);
  for (int i = 0; i < m.k; i += K::inputs, p += K::bytes) {
    float scales[16], minima[16];
    store(scales, K::numbers(p));
    if constexpr (K::minimum) store(minima, K::numbers(p + K::scales));
    for (int j = 0; j < K::inputs; ++j) {
      constexpr int run = 32 / K::bits;  // inputs of a lane
      const uint8_t byte = p[K::quants + size_t(64 * (j / run) + 4 * lane + j % 4)];
      const int q = K::bits == 8 ? int8_t(byte) : (j % 8 < 4 ? byte & 15 : byte >> 4) - K::zero;
      const float value = scales[lane] * float(q);
      *out++ = K::minimum ? value + minima[lane] : value;
    }
  }
}

void embed(Team& team, const void* arguments) {
  const Embed& job = *static_cast<const Embed*>(arguments);
  with_kept(job.matrix->format, [&](auto kept) {
    for (int r = team.begin(job.rows); r < team.end(job.rows); ++r)
      take_row<decltype(kept)>(*job.matrix, job.tokens[r], job.out + size_t(r) * size_t(job.matrix->k));
  });
}

}  // namespace

#define INTEGERS \
  { linear, embed, linear_scratch }
