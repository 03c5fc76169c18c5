"""`python -m benchmarks train`: training steps of Regard and other engines on models of the same shape and size.

Regard runs the step of `regard train`. All engines start from random weights and use fused Adam, dropout in the same
positions and the same sentences, and they run alternately. The number of weights and the loss of the first step, about
ln V for V outputs, show that they do the same work. The unit is target tokens per second, without padding.

Dimensions: B rows, T target length, S source length, C model width, V outputs.
"""

import importlib.util
import io
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.common import (
    Timings,
    measurement_conditions,
    quiet_transformers,
    ratio_table,
    time_alternating,
)
from regard.config import ModelConfig, did_you_mean, preset
from regard.data.batches import IGNORED_TARGET, Batch, packed_translation_batches, translation_batches
from regard.data.tokenized_corpus import TokenizedCorpus
from regard.errors import RegardError
from regard.model.positions import sinusoids
from regard.model.transformer import build
from regard.rounding import round_up
from regard.training.device import DeviceSettings, choose_device
from regard.training.flops import batch_flops
from regard.training.objective import Objective
from regard.training.optimizer import Optimizer, adam
from regard.training.parallel import Ranks
from regard.training.recipe import TrainSection
from regard.training.recipe_files import read_recipe
from regard.training.step import StepRunner
from regard.training.train import update_weights

LEARNING_RATE = 1e-4
MAX_PARAMETER_DIFFERENCE = 0.01
"""Maximum relative difference in the number of weights, such as a final norm or the row of <pad>."""
GPU_LENGTH_MULTIPLE = 8
"""On a GPU, peers pad lengths to a multiple of this, which reduces the number of shapes."""
WARM_UP_STEPS = {"cpu": 3, "cuda": 24}
"""Minimum number of steps before the timing. On a GPU each shape must occur twice before its graph is captured."""

Step = Callable[[Batch], Tensor]
"""Updates the weights and returns the mean loss."""


@dataclass(frozen=True)
class TrainingWorkload:
    """A model to train on batches of random ids."""

    name: str
    config: ModelConfig
    train: TrainSection
    steps: int
    """Number of steps per timing, each on its own batch."""
    sentence: int = 0
    """Median length of a sentence in tokens; 0 for a language model, whose rows are full."""


@dataclass(frozen=True)
class TrainingEngine:
    """An engine to measure, with its batches."""

    name: str
    parameters: int
    batches: Sequence[Batch]
    step: Step
    uncompiled_step: Step | None = None
    """The step without compilation, used if every shape would be compiled again."""

    def run(self) -> None:
        """Run a step on each batch."""
        for batch in self.batches:
            self.step(batch)


def measure_all(
    console: Console, device: str, repeats: int, names: Sequence[str], nanogpt: Path | None = None
) -> list[Table]:
    """Measure every engine on the named workloads, by default all of the device; print and return their tables."""
    workloads = [workload() for workload in _select(device, names)]
    console.print(f"[dim]{measurement_conditions(device, repeats)}[/]")
    tables = []
    for workload in workloads:
        console.print(f"[dim]{_describe(workload)}[/]")
        tables.append(measure(workload, device, repeats, nanogpt))
        console.print(tables[-1])
        if device != "cpu":
            torch.cuda.empty_cache()
    return tables


def measure(workload: TrainingWorkload, device: str, repeats: int, nanogpt: Path | None = None) -> Table:
    """Time each engine, after steps to warm up."""
    engines, losses = prepare_engines(workload, device, nanogpt)
    timings = time_alternating({name: engine.run for name, engine in engines.items()}, device, repeats)
    columns = {
        "weights": {name: f"{engine.parameters / 1e6:,.2f} M" for name, engine in engines.items()},
        "first loss": {name: f"{loss:.2f}" for name, loss in losses.items()},
    }
    if device != "cpu":
        columns["utilisation"] = _utilisation(workload, engines, timings)
    counts = {name: sum(batch.targets for batch in engine.batches) for name, engine in engines.items()}
    return ratio_table(workload.name, "tokens/s", timings, counts, columns)


def prepare_engines(
    workload: TrainingWorkload, device: str, nanogpt: Path | None = None
) -> tuple[dict[str, TrainingEngine], dict[str, float]]:
    """Return the engines by name, warmed up and with Regard last, and the loss of the first step of each."""
    torch.manual_seed(0)
    engines = list(_engines(workload, device, nanogpt))
    check_same_size(engines)
    warm = [_warm_up(engine, WARM_UP_STEPS[device]) for engine in engines]
    return {engine.name: engine for engine, _ in warm}, {engine.name: loss for engine, loss in warm}


