// Exact dot products of small integers in sixteen lanes, in portable C++ (after v16_generic.h): what every other
// dots_*.h must reproduce. A lane is 32 bits: four numbers, or an int32.
#pragma once

namespace {

constexpr int DOT_ROWS = 1;  // rows of a tile

using quads = Lanes<uint32_t>;  // four bytes a lane
using Dots = Lanes<int32_t>;

INLINE quads load_quads(const uint8_t* p) { return load_lanes_of<uint32_t>(p); }
INLINE quads low_nibbles(quads a) { return a & 0x0f0f0f0f; }
INLINE quads high_nibbles(quads a) { return (a >> 4) & 0x0f0f0f0f; }
// The same four numbers in all lanes.
INLINE quads same_quad(const int8_t* x) {
  uint32_t four;
  memcpy(&four, x, sizeof four);
  return quads{} + four;
}
INLINE Dots no_dots() { return Dots{}; }

// Number I of each lane.
template <int I>
INLINE Dots number(quads a) {
  return bits<Dots>(a << (24 - 8 * I)) >> 24;
}

// sums += w . x in each lane, x from -127 to 127: for w from -128 to 127, or from 0 to 15 (at most 8 times). What is
// summed by one is read by its own total, as float32: exact, and with `offset` added.
INLINE void add_dots_i8(Dots& sums, quads w, quads x) {
  sums += number<0>(w) * number<0>(x) + number<1>(w) * number<1>(x) + number<2>(w) * number<2>(x) +
          number<3>(w) * number<3>(x);
}
INLINE void add_dots_u4(Dots& sums, quads w, quads x) { add_dots_i8(sums, w, x); }
INLINE v16 total_u4(Dots sums, int32_t offset) { return __builtin_convertvector(sums + offset, v16); }
// inputs: the sum of all x that were multiplied.
INLINE v16 total_i8(Dots sums, int32_t) { return __builtin_convertvector(sums, v16); }

}  // namespace
