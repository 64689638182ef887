// Runs every kernel on every ISA that this machine has and compares the bits: for machines without Python, such as an
// emulated one. native/README.md has the commands. Exits with 1 where an ISA differs from the generic one.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <string>
#include <vector>

#include "api.h"

extern "C" {
int sooner_supports(const char*);
const char* sooner_use(const char*);
void* sooner_pool(int);
void sooner_pool_free(void*);
size_t sooner_packed_bytes(int, int, int);
void sooner_pack(void*, const uint8_t*, int, int, int, int, int, uint8_t*, int);
void sooner_linear(void*, const Matrix*, const float*, int, int, const float*, float, const float*, float*);
void sooner_rmsnorm(void*, const float*, int, int, const float*, float, const float*, float*);
int sooner_embed(void*, const Matrix*, const int64_t*, int, float*);
const char* sooner_check_rows(Rows*, int);
void sooner_attend(void*, const float*, float*, float*, const Rows*, const Heads*, float*);
int sooner_choose(void*, const float*, int, double, int, double, double, uint64_t, uint32_t, uint32_t);
}

using Floats = std::vector<float>;

static uint32_t state = 1;
static uint32_t random_word() { return state = state * 1664525u + 1013904223u; }
static float random_float() { return float(int32_t(random_word())) * 0x1p-31f; }
static Floats random_floats(size_t n) {
  Floats x(n);
  for (float& f : x) f = random_float();
  return x;
}

static std::vector<uint8_t> random_matrix(int n, int k, int format) {
  const int sizes[] = {4, 2, 2, 34, 18, 20, 24, 40, 20}, groups[] = {1, 1, 1, 32, 32, 32, 32, 32, 16};
  const int group = groups[format], size = sizes[format];
  std::vector<uint8_t> bytes(size_t(n * (k / group) * size));
  for (uint8_t& b : bytes) b = uint8_t(random_word() >> 24);
  for (size_t i = 0; i + size_t(size) <= bytes.size(); i += size_t(size)) {  // numbers and scales between 2^-6 and 2
    bytes[i + 1] = uint8_t((bytes[i + 1] & 0x83) | 0x30);
    if (format >= G32Q4) {  // 17 bits of a float32
      bytes[i] = 0, bytes[i + 3] = uint8_t((bytes[i + 3] & 0x80) | 0x3c);
      if (format != G16Q8) bytes[i + 4] = 0, bytes[i + 7] = uint8_t((bytes[i + 7] & 0x80) | 0x3c);
    }
    if (format == Q4_1) bytes[i + 3] = uint8_t((bytes[i + 3] & 0x83) | 0x30);
    if (format == F32) bytes[i + 3] = uint8_t((bytes[i + 3] & 0x80) | 0x3d);
    if (format == BF16) bytes[i + 1] = uint8_t((bytes[i + 1] & 0x80) | 0x3d);
  }
  return bytes;
}

static void products(void* pool, int format, int integer, Floats& out) {
  const int n = 40, k = 160;
  const auto first = random_matrix(n, k, format), second = random_matrix(n, k, format);
  const Floats bias = random_floats(n), norm = random_floats(k);
  const size_t bytes = sooner_packed_bytes(48, k, format);
  std::vector<uint8_t> packed(bytes), paired(2 * bytes);
  sooner_pack(pool, first.data(), n, k, format, 0, 1, packed.data(), integer);
  sooner_pack(pool, first.data(), n, k, format, 0, 2, paired.data(), integer);
  sooner_pack(pool, second.data(), n, k, format, 1, 2, paired.data(), integer);
  const Matrix plain{packed.data(), bias.data(), n, k, format, 0, integer, 0};
  const Matrix gated{paired.data(), nullptr, 2 * n, k, format, 1, integer, 0};
  for (int rows : {1, 2, 3, 4, 5, 6, 7, 40}) {
    const Floats x = random_floats(size_t(rows * k));
    Floats y(size_t(rows * n)), z(size_t(rows * k));
    const std::vector<int64_t> tokens(size_t(rows), rows % n);
    sooner_linear(pool, &plain, x.data(), rows, SILU, norm.data(), 1e-5f, nullptr, y.data());
    out.insert(out.end(), y.begin(), y.end());
    sooner_linear(pool, &gated, x.data(), rows, rows % 2 ? SILU : GELU_TANH, nullptr, 0.0f, nullptr, y.data());
    out.insert(out.end(), y.begin(), y.end());
    sooner_rmsnorm(pool, x.data(), rows, k, norm.data(), 1e-5f, x.data(), z.data());
    out.insert(out.end(), z.begin(), z.end());
    sooner_embed(pool, &plain, tokens.data(), rows, z.data());
    out.insert(out.end(), z.begin(), z.end());
  }
}

