"""The engines of `python -m benchmarks decode`: each makes the same random network ready to decode."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import quiet_transformers
from regard.config import ModelConfig, SpecialIds, preset
from regard.decoding.fast_copy import Precision, make_fast_copy
from regard.decoding.generate import generate, search_translations
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.interop.export import export
from regard.model.transformer import Decoder, EncoderDecoder, build

MODELS: dict[str, ModelConfig] = {
    "base": preset("paper-base", vocab_size=16_001),
    "small": preset("paper-base", vocab_size=16_001, d_model=256, heads=4, layers=3, d_ff=1024),
    "gpt2": preset("gpt2-small", max_length=1024),
}
END = 0


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

    def input_ids(self) -> list[list[int]]:
        """Return random inputs, the same in every process."""
        generator = torch.Generator().manual_seed(1)
        return torch.randint(1, MODELS[self.model].outputs, (self.batch, self.inputs), generator=generator).tolist()


Run = Callable[[DecodingWorkload], object]
Prepare = Callable[[Decoder | EncoderDecoder, str, Path], Run]
"""From the network, the device and an empty folder to a function that decodes a workload once."""


def random_network(model: str) -> Decoder | EncoderDecoder:
    """Return the network to measure, with the same weights in every process."""
    torch.manual_seed(0)
    network = build(MODELS[model]).eval()
    assert isinstance(network, Decoder | EncoderDecoder)
    return network


def _exported(network: Decoder | EncoderDecoder) -> Model:
    return Model(network, None, SpecialIds(start=network.config.pad_id, end=(END,)))


def _regard(make: Callable[[Decoder | EncoderDecoder], Decoder | EncoderDecoder]) -> Prepare:
    def prepare(network: Decoder | EncoderDecoder, device: str, _folder: Path) -> Run:
        special = SpecialIds(start=network.config.pad_id, end=(END,), suppressed=(END,))  # no text ends early
        copy = make(network.to(device))

        def run(workload: DecodingWorkload) -> object:
            options = Decoding(beam=workload.beam, max_tokens=workload.tokens)
            if isinstance(copy, Decoder):
                return generate(copy, special, workload.input_ids(), options)
            return search_translations(copy, special, workload.input_ids(), options)

        return run

    return prepare


def _quick(precision: Precision = "auto", compiled: bool = False) -> Prepare:
    return _regard(lambda network: make_fast_copy(network, precision, compiled))


def _transformers(static: bool = False) -> Prepare:
    def prepare(network: Decoder | EncoderDecoder, device: str, folder: Path) -> Run:
        transformers = quiet_transformers()
        export(_exported(network), folder / "hf")
        is_decoder = isinstance(network, Decoder)
        kind: Any = transformers.AutoModelForCausalLM if is_decoder else transformers.AutoModelForSeq2SeqLM
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        model = kind.from_pretrained(folder / "hf", dtype=dtype).eval().to(device)

        def run(workload: DecodingWorkload) -> object:
            ids = torch.tensor(workload.input_ids(), device=device)
            options = {
                "max_new_tokens": workload.tokens,
                "min_new_tokens": workload.tokens,
                "num_beams": workload.beam,
                "pad_token_id": 0,
            }
            extra = {"cache_implementation": "static"} if static else {}
            with torch.inference_mode():
                return model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, **options, **extra)

        return run

    return prepare


def _ctranslate2(dtype: str) -> Prepare:
    def prepare(network: Decoder | EncoderDecoder, _device: str, folder: Path) -> Run:
        try:
            import ctranslate2  # type: ignore[import-untyped]
        except ImportError:
            raise RegardError("this benchmark requires CTranslate2: pip install 'regard[bench]'") from None
        export(_exported(network), folder / dtype, "ctranslate2", dtype)
        engine = ctranslate2.Translator(str(folder / dtype), compute_type=dtype, intra_threads=torch.get_num_threads())

        def run(workload: DecodingWorkload) -> object:
            return engine.translate_batch(
                [[f"<id{id_}>" for id_ in row] for row in workload.input_ids()],
                beam_size=workload.beam,
                min_decoding_length=workload.tokens,
                max_decoding_length=workload.tokens,
                max_batch_size=workload.batch,
                length_penalty=0.6,
            )

        return run

    return prepare


CPU_ENGINES: dict[str, tuple[str, Prepare]] = {
    "transformers": ("transformers, float32", _transformers()),
    "ctranslate2": ("CTranslate2, float32", _ctranslate2("float32")),
    "ctranslate2-int8": ("CTranslate2, int8", _ctranslate2("int8")),
    "unconverted": ("Regard, unconverted", _regard(lambda network: network)),
    "quick": ("Regard, quick", _quick()),
    "quick-int8": ("Regard, quick int8", _quick("int8")),
    "compiled": ("Regard, quick, compiled", _quick(compiled=True)),
    "compiled-int8": ("Regard, quick int8, compiled", _quick("int8", compiled=True)),
}
"""Engines that are measured on a CPU, by the name that `--engines` takes: their titles, and how to prepare them."""
GPU_ENGINES: dict[str, tuple[str, Prepare]] = {
    "transformers": ("transformers, bfloat16", _transformers()),
    "transformers-static": ("transformers, static cache, compiled", _transformers(static=True)),
    "unconverted": ("Regard, unconverted", _regard(lambda network: network)),
    "quick-float32": ("Regard, quick float32", _quick("float32")),
    "quick": ("Regard, quick", _quick()),
    "compiled": ("Regard, quick, compiled", _quick(compiled=True)),
}
"""The same for a GPU."""


def engines_of(device: str) -> dict[str, tuple[str, Prepare]]:
    """Return the engines that are measured on a device."""
    return CPU_ENGINES if device == "cpu" else GPU_ENGINES


def can_run(engine: str, workload: DecodingWorkload) -> bool:
    """Return whether an engine supports a workload: a static cache has no beams, and CTranslate2 needs an encoder."""
    if engine == "transformers-static":
        return workload.beam == 1
    return not (engine.startswith("ctranslate2") and workload.model == "gpt2")
