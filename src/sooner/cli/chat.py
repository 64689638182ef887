"""`sooner chat`: a conversation in the terminal."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from sooner.cli import options
from sooner.cli.generate import cost_line, note, paint
from sooner.cli.progress import loading
from sooner.errors import InputError, SoonerError
from sooner.types import Rule, SamplingParams, Speculation

if TYPE_CHECKING:
    from sooner.engine.stats import Stats
    from sooner.llm import LLM
    from sooner.outputs import Completion

PROMPT = "\n> "


def chat(
    model: options.Model,
    draft: options.Draft = None,
    draft_tokens: options.DraftTokens = "auto",
    draft_branches: options.DraftBranches = 1,
    verify: options.Verify = "auto",
    system: Annotated[str | None, typer.Option(help="the system message")] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy")] = 0.0,
    top_p: Annotated[float, typer.Option(help="1 switches it off")] = 1.0,
    min_p: Annotated[float, typer.Option(help="0 switches it off")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="makes sampling repeatable")] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", "-n", help="most tokens of an answer [default: what fits]")
    ] = None,
    show: Annotated[bool, typer.Option("--show/--no-show", help="colour accepted, corrected and bonus tokens")] = True,
    weights: options.Weights = "auto",
    activations: options.Activations = "float32",
    kernels: options.Kernels = "auto",
    device: options.Device = "cpu",
    threads: options.Threads = None,
    max_context: options.MaxContext = None,
    plan: options.Plan = None,
) -> None:
    """Talk to a model. Ctrl-C stops an answer, Ctrl-D ends the conversation, /help lists commands."""
    params = SamplingParams(temperature=temperature, top_p=top_p, min_p=min_p, seed=seed, max_tokens=max_tokens)
    note(f"loading {model}")
    from sooner.llm import LLM

    llm = LLM(
        model,
        draft=draft,
        draft_tokens=options.draft_tokens(draft_tokens),
        draft_branches=draft_branches,
        verify=cast(Rule, verify),
        weights=weights,
        activations=activations,
        kernels=kernels,
        device=device,
        threads=threads,
        max_context=max_context,
        plan=plan,
        max_sequences=1,
        progress=loading,
    )
    if not llm.tokenizer.has_chat_template:
        raise InputError(f"{model} has no chat template; use sooner generate --raw")
    with suppress(ImportError):
        import readline  # noqa: F401, gives `input` its history and arrow keys
    note("Ctrl-C stops an answer, Ctrl-D leaves, /help lists commands")
    session = Session(llm, params, llm.speculation, show=show and sys.stdout.isatty())
    if system:
        session.messages.append({"role": "system", "content": system})
    session.talk()


@dataclass(slots=True)
class Session:
    """One conversation. `speculation` is what the next answer drafts with."""

    llm: LLM
    params: SamplingParams
    speculation: Speculation
    show: bool
    messages: list[dict[str, str]] = field(default_factory=list)
    stats: list[Stats] = field(default_factory=list)  # one an answer

    def talk(self) -> None:
        """Until Ctrl-D or /quit. Whatever goes wrong with one line is told, and the conversation goes on."""
        for line in lines():
            try:
                if line.startswith("/"):
                    command(self, line)
                elif line.strip():
                    self.answer(line)
            except SoonerError as error:
                note(f"sooner: {error}")

    def answer(self, text: str) -> None:
        """Streams the answer; of one that was stopped the beginning stays in the conversation."""
        asked = [*self.messages, {"role": "user", "content": text}]
        ids = self.llm.chat_prompt(asked)
        completion: Completion | None = None
        with interrupts() as interrupted:
            for event in self.llm.stream(ids, self.params, speculative=self.speculation):
                completion = event.completion
                pieces = [paint(p.text, p.origin) if self.show else p.text for p in event.pieces]
                print("".join(pieces), end="", flush=True)
                if interrupted():
                    break
        print()
        if completion is None:
            return
        self.messages = [*asked, {"role": "assistant", "content": completion.text}]
        self.stats.append(completion.stats)
        note(f"[{cost_line(completion)}]" if completion.finish_reason else "[stopped]")


def lines() -> Iterator[str]:
    """What the user types; Ctrl-C on the line only drops it."""
    while True:
        try:
            yield input(PROMPT if sys.stdin.isatty() else "")
        except KeyboardInterrupt:
            note("(Ctrl-D or /quit leaves)")
        except EOFError:
            return


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Ctrl-C is only noted, so that it never cuts a round in two."""
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        yield lambda: bool(seen)
    finally:
        signal.signal(signal.SIGINT, before)


