// Section 4: when it pays. The theory, the published tables, one round in milliseconds, and measured costs.

import { lineChart } from "../charts.js";
import { readCosts, passMs, verification } from "../math/costs.js";
import { balance, bestLength, breakEven, ceiling, expectedTokens, speedup } from "../math/formulas.js";
import { choiceField, fileField, fixed, h, note, numberField, show, table, times } from "../ui.js";

const ALPHAS = [0.5, 0.6, 0.7, 0.8, 0.9];
const TONES = ["grey", "correction", "draft", "target", "accepted"];
const LONGEST = 20;
const lengths = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => from + i);

export function startPays(place, results) {
  const theory = h("div"),
    ms = h("div"),
    measured = h("div");
  show(place, theory, h("h3", {}, "One round in milliseconds"), ms, h("h3", {}, "With measured costs"), measured);
  startTheory(theory);
  const lab = startBalance(ms);
  startMeasured(measured, results);
  return lab;
}

// Makes number fields for what `state` holds; a change is put there, then comes `update`.
const fieldsOf = (state, update, shared) => (name, label, limits) =>
  numberField(label, {
    value: state[name],
    ...shared,
    ...limits,
    changed: (value) => {
      state[name] = value;
      update();
    },
  });

const stat = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));

function startTheory(place) {
  const state = { alpha: 0.7, c: 0.1, k: 4 },
    out = h("div");
  const update = () => show(out, theory(state));
  const field = fieldsOf(state, update, { slider: true });
  show(
    place,
    h(
      "div",
      { class: "panel controls" },
      field("alpha", "Acceptance rate α", { min: 0, max: 0.99, step: 0.01 }),
      field("c", "Draft step, in target passes: c", { min: 0, max: 1, step: 0.01 }),
      field("k", "Draft length k", { min: 0, max: LONGEST, step: 1 }),
    ),
    out,
  );
  update();
}

function theory({ alpha, c, k }) {
  const best = bestLength(alpha, c),
    gain = speedup(alpha, k, c);
  const curves = ALPHAS.map((a, i) => ({
    name: `α ${a}`,
    tone: TONES[i],
    points: lengths(1, LONGEST).map((n) => [n, speedup(a, n, c)]),
    dots: bestLength(a, c) > 0 ? [[bestLength(a, c), speedup(a, bestLength(a, c), c)]] : [],
  }));
  const mine = {
    name: `yours, α ${alpha}`,
    tone: "bonus",
    dashed: true,
    points: lengths(1, LONGEST).map((n) => [n, speedup(alpha, n, c)]),
    dots: k > 0 ? [[k, gain]] : [],
  };
  const top = Math.max(...[...curves, mine].flatMap(({ points }) => points.map(([, value]) => value)));
  return [
    h(
      "dl",
      { class: "stats", id: "theory-stats" },
      stat("tokens a round", fixed(expectedTokens(alpha, k), 4)),
      stat("cost of a round, in passes", fixed(k * c + 1, 2)),
      stat("speedup", times(gain)),
      stat("ceiling 1/(1-α)", fixed(ceiling(alpha), 1)),
      stat("best length", best === 0 ? "0: do not draft" : `${best} (${times(speedup(alpha, best, c))})`),
    ),
    h(
      "div",
      { class: "figures" },
      lineChart({
        title: `Speedup by draft length, where a draft step costs ${c} of a pass (dots: best length; dashed line at 1: no gain)`,
        x: { min: 1, max: LONGEST, label: "draft length k", ticks: [1, 5, 10, 15, 20].map((n) => [n, `${n}`]) },
        y: { min: 0, max: Math.max(top * 1.05, 1.2), label: "speedup" },
        series: [...curves, mine],
        rule: 1,
        digits: 2,
        half: true,
      }),
      h("div", {}, tokensTable(), bestTable(c)),
    ),
  ];
}

