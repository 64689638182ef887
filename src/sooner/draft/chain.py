"""A chain of tokens drawn from a model's logits, by the rule of the round.

Under `match` it is drawn with the target's own noise, so that both choose alike as often as the Gumbel coupling allows;
under `rejection` and `block` it is sampled, and each node carries its distribution.
"""

from __future__ import annotations

from collections.abc import Sequence

from sooner.draft.protocol import Ask
from sooner.kernels.interface import Chooser
from sooner.models.runner import F32
from sooner.sampling.draws import RoundDraws, Source
from sooner.sampling.noise import Noise
from sooner.sampling.road import NoTokenError, Road
from sooner.types import Distribution, Draft


class Chain:
    """One ask's draft while it grows, up to `limit` tokens."""

    def __init__(self, ask: Ask, limit: int) -> None:
        self.ask, self.limit = ask, limit
        self.tokens: list[int] = []
        self.probs: list[Distribution | None] = []
        self._road = Road.of(ask.request)
        self._noise = Noise(ask.request.seed, ask.request.sample)

    @property
    def draft(self) -> Draft:
        return Draft.chain(self.tokens, self.probs)

    @property
    def wants_more(self) -> bool:
        """False after a token that would end the request: whatever follows it could never be used."""
        return len(self.tokens) < self.limit and self.tokens[-1] not in self.ask.request.stop_ids

    def extend(self, logits: F32, fast: Chooser | None) -> None:
        """Draws the next token, from the same road as the target's; the draft ends where that leaves none."""
        try:
            token, q = self._draw(logits, self.ask.ledger.tokens + self.tokens, fast)
        except NoTokenError:
            self.limit = len(self.tokens)
            return
        self.tokens.append(token)
        self.probs.append(q)

    def _draw(self, logits: F32, prefix: Sequence[int], fast: Chooser | None) -> tuple[int, Distribution | None]:
        if self.ask.rule == "match":
            return self._road.choose(logits, prefix, self._noise, fast), None
        return sample_draft(self._road, logits, prefix, len(self.tokens), self._noise)


def sample_draft(
    road: Road, logits: F32, prefix: Sequence[int], index: int, source: Source
) -> tuple[int, Distribution]:
    """The index-th token of a round's sampled chain, and the very distribution that it was drawn from."""
    q = road.probabilities(logits, prefix)
    return RoundDraws(source, len(prefix) - index).draft(index, q), q
