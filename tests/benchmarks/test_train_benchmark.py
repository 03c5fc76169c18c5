"""The training benchmark: all engines do the same work. Their speed is not tested."""

import io
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from rich.console import Console

from benchmarks import train as bench_train
from benchmarks.__main__ import main
from benchmarks.common import Timings, ratio_table
from benchmarks.train import (
    WORKLOADS,
    TrainingEngine,
    TrainingWorkload,
    check_same_size,
    measure,
    measure_all,
    prepare_engines,
    sentences,
)
from regard.config import ModelConfig, preset
from regard.data.batches import IGNORED_TARGET, Batch, translation_batches
from regard.training.device import DeviceSettings
from regard.training.recipe import TrainSection
from regard.training.recipe_files import read_recipe

pytestmark = pytest.mark.slow

pytest.importorskip("transformers")

SIZES: dict[str, Any] = {"vocab_size": 4097, "d_model": 32, "heads": 2, "layers": 2, "d_ff": 64}
TRANSLATOR = TrainingWorkload(
    "tiny", ModelConfig(**SIZES), TrainSection(batch_tokens=200, max_length=64), steps=2, sentence=8
)
WRITER = TrainingWorkload(
    "tiny",
    preset("gpt2-small", **SIZES | {"vocab_size": 4096}, max_length=16, dropout=0.0),
    TrainSection(batch_tokens=64, max_length=16, optimizer="adamw", weight_decay=0.1, clip=1.0, label_smoothing=0.0),
    steps=2,
)
NANOGPT = '''
from dataclasses import dataclass
import torch
import torch.nn.functional as F

@dataclass
class GPTConfig:
    block_size: int
    vocab_size: int
    n_layer: int
    n_head: int
    n_embd: int
    dropout: float
    bias: bool

class GPT(torch.nn.Module):
    """As large as the real one of the same config."""
    def __init__(self, config):
        super().__init__()
        print("number of parameters: some")
        self.tokens = torch.nn.Embedding(config.vocab_size, config.n_embd)
        self.positions = torch.nn.Embedding(config.block_size, config.n_embd)
        torch.nn.init.normal_(self.tokens.weight, std=0.02)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(config.n_embd, config.n_head, 4 * config.n_embd, config.dropout)
            for _ in range(config.n_layer)
        )

    def configure_optimizers(self, weight_decay, learning_rate, betas, device_type):
        assert device_type == "cpu"
        return torch.optim.AdamW(self.parameters(), learning_rate, betas, weight_decay=weight_decay)

    def forward(self, idx, targets):
        x = self.tokens(idx) + self.positions.weight[: idx.size(1)]
        for layer in self.layers:
            x = layer(x)
        logits = x @ self.tokens.weight.T
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
'''


