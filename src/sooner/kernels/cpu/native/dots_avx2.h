// Dot products of small integers with AVX2, or AVX-VNNI where the compiler has been told of it. Meanings as in
// dots_generic.h; after v16_avx2.h.
#pragma once

namespace {

constexpr int DOT_ROWS = 4;  // 8 registers of sums, 4 of weights

struct quads {
  __m256i lo, hi;
};
struct Dots {
  __m256i lo, hi;
};

INLINE quads load_quads(const uint8_t* p) { return {load_32_bytes(p), load_32_bytes(p + 32)}; }
INLINE __m256i nibbles(__m256i a) { return _mm256_and_si256(a, _mm256_set1_epi8(15)); }
INLINE quads low_nibbles(quads a) { return {nibbles(a.lo), nibbles(a.hi)}; }
INLINE quads high_nibbles(quads a) {
  return {nibbles(_mm256_srli_epi16(a.lo, 4)), nibbles(_mm256_srli_epi16(a.hi, 4))};
}
INLINE quads same_quad(const int8_t* x) {
  int32_t four;
  memcpy(&four, x, sizeof four);
  return {_mm256_set1_epi32(four), _mm256_set1_epi32(four)};
}
INLINE Dots no_dots() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
INLINE v16 total(__m256i lo, __m256i hi, int32_t offset) {
  const __m256i more = _mm256_set1_epi32(offset);
  return {_mm256_cvtepi32_ps(_mm256_add_epi32(lo, more)), _mm256_cvtepi32_ps(_mm256_add_epi32(hi, more))};
}

#if defined(__AVXVNNI__)

INLINE void add_dots_u4(Dots& sums, quads w, quads x) {
  sums.lo = _mm256_dpbusd_avx_epi32(sums.lo, w.lo, x.lo);
  sums.hi = _mm256_dpbusd_avx_epi32(sums.hi, w.hi, x.hi);
}
INLINE v16 total_u4(Dots sums, int32_t offset) { return total(sums.lo, sums.hi, offset); }
// The first factor has no sign: 128 more than the weight.
INLINE void add_dots_i8(Dots& sums, quads w, quads x) {
  const __m256i top = _mm256_set1_epi8(-128);
  add_dots_u4(sums, {_mm256_xor_si256(w.lo, top), _mm256_xor_si256(w.hi, top)}, x);
}
INLINE v16 total_i8(Dots sums, int32_t inputs) { return total_u4(sums, -128 * inputs); }

#else

// The compiler may not see through a sum: it would make a tree of a chain, and spill all that is summed.
INLINE void keep(Dots& sums) { asm("" : "+x"(sums.lo), "+x"(sums.hi)); }
// Sums of int16: 8 times two products of at most 15 * 127 fit.
INLINE void add_dots_u4(Dots& sums, quads w, quads x) {
  sums.lo = _mm256_add_epi16(sums.lo, _mm256_maddubs_epi16(w.lo, x.lo));
  sums.hi = _mm256_add_epi16(sums.hi, _mm256_maddubs_epi16(w.hi, x.hi));
  keep(sums);
}
INLINE __m256i pairs(__m256i a) { return _mm256_madd_epi16(a, _mm256_set1_epi16(1)); }
INLINE v16 total_u4(Dots sums, int32_t offset) { return total(pairs(sums.lo), pairs(sums.hi), offset); }
// |w| times x with the sign of w. |w| is at most 128 and |x| 127, so that the sum of two products fits in an int16.
INLINE __m256i products(__m256i w, __m256i x) {
  return pairs(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)));
}
INLINE void add_dots_i8(Dots& sums, quads w, quads x) {
  sums.lo = _mm256_add_epi32(sums.lo, products(w.lo, x.lo));
  sums.hi = _mm256_add_epi32(sums.hi, products(w.hi, x.hi));
  keep(sums);
}
INLINE v16 total_i8(Dots sums, int32_t) { return {_mm256_cvtepi32_ps(sums.lo), _mm256_cvtepi32_ps(sums.hi)}; }

#endif

}  // namespace
