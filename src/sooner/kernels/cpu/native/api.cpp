// The C interface that Python calls. Pointers and sizes were checked there.
#include "api.h"

#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "pack.h"
#include "pool.h"
#include "table.h"

namespace {

struct Choice {
  const char* name;
  const Table* table;
  const Integers* integers;
  bool supported;
};

#if defined(__x86_64__)
// Leaf 7, subleaf 1: compilers know the name later than the instructions.
bool has_avxvnni() {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1 << 4));
}

const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
const Choice choices[] = {
    {"avx512vnni", &avx512_table, &avx512vnni_integers, avx512 && __builtin_cpu_supports("avx512vnni")},
    {"avx512", &avx512_table, &avx2_integers, avx512},
    {"avxvnni", &avx2_table, &avxvnni_integers, avx2 && has_avxvnni()},
    {"avx2", &avx2_table, &avx2_integers, avx2},
    {"generic", &generic_table, &generic_integers, true},
};
#elif defined(__aarch64__)
#if defined(__linux__)
const bool dotprod = getauxval(AT_HWCAP) & (1 << 20);  // HWCAP_ASIMDDP
#else
const bool dotprod = true;  // Apple's, from the first
#endif
const Choice choices[] = {
    {"neondot", &neon_table, &neondot_integers, dotprod},
    {"neon", &neon_table, &neon_integers, true},
    {"generic", &generic_table, &generic_integers, true},
};
#else
const Choice choices[] = {{"generic", &generic_table, &generic_integers, true}};
#endif

const Choice* current = nullptr;

const Choice* find(const char* name) {
  for (const Choice& choice : choices)
    if (choice.supported && (!*name || !strcmp(name, choice.name))) return &choice;
  return nullptr;
}

void multiply(Pool& pool, const Linear& job) {
  if (job.matrix->integer) {
    size_t shared, local;
    current->integers->linear_scratch(job, shared, local);
    return pool.run(current->integers->linear, &job, shared, local);
  }
  const size_t shared = job.norm ? size_t(job.rows) * size_t(job.matrix->k) : 0;
  pool.run(current->table->linear, &job, shared, current->table->linear_local);
}

