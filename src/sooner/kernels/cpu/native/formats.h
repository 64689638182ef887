// How each weight format is walked: sixteen outputs in the lanes, inputs in order, every weight widened to the float32
// number that it stands for. A block of 16 outputs is [k / group] groups; a group holds `group` inputs.
#pragma once

namespace {

// Up to so many groups of ROWS rows are multiplied with weights that each tile widens on its own, where widening is an
// operation or none; more, with panels that were widened once.
constexpr int CHEAP = 8;

// `unit` inputs come out of the same bytes: unpack() gives the one of them that it is asked for. advance() is the distance
// between groups: fixed but for WalkValues. SCALES: registers that a block takes beside its accumulators.
// `direct`: groups of rows without panels.
template <int GROUP, int UNIT, size_t BYTES, int SCALES = 0>
struct Layout {
  static constexpr bool fetch = true;  // worth prefetching: it continues in memory
  static constexpr int group = GROUP, unit = UNIT;
  static constexpr size_t bytes = BYTES;
  static constexpr int direct = 2;
  static INLINE size_t advance(size_t) { return BYTES; }
  // The most blocks of a tile of `rows` rows, and the streams that such a tile fetches for what comes after it.
  static constexpr int widest(int rows) { return blocks_at_once(rows, SCALES); }
  static constexpr int streams(int rows, int blocks) { return blocks == 1 || fetches_ahead(rows, SCALES); }
};

struct NoScale {};

INLINE v16 load_f32(const uint8_t* p) { return load(reinterpret_cast<const float*>(p)); }

struct WalkF32 : Layout<1, 1, 64> {
  static constexpr int direct = CHEAP;
  using Scale = NoScale;
  static INLINE Scale scale(const uint8_t*) { return {}; }
  static INLINE v16 unpack(const Scale&, const uint8_t* p, int, int) { return load_f32(p); }
};

// The keys of a cache page.
struct WalkKeys : WalkF32 {
  static constexpr bool fetch = false;
  static constexpr int widest(int rows) {
    const int blocks = WalkF32::widest(rows);
    return blocks < MOST_PAGES ? blocks : MOST_PAGES;
  }
  static constexpr int streams(int, int blocks) { return blocks <= 2 ? 2 * blocks : 0; }
};

// The values of a cache page: float32 rows that lie `step` bytes apart.
struct WalkValues : WalkKeys {
  static constexpr int widest(int rows) { return WalkF32::widest(rows); }
  static constexpr int streams(int, int) { return 0; }
  static INLINE size_t advance(size_t step) { return step; }
};

// [16] words of two inputs: the first in the high half, where a mask is all that it takes to widen it.
struct WalkBF16 : Layout<2, 1, 64> {
  static constexpr int direct = CHEAP;
  using Scale = NoScale;
  static INLINE Scale scale(const uint8_t*) { return {}; }
  static INLINE v16 unpack(const Scale&, const uint8_t* p, int i, int) {
    if (i) asm volatile("" ::: "memory");  // read the words again rather than keep them in registers
    return i ? load_low_bf16(p) : load_high_bf16(p);
  }
};

struct WalkF16 : Layout<1, 1, 32> {
  static constexpr int direct = CHEAP;
  using Scale = NoScale;
  static INLINE Scale scale(const uint8_t*) { return {}; }
  static INLINE v16 unpack(const Scale&, const uint8_t* p, int, int) { return load_f16(p); }
};

// Quantised formats: an f16 scale times a quant of 4 or 8 bits is exact in float32, so that an fma with the minimum,
// or with -8 * scale, rounds like a product followed by a sum.

// [16] f16 scales, [32][16] int8.
struct WalkQ8 : Layout<32, 1, 32 + 512, 1> {
  using Scale = v16;
  static INLINE Scale scale(const uint8_t* p) { return load_f16(p); }
  static INLINE v16 unpack(const Scale& s, const uint8_t* p, int i, int) { return mul(s, load_i8(p + 32 + 16 * i)); }
};

// [16] f16 scales, [16][16] bytes: input 2 i in the low nibbles, 2 i + 1 in the high ones. Those are read as 16 times
// what they are, which a sixteenth of the scale makes good: a mask is cheaper than a shift.
struct Nibbles {
  v16 scale, sixteenth, minimum;
  static INLINE Nibbles of(v16 scale, v16 minimum) { return {scale, mul(scale, all(0.0625f)), minimum}; }
  INLINE v16 unpack(const uint8_t* p, int high) const {
    return high ? fma(sixteenth, load_masked(p, 240), minimum) : fma(scale, load_masked(p, 15), minimum);
  }
};

struct WalkQ40 : Layout<32, 2, 32 + 256, 3> {
  using Scale = Nibbles;
  static INLINE Scale scale(const uint8_t* p) { return Nibbles::of(load_f16(p), mul(load_f16(p), all(-8.0f))); }
  static INLINE v16 unpack(const Scale& s, const uint8_t* p, int i, int high) { return s.unpack(p + 32 + 8 * i, high); }
};

// [16] f16 scales, [16] f16 minima, nibbles as above.
struct WalkQ41 : Layout<32, 2, 64 + 256, 3> {
  using Scale = Nibbles;
  static INLINE Scale scale(const uint8_t* p) { return Nibbles::of(load_f16(p), load_f16(p + 32)); }
  static INLINE v16 unpack(const Scale& s, const uint8_t* p, int i, int high) { return s.unpack(p + 64 + 8 * i, high); }
};

// [16] float32 scales, [16] minima, nibbles as above. A scale is a product of an f16 and 6 bits: with 5 bits of quant it
// still fits in float32, so that here too a multiply-add rounds like a product followed by a sum.
struct WalkG32Q4 : Layout<32, 2, 128 + 256, 3> {
  using Scale = Nibbles;
  static INLINE Scale scale(const uint8_t* p) { return Nibbles::of(load_f32(p), load_f32(p + 64)); }
  static INLINE v16 unpack(const Scale& s, const uint8_t* p, int i, int high) { return s.unpack(p + 128 + 8 * i, high); }
};

// [16] float32 scales, [16] minima, [32][16] int8.
struct WalkG32Q8 : Layout<32, 1, 128 + 512, 2> {
  struct Scale {
    v16 scale, minimum;
  };
  static INLINE Scale scale(const uint8_t* p) { return {load_f32(p), load_f32(p + 64)}; }
  static INLINE v16 unpack(const Scale& s, const uint8_t* p, int i, int) {
    return fma(s.scale, load_i8(p + 128 + 16 * i), s.minimum);
  }
};

// [16] float32 scales, [16][16] int8.
struct WalkG16Q8 : Layout<16, 1, 64 + 256, 1> {
  using Scale = v16;
  static INLINE Scale scale(const uint8_t* p) { return load_f32(p); }
  static INLINE v16 unpack(const Scale& s, const uint8_t* p, int i, int) { return mul(s, load_i8(p + 64 + 16 * i)); }
};

// Calls body(walk) with the walk of `format`.
template <class Body>
INLINE void with_walk(int format, Body&& body) {
  switch (format) {
    case F32: return body(WalkF32{});
    case F16: return body(WalkF16{});
    case BF16: return body(WalkBF16{});
    case Q8_0: return body(WalkQ8{});
    case Q4_0: return body(WalkQ40{});
    case Q4_1: return body(WalkQ41{});
    case G32Q4: return body(WalkG32Q4{});
    case G32Q8: return body(WalkG32Q8{});
    case G16Q8: return body(WalkG16Q8{});
  }
}

}  // namespace
