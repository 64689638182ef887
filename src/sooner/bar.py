"""A progress bar on standard error for many prompts."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sooner.outputs import Event


def watched(events: Iterator[Event], total: int) -> Iterator[Event]:
    """Passes events on and counts the ends among them, of `total`, with the tokens so far and their rate."""
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    tokens = 0
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=total)
        for event in events:
            tokens += len(event.token_ids)
            seconds = progress.tasks[0].elapsed
            rate = f", {tokens / seconds:,.0f} tokens/s" if seconds else ""
            progress.update(task, advance=event.finish_reason is not None, description=f"{tokens:,} tokens{rate}")
            yield event
