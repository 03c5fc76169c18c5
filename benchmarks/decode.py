"""`python -m benchmarks decode`: decoding in Regard, `transformers` and, on a CPU, CTranslate2.

All engines use the same random weights, exported from Regard, and generate texts of the same length, so they do the
same work. They run alternately; the table shows the median of each and the ratio of Regard to it.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.common import (
    Runnable,
    Timings,
    measurement_conditions,
    quiet_transformers,
    ratio_table,
    time_alternating,
)
from regard.config import ModelConfig, SpecialIds, did_you_mean, preset
from regard.decoding.fast_copy import make_fast_copy
from regard.decoding.generate import generate, search_translations
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.interop.export import export
from regard.model.transformer import Decoder, EncoderDecoder, build


@dataclass(frozen=True)
class DecodingWorkload:
    """A model, batch size and beam to measure, with the number of tokens to generate for each input."""

    model: str
    batch: int
    beam: int
    tokens: int
    """Number of tokens to generate."""
    inputs: int = 20
    """Number of input tokens."""

    @property
    def name(self) -> str:
        """Return a short description."""
        search = "greedy" if self.beam == 1 else f"beam {self.beam}"
        return f"{self.model}, batch {self.batch}, {search}, {self.tokens} tokens"


MODELS: dict[str, ModelConfig] = {
    "base": preset("paper-base", vocab_size=16_001),
    "small": preset("paper-base", vocab_size=16_001, d_model=256, heads=4, layers=3, d_ff=1024),
    "gpt2": preset("gpt2-small", max_length=1024),
}

CPU_WORKLOADS = [
    DecodingWorkload(model, batch, beam, 24) for model in ("base", "small") for batch in (32, 1) for beam in (1, 4)
]
GPU_WORKLOADS = [
    DecodingWorkload("base", 64, 1, 32),
    DecodingWorkload("base", 64, 4, 32),
    DecodingWorkload("base", 256, 4, 32),
    DecodingWorkload("gpt2", 1, 1, 256, inputs=8),
    DecodingWorkload("gpt2", 64, 1, 256, inputs=8),
]


def measure_all(console: Console, device: str, repeats: int, models: list[str]) -> None:
    """Measure every engine on the workloads of this device and print a table for each workload."""
    workloads = [
        workload for workload in (CPU_WORKLOADS if device == "cpu" else GPU_WORKLOADS) if workload.model in models
    ]
    for name in models:
        if name not in MODELS:
            raise RegardError(f"unknown model {name!r}: {did_you_mean(name, MODELS)}")
    if not workloads:
        raise RegardError(
            f"nothing to measure for {', '.join(models)} on {device}: choose base, small (CPU) or base, gpt2 (GPU)"
        )
    console.print(f"[dim]{measurement_conditions(device, repeats)}[/]")
    for workload in workloads:
        with tempfile.TemporaryDirectory() as folder:
            timings = measure(workload, device, repeats, Path(folder))
        unit, count = (
            ("tokens/s", workload.batch * workload.tokens)
            if workload.model == "gpt2"
            else ("sentences/s", workload.batch)
        )
        console.print(ratio_table(workload.name, unit, timings, dict.fromkeys(timings, count)))


def measure(workload: DecodingWorkload, device: str, repeats: int, folder: Path) -> dict[str, Timings]:
    """Time each engine on a workload, after two runs to warm up."""
    torch.manual_seed(0)
    runs = dict(_engines(workload, device, folder))
    for run in runs.values():
        run()
        run()
    return time_alternating(runs, device, repeats)


def _engines(workload: DecodingWorkload, device: str, folder: Path) -> Iterator[tuple[str, Runnable]]:
    """Yield each engine with the same weights, ready to run."""
    config = MODELS[workload.model]
    network = build(config).eval()
    assert isinstance(network, Decoder | EncoderDecoder)
    end = 0
    special = SpecialIds(start=config.pad_id, end=(end,), suppressed=(end,))  # no text ends early
    inputs = torch.randint(1, config.outputs, (workload.batch, workload.inputs)).tolist()
    model = Model(network, None, SpecialIds(start=config.pad_id, end=(end,)))
    export(model, folder / "hf")
    yield from _transformers(workload, device, folder / "hf", inputs)
    if device == "cpu" and isinstance(network, EncoderDecoder):
        yield from _ctranslate2(workload, model, folder, inputs)
    network.to(device)
    options = Decoding(beam=workload.beam, max_tokens=workload.tokens)

    def decoding_run(network: Decoder | EncoderDecoder) -> Runnable:
        if isinstance(network, Decoder):
            return lambda: generate(network, special, inputs, options)
        return lambda: search_translations(network, special, inputs, options)

    yield "Regard, unconverted", decoding_run(network)
    yield "Regard, quick float32", decoding_run(make_fast_copy(network, "float32"))
    yield "Regard, quick", decoding_run(make_fast_copy(network))
    if device == "cpu":
        yield "Regard, quick int8", decoding_run(make_fast_copy(network, "int8"))
    else:
        yield "Regard, quick, compiled", decoding_run(make_fast_copy(network, compiled=True))


def _transformers(
    workload: DecodingWorkload, device: str, folder: Path, inputs: list[list[int]]
) -> Iterator[tuple[str, Runnable]]:
    transformers = quiet_transformers()
    kind: Any = transformers.AutoModelForCausalLM if workload.model == "gpt2" else transformers.AutoModelForSeq2SeqLM
    ids = torch.tensor(inputs, device=device)
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    model = kind.from_pretrained(folder, dtype=dtype).eval().to(device)
    options = {
        "max_new_tokens": workload.tokens,
        "min_new_tokens": workload.tokens,
        "num_beams": workload.beam,
        "pad_token_id": 0,
    }

    def run(**extra: Any) -> None:
        with torch.inference_mode():
            model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, **options, **extra)

    yield f"transformers, {str(dtype).removeprefix('torch.')}", run
    if device != "cpu" and workload.beam == 1:
        yield "transformers, static cache, compiled", lambda: run(cache_implementation="static")


def _ctranslate2(
    workload: DecodingWorkload, model: Model, folder: Path, inputs: list[list[int]]
) -> Iterator[tuple[str, Runnable]]:
    try:
        import ctranslate2  # type: ignore[import-untyped]
    except ImportError:
        raise RegardError("this benchmark requires CTranslate2: pip install 'regard[bench]'") from None
    texts = [[f"<id{id_}>" for id_ in row] for row in inputs]
    for dtype in ("float32", "int8"):
        export(model, folder / dtype, "ctranslate2", dtype)
        engine = ctranslate2.Translator(str(folder / dtype), compute_type=dtype, intra_threads=torch.get_num_threads())

        def run(engine: Any = engine) -> None:
            engine.translate_batch(
                texts,
                beam_size=workload.beam,
                min_decoding_length=workload.tokens,
                max_decoding_length=workload.tokens,
                max_batch_size=workload.batch,
                length_penalty=0.6,
            )

        yield f"CTranslate2, {dtype}", run
