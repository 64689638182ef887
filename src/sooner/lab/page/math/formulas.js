// The theory in closed form, as sooner/plan/formulas.py and sooner/lab/rounds.py (Leviathan et al. 2023).

/** Tokens a round, correction or bonus included: 1 + alpha + ... + alpha^k. */
export const expectedTokens = (alpha, k) => (alpha === 1 ? k + 1 : (1 - alpha ** (k + 1)) / (1 - alpha));

export const ceiling = (alpha) => 1 / (1 - alpha);

/** Plain time over speculative time. c: a draft step, verification: a pass over k + 1 rows, both in plain passes. */
export const speedup = (alpha, k, c, verification = 1) => expectedTokens(alpha, k) / (k * c + verification);

/** The draft length 0..longest with the highest speedup, the shortest among equals. verification(k) as above. */
export function bestLength(alpha, c, longest = 64, verification = () => 1) {
  let best = 0,
    highest = -Infinity;
  for (let k = 0; k <= longest; k++) {
    const gain = speedup(alpha, k, c, verification(k));
    if (gain > highest) [best, highest] = [k, gain];
  }
  return best;
}

/** Whether a round pays: milliseconds of one useful token, the gain in decoding, and in a whole answer. */
export function balance(plainMs, roundMs, tokens, prefillMs = 0, answer = 100) {
  const tokenMs = roundMs / tokens;
  return {
    tokenMs,
    speedup: plainMs / tokenMs,
    endToEnd: (prefillMs + answer * plainMs) / (prefillMs + answer * tokenMs),
  };
}

/** By how much tokens may rise in price before drafting loses: the acceptance rate at which k tokens just pay. */
export function breakEven(k, c, verification) {
  if (speedup(1, k, c, verification) < 1) return null;
  let low = 0,
    high = 1;
  for (let i = 0; i < 60; i++) {
    const middle = (low + high) / 2;
    if (speedup(middle, k, c, verification) < 1) low = middle;
    else high = middle;
  }
  return high;
}
