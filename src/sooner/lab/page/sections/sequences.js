// Section 3: whole sequences. Two matrices, plain and speculative, exact and simulated.

import { barChart, lineChart } from "../charts.js";
import * as chain from "../math/chain.js";
import { expectedTokens } from "../math/formulas.js";
import { button, choiceField, fixed, h, note, numberField, percent, show, table, whole } from "../ui.js";

const BATCH = 250;
const letters = "ABCDEFGH";

export function startSequences(place, pairs) {
  const state = { source: "published", seed: 1, blur: 0.4, k: 4, length: 64, sequences: 10000, running: 0 };
  const exact = h("div"),
    result = h("div");
  const update = () => {
    state.running += 1;
    state.pair = makePair(state, pairs);
    show(exact, exactly(state));
    result.replaceChildren();
  };
  const field = (name, label, limits) =>
    numberField(label, {
      value: state[name],
      ...limits,
      changed: (value) => {
        state[name] = value;
        update();
      },
    });
  const blur = field("blur", "Blur of the draft", {
    min: 0,
    max: 1,
    step: 0.05,
    slider: true,
    hint: "0: the target itself, 1: blind",
  });
  const source = choiceField("Target", {
    value: "published",
    options: [
      ["published", "the published matrix, 5 tokens"],
      ["random", "a random matrix, 5 tokens"],
      ["moody", "two moods that last, 8 tokens"],
    ],
    changed: (value) => {
      state.source = value;
      blur.hidden = value === "moody";
      update();
    },
  });
  show(
    place,
    h(
      "div",
      { class: "panel controls" },
      source,
      field("seed", "Seed", { min: 0, max: 4294967295, step: 1 }),
      blur,
      field("k", "Draft length", { min: 0, max: 16, step: 1 }),
      field("length", "Tokens of a sequence", { min: 2, max: 256, step: 1 }),
      field("sequences", "Sequences", { min: 100, max: 60000, step: 100 }),
    ),
    exact,
    h("h3", {}, "Run it"),
    h(
      "div",
      { class: "panel controls" },
      button("Run the experiment", () => run(state, result), { class: "main", id: "run" }),
    ),
    result,
  );
  update();
}

function makePair({ source, seed, blur }, pairs) {
  if (source === "moody") return chain.makePair(pairs.moody.P, pairs.moody.Q);
  return chain.blurred(source === "published" ? pairs.published.P : chain.randomTarget(5, seed), blur);
}

const name = (token) => letters[token];
const stat = (title, value) => h("div", {}, h("dt", {}, title), h("dd", {}, value));

function exactly({ pair, k, length }) {
  const steps = chain.shortfall(pair, k, length),
    alpha = chain.meanAcceptance(pair);
  const ks = Array.from({ length: 13 }, (_, i) => i);
  const real = ks.map((n) => [n, length / chain.expectedCalls(pair, n, length)]);
  const formula = ks.map((n) => [n, expectedTokens(alpha, n)]);
  return [
    h(
      "dl",
      { class: "stats", id: "chain-stats" },
      stat("tokens a target call, exactly", fixed(steps.realRowsWithEnd, 4)),
      stat("calls saved", percent(1 - 1 / steps.realRowsWithEnd)),
      stat("mean acceptance", fixed(alpha, 4)),
    ),
    table(
      "Why it is not what the formula says: one thing at a time",
      ["tokens a target call", ""],
      [
        ["the formula at the mean acceptance, endless text", fixed(steps.formula, 4)],
        [`the same, but the last round is cut at ${length} tokens`, fixed(steps.formulaWithEnd, 4)],
        ["the real rows, each with its own acceptance, endless text", fixed(steps.realRows, 4)],
        [`the real rows, cut at ${length} tokens: what a run measures`, fixed(steps.realRowsWithEnd, 4)],
      ],
      { id: "shortfall-table" },
    ),
    h(
      "div",
      { class: "figures" },
      barChart({
        title: "Acceptance after each token",
        groups: pair.P.map((_, t) => name(t)),
        label: "last token",
        y: { min: 0, max: 1, label: "accepted" },
        rule: alpha,
        digits: 4,
        half: true,
        series: [{ name: "accepted", tone: "accepted", values: pair.acceptance }],
      }),
      lineChart({
        title: "Tokens a target call by draft length",
        x: { min: 0, max: 12, label: "draft length", ticks: [0, 2, 4, 6, 8, 10, 12].map((n) => [n, `${n}`]) },
        y: { min: 0, max: Math.max(...formula.map(([, value]) => value)) * 1.05, label: "tokens" },
        series: [
          { name: "the formula", tone: "grey", dashed: true, points: formula },
          { name: "this pair, exactly", tone: "target", points: real, dots: [real[Math.min(k, 12)]] },
        ],
        half: true,
      }),
    ),
    matrices(pair),
  ];
}