def check_same_size(engines: Sequence[TrainingEngine]) -> None:
    """Raise RegardError unless all engines have about as many weights as the last."""
    last = engines[-1]
    for engine in engines:
        if abs(engine.parameters - last.parameters) > MAX_PARAMETER_DIFFERENCE * last.parameters:
            raise RegardError(
                f"{engine.name} has {engine.parameters:,} weights and {last.name} {last.parameters:,}: "
                "the models differ in shape, so their timings cannot be compared"
            )


# Workloads


def _gpt2() -> TrainingWorkload:
    train = TrainSection(
        batch_tokens=32 * 1024,
        max_length=1024,
        optimizer="adamw",
        weight_decay=0.1,
        beta2=0.95,
        eps=1e-8,
        clip=1.0,
        label_smoothing=0.0,
    )
    return TrainingWorkload("GPT-2 124M", preset("gpt2-small", vocab_size=50_304, dropout=0.0), train, steps=10)


def _base() -> TrainingWorkload:
    train = TrainSection(batch_tokens=32 * 1024, max_length=128)
    return TrainingWorkload("Transformer-base", preset("paper-base", vocab_size=32_001), train, steps=12, sentence=15)


def _recipe_workload(name: str, steps: int, sentence: int) -> TrainingWorkload:
    recipe = read_recipe(name)
    outputs = round_up(recipe.tokenizer.vocab_size, 64)
    return TrainingWorkload(name, recipe.config(outputs + 1), recipe.train, steps, sentence)


WORKLOADS: Mapping[str, Mapping[str, Callable[[], TrainingWorkload]]] = {
    "cpu": {
        "petit": partial(_recipe_workload, "petit-fr-en", steps=8, sentence=10),
        "multi30k": partial(_recipe_workload, "multi30k-fr-en", steps=2, sentence=15),
    },
    "cuda": {"gpt2": _gpt2, "base": _base},
}
"""Workloads by device and name."""


def _select(device: str, names: Sequence[str]) -> list[Callable[[], TrainingWorkload]]:
    known = [name for workloads in WORKLOADS.values() for name in workloads]
    for name in names:
        if name not in known:
            raise RegardError(f"unknown workload {name!r}: {did_you_mean(name, known)}")
        if name not in WORKLOADS[device]:
            raise RegardError(f"{name} is for another device; on {device}, choose {' or '.join(WORKLOADS[device])}")
    return [workload for name, workload in WORKLOADS[device].items() if not names or name in names]


def _describe(workload: TrainingWorkload) -> str:
    rows = f"sentences of {workload.sentence}" if workload.sentence else f"rows of {workload.train.max_length}"
    batch_tokens, outputs = workload.train.batch_tokens, workload.config.outputs
    return f"{workload.name}: batches of {batch_tokens:,} tokens in {rows}, vocabulary of {outputs:,}"


# Batches


