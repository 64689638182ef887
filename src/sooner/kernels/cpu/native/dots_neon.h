// Dot products of small integers on AArch64, with the dotprod instructions where the compiler has been told of them.
// Meanings as in dots_generic.h; after v16_neon.h.
#pragma once

namespace {

constexpr int DOT_ROWS = 4;  // 16 registers of sums, 8 of weights

struct quads {
  int8x16_t q[4];
};
struct Dots {
  int32x4_t q[4];
};

INLINE quads load_quads(const uint8_t* p) {
  quads r;
  QUARTERS r.q[i] = vreinterpretq_s8_u8(vld1q_u8(p + 16 * i));
  return r;
}
INLINE quads low_nibbles(const quads& a) {
  quads r;
  QUARTERS r.q[i] = vandq_s8(a.q[i], vdupq_n_s8(15));
  return r;
}
INLINE quads high_nibbles(const quads& a) {
  quads r;
  QUARTERS r.q[i] = vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s8(a.q[i]), 4));
  return r;
}
INLINE quads same_quad(const int8_t* x) {
  int32_t four;
  memcpy(&four, x, sizeof four);
  quads r;
  QUARTERS r.q[i] = vreinterpretq_s8_s32(vdupq_n_s32(four));
  return r;
}
INLINE Dots no_dots() {
  Dots r;
  QUARTERS r.q[i] = vdupq_n_s32(0);
  return r;
}
INLINE int32x4_t add_quarter(int32x4_t sums, int8x16_t w, int8x16_t x) {
#if defined(__ARM_FEATURE_DOTPROD)
  return vdotq_s32(sums, w, x);
#else
  const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)));
  const int32x4_t high = vpaddlq_s16(vmull_s8(vget_high_s8(w), vget_high_s8(x)));
  return vaddq_s32(sums, vpaddq_s32(low, high));
#endif
}
INLINE void add_dots_i8(Dots& sums, const quads& w, const quads& x) {
  QUARTERS sums.q[i] = add_quarter(sums.q[i], w.q[i], x.q[i]);
}
INLINE void add_dots_u4(Dots& sums, const quads& w, const quads& x) { add_dots_i8(sums, w, x); }
INLINE v16 total_u4(const Dots& sums, int32_t offset) {
  v16 r;
  QUARTERS r.q[i] = vcvtq_f32_s32(vaddq_s32(sums.q[i], vdupq_n_s32(offset)));
  return r;
}
INLINE v16 total_i8(const Dots& sums, int32_t) { return total_u4(sums, 0); }

}  // namespace
