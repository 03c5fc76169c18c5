"""Probes of a Transformer: each part separately, then the complete model.

Parts that contain other parts get ours, so that one mistake does not hide another. Values are computed without dropout;
of random results only their properties are compared.
"""

import math
import re
import warnings
from functools import cache, wraps
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.course import fixed_weights
from regard.course.assignment import Names, Probe
from regard.course.line_tracing import tracing_paused

SRC_VOCAB, TGT_VOCAB, HEADS, WIDTH, INNER = 11, 7, 2, 8, 16
RATE = 0.25
"""A rate of dropout that nobody hard-codes."""
SOURCE = torch.tensor([[3, 1, 4], [2, 9, 0], [5, 8, 6], [7, 0, 0], [10, 2, 3]])
TARGET = torch.tensor([[1, 2, 3], [6, 5, 4], [1, 3, 0], [2, 6, 6], [4, 1, 2]])

_IS_OF_SAMPLE: WeakKeyDictionary[type, bool] = WeakKeyDictionary()
"""Whether each class of norms divides by the standard deviation of a sample."""


def _drawn(name: str, *shape: int) -> Tensor:
    """Normally distributed numbers, shared by all solutions, which copy or only read them."""
    return _drawn_as(torch.get_default_dtype(), name, *shape)


@cache
def _drawn_as(_: torch.dtype, name: str, *shape: int) -> Tensor:
    return fixed_weights.seeded_normal(name, *shape)


