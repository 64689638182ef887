// Functions of sixteen lanes, made only of operations that every ISA rounds alike.
#pragma once

namespace {

// e^x within 2 ulp for x in [-87.3, 88.3); 0 below, infinity above.
// x = n ln 2 + r with |r| <= ln(2)/2, then the Taylor series of e^r to r^7 (its remainder is below 6e-9) times 2^n.
INLINE v16 exp(v16 x) {
  const v16 lowest = all(-87.3f), highest = all(88.3f);
  const v16 magic = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
  const v16 clamped = min(max(x, lowest), highest);
  const v16 t = fma(clamped, all(1.44269504f), magic);
  const v16 n = sub(t, magic);
  const v16 r = fma(n, all(0x1.05c61p-29f), fma(n, all(-0x1.62e43p-1f), clamped));  // ln 2 in two pieces
  v16 p = all(1.0f / 5040);
  p = fma(p, r, all(1.0f / 720));
  p = fma(p, r, all(1.0f / 120));
  p = fma(p, r, all(1.0f / 24));
  p = fma(p, r, all(1.0f / 6));
  p = fma(p, r, all(0.5f));
  p = fma(p, r, all(1.0f));
  p = fma(p, r, all(1.0f));
  p = where_ge(x, highest, all(__builtin_inff()), scale_by(p, t));
  return where_ge(x, lowest, p, zero());
}

INLINE float exp(float x) {
  float lanes[16];
  store(lanes, exp(all(x)));
  return lanes[0];
}

INLINE v16 tanh(v16 x) {
  const v16 one = all(1.0f), e = exp(mul(x, all(2.0f)));
  return sub(one, div(all(2.0f), add(e, one)));
}

// x / (1 + e^-s): SiLU for s = x, GELU's tanh form for s = 2 sqrt(2/pi) (x + 0.044715 x^3).
INLINE v16 gate(v16 x, v16 s) { return div(x, add(all(1.0f), exp(sub(zero(), s)))); }

INLINE v16 activate(int activation, v16 x) {
  if (activation == SILU) return gate(x, x);
  const v16 cubed = mul(mul(x, x), x);
  return gate(x, mul(all(1.59576912f), fma(cubed, all(0.044715f), x)));
}

}  // namespace
