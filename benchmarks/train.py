"""`python -m benchmarks train`: steps of training beside peers: models of one shape, the same sentences, in turns.

Ours is the step that `regard train` makes. All start from random weights, with Adam fused and dropout in the same
places; that they do the same work is seen by the number of their weights and by the loss of their first step, about
ln V for V outputs. What counts is real target tokens per second: padding is no work.

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

from benchmarks.common import Timed, circumstances, in_turns, quiet_transformers, ratios
from regard.config import ModelConfig, did_you_mean, preset
from regard.data.batches import IGNORE, Batch, packed_translation, translation
from regard.data.tokenized_corpus import Prepared
from regard.errors import RegardError
from regard.model.positions import sinusoids
from regard.model.transformer import build
from regard.training.device import DeviceSettings, choose_device
from regard.training.flops import batch_flops
from regard.training.objective import Objective
from regard.training.optimizer import Optimizer, adam
from regard.training.parallel import Ranks
from regard.training.recipe import TrainSection
from regard.training.recipe_files import read_recipe
from regard.training.step import StepRunner
from regard.training.train import update_weights

LR = 1e-4
ALIKE = 0.01
"""the part of their weights by which models may differ, as by a last norm or the row of <pad>"""
MULTIPLE = 8
"""on a GPU, peers pad lengths up to one of these: fewer shapes"""
WARM_UP = {"cpu": 3, "cuda": 24}
"""steps before the timing, if there are not more batches; on a GPU each shape comes twice, and steps are recorded"""

Step = Callable[[Batch], Tensor]
"""one update of the weights; gives the mean loss"""


@dataclass(frozen=True)
class Work:
    """What is to be trained: a model, in batches as the settings say, of random ids."""

    name: str
    config: ModelConfig
    train: TrainSection
    steps: int
    """in each timing, every one on a batch of its own"""
    sentence: int = 0
    """tokens of a sentence, in the median; none for a language model, whose rows are full"""


@dataclass(frozen=True)
class Engine:
    """One that trains, and what it reads."""

    name: str
    parameters: int
    batches: Sequence[Batch]
    step: Step
    otherwise: Step | None = None
    """the same without compilation, should that never end"""

    def run(self) -> None:
        """A step on each batch."""
        for batch in self.batches:
            self.step(batch)


def bench(console: Console, device: str, repeats: int, names: Sequence[str], nanogpt: Path | None = None) -> None:
    """Time every engine on the named works (all of this device, if none), and print a table for each."""
    works = [work() for work in _chosen(device, names)]
    console.print(f"[dim]{circumstances(device, repeats)}[/]")
    for work in works:
        console.print(f"[dim]{_told(work)}[/]")
        console.print(measure(work, device, repeats, nanogpt))
        if device != "cpu":
            torch.cuda.empty_cache()


def measure(work: Work, device: str, repeats: int, nanogpt: Path | None = None) -> Table:
    """Train with each engine in turn, after steps that are not counted."""
    engines, losses = prepared(work, device, nanogpt)
    timed = in_turns({name: engine.run for name, engine in engines.items()}, device, repeats)
    columns = {
        "weights": {name: f"{engine.parameters / 1e6:,.2f} M" for name, engine in engines.items()},
        "first loss": {name: f"{loss:.2f}" for name, loss in losses.items()},
    }
    if device != "cpu":
        columns["utilisation"] = _utilisation(work, engines, timed)
    counts = {name: sum(batch.targets for batch in engine.batches) for name, engine in engines.items()}
    return ratios(work.name, "tokens/s", timed, counts, columns)


def prepared(work: Work, device: str, nanogpt: Path | None = None) -> tuple[dict[str, Engine], dict[str, float]]:
    """All engines by name, warmed up, ours behind the others; and the loss of the first step of each."""
    torch.manual_seed(0)
    engines = list(_engines(work, device, nanogpt))
    check_alike(engines)
    warm = [_warmed_up(engine, WARM_UP[device]) for engine in engines]
    return {engine.name: engine for engine, _ in warm}, {engine.name: loss for engine, loss in warm}


def check_alike(engines: Sequence[Engine]) -> None:
    """A ValueError unless all have as many weights as the last."""
    last = engines[-1]
    for engine in engines:
        if abs(engine.parameters - last.parameters) > ALIKE * last.parameters:
            raise RegardError(
                f"{engine.name} has {engine.parameters:,} weights and {last.name} {last.parameters:,}: "
                "these are not models of one shape, and their times say nothing"
            )


# What there is to train


def _gpt2() -> Work:
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
    return Work("GPT-2 124M", preset("gpt2-small", vocab_size=50_304, dropout=0.0), train, steps=10)


def _base() -> Work:
    train = TrainSection(batch_tokens=32 * 1024, max_length=128)
    return Work("Transformer-base", preset("paper-base", vocab_size=32_001), train, steps=12, sentence=15)


def _of_recipe(name: str, steps: int, sentence: int) -> Work:
    recipe = read_recipe(name)
    outputs = -(-recipe.tokenizer.vocab_size // 64) * 64
    return Work(name, recipe.config(outputs + 1), recipe.train, steps, sentence)


WORKS: Mapping[str, Mapping[str, Callable[[], Work]]] = {
    "cpu": {
        "petit": partial(_of_recipe, "petit-fr-en", steps=8, sentence=10),
        "multi30k": partial(_of_recipe, "multi30k-fr-en", steps=2, sentence=15),
    },
    "cuda": {"gpt2": _gpt2, "base": _base},
}
"""by device and name"""


def _chosen(device: str, names: Sequence[str]) -> list[Callable[[], Work]]:
    known = [name for works in WORKS.values() for name in works]
    for name in names:
        if name not in known:
            raise RegardError(f"no work {name!r} to measure: {did_you_mean(name, known)}")
        if name not in WORKS[device]:
            raise RegardError(f"{name} is not measured on {device}: there it is {' or '.join(WORKS[device])}")
    return [work for name, work in WORKS[device].items() if not names or name in names]


def _told(work: Work) -> str:
    of = f"sentences of {work.sentence}" if work.sentence else f"rows of {work.train.max_length}"
    return f"{work.name}: batches of {work.train.batch_tokens:,} tokens in {of}, of {work.config.outputs:,} words"


# What is read


def _rows(work: Work) -> list[Batch]:
    """Full rows for a language model."""
    length = work.train.max_length
    shape = (work.steps, work.train.batch_tokens // length, length + 1)
    ids = torch.randint(work.config.outputs, shape)
    return [Batch(each[:, :-1].contiguous(), each[:, 1:].contiguous()) for each in ids]


def sentences(count: int, median: int, outputs: int) -> Prepared:
    """Random ids in pairs: lengths are log-normal from 2 to 60, and a target's is its source's, give or take two."""
    random = np.random.default_rng(0)
    source = random.lognormal(np.log(median), 0.45, count).round().clip(2, 60).astype(np.int64)
    target = (source + random.integers(-2, 3, count)).clip(2, 60)
    tokens = tuple(random.integers(1, outputs, int(side.sum())).astype(np.uint16) for side in (source, target))
    offsets = tuple(np.concatenate([[0], np.cumsum(side)]) for side in (source, target))
    return Prepared(tokens, offsets, None, (), {})


def _pairs(work: Work, packed: bool) -> list[Batch]:
    """As many batches as there are steps; packed, all of them full: in a corpus only the last is not."""
    train, outputs = work.train, work.config.outputs
    count = int((work.steps + 1) * train.batch_tokens / work.sentence)
    options = {"end": 0, "pad": outputs, "batch_tokens": train.batch_tokens, "max_length": train.max_length}
    data = sentences(count, work.sentence, outputs)
    if not packed:
        return list(islice(translation(data, **options).epoch(0), work.steps))
    batches = packed_translation(data, **options, row=-(-train.max_length // 64) * 64).epoch(0)
    full = (batch for batch in batches if batch.lengths is not None and bool(batch.lengths[:, 0].all()))
    return list(islice(full, work.steps))


def _rounded(batch: Batch, pad: int) -> Batch:
    """The same sentences, padded up to a multiple."""
    assert batch.source is not None

    def longer(rows: Tensor, fill: int) -> Tensor:
        return F.pad(rows, (0, -rows.size(1) % MULTIPLE), value=fill)

    labels = longer(batch.labels, IGNORE)
    return replace(batch, tokens=longer(batch.tokens, pad), labels=labels, source=longer(batch.source, pad))


def _pinned(batches: Sequence[Batch], device: str) -> list[Batch]:
    return [batch.pinned_for(torch.device(device)) for batch in batches]


# Who trains


def _engines(work: Work, device: str, nanogpt: Path | None) -> Iterator[Engine]:
    """Each with weights of its own; the last is the one that others are held against."""
    translates = work.config.kind == "encoder-decoder"
    padded = _pinned(_pairs(work, packed=False) if translates else _rows(work), device)
    if translates:
        rounded = [_rounded(batch, work.config.outputs) for batch in padded]
        theirs = padded if device == "cpu" else _pinned(rounded, device)
        yield _peer("Hugging Face Marian", _Marian(work), work, device, theirs, compiled=device != "cpu")
        yield _peer("torch.nn.Transformer", _TorchTransformer(work), work, device, theirs, compiled=device != "cpu")
    else:
        if nanogpt is not None:
            yield _nanogpt(nanogpt, work, device, padded)
        yield _peer("Hugging Face GPT-2", _Gpt2(work), work, device, padded, compiled=device != "cpu")
    chosen = choose_device(replace(work.train, device=device))
    plain = replace(chosen, dtype=torch.float32, compiled=False)
    for place in [chosen] if device != "cpu" or chosen == plain else [plain, chosen]:
        packs = translates and device != "cpu"
        yield _ours(work, place, _pinned(_pairs(work, packed=True), device) if packs else padded, packs)


def _ours(work: Work, place: DeviceSettings, batches: Sequence[Batch], packed: bool) -> Engine:
    """The step of `regard train`."""
    network = build(work.config).to(place.device, place.dtype).train()
    objective = Objective(network, work.train.label_smoothing, place.compiled)
    stepper = StepRunner(update_weights, objective, Optimizer(network, work.train), place.device, Ranks())

    def step(batch: Batch) -> Tensor:
        targets = float(batch.targets)
        return stepper.step([batch], LR, targets)[0] / targets

    how = [_called(place.dtype), *["packed"] * packed, *["compiled"] * place.compiled]
    return Engine(f"Regard, {', '.join(how)}", _weights(network), batches, step)


def _peer(
    name: str,
    network: nn.Module,
    work: Work,
    device: str,
    batches: Sequence[Batch],
    compiled: bool,
    optimizer: torch.optim.Optimizer | None = None,
) -> Engine:
    """A network that gives its mean loss, trained as its users train it."""
    network.to(device).train()
    learned = [weight for weight in network.parameters() if weight.requires_grad]
    updates = optimizer or adam(learned, work.train, LR)
    clip = work.train.clip

    def stepping(forward: Callable[..., Tensor]) -> Step:
        def step(batch: Batch) -> Tensor:
            there = batch.to(device)
            with torch.autocast(device, torch.bfloat16, enabled=device != "cpu"):
                loss = forward(there.tokens, there.labels, there.source, there.source_lengths)
            loss.backward()  # type: ignore[no-untyped-call]
            if clip:
                torch.nn.utils.clip_grad_norm_(network.parameters(), clip)
            updates.step()
            updates.zero_grad()
            return loss.detach()

        return step

    how = f"{name}, {'float32' if device == 'cpu' else 'bfloat16'}"
    if not compiled:
        return Engine(how, _weights(network), batches, stepping(network))
    varied = work.sentence > 0
    quick = torch.compile(network, dynamic=True if varied else None)
    return Engine(f"{how}, compiled", _weights(network), batches, stepping(quick), otherwise=stepping(network))


def _warmed_up(engine: Engine, least: int) -> tuple[Engine, float]:
    """The engine after steps on all its batches, and the loss of the first; without compilation, if that never ends."""
    count = max(least, len(engine.batches))
    try:
        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=engine.otherwise is not None):
            first, *_ = [engine.step(batch) for batch in islice(cycle(engine.batches), count)]
    except torch._dynamo.exc.FailOnRecompileLimitHit:
        assert engine.otherwise is not None
        name = f"{engine.name.removesuffix(', compiled')}, eager since each shape is compiled anew"
        return _warmed_up(replace(engine, name=name, step=engine.otherwise, otherwise=None), least)
    return engine, float(first)


def _mean_loss(logits: Float[Tensor, "B T V"], labels: Int[Tensor, "B T"], smoothing: float = 0.0) -> Float[Tensor, ""]:
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)


class _Marian(nn.Module):
    """Hugging Face's translator. Its norms stand behind each sum, whatever ours do: they cost the same."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        transformers, config = quiet_transformers(), work.config
        self.smoothing = work.train.label_smoothing
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
    """`torch.nn.Transformer`, with what it leaves to its users: embeddings, positions, the tied output."""

    positions: Tensor

    def __init__(self, work: Work) -> None:
        super().__init__()
        config = work.config
        self.smoothing, self.scale, self.outputs = work.train.label_smoothing, config.d_model**0.5, config.outputs
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
        for module in self.network.modules():  # dropout where the paper has it, and nowhere else
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = 0.0

    def embed(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
        """Vectors of tokens at their positions."""
        found: Tensor = self.dropout(self.embedding(tokens) * self.scale + self.positions[: tokens.size(1)])
        return found

    def forward(
        self, tokens: Int[Tensor, "B T"], labels: Int[Tensor, "B T"], source: Int[Tensor, "B S"], lengths: Tensor
    ) -> Float[Tensor, ""]:
        hidden_source = torch.arange(source.size(1), device=source.device) >= lengths[:, None]  # [B, S]
        t = tokens.size(1)
        causal = torch.ones(t, t, dtype=torch.bool, device=tokens.device).triu(1)  # True hides, here
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

    def __init__(self, work: Work) -> None:
        super().__init__()
        transformers, config = quiet_transformers(), work.config
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


def _nanogpt(folder: Path, work: Work, device: str, batches: Sequence[Batch]) -> Engine:
    """nanoGPT from its own `model.py`, with its own optimizer, as its `train.py` runs them."""
    config, train = work.config, work.train
    path = folder / "model.py"
    spec = importlib.util.spec_from_file_location("nanogpt_model", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise RegardError(f"{path}: there is no such file; --nanogpt is a checkout of nanoGPT")
    theirs: Any = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = theirs  # where the compiler looks for what its code names
    spec.loader.exec_module(theirs)
    sizes = {"block_size": train.max_length, "vocab_size": config.vocab_size, "n_layer": config.layers}
    sizes |= {"n_head": config.heads, "n_embd": config.d_model}
    with redirect_stdout(io.StringIO()):  # it tells of its weights
        model = theirs.GPT(theirs.GPTConfig(**sizes, dropout=config.dropout, bias=True)).to(device)
        own = model.configure_optimizers(train.weight_decay, LR, (train.beta1, train.beta2), device)
    return _peer("nanoGPT", _NanoGpt(model), work, device, batches, compiled=device != "cpu", optimizer=own)


class _NanoGpt(nn.Module):
    """Its loss alone."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Int[Tensor, "B T"], labels: Int[Tensor, "B T"], *_: None) -> Float[Tensor, ""]:
        loss: Tensor = self.network(tokens, labels)[1]
        return loss


def _weights(network: nn.Module) -> int:
    """How many are learned: tables of sinusoids are not."""
    return sum(weight.numel() for weight in network.parameters() if weight.requires_grad)


def _called(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# What a GPU could do


def _utilisation(work: Work, engines: Mapping[str, Engine], timed: Mapping[str, Timed]) -> dict[str, str]:
    """Operations per second over those of one large matrix product."""
    most = matrix_rate()
    flops = {name: sum(batch_flops(work.config, batch) for batch in engine.batches) for name, engine in engines.items()}
    return {name: f"{flops[name] / timed[name].median / most:.0%}" for name in engines}


def matrix_rate(size: int = 8192, times: int = 30) -> float:
    """Operations per second of a product of square matrices in bfloat16, on the GPU at hand."""
    a, b = torch.randn(2, size, size, device="cuda", dtype=torch.bfloat16)
    for _ in range(2):  # the first to warm up
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(times):
            a @ b
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begun
    return 2.0 * size**3 * times / seconds
