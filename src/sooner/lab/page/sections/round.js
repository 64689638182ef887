// Section 2: one round, step by step, from traces of the real engine or from a file of `--trace`.

import { readTrace, shapeOf } from "../math/trace.js";
import { barChart } from "../charts.js";
import { button, choiceField, fileField, fixed, h, note, show, table } from "../ui.js";

const PHASES = ["Draft", "Verify", "Commit", "Cache"];
const MOST_CHIPS = 60; // of the prefix; the rest is counted
const PLAY_MS = 1600;

export function startRound(place, traces) {
  const state = { traces, trace: traces[0], round: 0, phase: 0, timer: 0 };
  const said = h("p", { class: "result", role: "status" }),
    view = h("div"),
    problem = h("div"),
    pick = h("div");
  const buttons = {
    back: button("Back", () => move(-1), { id: "round-back" }),
    next: button("Next step", () => move(1), { id: "round-next", class: "main" }),
    skip: button("Next round", () => go(Math.min(state.round + 1, last()), 0), { id: "round-skip" }),
    end: button("Last round", () => go(last(), PHASES.length - 1), { id: "round-end" }),
    play: button("Play", () => play(), { id: "round-play", "aria-pressed": "false" }),
  };
  const last = () => state.trace.rounds.length - 1;
  const go = (round, phase) => {
    Object.assign(state, { round, phase });
    buttons.back.disabled = round === 0 && phase === 0;
    buttons.next.disabled = round === last() && phase === PHASES.length - 1;
    buttons.skip.disabled = buttons.end.disabled = round === last();
    if (buttons.next.disabled) stop();
    show(
      said,
      h("strong", {}, `Round ${round + 1} of ${state.trace.rounds.length}: ${PHASES[phase].toLowerCase()}. `),
      tell(state),
    );
    show(view, render(state));
  };
  const move = (by) => {
    const step = state.round * PHASES.length + state.phase + by;
    if (step >= 0 && step < state.trace.rounds.length * PHASES.length)
      go(Math.floor(step / PHASES.length), step % PHASES.length);
  };
  const stop = () => {
    clearInterval(state.timer);
    state.timer = 0;
    buttons.play.textContent = "Play";
    buttons.play.setAttribute("aria-pressed", "false");
  };
  const play = () => {
    if (state.timer) return stop();
    state.timer = setInterval(() => move(1), PLAY_MS);
    buttons.play.textContent = "Pause";
    buttons.play.setAttribute("aria-pressed", "true");
  };
  const choose = (trace) => {
    stop();
    state.trace = trace;
    go(
      Math.max(
        trace.rounds.findIndex((one) => one.draft.length > 0),
        0,
      ),
      0,
    );
  };
  const choices = () =>
    show(
      pick,
      choiceField("Recorded answer", {
        value: state.trace.key,
        options: state.traces.map(({ key, title }) => [key, title]),
        changed: (key) => choose(state.traces.find((trace) => trace.key === key)),
      }),
    );
  const read = (text, name) => {
    try {
      const mine = readTrace(text, name);
      state.traces = [...traces, ...mine];
      choose(mine[0]);
      choices();
      show(problem, note(`Read ${name}: ${mine.length} answer${mine.length > 1 ? "s" : ""}.`));
    } catch (error) {
      show(problem, h("p", { class: "error", role: "alert", id: "trace-error" }, `${name}: ${error.message}`));
    }
  };
  show(
    place,
    h(
      "div",
      { class: "panel" },
      h(
        "div",
        { class: "controls" },
        pick,
        fileField("Your own file, from sooner generate ... --trace FILE", ".json,.jsonl", read),
      ),
      problem,
      h("div", { class: "controls" }, Object.values(buttons)),
    ),
    h("div", { id: "round-view" }, said, view),
  );
  choices();
  choose(state.trace);
  return {
    show: (key) => {
      choose(traces.find((trace) => trace.key === key));
      choices();
    },
  };
}

const visible = (text) => text.replaceAll("\n", "↵").replace(/^ /, "␣") || "∅";
const chip = ([id, text], kind, small) =>
  h("li", { class: `is-${kind}`, title: `token ${id}` }, visible(text), small && h("small", {}, small));

/** What the ledger holds before a round. */
function ledgerBefore({ prompt, rounds }, round) {
  const committed = rounds.slice(0, round).flatMap((one) => one.committed.map((token, i) => [token, kindOf(one, i)]));
  return [...prompt.map((token) => [token, "prompt"]), ...committed];
}

