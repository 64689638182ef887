// Small helpers for the page's elements. No inline styles: the content-security policy forbids them.

/** An element. Attributes that are functions become listeners, false and null are left out; children may be nested. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

export const show = (place, ...children) => place.replaceChildren(...children.flat(Infinity).filter(Boolean));

export const fixed = (value, digits = 3) => (value == null || Number.isNaN(value) ? "none" : value.toFixed(digits));
export const percent = (value, digits = 0) => `${(100 * value).toFixed(digits)}%`;
export const times = (value) => `${fixed(value, 2)}×`;
export const whole = (value) => value.toLocaleString("en-US");

let made = 0;
const nextId = () => `f${made++}`;

/** A labelled number. Calls changed(value) with every value that is a number within its limits. */
export function numberField(label, { value, min, max, step = "any", slider = false, hint = "", changed }) {
  const id = nextId();
  const input = h("input", { type: "number", id, min, max, step, value, inputmode: "decimal" });
  const range = slider && h("input", { type: "range", min, max, step, value, "aria-label": `${label}, slider` });
  const set = (from, other) => {
    const number = from.valueAsNumber;
    const ok = Number.isFinite(number) && number >= min && number <= max;
    input.toggleAttribute("aria-invalid", !ok);
    if (!ok) return;
    if (other) other.value = number;
    changed(number);
  };
  input.addEventListener("input", () => set(input, range));
  if (range) range.addEventListener("input", () => set(range, input));
  const field = h(
    "div",
    { class: "field" },
    h("label", { for: id }, label),
    input,
    range,
    hint && h("small", {}, hint),
  );
  field.set = (number) => {
    input.value = number;
    input.removeAttribute("aria-invalid");
    if (range) range.value = number;
  };
  return field;
}

/** A labelled choice. options: [value, text] pairs. */
export function choiceField(label, { value, options, changed }) {
  const id = nextId();
  const select = h(
    "select",
    { id, change: () => changed(select.value) },
    options.map(([key, text]) => h("option", { value: key, selected: String(key) === String(value) }, text)),
  );
  const field = h("div", { class: "field" }, h("label", { for: id }, label), select);
  field.set = (key) => (select.value = key);
  return field;
}

export const button = (text, click, attributes = {}) => h("button", { type: "button", click, ...attributes }, text);

/** A file chooser that hands over the file's text. */
export function fileField(label, accept, read) {
  const id = nextId();
  const input = h("input", {
    type: "file",
    id,
    accept,
    change: async () => {
      if (input.files.length) read(await input.files[0].text(), input.files[0].name);
    },
  });
  return h("div", { class: "field" }, h("label", { for: id }, label), input);
}

/** A table; the first column is its rows' heading. Cells are texts, numbers or elements; a scroller for narrow screens. */
export function table(caption, header, rows, attributes = {}) {
  const head = h(
    "thead",
    {},
    h(
      "tr",
      {},
      header.map((text) => h("th", { scope: "col" }, text)),
    ),
  );
  const body = h(
    "tbody",
    {},
    rows.map((row) =>
      h(
        "tr",
        {},
        row.map((cell, i) => (i === 0 ? h("th", { scope: "row" }, cell) : h("td", {}, cell))),
      ),
    ),
  );
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", attributes, h("caption", {}, caption), head, body),
  );
}

export const note = (...children) => h("p", { class: "result", role: "status" }, ...children);
