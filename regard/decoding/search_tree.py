"""What a model considered while it wrote: the most likely tokens of each step, and the tree of a beam search.

Dimensions: N inputs (1), K beam, W live hypotheses, T tokens, V outputs, M candidates.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
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
    probability: float
    """Probability of the written token."""
    top: tuple[tuple[str, float], ...]
    ids: tuple[int, ...]
    """The ids of the most likely tokens."""


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
    ends: bool
    """Whether its token ends the translation."""
    usual: bool
    """Whether it is part of the best translation without a given beginning."""
    given: bool
    """Whether it is part of the given beginning."""


@dataclass(frozen=True)
class Candidate:
    """The score of a continuation, and whether it was kept."""

    score: float
    kept: bool


def search_tree(
    network: Network,
    tokenizer: Tokenizer,
    special: SpecialIds,
    source: str,
    options: Decoding,
    beginning: Sequence[int] = (),
) -> tuple[Hypothesis, list[SearchNode]]:
    """The best translation, as `Model.translate` finds it, and every candidate that the search considered.

    With the ids of a beginning, the best translation that begins with them. The tree is then that of both searches,
    with the beginning and without.
    """
    if not isinstance(network, Decoder | EncoderDecoder) or network.config.classes:
        raise RegardError(f"this {network.config.kind} does not generate text")
    inputs = translation_inputs(network, special, [tokenizer.encode_with_template(source)], options)
    if options.beam == 1:
        raise RegardError("a beam of 1 has no search tree: use 2 or more")
    check_beginning(inputs, beginning)
    end = inputs.rules.end.tolist()
    best, candidates = _search(inputs, beginning)
    best_prefixes = usual_prefixes = _prefixes(candidates, best, end)
    if beginning:
        usual_best, usual_candidates = _search(inputs)
        usual_prefixes = _prefixes(usual_candidates, usual_best, end)
        candidates = usual_candidates | candidates | _kept_in_either(usual_candidates, candidates)
    best_ids = max(best_prefixes, key=len, default=())
    given = {tuple(beginning[:n]) for n in range(1, len(beginning) + 1)}
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
            ends=ids[-1] in end,
            usual=ids in usual_prefixes,
            given=ids in given,
        )
        for ids, candidate in candidates.items()
    ]
    return best, nodes


def check_beginning(inputs: SearchInputs, beginning: Sequence[int]) -> None:
    """Raise a RegardError unless a translation can begin with these ids and continue."""
    rules, outputs = inputs.rules, inputs.network.config.outputs
    excluded = {*rules.end.tolist(), *rules.suppressed.tolist()}
    for id_ in beginning:
        if not 0 <= id_ < outputs or id_ in excluded:
            raise RegardError(
                f"a translation cannot continue after id {id_}: use ids of ordinary tokens below {outputs}"
            )
    if len(beginning) >= inputs.max_tokens[0]:
        raise RegardError(f"the beginning has {len(beginning)} tokens; the maximum here is {inputs.max_tokens[0] - 1}")


def _prefixes(candidates: dict[Ids, Candidate], best: Hypothesis, end: list[int]) -> set[Ids]:
    """All beginnings of the best translation, itself and its end included."""
    ids = [*best.ids, *_end_token(candidates, best, end)]
    return {tuple(ids[:n]) for n in range(1, len(ids) + 1)}


def _kept_in_either(one: dict[Ids, Candidate], other: dict[Ids, Candidate]) -> dict[Ids, Candidate]:
    """The candidates of both searches: kept, if one of them kept it."""
    return {ids: Candidate(one[ids].score, one[ids].kept or other[ids].kept) for ids in one.keys() & other.keys()}


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


def _search(inputs: SearchInputs, beginning: Sequence[int] = ()) -> tuple[Hypothesis, dict[Ids, Candidate]]:
    """As `beam_search` for one input, with every candidate by its ids. The given beginning counts as kept."""
    candidates: dict[Ids, Candidate] = {}
    rules, step = inputs.rules, partial(decode_one_token, inputs.network)
    with torch.inference_mode():
        logits, state = prefill(inputs)
        beams = BeamState.initial(inputs.max_tokens, rules.options, logits)
        for n, id_ in enumerate(beginning, start=1):
            raise_if_cancelled()
            score = beams.live_scores + logits.float().log_softmax(-1)[:, id_]  # [1, 1]
            tokens = torch.cat([beams.live_tokens[..., 1:], beams.live_tokens.new_full((1, 1, 1), id_)], -1)
            beams = replace(beams, length=beams.length + 1, live_scores=score, live_tokens=tokens)
            candidates[tuple(beginning[:n])] = Candidate(float(score), kept=True)
            logits = step(logits.new_tensor([id_], dtype=torch.long), state)
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
    distribution = logits.float().softmax(-1)  # [T, V]
    probabilities, ids = distribution.topk(min(CANDIDATES_PER_STEP, logits.size(-1)))  # [T, 10]
    labels = TokenLabels.of(tokenizer, written)
    steps = []
    chosen = distribution.gather(-1, torch.tensor(written, device=logits.device)[:, None])[:, 0].tolist()
    for i, (top_ids, top_probabilities) in enumerate(zip(ids.tolist(), probabilities.tolist(), strict=True)):
        raise_if_cancelled()
        before = written[max(0, i - 1) : i]
        names = labels.among(top_ids, *before)
        token = names[top_ids.index(written[i])] if written[i] in top_ids else labels(written[i], *before)
        steps.append(
            StepCandidates(token, chosen[i], tuple(zip(names, top_probabilities, strict=True)), tuple(top_ids))
        )
    return steps


def _end_token(candidates: dict[Ids, Candidate], best: Hypothesis, end: list[int]) -> list[int]:
    """The id that ended a hypothesis: of several end tokens, the one that was a candidate."""
    if best.reason != "end":
        return []
    return [id_ for id_ in end if (*best.ids, id_) in candidates][:1]


def _without_padding(ids: list[int]) -> list[int]:
    return [id_ for id_ in ids if id_ >= 0]
