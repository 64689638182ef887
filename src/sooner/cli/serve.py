"""`sooner serve`: an OpenAI-compatible server."""

from __future__ import annotations

import logging
import sys
import time
from typing import Annotated, cast

import typer

from sooner.cli import options
from sooner.cli.progress import loading
from sooner.errors import InputError
from sooner.types import Rule

LOCAL = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})


def serve(
    model: options.Model,
    draft: options.Draft = None,
    draft_tokens: options.DraftTokens = "auto",
    draft_branches: options.DraftBranches = 1,
    verify: options.Verify = "auto",
    host: Annotated[str, typer.Option(help="address to bind to")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port; 0 takes a free one")] = 8000,
    name: Annotated[str | None, typer.Option("--served-model-name", help="[default: MODEL]")] = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", envvar="SOONER_API_KEY", help="clients must send it", show_envvar=True)
    ] = None,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="bind to other addresses without a key")] = False,
    max_sequences: Annotated[int, typer.Option(min=1, help="requests that run at once")] = 16,
    max_queue: Annotated[int, typer.Option(min=0, help="requests that may wait; more are answered 429")] = 64,
    kv_memory: Annotated[int | None, typer.Option(help="MiB of keys and values [default: as needed]", min=1)] = None,
    drain: Annotated[int, typer.Option(min=0, help="seconds that answers in flight have after SIGTERM")] = 60,
    weights: options.Weights = "auto",
    activations: options.Activations = "float32",
    kernels: options.Kernels = "auto",
    device: options.Device = "cpu",
    threads: options.Threads = None,
    max_context: options.MaxContext = None,
    plan: options.Plan = None,
    shared_history: options.SharedHistory = False,
) -> None:
    """Serve a model over HTTP: /v1/chat/completions, /v1/completions, /v1/models, /metrics."""
    began = time.perf_counter()
    check_reach(host, api_key, no_auth)
    say(f"loading {model}")
    from sooner.llm import LLM
    from sooner.serve.limits import Settings
    from sooner.serve.run import listen, run

    socket = listen(host, port)
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
        shared_history=shared_history,
        max_sequences=max_sequences,
        kv_memory=None if kv_memory is None else kv_memory << 20,
        progress=loading,
    )
    hosts = None if api_key or no_auth else LOCAL
    settings = Settings(name or model, api_key, hosts, max_sequences + max_queue)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    where = f"http://{host}:{socket.getsockname()[1]}/v1"
    sys.exit(run(llm, settings, socket, drain, lambda: say(f"ready in {time.perf_counter() - began:.1f} s: {where}")))


def check_reach(host: str, api_key: str | None, no_auth: bool) -> None:
    if api_key == "":
        raise InputError("the API key is empty; give one, or leave --api-key out")
    if host not in LOCAL and not api_key and not no_auth:
        raise InputError(f"binding to {host} lets others in; set --api-key or SOONER_API_KEY, or say --no-auth")


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
