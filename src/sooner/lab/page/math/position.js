// One position, as sooner/lab/position.py: closed forms, and seeded draws that give the package's own tokens.

import { PURPOSE, gumbel, pick, uniform } from "./random.js";

export const PLAIN_ROAD = { temperature: 1, topK: 0, topP: 1 };
export const sum = (values) => values.reduce((a, b) => a + b, 0);
export const totalVariation = (a, b) => 0.5 * sum(a.map((value, i) => Math.abs(value - b[i])));

export function normalised(weights) {
  const total = sum(weights);
  return total > 0 ? weights.map((weight) => weight / total) : weights;
}

/** Weights after the sampling road: temperature, then top-k, then top-p on what top-k left; it sums to 1. */
export function distribution(weights, { temperature, topK, topP }) {
  const logits = normalised(weights).map(Math.log);
  if (temperature === 0) return point(logits);
  const scores = logits.map((logit) => logit / temperature);
  const kept = truncate(scores, topK, topP);
  const top = Math.max(...scores);
  return normalised(scores.map((score, token) => (kept.has(token) ? Math.exp(score - top) : 0)));
}

function point(logits) {
  const best = logits.indexOf(Math.max(...logits));
  return logits.map((_, token) => Number(token === best));
}

/** The tokens that survive top-k and top-p; equal scores by lowest id. */
function truncate(scores, topK, topP) {
  let order = scores.map((_, token) => token).sort((a, b) => scores[b] - scores[a] || a - b);
  if (topK > 0) order = order.slice(0, topK);
  if (topP < 1) {
    let mass = 0;
    const cumulated = order.map((token) => (mass += Math.exp(scores[token] - scores[order[0]])));
    order = order.slice(0, cumulated.findIndex((value) => value >= topP * mass) + 1);
  }
  return new Set(order);
}

/** Everything about p and q that the rule needs. acceptance is null where q is 0: such a token is never drafted. */
export function position(p, q) {
  const accepted = p.map((value, token) => Math.min(value, q[token]));
  const rate = sum(accepted);
  const residual = normalised(p.map((value, token) => Math.max(value - q[token], 0)));
  return {
    p,
    q,
    accepted,
    residual,
    rate,
    acceptance: p.map((value, token) => (q[token] > 0 ? Math.min(1, value / q[token]) : null)),
    output: accepted.map((value, token) => value + (1 - rate) * residual[token]),
  };
}

export const positionOf = (p, q, road = PLAIN_ROAD) => position(distribution(p, road), distribution(q, road));

/** How often a draft's token is kept, by the way of proposing and verifying it; see the package for the derivation. */
export function agreement({ p, q, rate }) {
  const tokens = p.map((_, token) => token);
  const shared = tokens
    .filter((v) => p[v] > 0 && q[v] > 0)
    .map((v) => 1 / sum(tokens.map((u) => Math.max(p[u] / p[v], q[u] / q[v]))));
  const tv = totalVariation(p, q);
  return {
    rejection: rate,
    sharedNoise: sum(shared),
    sharedNoiseBound: (1 - tv) / (1 + tv),
    greedyDraft: p[q.indexOf(Math.max(...q))],
    independent: sum(p.map((value, token) => value * q[token])),
  };
}

/** Plays draws from..to (numbered, so that they can come in parts) and adds them to counts; returns how many were kept. */
export function draw({ p, q }, seed, from, to, counts) {
  const missing = p.map((value, token) => Math.max(value - q[token], 0));
  const certain = missing.every((value) => value === 0);
  let kept = 0;
  for (let i = from; i < to; i++) {
    const drafted = pick(q, uniform(seed, i, PURPOSE.draft));
    const ok = certain || uniform(seed, i, PURPOSE.accept) <= Math.min(1, p[drafted] / q[drafted]);
    kept += ok;
    counts[ok ? drafted : pick(missing, uniform(seed, i, PURPOSE.correct))]++;
  }
  return kept;
}

/** Both choices under one Gumbel noise: counts the target's tokens, returns how often the draft's was the same. */
export function drawCoupled({ p, q }, seed, from, to, counts) {
  const scoresP = p.map(Math.log),
    scoresQ = q.map(Math.log);
  let same = 0;
  for (let i = from; i < to; i++) {
    let own = 0,
      drafted = 0,
      bestP = -Infinity,
      bestQ = -Infinity;
    for (let token = 0; token < p.length; token++) {
      const noise = gumbel(seed, i, token);
      if (scoresP[token] + noise > bestP) [bestP, own] = [scoresP[token] + noise, token];
      if (scoresQ[token] + noise > bestQ) [bestQ, drafted] = [scoresQ[token] + noise, token];
    }
    counts[own]++;
    same += own === drafted;
  }
  return same;
}

export const standardError = (chance, draws) => Math.sqrt((chance * (1 - chance)) / draws);
