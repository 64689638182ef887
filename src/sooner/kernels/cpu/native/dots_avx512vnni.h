// Dot products of small integers with AVX-512 VNNI. Meanings as in dots_generic.h; after v16_avx512.h.
#pragma once

namespace {

constexpr int DOT_ROWS = 8;  // of 32 registers

using quads = __m512i;
using Dots = __m512i;

INLINE quads load_quads(const uint8_t* p) { return _mm512_loadu_si512(p); }
INLINE quads low_nibbles(quads a) { return _mm512_and_si512(a, _mm512_set1_epi8(15)); }
INLINE quads high_nibbles(quads a) { return low_nibbles(_mm512_srli_epi16(a, 4)); }
INLINE quads same_quad(const int8_t* x) {
  int32_t four;
  memcpy(&four, x, sizeof four);
  return _mm512_set1_epi32(four);
}
INLINE Dots no_dots() { return _mm512_setzero_si512(); }
INLINE void add_dots_u4(Dots& sums, quads w, quads x) { sums = _mm512_dpbusd_epi32(sums, w, x); }
INLINE v16 total_u4(Dots sums, int32_t offset) {
  return {_mm512_cvtepi32_ps(_mm512_add_epi32(sums, _mm512_set1_epi32(offset)))};
}
// The first factor has no sign: 128 more than the weight.
INLINE void add_dots_i8(Dots& sums, quads w, quads x) {
  add_dots_u4(sums, _mm512_xor_si512(w, _mm512_set1_epi8(-128)), x);
}
INLINE v16 total_i8(Dots sums, int32_t inputs) { return total_u4(sums, -128 * inputs); }

}  // namespace
