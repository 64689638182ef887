"""Wrong rules that look right, as patches of the engine's own source: nine for chains, and what trees add.

A patch whose text is gone is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sooner.errors import InputError


@dataclass(frozen=True, slots=True)
class Patch:
    """`old` must occur in the file exactly once."""

    file: str
    old: str
    new: str

    def apply(self, package: Path) -> None:
        path = package / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise InputError(
                f"{self.file} has {text.count(self.old)} times {self.old!r}, the control needs it once; "
                "bring certify/wrong_rules.py up to date with the engine"
            )
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class WrongRule:
    name: str
    patches: Sequence[Patch]


CORRECTION = 'return Verdict(tuple(path), draws.choose(p), "correction" if children else "bonus")'
DRAW = "token = draws.draft(i, left)"
CHILD = "children.append(Child(token, left, float(q[token])))"
DRAWS = "draws = RoundDraws(source, len(tokens))"
RESIDUAL = "residual = np.maximum(p - q, 0.0)"
KEPT = "parts.cache.keep(sequence.table, start, verdict.path[: len(committed)])"

CLASSIC = (
    WrongRule(
        "p/q acceptance for a deterministic draft",
        [Patch("draft/growth.py", DRAW, "token = int(left.argmax())")],
    ),
    WrongRule(
        "correction drawn from p instead of the residual",
        [Patch("verify/rejection.py", CORRECTION, CORRECTION.replace("(p)", "(target(path[-1] if path else -1))"))],
    ),
    WrongRule(
        "temperature in the ratio but not in the residual",
        [
            Patch("engine/judge.py", DRAWS, "draws = RoundDraws(source, len(tokens), road.params.temperature or 1.0)"),
            Patch("sampling/draws.py", "    start: int\n\n", "    start: int\n    heat: float = 1.0\n\n"),
            Patch(
                "verify/rejection.py",
                RESIDUAL,
                "hot_p, hot_q = p**draws.heat, q**draws.heat\n"
                "        residual = np.maximum(hot_p / hot_p.sum() - hot_q / hot_q.sum(), 0.0)",
            ),
        ],
    ),
    WrongRule(
        "dropping an already sampled draft token because its q is low",
        [
            Patch(
                "draft/model.py",
                "        return [work.growth.draft for work in works]",
                "        drafts = [work.growth.draft for work in works]\n"
                "        pairs = [list(zip(d.tokens, d.probs)) for d in drafts]\n"
                "        poor = [[i for i, (t, q) in enumerate(p) if q is not None and q[t] < 0.4] for p in pairs]\n"
                "        keep = [min([*bad, len(pair)]) for bad, pair in zip(poor, pairs)]\n"
                "        return [Draft.chain(d.tokens[:n], d.probs[:n]) for d, n in zip(drafts, keep)]",
            )
        ],
    ),
    WrongRule(
        "q recorded before top-k and top-p, the draft sampled after",
        [
            Patch(
                "draft/growth.py",
                CHILD,
                "from dataclasses import replace\n"
                "        wide = replace(road, params=replace(road.params, top_k=0, top_p=1.0))\n"
                "        children.append(Child(token, wide.probabilities(logits, prefix), float(q[token])))",
            )
        ],
    ),
    WrongRule(
        "the correction's draw reuses the draft's random stream",
        [Patch("sampling/draws.py", "Purpose.CORRECT", "Purpose.DRAFT")],
    ),
    WrongRule(
        "an epsilon added to the residual",
        [Patch("verify/rejection.py", RESIDUAL, RESIDUAL + " + 1e-6")],
    ),
    WrongRule(
        "processors advanced on rejected positions",
        [
            Patch("sampling/road.py", "import dataclass\n", "import dataclass, field\n"),
            Patch(
                "sampling/road.py",
                "    bad_words: tuple[tuple[int, ...], ...] = ()\n",
                "    bad_words: tuple[tuple[int, ...], ...] = ()\n"
                "    history: list[int] = field(default_factory=list, init=False, compare=False)\n",
            ),
            Patch(
                "sampling/road.py",
                "        row = logits.copy()\n",
                "        row = logits.copy()\n"
                "        self.history.extend(prefix[len(self.history) :])\n"
                "        prefix = self.history\n",
            ),
        ],
    ),
    WrongRule(
        "noise of block keyed by position, so that rounds share it",
        [
            Patch(
                "sampling/draws.py",
                "self.source.below(Purpose.ACCEPT, self.start, index, probability)",
                "self.source.below(Purpose.ACCEPT, 0, self.start + index, probability)",
            )
        ],
    ),
)

OF_TREES = (
    WrongRule(
        "siblings drawn without replacement, each said to come from the whole q",
        [Patch("draft/growth.py", CHILD, CHILD.replace("left", "q"))],
    ),
    WrongRule(
        "a second sibling tested against p, not against what the first left of it",
        [
            Patch("verify/rejection.py", "    for node in siblings:\n", "    whole = p\n    for node in siblings:\n"),
            Patch("verify/rejection.py", "min(1.0, p[token] / q[token])", "min(1.0, whole[token] / q[token])"),
        ],
    ),
    WrongRule(
        "siblings put in order of q after they were drawn",
        [Patch("draft/growth.py", "    return children\n", "    return sorted(children, key=lambda c: -c.chance)\n")],
    ),
    WrongRule(
        "the kept path of a tree taken from its first nodes",
        [Patch("engine/step.py", KEPT, KEPT.replace("verdict.path[", "tuple(range(len(verdict.path)))["))],
    ),
    WrongRule(
        "rows of a tree placed and masked as if it were a chain",
        [Patch("models/runner.py", "if draft.is_chain:", "if draft.is_chain or True:")],
    ),
)

WRONG_RULES = CLASSIC + OF_TREES