def command(session: Session, line: str) -> None:
    name, _, rest = line[1:].partition(" ")
    if name not in COMMANDS:
        raise InputError(f"unknown command /{name}; known are {', '.join(f'/{known}' for known in COMMANDS)}")
    COMMANDS[name][1](session, rest.strip())


def draft_command(session: Session, rest: str) -> None:
    usual = session.llm.speculation
    if rest == "off":
        session.speculation = replace(usual, drafters=())
    elif rest == "on":
        session.speculation = usual
    elif rest:
        session.speculation = chosen(rest, usual)
    now = session.speculation
    amount = "as much as pays" if now.draft_tokens == "auto" else f"at most {now.draft_tokens} tokens a round"
    what = f"{', '.join(now.drafters)}, {amount}" if now.drafters else "off"
    note(f"drafting: {what} (loaded: {', '.join(usual.drafters) or 'none, start with --draft suffix'})")


def chosen(rest: str, usual: Speculation) -> Speculation:
    """From what follows /draft: drafters that are loaded, a number of tokens or auto, or both."""
    words = rest.replace(",", " ").split()
    amounts = [options.draft_tokens(word) for word in words if word.isdecimal() or word == "auto"]
    names = tuple(word for word in words if not word.isdecimal() and word != "auto") or usual.drafters
    unknown = [name for name in names if name not in usual.drafters]
    if unknown or len(amounts) > 1:
        loaded = ", ".join(usual.drafters) or "no drafter; start with --draft suffix"
        raise InputError(f"/draft {rest} is not understood; write on, off, auto, names or a number. Loaded: {loaded}")
    return replace(usual, drafters=names, draft_tokens=amounts[0] if amounts else usual.draft_tokens)


def stats_command(session: Session, _: str) -> None:
    from sooner.engine.stats import Stats

    total = Stats()
    for one in session.stats:
        total.merge(one)
    positions = " ".join(f"{share:.2f}" for share in total.acceptance_by_position)
    note(
        f"{len(session.stats)} answers, {total.output_tokens} tokens, {total.rounds} rounds\n"
        f"{total.tokens_per_second or 0:.1f} tokens/s, {total.tokens_per_round or 0:.2f} tokens a round\n"
        f"drafted {total.drafted}, accepted {total.accepted}; by position: {positions or 'nothing drafted'}\n"
        f"seconds: {total.prefill_s:.2f} prompt, {total.draft_s:.2f} draft, {total.target_s:.2f} target, "
        f"{total.verify_s + total.commit_s:.2f} rest; prompt tokens from the prefix cache: {total.cached_tokens}"
    )


def save_command(session: Session, rest: str) -> None:
    if not rest:
        raise InputError("/save needs a file name, for example /save talk.json")
    try:
        with Path(rest).open("x", encoding="utf-8") as file:
            json.dump({"messages": session.messages}, file, ensure_ascii=False, indent=1)
    except FileExistsError:
        raise InputError(f"{rest} exists already; choose another name") from None
    except OSError as error:
        raise InputError(f"cannot write {rest}: {error}") from error
    note(f"{len(session.messages)} messages written to {rest}")


def clear_command(session: Session, _: str) -> None:
    session.messages = [message for message in session.messages if message["role"] == "system"]
    note("the conversation is empty")


def help_command(_: Session, __: str) -> None:
    note("\n".join(f"/{name:<6} {text}" for name, (text, _) in COMMANDS.items()))


def quit_command(_: Session, __: str) -> None:
    raise typer.Exit


COMMANDS: dict[str, tuple[str, Callable[[Session, str], None]]] = {
    "draft": ("on, off, or loaded drafters and a number of tokens; alone it shows them", draft_command),
    "stats": ("what was drafted and accepted, and where the time went", stats_command),
    "save": ("FILE: writes the conversation as JSON", save_command),
    "clear": ("forgets the conversation", clear_command),
    "help": ("this list", help_command),
    "quit": ("leaves, as Ctrl-D does", quit_command),
}
