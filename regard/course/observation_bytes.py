"""A solution's run as bytes. JSON and safetensors are used because reading a pickle could run arbitrary code."""

import json
from dataclasses import asdict
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from regard.course.line_tracing import MAX_TRACED_TENSORS, TracedTensor
from regard.course.observe import Failure, SolutionRun
from regard.errors import RegardError
from regard.formatting import shorten

MAX_RUN_BYTES = 64_000_000
"""Maximum size of an encoded run."""


def encode_run(run: SolutionRun) -> bytes:
    """Everything in a run except the printed output."""
    tensors: dict[str, Tensor] = {}

    def store(value: Tensor) -> list[Any]:
        is_complex = value.is_complex()
        name = str(len(tensors))
        tensors[name] = torch.view_as_real(value.resolve_conj()).contiguous() if is_complex else value
        return [name, is_complex]

    document = {
        "values": {probe: {key: store(value) for key, value in values.items()} for probe, values in run.values.items()},
        "traced": [
            [tensor.line, tensor.name, store(tensor.value), tensor.before, tensor.callers] for tensor in run.traced
        ],
        "failures": {probe: asdict(failure) for probe, failure in run.failures.items()},
        "skipped": [asdict(failure) for failure in run.skipped],
        "notes": run.notes,
    }
    text = json.dumps(document).encode()
    return len(text).to_bytes(8, "little") + text + save(tensors)


def decode_run(content: bytes) -> SolutionRun:
    """The run that was encoded; a RegardError if the bytes are not what `encode_run` writes."""
    end = 8 + int.from_bytes(content[:8], "little")
    try:
        document, tensors = json.loads(content[8:end]), load(content[end:])
        run = SolutionRun()
        for probe, values in document["values"].items():
            run.values[probe] = {key: _tensor(tensors, stored) for key, stored in values.items()}
        for line, name, stored, before, callers in document["traced"][:MAX_TRACED_TENSORS]:
            shapes = {str(key): tuple(map(int, shape)) for key, shape in before.items()}
            value = _tensor(tensors, stored)
            run.traced.append(TracedTensor(int(line), str(name), value, shapes, tuple(map(int, callers))))
        run.failures = {probe: _failure(fields) for probe, fields in document["failures"].items()}
        run.skipped = list(map(_failure, document["skipped"]))
        run.notes = [shorten(str(note)) for note in document["notes"]]
    except Exception as error:  # the content is untrusted, and safetensors raises a class of its own
        raise RegardError(f"the solution's results cannot be read: {shorten(str(error))}") from None
    return run


def _tensor(tensors: dict[str, Tensor], stored: list[Any]) -> Tensor:
    name, is_complex = stored
    return torch.view_as_complex(tensors[name]) if is_complex else tensors[name]


def _failure(fields: dict[str, Any]) -> Failure:
    line = fields["line"]
    return Failure(shorten(str(fields["kind"])), shorten(str(fields["message"])), None if line is None else int(line))