static void attention(void* pool, int count, int start, Floats& out) {
  const int size = 48, pages = 16, query = 6, kv = 2, half = size / 2;
  Floats keys = random_floats(size_t(pages * kv * size * 16)), values = random_floats(keys.size());
  const Floats qkv = random_floats(size_t(count * (query + 2 * kv) * size)), norm = random_floats(size);
  const Floats cos = random_floats(size_t(pages * 16 * half)), sin = random_floats(cos.size());
  std::vector<int32_t> positions, slots, sequence(size_t(count), 0), context, tables, extra(1, -1);
  for (int i = 0; i < pages; ++i) tables.push_back(pages - 1 - i);
  for (int i = start; i < start + count; ++i) {
    positions.push_back(i);
    slots.push_back(tables[size_t(i / 16)] * 16 + i % 16);
    context.push_back(i + 1);
  }
  Rows rows{count, 1, pages, 0, positions.data(), slots.data(), sequence.data(), context.data(), tables.data(),
            extra.data(), 0};
  const Heads heads{query, kv, size, half, 70, 0, 0.15f, 9.0f, 1e-5f, 1e-5f, cos.data(), sin.data(), norm.data(),
                    norm.data()};
  Floats y(size_t(count * query * size));
  if (const char* wrong = sooner_check_rows(&rows, pages)) printf("%s\n", wrong);
  sooner_attend(pool, qkv.data(), keys.data(), values.data(), &rows, &heads, y.data());
  out.insert(out.end(), y.begin(), y.end());
  out.insert(out.end(), keys.begin(), keys.end());
}

static void choices(void* pool, Floats& out) {
  Floats row = random_floats(5003);
  for (float& x : row) x *= 12.0f;
  for (uint32_t seed = 0; seed < 20; ++seed)
    for (int top_k : {0, 40})
      for (double top_p : {1.0, 0.9})
        out.push_back(float(
            sooner_choose(pool, row.data(), int(row.size()), 0.7, top_k, top_p, -INFINITY, seed, 0, seed)));
}

static Floats everything(const char* isa) {
  state = 1;
  sooner_use(isa);
  void* pool = sooner_pool(2);
  Floats out;
  for (int format = F32; format <= G16Q8; ++format) products(pool, format, 0, out);
  for (int format = Q8_0; format <= G16Q8; ++format) products(pool, format, 1, out);
  attention(pool, 1, 200, out);
  attention(pool, 4, 61, out);
  attention(pool, 40, 0, out);
  choices(pool, out);
  sooner_pool_free(pool);
  return out;
}

int main() {
  const Floats wanted = everything("generic");
  int64_t checksum = 0;  // the same on every machine
  for (float f : wanted) {
    int32_t bits;
    memcpy(&bits, &f, 4);
    checksum = checksum * 31 + bits;
  }
  printf("generic: %zu numbers, checksum %016llx\n", wanted.size(), static_cast<unsigned long long>(checksum));
  int failures = 0;
  for (const char* isa : {"avx2", "avxvnni", "avx512", "avx512vnni", "neon", "neondot"}) {
    if (!sooner_supports(isa)) continue;
    const Floats got = everything(isa);
    size_t different = 0;
    for (size_t i = 0; i < got.size(); ++i) different += memcmp(&got[i], &wanted[i], 4) != 0;
    printf("%s: %zu differ\n", isa, different);
    failures += different != 0;
  }
  return failures != 0;
}
