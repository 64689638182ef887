// Traces of `sooner generate MODEL ... --trace FILE`: one JSON object a line, one line a round.

const FIELDS = {
  request_id: "string",
  start: "number",
  drafter: "string",
  rule: "string",
  draft: "object",
  accepted: "number",
  committed: "object",
  kind: "string",
};

/** One entry for each request in the file. Throws an Error that names the line and the field that is wrong. */
export function readTrace(text, name) {
  const rounds = text
    .split("\n")
    .map((line, i) => [line, i + 1])
    .filter(([line]) => line.trim())
    .map(([line, number]) => readLine(line, number));
  if (rounds.length === 0) throw new Error("The file holds no rounds; choose one of `sooner generate --trace`.");
  const ids = [...new Set(rounds.map((round) => round.request_id))];
  return ids.map((id) => {
    const mine = rounds.filter((round) => round.request_id === id);
    const prompt = Array.from({ length: mine[0].start }, (_, i) => [i, `prompt ${i + 1}`]);
    return { key: `${name}:${id}`, title: `${name}, request ${id}`, prompt, rounds: mine.map(readRound) };
  });
}

function readLine(line, number) {
  let round;
  try {
    round = JSON.parse(line);
  } catch (error) {
    throw new Error(`Line ${number} is not JSON (${error.message}).`);
  }
  for (const [field, kind] of Object.entries(FIELDS)) {
    const value = round?.[field];
    const ok = kind === "object" ? Array.isArray(value) && value.every(Number.isInteger) : typeof value === kind;
    if (!ok)
      throw new Error(
        `Line ${number}: the field ${field} is ${JSON.stringify(value) ?? "missing"}, must be ${kind === "object" ? "a list of token ids" : `a ${kind}`}.`,
      );
  }
  if (round.accepted > round.draft.length || round.accepted > round.committed.length) {
    throw new Error(
      `Line ${number}: accepted is ${round.accepted}, above the ${round.draft.length} drafted or ${round.committed.length} committed.`,
    );
  }
  if (round.parents?.length !== undefined && round.parents.length !== round.draft.length) {
    throw new Error(
      `Line ${number}: parents has ${round.parents.length} entries for ${round.draft.length} drafted tokens.`,
    );
  }
  if (round.committed.length === 0)
    throw new Error(`Line ${number}: committed is empty; a round commits at least one token.`);
  return round;
}

/** Texts token by token where the file has them; else ids. */
function readRound(round) {
  const pieces = (ids, texts) => ids.map((id, i) => [id, texts?.[i] ?? `#${id}`]);
  return {
    ...round,
    draft: pieces(round.draft, round.draft_pieces),
    committed: pieces(round.committed, round.committed_pieces),
  };
}

/** The draft as a tree, a chain unless it says otherwise: who follows whom, and the nodes that were accepted. */
export function shapeOf({ draft, parents = draft.map((_, node) => node - 1), committed, accepted }) {
  const children = (node) => parents.flatMap((parent, child) => (parent === node ? [child] : []));
  const path = [];
  for (let i = 0, node = -1; i < accepted; i++) {
    node = children(node).find((child) => draft[child][0] === committed[i][0]);
    path.push(node);
  }
  const chain = parents.every((parent, node) => parent === node - 1);
  /** The first token that a node's row has read and that was not accepted; undefined where all were. */
  const astray = (node) => {
    let found;
    for (; node >= 0; node = parents[node]) if (!path.includes(node)) found = node;
    return found;
  };
  return { children, path, astray, chain, parents };
}
