"""Exporting a model to ONNX, the format of ONNX Runtime and of engines in browsers and on devices.

The graphs have the file names, inputs and outputs that Hugging Face's Optimum uses, for any number of rows and tokens:

- an encoder-decoder: `encoder_model.onnx`, from `input_ids` and `attention_mask` to `last_hidden_state`; and
  `decoder_model.onnx`, from `input_ids`, `encoder_hidden_states` and `encoder_attention_mask` to `logits`;
- a decoder: `model.onnx`, from `input_ids` to `logits`;
- an encoder: `model.onnx`, from `input_ids` and `attention_mask` to `last_hidden_state` and, with a head, `logits`.

A mask is 1 for the tokens of a text and 0 for the padding on its right. There is no cache: each step reads all tokens
again.

Dimensions: B rows, S source length, T target length, C model width.
"""

import logging
import warnings
from collections.abc import Sequence
from contextlib import contextmanager
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.export import Dim

from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.model.transformer import Decoder, Encoder, EncoderDecoder

OPSET = 20
"""Version of ONNX's operators."""
EXAMPLE_ROWS, EXAMPLE_SOURCE, EXAMPLE_TARGET = 2, 5, 3
"""Shape of the input that graphs are traced with. None is 1, which would become a constant of the graph."""


def export_onnx(model: Model, folder: Path) -> None:
    """Write the graphs in float32, and the tokenizer. The folder must exist and be empty.

    A model that the graphs cannot represent raises a RegardError.
    """
    if missing := [name for name in ("onnx", "onnxscript") if find_spec(name) is None]:
        raise RegardError(f"exporting to ONNX requires {' and '.join(missing)}: pip install 'regard[interop]'")
    config = model.config
    if config.prefix:
        raise RegardError("prefix=True: the exported graph has no input for the length of the prefix")
    network = deepcopy(model.network).cpu().float().eval()
    ids = torch.zeros(EXAMPLE_ROWS, EXAMPLE_SOURCE, dtype=torch.long)
    mask = torch.ones_like(ids)
    if isinstance(network, EncoderDecoder):
        targets, memory = ids[:, :EXAMPLE_TARGET], torch.zeros(*ids.shape, config.d_model)
        inputs = {"input_ids": ids, "attention_mask": mask}
        _write_graph(SourceEncoder(network), folder / "encoder_model.onnx", inputs, ["last_hidden_state"])
        inputs = {"input_ids": targets, "encoder_hidden_states": memory, "encoder_attention_mask": mask}
        _write_graph(TargetDecoder(network), folder / "decoder_model.onnx", inputs, ["logits"])
    elif isinstance(network, Decoder):
        _write_graph(NextTokens(network), folder / "model.onnx", {"input_ids": ids}, ["logits"])
    else:
        has_head = model.about.get("head") != "none"
        outputs = ["last_hidden_state", "logits"] if has_head else ["last_hidden_state"]
        _write_graph(
            TextEncoder(network, has_head), folder / "model.onnx", {"input_ids": ids, "attention_mask": mask}, outputs
        )
    if model.tokenizer is not None:
        model.tokenizer.save(folder)


class SourceEncoder(nn.Module):
    """The encoder of an encoder-decoder."""

    def __init__(self, network: EncoderDecoder) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_ids: Int[Tensor, "B S"], attention_mask: Int[Tensor, "B S"]) -> Float[Tensor, "B S C"]:
        """A vector for each token of the source."""
        return self.network.encode(input_ids, attention_mask.sum(1))


class TargetDecoder(nn.Module):
    """The decoder of an encoder-decoder, and its output layer."""

    def __init__(self, network: EncoderDecoder) -> None:
        super().__init__()
        self.network = network

    def forward(
        self,
        input_ids: Int[Tensor, "B T"],
        encoder_hidden_states: Float[Tensor, "B S C"],
        encoder_attention_mask: Int[Tensor, "B S"],
    ) -> Float[Tensor, "B T V"]:
        """Logits for the token after each token of the target."""
        lengths = encoder_attention_mask.sum(1)
        return self.network.head(self.network.decode(input_ids, encoder_hidden_states, lengths))


class NextTokens(nn.Module):
    """A decoder."""

    def __init__(self, network: Decoder) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_ids: Int[Tensor, "B T"]) -> Tensor:
        """Logits for the token after each token."""
        return cast("Tensor", self.network(input_ids))


class TextEncoder(nn.Module):
    """An encoder and, if it has one, its head."""

    def __init__(self, network: Encoder, has_head: bool) -> None:
        super().__init__()
        self.network, self.has_head = network, has_head

    def forward(self, input_ids: Int[Tensor, "B T"], attention_mask: Int[Tensor, "B T"]) -> tuple[Tensor, ...]:
        """A vector for each token, and the logits of the head."""
        lengths = attention_mask.sum(1)
        hidden = self.network.hidden(input_ids, lengths)
        return (hidden, self.network.head(hidden, lengths)) if self.has_head else (hidden,)


def _write_graph(module: nn.Module, path: Path, inputs: dict[str, Tensor], outputs: Sequence[str]) -> None:
    """Trace a module and write its graph, in which rows and tokens may have any number."""
    dynamic = {name: {0: Dim.DYNAMIC, 1: Dim.DYNAMIC} for name in inputs}
    with torch.no_grad(), _quiet():
        program: Any = torch.onnx.export(
            module,
            kwargs=inputs,
            input_names=list(inputs),
            output_names=outputs,
            dynamic_shapes=dynamic,
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
        program.save(str(path), external_data=False)


@contextmanager
def _quiet() -> Any:
    """Without the messages of torch's exporter about packages that are not needed here."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
