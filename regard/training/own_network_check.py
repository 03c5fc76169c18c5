"""Checks of a user's module and loss before the first step: mistakes that would waste a training are reported at once.

The module runs on random tokens, on the device and in the precision of the training. What makes training impossible is
an error; what is probably a mistake is a warning, which is reported once.

Dimensions: B rows, T tokens, S source tokens, V outputs, K classes.
"""

import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.decoding import own_network as own_network_module
from regard.decoding.own_network import TORCH_FOLDER, OwnNetwork, method_location
from regard.errors import RegardError
from regard.training.objective import Objective, own_loss_sum

ROWS = 2
LENGTH, SOURCE_LENGTH = 8, 6
"""Number of tokens of the example, on each side."""
MAX_LISTED_NAMES = 3
RELATIVE_TOLERANCE = 1e-3
"""Maximum difference, relative to the largest logit, between outputs that count as equal."""


@dataclass(frozen=True)
class ExampleInputs:
    """Random tokens for a module."""

    tokens: Int[Tensor, "B T"]
    lengths: Int[Tensor, " B"]
    source: Int[Tensor, "B S"] | None
    source_lengths: Int[Tensor, " B"] | None

    @classmethod
    def of(
        cls, network: OwnNetwork, rows: int = ROWS, length: int = LENGTH, source: int = SOURCE_LENGTH
    ) -> "ExampleInputs":
        """Rows of this length, or of the maximum length if that is shorter."""
        config, generator = network.config, torch.Generator().manual_seed(0)
        longest = config.max_positions or length
        tokens, source_tokens = (
            torch.randint(ids, (rows, min(size, longest)), generator=generator).to(network.device)
            for size, ids in ((length, config.output_vocab_size), (source, config.vocab_size))
        )
        tokens[:, 0], source_tokens[:, 0] = config.output_vocab_size - 1, config.vocab_size - 1  # often <pad>
        lengths, source_lengths = (
            torch.full((rows,), x.size(1), device=network.device) for x in (tokens, source_tokens)
        )
        if config.kind != "encoder-decoder":
            return cls(tokens, lengths, None, None)
        return cls(tokens, lengths, source_tokens, source_lengths)

    @property
    def arguments(self) -> tuple[Tensor | None, ...]:
        """The arguments of `OwnNetwork.call_module`."""
        return self.tokens, self.lengths, self.source, self.source_lengths


def check_own_network(network: OwnNetwork) -> list[str]:
    """Check a module. Raises a RegardError that says what to change; returns warnings."""
    training, buffers = network.training, [buffer.clone() for buffer in network.buffers()]
    try:
        with torch.random.fork_rng(devices=[network.device] if network.device.type == "cuda" else []):
            warnings = _check_gradients(network.train())
            network.eval()
            with torch.no_grad():
                _check_longest(network)
                warnings += _check_outputs(network)
    finally:
        for buffer, before in zip(network.buffers(), buffers, strict=True):
            buffer.copy_(before)  # such as the running mean of a batch norm
        network.train(training)
        network.zero_grad()
    return warnings


def check_own_loss(objective: Objective) -> None:
    """Raise a RegardError unless the user's loss of random logits is a finite number with a gradient."""
    loss, config = objective.own_loss, objective.network.config
    assert loss is not None
    generator = torch.Generator().manual_seed(0)
    outputs = config.classes or config.outputs
    logits = torch.randn(4, outputs, generator=generator).to(objective.network.device).requires_grad_()
    targets = torch.randint(outputs, (4,), generator=generator).to(logits.device)
    try:
        total = own_loss_sum(loss, logits, targets)
    except RegardError:
        raise
    except Exception as error:
        shapes = f"logits {list(logits.shape)} and targets {list(targets.shape)}"
        raise RegardError(f"your loss failed for {shapes}: {explain_error(error)}") from error
    if not total.requires_grad:
        raise RegardError("your loss has no gradient: compute it from the logits with differentiable operations")
    if not total.isfinite():
        raise RegardError(f"your loss of random logits is {total.item()}, not a finite number")


def check_parameters(module: nn.Module) -> None:
    """Raise a RegardError for weights that an optimizer would not find, or that have no values."""
    name = type(module).__name__
    registered = {id(parameter) for parameter in module.parameters()}
    for path, part in module.named_modules():
        for attribute, value in vars(part).items():
            if attribute.startswith("_") and isinstance(value, dict):
                continue  # where torch keeps what is registered
            hidden = _unregistered(value, registered)
            if hidden:
                where = ".".join(filter(None, [name, path, attribute]))
                raise RegardError(f"{method_location(part, '__init__')}{where} {hidden}")
    location = method_location(module, "__init__")
    if not registered:
        raise RegardError(f"{location}{name} has no parameters: there is nothing to train")
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise RegardError(f"{location}all parameters of {name} have requires_grad=False: there is nothing to train")
    if any(parameter.is_meta for parameter in module.parameters()):
        raise RegardError(
            f"{location}{name} has parameters on the meta device, which have no values: create them on the CPU"
        )


