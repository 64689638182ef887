"""How many tokens each sequence may draft in a round, and why. Pure arithmetic; the reason travels with the grant."""

from __future__ import annotations

from dataclasses import dataclass

from sooner.types import Speculation


@dataclass(frozen=True, slots=True)
class Grant:
    """`drafter` proposes at most `tokens`; an empty name and 0 are plain decoding."""

    drafter: str
    tokens: int
    reason: str


def fixed(speculation: Speculation, remaining: int) -> Grant:
    """The request's own first drafter and length, as far as the request can use it.

    remaining: tokens that the request may still commit. A round commits one token more than it accepts, so more than
    remaining - 1 drafted tokens could never be used.
    """
    if not speculation.drafters:
        return Grant("", 0, "no drafter was asked for")
    tokens = min(speculation.draft_tokens, remaining - 1)
    if tokens < 1:
        return Grant("", 0, f"{remaining} token to go" if remaining == 1 else "draft_tokens is 0")
    return Grant(speculation.drafters[0], tokens, f"fixed length {speculation.draft_tokens}")
