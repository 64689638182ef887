"""`sooner`: one small file a command; parsing and printing only. Nothing here imports torch before it is needed."""

from __future__ import annotations

import sys

import typer

from sooner.cli import bench, lab, train
from sooner.cli.certify import certify
from sooner.cli.chat import chat
from sooner.cli.convert import convert
from sooner.cli.doctor import doctor
from sooner.cli.generate import generate
from sooner.cli.models import models
from sooner.cli.plan import plan
from sooner.cli.pull import pull
from sooner.cli.serve import serve
from sooner.errors import SoonerError

# Typer brings its own copy of click since 0.26 and used the package before: its own errors are the ones to catch.
UsageProblem: type[typer.BadParameter] = next(b for b in typer.BadParameter.__mro__ if b.__name__ == "ClickException")

INTERRUPTED = 130

app = typer.Typer(
    name="sooner",
    help="The same tokens, sooner: speculative decoding that keeps the target's output exactly.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(generate)
app.command()(chat)
app.command()(serve)
app.command()(certify)
app.command()(plan)
app.command()(pull)
app.command()(models)
app.command()(convert)
app.command()(doctor)
app.add_typer(bench.app, name="bench")
app.add_typer(lab.app, name="lab")
app.add_typer(train.app, name="train")


def main() -> None:
    """Exit codes: 0 success, 1 a check failed, 2 bad input, 130 interrupted."""
    sys.path.insert(0, "")  # a drafter of the user's own may lie in the folder where the command runs
    try:
        code = app(standalone_mode=False) or 0
    except SoonerError as error:
        _fail(str(error), 2)
    except UsageProblem as error:
        _fail(error.format_message(), 2)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone: nothing is left to say to it
        sys.exit(0)
    if code == INTERRUPTED:  # typer turns Ctrl-C into an exit code without a word
        _fail("interrupted", INTERRUPTED)
    sys.exit(code)


def _fail(message: str, code: int) -> None:
    sys.stdout.flush()
    print(f"sooner: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
