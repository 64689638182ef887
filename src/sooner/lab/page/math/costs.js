// Measured costs from the package's files: `sooner bench cost` (passes), `sooner plan` (costs.live_ms), calibration (table).

const FORMS = "a file of `sooner bench cost` (with passes) or of `sooner plan` (with costs)";

/** {title, curves: [{label, rows, ms}]} from JSON text. Throws an Error that names the field that is wrong. */
export function readCosts(text) {
  let data;
  try {
    data = JSON.parse(text);
  } catch (error) {
    throw new Error(`This is not JSON (${error.message}); choose ${FORMS}.`);
  }
  if (data === null || typeof data !== "object" || Array.isArray(data))
    throw new Error(`The file holds no object; choose ${FORMS}.`);
  if ("passes" in data) return { title: titleOf(data), curves: fromPasses(data.passes) };
  if ("costs" in data) return { title: titleOf(data), curves: [fromLive(data.costs?.live_ms)] };
  if ("table" in data) return { title: titleOf(data), curves: [fromTable(data.table)] };
  throw new Error(`The fields passes, costs and table are all missing; choose ${FORMS}.`);
}

function titleOf({ settings, machine }) {
  const parts = [settings?.model, settings?.weights && `weights ${settings.weights}`, machine?.processor];
  return parts.filter((part) => typeof part === "string").join(", ") || "your file";
}

function fromPasses(passes) {
  if (!Array.isArray(passes) || passes.length === 0)
    throw new Error("The field passes must be a list that is not empty.");
  passes.forEach((pass, i) => {
    for (const name of ["rows", "context", "ms"]) number(pass?.[name], `passes[${i}].${name}`);
  });
  const contexts = [...new Set(passes.map((pass) => pass.context))].sort((a, b) => a - b);
  return contexts.map((context) => {
    const mine = passes.filter((pass) => pass.context === context);
    return curve(
      `${context} keys in the cache`,
      mine.map((pass) => pass.rows),
      mine.map((pass) => pass.ms),
      "passes",
    );
  });
}

/** As live rounds corrected the curve: milliseconds by rows. */
function fromLive(live) {
  if (live === null || typeof live !== "object")
    throw new Error("The field costs.live_ms must be an object: milliseconds by rows.");
  const entries = Object.entries(live).map(([rows, ms]) => [Number(rows), ms]);
  entries.forEach(
    ([rows, ms]) => number(ms, `costs.live_ms[${rows}]`) || number(rows, "costs.live_ms, a number of rows"),
  );
  return curve(
    "short context",
    entries.map(([rows]) => rows),
    entries.map(([, ms]) => ms),
    "costs.live_ms",
  );
}

function fromTable(table) {
  for (const field of ["rows", "seconds"]) {
    if (!Array.isArray(table?.[field])) throw new Error(`The field table.${field} must be a list of numbers.`);
    table[field].forEach((value, i) => number(value, `table.${field}[${i}]`));
  }
  if (table.rows.length !== table.seconds.length) {
    throw new Error(`table.rows has ${table.rows.length} entries and table.seconds has ${table.seconds.length}.`);
  }
  return curve(
    "short context",
    table.rows,
    table.seconds.map((value) => 1000 * value),
    "table",
  );
}

function number(value, name) {
  if (!(typeof value === "number" && Number.isFinite(value) && value > 0)) {
    throw new Error(`The field ${name} is ${JSON.stringify(value) ?? "missing"}, must be a number above 0.`);
  }
}

function curve(label, rows, ms, name) {
  const order = rows.map((_, i) => i).sort((a, b) => rows[a] - rows[b]);
  const sorted = { label, rows: order.map((i) => rows[i]), ms: order.map((i) => ms[i]) };
  if (sorted.rows.length < 2) throw new Error(`${name} has ${sorted.rows.length} numbers of rows, needs at least 2.`);
  if (new Set(sorted.rows).size < sorted.rows.length) throw new Error(`${name} has the same number of rows twice.`);
  return sorted;
}

/** Milliseconds of a pass: linear between measured rows, and beyond them as in plan/cost.py. */
export function passMs({ rows, ms }, count) {
  if (count <= rows[0]) return ms[0];
  let i = rows.findIndex((row) => row > count);
  if (i < 0) i = rows.length - 1;
  return ms[i - 1] + ((ms[i] - ms[i - 1]) / (rows[i] - rows[i - 1])) * (count - rows[i - 1]);
}

/** A pass over batch * (k + 1) rows, in passes over `batch` rows. */
export const verification = (curve, batch, k) => passMs(curve, batch * (k + 1)) / passMs(curve, batch);