const tokensTable = () =>
  table(
    "Tokens a round: 1 + α + ... + α^k",
    ["α", "k = 1", "k = 4", "k = 8", "ceiling"],
    ALPHAS.map((a) => [`${a}`, ...[1, 4, 8].map((k) => fixed(expectedTokens(a, k), 4)), fixed(ceiling(a), 1)]),
    { id: "tokens-table" },
  );

const bestTable = (c) =>
  table(
    `Best draft length where c = ${c}`,
    ["α", "best k", "speedup", "ceiling"],
    ALPHAS.map((a) => [
      `${a}`,
      `${bestLength(a, c)}`,
      times(speedup(a, bestLength(a, c), c)),
      `${fixed(ceiling(a), 1)}×`,
    ]),
    { id: "best-table" },
  );

const BALANCES = {
  fast: ["10 ms plain, rounds of 16 ms with 3.2 tokens", 10, 16, 3.2],
  slow: ["the same rounds with 1.2 tokens", 10, 16, 1.2],
  two: ["8 ms plain, rounds of 20 ms with 2 tokens", 8, 20, 2],
  four: ["the same rounds with 4 tokens", 8, 20, 4],
};

function startBalance(place) {
  const state = { plain: 10, round: 16, tokens: 3.2, prefill: 0, answer: 100 },
    out = h("div");
  const update = () => show(out, balanceText(state));
  const field = fieldsOf(state, update, { min: 0.1 });
  const fields = {
    plain: field("plain", "Plain step, ms", { max: 10000 }),
    round: field("round", "Round, ms", { max: 10000 }),
    tokens: field("tokens", "Tokens a round", { min: 0.01, max: 65 }),
    prefill: field("prefill", "Reading the prompt, ms", { min: 0, max: 100000 }),
    answer: field("answer", "Tokens of the answer", { min: 1, max: 100000 }),
  };
  const load = (values) => {
    Object.assign(state, values);
    for (const [name, value] of Object.entries(values)) fields[name].set(value);
    update();
  };
  const example = choiceField("Example", {
    value: "fast",
    options: Object.entries(BALANCES).map(([key, [text]]) => [key, text]),
    changed: (key) => {
      const [, plain, round, tokens] = BALANCES[key];
      load({ plain, round, tokens });
    },
  });
  show(place, h("div", { class: "panel controls" }, example, Object.values(fields)), out);
  update();
  return { load };
}

function balanceText({ plain, round, tokens, prefill, answer }) {
  const { tokenMs, speedup: gain, endToEnd } = balance(plain, round, tokens, prefill, answer);
  const verdict = gain > 1 ? "faster" : gain < 1 ? "slower" : "equal";
  return note(
    h(
      "span",
      { id: "balance" },
      `${round} / ${tokens} = ${fixed(tokenMs, 1)} ms for each token that is committed, against ${plain} ms: `,
      h("strong", {}, `${times(gain)}, ${verdict}`),
      `. With ${prefill} ms for the prompt and ${answer} tokens of answer, the whole request: `,
      h("strong", {}, times(endToEnd)),
      ".",
    ),
  );
}

function startMeasured(place, results) {
  const sources = results.costs.map((cost) => readCosts(JSON.stringify(cost)));
  const state = { source: sources[0], curve: 0, alpha: 0.6, batch: 1, c: 0 },
    out = h("div"),
    problem = h("div"),
    pick = h("div");
  const update = () => show(out, measured(state));
  const choose = (source) => {
    Object.assign(state, { source, curve: 0 });
    show(
      pick,
      choiceField("Curve", {
        value: 0,
        options: source.curves.map(({ label }, i) => [i, label]),
        changed: (i) => {
          state.curve = Number(i);
          update();
        },
      }),
    );
    update();
  };
  const read = (text, name) => {
    try {
      choose(readCosts(text));
      show(problem, note(`Read ${name}.`));
    } catch (error) {
      show(problem, h("p", { class: "error", role: "alert", id: "cost-error" }, `${name}: ${error.message}`));
    }
  };
  const field = fieldsOf(state, update, { slider: true });
  show(
    place,
    h(
      "p",
      {},
      "The formula takes a pass over k + 1 rows to cost what a pass over one costs. Here is what passes really cost, measured; choose a batch size, or your own file from ",
      h("code", {}, "sooner bench cost MODEL --out cost.json"),
      " or ",
      h("code", {}, "sooner plan MODEL --out plan.json"),
      ".",
    ),
    h(
      "div",
      { class: "panel" },
      h(
        "div",
        { class: "controls" },
        field("alpha", "Acceptance rate α", { min: 0, max: 1, step: 0.01 }),
        field("c", "Draft step, in passes: c", { min: 0, max: 1, step: 0.01, hint: "0: looked up in the text" }),
        field("batch", "Requests in the batch", { min: 1, max: 64, step: 1 }),
        pick,
      ),
      h("div", { class: "controls" }, fileField("Your own cost file (JSON)", ".json,application/json", read)),
      problem,
    ),
    out,
  );
  choose(sources[0]);
}

