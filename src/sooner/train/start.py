"""Where an EAGLE head begins: not from random weights, since a CPU sees too few tokens for those.

fc passes the last tap on. A linear map from (embedding, hidden state) to the next hidden state is solved in closed form
and put into the attention of most heads, which look at their own row; the other heads and the feed-forward's inner
matrices are the last layer's, whose output matrix begins at zero. Norm and head rows are the target's.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

from sooner.train.documents import Batch
from sooner.train.eagle import EagleHead

SHARP = 20.0  # how much a head that looks at its own row prefers it, in units of a score
RIDGE = 1e-2  # of each input's mean square


@torch.no_grad()
def begin(head: EagleHead, target: dict[str, Tensor], draft_tokens: Tensor, batches: Iterable[Batch]) -> None:
    """target: float32 tensors by our names: norm, head, and the last layer's q, k, gate, up without their prefix."""
    h, layer = head.shape.hidden, head.midlayer
    head.fc.weight.zero_()
    head.fc.weight[:, -h:] = torch.eye(h)
    head.norm.weight.copy_(target["norm"])
    layer.hidden_norm.weight.copy_(target["norm"])
    head.lm_head.weight.copy_(target["head"][draft_tokens])
    layer.mlp.gate_proj.weight.copy_(target["gate"])
    layer.mlp.up_proj.weight.copy_(target["up"])
    layer.mlp.down_proj.weight.zero_()
    layer.post_attention_layernorm.weight.copy_(target["mlp_norm"])
    move, one = transition(head, batches)
    attention = layer.self_attn
    size, heads = head.shape.head_size, head.shape.heads
    u, s, v = torch.linalg.svd(move)
    rank = heads * size
    root = s[:rank].sqrt()
    attention.v_proj.weight.copy_(root[:, None] * v[:rank])
    attention.o_proj.weight.copy_(u[:, :rank] * root)
    look_at_own_row(head, one)


def look_at_own_row(head: EagleHead, one: Tensor) -> None:
    """Queries and keys that are constant before rotation score highest where nothing is rotated: at their own row."""
    attention, size = head.midlayer.self_attn, head.shape.head_size
    fast = torch.arange(size // 2) < max(size // 16, 1)
    constant = torch.cat([fast, fast]).float() * (SHARP * size**0.5 / fast.sum() / 2) ** 0.5
    for projection in (attention.q_proj, attention.k_proj):
        heads = projection.weight.shape[0] // size
        projection.weight.normal_(0, 0.01, generator=torch.Generator().manual_seed(1))
        projection.weight += constant.repeat(heads)[:, None] * one[None]


def transition(head: EagleHead, batches: Iterable[Batch]) -> tuple[Tensor, Tensor]:
    """The ridge regression [H, 2H] of next hidden state minus this one on what attention reads x, and w with
    w x as near to 1 as can be."""
    size = 2 * head.shape.hidden
    gram, cross = torch.zeros(size, size, dtype=torch.float64), torch.zeros(size, size // 2, dtype=torch.float64)
    total = torch.zeros(size, dtype=torch.float64)
    for batch in batches:
        hidden = head.fc(batch.states())
        residual, joined = head.midlayer.joined(hidden, F.embedding(batch.paired(), head.embedding))
        goal = F.rms_norm(batch.next_states(), (size // 2,), eps=head.shape.norm_eps) - residual
        rows = batch.chosen()
        x, y = joined[rows].double(), goal[rows].double()
        gram += x.T @ x
        cross += x.T @ y
        total += x.sum(0)
    ridge = RIDGE * gram.diagonal().diag()
    solved = torch.linalg.solve(gram + ridge, torch.cat([cross, total[:, None]], dim=1)).float()
    return solved[:, :-1].T, solved[:, -1]
