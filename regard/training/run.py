"""One run on one rank: the device, the text, the network, the optimizer and the counters."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.decoding.own_network import OwnNetwork, copy_module, copy_with_weights
from regard.decoding.text_model import Model
from regard.model.transformer import Network, build
from regard.storage.model_folder import assign_weights
from regard.training.checkpoint_files import withdraw_model
from regard.training.device import DeviceSettings, attention_kernels
from regard.training.duration_estimate import DurationEstimate
from regard.training.event_reporter import Reporter
from regard.training.flops import batch_flops, estimated_flops
from regard.training.interrupts import Interrupts, catch_signals
from regard.training.optimizer import Optimizer
from regard.training.parallel import Ranks, full_tensor
from regard.training.prefetch import BatchPrefetcher, PrefetchedBatch
from regard.training.progress import Progress
from regard.training.recipe import Recipe, TrainSection
from regard.training.step_metrics import StepMeter
from regard.training.training_setup import TrainingSetup
from regard.training.weight_averaging import WeightAverage, Weights


@dataclass
class TrainingRun:
    """A run on one rank. Only the first rank writes files and reports events."""

    recipe: Recipe
    out: Path
    ranks: Ranks
    interrupts: Interrupts
    device_settings: DeviceSettings
    setup: TrainingSetup
    objective: nn.Module
    """The network with its loss; on several ranks it also averages the gradients."""
    optimizer: Optimizer
    progress: Progress
    average: WeightAverage
    meter: StepMeter
    reporter: Reporter
    can_record: bool
    """Whether steps may be recorded as CUDA graphs."""
    duration_estimate: DurationEstimate

    @property
    def settings(self) -> TrainSection:
        """The recipe's `[train]` section."""
        return self.recipe.train

    @property
    def device(self) -> torch.device:
        """The device the network is trained on."""
        return self.device_settings.device

    @property
    def network(self) -> Network:
        """The network that is trained."""
        return self.setup.network

    @contextmanager
    def training(self) -> Iterator[Iterator[PrefetchedBatch]]:
        """Start the clock and yield the batches from where the run is; signals are only noted until the end."""
        self.meter.resume()
        if self.ranks.first and self.progress.step < self.settings.steps:
            withdraw_model(self.out)
        progress = self.progress
        prefetcher = BatchPrefetcher(
            self.setup.batches, progress.epoch, progress.next_batch, self.device, progress.shard
        )
        kernels = attention_kernels(self.device, self.setup.fixed_shapes)
        with catch_signals(self.interrupts), kernels, prefetcher:
            yield iter(prefetcher)

    def totals(self, batches: Sequence[PrefetchedBatch]) -> tuple[float, float, float]:
        """Targets and floating-point operations of a step over all ranks, and how many ranks have received a signal."""
        targets = sum(prefetched.batch.targets for prefetched in batches)
        passes = 2 if self.settings.consistency else 1
        flops = passes * sum(self._flops(prefetched.batch) for prefetched in batches)
        interrupted = float(self.interrupts.signal is not None)
        total_targets, total_flops, interruptions = self.ranks.sum_numbers(float(targets), flops, interrupted)
        return total_targets, total_flops, interruptions

    def _flops(self, batch: Batch) -> float:
        if isinstance(self.network, OwnNetwork):
            return estimated_flops(self.network.parameter_count, batch)
        return batch_flops(self.network.config, batch)

    def pauses(self) -> bool:
        """Whether a log line, a validation or a checkpoint follows this step and needs its results."""
        settings, step = self.settings, self.progress.step
        intervals = (settings.log_every, settings.validate_every, settings.checkpoint_every)
        return step == settings.steps or any(step % interval == 0 for interval in intervals)

    def note_split(self, pieces: int) -> None:
        """Report that batches are split from now on."""
        text = f"a batch did not fit into memory: batches are split into {pieces} pieces from now on"
        self.reporter.note(self.progress.step, text)

    def full_weights(self) -> dict[str, Tensor]:
        """The complete float32 weights, gathered from all ranks."""
        return {name: full_tensor(weight).detach() for name, weight in self.optimizer.named_weights().items()}

    def model_with(self, weights: Weights) -> Model:
        """A model with these weights, independent of the one that is trained."""
        network: Network
        if isinstance(self.network, OwnNetwork):
            network = copy_with_weights(self.network, weights)
        else:
            with torch.device("meta"):
                network = build(self.network.config)
            assign_weights(network, dict(weights))
        return Model(network, self.setup.tokenizer, self.setup.special, self.setup.about)

    def module_to_load(self) -> nn.Module | None:
        """A module that the weights of a checkpoint are loaded into; None if the network is one of Regard's."""
        return copy_module(self.network.module).float() if isinstance(self.network, OwnNetwork) else None

    def on_training_device(self, model: Model) -> Model:
        """The model on the device and in the precision of the training."""
        weight = next(model.network.parameters())
        device, dtype = self.device_settings.device, self.device_settings.dtype
        if weight.device == device and weight.dtype == dtype:
            return model
        return replace(model, network=deepcopy(model.network).to(device, dtype))
