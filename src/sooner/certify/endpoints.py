"""Part 6: two OpenAI-compatible servers of one model, one with speculation and one without.

Nothing of ours runs there. What they answer is looked at: greedy completions with the likeliest tokens at each place,
and sampled ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import zip_longest
from typing import Any

from sooner.certify.checks import Check, Job, Part
from sooner.certify.client import Completion, Server
from sooner.certify.statistics import same

NEAR_TIE = 0.25  # nats: what rounding in bfloat16 moves a logit near 25 by in either direction, twice over
GREEDY_TOKENS = 64
SAMPLED_TOKENS = 3
AT_ONCE = 8  # sampled requests in flight: batches are part of what is tested
# A server's first token usually comes from the pass over the prompt, which nothing was drafted for: later ones tell.
CUTS = {"first token": slice(0, 1), "second token": slice(1, 2), "first three tokens": slice(0, 3)}
ONE_SEED = "every count is equal: start the servers with different seeds, or this tells little"
# Each token is as good as a coin's toss, and one that lookups always have a draft for.
COINS = "Coin tosses: heads tails tails heads tails heads heads heads tails heads tails tails heads heads tails"


def endpoints(tested: Server, plain: Server, prompts: Sequence[str], requests: int) -> Part:
    jobs = [Job(f"greedy, prompt {i + 1}", partial(_greedy, tested, plain, i, p)) for i, p in enumerate(prompts)]
    jobs.append(Job("sampled", partial(_sampled, tested, plain, requests)))
    question = f"Does {tested.url} give the tokens and the distribution of {plain.url}?"
    return Part("endpoints", question, jobs)


def _greedy(tested: Server, plain: Server, number: int, prompt: str) -> list[Check]:
    """The first place where the answers part, and how near the plain server's choice was there."""
    theirs, ours = (s.complete(prompt, max_tokens=GREEDY_TOKENS, temperature=0.0, logprobs=5) for s in (tested, plain))
    at, difference = _first_difference(ours, theirs), _largest_difference(ours, theirs)
    name = f"greedy, prompt {number + 1}"
    figures: dict[str, Any] = {"tokens": len(ours.tokens), "logprob_difference": difference, "near_tie": NEAR_TIE}
    if at is None:
        text = f"{len(ours.tokens)} tokens equal, log-probabilities within {difference:.2g}"
        return [Check(name, True, text, figures)]
    margins = [_margin(answer, at) for answer in (ours, theirs)]
    tie = margins[0] is not None and margins[0] <= NEAR_TIE
    kind = "near-tie" if tie else "bug"
    texts = [answer.tokens[at] if at < len(answer.tokens) else "the end" for answer in (ours, theirs)]
    shown = ["unknown" if margin is None else f"{margin:.3g}" for margin in margins]
    text = (
        f"{kind} at token {at}: {texts[0]!r} became {texts[1]!r}, top-2 margin {shown[0]} (plain) and {shown[1]} nats, "
        f"log-probabilities before it within {difference:.2g}, near-tie up to {NEAR_TIE}"
    )
    figures |= {"position": at, "plain": texts[0], "tested": texts[1], "margins": margins, "kind": kind}
    return [Check(name, tie, text, figures)]


def _first_difference(a: Completion, b: Completion) -> int | None:
    pairs = enumerate(zip_longest(a.tokens, b.tokens))
    return next((at for at, (x, y) in pairs if x != y), None)


def _largest_difference(a: Completion, b: Completion) -> float:
    """Of the chosen tokens' log-probabilities, over what both answers share."""
    shared = list(zip(a.logprobs, b.logprobs))[: _first_difference(a, b)]
    return max((abs(x - y) for x, y in shared), default=0.0)


def _margin(answer: Completion, at: int) -> float | None:
    """Between the two likeliest tokens there; None where the server tells fewer than two."""
    best = sorted(answer.top[at].values(), reverse=True) if at < len(answer.top) else []
    return best[0] - best[1] if len(best) > 1 else None


def _sampled(tested: Server, plain: Server, requests: int) -> list[Check]:
    """Two samples at temperature 1."""
    theirs, ours = (_sample(server, requests) for server in (tested, plain))
    return [_homogeneous(name, cut, theirs, ours) for name, cut in CUTS.items()]


def _sample(server: Server, requests: int) -> list[tuple[str, ...]]:
    def one(_: int) -> tuple[str, ...]:
        answer = server.complete(COINS, max_tokens=SAMPLED_TOKENS, temperature=1.0, logprobs=1)
        return tuple(answer.tokens)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(one, range(requests)))


def _homogeneous(name: str, cut: slice, theirs: Sequence[tuple[str, ...]], ours: Sequence[tuple[str, ...]]) -> Check:
    tested, plain = (Counter(tokens[cut] for tokens in samples) for samples in (theirs, ours))
    test, one_seed = same(tested, plain), len(plain) > 1 and tested == plain
    text = f"{test}, {test.cells} cells" + (f"; {ONE_SEED}" if one_seed else "")
    return Check(f"temperature 1, {name}", test.ok, text, test.figures | {"equal_counts": one_seed})