@pytest.fixture
def nanogpt(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(NANOGPT)
    return tmp_path


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_translators_do_the_same_work(norm: Literal["pre", "post"]) -> None:
    work = replace(TRANSLATOR, config=ModelConfig(**SIZES, norm=norm))
    engines, losses = prepare_engines(work, "cpu")
    assert list(engines) == ["Hugging Face Marian, float32", "torch.nn.Transformer, float32", "Regard, float32"]
    *_, ours = engines.values()
    for engine in engines.values():
        assert engine.batches is ours.batches
        assert engine.parameters == pytest.approx(ours.parameters, rel=0.01)
        assert losses[engine.name] == pytest.approx(math.log(work.config.outputs), rel=0.1)


def test_language_models_do_the_same_work(nanogpt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = replace(WRITER.config, d_ff=4 * WRITER.config.d_model)
    engines, losses = prepare_engines(replace(WRITER, config=config), "cpu", nanogpt)
    assert list(engines) == ["nanoGPT, float32", "Hugging Face GPT-2, float32", "Regard, float32"]
    assert capsys.readouterr().out == ""
    for loss in losses.values():
        assert loss == pytest.approx(math.log(config.outputs), rel=0.1)


@pytest.mark.parametrize("work", [TRANSLATOR, WRITER])
def test_every_engine_learns(work: TrainingWorkload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_train, "LEARNING_RATE", 1e-2)
    engines, _ = prepare_engines(replace(work, config=replace(work.config, dropout=0.0)), "cpu")
    for engine in engines.values():
        batch = engine.batches[0]
        losses = [float(engine.step(batch)) for _ in range(5)]
        assert losses[-1] < losses[0] - 0.1, engine.name


def test_padding_does_not_change_the_loss_of_a_peer() -> None:
    """Padding to a multiple, as on a GPU, leaves the losses of the peers unchanged because their masks hide it."""
    work = replace(TRANSLATOR, config=replace(TRANSLATOR.config, dropout=0.0))
    options = {"end": 0, "pad": work.config.outputs, "batch_tokens": 200}
    batch = next(translation_batches(sentences(20, 8, work.config.outputs), **options).epoch(0))
    longer = bench_train._pad_to_multiple(batch, work.config.outputs)
    assert longer.tokens.size(1) % 8 == 0
    assert longer.positions > batch.positions
    assert longer.targets == batch.targets
    for network in (bench_train._Marian(work), bench_train._TorchTransformer(work)):
        one, other = (network(each.tokens, each.labels, each.source, each.source_lengths) for each in (batch, longer))
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_packed_batches_are_full_and_of_one_shape() -> None:
    work = replace(TRANSLATOR, train=TrainSection(batch_tokens=512, max_length=64), steps=3)
    packed = bench_train._pairs(work, packed=True)
    assert len(packed) == 3
    assert {batch.tokens.shape for batch in packed} == {(8, 64)}
    assert all((batch.labels != IGNORED_TARGET).any(1).all() for batch in packed)


def test_the_table_has_a_row_for_each_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_train, "WORKLOADS", {"cpu": {"tiny": lambda: TRANSLATOR}})
    printed = io.StringIO()
    measure_all(Console(file=printed, width=200), "cpu", 1, ["tiny"])
    *_, head, marian, torchs, ours, strongest = printed.getvalue().splitlines()
    assert head.split() == ["tiny", "tokens/s", "spread", "weights", "first", "loss", "float32", "÷", "this"]
    rows = [re.split(r"  +", row.strip()) for row in (marian, torchs, ours)]
    assert [row[0] for row in rows] == [
        "Hugging Face Marian, float32",
        "torch.nn.Transformer, float32",
        "Regard, float32",
    ]
    rates = [float(row[1].replace(",", "")) for row in rows]
    assert [float(row[-1]) for row in rows[:2]] == pytest.approx([rates[2] / rate for rate in rates[:2]], abs=0.01)
    best = rows[0] if rates[0] > rates[1] else rows[1]
    assert strongest.strip() == f"strongest peer: {best[0]}; Regard, float32 is {best[-1]} × as fast"


def test_a_ratio_is_that_of_the_rates() -> None:
    timed = {"other": Timings([2.0, 4.0, 3.0]), "Regard, float32": Timings([1.0])}
    table = ratio_table("work", "tokens/s", timed, {"other": 30, "Regard, float32": 20})
    cells = [list(column.cells) for column in table.columns]
    assert cells == [["other", "Regard, float32"], ["10.0", "20.0"], ["2.00", "1.00"], ["2.00", ""]]


def test_the_strongest_peer_is_named_whatever_the_order() -> None:
    seconds = {"slow": 4.0, "strong": 2.0, "weak": 3.0, "Regard, float32": 1.5, "Regard, bfloat16": 1.0}
    timed = {name: Timings([each]) for name, each in seconds.items()}
    told = "strongest peer: strong; Regard, bfloat16 is 2.00 × as fast"
    assert ratio_table("work", "tokens/s", timed, dict.fromkeys(timed, 60)).caption == told
    alone = {name: each for name, each in timed.items() if name.startswith("Regard")}
    assert ratio_table("work", "tokens/s", alone, dict.fromkeys(alone, 60)).caption is None
    served = {name: Timings([1.0]) for name in ("HTTP, one client", "HTTP, 8 clients")}
    assert ratio_table("work", "tokens/s", served, dict.fromkeys(served, 60)).caption is None


def test_every_peer_is_compiled_where_regard_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU no peer runs eagerly next to a compiled Regard. The test only lists the engines."""
    asked = {}

    def peer(name: str, *_arguments: object, compiled: bool, **_options: object) -> TrainingEngine:
        asked[name] = compiled
        return TrainingEngine(name, 1, [], lambda batch: batch.tokens)

    monkeypatch.setattr(bench_train, "_peer", peer)
    place = DeviceSettings(torch.device("cpu"), torch.bfloat16, compiled=True)
    monkeypatch.setattr(bench_train, "choose_device", lambda _train: place)
    monkeypatch.setattr(bench_train, "_regard", lambda *_: TrainingEngine("Regard", 1, [], lambda batch: batch.tokens))
    monkeypatch.setattr(Batch, "pinned_for", lambda self, _device: self)
    for work in (TRANSLATOR, WRITER):
        list(bench_train._engines(replace(work, train=replace(work.train, max_length=64)), "cuda", None))
    assert asked == dict.fromkeys(("Hugging Face Marian", "torch.nn.Transformer", "Hugging Face GPT-2"), True)


def test_models_of_different_sizes_are_refused() -> None:
    engines = [
        TrainingEngine(name, size, [], lambda batch: batch.tokens) for name, size in {"a": 102, "b": 100}.items()
    ]
    with pytest.raises(ValueError, match="a has 102 weights and b 100"):
        check_same_size(engines)
    check_same_size([replace(engines[0], parameters=101), engines[1]])


def test_a_peer_that_recompiles_every_shape_runs_eagerly() -> None:
    def compiled(batch: object) -> torch.Tensor:
        raise torch._dynamo.exc.FailOnRecompileLimitHit("again")

    batches = bench_train._rows(WRITER)
    engine = TrainingEngine("peer, compiled", 1, batches, compiled, uncompiled_step=lambda _batch: torch.tensor(7.0))
    found, loss = bench_train._warm_up(engine, min_steps=3)
    assert found.name == "peer, eager because every shape recompiles"
    assert (loss, float(found.step(batches[0]))) == (7.0, 7.0)


def test_workloads_match_the_recipes() -> None:
    petit = WORKLOADS["cpu"]["petit"]()
    assert petit.config == read_recipe("petit-fr-en").config(2049)
    assert petit.train.batch_tokens == 2_000
    assert WORKLOADS["cuda"]["gpt2"]().config.vocab_size == 50_304
    assert WORKLOADS["cuda"]["base"]().config.outputs == 32_000


def test_a_precision_that_a_recipe_chooses_is_measured_too() -> None:
    work = replace(TRANSLATOR, train=replace(TRANSLATOR.train, precision="bfloat16"))
    engines, losses = prepare_engines(work, "cpu")
    assert list(engines)[2:] == ["Regard, float32", "Regard, bfloat16"]
    assert losses["Regard, bfloat16"] == pytest.approx(losses["Regard, float32"], rel=0.05)


def test_invalid_workloads_are_refused(tmp_path: Path) -> None:
    console = Console(file=io.StringIO())
    with pytest.raises(ValueError, match="unknown workload 'petti': did you mean 'petit'"):
        measure_all(console, "cpu", 1, ["petti"])
    with pytest.raises(ValueError, match="gpt2 is for another device; on cpu, choose petit or multi30k"):
        measure_all(console, "cpu", 1, ["gpt2"])
    with pytest.raises(ValueError, match=r"model.py does not exist: --nanogpt must be a checkout"):
        measure(WRITER, "cpu", 1, tmp_path)


def test_transformers_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ValueError, match=r"pip install 'regard\[bench\]'"):
        measure(TRANSLATOR, "cpu", 1)


def test_the_command_refuses_nonsense(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "train", "--device", "cpu", "--work", "nonsense"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    error = capsys.readouterr().err.replace("\n", " ")
    assert "unknown workload 'nonsense': expected one of petit, multi30k, gpt2, base" in error
