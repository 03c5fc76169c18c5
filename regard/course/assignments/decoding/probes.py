"""Probes of decoding: what the filters keep, the texts of greedy search and sampling, and all hypotheses of a beam.

The model is a table of logits by the last two tokens and the length, so that every context has its own distribution.
Texts are drawn by a `draw` that uses the same random numbers for every solution and records the probabilities.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from regard.course.assignment import Names
from regard.course.fixed_weights import seeded_normal
from regard.course.probe_values import accepts, items_from, number_from, padded, tensor_from, token_row, written_parts

VOCAB, EOS = 6, 0
MAX_DRAWS = 9
"""Maximum number of drawn tokens in a text, with room for a solution that draws too many."""
Draw = Callable[[Tensor], int]


@cache
def _tables(name: str, _: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Random logits by the last token, by the token before it, and by the length, in the present default dtype."""
    last, previous = (seeded_normal(f"{name} {part}", VOCAB, VOCAB) for part in ("last", "previous"))
    return last, previous, seeded_normal(f"{name} length", 64, VOCAB)


def _model(eos_bonus: float = 0.0, scale: float = 1.5, name: str = "model") -> Callable[[Tensor], Tensor]:
    """A model whose logits depend on the last two tokens and on the length; `eos_bonus` makes short texts likelier."""
    last, previous, by_length = _tables(name, torch.get_default_dtype())
    bonus = torch.zeros(VOCAB).index_fill(0, torch.tensor(EOS), eos_bonus)

    def model(tokens: Tensor) -> Tensor:
        logits = last[tokens[:, -1]] + by_length[tokens.shape[1]]
        if tokens.shape[1] > 1:
            logits = logits + previous[tokens[:, -2]]
        return scale * logits + bonus

    return model


def _draw(seed: str) -> tuple[Draw, list[Tensor]]:
    """A function that draws tokens with fixed random numbers, and the list of the distributions that it was given."""
    numbers = iter(torch.rand(64, generator=torch.Generator().manual_seed(len(seed))).tolist())
    given: list[Tensor] = []

    def draw(probabilities: Tensor) -> int:
        row = torch.as_tensor(probabilities).detach().flatten()
        given.append(row)
        cumulative = row.cumsum(0)
        return min(int((cumulative < next(numbers) * cumulative[-1]).sum()), VOCAB - 1)

    return draw, given


def _hypotheses(found: Any, width: int) -> dict[str, Tensor]:
    """The tokens [beams, width] and the scores [beams] of a search's hypotheses."""
    name = "beam_search"
    pairs = [items_from(pair, f"{name}, as a hypothesis,", 2) for pair in items_from(found, name)]
    return {
        "tokens": padded([token_row(tokens, f"{name}, as tokens,") for tokens, _ in pairs], width),
        "scores": torch.tensor([number_from(score, f"{name}, as a score,") for _, score in pairs]),
    }


def _filtered(name: str, function: str, found: Any) -> dict[str, Tensor]:
    """What a filter keeps, and the logits of what it keeps. Any number close to -inf removes a token."""
    logits = tensor_from(found, function)
    kept = ~(logits < -1e8)
    return {f"{name} keeps": kept, f"logits of {name}": logits.where(kept, 0.0)}


def _text(found: Any, name: str, width: int) -> Tensor:
    return padded([token_row(found, name)], width)[0]


def example(names: Names) -> dict[str, Tensor]:
    """Rows of six logits through the filters, then the texts of all three searches."""
    logits, model, prompt = 2 * seeded_normal("example", 7, VOCAB), _model(), torch.tensor([5, 3, 1])
    draw, _ = _draw("example")
    parts = written_parts(
        {
            "greedy": lambda: {"greedy": _text(names["greedy"](model, prompt, EOS, 2), "greedy", 9)},
            "top_k": lambda: _filtered("top_k", "top_k", names["top_k"](logits, 3)),
            "top_p": lambda: _filtered("top_p", "top_p", names["top_p"](logits, 0.7)),
            "probabilities": lambda: {"probabilities": names["next_probabilities"](logits, 1.5, 4, 0.9)},
            "sample": lambda: {
                "sampled": _text(names["sample"](model, prompt, EOS, 2, draw, 1.5, 4, 0.9), "sample", 9)
            },
            "beam_search": lambda: _hypotheses(names["beam_search"](_model(1.0), prompt, EOS, 2, 2, 0.6), 9),
        }
    )
    return {key: value for part in parts.values() for key, value in part.items()}


def k_best(names: Names) -> dict[str, Tensor]:
    """top_k with several k, also one that is larger than the vocabulary."""
    logits, values = 2 * seeded_normal("k best", 3, VOCAB), {}
    for k in (1, 2, 5):
        values |= _filtered(f"k={k}", "top_k", names["top_k"](logits, k))
    return values | {"large k accepted": accepts(lambda: names["top_k"](logits, VOCAB + 3))}


