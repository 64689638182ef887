// Section 5: measured results, as the package summarises them from results/.

import { barChart, lineChart, rowChart } from "../charts.js";
import { fixed, h, show, table, times } from "../ui.js";

const TONES = ["target", "draft", "accepted", "bonus", "correction", "grey"];

export function startResults(place, results) {
  show(
    place,
    h("p", {}, `Measured on ${results.machines.join("; ")}.`),
    speeds(results.speeds),
    results.peers.map(peers),
    results.concurrency.map(concurrency),
    results.costs.map(costs),
    controls(results.controls),
  );
}

const source = ({ command, date, file }) => h("p", {}, h("code", {}, command), ` on ${date}, from ${file}`);
const outcome = (value) => (value == null ? "none" : h("span", { class: value < 1 ? "loss" : "" }, times(value)));

function speeds(list) {
  const names = [...new Set(list.flatMap(({ categories }) => Object.keys(categories)))];
  const series = list.map((one, i) => ({
    name: one.title,
    tone: TONES[i % TONES.length],
    values: names.map((name) => one.categories[name]?.speedup ?? null),
    errors: names.map((name) => one.categories[name]?.speedup_interval),
  }));
  const top = Math.max(
    ...list.flatMap(({ categories }) =>
      Object.values(categories).flatMap((c) => [c.speedup, ...(c.speedup_interval ?? [])]),
    ),
  );
  return [
    h("h3", {}, "Speculative over plain decoding"),
    barChart({
      title:
        "Speedup of decoding by kind of text (whiskers: 95% interval over prompts; below the dashed line is a loss)",
      groups: names,
      label: "kind of text",
      y: { min: 0, max: top * 1.05, label: "speedup" },
      series,
      rule: 1,
      digits: 2,
    }),
    list.map(speedTable),
  ];
}

function speedTable(one) {
  const interval = (c) =>
    c.speedup_interval ? `${fixed(c.speedup_interval[0], 2)} to ${fixed(c.speedup_interval[1], 2)}` : "none";
  const rows = Object.entries(one.categories).map(([name, c]) => [
    name,
    fixed(c.plain_tok_s, 1),
    fixed(c.spec_tok_s, 1),
    outcome(c.speedup),
    interval(c),
    outcome(c.end_to_end_speedup),
    fixed(c.tokens_per_round, 2),
    fixed(c.acceptance_rate, 2),
    c.identical === null ? "by law" : c.identical ? "yes" : "no",
  ]);
  return h(
    "details",
    {},
    h("summary", {}, `${one.title}: geometric mean ${times(one.geomean_speedup)}`),
    source(one),
    table(
      one.title,
      [
        "kind",
        "plain tokens/s",
        "speculative",
        "speedup",
        "95% interval",
        "with prompt",
        "tokens a round",
        "acceptance",
        "same tokens",
      ],
      rows,
    ),
  );
}

function peers(one) {
  const engines = [...one.engines].sort((a, b) => b.geomean_tok_s - a.geomean_tok_s);
  return [
    h("h3", {}, "Beside other engines"),
    source(one),
    rowChart({
      title: `Tokens a second in decoding: ${one.title}`,
      label: "engine and draft",
      rows: engines.map(({ name, geomean_tok_s: value }) => ({
        name,
        value,
        tone: name.startsWith("sooner") ? "accepted" : "grey",
      })),
    }),
    table(
      one.title,
      ["engine", "decoding tokens/s", "with prompt", "Sooner's best over it", "same answers as its plain"],
      engines.map((e) => [
        `${e.name} ${e.version}`,
        fixed(e.geomean_tok_s, 1),
        fixed(e.geomean_end_to_end_tok_s, 1),
        times(e.sooner_over_it),
        `${e.same_as_plain} of ${e.prompts}`,
      ]),
      { id: "peers-table" },
    ),
    one.failed.map(([name, why]) => h("p", {}, `Did not run: ${name} (${why}).`)),
  ];
}

function concurrency(one) {
  return [
    h("h3", {}, `Many at once: ${one.title}`),
    source(one),
    table(
      one.title,
      ["at once", "plain tokens/s", "speculative", "speedup", "same tokens"],
      one.levels.map((level) => [
        `${level.concurrency}`,
        fixed(level.plain_tok_s, 1),
        fixed(level.spec_tok_s, 1),
        outcome(level.spec_tok_s / level.plain_tok_s),
        level.identical ? "yes" : "no",
      ]),
    ),
  ];
}

function costs(one) {
  const contexts = [...new Set(one.passes.map(({ context }) => context))];
  const of = (context, field) =>
    one.passes.filter((pass) => pass.context === context).map((pass) => [pass.rows, pass[field]]);
  const rows = of(contexts[0], "ms").map(([count]) => count);
  const series = [
    ...contexts.map((context, i) => ({
      name: `${context} keys`,
      tone: TONES[i],
      points: of(context, "ms"),
      dots: of(context, "ms"),
    })),
    { name: "what the machine allows at best", tone: "grey", dashed: true, points: of(contexts[0], "floor_ms") },
  ];
  return [
    h("h3", {}, "What a pass costs"),
    source(one),
    lineChart({
      title: `A target pass by rows: ${one.title}`,
      x: {
        min: Math.min(...rows),
        max: Math.max(...rows),
        log: true,
        label: "rows in the pass",
        ticks: rows.map((n) => [n, `${n}`]),
      },
      y: { min: 0, max: Math.max(...one.passes.map(({ ms }) => ms)) * 1.05, label: "ms" },
      series,
      digits: 1,
    }),
  ];
}

function controls(list) {
  return (
    list.length > 0 && [
      h("h3", {}, "Wrong rules, caught"),
      h(
        "p",
        {},
        "Each wrong rule was put into a copy of the engine's source; the public command has to notice. ",
        h("code", {}, "sooner certify --controls"),
      ),
      table(
        "Wrong rules and the checks that caught them",
        ["wrong rule", "caught by"],
        list.map(({ name, caught_by: by }) => [
          name,
          Object.entries(by)
            .map(([part, count]) => `${part}: ${count} checks`)
            .join(", ") || "nothing",
        ]),
        { class: "text", id: "controls-table" },
      ),
    ]
  );
}
