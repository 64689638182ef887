// Section 1: one position. Edit p and q; see acceptance, residual, output, wrong rules and draws.

import { barChart } from "../charts.js";
import { draw, position, standardError, totalVariation } from "../math/position.js";
import { caseOf } from "../math/wrong.js";
import { DRAWS, NAMES, agreeTable, coupled, upTo, wrongChart, wrongTable } from "./position_tables.js";
import { button, choiceField, fixed, h, note, numberField, percent, show, table, whole } from "../ui.js";

const EXAMPLES = {
  three: ["Three tokens: .6 .3 .1 against .2 .5 .3", [0.6, 0.3, 0.1], [0.2, 0.5, 0.3]],
  two: ["Two tokens: .4 .6 against .8 .2", [0.4, 0.6], [0.8, 0.2]],
  exercise: ["The exercise: .3 .7 against .6 .4", [0.3, 0.7], [0.6, 0.4]],
  six: ["Six tokens, a draft that is well off", [0.3, 0.25, 0.2, 0.15, 0.07, 0.03], [0.1, 0.1, 0.3, 0.3, 0.15, 0.05]],
  never: ["A token that is never drafted", [0, 0.3, 0.7], [0.5, 0.5, 0]],
  same: ["The draft is the target", [0.5, 0.3, 0.2], [0.5, 0.3, 0.2]],
};
const PARTS = 20;

export function startPosition(place, typical) {
  const state = {
    typical,
    p: [],
    q: [],
    road: { temperature: 1, topK: 0, topP: 1 },
    seed: 0,
    rule: "from_p",
    drawing: 0,
  };
  const parts = Object.fromEntries(
    ["rows", "rate", "chart", "wrong", "agree", "coupled", "drawn"].map((name) => [name, h("div")]),
  );
  const update = () => render(state, parts, update);

  const road = (name, label, limits) =>
    numberField(label, {
      value: state.road[name],
      ...limits,
      slider: true,
      changed: (value) => {
        state.road[name] = value;
        update();
      },
    });
  const fields = {
    temperature: road("temperature", "Temperature", { min: 0, max: 3, step: 0.05, hint: "0 is greedy" }),
    topK: road("topK", "Top-k", { min: 0, max: 8, step: 1, hint: "0 is off" }),
    topP: road("topP", "Top-p", { min: 0.05, max: 1, step: 0.05, hint: "1 is off" }),
  };
  const choose = (key) => load(EXAMPLES[key][1], EXAMPLES[key][2]);
  const example = choiceField("Example", {
    value: "three",
    options: Object.entries(EXAMPLES).map(([key, [text]]) => [key, text]),
    changed: choose,
  });
  const size = numberField("Tokens", { value: 3, min: 2, max: 8, step: 1, changed: (count) => resize(count) });

  function load(p, q, settings = {}) {
    Object.assign(state, { p: [...p], q: [...q] });
    for (const [name, value] of Object.entries({ temperature: 1, topK: 0, topP: 1, ...settings })) {
      state.road[name] = value;
      fields[name].set(value);
    }
    size.set(p.length);
    rebuild();
  }
  function resize(count) {
    const fit = (values) => Array.from({ length: count }, (_, i) => values[i] ?? 0.1);
    Object.assign(state, { p: fit(state.p), q: fit(state.q) });
    rebuild();
  }
  function rebuild() {
    parts.rows.replaceChildren(editor(state, update));
    update();
  }

  const seed = numberField("Seed", {
    value: 0,
    min: 0,
    max: 4294967295,
    step: 1,
    changed: (value) => {
      state.seed = value;
    },
  });
  show(
    place,
    h(
      "div",
      { class: "panel" },
      h("div", { class: "controls" }, example, size, fields.temperature, fields.topK, fields.topP),
      parts.rows,
    ),
    parts.rate,
    parts.chart,
    h("h3", {}, "Draw it"),
    h(
      "p",
      {},
      "Each draw plays the whole rule: the draft draws a token, a random number accepts or rejects it, and a rejection draws from the residual.",
    ),
    h(
      "div",
      { class: "panel controls" },
      seed,
      button(`Draw ${whole(DRAWS)} tokens`, () => drawAll(state, parts), { class: "main", id: "draw" }),
    ),
    parts.drawn,
    h("h3", {}, "Rules that look right"),
    h(
      "p",
      {},
      'Each of these changes the output. The error is the total variation from p: the largest difference that the rule makes to the chance of anything. Several need a temperature, top-k or top-p to go wrong: set one above. "Typically" is the median over 1,000 random pairs of 8 tokens at temperature .7, top-k 5 and top-p .9.',
    ),
    parts.wrong,
    h("h3", {}, "Sharing the noise"),
    h(
      "p",
      {},
      "A token can also be drawn as the largest of log p plus a random number for each token (Gumbel noise). If target and draft use the ",
      h("em", {}, "same"),
      " random numbers, they often choose the same token, and plain equality is the whole test. Then the output depends on the seed alone, never on the draft. Sooner does this for seeded requests (",
      h("code", {}, "match"),
      ").",
    ),
    parts.agree,
    parts.coupled,
  );
  choose("three");
  return { load };
}

