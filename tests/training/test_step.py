"""One update that fits in memory; background batches; step statistics; the diagnosis of non-finite updates."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.data import batches as lay
from regard.data.batches import IGNORED_TARGET, Batch, Batches
from regard.model.transformer import Network, build
from regard.training import prefetch as feed_module
from regard.training.device import choose_device
from regard.training.divergence import diagnose
from regard.training.objective import Objective
from regard.training.optimizer import Optimizer
from regard.training.parallel import Ranks
from regard.training.prefetch import BatchPrefetcher, PrefetchedBatch
from regard.training.recipe import TrainSection
from regard.training.step import StepRunner
from regard.training.step_metrics import StepMeter
from regard.training.train import update_weights
from tests.support.batches import DATA, END, PAD, TASKS, same_batch
from tests.support.oracles import small

CPU = torch.device("cpu")


def small_network(**changes: Any) -> Network:
    torch.manual_seed(1)
    return build(small(vocab_size=100, pad=-1, layers=1, norm="pre", **changes))


def unequal_batches() -> list[Batch]:
    """Return padded batches of unequal size."""
    found = sorted(lay.translation_batches(DATA, END, PAD, 96).epoch(0), key=lambda batch: len(batch.tokens))
    return [found[-1], found[0], found[len(found) // 2]]


class LimitedMemory(nn.Module):
    """An objective that runs out of memory above `most` rows, in the forward or the backward pass."""

    def __init__(self, network: Network, most: int, when: str) -> None:
        super().__init__()
        self.objective, self.most, self.when = Objective(network, 0.1), most, when
        self.refused = 0

    def forward(self, batch: Batch) -> Tensor:
        total: Tensor = self.objective(batch)
        if len(batch.tokens) <= self.most:
            return total
        self.refused += 1
        if self.when == "forward":
            raise torch.OutOfMemoryError("too much")
        embedding = self.objective.network.embedding.tokens.weight
        return total + _OutOfMemory.apply(embedding.flatten()[:1])[0]


class _OutOfMemory(torch.autograd.Function):
    """The identity in the forward pass; out of memory in the backward pass."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x * 0

    @staticmethod
    def backward(_ctx: Any, _gradient: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("too much on the way back")


def make_stepper(network: Network, objective: nn.Module | None = None, **settings: Any) -> StepRunner:
    return StepRunner(
        update_weights, objective or Objective(network, 0.1), Optimizer(network, TrainSection(**settings)), CPU, Ranks()
    )


def targets_of(batches: list[Batch]) -> float:
    return float(sum(batch.targets for batch in batches))


def same_weights(one: nn.Module, other: nn.Module, tolerance: float = 1e-6) -> None:
    for found, right in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, right, rtol=0, atol=tolerance)


def test_the_gradient_is_the_mean_over_all_targets() -> None:
    """With batches of unequal size, each target counts the same, not each batch."""
    batches = unequal_batches()
    assert len({batch.targets for batch in batches}) == 3
    network, other = small_network(), small_network()
    stepper = make_stepper(network, eps=1.0)  # so that Adam's step depends on the gradient's size, not only on its sign
    loss, norm, bad = stepper.step(batches, 0.1, targets_of(batches))
    objective = Objective(other, 0.1)
    mean = torch.stack([objective(batch) for batch in batches]).sum() / targets_of(batches)
    mean.backward()
    adam = torch.optim.Adam(other.parameters(), lr=0.1, betas=(0.9, 0.98), eps=1.0)
    right = nn.utils.get_total_norm([each.grad for each in other.parameters() if each.grad is not None])
    adam.step()
    assert loss.item() == pytest.approx(mean.item() * targets_of(batches), rel=1e-5)
    torch.testing.assert_close(norm, right)
    assert bad == 0
    same_weights(network, other)


