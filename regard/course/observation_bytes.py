"""What was observed, as bytes: JSON and safetensors, since a pickle could run any code where it is read."""

import json
from dataclasses import asdict
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from regard.course.observe import Failure, Held, Observed
from regard.errors import RegardError
from regard.formatting import shorten

MOST_BYTES = 64_000_000
"""of what comes back"""


def packed(seen: Observed) -> bytes:
    """What was observed, all but what was printed and noted."""
    tensors: dict[str, Tensor] = {}

    def kept(value: Tensor) -> list[Any]:
        is_complex = value.is_complex()
        name = str(len(tensors))
        tensors[name] = torch.view_as_real(value.resolve_conj()).contiguous() if is_complex else value
        return [name, is_complex]

    told = {
        "values": {probe: {key: kept(each) for key, each in of.items()} for probe, of in seen.values.items()},
        "held": [[each.line, each.name, kept(each.value), each.before] for each in seen.held],
        "failures": {probe: asdict(each) for probe, each in seen.failures.items()},
        "skipped": [asdict(each) for each in seen.skipped],
    }
    text = json.dumps(told).encode()
    return len(text).to_bytes(8, "little") + text + save(tensors)


def unpacked(content: bytes) -> Observed:
    """What was observed, from its bytes; a ValueError when they are not what `packed` makes."""
    end = 8 + int.from_bytes(content[:8], "little")
    try:
        told, tensors = json.loads(content[8:end]), load(content[end:])
        seen = Observed()
        for probe, of in told["values"].items():
            seen.values[probe] = {key: _tensor(tensors, each) for key, each in of.items()}
        for line, name, value, before in told["held"]:
            shapes = {str(key): tuple(map(int, shape)) for key, shape in before.items()}
            seen.held.append(Held(int(line), str(name), _tensor(tensors, value), shapes))
        seen.failures = {probe: _failure(each) for probe, each in told["failures"].items()}
        seen.skipped = list(map(_failure, told["skipped"]))
    except Exception as error:  # whatever is wrong with it, and safetensors has a class of errors of its own
        raise RegardError(f"what came back cannot be read: {shorten(str(error))}") from None
    return seen


def _tensor(tensors: dict[str, Tensor], told: list[Any]) -> Tensor:
    name, is_complex = told
    return torch.view_as_complex(tensors[name]) if is_complex else tensors[name]


def _failure(told: dict[str, Any]) -> Failure:
    line = told["line"]
    return Failure(str(told["kind"]), shorten(str(told["message"])), None if line is None else int(line))
