"""`LLM`: text in, text out, plain or speculative. The one object that most users need."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar, cast

from sooner.bar import watched
from sooner.draft.history import HistoryDrafter
from sooner.draft.load import load_drafter, load_lookup
from sooner.draft.load_trained import is_trained, load_trained
from sooner.draft.model import load_model_drafter
from sooner.draft.protocol import Drafter, Target
from sooner.engine.calibrate import costs_for, drop_costs, with_drafters
from sooner.engine.engine import Engine
from sooner.engine.plan_file import PlanFile
from sooner.errors import InputError
from sooner.kernels import make_kernels
from sooner.kernels.interface import PAGE
from sooner.models.build import Progress, build_decoder, check_grouped
from sooner.models.chat import NOTHING
from sooner.models.checkpoint import naming, open_checkpoint
from sooner.models.config import ModelConfig
from sooner.models.locate import find_model
from sooner.models.structure import Structures
from sooner.models.tokenizer import TextStream
from sooner.outputs import Completion, Event, Output
from sooner.plan.cost import CostTable
from sooner.types import DraftTokens, Request, RoundRecord, Rule, SamplingParams, Speculation

T = TypeVar("T")
Prompt = str | Sequence[int]
Messages = Sequence[Mapping[str, Any]]

SHARED = "shared"  # the one history of an LLM's requests, where it is switched on
ALWAYS_LOADED = ("prediction", "grammar")  # they cost nothing for requests that do not need them


class LLM:
    """A target model with its drafters, ready to answer.

    model: a short name (`smollm2`), a .gguf file, a Hugging Face folder, or a name on the hub: `org/name[@revision]`,
    `org/name:file.gguf`. draft: names of drafters, comma-separated or a list: "ngram", "suffix", "grammar",
    "ngram:PATH", "model:PATH", "model:self/N", "eagle:PATH", "medusa:PATH", "mtp" (the model's own), "mtp:PATH",
    "package.module:Class"; None decodes plainly.
    draft_tokens: "auto" drafts what pays on this machine and text, which may be nothing; a number is drafted every
    round, by the first drafter. draft_branches: with a number of draft_tokens, how many of them may be alternatives at
    one place; above 1 drafts are trees. verify: "auto", "match", "rejection" or "block".
    weights: "auto" keeps the file's own format; "f32", "bf16", "f16", "q8", "q4" convert. activations: "float32",
    or "int8": what products with weights of 4 and 8 bits read is rounded to 8 bits, which is faster and changes the
    numbers. kernels: "auto", "cpu" (C++) or "torch". threads: None takes every core. max_context: tokens of prompt
    and output that one request may have, at most the model's own. max_sequences: requests in flight at once.
    kv_memory: bytes for the target's keys and values, shared by all requests; None is enough for max_sequences of
    max_context tokens each, and takes memory only as it is used. prefix_cache: prompts start from pages that
    earlier requests left. shared_history: requests may also draft from one another's answers, after the other
    drafters; leave it off where clients must not learn of each other. plan: a file of `sooner plan --out`: its
    drafters where draft is None, its costs, and what drafts were worth there.
    trace: called with every round. progress: called while the weights are packed, with the bytes done and all of them.
    """

    def __init__(
        self,
        model: str = "smollm2",
        *,
        draft: str | Sequence[str] | None = None,
        draft_tokens: DraftTokens = "auto",
        draft_branches: int = 1,
        verify: Rule = "auto",
        weights: str = "auto",
        activations: str = "float32",
        kernels: str = "auto",
        device: str = "cpu",
        threads: int | None = None,
        max_context: int | None = None,
        max_sequences: int = 8,
        kv_memory: int | None = None,
        prefix_cache: bool = True,
        shared_history: bool = False,
        plan: str | Path | None = None,
        trace: Callable[[RoundRecord], None] | None = None,
        progress: Progress | None = None,
    ) -> None:
        planned = PlanFile.read(Path(plan)) if plan is not None else None
        if draft is None and planned:
            draft = planned.draft
        names = tuple(draft.split(",")) if isinstance(draft, str) else tuple(draft or ())
        self._history = SHARED if shared_history else ""
        names += ("history",) if shared_history else ()
        self.speculation = Speculation(names, draft_tokens, verify, draft_branches)
        checkpoint = open_checkpoint(find_model(model))
        context = _context(max_context, checkpoint.config.context)
        backend = make_kernels(device, weights, threads, kernels, activations)
        self.tokenizer = checkpoint.tokenizer
        self.config = replace(checkpoint.config, context=context)
        with naming(checkpoint.path):
            if activations == "int8":
                check_grouped(checkpoint.tensors, weights)
            self.decoder = build_decoder(self.config, checkpoint.tensors, backend, device, weights, progress)
        cache_tokens = context * max_sequences if kv_memory is None else _tokens_in(kv_memory, self.config)
        target = Target(self.config.vocabulary, context, self.config.eos, self.config.layers, self.config.hidden)

        def drafter(name: str) -> Drafter:
            if name.startswith("model:"):
                return load_model_drafter(name, self.decoder, self.tokenizer, cache_tokens, weights)
            if is_trained(name):
                return load_trained(name, self.decoder, self.tokenizer, checkpoint.path, cache_tokens, weights)
            if name == "history" and shared_history:
                return HistoryDrafter()
            return load_drafter(name, target)

        drafters = {name: drafter(name) for name in names}
        if planned:
            planned.check(self.decoder)
            costs: CostTable | None = with_drafters(planned.table, self.decoder, drafters)
        else:
            costs = costs_for(self.decoder, drafters) if self.speculation.adaptive else None
        self._new_engine = partial(
            Engine,
            self.decoder,
            cache_tokens=cache_tokens,
            max_sequences=max_sequences,
            prefix_cache=prefix_cache,
            detokenizer=lambda: TextStream(self.tokenizer),
        )
        self.engine = self._new_engine(
            {name: load_lookup(name) for name in ALWAYS_LOADED} | drafters,
            trace=trace,
            costs=costs,
            on_stale=lambda: drop_costs(self.decoder),
        )
        self.engine.parts.planner.adviser.worths |= planned.worths if planned else {}
        self._ids = count()

    def plain_engine(self) -> Engine:
        """Another engine over the same target, with a cache of its own and no drafters: what this one is compared
        with. It takes requests that were made with speculative=False."""
        return self._new_engine()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        speculative: bool | Speculation = True,
        prediction: str | Sequence[str] = "",
        progress: bool = False,
    ) -> list[Output]:
        """Completes each prompt (text, or token ids); there may be thousands.

        speculative: True drafts as the LLM was set up; False decodes plainly, with the same tokens; a `Speculation`
        names loaded drafters, a length and a rule for these requests. prediction: the text that is expected, one for
        all prompts or one each ("" for none): it is drafted from first. progress: shows a bar on standard error.
        """
        batch = _as_batch(prompts)
        outputs = dict(self.answers(batch, params, speculative=speculative, prediction=prediction, progress=progress))
        return [outputs[place] for place in range(len(batch))]

    def answers(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        speculative: bool | Speculation = True,
        prediction: str | Sequence[str] = "",
        progress: bool = False,
    ) -> Iterator[tuple[int, Output]]:
        """As `generate`, but yields each output as soon as it is complete, with its prompt's place."""
        settings = _one_each(params or SamplingParams(), SamplingParams, len(prompts), "SamplingParams")
        expected = _one_each(prediction, str, len(prompts), "predictions")
        jobs = [self._job(i, p, s, speculative, e) for i, (p, s, e) in enumerate(zip(prompts, settings, expected))]
        outputs = [Output(list(job[0].prompt), [Completion(i) for i in range(len(job))], job[0].seed) for job in jobs]
        completions = {r.id: c for job, output in zip(jobs, outputs) for r, c in zip(job, output.outputs)}
        events = self._run([request for job in jobs for request in job], completions)
        return _completed(watched(events, len(completions)) if progress else events, outputs)

    def _job(
        self, place: int, prompt: Prompt, params: SamplingParams, speculative: bool | Speculation, prediction: str
    ) -> list[Request]:
        """One prompt of many as requests; an error says which prompt it is."""
        try:
            requests = self.requests(prompt, params, speculative, prediction)
            for request in requests:
                self.engine.check(request)
            return requests
        except InputError as error:
            raise InputError(f"prompt {place + 1}: {error}") from error

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        speculative: bool | Speculation = True,
        prediction: str = "",
    ) -> Iterator[Event]:
        """Yields an event for every step that brings something; leaving the loop early aborts the request."""
        requests = self.requests(prompt, params or SamplingParams(), speculative, prediction)
        return self._run(requests, {r.id: Completion(i) for i, r in enumerate(requests)})

    def chat(
        self, messages: Messages, params: SamplingParams | None = None, *, speculative: bool | Speculation = True
    ) -> Output:
        """Answers a conversation, [{"role": ..., "content": ...}, ...], through the model's chat template."""
        return self.generate([self.chat_prompt(messages)], params, speculative=speculative)[0]

    def chat_prompt(self, messages: Messages, variables: Mapping[str, Any] = NOTHING) -> list[int]:
        """Token ids of a conversation, ready for the answer. variables: of the chat template, such as tools."""
        return self.tokenizer.encode(self.tokenizer.chat(messages, variables=variables), add_special=False)

    def _run(self, requests: Sequence[Request], places: Mapping[str, Completion]) -> Iterator[Event]:
        try:
            for request in requests:
                self.engine.add(request)
            waiting = {request.id for request in requests}
            while waiting:
                for progress in self.engine.step():
                    if progress.finish_reason:
                        waiting.discard(progress.request_id)
                    if progress.pieces or progress.finish_reason:
                        yield places[progress.request_id].grow(progress)
        finally:
            for request in requests:
                self.engine.abort(request.id)

    def requests(
        self, prompt: Prompt, params: SamplingParams, speculative: bool | Speculation = True, prediction: str = ""
    ) -> list[Request]:
        """One request a sample, with everything that depends on the model resolved. Safe beside a running engine."""
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        room = self.engine.capacity - len(ids)
        if room < 1 and params.max_tokens != 0:
            raise InputError(
                f"the prompt has {len(ids)} tokens, the context holds {self.engine.capacity} with the answer; "
                "shorten the prompt or raise the context (--max-context)"
            )
        expected = tuple(self.tokenizer.encode(prediction, add_special=False))
        seeded = params.seed is not None
        seed = params.seed if params.seed is not None else secrets.randbits(64)
        return [
            Request(
                id=f"{next(self._ids)}",
                prompt=tuple(ids),
                params=params,
                seed=seed,
                seeded=seeded,
                sample=sample,
                speculation=self._speculation(speculative, prediction, params),
                eos=self.config.eos,
                bad_words=tuple(way for word in params.bad_words for way in self._spellings(word)),
                max_tokens=room if params.max_tokens is None else params.max_tokens,
                structure=self._structures.compile(params.structured) if params.structured else None,
                prediction=expected,
                history=self._history,
            )
            for sample in range(params.n)
        ]

    @cached_property
    def _structures(self) -> Structures:
        return Structures(self.tokenizer, self.config.vocabulary, self.config.eos)

    def _speculation(self, wanted: bool | Speculation, prediction: str, params: SamplingParams) -> Speculation:
        """As it is wanted; True adds the drafters that only this request has a use for."""
        if isinstance(wanted, Speculation):
            return wanted
        if not wanted:
            return Speculation(rule=self.speculation.rule)
        first = ("prediction",) if prediction else ()
        last = ("grammar",) if params.structured and self.speculation.drafters else ()
        names = dict.fromkeys((*first, *self.speculation.drafters, *last))
        return replace(self.speculation, drafters=tuple(names))

    def _spellings(self, word: str) -> set[tuple[int, ...]]:
        """A bad word's token sequences at the start of a text and after a space."""
        return {tuple(self.tokenizer.encode(text, add_special=False)) for text in (word, f" {word}")}


