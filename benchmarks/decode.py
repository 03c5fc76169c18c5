"""`python -m benchmarks decode`: Regard compared with `transformers` and, on a CPU, CTranslate2: the same weights.

Random weights, exported to the others; texts are made to go on to the same length, so that all do the same work. The
engines take turns, and what is printed is the median of each and the ratio of ours to it.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.common import Run, Timed, circumstances, in_turns, quiet_transformers, ratios
from regard.config import ModelConfig, SpecialIds, did_you_mean, preset
from regard.decoding.fast_copy import quick
from regard.decoding.generate import generate, search_translations
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.interop.export import export
from regard.model.transformer import Decoder, EncoderDecoder, build


@dataclass(frozen=True)
class Work:
    """One thing to do: so many inputs, so wide a beam, so many new tokens."""

    model: str
    batch: int
    beam: int
    tokens: int
    inputs: int = 20

    @property
    def name(self) -> str:
        """In a few words."""
        how = "greedy" if self.beam == 1 else f"beam {self.beam}"
        return f"{self.model}, batch {self.batch}, {how}, {self.tokens} tokens"


MODELS: dict[str, ModelConfig] = {
    "base": preset("paper-base", vocab_size=16_001),
    "small": preset("paper-base", vocab_size=16_001, d_model=256, heads=4, layers=3, d_ff=1024),
    "gpt2": preset("gpt2-small", max_length=1024),
}

ON_CPU = [Work(model, batch, beam, 24) for model in ("base", "small") for batch in (32, 1) for beam in (1, 4)]
ON_GPU = [
    Work("base", 64, 1, 32),
    Work("base", 64, 4, 32),
    Work("base", 256, 4, 32),
    Work("gpt2", 1, 1, 256, inputs=8),
    Work("gpt2", 64, 1, 256, inputs=8),
]


def bench(console: Console, device: str, repeats: int, models: list[str]) -> None:
    """Time every engine there is on all the work for this device, and print a row for each."""
    works = [work for work in (ON_CPU if device == "cpu" else ON_GPU) if work.model in models]
    for name in models:
        if name not in MODELS:
            raise RegardError(f"no model {name!r} to measure: {did_you_mean(name, MODELS)}")
    if not works:
        raise RegardError(
            f"there is no work for {', '.join(models)} on {device}: on a CPU base and small, else base, gpt2"
        )
    console.print(f"[dim]{circumstances(device, repeats)}[/]")
    for work in works:
        with tempfile.TemporaryDirectory() as folder:
            timed = measure(work, device, repeats, Path(folder))
        unit, count = ("tokens/s", work.batch * work.tokens) if work.model == "gpt2" else ("sentences/s", work.batch)
        console.print(ratios(work.name, unit, timed, dict.fromkeys(timed, count)))


def measure(work: Work, device: str, repeats: int, folder: Path) -> dict[str, Timed]:
    """Seconds of each engine, in turns, after a first run of each that is not counted."""
    torch.manual_seed(0)
    runs = dict(_engines(work, device, folder))
    for run in runs.values():
        run()
        run()
    return in_turns(runs, device, repeats)


def _engines(work: Work, device: str, folder: Path) -> Iterator[tuple[str, Run]]:
    """Each engine with the same weights, ready to run; the first is the one that others are held against."""
    config = MODELS[work.model]
    network = build(config).eval()
    assert isinstance(network, Decoder | EncoderDecoder)
    end = 0
    special = SpecialIds(start=config.pad_id, end=(end,), suppressed=(end,))  # so that no text ends by itself
    inputs = torch.randint(1, config.outputs, (work.batch, work.inputs)).tolist()
    stored = Model(network, None, SpecialIds(start=config.pad_id, end=(end,)))
    export(stored, folder / "hf")
    yield from _transformers(work, device, folder / "hf", inputs)
    if device == "cpu" and isinstance(network, EncoderDecoder):
        yield from _ctranslate2(work, stored, folder, inputs)
    network.to(device)
    options = Decoding(beam=work.beam, max_tokens=work.tokens)

    def ours(one: Decoder | EncoderDecoder) -> Run:
        if isinstance(one, Decoder):
            return lambda: generate(one, special, inputs, options)
        return lambda: search_translations(one, special, inputs, options)

    yield "Regard, the network as it is", ours(network)
    yield "Regard, quick float32", ours(quick(network, "float32"))
    yield "Regard, quick", ours(quick(network))
    if device == "cpu":
        yield "Regard, quick int8", ours(quick(network, "int8"))
    else:
        yield "Regard, quick, compiled", ours(quick(network, compiled=True))


def _transformers(work: Work, device: str, folder: Path, inputs: list[list[int]]) -> Iterator[tuple[str, Run]]:
    transformers = quiet_transformers()
    kind: Any = transformers.AutoModelForCausalLM if work.model == "gpt2" else transformers.AutoModelForSeq2SeqLM
    ids = torch.tensor(inputs, device=device)
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    model = kind.from_pretrained(folder, dtype=dtype).eval().to(device)
    options = {"max_new_tokens": work.tokens, "min_new_tokens": work.tokens, "num_beams": work.beam, "pad_token_id": 0}

    def run(**more: Any) -> None:
        with torch.inference_mode():
            model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, **options, **more)

    yield f"transformers, {str(dtype).removeprefix('torch.')}", run
    if device != "cpu" and work.beam == 1:
        yield "transformers, static cache, compiled", lambda: run(cache_implementation="static")


def _ctranslate2(work: Work, stored: Model, folder: Path, inputs: list[list[int]]) -> Iterator[tuple[str, Run]]:
    try:
        import ctranslate2  # type: ignore[import-untyped]
    except ImportError:
        raise RegardError("CTranslate2 is to be measured beside: pip install 'regard[bench]'") from None
    texts = [[f"<id{id_}>" for id_ in row] for row in inputs]
    for dtype in ("float32", "int8"):
        export(stored, folder / dtype, "ctranslate2", dtype)
        engine = ctranslate2.Translator(str(folder / dtype), compute_type=dtype, intra_threads=torch.get_num_threads())

        def run(engine: Any = engine) -> None:
            engine.translate_batch(
                texts,
                beam_size=work.beam,
                min_decoding_length=work.tokens,
                max_decoding_length=work.tokens,
                max_batch_size=work.batch,
                length_penalty=0.6,
            )

        yield f"CTranslate2, {dtype}", run
