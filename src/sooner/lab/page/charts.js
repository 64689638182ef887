// Charts as SVG: bars and lines, with the numbers in a table beside them for whoever cannot see them.

import { fixed, h, svg, table } from "./ui.js";

const HEIGHT = 300,
  LEFT = 52,
  RIGHT = 14,
  TOP = 14,
  BOTTOM = 46,
  ROW = 30;

/** As wide as there is room for when it is drawn, so that its letters have their size. half: two stand side by side. */
const widthOf = (half) => Math.max(Math.min(document.documentElement.clientWidth - 40, half ? 450 : 680), 280);

/** Position on an axis. log: by powers of two. */
function scale({ min, max, log }, from, to) {
  const value = log ? Math.log2 : (x) => x;
  return (x) => from + ((value(x) - value(min)) / (value(max) - value(min))) * (to - from);
}

export function ticksOf(min, max, count = 5) {
  const rough = (max - min) / count,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const ticks = [];
  for (let tick = Math.ceil(min / step) * step; tick <= max + step * 1e-9; tick += step)
    ticks.push(Number(tick.toFixed(9)));
  return ticks;
}

/** Whether texts under the axis would meet; then every other one stands lower. */
const crowded = ({ ticks }, width) =>
  ticks.reduce((letters, [, text]) => letters + text.length + 1, 0) * 8 > width - LEFT - RIGHT;

function frame(x, y, at, width) {
  const bottom = HEIGHT - BOTTOM,
    right = width - RIGHT;
  return [
    y.ticks.map((tick) => [
      svg("line", { class: "grid", x1: LEFT, x2: right, y1: at.y(tick), y2: at.y(tick) }),
      svg("text", { class: "tick", x: LEFT - 8, y: at.y(tick) + 4, "text-anchor": "end" }, y.text?.(tick) ?? `${tick}`),
    ]),
    x.ticks.map(([tick, text], i) =>
      svg(
        "text",
        {
          class: "tick",
          x: at.x(tick),
          y: bottom + 15 + (crowded(x, width) ? (i % 2) * 13 : 3),
          "text-anchor": "middle",
        },
        text,
      ),
    ),
    svg("line", { class: "axis", x1: LEFT, x2: right, y1: bottom, y2: bottom }),
    svg("text", { class: "label", x: (LEFT + right) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, x.label),
    svg("text", { class: "label", x: 0, y: TOP - 17 }, y.label),
  ];
}

function figure(title, legend, drawing, numbers, width, height = HEIGHT) {
  const picture = svg(
    "svg",
    { viewBox: `0 -16 ${width} ${height + 16}`, width, height: height + 16, role: "img", "aria-label": title },
    drawing,
  );
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", {}, title),
    legend.length > 1 &&
      h(
        "ul",
        { class: "legend" },
        legend.map(({ name, tone, dashed }) =>
          h("li", {}, h("span", { class: `key ${tone}${dashed ? " dashed" : ""}`, "aria-hidden": "true" }), name),
        ),
      ),
    picture,
    h("details", {}, h("summary", {}, "The numbers"), numbers),
  );
}

/** Lines. series: {name, tone, points: [[x, y]], dashed, dots: [[x, y]]}; rule: a level that is marked. */
export function lineChart({ title, x, y, series, rule, digits = 3, half = false }) {
  const width = widthOf(half),
    at = { x: scale(x, LEFT + 8, width - RIGHT - 8), y: scale(y, HEIGHT - BOTTOM, TOP) };
  y = { ticks: ticksOf(y.min, y.max), ...y };
  const path = (points) =>
    points.map(([a, b], i) => `${i ? "L" : "M"}${at.x(a).toFixed(1)},${at.y(b).toFixed(1)}`).join("");
  const inside = ([, value]) => value >= y.min && value <= y.max;
  const drawing = [
    frame(x, y, at, width),
    rule && svg("line", { class: "rule", x1: LEFT, x2: width - RIGHT, y1: at.y(rule), y2: at.y(rule) }),
    series.map(({ points, tone, dashed, dots = [] }) => [
      svg("path", { class: `line ${tone}${dashed ? " dashed" : ""}`, d: path(points.filter(inside)) }),
      dots.filter(inside).map(([a, b]) => svg("circle", { class: `dot ${tone}`, cx: at.x(a), cy: at.y(b), r: 4.5 })),
    ]),
  ];
  const places = [...new Set(series.flatMap(({ points }) => points.map(([a]) => a)))].sort((a, b) => a - b);
  const found = (points, place) => points.find(([a]) => a === place)?.[1];
  const numbers = table(
    title,
    [x.label, ...series.map(({ name }) => name)],
    places.map((place) => [`${place}`, ...series.map(({ points }) => fixed(found(points, place), digits))]),
  );
  return figure(title, series, drawing, numbers, width);
}