void attend(Pool& pool, const Attend& job) {
  size_t shared, local;
  current->table->attend_scratch(job, pool.threads(), shared, local);
  pool.run(current->table->attend, &job, shared, local);
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// Rises with every change of a call's arguments or of a struct, here and in library.py: Python is newer than the library
// where somebody updated the sources and did not build again, and would then be misunderstood in silence.
EXPORT int sooner_interface() { return 3; }

EXPORT int sooner_supports(const char* name) { return find(name) != nullptr; }

// Selects an ISA by name, or the best one for "". Returns its name, or null if it is not one or cannot run here.
EXPORT const char* sooner_use(const char* name) {
  const Choice* choice = find(name);
  if (!choice) return nullptr;
  current = choice;
  return choice->name;
}

EXPORT const char* sooner_isa() { return current->name; }

EXPORT void* sooner_pool(int threads) { return new Pool(threads); }
EXPORT void sooner_pool_free(void* pool) { delete static_cast<Pool*>(pool); }

EXPORT size_t sooner_packed_bytes(int n, int k, int format) { return packed_bytes(n, k, format); }

EXPORT void sooner_pack(void* pool, const uint8_t* source, int n, int k, int format, int from, int every,
                        uint8_t* packed, int integer) {
  const Pack job{source, n, k, format, from, every, packed, integer};
  static_cast<Pool*>(pool)->run(pack, &job, 0, 0);
}

EXPORT void sooner_linear(void* pool, const Matrix* matrix, const float* x, int rows, int activation, const float* norm,
                          float eps, const float* add, float* out) {
  if (!rows) return;
  multiply(*static_cast<Pool*>(pool), {matrix, x, rows, activation, norm, eps, add, out, nullptr});
}

EXPORT void sooner_rmsnorm(void* pool, const float* x, int rows, int width, const float* norm, float eps,
                           const float* add, float* out) {
  const RmsNorm job{x, rows, width, norm, eps, add, out};
  static_cast<Pool*>(pool)->run(current->table->rmsnorm, &job, 0, 0);
}

// Returns 1, and writes nothing, if a token is not a row of the matrix.
EXPORT int sooner_embed(void* pool, const Matrix* matrix, const int64_t* tokens, int rows, float* out) {
  for (int r = 0; r < rows; ++r)
    if (tokens[r] < 0 || tokens[r] >= matrix->n) return 1;
  const Embed job{matrix, tokens, rows, out};
  static_cast<Pool*>(pool)->run(matrix->integer ? current->integers->embed : current->table->embed, &job, 0, 0);
  return 0;
}

// Null if every index stays inside its tensor, else what does not. Once a pass, so that no later kernel can stray.
EXPORT const char* sooner_check_rows(Rows* rows, int pages) {
  const int slots = pages * 16, positions = rows->table_width * 16;
  const auto outside = [](int x, int end) { return x < 0 || x >= end; };
  rows->last_position = 0;
  for (int i = 0; i < rows->sequences * rows->table_width; ++i)
    if (outside(rows->tables[i], pages)) return "a page of a table is outside the cache";
  for (int r = 0; r < rows->rows; ++r) {
    const int32_t* extra = rows->extra + r * rows->extra_width;
    if (outside(rows->slots[r], slots)) return "a slot is outside the cache";
    if (outside(rows->sequence[r], rows->sequences)) return "a sequence has no table";
    if (outside(rows->context[r], positions + 1)) return "a context is longer than its table";
    if (rows->positions[r] < 0) return "a position is negative";
    if (!rows->context[r] && (!rows->extra_width || extra[0] < 0)) return "a row sees nothing";
    for (int e = 0; e < rows->extra_width; ++e)
      if (outside(extra[e] + 1, slots + 1)) return "an extra slot is outside the cache";
    if (rows->positions[r] > rows->last_position) rows->last_position = rows->positions[r];
  }
  return nullptr;
}

EXPORT void sooner_attend(void* pool, const float* qkv, const Cache* cache, const Rows* rows, const Heads* heads,
                          float* out) {
  attend(*static_cast<Pool*>(pool), {qkv, *cache, rows, heads, out});
}

// x [rows, width] through `count` blocks, in place. caches: of each block. scratch: for each row the widths of qkv, of
// the heads' output and of the gated product.
EXPORT void sooner_blocks(void* pool, const Block* blocks, int count, const Cache* caches, const Rows* rows, float* x,
                          float* scratch) {
  Pool& team = *static_cast<Pool*>(pool);
  const int n = rows->rows;
  if (!n) return;
  for (int i = 0; i < count; ++i) {
    const Block& b = blocks[i];
    float *qkv = scratch, *mixed = qkv + size_t(n) * size_t(b.qkv->n), *inner = mixed + size_t(n) * size_t(b.out->k);
    multiply(team, {b.qkv, x, n, 0, b.attn_norm, b.attn_eps, nullptr, qkv, b.out});
    attend(team, {qkv, caches[i], rows, b.heads, mixed});
    multiply(team, {b.out, mixed, n, 0, nullptr, 0.0f, x, x, b.gated});
    multiply(team, {b.gated, x, n, b.activation, b.mlp_norm, b.mlp_eps, nullptr, inner, b.down});
    multiply(team, {b.down, inner, n, 0, nullptr, 0.0f, x, x, i + 1 < count ? blocks[i + 1].qkv : nullptr});
  }
}

// Returns a token, -1 where the logits hold NaN or no finite top, or -2 where only the Python twin can tell.
EXPORT int sooner_choose(void* pool, const float* logits, int vocabulary, double temperature, int top_k, double top_p,
                         double log_min_p, uint64_t seed, uint32_t sample, uint32_t position) {
  int32_t token;
  const Choose job{logits, vocabulary, top_k, temperature, top_p, log_min_p, seed, sample, position, &token};
  Pool& team = *static_cast<Pool*>(pool);
  const Table& table = *current->table;
  team.run(table.choose, &job, table.choose_scratch(team.threads(), vocabulary) / sizeof(float) + 1, 0);
  return token;
}