class _DropoutDisabled(TorchFunctionMode):
    """Disables dropout, even if a solution hard-codes its rate."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (nn.functional.dropout, torch.dropout):
            return args[0] if args else kwargs["input"]
        return func(*args, **(kwargs or {}))


def _without_dropout(probe: Probe) -> Probe:
    @wraps(probe)
    def probe_without_dropout(names: Names) -> dict[str, Tensor]:
        with _DropoutDisabled():
            return probe(names)

    return probe_without_dropout


def copies(names: Names) -> dict[str, Tensor]:
    """clones returns registered copies, each with its own weights."""
    copies = names["clones"](nn.Linear(2, 3), 3)
    own = len({id(weight) for module in copies for weight in module.parameters()})
    registered = isinstance(copies, nn.Module)
    return {"copies": torch.tensor(len(copies)), "weights": torch.tensor(own), "registered": torch.tensor(registered)}


def sizes(names: Names) -> dict[str, Tensor]:
    """The number of weights of the attention and of the feed-forward network."""
    heads, feed = names["MultiHeadedAttention"](HEADS, WIDTH), names["PositionwiseFeedForward"](WIDTH, INNER, 0.1)
    return {"heads": _count(heads), "feed_forward": _count(feed)}


def mask(names: Names) -> dict[str, Tensor]:
    """The mask that subsequent_mask returns."""
    return {"mask": torch.as_tensor(names["subsequent_mask"](4)).reshape(4, 4).double()}


def attention_function(names: Names) -> dict[str, Tensor]:
    """attention with and without a mask, and with everything hidden."""
    attention = names["attention"]
    query, key, value = (_drawn(name, 3, HEADS, 4, 4) for name in ("query", "key", "value"))
    longer = _drawn("longer", 2, 3, HEADS, 5, 4)
    free, free_weights = attention(query, key, value)
    padding = torch.tensor([[1, 1, 1, 0], [1, 0, 1, 0], [0, 1, 1, 1]]).bool()[:, None, None]
    masked, weights = attention(query, key, value, mask=padding)
    blind, _ = attention(query, key, value, mask=torch.zeros(3, 1, 4, 4, dtype=torch.bool))
    large, _ = attention(40 * query, 40 * key, value)  # exp of the scores overflows
    values = {"free": free, "free_weights": free_weights, "masked": masked, "weights": weights, "extreme": large}
    return values | {"blind": blind.isfinite().all(), **_longer(attention, query, *longer)}


@_without_dropout
def heads(names: Names) -> dict[str, Tensor]:
    """MultiHeadedAttention without a mask, with a padding mask and with a causal mask."""
    module = _fill(names["MultiHeadedAttention"](HEADS, WIDTH, dropout=0.0)).eval()
    query, key, value = (_drawn(name, HEADS, 4, WIDTH) for name in ("query", "key", "value"))
    padding = torch.tensor([[[1, 1, 1, 0]], [[1, 0, 1, 1]]]).bool()
    values = {"free": module(query, key, value), "padded": module(query, key, value, mask=padding)}
    return values | {"causal": module(query, key, value, _causal_mask(4))}


@_without_dropout
def stored_weights(names: Names) -> dict[str, Tensor]:
    """MultiHeadedAttention stores its attention weights in self.attn."""
    module = _fill(names["MultiHeadedAttention"](HEADS, WIDTH, dropout=0.0)).eval()
    module(_inputs(3, 4, WIDTH), _inputs(3, 4, WIDTH), _inputs(3, 4, WIDTH), _causal_mask(4))
    stored = isinstance(module.attn, Tensor)
    return {"stored": torch.tensor(stored), "attn": module.attn if stored else torch.zeros(())}


@_without_dropout
def positions(names: Names) -> dict[str, Tensor]:
    """PositionalEncoding adds fixed values that move with the module."""
    module = _fill(names["PositionalEncoding"](WIDTH, 0.0)).eval()
    values = {"as many rows as tokens": module(torch.zeros(4, 4, WIDTH))}
    try:
        values |= {"positions only": module(torch.zeros(2, 5, WIDTH)), "added to input": module(_inputs(3, 4, WIDTH))}
    except RuntimeError:  # the sizes do not match
        return values | {"any length": torch.tensor(False)}
    values |= {"any length": torch.tensor(True)}
    wider = _fill(names["PositionalEncoding"](WIDTH * 2, 0.0, 50)).eval()
    trained = any(weight.requires_grad for weight in module.parameters())
    values |= {"wider": wider(torch.zeros(1, 50, WIDTH * 2)), "trained": torch.tensor(trained)}
    return values | {"moves": _moves(module)}


def embedding(names: Names) -> dict[str, Tensor]:
    """The scaled vectors of Embeddings."""
    return {"vectors": _fill(names["Embeddings"](WIDTH, SRC_VOCAB))(SOURCE)}


def norm(names: Names) -> dict[str, Tensor]:
    """The output of LayerNorm, also for a vector of equal numbers."""
    module = _fill(names["LayerNorm"](WIDTH))
    far = 5 + 3 * _inputs(4, 3, WIDTH)
    values = {"normed": module(far), "square": module(far[:1].expand(WIDTH, -1, -1).cumsum(0).transpose(0, 1))}
    return values | {"level": module(torch.full((2, 3, WIDTH), 2.0)).isfinite().all()}


@_without_dropout
def residual(names: Names) -> dict[str, Tensor]:
    """SublayerConnection with a sublayer of ours."""
    module = _fill(names["SublayerConnection"](WIDTH, 0.0)).eval()
    x = 2 + 3 * _inputs(3, 4, WIDTH)
    return {"output": module(x, lambda y: y.roll(1, -1).sin() + y.roll(1, -2))}


@_without_dropout
def feed_forward(names: Names) -> dict[str, Tensor]:
    """The output of PositionwiseFeedForward."""
    module = _fill(names["PositionwiseFeedForward"](WIDTH, INNER, 0.0)).eval()
    return {"output": module(_inputs(3, 4, WIDTH))}


def one_encoder_layer(names: Names) -> dict[str, Tensor]:
    """EncoderLayer with an attention and a feed-forward network of ours."""
    layer = names["EncoderLayer"](WIDTH, _Attention("self"), _Feed(), 0.0)
    return {"output": _fill(layer).eval()(_wide_inputs(3, 4, WIDTH), _hide_second(4))}


def one_decoder_layer(names: Names) -> dict[str, Tensor]:
    """DecoderLayer with attentions and a feed-forward network of ours."""
    layer = names["DecoderLayer"](WIDTH, _Attention("self"), _Attention("source"), _Feed(), 0.0)
    _fill(layer).eval()
    x, memory = _wide_inputs(3, 4, WIDTH), _drawn("memory", 3, 4, WIDTH)
    values = {"output": layer(x, memory, _hide_second(4), _causal_mask(4))}
    try:
        return values | {"longer": layer(x, _drawn("memory", 3, 6, WIDTH), _hide_second(6), _causal_mask(4))}
    except RuntimeError:  # the sizes do not match; the values for equal lengths say more
        return values


def stacks(names: Names) -> dict[str, Tensor]:
    """Encoder and Decoder with layers of ours."""
    encoder = _fill(names["Encoder"](_Layer(), 3)).eval()
    decoder = _fill(names["Decoder"](_Layer(), 3)).eval()
    x, memory = _wide_inputs(3, 4, WIDTH), _drawn("memory", 3, 4, WIDTH)
    values = {"encoded": encoder(x, _hide_second(4)), "decoded": decoder(x, memory, _hide_second(4), _causal_mask(4))}
    return values | {"parameters": _count(nn.ModuleList([encoder, decoder]))}


def generator(names: Names) -> dict[str, Tensor]:
    """The log-probabilities of Generator."""
    return {"log_probs": _fill(names["Generator"](WIDTH, TGT_VOCAB))(_inputs(3, 4, WIDTH))}


def wiring(names: Names) -> dict[str, Tensor]:
    """EncoderDecoder with parts of ours."""
    embeds = [nn.Embedding(SRC_VOCAB, WIDTH), nn.Embedding(TGT_VOCAB, WIDTH)]
    model = names["EncoderDecoder"](_Layer(), _Layer(), *embeds, nn.Linear(WIDTH, TGT_VOCAB))
    _fill(model).eval()
    source, target = SOURCE[:3], TARGET[:3]
    memory = model.encode(source, _padding_mask(source))
    states = model(source, target, _padding_mask(source), _causal_mask(3))
    return {
        "memory": memory,
        "states": states,
        "decoded": model.decode(memory, _padding_mask(source), target, _causal_mask(3)),
    }


def dropout(names: Names) -> dict[str, Tensor]:
    """Dropout is active in training mode and inactive in eval mode."""
    x, feed = _inputs(4, 16, WIDTH), names["PositionwiseFeedForward"](WIDTH, INNER, 0.5)
    heads = names["MultiHeadedAttention"](HEADS, WIDTH, 0.5)
    parts = {
        "heads": (heads, lambda: heads(x, x, x)),
        "positions": (encoding := names["PositionalEncoding"](WIDTH, 0.5), lambda: encoding(x)),
        "residual": (connection := names["SublayerConnection"](WIDTH, 0.5), lambda: connection(x, torch.tanh)),
        "feed_forward": (feed, lambda: feed(x)),
    }
    for module, _ in parts.values():
        module.eval()
    values = {f"{name}_deterministic": _close(run(), run()) for name, (_, run) in parts.items()}
    for module, _ in parts.values():
        module.train()
    values |= {f"{name}_random": ~_close(run(), run()) for name, (_, run) in parts.items()}
    return values | {"residual_kept": _close(connection(x, torch.zeros_like), x)} | _dropped(names)


def initial_weights(names: Names) -> dict[str, Tensor]:
    """make_model initialises every matrix with xavier_uniform_, and passes the rate of dropout to all parts."""
    model = names["make_model"](4 * SRC_VOCAB, 4 * TGT_VOCAB, N=1, d_model=32, d_ff=64, h=HEADS, dropout=RATE)
    matrices = [weight.detach() for weight in model.parameters() if weight.requires_grad and weight.dim() == 2]
    rates = [part.p for part in model.modules() if isinstance(part, nn.Dropout)]
    return {
        "xavier_uniform_": torch.tensor(all(map(_looks_xavier_uniform, matrices))),
        "dropout rates": torch.tensor(all(rate == RATE for rate in rates)),
    }


def _looks_xavier_uniform(matrix: Tensor) -> bool:
    """Whether the numbers of a matrix have the bounds and the standard deviation that xavier_uniform_ gives them."""
    bound = math.sqrt(6 / sum(matrix.shape))
    spread = matrix.std().item() / (bound / math.sqrt(3))
    return matrix.abs().max().item() <= bound * (1 + 1e-6) and 0.9 < spread < 1.1


@_without_dropout
def lengths(names: Names) -> dict[str, Tensor]:
    """The complete model with sources longer than targets: outputs and gradients."""
    model = _model(names, layers=1)
    source, target = torch.cat([SOURCE, SOURCE.roll(1, 0)[:, :2]], 1), TARGET[:, :2]
    memory = model.encode(source, _padding_mask(source))
    states = model.decode(memory, _padding_mask(source), target, _causal_mask(2))
    log_probs = model.generator(states)
    (log_probs * _inputs(*log_probs.shape)).sum().backward()
    vectors = next(part for name, part in _modules(model) if name.startswith("src_embed") and hasattr(part, "weight"))
    reached = {"vectors": vectors.weight.grad[1:], "generator": model.generator.proj.weight.grad}
    return {"parameters": _count(model), "memory": memory, "states": states} | reached


@_without_dropout
def example(names: Names) -> dict[str, Tensor]:
    """The complete model on five sentences of three tokens, some of them padded."""
    model = _model(names, layers=2)
    states = model(SOURCE, TARGET, _padding_mask(SOURCE), _padding_mask(TARGET) & _students_mask(names, 3))
    return {"log_probs": model.generator(states)}


def _dropped(names: Names) -> dict[str, Tensor]:
    """Dropout on the weights keeps the mean: with values of 1, the outputs are 1 on average but not each."""
    attention, drop = names["attention"], nn.Dropout(0.5)
    query, key = _inputs(64, HEADS, 16, 4), _inputs(64, HEADS, 16, 4).flip(0)
    ones = torch.ones(64, HEADS, 16, 4)
    rows = attention(query, key, ones, dropout=drop)[0]
    again = [attention(query, key, key, dropout=drop)[0] for _ in range(2)]
    values = {"weights_dropped": ~_close(rows, ones), "weights_random": ~_close(*again)}
    same_features = _close(rows, rows[..., :1].expand_as(rows))  # a weight is dropped for all features of a value
    values |= {"features_dropped_together": same_features, "outputs_dropped": (rows == 0).double().mean() > 0.25}
    return values | {"mean_kept": (rows.mean() - 1).abs() < 0.1}


def _model(names: Names, layers: int) -> nn.Module:
    sizes = {"N": layers, "d_model": WIDTH, "d_ff": INNER, "h": HEADS, "dropout": 0.0}
    return _fill(names["make_model"](SRC_VOCAB, TGT_VOCAB, **sizes)).eval()


def _inputs(*shape: int) -> Tensor:
    return _drawn("inputs", *shape).clone()


def _wide_inputs(*shape: int) -> Tensor:
    """Inputs of norms with a variance so large that the size of eps does not matter, even if it is hard-coded."""
    return 4 * _inputs(*shape)


def _padding_mask(tokens: Tensor) -> Tensor:
    """[batch, 1, seq]: True for tokens, False for padding."""
    return (tokens != 0).unsqueeze(-2)


def _hide_second(length: int) -> Tensor:
    return torch.ones(3, 1, length).bool().index_fill(2, torch.tensor([1]), False)


def _causal_mask(length: int) -> Tensor:
    return torch.arange(length) <= torch.arange(length)[None, :, None]  # [1, length, length]


def _students_mask(names: Names, length: int) -> Tensor:
    return torch.as_tensor(names["subsequent_mask"](length)).bool()


def _close(one: Tensor, other: Tensor) -> Tensor:
    return torch.tensor(one.shape == other.shape and torch.allclose(one, other, atol=1e-5))


def _longer(attention, query: Tensor, key: Tensor, value: Tensor) -> dict[str, Tensor]:
    """The output with more keys than queries; empty if the solution's sizes do not match."""
    try:
        return {"longer": attention(query, key, value, mask=torch.arange(5) < 4)[0]}
    except RuntimeError:
        return {}


