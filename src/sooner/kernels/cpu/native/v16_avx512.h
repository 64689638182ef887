// Sixteen lanes as one 512-bit register: AVX-512 F, BW, DQ and VL. Meanings as in v16_generic.h.
#pragma once
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace {

#define INLINE inline __attribute__((always_inline))

// Tiles: of at most ROWS rows, and so many blocks. 32 registers; a chain of multiply-adds waits 4 cycles, two start in each.
// Few rows of plain numbers wait for the memory alone: six streams, which the hardware follows. Otherwise some blocks
// share each input that they are multiplied with, and what comes after them is fetched meanwhile.
constexpr int ROWS = 12;
constexpr int UNROLL = 4;
constexpr bool SHARED_INPUTS = true;
constexpr bool waits(int rows, int scales) { return !scales && rows <= 4; }
constexpr int blocks_at_once(int rows, int scales) {
  return rows == 1 || waits(rows, scales) ? 6 : rows > 8 ? (scales ? 1 : 2) : rows > 5 ? 2 : 3;
}
constexpr int MOST_PAGES = 2;
constexpr bool fetches_ahead(int rows, int scales) { return !waits(rows, scales); }

struct v16 {
  __m512 v;
};

INLINE v16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
INLINE void store(float* p, v16 a) { _mm512_storeu_ps(p, a.v); }
INLINE v16 all(float x) { return {_mm512_set1_ps(x)}; }
INLINE v16 zero() { return {_mm512_setzero_ps()}; }
INLINE void keep(v16&) {}
INLINE void reload() {}
INLINE v16 fma(v16 a, v16 b, v16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
INLINE v16 add(v16 a, v16 b) { return {_mm512_add_ps(a.v, b.v)}; }
INLINE v16 sub(v16 a, v16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
INLINE v16 mul(v16 a, v16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
INLINE v16 div(v16 a, v16 b) { return {_mm512_div_ps(a.v, b.v)}; }
INLINE v16 max(v16 a, v16 b) { return {_mm512_max_ps(a.v, b.v)}; }
INLINE v16 min(v16 a, v16 b) { return {_mm512_min_ps(a.v, b.v)}; }
INLINE v16 where_ge(v16 x, v16 limit, v16 a, v16 b) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, limit.v, _CMP_GE_OQ), b.v, a.v)};
}
INLINE v16 scale_by(v16 a, v16 t) {
  return {_mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_castps_si512(a.v), _mm512_slli_epi32(_mm512_castps_si512(t.v), 23)))};
}
INLINE float sum(v16 a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
INLINE float greatest(v16 a) { return _mm512_reduce_max_ps(a.v); }

INLINE __m128i load_16_bytes(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
INLINE __m256i load_32_bytes(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
INLINE v16 load_high_bf16(const uint8_t* p) {
  return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(int(0xffff0000))))};
}
INLINE v16 load_low_bf16(const uint8_t* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16))};
}
INLINE v16 load_f16(const uint8_t* p) { return {_mm512_cvtph_ps(load_32_bytes(p))}; }
INLINE v16 load_i8(const uint8_t* p) { return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16_bytes(p)))}; }
INLINE v16 load_masked(const uint8_t* p, int mask) {
  return {_mm512_cvtepi32_ps(_mm512_and_si512(_mm512_cvtepu8_epi32(load_16_bytes(p)), _mm512_set1_epi32(mask)))};
}

struct w16 {
  __m512i v;
};

INLINE w16 words(uint32_t x) { return {_mm512_set1_epi32(int(x))}; }
INLINE w16 load_words(const uint32_t* p) { return {_mm512_loadu_si512(p)}; }
INLINE void store_words(uint32_t* p, w16 a) { _mm512_storeu_si512(p, a.v); }
INLINE w16 exclusive_or(w16 a, w16 b) { return {_mm512_xor_si512(a.v, b.v)}; }
INLINE void multiply(w16 a, uint32_t m, w16& high, w16& low) {
  const __m512i wide = _mm512_set1_epi64(m);
  const __m512i even = _mm512_mul_epu32(a.v, wide), odd = _mm512_mul_epu32(_mm512_srli_epi64(a.v, 32), wide);
  high = {_mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd)};
  low = {_mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32))};
}

}  // namespace
