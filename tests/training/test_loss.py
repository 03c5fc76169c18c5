"""The loss without materialised logits: equal to `F.cross_entropy` in value and gradients, within its memory limits."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard.data import batches as lay
from regard.data.batches import IGNORED_TARGET, Batch, Batches
from regard.data.language_batches import language_block_batches
from regard.model.transformer import Network, build
from regard.training import loss as module
from regard.training.loss import loss_sum, losses_and_gradients, rows_at_once
from regard.training.objective import Objective
from tests.support.batches import CLASSES, DATA, END, MASKING, PAD, SEP, TEXT
from tests.support.oracles import gradient, small


def reference_loss(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float) -> Tensor:
    """The reference: all logits at once and PyTorch's own loss."""
    logits = F.linear(hidden, weight, bias)
    return F.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORED_TARGET, label_smoothing=smoothing)


def inputs(n: int, c: int, v: int, bias: bool, ignored: float = 0.3) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    labels = torch.randint(v, (n,))
    labels[torch.rand(n) < ignored] = IGNORED_TARGET
    hidden, weight = torch.randn(n, c, requires_grad=True), torch.randn(v, c, requires_grad=True)
    return hidden, weight, torch.randn(v, requires_grad=True) if bias else None, labels


def value_and_gradients(
    function: Callable[..., Tensor], arguments: tuple[Any, ...], smoothing: float, towards: float = 1.0
) -> list[Tensor]:
    total = function(*arguments, smoothing)
    wanted = [x for x in arguments if isinstance(x, Tensor) and x.requires_grad]
    return [total.detach(), *torch.autograd.grad(total * towards, wanted)]


def convert(arguments: tuple[Tensor | None, ...], dtype: torch.dtype) -> tuple[Tensor | None, ...]:
    """Return the same tensors, with floating-point ones converted to `dtype`."""
    real = [x is not None and x.is_floating_point() for x in arguments]
    return tuple(
        x.detach().to(dtype).requires_grad_() if x is not None and wanted else x
        for x, wanted in zip(arguments, real, strict=True)
    )


def limit_rows(patch: pytest.MonkeyPatch, rows: int, v: int) -> None:
    """Limit the number of rows of logits that exist at once."""
    patch.setattr(module, "MAX_CPU_LOGITS", rows * v)


@given(
    n=st.integers(1, 40),
    c=st.integers(1, 9),
    v=st.integers(1, 50),
    bias=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.1, 0.7]),
    ignored=st.sampled_from([0.0, 0.4, 1.0]),
    rows=st.sampled_from([1, 3, 7, 1_000]),
    towards=st.sampled_from([1.0, -0.25, 3e3]),
    seed=st.integers(0, 99),
)
def test_it_equals_the_cross_entropy(
    n: int, c: int, v: int, bias: bool, smoothing: float, ignored: float, rows: int, towards: float, seed: int
) -> None:
    torch.manual_seed(seed)
    arguments = inputs(n, c, v, bias, ignored)
    theirs = value_and_gradients(reference_loss, arguments, smoothing, towards)
    with pytest.MonkeyPatch.context() as patch:
        limit_rows(patch, rows, v)
        ours = value_and_gradients(loss_sum, arguments, smoothing, towards)
    for found, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5 * max(1.0, abs(towards)))


