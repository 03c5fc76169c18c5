"""What is looked at in a language model: the model itself, and its losses and its writing with a model of ours.

Losses and generation are tried with `_Told`, a model whose logits are known numbers, so that a mistake in DecoderLM
does not hide those behind it.
"""

import torch
from torch import Tensor, nn

from regard.course.assignment import Names
from regard.course.fixed_weights import inputs, seeded_normal, set_weights

VOCAB = 11
PAIRS = [([3, 1, 4], [1, 5]), ([2], [6, 0, 4, 3]), ([9, 2], [3])]
SEPARATOR, END = 7, 8


class _Told(nn.Module):
    """Logits that depend on every token so far and on its place, and on nothing behind."""

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
    """Two rows of three tokens: what the model says, its loss, and what is written behind three tokens."""
    tokens = torch.tensor([[1, 2, 3], [4, 0, 2]])
    seen = {"logits": _model(names, VOCAB, 20, 4, 2, 8)(tokens)}
    tried = {
        "shifted loss": lambda: names["shifted_loss"](_Told()(tokens), tokens, torch.ones(2, 3, dtype=torch.bool)),
        "loss of lengths 3 and 2": lambda: names["next_token_loss"](_Told(), tokens, torch.tensor([3, 2])),
        "loss of a translation": lambda: names["translation_loss"](_Told(), [([1], [2])], SEPARATOR, END),
        "written behind 1 2 3": lambda: _ids(names["greedy"](_Told(), [1, 2, 3], 4, END)),
        "translation of 1 2": lambda: _ids(names["translate"](_Told(), [1, 2], SEPARATOR, END, 4)),
    }
    for name, trial in tried.items():
        try:
            seen[name] = trial()
        except Exception:  # told of by the probe that it belongs to
            continue
    return seen


def mask(names: Names) -> dict[str, Tensor]:
    """Who sees whom."""
    return {"mask": names["causal_mask"](4).bool().flatten(0, -2)}  # a leading dimension of one does no harm


def model(names: Names) -> dict[str, Tensor]:
    """As many rows as places, in float64; how many weights there are, and what reaches them."""
    model = _model(names, VOCAB, 8, 2, 2, 9).double()
    tokens = torch.tensor([[1, 2, 3, 0], [4, 4, 0, 2], [3, 1, 4, 1], [5, 10, 2, 6]])
    logits = model(tokens)
    logits.square().mean().backward()
    count = torch.tensor(sum(weight.numel() for weight in model.parameters()))
    longer = model(torch.cat([tokens, tokens.flip(0)], 1))[:, :4]
    causal = torch.tensor(bool(torch.allclose(longer, logits)))
    return {"logits": logits, "weights": count, "gradient": model.out.weight.grad, "causal": causal}


def loss(names: Names) -> dict[str, Tensor]:
    """Of logits that are given, with some tokens that do not count; and what reaches the logits."""
    logits = inputs(3, 5, VOCAB).requires_grad_()
    tokens = torch.tensor([[1, 2, 3, 0, 5], [4, 4, 0, 2, 9], [3, 1, 10, 1, 7]])
    counted = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 1, 1], [1, 0, 1, 0, 1]]).bool()
    found = names["shifted_loss"](logits, tokens, counted)
    found.sum().backward()
    return {"loss": found, "gradient": logits.grad}


def padding(names: Names) -> dict[str, Tensor]:
    """Rows of several lengths, in which 0 is a token too."""
    tokens = torch.tensor([[1, 2, 0, 4, 5, 9], [6, 0, 3, 0, 0, 0], [5, 2, 0, 0, 0, 0], [9, 3, 10, 7, 0, 0]])
    model = _Told()
    found = names["next_token_loss"](model, tokens, torch.tensor([6, 3, 2, 5]))
    found.sum().backward()
    whole = names["next_token_loss"](model, tokens, torch.tensor([6, 6, 6, 6]))
    return {"loss": found, "gradient": model.table.grad, "without padding": whole}


def translation(names: Names) -> dict[str, Tensor]:
    """The loss of three pairs, and of one of them alone."""
    model = _Told()
    found = names["translation_loss"](model, PAIRS, SEPARATOR, END)
    found.sum().backward()
    alone = names["translation_loss"](model, PAIRS[:1], SEPARATOR, END)
    return {"loss": found, "gradient": model.table.grad, "one pair": alone}


def writing(names: Names) -> dict[str, Tensor]:
    """What is written behind prompts, with an end that comes and with one that does not."""
    greedy, prompt = names["greedy"], [4, 1, 2, 9, 3]
    free = _ids(greedy(_Told(), prompt, 8, -1))
    short = _ids(greedy(_Told(), [6], 2, -1))
    ended = _ids(greedy(_Told(), [2, 6], 9, 3))
    return {"written": free, "of one token": short, "up to the end": ended}


def translating(names: Names) -> dict[str, Tensor]:
    """What is written behind sources."""
    translations = [_ids(names["translate"](_Told(), source, SEPARATOR, END, 6)) for source, _ in PAIRS]
    return {f"translation {number}": each for number, each in enumerate(translations, 1)}
