"""Check on random cases that every way of running a model gives the same result.

Differences are between logits, relative to the largest logit if that is above 1, or between log-probabilities where
texts are compared. Checks are judged in float32. Differences in bfloat16 are reported but not judged, because there
every order of summation gives a slightly different result.

Dimensions: B rows, T tokens, V outputs or classes.
"""

import copy
import math
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.config import SpecialIds, require_at_least
from regard.decoding.fast_copy import make_fast_copy
from regard.decoding.generate import generate, search_translations
from regard.decoding.options import Decoding
from regard.decoding.own_network import check_regards_own
from regard.decoding.search import Hypothesis
from regard.decoding.text_model import Model
from regard.evaluation.result_json import recorded_as
from regard.formatting import shorten
from regard.model.transformer import Decoder, Encoder, EncoderDecoder, Network
from regard.model.watch import watch

MAX_DIFFERENCE = 1e-4
"""Largest difference that another order of summation explains in float32."""
MAX_INPUT_TOKENS, MAX_ROWS, MAX_NEW_TOKENS = 12, 3, 8
"""Maximum length of an input, number of inputs and number of decoded tokens in a case."""

RowLogits = list[Tensor]
"""The logits of each row without its padding, [T, V], or of its classes, [V]."""


@dataclass(frozen=True)
class EqualityCheck:
    """Two ways of running a model that must agree, and the largest difference between them."""

    name: str
    compared: str = field(metadata=recorded_as("how"))
    """What is compared."""
    limit: float = MAX_DIFFERENCE
    difference: float | None = None
    """Largest difference in float32; None if it was not checked."""
    worst: int | None = None
    """Number of the case with the largest difference."""
    bfloat16: float | None = None
    """Largest difference in bfloat16, which is not judged."""
    skipped: str = ""
    """Reason why it was not checked."""

    @property
    def passed(self) -> bool:
        """Whether the largest difference is within the limit."""
        return self.difference is None or self.difference <= self.limit

    def with_case(self, case: int, difference: float) -> "EqualityCheck":
        """The check after one more case; NaN counts as an infinite difference."""
        difference = math.inf if math.isnan(difference) else difference
        if self.difference is not None and difference <= self.difference:
            return self
        return replace(self, difference=difference, worst=case)


@dataclass(frozen=True)
class Verification:
    """All checks of one model."""

    checks: tuple[EqualityCheck, ...]
    cases: int
    seed: int

    @property
    def passed(self) -> bool:
        """Whether all checks have passed."""
        return all(check.passed for check in self.checks)


@dataclass(frozen=True)
class VerificationCase:
    """Inputs of different lengths, and a continuation of each."""

    inputs: list[list[int]]
    """Sources, prompts, or texts of an encoder."""
    continuations: list[list[int]]
    padding: tuple[int, ...] = ()
    """Ids to pad with; every row, even the longest, gets some. Empty for a single row without padding."""

    def row(self, i: int) -> "VerificationCase":
        """One row on its own, without padding."""
        return VerificationCase([self.inputs[i]], [self.continuations[i]])


def verify(
    model: Model,
    cases: int = 20,
    seed: int = 0,
    compiled: bool = True,
    progress: Callable[[int], object] | None = None,
) -> Verification:
    """Check a model on random cases. With `compiled`, also check torch.compile on one of them, which takes a while."""
    require_at_least(1, cases=cases)
    check_regards_own(model.network, "verify")
    network = copy.deepcopy(model.network).float().eval()
    in_bfloat16 = copy.deepcopy(network).bfloat16()
    all_cases = [draw_case(network, random.Random(f"{seed} {n}")) for n in range(cases)]
    checks = {check.name: check for check in _applicable_checks(network)}
    for number, case in enumerate(all_cases):
        for name in checks:
            checks[name] = checks[name].with_case(number, DIFFERENCE_FUNCTIONS[name](network, model.special, case))
            if name in COMPARED_IN_BFLOAT16:
                difference = DIFFERENCE_FUNCTIONS[name](in_bfloat16, model.special, case)
                checks[name] = replace(checks[name], bfloat16=max(difference, checks[name].bfloat16 or 0.0))
        if progress is not None:
            progress(number + 1)
    extra = [_check_compiled(network, model.special, all_cases[0], compiled), _check_saved(model, network)]
    if isinstance(network, Decoder | EncoderDecoder) and not network.config.classes:
        extra = [_check_fast_copy(network, model.special, all_cases), *extra]
    return Verification((*checks.values(), *extra), cases, seed)


