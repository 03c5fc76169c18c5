"""How much each head and each source token matters: what changes in the output of a pass without it.

All heads are silenced one at a time, and all tokens hidden one word at a time, as the rows of a few batches.

Dimensions: R rows, H heads, T positions, V outputs.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.attention_maps import Observation
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.interventions import HeadName, attention_modules, hidden_tokens, kept_heads
from regard.errors import ModelError
from regard.model.transformer import Network

MAX_BATCH_LOGITS = 4_000_000
"""Maximum number of logits of a batch, and so 16 MB."""


@dataclass(frozen=True)
class Removal:
    """A head that is silenced, or the positions of a word that is hidden."""

    head: HeadName | None = None
    hidden: tuple[int, ...] = ()


class TopChange(NamedTuple):
    """A step at which another token becomes the most likely one."""

    step: int
    before: int
    """The id that is the most likely one without the removal. Beam search may have written another one."""
    after: int


@dataclass(frozen=True)
class Effect:
    """What a removal changes in the predictions of a pass."""

    divergence: float
    """Kullback–Leibler divergence of the changed predictions from the unchanged ones in bits, mean over positions."""
    log_probability: float | None
    """Change of the log-probability of the written tokens, in nats; None for a model that writes nothing."""
    first_change: TopChange | None
    """The first step at which another token becomes the most likely one; None if there is none."""


def all_heads(network: Network) -> list[Removal]:
    """Each head of the network as a removal."""
    modules = attention_modules(network)
    return [Removal(HeadName(kind, n, h)) for (kind, n), module in modules.items() for h in range(module.heads)]


def measure_effects(observed: Observation, removals: Sequence[Removal]) -> list[Effect]:
    """The effect of each removal on the predictions of a pass over a text."""
    usual = _predictions(observed, observed.forward.run())[0]  # [T, V]
    size = max(1, MAX_BATCH_LOGITS // usual.numel())
    effects = []
    for first in range(0, len(removals), size):
        raise_if_cancelled()
        batch = removals[first : first + size]
        with _without(observed.forward.network, batch):
            changed = _predictions(observed, observed.forward.run(len(batch)))  # [R, T, V]
        effects += _effects(usual, changed, observed.written)
    return effects


def _predictions(observed: Observation, logits: Tensor) -> Float[Tensor, "R T V"]:
    """Log-probabilities at the positions that write, or at all positions of a model that writes nothing."""
    rows = logits[:, None] if logits.dim() == 2 else logits  # a classifier has one prediction
    if observed.written:
        rows = rows[:, observed.first : observed.first + len(observed.written)]
    return rows.float().log_softmax(-1)


@contextmanager
def _without(network: Network, removals: Sequence[Removal]) -> Iterator[None]:
    """Apply each removal to the row of the same number."""
    modules = attention_modules(network)
    kept = {key: torch.ones(len(removals), module.heads, dtype=torch.bool) for key, module in modules.items()}
    for row, removal in enumerate(removals):
        if removal.head is not None:
            kept[removal.head.kind, removal.head.layer][row, removal.head.head] = False
    with ExitStack() as hooks:
        for key, rows in kept.items():
            if not rows.all():
                hooks.enter_context(kept_heads(modules[key], rows))
        if any(removal.hidden for removal in removals):
            hooks.enter_context(hidden_tokens(network, [removal.hidden for removal in removals]))
        yield


def _effects(usual: Float[Tensor, "T V"], changed: Float[Tensor, "R T V"], written: Sequence[int]) -> list[Effect]:
    divergences = (usual.exp() * (usual - changed)).sum(-1).mean(-1) / torch.log(torch.tensor(2.0))  # [R]
    if not divergences.isfinite().all():
        raise ModelError
    losses: list[float | None] = [None] * len(changed)
    if written:
        ids = torch.tensor(written, device=usual.device)[:, None]  # [T, 1]
        before = usual.gather(-1, ids).sum()
        losses = (changed.gather(-1, ids.expand(len(changed), -1, 1)).sum((-1, -2)) - before).tolist()
    firsts = _first_changes(usual.argmax(-1), changed.argmax(-1))
    rows = zip(divergences.clamp_min(0).tolist(), losses, firsts, strict=True)
    return [Effect(divergence, loss, first) for divergence, loss, first in rows]


def _first_changes(usual: Int[Tensor, " T"], changed: Int[Tensor, "R T"]) -> list[TopChange | None]:
    """The first position of each row where another id is the most likely one."""
    before = usual.tolist()
    steps = [differs.index(True) if True in differs else None for differs in (changed != usual).tolist()]
    rows = zip(steps, changed.tolist(), strict=True)
    return [None if step is None else TopChange(step, before[step], after[step]) for step, after in rows]