def _unregistered(value: Any, registered: set[int]) -> str | None:
    """What is wrong with an attribute that holds weights which `parameters()` does not list; None if nothing is."""
    if isinstance(value, Tensor):
        is_weight = value.is_leaf and value.requires_grad and id(value) not in registered
        return "is a plain tensor, so it would not be trained: make it an nn.Parameter" if is_weight else None
    is_dict = isinstance(value, dict)
    items: Iterable[Any] = value.values() if is_dict else value
    for item in items if isinstance(value, dict | list | tuple) else ():
        weights = list(item.parameters()) if isinstance(item, nn.Module) else [item]
        if any(isinstance(weight, nn.Parameter) and id(weight) not in registered for weight in weights):
            kind = "Module" if isinstance(item, nn.Module) else "Parameter"
            container = f"nn.{kind}{'Dict' if is_dict else 'List'}"
            return f"is a Python {type(value).__name__}, so its weights would not be trained: make it an {container}"
    return None


def _check_gradients(network: OwnNetwork) -> list[str]:
    """Check the output in training mode and its gradients."""
    name, location = network.name, method_location(network.module, "forward")
    output = _run(network, ExampleInputs.of(network))
    if not output.requires_grad:
        raise RegardError(
            f"{location}{name} is not differentiable: its output has no gradient. "
            "Does it use torch.no_grad, detach, argmax or numpy?"
        )
    try:
        output.float().logsumexp(-1).sum().backward()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise RegardError(f"{name} is not differentiable: {explain_error(error)}") from error
    trained = [(path, weight) for path, weight in network.module.named_parameters() if weight.requires_grad]
    without = [path for path, weight in trained if weight.grad is None]
    if len(without) == len(trained):
        raise RegardError(f"{location}{name} is not differentiable: none of its parameters gets a gradient")
    not_finite = [path for path, weight in trained if weight.grad is not None and not weight.grad.isfinite().all()]
    if not_finite:
        raise RegardError(f"{location}the gradient of {name} is not finite, first in {not_finite[0]}")
    return [f"parameters of {name} without a gradient are not trained: {_listed(without)}"] if without else []


def _check_longest(network: OwnNetwork) -> None:
    """Check that the module can read the longest sequence of the training."""
    longest = network.config.max_positions
    if longest is not None and longest > LENGTH:
        advice = f"it must read up to {longest} tokens: enlarge its table of positions, or lower train.max_length"
        _run(network, ExampleInputs.of(network, rows=1, length=longest, source=longest), advice)


def _check_outputs(network: OwnNetwork) -> list[str]:
    """Check that an output depends on what it may depend on: not on chance, later tokens or padding."""
    name, inputs = network.name, ExampleInputs.of(network)
    expected = _run(network, inputs)
    if _differ(_run(network, inputs), expected):
        return [f"{name} gives other outputs for the same input in eval mode: is a dropout active outside training?"]
    warnings = []
    is_causal = network.config.kind != "encoder" and not network.config.is_classifier
    if is_causal and (position := _leak(network, inputs, expected)) is not None:
        warnings.append(
            f"{name} looks at the future: its output at position {position} changes with a later token. The loss will "
            "be too low and the generated text wrong: mask all later positions"
        )
    return warnings + _padding_warnings(network, inputs, expected)


def _leak(network: OwnNetwork, inputs: ExampleInputs, expected: Tensor) -> int | None:
    """The first position whose output changes with the token after it; None if there is none."""
    for position in range(inputs.tokens.size(1) - 1):
        tokens = inputs.tokens.clone()
        tokens[:, position + 1 :] = (tokens[:, position + 1 :] + 1) % network.config.output_vocab_size
        changed = ExampleInputs(tokens, inputs.lengths, inputs.source, inputs.source_lengths)
        if _differ(_run(network, changed)[:, : position + 1], expected[:, : position + 1]):
            return position
    return None


def _padding_warnings(network: OwnNetwork, inputs: ExampleInputs, expected: Tensor) -> list[str]:
    """Whether padding on the right, which batches of different lengths have, changes the outputs."""

    def padded(x: Tensor) -> Tensor:
        return torch.cat([x, x.new_zeros(len(x), 2)], 1)

    longest, advice = network.config.max_positions, "use lengths or a mask, which forward can be given"
    warnings: list[str] = []
    t = inputs.tokens.size(1)
    if longest is not None and t + 2 > longest:
        return warnings
    with_padding = ExampleInputs(padded(inputs.tokens), inputs.lengths, inputs.source, inputs.source_lengths)
    output = _run(network, with_padding)
    if _differ(output if network.config.is_classifier else output[:, :t], expected):
        warnings.append(f"padding after a text changes the output of {network.name}: {advice}")
    if inputs.source is not None:
        with_padding = ExampleInputs(inputs.tokens, inputs.lengths, padded(inputs.source), inputs.source_lengths)
        if _differ(_run(network, with_padding), expected):
            warnings.append(f"padding after a source changes the output of {network.name}: {advice}")
    return warnings