function measured({ source, curve, alpha, batch, c }) {
  const costs = source.curves[curve],
    ks = lengths(0, 16),
    last = costs.rows.at(-1);
  const at = (size) => ks.map((k) => [k, speedup(alpha, k, c, verification(costs, size, k))]);
  const simple = ks.map((k) => [k, speedup(alpha, k, c)]);
  const sizes = [...new Set([1, 4, 16, batch])].sort((a, b) => a - b);
  const series = [
    { name: "the formula", tone: "grey", dashed: true, points: simple },
    ...sizes.map((size, i) => ({
      name: `${size} in the batch`,
      tone: ["accepted", "target", "draft", "bonus"][i],
      points: at(size),
    })),
  ];
  const best = bestLength(alpha, c, 16, (k) => verification(costs, batch, k)),
    gain = at(batch)[best][1];
  const promised = bestLength(alpha, c, 16),
    real = at(batch)[promised][1];
  const top = Math.max(...simple.map(([, value]) => value));
  return [
    h(
      "dl",
      { class: "stats", id: "measured-stats" },
      stat("a pass over the batch", `${fixed(passMs(costs, batch), 1)} ms`),
      stat("4 drafts each", `${fixed(passMs(costs, batch * 5), 1)} ms`),
      stat("best length", best === 0 ? "0: do not draft" : `${best} (${times(gain)})`),
      stat(
        "4 drafts pay from α",
        breakEven(4, c, verification(costs, batch, 4)) === null
          ? "never"
          : fixed(breakEven(4, c, verification(costs, batch, 4)), 2),
      ),
    ),
    note(
      h(
        "span",
        { id: "measured" },
        `The formula would draft ${promised} and promises ${times(speedup(alpha, promised, c))}; with ${batch} in the batch that really gives `,
        h("strong", {}, times(real)),
        real < 1 ? ": a loss." : ".",
      ),
    ),
    h(
      "div",
      { class: "figures" },
      lineChart({
        title: `Speedup by draft length: ${source.title}`,
        x: { min: 0, max: 16, label: "draft length k", ticks: [0, 4, 8, 12, 16].map((n) => [n, `${n}`]) },
        y: { min: 0, max: Math.max(top * 1.05, 1.2), label: "speedup" },
        series,
        rule: 1,
        digits: 2,
        half: true,
      }),
      lineChart({
        title: `What a pass costs: ${costs.label}`,
        x: {
          min: costs.rows[0],
          max: last,
          log: true,
          label: "rows in the pass",
          ticks: costs.rows.map((n) => [n, `${n}`]),
        },
        y: { min: 0, max: Math.max(...costs.ms) * 1.05, label: "ms" },
        series: [
          {
            name: "measured",
            tone: "target",
            points: costs.rows.map((n, i) => [n, costs.ms[i]]),
            dots: costs.rows.map((n, i) => [n, costs.ms[i]]),
          },
        ],
        digits: 1,
        half: true,
      }),
    ),
    batch * 17 > last &&
      h("p", {}, `Passes of more than ${last} rows were not measured; their cost continues the last slope.`),
  ];
}