def _moves(module: nn.Module) -> Tensor:
    """Whether a module works on another device: "meta", which every machine has."""
    try:
        return torch.tensor(module.to("meta")(torch.zeros(1, 2, WIDTH, device="meta")).is_meta)
    except (RuntimeError, NotImplementedError):
        return torch.tensor(False)


# Weights that are the same for every solution, however it is written.


def _fill(module: nn.Module) -> nn.Module:
    """Set weights by the roles of the parts: norms by their order in a layer, embeddings by their side."""
    turns: dict[str, int] = {}
    with torch.no_grad(), tracing_paused():
        for path, part in _modules(module):
            own = {name: weight for name, weight in part.named_parameters(recurse=False) if weight.requires_grad}
            if isinstance(part, nn.MultiheadAttention):
                _fill_packed(path, part)
            elif own and all(weight.dim() == 1 for weight in own.values()):
                scope = _scope(path)
                turns[scope] = turns.get(scope, -1) + 1
                _fill_norm(f"{scope} norm {turns[scope]}", part, list(own.values()))
            else:
                for name, weight in own.items():
                    weight.copy_(_weight(path, name, part, weight))
    return module


def _modules(module, path: str = "", met: set[int] | None = None):
    """All submodules with their paths, each once, including those in plain lists, which torch does not find."""
    met = set() if met is None else met
    if id(module) in met:
        return
    met.add(id(module))
    if isinstance(module, nn.Module):
        yield path, module
        lists = {name: value for name, value in vars(module).items() if isinstance(value, list | tuple)}
        parts = module._modules | lists
    else:
        parts = {str(index): item for index, item in enumerate(module)}
    for name, part in sorted(parts.items(), key=lambda item: item[0] == "src_attn"):  # a shared one counts as self_attn
        if isinstance(part, nn.Module | list | tuple):
            yield from _modules(part, f"{path}.{name}".strip("."), met)


