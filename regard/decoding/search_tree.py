"""What a model considered while it wrote: the most likely tokens of each step, and the tree of a beam search.

Dimensions: N inputs (1), K beam, W live hypotheses, T tokens, V outputs, M candidates.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import SpecialIds
from regard.data.tokenizer import Tokenizer
from regard.decoding.beam import BeamState, advance, finished_hypotheses, search_has_stopped, top_continuations
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.decoding_state import SearchInputs, decode_one_token, select_rows
from regard.decoding.generate import prefill, translation_inputs
from regard.decoding.options import Decoding
from regard.decoding.search import Hypothesis
from regard.decoding.token_labels import TokenLabels
from regard.errors import RegardError
from regard.model.transformer import Decoder, EncoderDecoder, Network

CANDIDATES_PER_STEP = 10
"""Number of most likely tokens of a step that are reported."""

Ids = tuple[int, ...]


@dataclass(frozen=True)
class StepCandidates:
    """The token that was written in a step, and the most likely tokens with their probabilities."""

    token: str
    top: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class SearchNode:
    """A hypothesis that a beam search considered."""

    id: int
    parent: int | None
    """The hypothesis that it continues; None for a first token."""
    token: str
    score: float
    """Sum of the log-probabilities of its tokens."""
    step: int
    kept: bool
    """Whether it stayed live, or finished among the best."""
    best: bool
    """Whether it is part of the best translation."""


@dataclass(frozen=True)
class Candidate:
    """The score of a continuation, and whether it was kept."""

    score: float
    kept: bool


def search_tree(
    network: Network, tokenizer: Tokenizer, special: SpecialIds, source: str, options: Decoding
) -> tuple[Hypothesis, list[SearchNode]]:
    """The best translation, as `Model.translate` finds it, and every candidate that the search considered."""
    if not isinstance(network, Decoder | EncoderDecoder) or network.config.classes:
        raise RegardError(f"this {network.config.kind} does not generate text")
    inputs = translation_inputs(network, special, [tokenizer.encode_with_template(source)], options)
    if options.beam == 1:
        raise RegardError("a beam of 1 has no search tree: use 2 or more")
    best, candidates = _search(inputs)
    best_ids = [*best.ids, *_end_token(candidates, best, inputs.rules.end.tolist())]
    best_prefixes = {tuple(best_ids[:n]) for n in range(1, len(best_ids) + 1)}
    numbers = {ids: number for number, ids in enumerate(candidates)}
    labels = _labels(TokenLabels.of(tokenizer, best_ids), candidates)
    nodes = [
        SearchNode(
            id=numbers[ids],
            parent=numbers.get(ids[:-1]),
            token=labels[ids],
            score=candidate.score,
            step=len(ids) - 1,
            kept=candidate.kept,
            best=ids in best_prefixes,
        )
        for ids, candidate in candidates.items()
    ]
    return best, nodes


def _labels(labels: TokenLabels, sequences: Iterable[Ids]) -> dict[Ids, str]:
    """The label of each sequence's last id, chosen among all ids that continue the same sequence."""
    continuations: dict[Ids, list[int]] = {}
    for ids in sequences:
        continuations.setdefault(ids[:-1], []).append(ids[-1])
    return {
        (*parent, id_): label
        for parent, ids in continuations.items()
        for id_, label in zip(ids, labels.among(ids, *parent[-1:]), strict=True)
    }


def _search(inputs: SearchInputs) -> tuple[Hypothesis, dict[Ids, Candidate]]:
    """As `beam_search` for one input, with every candidate by its ids."""
    candidates: dict[Ids, Candidate] = {}
    rules, step = inputs.rules, partial(decode_one_token, inputs.network)
    with torch.inference_mode():
        logits, state = prefill(inputs)
        beams = BeamState.initial(inputs.max_tokens, rules.options, logits)
        while True:
            raise_if_cancelled()
            before = beams
            beams, parents = advance(before, logits, rules)
            live = {tuple(_without_padding(ids)) for ids in beams.live_tokens[0].tolist()}
            candidates |= _step_candidates(before, logits, inputs, live)
            if bool(search_has_stopped(beams, rules.options.length_penalty)):
                break
            state = select_rows(state, parents.flatten(), None)
            logits = step(beams.live_tokens[..., -1].flatten(), state)  # [W, V]
    return finished_hypotheses([beams], 1, rules, None)[0][0], candidates


def _step_candidates(
    beams: BeamState, logits: Float[Tensor, "W V"], inputs: SearchInputs, live: set[Ids]
) -> dict[Ids, Candidate]:
    """The continuations that a step chose from, best first."""
    rules = inputs.rules
    scores, parents, tokens = (x[0].tolist() for x in top_continuations(beams, logits, rules))  # M each
    end, is_last = set(rules.end.tolist()), int(beams.length) + 1 >= inputs.max_tokens[0]
    candidates = {}
    for rank, (score, parent, token) in enumerate(zip(scores, parents, tokens, strict=True)):
        if score > -torch.inf:
            ids = (*_without_padding(beams.live_tokens[0, parent].tolist()), token)
            finishes = rank < rules.options.beam and (token in end or is_last)
            candidates[ids] = Candidate(score, ids in live or finishes)
    return candidates


def step_candidates(tokenizer: Tokenizer, logits: Float[Tensor, "T V"], written: Sequence[int]) -> list[StepCandidates]:
    """The most likely tokens at each step of writing these ids, given the logits of each step."""
    probabilities, ids = logits.float().softmax(-1).topk(min(CANDIDATES_PER_STEP, logits.size(-1)))  # [T, 10]
    labels = TokenLabels.of(tokenizer, written)
    steps = []
    for i, (top_ids, top_probabilities) in enumerate(zip(ids.tolist(), probabilities.tolist(), strict=True)):
        raise_if_cancelled()
        before = written[max(0, i - 1) : i]
        names = labels.among(top_ids, *before)
        token = names[top_ids.index(written[i])] if written[i] in top_ids else labels(written[i], *before)
        steps.append(StepCandidates(token, tuple(zip(names, top_probabilities, strict=True))))
    return steps


def _end_token(candidates: dict[Ids, Candidate], best: Hypothesis, end: list[int]) -> list[int]:
    """The id that ended a hypothesis: of several end tokens, the one that was a candidate."""
    if best.reason != "end":
        return []
    return [id_ for id_ in end if (*best.ids, id_) in candidates][:1]


def _without_padding(ids: list[int]) -> list[int]:
    return [id_ for id_ in ids if id_ >= 0]
