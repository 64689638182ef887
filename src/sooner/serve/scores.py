"""Log-probabilities in OpenAI's two forms, and usage and timings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sooner.engine.stats import Stats
from sooner.models.tokenizer import Tokenizer
from sooner.types import Logprob, Request


def text_scores(
    tokenizer: Tokenizer, tokens: Sequence[int], scores: Sequence[Logprob | None], offset: int = 0
) -> dict[str, Any]:
    """The form of completions. offset: characters before the first token."""
    texts = [tokenizer.text_of(token) for token in tokens]
    offsets = [offset + sum(map(len, texts[:i])) for i in range(len(texts))]
    return {
        "tokens": texts,
        "token_logprobs": [score and score.logprob for score in scores],
        "top_logprobs": [score and _by_text(tokenizer, score) for score in scores],
        "text_offset": offsets,
    }


def _by_text(tokenizer: Tokenizer, score: Logprob) -> dict[str, float]:
    """The chosen token is always there. Of tokens that look alike (pieces of characters) the likeliest stays."""
    named: dict[str, float] = {}
    for token, value in [*score.top, (score.token, score.logprob)]:
        named.setdefault(tokenizer.text_of(token), value)
    return named


def chat_scores(tokenizer: Tokenizer, scores: Sequence[Logprob]) -> dict[str, Any]:
    def entry(token: int, value: float) -> dict[str, Any]:
        raw = tokenizer.token_bytes(token, skip_special=False)
        return {"token": raw.decode(errors="replace"), "logprob": value, "bytes": list(raw)}

    content = [
        entry(s.token, s.logprob) | {"top_logprobs": [entry(token, value) for token, value in s.top]} for s in scores
    ]
    return {"content": content, "refusal": None}


def usage(requests: Sequence[Request], stats: Sequence[Stats]) -> dict[str, Any]:
    """One of each a sample; a prompt counts once, with its first sample."""
    firsts = [(request, one) for request, one in zip(requests, stats) if request.sample == 0]
    prompt = sum(len(request.prompt) for request, _ in firsts)
    completion = sum(one.output_tokens for one in stats)
    accepted, drafted = sum(one.accepted for one in stats), sum(one.drafted for one in stats)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(min(s.cached_tokens, len(r.prompt)) for r, s in firsts)},
        "completion_tokens_details": {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": drafted - accepted,
        },
    }


def timings(stats: Sequence[Stats], drafters: Sequence[str]) -> dict[str, Any]:
    """Of all samples together. drafting_off says why nothing was drafted, null where something was."""
    total = Stats()
    for one in stats:
        total.merge(one)
    return {
        "tokens_per_second": total.tokens_per_second,
        "rounds": total.rounds,
        "tokens_per_round": total.tokens_per_round,
        "acceptance_rate": total.acceptance_rate,
        "acceptance_by_position": total.acceptance_by_position,
        "prompt_ms": 1e3 * total.prefill_s,
        "draft_ms": 1e3 * total.draft_s,
        "target_ms": 1e3 * total.target_s,
        "rest_ms": 1e3 * (total.verify_s + total.commit_s),
        "drafters": list(drafters),
        "drafting_off": total.drafter_error or (None if total.drafted else total.plain_reason or None),
    }