@pytest.mark.parametrize("when", ["forward", "backward"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.slow
def test_a_batch_that_does_not_fit_is_split(when: str, dtype: torch.dtype) -> None:
    """Also when some of its gradients already exist: they must not count twice."""
    batches = unequal_batches()
    rows = max(len(batch.tokens) for batch in batches)
    assert rows >= 8
    results = []
    for most in (rows, rows // 4):
        network = small_network().to(dtype)
        tight = LimitedMemory(network, most, when)
        stepper = make_stepper(network, tight, eps=1e-3)
        # The small ones first: their gradients are already accumulated when the large one fails.
        order = sorted(batches, key=lambda batch: len(batch.tokens))
        results.append((stepper.step(order, 0.1, targets_of(batches)), stepper, tight))
    (whole, before, roomy), (parted, after, tight) = results
    assert (before.pieces, roomy.refused) == (1, 0)
    assert after.pieces in (4, 8)
    assert tight.refused == {4: 2, 8: 3}[after.pieces]
    tolerance = 1e-6 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(parted, whole, rtol=1e-5 if dtype == torch.float32 else 2e-2, atol=1e-6)
    for found, right in zip(after.optimizer.weights, before.optimizer.weights, strict=True):
        torch.testing.assert_close(found, right, rtol=0, atol=tolerance)
    steps = {float(x) for name, x in after.optimizer.state().items() if name.startswith("step.")}
    assert steps == {1.0}


def test_a_split_batch_size_stays_split() -> None:
    batches = unequal_batches()[:1]
    network = small_network()
    tight = LimitedMemory(network, len(batches[0].tokens) // 2 + 1, "forward")
    stepper = make_stepper(network, tight)
    for _ in range(3):
        stepper.step(batches, 0.1, targets_of(batches))
    assert (stepper.pieces, tight.refused) == (2, 1)


@pytest.mark.parametrize("when", ["forward", "backward"])
def test_single_rows_that_do_not_fit_are_an_error(when: str) -> None:
    batches = unequal_batches()
    network = small_network()
    before = [each.detach().clone() for each in network.parameters()]
    rows, tokens = batches[0].tokens.shape
    stepper = make_stepper(network, LimitedMemory(network, 0, when))
    with pytest.raises(ValueError, match=rf"a batch of {rows} rows × {tokens} tokens .* even row by row: lower train"):
        stepper.step(batches, 0.1, targets_of(batches))
    assert stepper.pieces >= rows  # it was attempted
    assert all(map(torch.equal, before, network.parameters()))


def test_packed_rows_are_split_too() -> None:
    batch = next(lay.packed_translation_batches(DATA, END, PAD, 128, row=32).epoch(0))
    results = []
    for most in (4, 1):
        network = small_network()
        stepper = make_stepper(network, LimitedMemory(network, most, "forward"), eps=1e-3)
        results.append((stepper.step([batch], 0.1, targets_of([batch])), network))
    torch.testing.assert_close(results[1][0], results[0][0], rtol=1e-5, atol=1e-6)
    same_weights(results[1][1], results[0][1])


def test_a_non_finite_update_is_reported_and_skipped() -> None:
    batches = unequal_batches()
    network = small_network()
    with torch.no_grad():
        network.get_parameter("decoder.layers.0.feed_forward.up.weight")[0, 0] = float("inf")
    before = [each.detach().clone() for each in network.parameters()]
    found = make_stepper(network).step(batches, 0.1, targets_of(batches))
    assert found[2] == 1
    assert all(map(torch.equal, before, network.parameters()))


def test_a_batch_without_targets_is_an_empty_step() -> None:
    batch = unequal_batches()[0]
    empty = replace(batch, labels=torch.full_like(batch.labels, IGNORED_TARGET))
    network = small_network()
    before = [each.detach().clone() for each in network.parameters()]
    assert make_stepper(network).step([empty], 0.1, 0.0).tolist() == [0, 0, 0]
    assert all(map(torch.equal, before, network.parameters()))


# Background batches


def take_batches(feed: BatchPrefetcher, count: int) -> list[PrefetchedBatch]:
    batches = iter(feed)
    return [next(batches) for _ in range(count)]


@pytest.mark.parametrize("name", ["translation", "packed rows", "blocks"])
@pytest.mark.slow
def test_batches_are_in_order_across_epochs(name: str) -> None:
    batches = TASKS[name]()
    wanted = [
        (batch, epoch, index) for epoch in range(3) for index, batch in enumerate(TASKS[name]().epoch(epoch), start=1)
    ]
    assert len(wanted) > 3 * 3
    with BatchPrefetcher(batches, 0, 0, CPU) as feed:
        found = take_batches(feed, len(wanted))
    assert [(fed.epoch, fed.next_batch) for fed in found] == [(epoch, index) for _, epoch, index in wanted]
    assert all(same_batch(fed.batch, batch) for fed, (batch, _, _) in zip(found, wanted, strict=True))


@pytest.mark.slow
def test_batches_resume_from_any_position() -> None:
    """Every reported position can be resumed from: the first, within an epoch, and the end of one."""
    with BatchPrefetcher(TASKS["translation"](), 0, 0, CPU) as feed:
        whole = take_batches(feed, 2 * len(list(TASKS["translation"]().epoch(0))) + 2)
    length = len(list(TASKS["translation"]().epoch(0)))
    for cut in (1, length // 2, length - 1, length, length + 1):
        place = whole[cut - 1]
        with BatchPrefetcher(TASKS["translation"](), place.epoch, place.next_batch, CPU) as feed:
            rest = take_batches(feed, len(whole) - cut)
        assert [(fed.epoch, fed.next_batch) for fed in rest] == [(fed.epoch, fed.next_batch) for fed in whole[cut:]]
        assert all(same_batch(one.batch, two.batch) for one, two in zip(rest, whole[cut:], strict=True))


def test_a_cpu_run_pins_no_memory_on_a_machine_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Tensor) -> Tensor:
        raise AssertionError("pinning memory opens a CUDA context")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(Tensor, "pin_memory", refuse)
    with BatchPrefetcher(TASKS["translation"](), 0, 0, CPU) as feed:
        take_batches(feed, 2)


def failing_batches(after: int, failed: threading.Event | None = None) -> Batches:
    """Return batches of which one cannot be made; `failed` is set when it is attempted."""
    good = TASKS["translation"]()
    made = iter(range(10_000))

    def make(items: Any) -> Batch:
        if next(made) == after:
            if failed is not None:
                failed.set()
            raise OSError("the disk has gone")
        return good.make(items)

    return Batches(good.plan, make)


def ended(thread: threading.Thread) -> bool:
    return not thread.is_alive()


def test_errors_in_the_thread_are_raised_in_the_caller() -> None:
    with BatchPrefetcher(failing_batches(after=2), 0, 0, CPU) as feed:
        batches = iter(feed)
        assert [next(batches).next_batch for _ in range(2)] == [1, 2]
        with pytest.raises(OSError, match="the disk has gone"):
            next(batches)
    assert ended(feed.thread)


HANG_SECONDS = 60
"""Time after which a thread counts as hanging."""


def wait_until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < limit, "it does not get there"
        time.sleep(0.001)


@pytest.mark.parametrize("taken", [0, 1])
def test_the_thread_ends_while_batches_are_queued(taken: int) -> None:
    with BatchPrefetcher(TASKS["translation"](), 0, 0, CPU) as feed:
        take_batches(feed, taken)
        wait_until(feed.queue.full)
    assert ended(feed.thread)


def test_the_thread_ends_when_its_user_fails() -> None:
    with pytest.raises(KeyboardInterrupt), BatchPrefetcher(TASKS["translation"](), 0, 0, CPU) as feed:
        raise KeyboardInterrupt
    assert ended(feed.thread)


def test_an_error_does_not_wait_for_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue is full when making a batch fails, and nobody reads from it any more."""
    monkeypatch.setattr(feed_module, "QUEUE_LENGTH", 1)
    failed = threading.Event()
    with BatchPrefetcher(failing_batches(after=1, failed=failed), 0, 0, CPU) as feed:
        assert failed.wait(HANG_SECONDS)
    assert ended(feed.thread)


def test_the_queue_length_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever a batch is made, every earlier one is in the queue or was taken."""
    monkeypatch.setattr(feed_module, "QUEUE_LENGTH", 2)
    good = TASKS["translation"]()
    waiting: list[int] = []
    taken = 0

    def make(items: Any) -> Batch:
        waiting.append(len(waiting) - taken)  # made before, and not taken
        return good.make(items)

    with BatchPrefetcher(Batches(good.plan, make), 0, 0, CPU) as feed:
        batches = iter(feed)
        for _ in range(6):
            wait_until(feed.queue.full)
            taken += 1
            next(batches)
        wait_until(feed.queue.full)
    assert len(waiting) in (6 + 2, 6 + 3)  # one may be in progress
    assert max(waiting) == 2


# Step statistics


def manual_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Time that passes only when requested."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def passes(seconds: float) -> None:
        now[0] += seconds

    return passes


def test_the_meter_averages_over_targets_and_skips_bad_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = manual_clock(monkeypatch)
    meter = StepMeter(CPU)
    passes(2.0)
    meter.add(1, torch.tensor([30.0, 1.0, 0.0]), 10.0, 500.0)
    meter.add(2, torch.tensor([float("nan"), 5.0, 1.0]), 4.0, 500.0)
    meter.add(3, torch.tensor([10.0, 2.0, 0.0]), 30.0, 1_000.0)
    assert meter.full
    assert meter.read() == [(1, False), (2, True), (3, False)]
    assert meter.read() == []
    meter.pause()
    passes(100.0)  # validation
    meter.resume()
    passes(2.0)
    seen = meter.summarize()
    assert [seen.loss, seen.gradient] == pytest.approx([40 / 40, 2.0])
    assert seen.tokens_per_second == pytest.approx(44 / 4)
    assert seen.flops_per_second == pytest.approx(500)
    assert meter.seconds == pytest.approx(4)
    passes(1.0)
    meter.add(4, torch.tensor([8.0, 3.0, 0.0]), 4.0, 10.0)
    meter.read()
    seen = meter.summarize()
    assert [seen.loss, seen.gradient, seen.tokens_per_second] == pytest.approx([2.0, 3.0, 4.0])
    assert meter.seconds == pytest.approx(5)


def test_the_meter_has_no_loss_after_only_bad_steps() -> None:
    meter = StepMeter(CPU)
    assert not meter.full
    meter.add(1, torch.tensor([float("inf"), float("inf"), 1.0]), 10.0, 1.0)
    meter.read()
    assert np.isnan(meter.summarize().loss)


def test_a_gpu_is_not_synchronised_after_each_step() -> None:
    meter = StepMeter(torch.device("cuda"))
    for step in range(1, 10):
        meter.add(step, torch.tensor([1.0, 1.0, 0.0]), 1.0, 1.0)
        assert not meter.full
    meter.add(10, torch.tensor([1.0, 1.0, 0.0]), 1.0, 1.0)
    assert meter.full


# Diagnosing non-finite updates


WEIGHTY = [
    name for name, module in small_network().named_modules() if hasattr(module, "weight") and "embedding" not in name
]


@pytest.mark.parametrize("name", WEIGHTY)
def test_the_first_module_that_overflows_is_named(name: str) -> None:
    """The weights are finite but the activations are not: 1e38 times anything above 3.4."""
    network = small_network()
    with torch.no_grad():
        for each in network.parameters():
            each.mul_(5.0) if each.dim() == 2 else each.add_(0.5)
        network.get_submodule(name).weight.fill_(3e38)  # type: ignore[operator]
    told = diagnose(network, unequal_batches()[0], 0.5)
    if name.endswith((".q", ".k")):  # the products of queries and keys belong to the attention module
        parent = name.rsplit(".", 1)[0]
        assert f"the output of {parent}" in told
    else:
        assert f"the output of {name} is not finite" in told
    assert f"the largest weight is 3e+38, in {name}.weight" in told
    assert "learning rate was 0.5" in told


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_weights_are_named(value: float) -> None:
    network = small_network()
    name = "decoder.layers.0.feed_forward.up.bias"
    with torch.no_grad():
        network.get_parameter(name)[2] = value
    assert f"the weights of {name} are not finite" in diagnose(network, unequal_batches()[0], 0.1)
    hooks = [module._forward_hooks for module in network.modules()]
    assert not any(hooks)


def test_an_overflow_of_the_output_layer_and_a_healthy_network() -> None:
    network = small_network(tied=False)
    batch = unequal_batches()[0]
    assert "the loss is finite but its gradient is not" in diagnose(network, batch, 0.1)
    with torch.no_grad():
        network.output_weight.mul_(1e38)
    assert "the output of the output layer is not finite" in diagnose(network, batch, 0.1)
    assert not any(module._forward_hooks for module in network.modules())


# Devices


def test_the_recipe_selects_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = choose_device(TrainSection())
    assert (found.device, found.dtype, found.compiled) == (CPU, torch.float32, False)
    assert str(found) == f"CPU, {torch.get_num_threads()} thread{'s' * (torch.get_num_threads() > 1)}, float32"
    asked = choose_device(TrainSection(precision="bfloat16", compile=True, device="cpu"))
    assert (asked.dtype, asked.compiled) == (torch.bfloat16, True)
    assert str(asked).endswith("bfloat16, compiled")
    with pytest.raises(ValueError, match="finds no usable GPU"):
        choose_device(TrainSection(device="cuda"))
    with pytest.raises(ValueError, match="did you mean 'cuda'"):
        choose_device(TrainSection(device="cuda0"))


@pytest.mark.parametrize(("well", "dtype"), [(True, torch.bfloat16), (False, torch.float16)])
def test_the_gpu_selects_the_precision(well: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: well)  # noqa: ARG005
    found = choose_device(TrainSection(), local_rank=1)
    assert (found.device, found.dtype, found.compiled) == (torch.device("cuda", 1), dtype, True)
    assert choose_device(TrainSection(precision="float32", compile=False)).dtype == torch.float32
    assert choose_device(TrainSection(device="cpu")).dtype == torch.float32
