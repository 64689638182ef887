// What Python and the kernels share. Field order and types are mirrored in library.py.
#pragma once
#include <stdint.h>

enum Format { F32, F16, BF16, Q8_0, Q4_0, Q4_1, G32Q4, G32Q8, G16Q8 };
enum Activation { SILU, GELU_TANH };

// A weight matrix [n, k], packed as [ceil(n / 16)][k][16] (see formats.h), or `integer`, for rounded inputs, as
// [ceil(n / 16)][k / 4][16][4] (see integers.h). `paired`: even blocks are the gate, odd blocks the up projection, n
// counts both.
struct Matrix {
  const uint8_t* data;
  const float* bias;  // [n] or null
  int32_t n, k, format, paired, integer, unused;
};

// Where the rows of a pass sit; see interface.Rows for the meaning.
struct Rows {
  int32_t rows, sequences, table_width, extra_width;
  const int32_t *positions, *slots, *sequence, *context, *tables, *extra;
  int32_t last_position;  // set by sooner_check_rows
};

struct Heads {
  int32_t query, kv, size, rotary_half;  // rotary_half: pairs that rotate, 0 for none
  int32_t window, unused;                // 0 for none
  float scale, softcap;                  // softcap 0 for none
  float query_eps, key_eps;
  const float *cos, *sin;                // [context, rotary_half]
  const float *query_norm, *key_norm;    // [size] or null
};

struct Linear {
  const Matrix* matrix;
  const float* x;  // [rows, k]
  int32_t rows, activation;
  const float* norm;  // [k] or null
  float eps;
  const float* add;    // [rows, n] or null
  float* out;          // [rows, n], of a paired matrix [rows, n / 2]; may be `add`
  const Matrix* then;  // what will be multiplied next, or null
};

// A standard block of a decoder: x += out(attend(qkv(norm(x)))), then x += down(gated(norm(x))).
struct Block {
  const Matrix *qkv, *out, *gated, *down;
  const Heads* heads;
  const float *attn_norm, *mlp_norm;  // [k]
  float attn_eps, mlp_eps;
  int32_t activation, unused;
};

struct RmsNorm {
  const float* x;  // [rows, width]
  int32_t rows, width;
  const float* norm;  // [width]
  float eps;
  const float* add;  // [rows, width] or null
  float* out;
};

struct Embed {
  const Matrix* matrix;
  const int64_t* tokens;  // [rows], checked by the caller
  int32_t rows;
  float* out;  // [rows, k]
};

// Of one layer; page: the floats from one page to the next, in both.
struct Cache {
  float *keys, *values;
  int64_t page;
};

struct Attend {
  const float* qkv;  // [rows, (query + 2 kv) * size]
  Cache cache;
  const Rows* rows;
  const Heads* heads;
  float* out;  // [rows, query * size]
};

// One row of logits [vocabulary], sampled with seeded noise (road.py, noise.py), or its argmax at temperature 0.
struct Choose {
  const float* logits;
  int32_t vocabulary, top_k;  // top_k 0 for none
  double temperature, top_p;  // top_p 1 for none
  double log_min_p;           // -inf for none
  uint64_t seed;
  uint32_t sample, position;
  int32_t* token;  // the answer, or NOT_FINITE or UNDECIDED
};