def draw_case(network: Network, chance: random.Random) -> VerificationCase:
    """A few rows of random ids, never <pad>; short enough for learned positions."""
    config = network.config
    positions = config.max_positions or 4 * MAX_INPUT_TOKENS
    has_target = config.kind == "encoder-decoder"  # its targets have positions of their own, one of them for the start
    longest_input = min(MAX_INPUT_TOKENS, positions if config.kind != "decoder" else max(1, positions // 2))
    taken = 1 if has_target else longest_input
    longest = 0 if config.kind == "encoder" else min(MAX_INPUT_TOKENS, max(0, positions - taken - 1))

    def random_ids(count: int, size: int, pad: int | None) -> list[int]:
        ids = (chance.randrange(size) for _ in range(count))
        return [(id_ + 1) % size if id_ == pad else id_ for id_ in ids]

    rows = range(chance.randint(1, MAX_ROWS))
    inputs = [random_ids(chance.randint(1, longest_input), config.inputs, config.pad_id) for _ in rows]
    continuations = [random_ids(chance.randint(0, longest), config.outputs, config.output_pad_id) for _ in rows]
    shared_ids = min(config.vocab_size, config.output_vocab_size)
    return VerificationCase(inputs, continuations, tuple(chance.randrange(shared_ids) for _ in range(7)))


def full_pass(network: Network, special: SpecialIds, case: VerificationCase) -> RowLogits:
    """Logits from one pass over padded rows, without a cache."""
    with torch.inference_mode():
        if isinstance(network, EncoderDecoder):
            source, source_lengths = _padded(network, case.inputs, case.padding)
            target, lengths = _padded(network, _targets(special, case), case.padding)
            logits = network(source, target, source_lengths, lengths)  # [B, T, V]
        else:
            rows = [a + b for a, b in zip(case.inputs, case.continuations, strict=True)]
            tokens, lengths = _padded(network, rows, case.padding)
            input_lengths = torch.tensor([len(ids) for ids in case.inputs], device=network.device)
            prefix = [input_lengths] if network.config.prefix else []
            logits = network(tokens, lengths, *prefix)  # [B, T, V] or [B, V]
        return _without_padding(logits, lengths)


def separate_passes(network: Network, special: SpecialIds, case: VerificationCase) -> RowLogits:
    """Logits from a separate pass over each row."""
    return [full_pass(network, special, case.row(i))[0] for i in range(len(case.inputs))]


def cached_steps(network: Network, special: SpecialIds, case: VerificationCase) -> RowLogits:
    """Logits through the cache: the padded inputs in one step, then token by token, each row at its own positions."""
    assert not isinstance(network, Encoder)
    with torch.inference_mode():
        to_read = case.continuations
        rows: list[list[Tensor]] = [[] for _ in to_read]
        prefix: list[Tensor] = []
        if isinstance(network, EncoderDecoder):
            source, lengths = _padded(network, case.inputs, case.padding)
            to_read = _targets(special, case)
            cache = network.start(source, max(map(len, to_read)), lengths)
            positions = [0] * len(to_read)
        else:
            tokens, lengths = _padded(network, case.inputs, case.padding)
            prefix = [lengths] if network.config.prefix else []
            longest = max(len(a) + len(b) for a, b in zip(case.inputs, to_read, strict=True))
            cache = network.start(len(to_read), max(longest, tokens.size(1)) + 1)
            input_positions = torch.arange(tokens.size(1), device=tokens.device).expand_as(tokens)
            first_logits = network.step(tokens, input_positions, cache, *prefix)
            rows = [[logits] for logits in _without_padding(first_logits, lengths)]
            positions = [len(ids) for ids in case.inputs]
        for column in zip_longest(*to_read):
            # A row that has ended repeats its padding after everything that counts.
            tokens = _column(network, [case.padding[0] if id_ is None else id_ for id_ in column])
            logits = network.step(tokens, _column(network, positions), cache, *prefix)  # [B, 1, V]
            for i, id_ in enumerate(column):
                if id_ is not None:
                    rows[i].append(logits[i])
                    positions[i] += 1
        return [torch.cat(row) for row in rows]


def readable_pass(network: Network, special: SpecialIds, case: VerificationCase) -> RowLogits:
    """Logits from one pass in which every attention computes its weights explicitly."""
    with watch(network):
        return full_pass(network, special, case)


def cache_difference(network: Network, special: SpecialIds, case: VerificationCase) -> float:
    """Difference between logits through the cache and logits of one pass."""
    return max_difference(cached_steps(network, special, case), full_pass(network, special, case))


def batch_difference(network: Network, special: SpecialIds, case: VerificationCase) -> float:
    """Difference between a padded batch and its rows one by one: of their logits, and of the decoded texts."""
    difference = max_difference(full_pass(network, special, case), separate_passes(network, special, case))
    if network.config.kind == "encoder" or network.config.classes or _dtype(network) != torch.float32:
        return difference
    batched = best_hypotheses(network, special, case.inputs, 1)
    single = [best_hypotheses(network, special, [ids], 1)[0] for ids in case.inputs]
    texts = zip(case.inputs, batched, single, strict=True)
    return max(difference, *(hypothesis_difference(network, special, *text) for text in texts))


def padding_difference(network: Network, special: SpecialIds, case: VerificationCase) -> float:
    """Difference between one padding and another, with and without the cache."""
    other = replace(case, padding=case.padding[::-1])
    ways = (full_pass,) if network.config.kind == "encoder" or network.config.classes else (full_pass, cached_steps)
    return max(max_difference(way(network, special, case), way(network, special, other)) for way in ways)


def readable_difference(network: Network, special: SpecialIds, case: VerificationCase) -> float:
    """Difference between fused attention and attention that computes its weights explicitly."""
    return max_difference(full_pass(network, special, case), readable_pass(network, special, case))


def greedy_difference(network: Network, special: SpecialIds, case: VerificationCase) -> float:
    """Difference between a beam of 1 and repeatedly taking the best token of a full pass."""
    hypotheses = best_hypotheses(network, special, case.inputs, 1)
    return max(
        hypothesis_difference(network, special, ids, hypothesis, greedy(network, special, ids))
        for ids, hypothesis in zip(case.inputs, hypotheses, strict=True)
    )


def beam_difference(network: Network, special: SpecialIds, case: VerificationCase) -> float:
    """Difference between the scores of a beam's hypotheses and those of one pass over each."""
    beam = min(3, network.config.outputs)
    return max(
        abs(hypothesis.score - full_score(network, special, ids, hypothesis)) / max(1.0, abs(hypothesis.score))
        for ids, hypotheses in zip(case.inputs, beam_hypotheses(network, special, case.inputs, beam), strict=True)
        for hypothesis in hypotheses
    )


Difference = Callable[[Network, SpecialIds, VerificationCase], float]
EQUALITY_CHECKS = (
    EqualityCheck("cached = uncached", "token by token, and one pass"),
    EqualityCheck("batched = one by one", "logits and decoded texts"),
    EqualityCheck("padding is ignored", "different ids after a row"),
    EqualityCheck("beam 1 = greedy", "beam search, and full passes"),
    EqualityCheck("beam scores = full pass", "each hypothesis of a beam of 3"),
    EqualityCheck("fast = readable", "fused and explicit attention"),
)
DIFFERENCE_FUNCTIONS: dict[str, Difference] = {
    "cached = uncached": cache_difference,
    "batched = one by one": batch_difference,
    "padding is ignored": padding_difference,
    "beam 1 = greedy": greedy_difference,
    "beam scores = full pass": beam_difference,
    "fast = readable": readable_difference,
}
COMPARED_IN_BFLOAT16 = ("cached = uncached", "batched = one by one", "padding is ignored", "fast = readable")
"""The checks that are also made in bfloat16: those that compare logits rather than texts."""
CHECKS_OF_ALL_MODELS = ("batched = one by one", "padding is ignored", "fast = readable")
"""The checks that apply to all models, including encoders and classifiers, which generate no text."""


def _applicable_checks(network: Network) -> list[EqualityCheck]:
    generates = network.config.kind != "encoder" and not network.config.classes
    return [check for check in EQUALITY_CHECKS if generates or check.name in CHECKS_OF_ALL_MODELS]


def _check_fast_copy(
    network: Decoder | EncoderDecoder, special: SpecialIds, cases: Sequence[VerificationCase]
) -> EqualityCheck:
    """Compare the network with its copies for decoding: logits through the cache, and decoded texts."""
    check = EqualityCheck("fast copy = original", "copies made for decoding")
    in_float32, in_bfloat16 = make_fast_copy(network, "float32"), make_fast_copy(network, "bfloat16")
    for number, case in enumerate(cases):
        expected = cached_steps(network, special, case)
        copied = best_hypotheses(in_float32, special, case.inputs, 1)
        original = best_hypotheses(network, special, case.inputs, 1)
        difference = max(
            max_difference(cached_steps(in_float32, special, case), expected),
            *(
                hypothesis_difference(network, special, *texts)
                for texts in zip(case.inputs, copied, original, strict=True)
            ),
        )
        bfloat16 = max(max_difference(cached_steps(in_bfloat16, special, case), expected), check.bfloat16 or 0.0)
        check = replace(check.with_case(number, difference), bfloat16=bfloat16)
    return check


def _check_compiled(network: Network, special: SpecialIds, case: VerificationCase, requested: bool) -> EqualityCheck:
    check = EqualityCheck("compiled = eager", "torch.compile, on one case")
    if not requested:
        return replace(check, skipped="not requested")
    eager = full_pass(network, special, case)
    try:
        compiled = copy.copy(network)
        compiled.compile()
        logits = full_pass(compiled, special, case)
    except Exception as error:  # a missing or failing compiler raises exceptions of many types
        return replace(check, skipped=shorten(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}", 160))
    return check.with_case(0, max_difference(logits, eager))


def _check_saved(model: Model, network: Network) -> EqualityCheck:
    """Save and load the model: float32 weights must be identical."""
    with tempfile.TemporaryDirectory() as folder:
        replace(model, network=network).save(Path(folder) / "model")
        loaded = Model.from_folder(Path(folder) / "model")
        weights, loaded_weights = network.state_dict(), loaded.network.state_dict()
        difference = max(float((weights[name].cpu() - loaded_weights[name]).abs().max()) for name in weights)
    equal = (loaded.config, loaded.special, _digest(loaded)) == (network.config, model.special, _digest(model))
    check = EqualityCheck("saved = loaded", "weights, config, tokenizer", limit=0.0)
    return check.with_case(0, difference if equal else math.inf)


def _digest(model: Model) -> str | None:
    return None if model.tokenizer is None else model.tokenizer.digest


def max_difference(first: RowLogits, second: RowLogits) -> float:
    """The largest difference between two logits, relative to the largest logit if that is above 1; NaN if any is."""
    values, expected = (torch.cat([row.flatten() for row in rows]).double() for rows in (first, second))
    return float((values - expected).abs().max() / expected.abs().max().clamp(min=1.0))


def best_hypotheses(network: Network, special: SpecialIds, inputs: list[list[int]], beam: int) -> list[Hypothesis]:
    """The best hypothesis for each input."""
    return [hypotheses[0] for hypotheses in beam_hypotheses(network, special, inputs, beam)]


def beam_hypotheses(
    network: Network, special: SpecialIds, inputs: list[list[int]], beam: int
) -> list[list[Hypothesis]]:
    """All hypotheses of a beam for each input."""
    options = Decoding(beam=beam, n_best=beam, max_tokens=MAX_NEW_TOKENS)
    if isinstance(network, EncoderDecoder):
        return search_translations(network, special, inputs, options)
    assert isinstance(network, Decoder)
    return generate(network, special, inputs, options)


def next_log_probs(
    network: Network, special: SpecialIds, ids: list[int], continuation: list[int]
) -> Float[Tensor, "T V"]:
    """Log-probabilities of the next token after an input and after each token that continues it, from one pass."""
    logits = full_pass(network, special, VerificationCase([ids], [continuation]))[0]
    log_probs = (logits if isinstance(network, EncoderDecoder) else logits[len(ids) - 1 :]).float().log_softmax(-1)
    log_probs[:, [id_ for id_ in special.suppressed if id_ < logits.size(-1)]] = -torch.inf
    return log_probs


def greedy(network: Network, special: SpecialIds, ids: list[int]) -> Hypothesis:
    """Repeatedly take the best token of a full pass, up to `MAX_NEW_TOKENS` tokens or the end of learned positions."""
    continuation: list[int] = []
    score = 0.0
    for _ in range(max_new_tokens(network, ids)):
        value, token = next_log_probs(network, special, ids, continuation)[-1].max(-1)
        score += float(value)
        if int(token) in special.end:
            return Hypothesis(continuation, score, score, "end")
        continuation.append(int(token))
    return Hypothesis(continuation, score, score, "length")


def max_new_tokens(network: Network, ids: list[int]) -> int:
    """Maximum number of tokens that are decoded after an input."""
    positions = network.config.max_positions
    if positions is None:
        return MAX_NEW_TOKENS
    taken = 0 if network.config.kind == "encoder-decoder" else len(ids) - 1
    return min(MAX_NEW_TOKENS, positions - taken)


def full_score(network: Network, special: SpecialIds, ids: list[int], hypothesis: Hypothesis) -> float:
    """The log-probability of a hypothesis, its end included, from one pass."""
    # The last token of a text that was cut off is predicted but never read.
    read = hypothesis.ids[:-1] if hypothesis.reason == "length" else hypothesis.ids
    log_probs = next_log_probs(network, special, ids, read)
    score = sum(float(log_probs[i, id_]) for i, id_ in enumerate(hypothesis.ids))
    return score + _end_log_prob(log_probs[len(hypothesis.ids)], special) if hypothesis.reason == "end" else score


def hypothesis_difference(
    network: Network, special: SpecialIds, ids: list[int], first: Hypothesis, second: Hypothesis
) -> float:
    """The difference of two hypotheses for one input: of their scores or, if they diverge, of the two next tokens.

    A tie between two tokens, which another order of summation may decide differently, is thus a small difference.
    """
    if (first.ids, first.reason) == (second.ids, second.reason):
        return abs(first.score - second.score) / max(1.0, abs(second.score))
    pairs = enumerate(zip_longest(first.ids, second.ids))
    common = next((i for i, (a, b) in pairs if a != b), len(first.ids))
    log_probs = next_log_probs(network, special, ids, first.ids[:common])[-1]
    return abs(_log_prob_at(first, common, log_probs, special) - _log_prob_at(second, common, log_probs, special))


def _log_prob_at(hypothesis: Hypothesis, position: int, log_probs: Float[Tensor, " V"], special: SpecialIds) -> float:
    """The log-probability of the token or the end at a position; minus infinity if the text was cut off there."""
    if position < len(hypothesis.ids):
        return float(log_probs[hypothesis.ids[position]])
    return _end_log_prob(log_probs, special) if hypothesis.reason == "end" else -math.inf


def _end_log_prob(log_probs: Float[Tensor, " V"], special: SpecialIds) -> float:
    return max((float(log_probs[id_]) for id_ in special.end if id_ < len(log_probs)), default=-math.inf)


def _targets(special: SpecialIds, case: VerificationCase) -> list[list[int]]:
    return [[*special.target_start, *ids] for ids in case.continuations]


def _padded(
    network: Network, rows: Sequence[list[int]], padding: tuple[int, ...]
) -> tuple[Int[Tensor, "B T"], Int[Tensor, " B"]]:
    """The rows padded on the right, as far as learned positions allow, and their lengths."""
    longest = max(map(len, rows)) + (1 if padding else 0)
    if network.config.max_positions is not None:
        longest = min(longest, network.config.max_positions)
    filled = [
        [*ids, *(padding[(i + j) % len(padding)] for j in range(longest - len(ids)))] for i, ids in enumerate(rows)
    ]
    device = network.device
    return torch.tensor(filled, device=device), torch.tensor([len(ids) for ids in rows], device=device)


def _without_padding(logits: Tensor, lengths: Int[Tensor, " B"]) -> RowLogits:
    """The logits of each row, without those of the padding."""
    if logits.dim() == 2:
        return list(logits)
    return [row[:length] for row, length in zip(logits, lengths.tolist(), strict=True)]


def _column(network: Network, values: list[int]) -> Int[Tensor, "B 1"]:
    return torch.tensor(values, device=network.device)[:, None]


def _dtype(network: Network) -> torch.dtype:
    return network.embedding.tokens.weight.dtype
