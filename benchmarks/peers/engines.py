"""The engines that can be compared, and how they are written: NAME/MODE[:AMOUNT][@FORMAT]."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sooner.errors import InputError


@dataclass(frozen=True)
class Peer:
    """modes: None where any drafter may be named. format: of the weights, where nothing else is asked for.

    kernels: Sooner's own, of which no other engine is told.
    """

    module: str
    modes: tuple[str, ...] | None
    format: str
    formats: tuple[str, ...] | None
    needs_folder: bool = False
    kernels: str = ""

    @property
    def ours(self) -> bool:
        return bool(self.kernels)


PEERS: dict[str, Peer] = {
    "sooner": Peer("benchmarks.peers.with_sooner", None, "auto", None, kernels="auto"),
    "sooner_torch": Peer("benchmarks.peers.with_sooner", None, "f32", ("f32", "bf16"), kernels="torch"),
    "llama_cpp": Peer("benchmarks.peers.with_llama_cpp", ("plain", "lookup"), "file", ("file",)),
    "openvino": Peer("benchmarks.peers.with_openvino", ("plain", "lookup"), "file", ("file",)),
    "transformers": Peer(
        "benchmarks.peers.with_transformers", ("plain", "lookup", "assisted"), "f32", ("f32", "bf16"), needs_folder=True
    ),
    "vllm": Peer("benchmarks.peers.with_vllm", ("plain", "ngram"), "f32", ("f32", "bf16"), needs_folder=True),
}

DEFAULT = (
    "sooner/plain", "sooner/suffix:4", "llama_cpp/plain", "llama_cpp/lookup:2", "llama_cpp/lookup:4", "openvino/plain",
    "openvino/lookup:4",
)  # fmt: skip


@dataclass(frozen=True)
class Engine:
    """`plain` is the same engine and format without a draft."""

    text: str
    name: str
    mode: str
    amount: int | str
    format: str

    @property
    def is_plain(self) -> bool:
        return self.mode == "plain"


def parse(text: str) -> Engine:
    """Raises InputError that names what there is."""
    match = re.fullmatch(r"(?P<name>\w+)/(?P<mode>[^@]+?)(:(?P<amount>\d+|auto))?(@(?P<format>\w+))?", text)
    if not match or match["name"] not in PEERS:
        raise InputError(f"engine {text!r} must be NAME/MODE[:AMOUNT][@FORMAT], NAME one of {', '.join(PEERS)}")
    peer = PEERS[match["name"]]
    chosen = match["format"] or peer.format
    for what, value, known in (("mode", match["mode"], peer.modes), ("format", chosen, peer.formats)):
        if known is not None and value not in known:
            raise InputError(f"engine {text!r}: {what} {value!r} is not known; {match['name']} has {', '.join(known)}")
    amount: int | str = match["amount"] if match["amount"] == "auto" else int(match["amount"] or 4)
    if amount == "auto" and not peer.ours:
        raise InputError(f"engine {text!r}: only Sooner chooses how much it drafts; give a number for auto")
    return Engine(text, match["name"], match["mode"], amount, chosen)