def _rows(workload: TrainingWorkload) -> list[Batch]:
    """Return batches of full rows for a language model."""
    length = workload.train.max_length
    shape = (workload.steps, workload.train.batch_tokens // length, length + 1)
    ids = torch.randint(workload.config.outputs, shape)
    return [Batch(rows[:, :-1].contiguous(), rows[:, 1:].contiguous()) for rows in ids]


def sentences(count: int, median: int, outputs: int) -> TokenizedCorpus:
    """Return pairs of random ids with log-normal lengths from 2 to 60; the lengths of a pair differ by at most 2."""
    random = np.random.default_rng(0)
    source = random.lognormal(np.log(median), 0.45, count).round().clip(2, 60).astype(np.int64)
    target = (source + random.integers(-2, 3, count)).clip(2, 60)
    tokens = tuple(random.integers(1, outputs, int(side.sum())).astype(np.uint16) for side in (source, target))
    offsets = tuple(np.concatenate([[0], np.cumsum(side)]) for side in (source, target))
    return TokenizedCorpus(tokens, offsets, None, (), {})


def _pairs(workload: TrainingWorkload, packed: bool) -> list[Batch]:
    """Return a batch per step. Packed batches are all full, as all but the last of a corpus are."""
    train, outputs = workload.train, workload.config.outputs
    count = int((workload.steps + 1) * train.batch_tokens / workload.sentence)
    options = {"end": 0, "pad": outputs, "batch_tokens": train.batch_tokens, "max_length": train.max_length}
    data = sentences(count, workload.sentence, outputs)
    if not packed:
        return list(islice(translation_batches(data, **options).epoch(0), workload.steps))
    batches = packed_translation_batches(data, **options, row=round_up(train.max_length, 64)).epoch(0)
    full = (batch for batch in batches if batch.lengths is not None and bool(batch.lengths[:, 0].all()))
    return list(islice(full, workload.steps))


def _pad_to_multiple(batch: Batch, pad: int) -> Batch:
    """Pad the lengths of a batch to a multiple."""
    assert batch.source is not None

    def pad_rows(rows: Tensor, fill: int) -> Tensor:
        return F.pad(rows, (0, -rows.size(1) % GPU_LENGTH_MULTIPLE), value=fill)

    labels = pad_rows(batch.labels, IGNORED_TARGET)
    return replace(batch, tokens=pad_rows(batch.tokens, pad), labels=labels, source=pad_rows(batch.source, pad))


def _pinned(batches: Sequence[Batch], device: str) -> list[Batch]:
    return [batch.pinned_for(torch.device(device)) for batch in batches]


# Engines


def _engines(workload: TrainingWorkload, device: str, nanogpt: Path | None) -> Iterator[TrainingEngine]:
    """Yield the engines, each with its own weights; Regard comes last."""
    translates = workload.config.kind == "encoder-decoder"
    padded = _pinned(_pairs(workload, packed=False) if translates else _rows(workload), device)
    if translates:
        rounded = [_pad_to_multiple(batch, workload.config.outputs) for batch in padded]
        peer_batches = padded if device == "cpu" else _pinned(rounded, device)
        yield _peer("Hugging Face Marian", _Marian(workload), workload, device, peer_batches, compiled=device != "cpu")
        yield _peer(
            "torch.nn.Transformer",
            _TorchTransformer(workload),
            workload,
            device,
            peer_batches,
            compiled=device != "cpu",
        )
    else:
        if nanogpt is not None:
            yield _nanogpt(nanogpt, workload, device, padded)
        yield _peer("Hugging Face GPT-2", _Gpt2(workload), workload, device, padded, compiled=device != "cpu")
    default = choose_device(replace(workload.train, device=device))
    plain = replace(default, dtype=torch.float32, compiled=False)
    for settings in [default] if device != "cpu" or default == plain else [plain, default]:
        packs = translates and device != "cpu"
        yield _regard(workload, settings, _pinned(_pairs(workload, packed=True), device) if packs else padded, packs)


def _regard(
    workload: TrainingWorkload, settings: DeviceSettings, batches: Sequence[Batch], packed: bool
) -> TrainingEngine:
    """Return Regard, with the step of `regard train`."""
    network = build(workload.config).to(settings.device, settings.dtype).train()
    objective = Objective(network, workload.train.label_smoothing, settings.compiled)
    stepper = StepRunner(update_weights, objective, Optimizer(network, workload.train), settings.device, Ranks())

    def step(batch: Batch) -> Tensor:
        targets = float(batch.targets)
        return stepper.step([batch], LEARNING_RATE, targets)[0] / targets

    variant = [_dtype_name(settings.dtype)]
    if packed:
        variant.append("packed")
    if settings.compiled:
        variant.append("compiled")
    return TrainingEngine(f"Regard, {', '.join(variant)}", _count_weights(network), batches, step)


def _peer(
    name: str,
    network: nn.Module,
    workload: TrainingWorkload,
    device: str,
    batches: Sequence[Batch],
    compiled: bool,
    optimizer: torch.optim.Optimizer | None = None,
) -> TrainingEngine:
    """Return another engine: a network that returns its mean loss, trained as its users would train it."""
    network.to(device).train()
    trainable = [weight for weight in network.parameters() if weight.requires_grad]
    updates = optimizer or adam(trainable, workload.train, LEARNING_RATE)
    clip = workload.train.clip

    def stepping(forward: Callable[..., Tensor]) -> Step:
        def step(batch: Batch) -> Tensor:
            on_device = batch.to(device)
            with torch.autocast(device, torch.bfloat16, enabled=device != "cpu"):
                loss = forward(on_device.tokens, on_device.labels, on_device.source, on_device.source_lengths)
            loss.backward()  # type: ignore[no-untyped-call]
            if clip:
                torch.nn.utils.clip_grad_norm_(network.parameters(), clip)
            updates.step()
            updates.zero_grad()
            return loss.detach()

        return step

    variant = f"{name}, {'float32' if device == 'cpu' else 'bfloat16'}"
    if not compiled:
        return TrainingEngine(variant, _count_weights(network), batches, stepping(network))
    varied = workload.sentence > 0
    compiled_network = torch.compile(network, dynamic=True if varied else None)
    return TrainingEngine(
        f"{variant}, compiled",
        _count_weights(network),
        batches,
        stepping(compiled_network),
        uncompiled_step=stepping(network),
    )


def _warm_up(engine: TrainingEngine, min_steps: int) -> tuple[TrainingEngine, float]:
    """Run steps on all batches; return the engine and the first loss. If every shape recompiles, drop compilation."""
    count = max(min_steps, len(engine.batches))
    try:
        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=engine.uncompiled_step is not None):
            first, *_ = [engine.step(batch) for batch in islice(cycle(engine.batches), count)]
    except torch._dynamo.exc.FailOnRecompileLimitHit:
        assert engine.uncompiled_step is not None
        name = f"{engine.name.removesuffix(', compiled')}, eager because every shape recompiles"
        return _warm_up(replace(engine, name=name, step=engine.uncompiled_step, uncompiled_step=None), min_steps)
    return engine, float(first)


