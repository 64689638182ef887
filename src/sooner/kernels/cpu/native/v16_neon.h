// Sixteen lanes as four 128-bit registers: AArch64. Meanings as in v16_generic.h.
#pragma once
#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace {

#define INLINE inline __attribute__((always_inline))

constexpr int ROWS = 6;
constexpr int UNROLL = 4;
constexpr bool SHARED_INPUTS = false;
constexpr int blocks_at_once(int rows, int scales) {
  const int sums = scales == 0 ? 6 : scales == 1 ? 3 : 2;  // 6: 24 of 32 registers
  return rows < sums ? sums / rows : 1;
}
constexpr int MOST_PAGES = 6;
constexpr bool fetches_ahead(int, int) { return false; }

struct v16 {
  float32x4_t q[4];
};

#define QUARTERS _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i)

INLINE v16 load(const float* p) {
  v16 r;
  QUARTERS r.q[i] = vld1q_f32(p + 4 * i);
  return r;
}
INLINE void store(float* p, const v16& a) { QUARTERS vst1q_f32(p + 4 * i, a.q[i]); }
INLINE v16 all(float x) {
  v16 r;
  QUARTERS r.q[i] = vdupq_n_f32(x);
  return r;
}
INLINE v16 zero() { return all(0.0f); }
INLINE void keep(v16&) {}
INLINE void reload() {}
INLINE v16 fma(const v16& a, const v16& b, const v16& c) {
  v16 r;
  QUARTERS r.q[i] = vfmaq_f32(c.q[i], a.q[i], b.q[i]);
  return r;
}
INLINE v16 add(const v16& a, const v16& b) {
  v16 r;
  QUARTERS r.q[i] = vaddq_f32(a.q[i], b.q[i]);
  return r;
}
INLINE v16 sub(const v16& a, const v16& b) {
  v16 r;
  QUARTERS r.q[i] = vsubq_f32(a.q[i], b.q[i]);
  return r;
}
INLINE v16 mul(const v16& a, const v16& b) {
  v16 r;
  QUARTERS r.q[i] = vmulq_f32(a.q[i], b.q[i]);
  return r;
}
INLINE v16 div(const v16& a, const v16& b) {
  v16 r;
  QUARTERS r.q[i] = vdivq_f32(a.q[i], b.q[i]);
  return r;
}
INLINE v16 max(const v16& a, const v16& b) {
  v16 r;
  QUARTERS r.q[i] = vbslq_f32(vcgtq_f32(a.q[i], b.q[i]), a.q[i], b.q[i]);
  return r;
}
INLINE v16 min(const v16& a, const v16& b) {
  v16 r;
  QUARTERS r.q[i] = vbslq_f32(vcltq_f32(a.q[i], b.q[i]), a.q[i], b.q[i]);
  return r;
}
INLINE v16 where_ge(const v16& x, const v16& limit, const v16& a, const v16& b) {
  v16 r;
  QUARTERS r.q[i] = vbslq_f32(vcgeq_f32(x.q[i], limit.q[i]), a.q[i], b.q[i]);
  return r;
}
INLINE v16 scale_by(const v16& a, const v16& t) {
  v16 r;
  QUARTERS r.q[i] = vreinterpretq_f32_s32(
      vaddq_s32(vreinterpretq_s32_f32(a.q[i]), vshlq_n_s32(vreinterpretq_s32_f32(t.q[i]), 23)));
  return r;
}
INLINE float sum(const v16& a) {
  const float32x4_t four = vaddq_f32(vaddq_f32(a.q[0], a.q[2]), vaddq_f32(a.q[1], a.q[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
INLINE float greatest(const v16& a) {
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.q[0], a.q[1]), vmaxq_f32(a.q[2], a.q[3])));
}

INLINE uint32x4_t load_quarter(const uint8_t* p, int i) { return vld1q_u32(reinterpret_cast<const uint32_t*>(p) + 4 * i); }
INLINE v16 load_high_bf16(const uint8_t* p) {
  v16 r;
  QUARTERS r.q[i] = vreinterpretq_f32_u32(vandq_u32(load_quarter(p, i), vdupq_n_u32(0xffff0000)));
  return r;
}
INLINE v16 load_low_bf16(const uint8_t* p) {
  v16 r;
  QUARTERS r.q[i] = vreinterpretq_f32_u32(vshlq_n_u32(load_quarter(p, i), 16));
  return r;
}
INLINE v16 load_f16(const uint8_t* p) {
  v16 r;
  QUARTERS r.q[i] = vcvt_f32_f16(vld1_f16(reinterpret_cast<const float16_t*>(p) + 4 * i));
  return r;
}
INLINE v16 load_i8(const uint8_t* p) {
  const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(p));
  const int16x8_t a = vmovl_s8(vget_low_s8(bytes)), b = vmovl_s8(vget_high_s8(bytes));
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(a))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(a))),
           vcvtq_f32_s32(vmovl_s16(vget_low_s16(b))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(b)))}};
}
INLINE v16 widen_u8(uint8x16_t bytes) {
  const uint16x8_t a = vmovl_u8(vget_low_u8(bytes)), b = vmovl_u8(vget_high_u8(bytes));
  return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(a))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(a))),
           vcvtq_f32_u32(vmovl_u16(vget_low_u16(b))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(b)))}};
}
INLINE v16 load_masked(const uint8_t* p, int mask) {
  return widen_u8(vandq_u8(vld1q_u8(p), vdupq_n_u8(uint8_t(mask))));
}

struct w16 {
  uint32x4_t q[4];
};

INLINE w16 words(uint32_t x) {
  w16 r;
  QUARTERS r.q[i] = vdupq_n_u32(x);
  return r;
}
INLINE w16 load_words(const uint32_t* p) {
  w16 r;
  QUARTERS r.q[i] = vld1q_u32(p + 4 * i);
  return r;
}
INLINE void store_words(uint32_t* p, const w16& a) { QUARTERS vst1q_u32(p + 4 * i, a.q[i]); }
INLINE w16 exclusive_or(const w16& a, const w16& b) {
  w16 r;
  QUARTERS r.q[i] = veorq_u32(a.q[i], b.q[i]);
  return r;
}
INLINE void multiply(const w16& a, uint32_t m, w16& high, w16& low) {
  QUARTERS {
    const uint32x4_t first = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32(a.q[i]), m));
    const uint32x4_t second = vreinterpretq_u32_u64(vmull_n_u32(vget_high_u32(a.q[i]), m));
    high.q[i] = vuzp2q_u32(first, second);
    low.q[i] = vuzp1q_u32(first, second);
  }
}

}  // namespace