def _scope(path: str) -> str:
    """The layer or stack that a norm belongs to, whatever its name."""
    layer = re.match(r"(.*?\blayers\.\d+)\b", path)
    return layer[1] if layer else path.partition(".")[0] if path.startswith(("encoder", "decoder")) else ""


def _weight(path: str, name: str, part: nn.Module, old: Tensor) -> Tensor:
    path = re.sub(r"\w+\.out_proj$", "linears.3", path)  # the name in PyTorch's own attention
    if isinstance(part, nn.Embedding):
        path = path.partition(".")[0] if path.startswith(("src_embed", "tgt_embed")) else ""
    if old.dim() > 1 and isinstance(part, nn.Linear):
        return _drawn(f"{path}.{name}", *old.shape) * 1.5 / math.sqrt(old.shape[-1])
    sizes = [size for size in old.shape if size > 1]  # a table of positions may have a batch dimension
    return _drawn(f"{path}.{name}" if isinstance(part, nn.Linear) else path, *sizes).view(old.shape)


def _fill_packed(path: str, part: nn.MultiheadAttention) -> None:
    """Set the weights of PyTorch's own attention, which packs those of queries, keys and values."""
    linears = [f"{path.rpartition('.')[0]}.linears.{index}".strip(".") for index in range(4)]
    like = nn.Linear(part.embed_dim, part.embed_dim)
    for name, packed in (("weight", part.in_proj_weight), ("bias", part.in_proj_bias)):
        if packed is not None:
            packed.copy_(torch.cat([_weight(linear, name, like, getattr(like, name)) for linear in linears[:3]]))


