// Whole sequences of two matrices, as sooner/lab/chain.py: exact by recursion, and simulated.

import { expectedTokens } from "./formulas.js";
import { sum } from "./position.js";
import { pick, stream } from "./random.js";

const dot = (a, b) => sum(a.map((value, i) => value * b[i]));
const times = (matrix, vector) => matrix.map((row) => dot(row, vector));
const add = (a, b) => a.map((value, i) => value + b[i]);
const through = (vector, matrix) => matrix[0].map((_, j) => sum(vector.map((value, i) => value * matrix[i][j])));

export function makePair(P, Q) {
  const both = P.map((row, t) => row.map((value, v) => Math.min(value, Q[t][v])));
  const missing = P.map((row, t) => row.map((value, v) => Math.max(value - Q[t][v], 0)));
  return { P, Q, both, missing, acceptance: both.map(sum) };
}

export const blurred = (P, blur) =>
  makePair(
    P,
    P.map((row) => row.map((value) => (1 - blur) * value + blur / row.length)),
  );

/** Rows softmax(normal / 0.7), from a seed of this page. */
export function randomTarget(size, seed) {
  const next = stream(seed);
  const normal = () => Math.sqrt(-2 * Math.log(next())) * Math.cos(2 * Math.PI * next());
  return Array.from({ length: size }, () => {
    const weights = Array.from({ length: size }, () => Math.exp(normal() / 0.7));
    return weights.map((weight) => weight / sum(weights));
  });
}

/** The law that `transitions` leaves as it is: x (T - 1) = 0 with one equation replaced by sum x = 1. */
export function stationary(transitions) {
  const n = transitions.length;
  const rows = transitions.map((_, j) => [...transitions.map((row, i) => row[j] - Number(i === j)), 0]);
  rows[n - 1] = Array(n + 1).fill(1);
  return solve(rows);
}

/** Gaussian elimination with pivoting on an augmented matrix. */
function solve(rows) {
  const n = rows.length;
  for (let i = 0; i < n; i++) {
    const pivot = rows
      .slice(i)
      .reduce((best, row, at) => (Math.abs(row[i]) > Math.abs(rows[best][i]) ? i + at : best), i);
    [rows[i], rows[pivot]] = [rows[pivot], rows[i]];
    for (let j = 0; j < n; j++) {
      if (j === i) continue;
      const factor = rows[j][i] / rows[i][i];
      for (let c = i; c <= n; c++) rows[j][c] -= factor * rows[i][c];
    }
  }
  return rows.map((row, i) => row[n] / row[i]);
}

export const meanAcceptance = (pair) => dot(stationary(pair.P), pair.acceptance);

/** Expected tokens of a round that starts after each token. */
export function tokensARound(pair, k) {
  let expected = pair.P.map(() => 1);
  for (let i = 0; i < k; i++) expected = times(pair.both, expected).map((value) => 1 + value);
  return expected;
}

/** Tokens a target call in an endless text. */
export function endless(pair, k) {
  let starts = pair.P;
  for (let i = 0; i < k; i++) starts = pair.missing.map((row, t) => add(row, through(pair.both[t], starts)));
  return dot(stationary(starts), tokensARound(pair, k));
}

/** Target calls for `length` tokens from token 0, the last round cut where they are complete. */
export function expectedCalls(pair, k, length) {
  const nothing = pair.P.map(() => 0);
  const calls = [nothing];
  let walks = Array(k + 1).fill(nothing); // by drafts left to check, with one token fewer to go than at n
  for (let n = 1; n <= length; n++) {
    const fresh = [times(pair.P, calls[n - 1])];
    for (let j = 1; j <= k; j++) fresh.push(add(times(pair.missing, calls[n - 1]), times(pair.both, walks[j - 1])));
    walks = fresh;
    calls.push(fresh[k].map((value) => 1 + value));
  }
  return calls[length][0];
}

export function shortfall(pair, k, length) {
  const alpha = meanAcceptance(pair);
  const constant = makePair(
    [
      [1, 0],
      [1, 0],
    ],
    [
      [alpha, 1 - alpha],
      [alpha, 1 - alpha],
    ],
  );
  return {
    formula: expectedTokens(alpha, k),
    formulaWithEnd: length / expectedCalls(constant, k, length),
    realRows: endless(pair, k),
    realRowsWithEnd: length / expectedCalls(pair, k, length),
  };
}

/** How often each token comes in the target's first `length` tokens, exactly. */
export function frequencies(pair, length) {
  let law = pair.P.map((_, t) => Number(t === 0)),
    total = pair.P.map(() => 0);
  for (let i = 0; i < length; i++) {
    law = through(law, pair.P);
    total = add(total, law);
  }
  return total.map((value) => value / length);
}

/** Draws sequences in parts: call `more(count)` as often as you like, and read the sums. */
export function simulation(pair, k, length, seed) {
  const next = stream(seed),
    size = pair.P.length;
  const start = () => ({ sum: Array(size).fill(0), squares: Array(size).fill(0) });
  const state = { sequences: 0, calls: 0, callSquares: 0, plain: start(), speculative: start() };
  state.more = (count) => {
    for (let i = 0; i < count; i++) {
      note(state.plain, plain(pair, length, next), length);
      const counts = Array(size).fill(0);
      const calls = speculate(pair, k, length, next, counts);
      note(state.speculative, counts, length);
      state.sequences += 1;
      state.calls += calls;
      state.callSquares += calls * calls;
    }
    return state;
  };
  return state;
}

function note(sums, counts, length) {
  counts.forEach((count, token) => {
    sums.sum[token] += count / length;
    sums.squares[token] += (count / length) ** 2;
  });
}

function plain(pair, length, next) {
  const counts = pair.P.map(() => 0);
  for (let i = 0, last = 0; i < length; i++) counts[(last = pick(pair.P[last], next()))]++;
  return counts;
}

/** One sequence, round by round; returns the target calls. */
function speculate(pair, k, length, next, counts) {
  let last = 0,
    done = 0,
    calls = 0;
  const commit = (token) => {
    if (done < length) counts[token]++;
    done += 1;
    last = token;
  };
  while (done < length) {
    calls += 1;
    let drafted = 0;
    for (; drafted < k; drafted++) {
      const { P, Q } = pair,
        before = last,
        token = pick(Q[before], next());
      const kept = next() <= Math.min(1, P[before][token] / Q[before][token]);
      commit(kept ? token : pick(pair.missing[before], next()));
      if (!kept) break;
    }
    if (drafted === k) commit(pick(pair.P[last], next()));
  }
  return calls;
}

/** Mean and standard error from sums over sequences. */
export function estimate(total, squares, count) {
  const mean = total / count;
  return { mean, error: Math.sqrt(Math.max(squares / count - mean * mean, 0) / Math.max(count - 1, 1)) };
}