def _run(network: OwnNetwork, inputs: ExampleInputs, advice: str = "") -> Tensor:
    """The module's logits; a RegardError if it fails, or if they have the wrong type or shape or are not finite."""
    shapes = [list(x.shape) for x in (inputs.source, inputs.tokens) if x is not None]
    try:
        output = network.call_module(*inputs.arguments)  # type: ignore[arg-type]
    except RegardError:
        raise
    except Exception as error:
        reason = f"{explain_error(error, network.config)}{f'; {advice}' if advice else ''}"
        raise RegardError(f"{network.name} failed for token ids {' and '.join(map(str, shapes))}: {reason}") from error
    return _check_logits(network, output, inputs)


def _check_logits(network: OwnNetwork, output: object, inputs: ExampleInputs) -> Tensor:
    config = network.config
    where = f"{method_location(network.module, 'forward')}{network.name}"
    if not isinstance(output, Tensor):
        raise RegardError(f"{where} returned a {type(output).__name__}: return only the logits, a tensor")
    rows, t = inputs.tokens.shape
    sizes = [config.classes] if config.classes else list(dict.fromkeys([config.outputs, config.output_vocab_size]))
    leading = [rows] if config.is_classifier else [rows, t]
    if list(output.shape) not in [[*leading, size] for size in sizes]:
        expected = " or ".join(str([*leading, size]) for size in sizes)
        raise RegardError(
            f"{where} returned {list(output.shape)} instead of {expected}{_shape_hint(network, output, leading, sizes)}"
        )
    if not output.is_floating_point():
        raise RegardError(f"{where} returned {output.dtype}: return logits, which are floating-point numbers")
    if output.device.type != network.device.type:
        raise RegardError(f"{where} returned a tensor on {output.device}, but its weights are on {network.device}")
    if output.isnan().any() or output.isposinf().any():
        raise RegardError(f"{where} returned NaN or infinity before any training: {_not_finite_hint(network)}")
    return output


def _not_finite_hint(network: OwnNetwork) -> str:
    for name, weight in network.module.named_parameters():
        if not weight.isfinite().all():
            return f"the initial weights in {name} are not finite"
    return (
        "its weights are finite, so probably a mask hides every position of a row. In Regard's masks True means \"may "
        'attend"; in those of nn.Transformer and nn.MultiheadAttention it means the opposite: pass them ~mask'
    )


def _shape_hint(network: OwnNetwork, output: Tensor, leading: list[int], sizes: list[int]) -> str:
    shape = list(output.shape)
    if shape[:-1] == leading and shape[-1] == network.config.d_model:
        return ": these look like hidden vectors, so apply the output layer"
    if len(leading) == 2 and shape[:2] == leading[::-1]:
        return ": the batch comes first"
    if shape[:-1] == leading:
        return f": the last dimension is the vocabulary of {sizes[0]} ids, or {sizes[-1]} with <pad>"
    return ""


def _differ(one: Tensor, other: Tensor) -> bool:
    scale = max(1.0, float(other.float().abs().nan_to_num(posinf=0.0).max()))
    difference = (one.float() - other.float()).abs().nan_to_num(nan=0.0)  # -inf - -inf
    return bool((difference > RELATIVE_TOLERANCE * scale).any())


def explain_error(error: Exception, config: ModelConfig | None = None) -> str:
    """An error of the user's code with its location, and a hint where the cause is common."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    hint = ""
    if "same device" in text or "on cpu" in text.lower():
        hint = (
            " (tensors that are not parameters stay on the CPU: create them with register_buffer, or on tokens.device)"
        )
    elif config is not None and isinstance(error, IndexError) and "index out of range" in text:
        target = f" ({config.output_vocab_size:,} of the target)" if config.target_vocab_size else ""
        positions = "" if config.max_positions is None else f", one of positions {config.max_positions:,}"
        hint = f" (an embedding is too small: one of ids needs {config.vocab_size:,} rows{target}{positions})"
    return f"{_location(error)}{text}{hint}"


def _location(error: Exception) -> str:
    """The file and line of the user's code where an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = {__file__, own_network_module.__file__}
    last = max((number for number, frame in enumerate(frames) if frame.filename in ours), default=-1)
    users = [frame for frame in frames[last + 1 :] if not frame.filename.startswith(TORCH_FOLDER)]
    return f"{users[-1].filename}, line {users[-1].lineno}: " if users else ""


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    return ", ".join(names[:MAX_LISTED_NAMES]) + more