@pytest.mark.parametrize("rows", [2, 1_000])
def test_ignored_targets_get_no_gradient(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_rows(monkeypatch, rows, 11)
    hidden, weight, bias, labels = inputs(9, 4, 11, bias=True, ignored=0.0)
    labels[[0, 4, 8]] = IGNORED_TARGET
    _, d_hidden, _, _ = value_and_gradients(loss_sum, (hidden, weight, bias, labels), 0.1)
    assert (d_hidden.abs().sum(1) == 0).tolist() == (labels == IGNORED_TARGET).tolist()
    labels[:] = IGNORED_TARGET
    found = value_and_gradients(loss_sum, (hidden, weight, bias, labels), 0.1)
    assert all((x == 0).all() for x in found)
    assert [x.shape for x in found[1:]] == [x.shape for x in (hidden, weight, bias) if x is not None]


def test_a_piece_on_a_gpu_skips_ignored_rows() -> None:
    """On a GPU ignored rows are not removed first: their losses and gradients must be 0 within a piece."""
    logits, labels = torch.randn(6, 10), torch.tensor([3, IGNORED_TARGET, 0, 9, IGNORED_TARGET, 9])
    given_logits = logits.clone().requires_grad_()
    right = F.cross_entropy(given_logits, labels, reduction="none", ignore_index=IGNORED_TARGET, label_smoothing=0.2)
    (right_gradient,) = torch.autograd.grad(right.sum(), given_logits)
    losses = losses_and_gradients(logits, labels, 0.2)
    torch.testing.assert_close(losses, right.detach())
    torch.testing.assert_close(logits, right_gradient)
    assert (logits[[1, 4]] == 0).all()


def test_gradients_of_many_pieces_are_summed_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred pieces, each too small to change the sum in bfloat16: without float32 the sum would stop growing."""
    n, c, v = 2_000, 4, 3
    limit_rows(monkeypatch, 10, v)
    hidden = torch.ones(n, c, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.zeros(v, c, dtype=torch.bfloat16, requires_grad=True)
    bias = torch.zeros(v, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.zeros(n, dtype=torch.int64)
    total, d_hidden, d_weight, d_bias = value_and_gradients(loss_sum, (hidden, weight, bias, labels), 0.0)
    assert total.dtype == torch.float32
    assert {x.dtype for x in (d_hidden, d_weight, d_bias)} == {torch.bfloat16}
    wanted = torch.tensor([-2 / 3, 1 / 3, 1 / 3]) * n
    torch.testing.assert_close(d_weight.float(), wanted[:, None].expand(v, c), rtol=0.01, atol=0)
    torch.testing.assert_close(d_bias.float(), wanted, rtol=0.01, atol=0)
    assert total.item() == pytest.approx(n * 1.0986, rel=1e-3)


@pytest.mark.parametrize("rows", [16, 1_000])
def test_the_bfloat16_loss_is_close(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_rows(monkeypatch, rows, 40)
    arguments = inputs(64, 16, 40, bias=True)
    rounded = convert(arguments, torch.bfloat16)
    exact = convert(rounded, torch.float64)
    theirs = value_and_gradients(reference_loss, exact, 0.1)
    ours = value_and_gradients(loss_sum, rounded, 0.1)
    for found, right in zip(ours, theirs, strict=True):
        assert (found.double() - right).abs().max() <= 0.02 * right.abs().max()


def test_without_gradients_none_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = inputs(20, 5, 30, bias=True)
    right = reference_loss(*arguments, 0.1).detach()
    products: list[object] = []
    monkeypatch.setattr(torch, "mm", lambda *a, **k: products.append(a))  # noqa: ARG005
    with torch.inference_mode():
        total = loss_sum(*arguments, 0.1)
    torch.testing.assert_close(total, right)
    assert not products
    assert not total.requires_grad
    hidden, weight, _, labels = arguments
    assert not loss_sum(hidden.detach(), weight.detach(), None, labels, 0.1).requires_grad


def test_hidden_states_without_gradients_are_supported() -> None:
    hidden, weight, _, labels = inputs(8, 3, 6, bias=False)
    theirs = value_and_gradients(reference_loss, (hidden.detach(), weight, None, labels), 0.0)
    ours = value_and_gradients(loss_sum, (hidden.detach(), weight, None, labels), 0.0)
    for found, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)


def test_an_excluded_last_row_gets_no_gradient() -> None:
    """The output layer of models with Regard's own tokenizers: all ids except <pad>."""
    hidden, weight, _, labels = inputs(12, 4, 9, bias=False)
    labels = labels.where(labels < 8, 0)
    found = []
    for function in (reference_loss, loss_sum):
        weight.grad = None
        function(hidden, weight[:-1], None, labels, 0.1).backward()
        found.append(gradient(weight))
    theirs, ours = found
    assert (ours[-1] == 0).all()
    assert (ours[:-1] != 0).any(1).all()
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


class Largest(TorchDispatchMode):
    """Records the largest number of elements in one tensor."""

    most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.most = max(self.most, tensor.numel())
        return out


def test_the_logits_are_never_all_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    n, c, v, rows = 256, 8, 128, 16
    limit_rows(monkeypatch, rows, v)
    arguments = inputs(n, c, v, bias=True, ignored=0.0)
    with Largest() as naive:
        reference_loss(*arguments, 0.1).backward()
    assert naive.most >= n * v  # the measurement itself works
    with Largest() as ours:
        loss_sum(*arguments, 0.1).backward()
    assert ours.most <= max(rows * v, n * c)


@given(v=st.integers(1, 2**26), n=st.integers(0, 5))
def test_at_least_one_row_is_computed_at_a_time(v: int, n: int) -> None:
    weight = torch.empty(v, 0)
    rows = rows_at_once(torch.empty(n, 0), weight)
    assert rows >= 1
    assert rows == 1 or rows * v <= module.MAX_CPU_LOGITS


# The objective: the network and its loss

NETWORKS: dict[str, tuple[dict[str, Any], Callable[[], Batches]]] = {
    "padded": ({}, lambda: lay.translation_batches(DATA, END, PAD, 128)),
    "packed": ({}, lambda: lay.packed_translation_batches(DATA, END, PAD, 128, row=32)),
    "decoder": ({"kind": "decoder"}, lambda: lay.decoder_translation_batches(DATA, END, SEP, PAD, 128)),
    "prefix": (
        {"kind": "decoder", "prefix": True},
        lambda: lay.decoder_translation_batches(DATA, END, SEP, PAD, 128, prefix=True),
    ),
    "packed prefix": (
        {"kind": "decoder", "prefix": True, "positions": "rotary"},
        lambda: lay.packed_decoder_translation_batches(DATA, END, SEP, PAD, 128, row=64, prefix=True),
    ),
    "language": ({"kind": "decoder", "output_bias": True}, lambda: language_block_batches(TEXT, END, 16, 128)),
    "classification": (
        {"kind": "encoder", "classes": 3},
        lambda: lay.classification_batches(CLASSES, END, PAD, 128),
    ),
    "masked": (
        {"kind": "encoder", "output_transform": True, "output_bias": True},
        lambda: lay.masked_batches(TEXT, END, PAD, MASKING, 128),
    ),
    "packed masked": ({"kind": "encoder"}, lambda: lay.packed_masked_batches(TEXT, END, PAD, MASKING, 128, row=32)),
}


def network_and_batch(name: str) -> tuple[Network, Batch]:
    changes, batches = NETWORKS[name]
    network = build(small(vocab_size=100, pad=-1, max_length=64, **changes))
    with torch.no_grad():
        for each in network.parameters():
            if each.dim() == 1:
                each.add_(torch.randn_like(each) / 5)
    return network, next(batches().epoch(0))


def logits_of(network: Network, batch: Batch) -> Tensor:
    """Call the network as users do: [N, V]."""
    if batch.source is not None:
        logits = network(batch.source, batch.tokens, batch.source_lengths, batch.lengths)
    elif batch.prefix is not None:
        logits = network(batch.tokens, batch.lengths, batch.prefix)
    else:
        logits = network(batch.tokens, batch.lengths)
    return logits.reshape(-1, logits.size(-1))


def loss_from_logits(network: Network, batch: Batch, smoothing: float) -> Tensor:
    return F.cross_entropy(
        logits_of(network, batch),
        batch.labels.flatten(),
        reduction="sum",
        ignore_index=IGNORED_TARGET,
        label_smoothing=smoothing,
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_objective_equals_the_cross_entropy_of_the_network(name: str, smoothing: float) -> None:
    network, batch = network_and_batch(name)
    if name == "classification":  # as a rank's share of a batch with fewer rows than ranks
        labels = batch.labels.clone()
        labels[0] = IGNORED_TARGET
        batch = replace(batch, labels=labels)
    found = []
    for total in (loss_from_logits(network, batch, smoothing), Objective(network, smoothing)(batch)):
        network.zero_grad()
        total.backward()
        found.append([total.detach(), *(gradient(each).clone() for each in network.parameters())])
    for ours, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-4)


@pytest.mark.slow
def test_packed_and_padded_pairs_have_the_same_gradients() -> None:
    """Over a complete epoch: a sentence counts the same, whatever is packed next to it."""
    network, _ = network_and_batch("padded")
    found = []
    for name in ("padded", "packed"):
        network.zero_grad()
        total = torch.zeros(())
        for batch in NETWORKS[name][1]().epoch(0):
            part = Objective(network, 0.1)(batch)
            part.backward()
            total += part.detach()
        found.append([total, *(gradient(each).clone() for each in network.parameters())])
    for packed, padded in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(packed, padded, rtol=1e-3, atol=5e-3)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "classification"])