function editor(state, update) {
  const cell = (weights, name, token) =>
    numberField("", {
      value: weights[token],
      min: 0,
      max: 1,
      step: 0.01,
      slider: true,
      changed: (value) => {
        weights[token] = value;
        update();
      },
    });
  const labelled = (field, label) => {
    field.querySelector("label").remove();
    field
      .querySelectorAll("input")
      .forEach((input) => input.setAttribute("aria-label", `${label}${input.type === "range" ? ", slider" : ""}`));
    return field;
  };
  return table(
    "Weights of target and draft; they are made to sum to 1",
    ["token", "target p", "draft q"],
    state.p.map((_, token) => [
      NAMES[token],
      labelled(cell(state.p, "p", token), `target p of ${NAMES[token]}`),
      labelled(cell(state.q, "q", token), `draft q of ${NAMES[token]}`),
    ]),
    { class: "editor" },
  );
}

function render(state, parts, update) {
  state.drawing += 1; // a run of draws that is under way ends
  show(parts.drawn);
  show(parts.coupled, note("Draw above to see how often it really happens."));
  if (![state.p, state.q].every((weights) => weights.some((weight) => weight > 0))) {
    show(
      parts.rate,
      h("p", { class: "error", role: "alert" }, "Give at least one token of each model a weight above 0."),
    );
    return;
  }
  const found = caseOf(state.p, state.q, state.road),
    { here } = found;
  state.here = here;
  show(parts.rate, summary(here), columns(here));
  show(parts.chart, chart(here));
  show(parts.wrong, wrongTable(found, state, update), wrongChart(found, state));
  show(parts.agree, agreeTable(here));
}

function summary(here) {
  const stat = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
  return h(
    "dl",
    { class: "stats", id: "position-stats" },
    stat("accepted: sum of min(p, q)", fixed(here.rate, 4)),
    stat("distance of p and q (TV)", fixed(totalVariation(here.p, here.q), 4)),
    stat("corrected: 1 - accepted", fixed(1 - here.rate, 4)),
  );
}

function columns(here) {
  const cells = (token) =>
    [here.p, here.q]
      .map((values) => fixed(values[token], 4))
      .concat(
        here.acceptance[token] === null ? "never drafted" : fixed(here.acceptance[token], 4),
        [here.accepted, here.residual, here.output].map((values) => fixed(values[token], 4)),
      );
  return table(
    "What the rule does with each token, after temperature, top-k and top-p",
    ["token", "p", "q", "accept with min(1, p/q)", "accepted mass min(p, q)", "residual", "output"],
    here.p.map((_, token) => [NAMES[token], ...cells(token)]),
    { id: "position-table" },
  );
}

function chart(here) {
  const series = [
    { name: "target p", tone: "target", values: here.p },
    { name: "draft q", tone: "draft", values: here.q },
    { name: "accepted min(p, q)", tone: "accepted", values: here.accepted },
    { name: "comes as correction", tone: "correction", values: here.p.map((value, i) => value - here.accepted[i]) },
  ];
  return barChart({
    title: "Accepted and corrected mass together are p",
    groups: here.p.map((_, i) => NAMES[i]),
    label: "token",
    y: upTo(series),
    series,
  });
}

/** Draws in parts, so that one can watch the frequencies settle; without motion all at once. */
function drawAll(state, parts) {
  const run = ++state.drawing,
    counts = state.p.map(() => 0),
    here = position(state.here.p, state.here.q);
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const part = still ? DRAWS : DRAWS / PARTS;
  let done = 0,
    kept = 0,
    spent = 0;
  const step = () => {
    if (run !== state.drawing) return;
    const began = performance.now();
    kept += draw(here, state.seed, done, done + part, counts);
    spent += performance.now() - began;
    done += part;
    show(parts.drawn, drawn(here, counts, kept, done, spent));
    if (done < DRAWS) requestAnimationFrame(step);
    else show(parts.coupled, coupled(here, state.seed));
  };
  step();
}

function drawn(here, counts, kept, done, spent) {
  const around = here.p.map((p) => [-2, 2].map((s) => Math.max(p + s * standardError(p, done), 0)));
  const most = Math.max(...here.p, ...here.q, ...counts.map((count) => count / done)) * 1.12;
  return [
    note(
      h(
        "span",
        { id: "drawn", "data-done": done, "data-ms": spent.toFixed(1), "data-counts": counts.join(",") },
        `${whole(done)} draws in ${fixed(spent, 1)} ms: accepted ${fixed(kept / done, 4)}, expected ${fixed(here.rate, 4)} (standard error ${fixed(standardError(here.rate, done), 4)}). `,
        `The largest distance from p is ${percent(Math.max(...counts.map((count, i) => Math.abs(count / done - here.p[i]))), 2)}.`,
      ),
    ),
    barChart({
      title: "Frequencies of the draws beside p; the whiskers are two standard errors around p",
      groups: here.p.map((_, i) => NAMES[i]),
      label: "token",
      y: { min: 0, max: Math.max(most, 0.1), label: "frequency" },
      digits: 4,
      series: [
        { name: "target p", tone: "target", values: here.p, errors: around },
        { name: "drawn", tone: "accepted", values: counts.map((count) => count / done) },
      ],
    }),
  ];
}