const kindOf = (one, i) => (i < one.accepted ? "accepted" : one.kind);

function render({ trace, round, phase }) {
  const one = trace.rounds[round],
    before = ledgerBefore(trace, round);
  return [
    h(
      "ol",
      { class: "phases", "aria-label": "Steps of a round" },
      PHASES.map((name, i) => h("li", { "aria-current": i === phase && "step" }, name)),
    ),
    h("h3", {}, "The answer"),
    answer(one, before, phase),
    phase === 1 && rowsTable(one, before),
    phase === 1 && one.laws && lawCharts(trace, one, before),
    phase === 3 && cacheTable(one, before),
    h("h3", {}, "So far"),
    counts(trace, round, phase),
  ];
}

/** Tokens as chips: the prefix, then the draft or what became of it. */
function answer(one, before, phase) {
  const shown = before.slice(-MOST_CHIPS),
    hidden = before.length - shown.length,
    { path, chain, parents } = shapeOf(one);
  const after = (i) => !chain && `after ${visible(parents[i] < 0 ? before.at(-1)[0][1] : one.draft[parents[i]][1])}`;
  const drafted = one.draft.map((token, i) =>
    chip(token, phase < 2 ? "draft" : path.includes(i) ? "accepted" : "dropped", phase < 2 && after(i)),
  );
  const last =
    phase < 2 || one.committed.length <= one.accepted ? [] : [chip(one.committed.at(-1), one.kind, one.kind)];
  const kept = path.map((node) => drafted[node]),
    gone = drafted.filter((_, node) => !path.includes(node));
  return h(
    "div",
    { class: "answer", tabindex: "0", role: "region", "aria-label": "Tokens of the answer" },
    h(
      "ul",
      { class: "tokens" },
      hidden > 0 && h("li", { class: "is-prompt" }, `${hidden} tokens before`),
      shown.map(([token, kind]) =>
        chip(token, phase < 2 && kind !== "prompt" ? "plain" : kind === "prompt" ? "prompt" : "plain"),
      ),
      kept,
      last,
      gone,
    ),
  );
}

function tell({ trace, round, phase }) {
  const one = trace.rounds[round],
    before = ledgerBefore(trace, round),
    k = one.draft.length,
    last = visible(before.at(-1)?.[0]?.[1] ?? "");
  if (phase === 0) {
    return k === 0
      ? "Nothing is drafted, as always in the pass that reads the prompt, or where nothing seems worth it: the target decodes one token."
      : `The draft (${one.drafter}) proposes ${k} token${k > 1 ? "s" : ""} after ${last}${shapeOf(one).chain ? "" : ", as a tree: several may follow one place"}. Nothing is decided yet.`;
  }
  if (phase === 1) {
    return `One pass of the target reads the last token and the draft: ${k + 1} row${k ? "s" : ""}. Each row has read ${shapeOf(one).chain ? "everything before it, and nothing after" : "the text and its own branch, and no other"}.`;
  }
  if (phase === 2) return committing(one);
  const cached = before.length + one.accepted;
  return `The cache keeps ${cached} of ${before.length + k} positions: it is cut to the length that agrees with the ledger, which now has ${before.length + one.committed.length}.`;
}

function committing(one) {
  const k = one.draft.length,
    a = one.accepted,
    last = visible(one.committed.at(-1)[1]);
  if (one.committed.length === a)
    return `${a} accepted, and the answer ends with ${last}: the rest of the round is dropped, and there is no bonus.`;
  const { path, children, chain } = shapeOf(one);
  if (one.kind === "bonus")
    return k
      ? `${chain ? `All ${k} are` : `${a} on one branch are`} accepted, and the last row gives a bonus: ${last}.`
      : `The row gives ${last}.`;
  const rejected = children(path.at(-1) ?? -1)
    .map((node) => visible(one.draft[node][1]))
    .join(" and ");
  return `${a} accepted. ${rejected} ${chain ? "is" : "stood there and"} rejected, and the target's own token ${last} is committed instead: a correction.${k - a > 1 ? " What was drafted after it is dropped unseen." : ""}`;
}