def test_r_drop_penalises_disagreement_between_two_passes(name: str) -> None:
    """R-Drop's loss with PyTorch's own divergence in both directions; without dropout it is zero."""
    network, batch = network_and_batch(name)
    torch.testing.assert_close(Objective(network, 0.1, consistency=5.0)(batch), Objective(network, 0.1)(batch))
    network = build(replace(network.config, dropout=0.3)).train()
    torch.manual_seed(7)
    found = Objective(network, 0.1, consistency=5.0)(batch)
    torch.manual_seed(7)
    counted = batch.labels.flatten() != IGNORED_TARGET
    one, other = (half[counted].log_softmax(-1) for half in logits_of(network, batch.twice()).chunk(2))
    losses = [
        F.cross_entropy(half, batch.labels.flatten()[counted], reduction="sum", label_smoothing=0.1)
        for half in (one, other)
    ]
    apart = [F.kl_div(a, b, reduction="sum", log_target=True) for a, b in ((one, other), (other, one))]
    assert apart[0] > 0
    torch.testing.assert_close(found, sum(losses) / 2 + 5 / 2 * sum(apart) / 2)


def test_a_batch_without_targets_changes_nothing() -> None:
    for name in NETWORKS:
        network, batch = network_and_batch(name)
        total = Objective(network, 0.1)(replace(batch, labels=torch.full_like(batch.labels, IGNORED_TARGET)))
        total.backward()
        assert total.item() == 0
        assert all(each.grad is None or (each.grad == 0).all() for each in network.parameters())


def test_float16_gradients_do_not_overflow_while_summing() -> None:
    """A sum over thousands of tokens, which only the division by their number brings back into range."""
    tokens = 4_096
    hidden = torch.full((tokens, 4), 20.0, dtype=torch.float16, requires_grad=True)
    weight = torch.zeros(8, 4, dtype=torch.float16, requires_grad=True)
    total = loss_sum(hidden, weight, None, torch.zeros(tokens, dtype=torch.long))
    (total / tokens).backward()
    assert weight.grad is not None
    wanted = torch.full((8, 4), 20 / 8)
    wanted[0] -= 20
    torch.testing.assert_close(weight.grad.float(), wanted, rtol=2e-3, atol=0)
