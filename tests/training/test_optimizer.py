"""Adam on float32 weights: compared step by step with PyTorch's own, and safe against non-finite updates."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.training import optimizer as module
from regard.training.optimizer import Optimizer
from regard.training.recipe import TrainSection
from tests.support.oracles import gradient


def small_network(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Tanh(), nn.Linear(7, 2))
    return network.to(dtype)


def random_batch(step: int, rows: int = 6) -> tuple[Tensor, Tensor]:
    chance = torch.Generator().manual_seed(step)
    return torch.randn(rows, 5, generator=chance), torch.randn(rows, 2, generator=chance)


def compute_loss(network: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    dtype = next(network.parameters()).dtype
    return F.mse_loss(network(batch[0].to(dtype)).float(), batch[1])


def take_step(optimizer: Optimizer, network: nn.Module, number: int, lr: float = 1e-2) -> tuple[Tensor, Tensor]:
    """Take one step as training does."""
    optimizer.set_learning_rate(lr)
    loss = compute_loss(network, random_batch(number))
    (loss * optimizer.loss_scale).backward()
    optimizer.collect_gradients()
    return optimizer.update(loss.detach())


def full_state(optimizer: Optimizer) -> dict[str, Tensor]:
    """Return a copy of everything that an update may change."""
    found = {f"weight.{name}": x for name, x in optimizer.named_weights().items()}
    found |= {f"parameter.{i}": x for i, x in enumerate(optimizer.parameters)} | optimizer.state()
    return {name: x.detach().clone() for name, x in found.items()}


def poison(network: nn.Module, value: float) -> None:
    """Make one gradient non-finite."""
    gradient(next(network.parameters()))[0, 0] = value


@pytest.mark.parametrize("clip", [0.0, 0.05, 1e6])
@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_updates_equal_pytorchs_own(kind: Any, clip: float) -> None:
    train = TrainSection(optimizer=kind, clip=clip, weight_decay=0.3, beta1=0.8, beta2=0.95, eps=1e-7)
    network = small_network()
    other = copy.deepcopy(network)
    matrices = [each for each in other.parameters() if each.dim() == 2]
    vectors = [each for each in other.parameters() if each.dim() == 1]
    theirs: torch.optim.Optimizer
    if kind == "adamw":
        groups = [{"params": matrices, "weight_decay": 0.3}, {"params": vectors, "weight_decay": 0.0}]
        theirs = torch.optim.AdamW(groups, betas=(0.8, 0.95), eps=1e-7)
    else:
        theirs = torch.optim.Adam(other.parameters(), betas=(0.8, 0.95), eps=1e-7)
    ours = Optimizer(network, train)
    clipped = 0
    for number in range(1, 21):
        lr = 0.02 / number
        norm, bad = take_step(ours, network, number, lr)
        for group in theirs.param_groups:
            group["lr"] = lr
        theirs.zero_grad()
        compute_loss(other, random_batch(number)).backward()
        their_norm = nn.utils.clip_grad_norm_(other.parameters(), clip or float("inf"))
        clipped += bool(clip and their_norm > clip)
        theirs.step()
        assert bad == 0
        torch.testing.assert_close(norm, their_norm)
        for found, right in zip(network.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(found, right, rtol=1e-4, atol=2e-6)
    assert clipped == (20 if clip == 0.05 else 0)


def test_weight_decay_is_adamws_and_only_for_matrices() -> None:
    """With zero gradients only weight decay changes the weights."""
    for kind, shrinks in (("adam", False), ("adamw", True)):
        network = small_network()
        before = [each.detach().clone() for each in network.parameters()]
        optimizer = Optimizer(network, TrainSection(optimizer=kind, weight_decay=0.5))  # type: ignore[arg-type]
        optimizer.set_learning_rate(0.1)
        for each in network.parameters():
            each.grad = torch.zeros_like(each)
        optimizer.collect_gradients()
        optimizer.update(torch.zeros(()))
        for now, then in zip(network.parameters(), before, strict=True):
            factor = 0.95 if shrinks and then.dim() == 2 else 1.0
            torch.testing.assert_close(now.detach(), then * factor)


def test_small_updates_do_not_vanish_in_bfloat16() -> None:
    """Weights of 1 and steps of 1e-4: bfloat16 has no value between 1 and 0.996, float32 has."""

    def network_of_ones() -> nn.Linear:
        network = nn.Linear(4, 4, bias=False).bfloat16()
        nn.init.ones_(network.weight)
        return network

    network = network_of_ones()
    optimizer = Optimizer(network, TrainSection())
    plain = network_of_ones()
    adam = torch.optim.Adam(plain.parameters(), lr=1e-4)
    for _ in range(100):
        optimizer.set_learning_rate(1e-4)
        for each in (network, plain):
            each(torch.ones(1, 4, dtype=torch.bfloat16)).sum().backward()
        optimizer.collect_gradients()
        optimizer.update(torch.zeros(()))
        adam.step()
        adam.zero_grad()
    assert (plain.weight == 1).all()  # the control: here they vanish
    (weight,) = optimizer.named_weights().values()
    assert weight.dtype == torch.float32
    torch.testing.assert_close(weight, torch.full((4, 4), 0.99), rtol=0, atol=1e-5)
    assert network.weight.dtype == torch.bfloat16
    assert torch.equal(network.weight, weight.bfloat16())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_accumulated_parts_equal_one_batch(dtype: torch.dtype) -> None:
    x, y = random_batch(0, rows=12)
    weights = []
    for parts in (1, 4):
        network = small_network(dtype)
        optimizer = Optimizer(network, TrainSection())
        for _ in range(3):
            optimizer.set_learning_rate(0.01)
            for rows in torch.arange(12).chunk(parts):
                (compute_loss(network, (x[rows], y[rows])) / parts).backward()
                optimizer.collect_gradients()
            optimizer.update(torch.zeros(()))
        weights.append(list(optimizer.weights))
    tolerance = 1e-6 if dtype == torch.float32 else 3e-3
    for parted, whole in zip(*weights, strict=True):
        torch.testing.assert_close(parted, whole, rtol=0, atol=tolerance)


def test_parts_are_summed_in_float32() -> None:
    """256 and then ones: in bfloat16 the sum would not change."""
    network = nn.Linear(1, 1, bias=False).bfloat16()
    optimizer = Optimizer(network, TrainSection())
    for value in (256.0, *[1.0] * 100):
        network.weight.grad = torch.full_like(network.weight, value)
        optimizer.collect_gradients()
        assert network.weight.grad is None
    assert gradient(optimizer.weights[0]).item() == 356
    norm, _ = optimizer.update(torch.zeros(()))
    assert norm == 356


@pytest.mark.parametrize("clip", [0.0, 1.0])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_non_finite_updates_change_nothing(dtype: torch.dtype, value: float | None, clip: float) -> None:
    """Weights, moments and step count are unchanged; the next update is unaffected."""
    runs = []
    for spoilt in (False, True):
        network = small_network(dtype)
        optimizer = Optimizer(network, TrainSection(clip=clip, optimizer="adamw", weight_decay=0.1))
        for number in range(3):
            assert take_step(optimizer, network, number)[1] == 0
        if spoilt:
            before = full_state(optimizer)
            loss = compute_loss(network, random_batch(9))
            loss.backward()
            if value is not None:
                poison(network, value)
            optimizer.collect_gradients()
            norm, bad = optimizer.update(loss.detach() if value is not None else torch.tensor(float("nan")))
            assert bad == 1.0
            assert bool(norm.isfinite()) == (value is None)
            after = full_state(optimizer)
            assert before.keys() == after.keys()
            assert all(torch.equal(before[name], after[name]) for name in before)
            assert all(each.grad is None for each in (*optimizer.parameters, *optimizer.weights))
        assert take_step(optimizer, network, 4)[1] == 0
        runs.append(full_state(optimizer))
    assert all(torch.equal(runs[0][name], runs[1][name]) for name in runs[0])
    assert runs[1]["step.0.weight"] == 4


def test_a_skipped_first_update_leaves_a_fresh_optimizer() -> None:
    network = small_network()
    optimizer = Optimizer(network, TrainSection())
    before = [each.detach().clone() for each in network.parameters()]
    optimizer.set_learning_rate(0.1)
    compute_loss(network, random_batch(0)).backward()
    poison(network, float("nan"))
    optimizer.collect_gradients()
    assert optimizer.update(torch.zeros(()))[1] == 1.0
    assert all(map(torch.equal, before, network.parameters()))
    assert {float(x) for name, x in optimizer.state().items() if name.startswith("step.")} <= {0.0}


def test_float16_scales_the_loss_and_unscales_the_gradients() -> None:
    """The norm and the update are those of the unscaled gradient."""
    found = []
    for scale in (1.0, 1024.0):
        network = small_network(torch.float16)
        optimizer = Optimizer(network, TrainSection())
        assert optimizer.loss_scale == 2**16
        optimizer.loss_scale.fill_(scale)
        norms = [take_step(optimizer, network, number)[0] for number in range(5)]
        found.append((torch.stack(norms), torch.cat([each.flatten() for each in optimizer.weights])))
    torch.testing.assert_close(found[1][0], found[0][0], rtol=5e-3, atol=0)
    torch.testing.assert_close(found[1][1], found[0][1], rtol=0, atol=2e-3)
    full = small_network()
    exact = Optimizer(full, TrainSection())
    right = torch.stack([take_step(exact, full, number)[0] for number in range(5)])
    torch.testing.assert_close(found[1][0], right, rtol=2e-2, atol=0)


def test_float16_gradients_are_clipped_after_unscaling() -> None:
    """Clipped to a hundredth, by the norm of the unscaled gradient."""
    network = nn.Linear(1, 2, bias=False).half()
    optimizer = Optimizer(network, TrainSection(clip=0.05, eps=0.05, beta1=0.0, beta2=0.0))
    before = optimizer.weights[0].clone()
    optimizer.set_learning_rate(1.0)
    network.weight.grad = torch.tensor([[3.0], [4.0]]).half() * 2**10
    optimizer.loss_scale.fill_(2**10)
    optimizer.collect_gradients()
    norm, _ = optimizer.update(torch.zeros(()))
    assert norm == 5
    clipped = torch.tensor([[0.03], [0.04]])  # with both betas 0 Adam's step is g / (|g| + eps)
    torch.testing.assert_close(before - optimizer.weights[0], clipped / (clipped + 0.05), rtol=1e-4, atol=1e-5)


def test_the_scale_halves_on_overflow_and_grows_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROWTH_INTERVAL", 3)
    network = small_network(torch.float16)
    optimizer = Optimizer(network, TrainSection())
    optimizer.loss_scale.fill_(256.0)
    scales = []
    for number, spoilt in enumerate([False, True, True, False, False, True, False, False, False, False]):
        before = [each.clone() for each in optimizer.weights]
        optimizer.set_learning_rate(1e-3)
        loss = compute_loss(network, random_batch(number))
        (loss * optimizer.loss_scale).backward()
        if spoilt:
            poison(network, float("inf"))
        optimizer.collect_gradients()
        bad = optimizer.update(loss.detach())[1]
        assert bad == float(spoilt)
        assert all(map(torch.equal, before, optimizer.weights)) == spoilt
        scales.append(float(optimizer.loss_scale))
    assert scales == [256, 128, 64, 64, 64, 32, 32, 32, 64, 64]


def test_training_recovers_from_a_float16_overflow() -> None:
    """A real overflow: 2^16 times the loss has gradients beyond 65,504."""
    network = small_network(torch.float16)
    optimizer = Optimizer(network, TrainSection())
    found = []
    for number in range(12):
        optimizer.set_learning_rate(1e-3)
        loss = 30 * compute_loss(network, random_batch(number))
        (loss * optimizer.loss_scale).backward()
        optimizer.collect_gradients()
        found.append(bool(optimizer.update(loss.detach())[1]))
    assert found[0]
    assert not found[-1]
    assert optimizer.loss_scale == 2.0 ** (16 - sum(found))
    assert all(each.isfinite().all() for each in optimizer.weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_state_round_trips_completely(dtype: torch.dtype) -> None:
    train = TrainSection(optimizer="adamw", weight_decay=0.1, clip=0.5)
    network = small_network(dtype)
    optimizer = Optimizer(network, train)
    if dtype == torch.float16:
        optimizer.loss_scale.fill_(64.0)
    for number in range(4):
        take_step(optimizer, network, number)
    weights = {name: x.detach().clone() for name, x in optimizer.named_weights().items()}
    state = {name: x.clone() for name, x in optimizer.state().items()}
    assert {name.split(".")[0] for name in state} - {"growth"} == {"scale", "step", "exp_avg", "exp_avg_sq"}
    for number in range(4, 8):
        take_step(optimizer, network, number)
    other = small_network(dtype)
    for each in other.parameters():
        nn.init.zeros_(each)
    again = Optimizer(other, train)
    again.load(weights, state)
    for number in range(4, 8):
        take_step(again, other, number)
    one, two = full_state(optimizer), full_state(again)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_weights_without_gradients_are_unchanged() -> None:
    network = small_network()
    optimizer = Optimizer(network, TrainSection())
    optimizer.set_learning_rate(0.1)
    before = [each.detach().clone() for each in network.parameters()]
    first = next(network.parameters())
    first.grad = torch.ones_like(first)
    optimizer.collect_gradients()
    norm, bad = optimizer.update(torch.zeros(()))
    assert norm.item() == pytest.approx(35**0.5)
    assert bad == 0
    changed = [not torch.equal(now, then) for now, then in zip(network.parameters(), before, strict=True)]
    assert changed == [True, *[False] * (len(before) - 1)]


def test_the_scale_of_another_type_is_not_loaded() -> None:
    single = Optimizer(torch.nn.Linear(3, 2), TrainSection())
    half = Optimizer(torch.nn.Linear(3, 2).half(), TrainSection())
    assert half.loss_scale == 2.0**16
    half.load(single.named_weights(), single.state())
    assert half.loss_scale == 2.0**16
    single.load(half.named_weights(), half.state())
    assert single.loss_scale == 1


def test_partially_created_moments_are_created_again(monkeypatch: pytest.MonkeyPatch) -> None:
    network = torch.nn.Linear(3, 2)
    optimizer = Optimizer(network, TrainSection())
    optimizer.set_learning_rate(0.1)
    plain, calls = torch.zeros_like, [0]

    def scarce(*args: Any, **options: Any) -> Tensor:
        calls[0] += 1
        if calls[0] == 2:
            raise torch.OutOfMemoryError("no memory is left")
        return plain(*args, **options)

    network(torch.ones(1, 3)).sum().backward()
    monkeypatch.setattr(torch, "zeros_like", scarce)
    with pytest.raises(torch.OutOfMemoryError):
        optimizer.update(torch.tensor(1.0))
    monkeypatch.undo()
    optimizer.discard_partial_step()
    before = network.weight.detach().clone()
    network(torch.ones(1, 3)).sum().backward()
    optimizer.update(torch.tensor(1.0))
    torch.testing.assert_close(network.weight, before - 0.1)