def _context(wanted: int | None, limit: int) -> int:
    if wanted is None:
        return min(limit, 4096)
    if not 1 <= wanted <= limit:
        raise InputError(f"max_context is {wanted}, must be between 1 and the model's {limit}")
    return wanted


def _tokens_in(nbytes: int, config: ModelConfig) -> int:
    """Positions whose float32 keys and values fit into nbytes, in whole pages."""
    each = 2 * 4 * config.layers * config.kv_heads * config.head_size
    if nbytes < each * PAGE:
        raise InputError(f"kv_memory is {nbytes} bytes, one page of {PAGE} tokens takes {each * PAGE}; raise it")
    return nbytes // (each * PAGE) * PAGE


def _completed(events: Iterator[Event], outputs: Sequence[Output]) -> Iterator[tuple[int, Output]]:
    """Each output and its place when its last sample has ended."""
    places = {id(completion): place for place, output in enumerate(outputs) for completion in output.outputs}
    for event in events:
        place = places[id(event.completion)]
        if event.finish_reason and all(completion.finish_reason for completion in outputs[place].outputs):
            yield place, outputs[place]


def _one_each(given: T | Sequence[T], kind: type[T], count: int, name: str) -> Sequence[T]:
    """One for every prompt, from one for all or a list of that length."""
    if isinstance(given, kind):
        return [given] * count
    several = cast(Sequence[T], given)
    if len(several) != count:
        raise InputError(f"{len(several)} {name} for {count} prompts; give one, or one each")
    return several


def _as_batch(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], int)):
        return [cast(Prompt, prompts)]
    return list(cast(Sequence[Prompt], prompts))