function rowsTable(one, before) {
  const shape = shapeOf(one);
  const rows = Array.from({ length: one.draft.length + 1 }, (_, i) => {
    const reads = visible(i === 0 ? (before.at(-1)?.[0]?.[1] ?? "") : one.draft[i - 1][1]);
    const checks =
      shape
        .children(i - 1)
        .map((node) => visible(one.draft[node][1]))
        .join(" or ") || "nothing: it gives the bonus";
    return [`${before.length - 1 + i}`, reads, checks, ...looked(one, shape, i - 1)];
  });
  const sampled = one.laws && one.rule !== "match";
  return table(
    "Rows of the pass",
    ["row", "has read up to", "checks", sampled ? "p and q of it" : "target's choice", "verdict"],
    rows,
    { class: "text wide", id: "rows-table" },
  );
}

/** What the row behind a node (-1: behind the text) was good for. */
function looked(one, { path, children, astray }, node) {
  const stray = astray(node),
    i = node < 0 ? 0 : path.indexOf(node) + 1;
  if (stray !== undefined)
    return ["computed, never looked at", `its prefix holds ${visible(one.draft[stray][1])}, which was rejected`];
  if (i >= one.committed.length) return ["not needed", "the answer has ended"];
  const chosen = visible(one.committed[i][1]),
    top = one.top?.[i],
    checks = children(node).length > 0;
  const odds = top ? ` (${top.map(([text, p]) => `${visible(text)} ${fixed(p, 2)}`).join(", ")})` : "";
  const choice = one.laws && one.rule !== "match" && checks ? ratioText(one, i) : `${chosen}${odds}`;
  return [choice, i < one.accepted ? "accepted" : checks ? `rejected; correction ${chosen}` : `bonus ${chosen}`];
}

function ratioText(one, i) {
  const token = one.draft[i][0],
    { p, q } = one.laws[i];
  return `p ${fixed(p[token], 2)}, q ${fixed(q[token], 2)}: accept with ${fixed(Math.min(1, p[token] / q[token]), 2)}`;
}

/** p and q at each row that was looked at; of the word models alone, whose distributions fit on a page. */
function lawCharts(trace, one, before) {
  const lasts = [before.at(-1)[0], ...one.committed];
  return h(
    "div",
    { class: "figures" },
    one.laws.map(({ p, q }, i) => {
      const drafted = i < one.draft.length;
      const series = [{ name: "target p", tone: "target", values: p.slice(1) }];
      if (drafted && one.rule !== "match") series.push({ name: "draft q", tone: "draft", values: q.slice(1) });
      return barChart({
        title: `After ${visible(lasts[i][1])}`,
        groups: trace.words.slice(1).map((word) => word.trim()),
        label: "next word",
        y: { min: 0, max: 1, label: "probability" },
        series,
        digits: 2,
        half: true,
      });
    }),
  );
}

function cacheTable(one, before) {
  const { path, chain } = shapeOf(one),
    from = Math.max(before.length - 3, 0);
  const kept = before.slice(from).map(([token], i) => [`${from + i}`, visible(token[1]), "kept"]);
  const fate = (i) =>
    !path.includes(i)
      ? "dropped: not part of the answer"
      : chain || path.indexOf(i) === i
        ? "kept: accepted"
        : `kept: accepted, moved to ${before.length + path.indexOf(i)}`;
  const drafted = one.draft.map((token, i) => [`${before.length + i}`, visible(token[1]), fate(i)]);
  const due =
    one.committed.length > path.length
      ? [
          [
            `${before.length + path.length}`,
            visible(one.committed.at(-1)[1]),
            `not computed yet: the next pass reads this ${one.kind}`,
          ],
        ]
      : [];
  return table(
    "Keys and values in the cache, by position",
    ["position", "token", "keys and values"],
    [...kept, ...drafted, ...due],
    { class: "text", id: "cache-table" },
  );
}

function counts(trace, round, phase) {
  const past = trace.rounds.slice(0, round + (phase >= 2 ? 1 : 0));
  const total = (count) => past.reduce((sum, one) => sum + count(one), 0);
  const committed = total((one) => one.committed.length),
    drafted = total((one) => one.draft.length),
    accepted = total((one) => one.accepted);
  const stat = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
  const text = past.map((one) => one.committed_text ?? one.committed.map(([, piece]) => piece).join("")).join("");
  return [
    h(
      "dl",
      { class: "stats" },
      stat("target passes", `${past.length}`),
      stat("tokens", `${committed}`),
      stat("tokens a round", past.length ? fixed(committed / past.length, 2) : "none"),
      stat("accepted / drafted", `${accepted} / ${drafted}`),
    ),
    h(
      "p",
      { id: "trace-text", "data-tokens": past.flatMap((one) => one.committed.map(([id]) => id)).join(",") },
      text && h("q", {}, text),
    ),
  ];
}
