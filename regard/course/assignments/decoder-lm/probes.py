"""Probes of a language model: the model itself, and its losses and generation with a model of ours.

Losses and generation are tested with `_FixedModel`, whose logits are known numbers, so that a mistake in DecoderLM does
not hide other mistakes.
"""

import torch
from torch import Tensor, nn

from regard.course.assignment import Names
from regard.course.fixed_weights import inputs, seeded_normal, set_weights

VOCAB = 11
PAIRS = [([3, 1, 4], [1, 5]), ([2], [6, 0, 4, 3]), ([9, 2], [3])]
SEPARATOR, END = 7, 8


class _FixedModel(nn.Module):
    """Logits that depend on all tokens up to a position and on their positions, but not on later tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.max_length, self.vocab = 32, VOCAB
        self.table = nn.Parameter(seeded_normal("table", VOCAB, VOCAB))

    def forward(self, tokens: Tensor) -> Tensor:
        weights = 1 + torch.arange(tokens.shape[1])[:, None].sin() / 2  # [T, 1]
        return 3 * (2 * self.table[tokens] * weights).cumsum(1).sin()  # [B, T, V]


def _model(names: Names, *sizes: int) -> nn.Module:
    model: nn.Module = set_weights(names["DecoderLM"](*sizes))
    return model.eval()


def _ids(written: object) -> Tensor:
    return torch.as_tensor(written, dtype=torch.long).flatten()


def example(names: Names) -> dict[str, Tensor]:
    """Two rows of three tokens: logits, losses and generated text."""
    tokens = torch.tensor([[1, 2, 3], [4, 0, 2]])
    values = {"logits": _model(names, VOCAB, 20, 4, 2, 8)(tokens)}
    calls = {
        "shifted loss": lambda: names["shifted_loss"](
            _FixedModel()(tokens), tokens, torch.ones(2, 3, dtype=torch.bool)
        ),
        "loss with lengths 3 and 2": lambda: names["next_token_loss"](_FixedModel(), tokens, torch.tensor([3, 2])),
        "loss of a translation": lambda: names["translation_loss"](_FixedModel(), [([1], [2])], SEPARATOR, END),
        "continuation of 1 2 3": lambda: _ids(names["greedy"](_FixedModel(), [1, 2, 3], 4, END)),
        "translation of 1 2": lambda: _ids(names["translate"](_FixedModel(), [1, 2], SEPARATOR, END, 4)),
    }
    for name, call in calls.items():
        try:
            values[name] = call()
        except Exception:  # reported by the probe for this function
            continue
    return values


def mask(names: Names) -> dict[str, Tensor]:
    """The causal mask."""
    return {"mask": names["causal_mask"](4).bool().flatten(0, -2)}  # a leading dimension of size 1 is accepted


def model(names: Names) -> dict[str, Tensor]:
    """The model with as many rows as positions, in float64: logits, number of weights, gradients."""
    model = _model(names, VOCAB, 8, 2, 2, 9).double()
    tokens = torch.tensor([[1, 2, 3, 0], [4, 4, 0, 2], [3, 1, 4, 1], [5, 10, 2, 6]])
    logits = model(tokens)
    logits.square().mean().backward()
    count = torch.tensor(sum(weight.numel() for weight in model.parameters()))
    longer = model(torch.cat([tokens, tokens.flip(0)], 1))[:, :4]
    causal = torch.tensor(bool(torch.allclose(longer, logits)))
    return {"logits": logits, "weights": count, "gradient": model.out.weight.grad, "causal": causal}


def loss(names: Names) -> dict[str, Tensor]:
    """shifted_loss on given logits, with some tokens that do not count, and its gradients."""
    logits = inputs(3, 5, VOCAB).requires_grad_()
    tokens = torch.tensor([[1, 2, 3, 0, 5], [4, 4, 0, 2, 9], [3, 1, 10, 1, 7]])
    counted = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 1, 1], [1, 0, 1, 0, 1]]).bool()
    loss = names["shifted_loss"](logits, tokens, counted)
    loss.sum().backward()
    return {"loss": loss, "gradient": logits.grad}


def padding(names: Names) -> dict[str, Tensor]:
    """next_token_loss on rows of different lengths, in which 0 is also a token."""
    tokens = torch.tensor([[1, 2, 0, 4, 5, 9], [6, 0, 3, 0, 0, 0], [5, 2, 0, 0, 0, 0], [9, 3, 10, 7, 0, 0]])
    model = _FixedModel()
    loss = names["next_token_loss"](model, tokens, torch.tensor([6, 3, 2, 5]))
    loss.sum().backward()
    unpadded = names["next_token_loss"](model, tokens, torch.tensor([6, 6, 6, 6]))
    return {"loss": loss, "gradient": model.table.grad, "without padding": unpadded}


def translation_loss(names: Names) -> dict[str, Tensor]:
    """translation_loss of three pairs and of a single pair."""
    model = _FixedModel()
    loss = names["translation_loss"](model, PAIRS, SEPARATOR, END)
    loss.sum().backward()
    single = names["translation_loss"](model, PAIRS[:1], SEPARATOR, END)
    return {"loss": loss, "gradient": model.table.grad, "one pair": single}


def generation(names: Names) -> dict[str, Tensor]:
    """greedy, with and without an end token that is reached."""
    greedy, prompt = names["greedy"], [4, 1, 2, 9, 3]
    continuation = _ids(greedy(_FixedModel(), prompt, 8, -1))
    short = _ids(greedy(_FixedModel(), [6], 2, -1))
    ended = _ids(greedy(_FixedModel(), [2, 6], 9, 3))
    passed = [5, 1]
    _ids(greedy(_FixedModel(), passed, 3, -1))
    kept = {"prompt is unchanged": torch.tensor(passed == [5, 1])}
    in_prompt = _ids(greedy(_FixedModel(), [3, 6], 3, 3))
    texts = {"without end token": continuation, "from one token": short, "until the end token": ended}
    return texts | {"end token in the prompt": in_prompt} | kept


def translate(names: Names) -> dict[str, Tensor]:
    """translate on three sources."""
    sources = [list(source) for source, _ in PAIRS]
    translations = [_ids(names["translate"](_FixedModel(), source, SEPARATOR, END, 6)) for source in sources]
    kept = torch.tensor(sources == [source for source, _ in PAIRS])
    return {f"translation {number}": ids for number, ids in enumerate(translations, 1)} | {"source is unchanged": kept}