def _mean_loss(logits: Float[Tensor, "B T V"], labels: Int[Tensor, "B T"], smoothing: float = 0.0) -> Float[Tensor, ""]:
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)


class _Marian(nn.Module):
    """Hugging Face's translator. It is always post-norm, which costs the same as pre-norm."""

    def __init__(self, workload: TrainingWorkload) -> None:
        super().__init__()
        transformers, config = quiet_transformers(), workload.config
        self.smoothing = workload.train.label_smoothing
        self.network: Any = transformers.MarianMTModel(
            transformers.MarianConfig(
                vocab_size=config.vocab_size,
                d_model=config.d_model,
                encoder_layers=config.layers,
                decoder_layers=config.decoder_depth,
                encoder_attention_heads=config.heads,
                decoder_attention_heads=config.heads,
                encoder_ffn_dim=config.d_ff,
                decoder_ffn_dim=config.d_ff,
                activation_function="relu",
                scale_embedding=True,
                dropout=config.dropout,
                max_position_embeddings=config.max_length,
                pad_token_id=config.pad_id,
                decoder_start_token_id=config.pad_id,
                use_cache=False,
            )
        )

    def forward(
        self, tokens: Int[Tensor, "B T"], labels: Int[Tensor, "B T"], source: Int[Tensor, "B S"], lengths: Tensor
    ) -> Float[Tensor, ""]:
        seen = torch.arange(source.size(1), device=source.device) < lengths[:, None]  # [B, S]
        logits = self.network(input_ids=source, attention_mask=seen.long(), decoder_input_ids=tokens).logits
        return _mean_loss(logits, labels, self.smoothing)


