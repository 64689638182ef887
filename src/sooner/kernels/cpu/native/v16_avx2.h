// Sixteen lanes as two 256-bit registers: AVX2, FMA and F16C. Meanings as in v16_generic.h.
#pragma once
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace {

#define INLINE inline __attribute__((always_inline))

constexpr int ROWS = 6;
constexpr int UNROLL = 4;
constexpr bool SHARED_INPUTS = false;
constexpr int blocks_at_once(int rows, int scales) {
  const int sums = scales == 0 ? 6 : scales == 1 ? 3 : 2;  // 6: 12 of 16 registers
  return rows < sums ? sums / rows : 1;
}
constexpr int MOST_PAGES = 6;
constexpr bool fetches_ahead(int, int) { return false; }

struct v16 {
  __m256 lo, hi;
};

INLINE v16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INLINE void store(float* p, v16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
INLINE v16 all(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE v16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
INLINE void keep(v16& a) { asm volatile("" : "+x"(a.lo), "+x"(a.hi)); }
INLINE void reload() { asm volatile("" ::: "memory"); }
INLINE v16 fma(v16 a, v16 b, v16 c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
INLINE v16 add(v16 a, v16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
INLINE v16 sub(v16 a, v16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
INLINE v16 mul(v16 a, v16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
INLINE v16 div(v16 a, v16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
INLINE v16 max(v16 a, v16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
INLINE v16 min(v16 a, v16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
INLINE v16 where_ge(v16 x, v16 limit, v16 a, v16 b) {
  return {_mm256_blendv_ps(b.lo, a.lo, _mm256_cmp_ps(x.lo, limit.lo, _CMP_GE_OQ)),
          _mm256_blendv_ps(b.hi, a.hi, _mm256_cmp_ps(x.hi, limit.hi, _CMP_GE_OQ))};
}
INLINE __m256 scale_half(__m256 a, __m256 t) {
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(a), _mm256_slli_epi32(_mm256_castps_si256(t), 23)));
}
INLINE v16 scale_by(v16 a, v16 t) { return {scale_half(a.lo, t.lo), scale_half(a.hi, t.hi)}; }
INLINE float sum(v16 a) {
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
INLINE float greatest(v16 a) {
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

INLINE __m128i load_16_bytes(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
INLINE __m128i load_8_bytes(const uint8_t* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); }
INLINE __m256i load_32_bytes(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
alignas(32) constexpr uint32_t HIGH[8] = {0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000,
                                          0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000};
INLINE __m256 high_bf16(const uint8_t* p) {
  __m256i a = load_32_bytes(p);  // the mask stays in memory: in a register it costs a tile of six rows an accumulator
  asm("vpand %1, %0, %0" : "+x"(a) : "m"(*reinterpret_cast<const __m256i*>(HIGH)));
  return _mm256_castsi256_ps(a);
}
INLINE __m256 low_bf16(const uint8_t* p) { return _mm256_castsi256_ps(_mm256_slli_epi32(load_32_bytes(p), 16)); }
INLINE v16 load_high_bf16(const uint8_t* p) { return {high_bf16(p), high_bf16(p + 32)}; }
INLINE v16 load_low_bf16(const uint8_t* p) { return {low_bf16(p), low_bf16(p + 32)}; }
INLINE v16 load_f16(const uint8_t* p) {
  return {_mm256_cvtph_ps(load_16_bytes(p)), _mm256_cvtph_ps(load_16_bytes(p + 16))};
}
INLINE v16 load_i8(const uint8_t* p) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8_bytes(p))),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8_bytes(p + 8)))};
}
INLINE __m256 masked_half(const uint8_t* p, int mask) {
  return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_cvtepu8_epi32(load_8_bytes(p)), _mm256_set1_epi32(mask)));
}
INLINE v16 load_masked(const uint8_t* p, int mask) { return {masked_half(p, mask), masked_half(p + 8, mask)}; }

struct w16 {
  __m256i lo, hi;
};

INLINE __m256i load_half(const uint32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
INLINE void store_half(uint32_t* p, __m256i a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a); }
INLINE w16 words(uint32_t x) { return {_mm256_set1_epi32(int(x)), _mm256_set1_epi32(int(x))}; }
INLINE w16 load_words(const uint32_t* p) { return {load_half(p), load_half(p + 8)}; }
INLINE void store_words(uint32_t* p, w16 a) {
  store_half(p, a.lo);
  store_half(p + 8, a.hi);
}
INLINE w16 exclusive_or(w16 a, w16 b) { return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)}; }
INLINE void multiply_half(__m256i a, __m256i m, __m256i& high, __m256i& low) {
  const __m256i even = _mm256_mul_epu32(a, m), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), m);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
  low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
INLINE void multiply(w16 a, uint32_t m, w16& high, w16& low) {
  multiply_half(a.lo, _mm256_set1_epi64x(m), high.lo, low.lo);
  multiply_half(a.hi, _mm256_set1_epi64x(m), high.hi, low.hi);
}

}  // namespace
