// Sixteen float32 lanes in portable C++ (vector extensions of GCC and Clang): what every other v16_*.h must reproduce
// to the last bit.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace {

#define INLINE inline __attribute__((always_inline))

// How products are cut into tiles: at most ROWS rows, and so many blocks of outputs, whose formats keep `scales` vectors
// in registers. UNROLL: of the walk over inputs. SHARED_INPUTS: registers are enough for the weights of all blocks, so
// that an input is read once for them. MOST_PAGES: of keys at once; more than two are too many to fetch ahead for.
// fetches_ahead: whether a tile of several blocks fetches what comes after it.
constexpr int ROWS = 6;
constexpr int UNROLL = 1;
constexpr bool SHARED_INPUTS = false;
constexpr int blocks_at_once(int, int) { return 1; }
constexpr int MOST_PAGES = 6;
constexpr bool fetches_ahead(int, int) { return false; }

template <class T>
using Lanes __attribute__((vector_size(16 * sizeof(T)))) = T;
using v16 = Lanes<float>;

// The lanes of a vector as another type of the same size.
template <class To, class From>
INLINE To bits(From a) {
  To r;
  memcpy(&r, &a, sizeof r);
  return r;
}

template <class T>
INLINE Lanes<T> load_lanes_of(const void* p) {
  Lanes<T> r;
  memcpy(&r, p, sizeof r);
  return r;
}

INLINE v16 load(const float* p) { return load_lanes_of<float>(p); }
INLINE void store(float* p, v16 a) { memcpy(p, &a, sizeof a); }
INLINE v16 all(float x) { return x - v16{}; }
INLINE v16 zero() { return v16{}; }
INLINE v16 add(v16 a, v16 b) { return a + b; }
INLINE v16 sub(v16 a, v16 b) { return a - b; }
INLINE v16 mul(v16 a, v16 b) { return a * b; }
INLINE v16 div(v16 a, v16 b) { return a / b; }
// Words to the compiler where registers are few: a is in one here; nothing that was loaded is.
INLINE void keep(v16&) {}
INLINE void reload() {}
INLINE v16 max(v16 a, v16 b) { return a > b ? a : b; }  // b where they do not compare
INLINE v16 min(v16 a, v16 b) { return a < b ? a : b; }
// Lanes where x >= limit take a, the others b.
INLINE v16 where_ge(v16 x, v16 limit, v16 a, v16 b) { return x >= limit ? a : b; }

// a * b + c rounded once, on processors that may lack the instruction. The product is exact in double; the sum is
// rounded to odd there (Boldo and Melquiond 2008), which makes the second rounding harmless.
__attribute__((noinline)) v16 fma(const v16& a, const v16& b, const v16& c) {
  const auto x = __builtin_convertvector(a, Lanes<double>) * __builtin_convertvector(b, Lanes<double>);
  const auto y = __builtin_convertvector(c, Lanes<double>);
  const auto s = x + y, t = s - x, error = (x - (s - t)) + (y - t);
  const auto inexact = (error > 0) | (error < 0), outward = (error > 0) == (s > 0);
  const auto odd = bits<Lanes<int64_t>>(s);
  const auto step = inexact & ((odd & 1) == 0) & (outward ? Lanes<int64_t>{} + 1 : Lanes<int64_t>{} - 1);
  return __builtin_convertvector(bits<Lanes<double>>(odd + step), v16);
}
// a * 2^n, where the low bits of t's encoding hold n (see lanes_math.h).
INLINE v16 scale_by(v16 a, v16 t) { return bits<v16>(bits<Lanes<uint32_t>>(a) + (bits<Lanes<uint32_t>>(t) << 23)); }

INLINE float sum(v16 a) {
  float s[8];
  for (int i = 0; i < 8; ++i) s[i] = a[i] + a[i + 8];
  for (int half = 4; half; half /= 2)
    for (int i = 0; i < half; ++i) s[i] += s[i + half];
  return s[0];
}
INLINE float greatest(v16 a) {
  float m = a[0];
  for (int i = 1; i < 16; ++i) m = a[i] > m ? a[i] : m;
  return m;
}

// Sixteen words of two bf16 numbers each: the ones in the high halves, and those in the low halves.
INLINE v16 load_high_bf16(const uint8_t* p) { return bits<v16>(load_lanes_of<uint32_t>(p) & 0xffff0000); }
INLINE v16 load_low_bf16(const uint8_t* p) { return bits<v16>(load_lanes_of<uint32_t>(p) << 16); }
INLINE v16 load_f16(const uint8_t* p) {
  const auto half = __builtin_convertvector(load_lanes_of<uint16_t>(p), Lanes<uint32_t>);
  const auto magnitude = (half & 0x7fff) << 13, sign = (half & 0x8000) << 16;
  const auto finite = bits<Lanes<uint32_t>>(bits<v16>(magnitude) * 0x1p112f);  // exact, subnormal halves included
  return bits<v16>(sign | (magnitude >= 0x0f800000 ? magnitude | 0x7f800000 : finite));
}
INLINE v16 load_i8(const uint8_t* p) { return __builtin_convertvector(load_lanes_of<int8_t>(p), v16); }
// Bytes, of each the bits in the mask.
INLINE v16 load_masked(const uint8_t* p, int mask) {
  return __builtin_convertvector(load_lanes_of<uint8_t>(p) & uint8_t(mask), v16);
}

// Sixteen 32-bit words.
using w16 = Lanes<uint32_t>;

INLINE w16 words(uint32_t x) { return w16{} + x; }
INLINE w16 load_words(const uint32_t* p) { return load_lanes_of<uint32_t>(p); }
INLINE void store_words(uint32_t* p, w16 a) { memcpy(p, &a, sizeof a); }
INLINE w16 exclusive_or(w16 a, w16 b) { return a ^ b; }
// The two words of a * m.
INLINE void multiply(w16 a, uint32_t m, w16& high, w16& low) {
  high = __builtin_convertvector((__builtin_convertvector(a, Lanes<uint64_t>) * m) >> 32, w16);
  low = a * m;
}

}  // namespace