def _fill_norm(name: str, part: nn.Module, weights: list[Tensor]) -> None:
    """Set the scale and shift of a norm.

    Dividing by the standard deviation of a sample is as correct as dividing by that of a population. The scale
    compensates for the factor between them.
    """
    gain, *bias = weights
    if isinstance(getattr(part, "eps", None), float):
        part.eps = 1e-8  # its size, and whether it is inside the root, is up to the student
    if type(part) not in _IS_OF_SAMPLE:
        _IS_OF_SAMPLE[type(part)] = _is_of_sample(part, weights)
    factor = math.sqrt(1 - 1 / gain.numel()) if _IS_OF_SAMPLE[type(part)] else 1
    gain.copy_((1 + _drawn(f"{name} gain", gain.numel()) / 4) / factor)
    for shift in bias:
        shift.copy_(_drawn(f"{name} bias", shift.numel()) / 4)


def _is_of_sample(part: nn.Module, weights: list[Tensor]) -> bool:
    """Whether a norm divides by the standard deviation of a sample, found by trying it."""
    gain, *bias = weights
    gain.fill_(1)
    for shift in bias:
        shift.fill_(0)
    row = torch.arange(gain.numel()).to(gain.dtype) ** 2 + 3
    try:
        with warnings.catch_warnings(action="ignore"):
            deviation = part(row[None, None]).std(correction=0).item()
    except Exception:  # not a working norm, which the probes report
        return False
    return abs(deviation - math.sqrt(1 - 1 / gain.numel())) < 1e-3


def _count(module: nn.Module) -> Tensor:
    """The number of trained parameters, without norms and biases, whose effect other probes measure."""
    return torch.tensor(
        sum(weight.numel() for weight in module.parameters() if weight.requires_grad and weight.dim() > 1)
    )


# Parts of ours that are passed to parts of the solution.


class _Attention(nn.Module):
    """A simple attention whose output depends on all of its inputs and on its name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.turn = _drawn(name, WIDTH, WIDTH) / 2

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        scores = query @ self.turn @ key.transpose(1, 2)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        return scores.softmax(-1) @ value @ self.turn


class _Feed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.roll(1, -1).sin() * 2


class _Layer(nn.Module):
    """A layer of an encoder or a decoder, or a complete one."""

    def __init__(self) -> None:
        super().__init__()
        self.size = WIDTH
        self.map = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, *given: Tensor) -> Tensor:
        """The output depends on each extra argument and its index: a mask, or a memory and two masks."""
        y = 2 * self.map(x).sin()
        for index, argument in enumerate(given, 1):
            tensor = argument.double()
            y = y + (tensor.mean(-1, keepdim=True) * index * 0.7 + tensor[..., :1]).sin().to(x.dtype)
        return x + y