/** Groups of bars. series: {name, tone, values, errors: [[low, high]]}; a value that is null leaves a gap. */
export function barChart({ title, groups, label, y, series, rule, digits = 3, half = false }) {
  const axis = { min: -0.5, max: groups.length - 0.5 },
    all = widthOf(half);
  const at = { x: scale(axis, LEFT, all - RIGHT), y: scale(y, HEIGHT - BOTTOM, TOP) };
  y = { ticks: ticksOf(y.min, y.max), ...y };
  const slot = (at.x(1) - at.x(0)) * 0.8,
    width = Math.min(slot / series.length, 46),
    base = at.y(Math.max(y.min, 0));
  const left = (group, i) => at.x(group) + (i - series.length / 2) * width;
  const clip = (value) => at.y(Math.min(Math.max(value, y.min), y.max));
  const bar = ({ tone, errors }, value, group, i) =>
    value != null && [
      svg("rect", {
        class: `bar ${tone}`,
        x: left(group, i) + 1,
        width: Math.max(width - 2, 1),
        y: clip(value),
        height: Math.max(base - clip(value), 0),
      }),
      errors?.[group] && whisker(left(group, i) + width / 2, ...errors[group].map(clip)),
    ];
  const drawing = [
    frame({ label, ticks: groups.map((text, i) => [i, text]) }, y, at, all),
    series.map((one, i) => one.values.map((value, group) => bar(one, value, group, i))),
    rule && svg("line", { class: "rule", x1: LEFT, x2: all - RIGHT, y1: at.y(rule), y2: at.y(rule) }),
  ];
  const cell = ({ values, errors }, i) =>
    fixed(values[i], digits) + (errors?.[i] ? ` (${errors[i].map((bound) => fixed(bound, digits)).join(" to ")})` : "");
  const numbers = table(
    title,
    [label, ...series.map(({ name }) => name)],
    groups.map((text, i) => [text, ...series.map((one) => cell(one, i))]),
  );
  return figure(title, series, drawing, numbers, all);
}

/** Bars that lie, each with its name above it and its value behind it. rows: {name, tone, value}. */
export function rowChart({ title, label, rows, digits = 1 }) {
  const width = widthOf(true),
    most = Math.max(...rows.map(({ value }) => value));
  const long = (value) => Math.max((value / most) * (width - 70), 1);
  const drawing = rows.map(({ name, tone, value }, i) => [
    svg("text", { class: "label", x: 0, y: i * ROW * 1.4 + 4 }, name),
    svg("rect", { class: `bar ${tone}`, x: 0, y: i * ROW * 1.4 + 9, width: long(value), height: ROW / 2 }),
    svg("text", { class: "label", x: long(value) + 6, y: i * ROW * 1.4 + 21 }, fixed(value, digits)),
  ]);
  const numbers = table(
    title,
    [label, "value"],
    rows.map(({ name, value }) => [name, fixed(value, digits)]),
  );
  return figure(title, [], drawing, numbers, width, rows.length * ROW * 1.4);
}

const whisker = (x, low, high) =>
  svg("path", { class: "whisker", d: `M${x},${low}V${high}M${x - 4},${low}h8M${x - 4},${high}h8` });