def p_best(names: Names) -> dict[str, Tensor]:
    """top_p with several p, of flat and of peaked distributions."""
    flat, peaked = seeded_normal("p best", 3, VOCAB), 6 * seeded_normal("p best peaked", 3, VOCAB)
    values: dict[str, Tensor] = {}
    for p in (0.3, 0.6, 0.9, 0.97):
        values |= _filtered(f"p={p}", "top_p", names["top_p"](torch.cat([flat, peaked]), p))
    return values


def temperature(names: Names) -> dict[str, Tensor]:
    """next_probabilities without filters, with several temperatures."""
    logits = 2 * seeded_normal("temperature", 3, VOCAB)
    return {f"temperature {t}": names["next_probabilities"](logits, t) for t in (0.5, 1.0, 2.0)}


def zero_temperature(names: Names) -> dict[str, Tensor]:
    """next_probabilities with a temperature of 0, which gives the best token the probability 1."""
    return {"probabilities": names["next_probabilities"](2 * seeded_normal("temperature", 3, VOCAB), 0)}


def combined(names: Names) -> dict[str, Tensor]:
    """next_probabilities with temperature, top-k and top-p together."""
    logits = 2 * seeded_normal("combined", 4, VOCAB)
    settings = [(1.0, 3, 1.0), (1.0, 0, 0.8), (1.0, 4, 0.8), (2.0, 0, 0.8), (0.6, 4, 0.9)]
    return {f"{t}, k={k}, p={p}": names["next_probabilities"](logits, t, k, p) for t, k, p in settings}


def greedy_texts(names: Names) -> dict[str, Tensor]:
    """greedy from several prompts, with and without reaching the end, also with eos in the prompt."""
    settings = [([3, 1], 8, 0.0), ([2], 6, -9.0), ([5, 4, 2], 8, 2.5), ([EOS, 4], 6, 1.0), ([1, EOS], 4, -9.0)]
    return {
        f"prompt {prompt}, {limit} tokens": _text(
            names["greedy"](_model(bonus, name="greedy"), torch.tensor(prompt), EOS, limit), "greedy", 16
        )
        for prompt, limit, bonus in settings
    }


def sampled_texts(names: Names) -> dict[str, Tensor]:
    """sample from several prompts with several settings: the texts, and the probabilities that draw was given."""
    values: dict[str, Tensor] = {}
    settings: list[tuple[list[int], float, dict[str, float]]] = [
        ([3, 1], -9.0, {}),
        ([EOS, 4], 1.0, {"temperature": 1.7}),
        ([2], 0.0, {"k": 3}),
        ([5, 4, 2], 1.0, {"temperature": 0.7, "k": 4, "p": 0.8}),
    ]
    for number, (prompt, bonus, options) in enumerate(settings, 1):
        draw, given = _draw("x" * number)
        model = _model(bonus, 0.8, "sampled")
        text = names["sample"](model, torch.tensor(prompt), EOS, 7, draw, **options)
        values[f"text {number}"] = _text(text, "sample", 16)
        missing = [[]] * (MAX_DRAWS - len(given))  # the shape does not depend on where the text ends
        values[f"probabilities {number}"] = padded([*(row.tolist() for row in given), *missing], VOCAB)
    return values


def penalties(names: Names) -> dict[str, Tensor]:
    """length_penalty of several lengths."""
    return {
        f"alpha {alpha}": torch.stack(
            [number_from(names["length_penalty"](length, alpha), "length_penalty") for length in (1, 3, 7, 20)]
        )
        for alpha in (0.0, 0.6, 1.0)
    }


def beam_totals(names: Names) -> dict[str, Tensor]:
    """beam_search without ends and without length penalty: all log-probabilities."""
    values: dict[str, Tensor] = {}
    for beams in (1, 2, 4):
        found = names["beam_search"](_model(-30.0, name="totals"), torch.tensor([4, 2]), EOS, 4, beams, 0.0)
        values |= {f"{key} of {beams} beams": value for key, value in _hypotheses(found, 9).items()}
    return values


def beam_ends(names: Names) -> dict[str, Tensor]:
    """beam_search where hypotheses end at different lengths, with several length penalties."""
    values: dict[str, Tensor] = {}
    settings = [
        ([3, 1], 5, 3, 0.0, 1.0),
        ([EOS, 4], 6, 4, 0.6, 1.5),
        ([2, 5, 1], 6, 3, 1.0, 0.5),
        ([5], 3, 4, 1.0, 0.0),
    ]
    for prompt, limit, beams, alpha, bonus in settings:
        found = names["beam_search"](_model(bonus, 1.0, "ends"), torch.tensor(prompt), EOS, limit, beams, alpha)
        values |= {f"{key}, prompt {prompt}": value for key, value in _hypotheses(found, 16).items()}
    return values
