// Rules that look right and are not, as sooner/lab/wrong.py: what each puts out at one position.

import { PLAIN_ROAD, distribution, normalised, positionOf, sum, totalVariation } from "./position.js";

export const LOW_Q = 0.25,
  LIKELY = 0.5,
  EPSILON = 0.01;

/** A position, and what wrong rules mix it up with. */
export function caseOf(p, q, road) {
  const cold = { ...road, temperature: road.temperature === 0 ? 0 : 1 };
  return {
    here: positionOf(p, q, road),
    cold: positionOf(p, q, cold),
    wideQ: distribution(q, { ...PLAIN_ROAD, temperature: road.temperature }),
  };
}

/** The right acceptance, and a correction from other weights. */
function corrected({ here }, weights) {
  const law = normalised(weights);
  return here.accepted.map((value, token) => value + (1 - here.rate) * law[token]);
}

const positivePart = (a, b) => a.map((value, token) => Math.max(value - b[token], 0));

function likeliest({ here }) {
  const token = here.q.indexOf(Math.max(...here.q)),
    chance = here.acceptance[token];
  return here.residual.map((value, i) => (1 - chance) * value + (i === token ? chance : 0));
}

function likely({ here: { p, q } }) {
  const least = LIKELY * Math.max(...p);
  const kept = q.map((value, token) => (p[token] >= least ? value : 0));
  return kept.map((value, token) => value + (1 - sum(kept)) * p[token]);
}

function dropLow({ here }) {
  const dropped = sum(here.q.filter((value) => value < LOW_Q));
  const accepted = here.accepted.map((value, token) => (here.q[token] >= LOW_Q ? value : 0));
  const rejected = 1 - sum(accepted) - dropped;
  return accepted.map((value, token) => value + rejected * here.residual[token] + dropped * here.p[token]);
}

function wideRatio({ here: { p, q }, wideQ }) {
  const accepted = q.map((value, token) => (wideQ[token] > 0 ? value * Math.min(1, p[token] / wideQ[token]) : 0));
  const residual = normalised(positivePart(p, wideQ));
  return accepted.map((value, token) => value + (1 - sum(accepted)) * residual[token]);
}

function sameStream({ here }) {
  const output = [...here.accepted];
  let low = 0;
  here.q.forEach((q, drafted) => {
    const rejected = q > 0 ? 1 - here.acceptance[drafted] : 0;
    let start = 0;
    here.residual.forEach((r, token) => {
      output[token] += rejected * Math.max(Math.min(low + q, start + r) - Math.max(low, start), 0);
      start += r;
    });
    low += q;
  });
  return output;
}

export const WRONG_RULES = [
  [
    "from_p",
    "Draw the correction from p, not from the residual",
    (c) => corrected(c, c.here.p),
    "Tokens that the draft likes too much come back through the correction.",
  ],
  [
    "draw_again",
    "No residual: let the draft draw again until a token is accepted",
    ({ here }) => here.accepted.map((value) => value / here.rate),
    "What the draft never proposes can never come out. Without any overlap it does not even end.",
  ],
  [
    "likeliest",
    "Judge the draft's likeliest token by p/q, as if it had been drawn",
    likeliest,
    "The ratio is right only for tokens that were drawn from q. A token that is certain has q = 1.",
  ],
  [
    "likely",
    `Keep what the target finds likely (at least ${LIKELY} of its largest probability)`,
    likely,
    "It sounds reasonable, and filters p through the draft's taste.",
  ],
  [
    "cold_residual",
    "Temperature in the ratio, but not in the residual",
    (c) => corrected(c, c.cold.residual),
    "Harmless at temperature 1, wrong at every other.",
  ],
  [
    "drop_low",
    `Drop a drawn token whose q is below ${LOW_Q}, and let the target choose`,
    dropLow,
    "Deciding after the draw changes what was drawn. Deciding before it would be fine.",
  ],
  [
    "wide_ratio",
    "Draw the draft after top-k and top-p, but record the q from before",
    wideRatio,
    "It even raises acceptance. With neither top-k nor top-p there is no difference.",
  ],
  [
    "same_stream",
    "Use the draft's random number again for the correction",
    sameStream,
    "The number is no longer free: it is known to lie where the rejected token lies.",
  ],
  [
    "epsilon",
    `Add ${EPSILON} to the residual, to be safe from dividing by zero`,
    (c) =>
      corrected(
        c,
        positivePart(c.here.p, c.here.q).map((value) => value + EPSILON),
      ),
    "Tokens that the target rules out appear.",
  ],
].map(([key, name, output, why]) => ({ key, name, output, why }));

/** Total variation between what the rule puts out and p; null where the rule never ends. */
export function wrongError(c, rule) {
  const distance = totalVariation(rule.output(c), c.here.p);
  return Number.isNaN(distance) ? null : distance;
}
