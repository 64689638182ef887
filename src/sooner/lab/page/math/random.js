// Counter-based randomness, the package's own (sooner/sampling/noise.py): a draw is a pure function of its counters.
// Philox 4x32-10: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".

export const PURPOSE = { token: 0, draft: 1, accept: 2, correct: 3 };

const words = new Uint32Array(4);

function highWord(a, b) {
  const a0 = a & 0xffff,
    a1 = a >>> 16,
    b0 = b & 0xffff,
    b1 = b >>> 16;
  const middle = a1 * b0 + ((a0 * b0) >>> 16); // every partial sum stays below 2^32
  const lower = a0 * b1 + (middle & 0xffff);
  return (a1 * b1 + (middle >>> 16) + (lower >>> 16)) >>> 0;
}

/** Four 32-bit words in one array that the next call writes over. seed below 2^32. */
export function philox(seed, c0, c1, c2, c3) {
  let k0 = seed >>> 0,
    k1 = 0;
  for (let round = 0; round < 10; round++) {
    const high0 = highWord(c0, 0xd2511f53),
      low0 = Math.imul(c0, 0xd2511f53) >>> 0;
    const high1 = highWord(c2, 0xcd9e8d57),
      low1 = Math.imul(c2, 0xcd9e8d57) >>> 0;
    c0 = (high1 ^ c1 ^ k0) >>> 0;
    c1 = low1;
    c2 = (high0 ^ c3 ^ k1) >>> 0;
    c3 = low0;
    k0 = (k0 + 0x9e3779b9) >>> 0;
    k1 = (k1 + 0xbb67ae85) >>> 0;
  }
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
  return words;
}

/** 52 random bits at the centres of 2^52 equal cells of (0, 1). */
const unit = (high, low) => (high * 2 ** 20 + (low >>> 12) + 0.5) * 2 ** -52;

export function uniform(seed, draw, purpose, lane = 0) {
  const [a, b] = philox(seed, draw, lane, 0, purpose);
  return unit(a, b);
}

export const gumbel = (seed, draw, token) => -Math.log(-Math.log(uniform(seed, draw, PURPOSE.token, token)));

/** An endless series of uniforms, for simulations that need no names. */
export function stream(seed) {
  let count = 0,
    spare = -1;
  return () => {
    if (spare >= 0) {
      const number = spare;
      spare = -1;
      return number;
    }
    const w = philox(seed, count++, 0, 0, 9);
    spare = unit(w[2], w[3]);
    return unit(w[0], w[1]);
  };
}

/** Inverse transform over weights that need not sum to 1; a token without weight is never drawn. */
export function pick(weights, u) {
  let total = 0;
  for (const weight of weights) total += weight;
  let sum = 0,
    last = 0;
  for (let token = 0; token < weights.length; token++) {
    sum += weights[token];
    if (weights[token] > 0) last = token;
    if (sum > u * total) return token;
  }
  return last;
}
