"""What a decoder considered: the distribution at each step, and the tree that a beam search grew.

Dimensions: N sentences (1), K beam, W live hypotheses, T tokens, V outputs, M candidates.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import SpecialIds
from regard.data.tokenizer import Tokenizer
from regard.decoding.attention_maps import in_one_word, readable
from regard.decoding.beam import Beams, advance, hypotheses, one_end
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.cuda_graph_decoding import Task
from regard.decoding.generate import begin, select, step, translation
from regard.decoding.options import Decoding
from regard.decoding.sampling import best
from regard.decoding.search import Hypothesis
from regard.errors import RegardError
from regard.model.transformer import Decoder, EncoderDecoder, Network

TOP = 10
"""tokens of a step that are told"""


@dataclass(frozen=True)
class Considered:
    """A step: what was written, and the likeliest tokens with their probabilities."""

    token: str
    top: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Node:
    """A hypothesis that a beam search met."""

    id: int
    parent: int | None
    """the hypothesis that it goes on from; None for the first token"""
    token: str
    score: float
    """sum of log-probabilities up to here"""
    step: int
    kept: bool
    """whether it lived on, or ended among the best"""
    best: bool
    """whether the translation goes through it"""


def search_tree(
    network: Network, tokenizer: Tokenizer, special: SpecialIds, source: str, options: Decoding
) -> tuple[Hypothesis, list[Node]]:
    """The best translation, as `Model.translate` finds it, and every candidate that the search considered."""
    if not isinstance(network, Decoder | EncoderDecoder) or network.config.classes:
        raise RegardError(f"this {network.config.kind} does not generate text")
    task = translation(network, special, [tokenizer.encode_with_template(source)], options)
    if options.beam == 1:
        raise RegardError("a beam of 1 grows no tree: ask for 2 or more")
    found, met = _search(task)
    end = task.rules.end.tolist()
    best_ids = [*found.ids, *_end_of(met, found, end)]
    prefixes = {tuple(best_ids[:n]) for n in range(1, len(best_ids) + 1)}
    numbers = {ids: number for number, ids in enumerate(met)}
    names = _names(Labels.of(tokenizer, best_ids), met)
    nodes = [
        Node(numbers[ids], numbers.get(ids[:-1]), names[ids], score, len(ids) - 1, kept, ids in prefixes)
        for ids, (score, kept) in met.items()
    ]
    return found, nodes


def _names(label: "Labels", met: Iterable[tuple[int, ...]]) -> dict[tuple[int, ...], str]:
    """The label of the last id of each, beside all that go on from the same."""
    onward: dict[tuple[int, ...], list[int]] = {}
    for ids in met:
        onward.setdefault(ids[:-1], []).append(ids[-1])
    return {
        (*before, id_): name
        for before, ids in onward.items()
        for id_, name in zip(ids, label.among(ids, *before[-1:]), strict=True)
    }


def _search(task: Task) -> tuple[Hypothesis, dict[tuple[int, ...], tuple[float, bool]]]:
    """As `beam_search` for one sentence; and the score of each candidate by what it said, and whether it was kept."""
    met: dict[tuple[int, ...], tuple[float, bool]] = {}
    rules, ahead = task.rules, partial(step, task.network)
    with torch.inference_mode():
        logits, cache = begin(task)
        beams = Beams.of(task.limits, rules.options, logits)
        while True:
            raise_if_cancelled()
            before = beams
            beams, rows = advance(before, logits, rules)
            met |= _candidates(before, logits, task, {tuple(_said(ids)) for ids in beams.said[0].tolist()})
            if bool(beams.finished(rules.options.length_penalty)):
                break
            cache = select(cache, rows.flatten(), None)
            logits = ahead(beams.said[..., -1].flatten(), cache)  # [W, V]
    return hypotheses([beams], 1, rules, None)[0][0], met


def _candidates(
    beams: Beams, logits: Float[Tensor, "W V"], task: Task, live: set[tuple[int, ...]]
) -> dict[tuple[int, ...], tuple[float, bool]]:
    """What a step chose among, best first."""
    rules, k, outputs = task.rules, task.rules.options.beam, logits.size(-1)
    sentence = beams.sentence.repeat_interleave(beams.score.size(1))  # [W]
    log_probs = rules.log_probs(logits, beams.said.flatten(0, 1), sentence, beams.tokens)  # [W, V]
    totals = beams.score[0, :, None] + one_end(log_probs, rules.end)  # [W, V]
    score, index = best(totals.flatten()[None], 2 * k)  # [1, M]
    end, last = set(rules.end.tolist()), int(beams.tokens) + 1 >= task.limits[0]
    found = {}
    for rank, (value, place) in enumerate(zip(score[0].tolist(), index[0].tolist(), strict=True)):
        if value > -torch.inf:
            ids = (*_said(beams.said[0, place // outputs].tolist()), place % outputs)
            found[ids] = (value, ids in live or (rank < k and (ids[-1] in end or last)))
    return found


def considered(tokenizer: Tokenizer, logits: Float[Tensor, "T V"], written: Sequence[int]) -> list[Considered]:
    """What a model considered at each step of writing these ids, given its logits at each of them."""
    probabilities, ids = logits.float().softmax(-1).topk(min(TOP, logits.size(-1)))  # [T, 10]
    label = Labels.of(tokenizer, written)
    steps = []
    for i, (few, most) in enumerate(zip(ids.tolist(), probabilities.tolist(), strict=True)):
        raise_if_cancelled()
        before = written[max(0, i - 1) : i]
        names = label.among(few, *before)
        token = names[few.index(written[i])] if written[i] in few else label(written[i], *before)
        steps.append(Considered(token, tuple(zip(names, most, strict=True))))
    return steps


@dataclass(frozen=True)
class Labels:
    """Tokens for people, as `attend` shows them: a dot before what goes on with a word."""

    tokenizer: Tokenizer
    dots: bool

    @classmethod
    def of(cls, tokenizer: Tokenizer, ids: Sequence[int]) -> "Labels":
        """For what stands beside these ids: no dots where all pieces are single characters."""
        return cls(tokenizer, any(len(piece.strip()) > 1 for piece in tokenizer.pieces(ids)))

    def __call__(self, id_: int, before: int | None = None) -> str:
        """The label of an id behind another."""
        dot = self.dots and before is not None and in_one_word(self.tokenizer, before, id_)
        return "·" * dot + readable(self.tokenizer.pieces([id_])[0])

    def among(self, ids: Sequence[int], *before: int) -> list[str]:
        """Of ids that might stand at one place: of two that look alike, a dot before the one that brings no space."""
        labels = [self(id_, *before) for id_ in ids]
        pieces = self.tokenizer.pieces(ids)
        return [
            "·" * (labels.count(label) > 1 and not piece.startswith((" ", "▁", "·"))) + label
            for label, piece in zip(labels, pieces, strict=True)
        ]


def _end_of(met: dict[tuple[int, ...], tuple[float, bool]], found: Hypothesis, end: list[int]) -> list[int]:
    """The id that ended a hypothesis, of several the one that was met."""
    return [] if found.reason != "end" else [id_ for id_ in end if (*found.ids, id_) in met][:1]


def _said(ids: list[int]) -> list[int]:
    return [id_ for id_ in ids if id_ >= 0]