class _TorchTransformer(nn.Module):
    """`torch.nn.Transformer` with the parts it does not include: embeddings, positions, the tied output."""

    positions: Tensor

    def __init__(self, workload: TrainingWorkload) -> None:
        super().__init__()
        config = workload.config
        self.smoothing, self.scale, self.outputs = workload.train.label_smoothing, config.d_model**0.5, config.outputs
        self.embedding = nn.Embedding(config.vocab_size, config.d_model, padding_idx=config.pad_id)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.register_buffer("positions", sinusoids(torch.arange(config.max_length), config.d_model))
        self.dropout = nn.Dropout(config.dropout)
        sizes: dict[str, Any] = {"dim_feedforward": config.d_ff, "dropout": config.dropout, "batch_first": True}
        sizes["norm_first"] = config.norm == "pre"
        layer = nn.TransformerEncoderLayer(config.d_model, config.heads, **sizes)
        final = nn.LayerNorm(config.d_model)
        encoder = nn.TransformerEncoder(layer, config.layers, final, enable_nested_tensor=False)
        self.network = nn.Transformer(
            config.d_model, config.heads, num_decoder_layers=config.decoder_depth, custom_encoder=encoder, **sizes
        )
        for module in self.network.modules():  # dropout only where the paper has it
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = 0.0

    def embed(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
        """Return the vectors of tokens at their positions."""
        embedded: Tensor = self.dropout(self.embedding(tokens) * self.scale + self.positions[: tokens.size(1)])
        return embedded

    def forward(
        self, tokens: Int[Tensor, "B T"], labels: Int[Tensor, "B T"], source: Int[Tensor, "B S"], lengths: Tensor
    ) -> Float[Tensor, ""]:
        hidden_source = torch.arange(source.size(1), device=source.device) >= lengths[:, None]  # [B, S]
        t = tokens.size(1)
        causal = torch.ones(t, t, dtype=torch.bool, device=tokens.device).triu(1)  # True masks, in nn.Transformer
        x = self.network(
            self.embed(source),
            self.embed(tokens),
            tgt_mask=causal,
            src_key_padding_mask=hidden_source,
            memory_key_padding_mask=hidden_source,
            tgt_is_causal=True,
        )  # [B, T, C]
        return _mean_loss(F.linear(x, self.embedding.weight[: self.outputs]), labels, self.smoothing)


class _Gpt2(nn.Module):
    """Hugging Face's GPT-2."""

    def __init__(self, workload: TrainingWorkload) -> None:
        super().__init__()
        transformers, config = quiet_transformers(), workload.config
        self.network: Any = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=config.vocab_size,
                n_positions=config.max_length,
                n_embd=config.d_model,
                n_layer=config.layers,
                n_head=config.heads,
                n_inner=config.d_ff,
                resid_pdrop=config.dropout,
                embd_pdrop=config.dropout,
                attn_pdrop=0.0,
                use_cache=False,
            )
        )

    def forward(self, tokens: Int[Tensor, "B T"], labels: Int[Tensor, "B T"], *_: None) -> Float[Tensor, ""]:
        return _mean_loss(self.network(input_ids=tokens).logits, labels)


def _nanogpt(folder: Path, workload: TrainingWorkload, device: str, batches: Sequence[Batch]) -> TrainingEngine:
    """Return nanoGPT with its own `model.py` and optimizer, as its `train.py` runs them."""
    config, train = workload.config, workload.train
    path = folder / "model.py"
    spec = importlib.util.spec_from_file_location("nanogpt_model", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise RegardError(f"{path} does not exist: --nanogpt must be a checkout of nanoGPT")
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where the compiler resolves its names
    spec.loader.exec_module(module)
    sizes = {"block_size": train.max_length, "vocab_size": config.vocab_size, "n_layer": config.layers}
    sizes |= {"n_head": config.heads, "n_embd": config.d_model}
    with redirect_stdout(io.StringIO()):  # it prints its number of weights
        model = module.GPT(module.GPTConfig(**sizes, dropout=config.dropout, bias=True)).to(device)
        own_optimizer = model.configure_optimizers(
            train.weight_decay, LEARNING_RATE, (train.beta1, train.beta2), device
        )
    return _peer(
        "nanoGPT", _NanoGpt(model), workload, device, batches, compiled=device != "cpu", optimizer=own_optimizer
    )


class _NanoGpt(nn.Module):
    """nanoGPT, reduced to its loss."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Int[Tensor, "B T"], labels: Int[Tensor, "B T"], *_: None) -> Float[Tensor, ""]:
        loss: Tensor = self.network(tokens, labels)[1]
        return loss


def _count_weights(network: nn.Module) -> int:
    """Return the number of trainable weights, which excludes tables of sinusoids."""
    return sum(weight.numel() for weight in network.parameters() if weight.requires_grad)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# Utilisation of the GPU


def _utilisation(
    workload: TrainingWorkload, engines: Mapping[str, TrainingEngine], timings: Mapping[str, Timings]
) -> dict[str, str]:
    """Return the operations per second of each engine, relative to those of a large matrix product."""
    peak = matrix_rate()
    flops = {
        name: sum(batch_flops(workload.config, batch) for batch in engine.batches) for name, engine in engines.items()
    }
    return {name: f"{flops[name] / timings[name].median / peak:.0%}" for name in engines}


def matrix_rate(size: int = 8192, times: int = 30) -> float:
    """Return the operations per second of a product of square bfloat16 matrices on the GPU."""
    a, b = torch.randn(2, size, size, device="cuda", dtype=torch.bfloat16)
    for _ in range(2):  # the first to warm up
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            a @ b
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    return 2.0 * size**3 * times / seconds