function matrices({ P, Q }) {
  const one = (title, rows) =>
    table(
      title,
      ["after", ...rows.map((_, t) => name(t))],
      rows.map((row, t) => [name(t), ...row.map((value) => fixed(value, 3))]),
    );
  return h(
    "details",
    {},
    h("summary", {}, "The two matrices"),
    one("Target: chance of the next token", P),
    one("Draft: chance of the next token", Q),
  );
}

/** In parts, so that the page stays alive. */
function run(state, place) {
  const mine = ++state.running,
    { pair, k, length, seed, sequences } = state;
  const simulation = chain.simulation(pair, k, length, seed),
    exact = chain.frequencies(pair, length);
  const began = performance.now();
  const step = () => {
    if (mine !== state.running) return;
    const until = performance.now() + 40;
    while (simulation.sequences < sequences && performance.now() < until) {
      simulation.more(Math.min(BATCH, sequences - simulation.sequences));
    }
    const done = simulation.sequences === sequences;
    show(place, measured(simulation, exact, length, done, performance.now() - began));
    if (!done) requestAnimationFrame(step);
  };
  step();
}

function measured(simulation, exact, length, done, ms) {
  const { sequences } = simulation;
  const law = (sums) => sums.sum.map((total, token) => chain.estimate(total, sums.squares[token], sequences));
  const plain = law(simulation.plain),
    speculative = law(simulation.speculative);
  const calls = chain.estimate(simulation.calls, simulation.callSquares, sequences);
  const perCall = length / calls.mean,
    error = (perCall * calls.error) / calls.mean;
  const worst = Math.max(...plain.map(({ mean }, i) => Math.abs(mean - speculative[i].mean)));
  const band = Math.max(...plain.map((one, i) => Math.hypot(one.error, speculative[i].error)));
  const bars = (law, title, tone) => ({
    name: title,
    tone,
    values: law.map(({ mean }) => mean),
    errors: law.map(({ mean, error: e }) => [mean - 2 * e, mean + 2 * e]),
  });
  return [
    note(
      h(
        "span",
        { id: "simulated", "data-done": String(done), "data-per-call": perCall, "data-error": error },
        `${whole(sequences)} sequences of either kind in ${fixed(ms / 1000, 1)} s: ${fixed(perCall, 4)} tokens a target call (standard error ${fixed(error, 4)}), ${percent(1 - 1 / perCall)} of target calls saved. `,
        `The largest difference of the two frequencies is ${fixed(worst, 5)}, where one standard error is up to ${fixed(band, 5)}.`,
      ),
    ),
    barChart({
      title: "How often each token comes (whiskers: two standard errors)",
      groups: exact.map((_, t) => name(t)),
      label: "token",
      y: { min: 0, max: Math.max(...exact) * 1.2, label: "frequency" },
      digits: 4,
      series: [
        { name: "exact", tone: "grey", values: exact },
        bars(plain, "target alone", "target"),
        bars(speculative, "speculative", "accepted"),
      ],
    }),
  ];
}
