// How a product is parted among threads, what comes before it (a norm) and after it (biases, sums, activations).
#pragma once

namespace {

constexpr int BLOCKS = 6;       // of 16 outputs: most that a tile or a piece of work may have
constexpr size_t START = 1024;  // bytes of a block that are fetched before its product begins

constexpr int lesser(int a, int b) { return a < b ? a : b; }
INLINE int greater(int a, int b) { return a > b ? a : b; }

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

// Calls body(piece, next) for the pieces that this thread claims: `chunk` blocks, which never part a pair, times at
// most `rows` rows. `next` is the first block of the piece that it will do next, -1 where there is none.
template <class Body>
INLINE void each_piece(Team& team, const Linear& job, int chunk, int rows, Body&& body) {
  const int total = blocks(*job.matrix), chunks = (total + chunk - 1) / chunk, parts = (job.rows + rows - 1) / rows;
  for (int item = team.take(), next; item < chunks * parts; item = next) {
    next = team.take();
    const int block = item / parts * chunk, part = item % parts, row = job.rows * part / parts;
    body(Piece{row, job.rows * (part + 1) / parts - row, block, lesser(total - block, chunk)},
         next < chunks * parts ? next / parts * chunk : -1);
  }
}

}  // namespace
