// The tables of section 1 below the draws: wrong rules, and ways of drafting and verifying beside each other.

import { barChart } from "../charts.js";
import { agreement, drawCoupled, standardError } from "../math/position.js";
import { WRONG_RULES, wrongError } from "../math/wrong.js";
import { button, fixed, h, note, table, whole } from "../ui.js";

export const NAMES = "ABCDEFGH";
export const DRAWS = 10000;

/** An axis from 0 to a little above the highest bar. */
export const upTo = (series, label = "probability") => ({
  min: 0,
  max: Math.max(...series.flatMap(({ values }) => values)) * 1.08,
  label,
});

export function wrongChart(found, state) {
  const rule = WRONG_RULES.find(({ key }) => key === state.rule),
    values = rule.output(found);
  if (values.some(Number.isNaN)) return note("p and q share no token here, so this rule never ends.");
  const series = [
    { name: "target p", tone: "target", values: found.here.p },
    { name: "what the wrong rule puts out", tone: "correction", values },
  ];
  return barChart({
    title: `${rule.name}: the output`,
    groups: found.here.p.map((_, i) => NAMES[i]),
    label: "token",
    y: upTo(series),
    series,
    digits: 4,
  });
}

export function wrongTable(found, state, update) {
  const pickRule = (key) => {
    state.rule = key;
    update();
    document.getElementById(`rule-${key}`).focus();
  };
  const rows = WRONG_RULES.map((rule) => {
    const error = wrongError(found, rule);
    const shown = state.rule === rule.key;
    return [
      rule.name,
      error === null ? "never ends" : fixed(error, 4),
      fixed(state.typical[rule.key]),
      rule.why,
      button(shown ? "shown" : "show", () => pickRule(rule.key), {
        id: `rule-${rule.key}`,
        "aria-pressed": String(shown),
        "aria-label": `show below: ${rule.name}`,
      }),
    ];
  });
  return [
    table("Wrong rules and the error each makes here", ["rule", "error here", "typically", "why", "below"], rows, {
      class: "text",
      id: "wrong-table",
    }),
    h(
      "p",
      {},
      "Two more need more than one position: penalties or grammars that move on with rejected tokens, and random numbers keyed by position, so that neighbouring rounds share them. ",
      h("code", {}, "sooner certify --controls"),
      " puts all nine classic ones into the engine's source and shows that each is caught.",
    ),
  ];
}

export function agreeTable(here) {
  const agree = agreement(here);
  return table(
    "How often the draft's token is kept here",
    ["way of drafting and verifying", "kept"],
    [
      ["drawn from q, accepted with min(1, p/q): 1 - TV, the best possible", fixed(agree.rejection, 4)],
      ["both choose with the same noise, kept if equal", fixed(agree.sharedNoise, 4)],
      ["the least that shared noise can give: (1 - TV) / (1 + TV)", fixed(agree.sharedNoiseBound, 4)],
      ["the draft's likeliest token, kept if it equals a draw from p", fixed(agree.greedyDraft, 4)],
      ["independent draws from q and p, kept if equal", fixed(agree.independent, 4)],
    ],
    { id: "agree-table" },
  );
}

export function coupled(here, seed) {
  const counts = here.p.map(() => 0),
    expected = agreement(here).sharedNoise;
  const same = drawCoupled(here, seed, 0, DRAWS, counts) / DRAWS;
  return note(
    h(
      "span",
      { id: "coupled", "data-same": same },
      `${whole(DRAWS)} draws with shared noise: ${fixed(same, 4)} were equal, expected ${fixed(expected, 4)} (standard error ${fixed(standardError(expected, DRAWS), 4)}).`,
    ),
  );
}
