"""Is a model what it should be, by every way through it? Random cases, and the largest difference each time.

Differences are of logits, relative to the largest of them where that is above 1, and of log-probabilities where texts
are compared. All is judged in float32; the same in bfloat16 is told apart, and not judged: there every way of adding
up is a little off.

Dimensions: B rows, T tokens, V outputs or classes.
"""

import copy
import math
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.config import SpecialIds, require_at_least
from regard.decoding.fast_copy import make_fast_copy
from regard.decoding.generate import generate, search_translations
from regard.decoding.options import Decoding
from regard.decoding.search import Hypothesis
from regard.decoding.text_model import Model
from regard.formatting import shorten
from regard.model.transformer import Decoder, Encoder, EncoderDecoder, Network
from regard.model.watch import watch

LIMIT = 1e-4
"""the largest difference that float32 may make by adding up in another order"""
LONGEST, ROWS, TOKENS = 12, 3, 8
"""of a case: the longest input, the most inputs, the most tokens that are decoded"""

Rows = list[Tensor]
"""logits of each row at its real positions, [T, V], or of its classes, [V]"""


@dataclass(frozen=True)
class Check:
    """One equality, and how far from it the model is."""

    name: str
    how: str
    limit: float = LIMIT
    difference: float | None = None
    """the largest in float32; none if it was not checked"""
    worst: int | None = None
    """the case that showed it"""
    bfloat16: float | None = None
    """the largest in bfloat16, which is not judged"""
    skipped: str = ""
    """why it was not checked"""

    @property
    def passed(self) -> bool:
        """Whether no difference is above the limit."""
        return self.difference is None or self.difference <= self.limit

    def seen(self, case: int, difference: float) -> "Check":
        """The same check after one more case; what is not a number differs without end."""
        difference = math.inf if math.isnan(difference) else difference
        if self.difference is not None and difference <= self.difference:
            return self
        return replace(self, difference=difference, worst=case)


@dataclass(frozen=True)
class Verification:
    """All checks of one model."""

    checks: tuple[Check, ...]
    cases: int
    seed: int

    @property
    def passed(self) -> bool:
        """Whether each check has passed."""
        return all(check.passed for check in self.checks)


@dataclass(frozen=True)
class Case:
    """Inputs of unequal length, and what follows each of them."""

    given: list[list[int]]
    """sources, prompts, or in an encoder texts"""
    said: list[list[int]]
    junk: tuple[int, ...] = ()
    """what stands in the padding, of which even the longest row has some; none for a row without padding"""

    def row(self, i: int) -> "Case":
        """One of its rows alone: without padding."""
        return Case([self.given[i]], [self.said[i]])


def verify(
    model: Model,
    cases: int = 20,
    seed: int = 0,
    compiled: bool = True,
    progress: Callable[[int], object] | None = None,
) -> Verification:
    """Check a model on so many random cases. `compiled`: torch.compile too, on one of them, which takes its time."""
    require_at_least(1, cases=cases)
    network = copy.deepcopy(model.network).float().eval()
    rough = copy.deepcopy(network).bfloat16()
    drawn = [draw_case(network, random.Random(f"{seed} {n}")) for n in range(cases)]
    checks = {check.name: check for check in _that_apply(network)}
    for number, case in enumerate(drawn):
        for name in checks:
            checks[name] = checks[name].seen(number, DIFFERENCES[name](network, model.special, case))
            if name in CONTINUOUS:
                off = DIFFERENCES[name](rough, model.special, case)
                checks[name] = replace(checks[name], bfloat16=max(off, checks[name].bfloat16 or 0.0))
        if progress is not None:
            progress(number + 1)
    extra = [_compiled(network, model.special, drawn[0], compiled), _saved(model, network)]
    if isinstance(network, Decoder | EncoderDecoder) and not network.config.classes:
        extra = [_quick(network, model.special, drawn), *extra]
    return Verification((*checks.values(), *extra), cases, seed)


def draw_case(network: Network, chance: random.Random) -> Case:
    """Some rows of random ids that the model can say, never <pad>; short enough for learned positions."""
    config = network.config
    room = config.max_length if config.positions == "learned" else 4 * LONGEST
    own = config.kind == "encoder-decoder"  # its targets have positions of their own, one of them for the start
    longest = min(LONGEST, room if config.kind != "decoder" else max(1, room // 2))
    most = min(LONGEST, max(0, room - (1 if own else longest) - 1)) if config.kind != "encoder" else 0

    def ids(count: int) -> list[int]:
        drawn = (chance.randrange(config.outputs) for _ in range(count))
        return [(id_ + 1) % config.outputs if id_ == config.pad_id else id_ for id_ in drawn]

    rows = range(chance.randint(1, ROWS))
    given = [ids(chance.randint(1, longest)) for _ in rows]
    said = [ids(chance.randint(0, most)) for _ in rows]
    return Case(given, said, tuple(chance.randrange(config.vocab_size) for _ in range(7)))


def all_at_once(network: Network, special: SpecialIds, case: Case) -> Rows:
    """Logits by one pass over padded rows, without a cache."""
    with torch.inference_mode():
        if isinstance(network, EncoderDecoder):
            source, source_lengths = _padded(network, case.given, case.junk)
            target, lengths = _padded(network, _targets(special, case), case.junk)
            logits = network(source, target, source_lengths, lengths)  # [B, T, V]
        else:
            given = torch.tensor([len(ids) for ids in case.given], device=_device(network))
            tokens, lengths = _padded(network, [a + b for a, b in zip(case.given, case.said, strict=True)], case.junk)
            logits = network(tokens, lengths, *[given] * network.config.prefix)  # [B, T, V] or [B, V]
        return _real(logits, lengths)


def one_by_one(network: Network, special: SpecialIds, case: Case) -> Rows:
    """The same, each row in a pass of its own."""
    return [all_at_once(network, special, case.row(i))[0] for i in range(len(case.given))]


def cached(network: Network, special: SpecialIds, case: Case) -> Rows:
    """The same through the cache: inputs in one step, padded, then token by token, each row at its own positions."""
    assert not isinstance(network, Encoder)
    with torch.inference_mode():
        ahead = case.said
        rows: list[list[Tensor]] = [[] for _ in ahead]
        prefix: list[Tensor] = []
        if isinstance(network, EncoderDecoder):
            source, lengths = _padded(network, case.given, case.junk)
            ahead = _targets(special, case)
            cache = network.start(source, max(map(len, ahead)), lengths)
            places = [0] * len(ahead)
        else:
            tokens, lengths = _padded(network, case.given, case.junk)
            prefix = [lengths] * network.config.prefix
            longest = max(len(a) + len(b) for a, b in zip(case.given, ahead, strict=True))
            cache = network.start(len(ahead), max(longest, tokens.size(1)) + 1)
            positions = torch.arange(tokens.size(1), device=tokens.device).expand_as(tokens)
            rows = [[first] for first in _real(network.step(tokens, positions, cache, *prefix), lengths)]
            places = [len(ids) for ids in case.given]
        for column in zip_longest(*ahead):
            # A row that has ended says its junk again and again, behind all that counts.
            tokens = _column(network, [case.junk[0] if id_ is None else id_ for id_ in column])
            logits = network.step(tokens, _column(network, places), cache, *prefix)  # [B, 1, V]
            for i, id_ in enumerate(column):
                if id_ is not None:
                    rows[i].append(logits[i])
                    places[i] += 1
        return [torch.cat(row) for row in rows]


def readable(network: Network, special: SpecialIds, case: Case) -> Rows:
    """The same where every attention forms its weights."""
    with watch(network):
        return all_at_once(network, special, case)


def cache_difference(network: Network, special: SpecialIds, case: Case) -> float:
    """Between the logits through the cache and those of one pass."""
    return largest(cached(network, special, case), all_at_once(network, special, case))


def batch_difference(network: Network, special: SpecialIds, case: Case) -> float:
    """Between a padded batch and its rows one by one: in their logits and, decoded, in what they say."""
    difference = largest(all_at_once(network, special, case), one_by_one(network, special, case))
    if network.config.kind == "encoder" or network.config.classes or _dtype(network) != torch.float32:
        return difference
    together = decoded(network, special, case.given, 1)
    alone = [decoded(network, special, [given], 1)[0] for given in case.given]
    texts = zip(case.given, together, alone, strict=True)
    return max(difference, *(text_difference(network, special, *each) for each in texts))


def padding_difference(network: Network, special: SpecialIds, case: Case) -> float:
    """Between one padding and another, with and without the cache."""
    other = replace(case, junk=case.junk[::-1])
    ways = (all_at_once,) if network.config.kind == "encoder" or network.config.classes else (all_at_once, cached)
    return max(largest(way(network, special, case), way(network, special, other)) for way in ways)


def readable_difference(network: Network, special: SpecialIds, case: Case) -> float:
    """Between fused attention and attention that forms its weights."""
    return largest(all_at_once(network, special, case), readable(network, special, case))


def greedy_difference(network: Network, special: SpecialIds, case: Case) -> float:
    """Between a beam of 1 and the best token of a full pass, each time anew."""
    found = decoded(network, special, case.given, 1)
    return max(
        text_difference(network, special, given, each, greedy(network, special, given))
        for given, each in zip(case.given, found, strict=True)
    )


def beam_difference(network: Network, special: SpecialIds, case: Case) -> float:
    """Between the scores that a beam gives its texts and those of one pass over each."""
    wide = min(3, network.config.outputs)
    return max(
        abs(each.score - full_score(network, special, given, each)) / max(1.0, abs(each.score))
        for given, texts in zip(case.given, beams(network, special, case.given, wide), strict=True)
        for each in texts
    )


Difference = Callable[[Network, SpecialIds, Case], float]
CHECKS = (
    Check("cached = uncached", "token by token, beside one pass"),
    Check("batched = one by one", "logits, and what is decoded"),
    Check("padding is not seen", "whatever ids stand behind a row"),
    Check("beam 1 = greedy", "beside full passes without a cache"),
    Check("beam scores = full pass", "each text of a beam of 3"),
    Check("fast = readable", "fused, beside explicit weights"),
)
DIFFERENCES: dict[str, Difference] = {
    "cached = uncached": cache_difference,
    "batched = one by one": batch_difference,
    "padding is not seen": padding_difference,
    "beam 1 = greedy": greedy_difference,
    "beam scores = full pass": beam_difference,
    "fast = readable": readable_difference,
}
CONTINUOUS = ("cached = uncached", "batched = one by one", "padding is not seen", "fast = readable")
"""what can be told in bfloat16 too: it compares logits, not texts"""
OF_ALL = ("batched = one by one", "padding is not seen", "fast = readable")
"""what applies to models that say nothing: encoders and classifiers"""


def _that_apply(network: Network) -> list[Check]:
    silent = network.config.kind == "encoder" or network.config.classes
    return [check for check in CHECKS if not silent or check.name in OF_ALL]


def _quick(network: Decoder | EncoderDecoder, special: SpecialIds, cases: Sequence[Case]) -> Check:
    """Between the network and its copies for decoding: logits through the cache, and what a beam says and scores."""
    check = Check("quick = the network", "copies made for decoding")
    exact, rough = make_fast_copy(network, "float32"), make_fast_copy(network, "bfloat16")
    for number, case in enumerate(cases):
        wanted = cached(network, special, case)
        difference = largest(cached(exact, special, case), wanted)
        texts = zip(
            case.given, decoded(exact, special, case.given, 1), decoded(network, special, case.given, 1), strict=True
        )
        difference = max(difference, *(text_difference(network, special, *each) for each in texts))
        off = max(largest(cached(rough, special, case), wanted), check.bfloat16 or 0.0)
        check = replace(check.seen(number, difference), bfloat16=off)
    return check


def _compiled(network: Network, special: SpecialIds, case: Case, wanted: bool) -> Check:
    check = Check("compiled = eager", "torch.compile, on one case")
    if not wanted:
        return replace(check, skipped="not asked for")
    eager = all_at_once(network, special, case)
    try:
        twin = copy.copy(network)
        twin.compile()
        found = all_at_once(twin, special, case)
    except Exception as error:  # no compiler, one that fails: of many types, none of them ours
        return replace(check, skipped=shorten(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}", 160))
    return check.seen(0, largest(found, eager))


def _saved(model: Model, network: Network) -> Check:
    """Weights in float32 are written as they are: no bit may differ."""
    with tempfile.TemporaryDirectory() as folder:
        Model(network, model.tokenizer, model.special, model.about).save(Path(folder) / "model")
        loaded = Model.from_folder(Path(folder) / "model")
        weights, others = network.state_dict(), loaded.network.state_dict()
        difference = max(float((weights[name].cpu() - others[name]).abs().max()) for name in weights)
    same = (loaded.config, loaded.special, _digest(loaded)) == (network.config, model.special, _digest(model))
    check = Check("saved = loaded", "weights, config, special ids, tokenizer", limit=0.0)
    return check.seen(0, difference if same else math.inf)


def _digest(model: Model) -> str | None:
    return None if model.tokenizer is None else model.tokenizer.digest


def largest(ours: Rows, theirs: Rows) -> float:
    """The largest difference of any two logits, relative to the largest logit where that is above 1."""
    mine, others = (torch.cat([row.flatten() for row in rows]).double() for rows in (ours, theirs))
    return float((mine - others).abs().max() / others.abs().max().clamp(min=1.0))  # NaN, if any is


def decoded(network: Network, special: SpecialIds, inputs: list[list[int]], beam: int) -> list[Hypothesis]:
    """The best text for each input."""
    return [texts[0] for texts in beams(network, special, inputs, beam)]


def beams(network: Network, special: SpecialIds, inputs: list[list[int]], beam: int) -> list[list[Hypothesis]]:
    """All texts of a beam for each input."""
    options = Decoding(beam=beam, n_best=beam, max_tokens=TOKENS)
    if isinstance(network, EncoderDecoder):
        return search_translations(network, special, inputs, options)
    assert isinstance(network, Decoder)
    return generate(network, special, inputs, options)


def behind(network: Network, special: SpecialIds, given: list[int], said: list[int]) -> Float[Tensor, "T V"]:
    """Log-probabilities behind an input and behind each token said after it, by one pass; suppressed ids have none."""
    logits = all_at_once(network, special, Case([given], [said]))[0]
    log_probs = (logits if isinstance(network, EncoderDecoder) else logits[len(given) - 1 :]).float().log_softmax(-1)
    log_probs[:, [id_ for id_ in special.suppressed if id_ < logits.size(-1)]] = -torch.inf
    return log_probs


def greedy(network: Network, special: SpecialIds, given: list[int]) -> Hypothesis:
    """The best token of a full pass, again and again, as far as learned positions and `TOKENS` allow."""
    said: list[int] = []
    score = 0.0
    for _ in range(tokens_after(network, given)):
        value, token = behind(network, special, given, said)[-1].max(-1)
        score += float(value)
        if int(token) in special.end:
            return Hypothesis(said, score, score, "end")
        said.append(int(token))
    return Hypothesis(said, score, score, "length")


def tokens_after(network: Network, given: list[int]) -> int:
    """How many tokens are decoded behind an input."""
    if network.config.positions != "learned":
        return TOKENS
    taken = 0 if network.config.kind == "encoder-decoder" else len(given) - 1
    return min(TOKENS, network.config.max_length - taken)


def full_score(network: Network, special: SpecialIds, given: list[int], found: Hypothesis) -> float:
    """The log-probability of a text, its end included, by one pass."""
    said = found.ids[:-1] if found.reason == "length" else found.ids  # the last token is said, never read
    log_probs = behind(network, special, given, said)
    score = sum(float(log_probs[i, id_]) for i, id_ in enumerate(found.ids))
    return score + _end(log_probs[len(found.ids)], special) if found.reason == "end" else score


def text_difference(
    network: Network, special: SpecialIds, given: list[int], ours: Hypothesis, theirs: Hypothesis
) -> float:
    """Between two texts for one input: of their scores or, where they part, of the two tokens' log-probabilities there.

    So a draw between two tokens, which adding up in another order may decide otherwise, is no large difference.
    """
    if (ours.ids, ours.reason) == (theirs.ids, theirs.reason):
        return abs(ours.score - theirs.score) / max(1.0, abs(theirs.score))
    pairs = enumerate(zip_longest(ours.ids, theirs.ids))
    same = next((i for i, (a, b) in pairs if a != b), len(ours.ids))
    log_probs = behind(network, special, given, ours.ids[:same])[-1]
    return abs(_token(ours, same, log_probs, special) - _token(theirs, same, log_probs, special))


def _token(text: Hypothesis, place: int, log_probs: Float[Tensor, " V"], special: SpecialIds) -> float:
    """The log-probability of what a text says at a place: a token, or its end; none if it just breaks off."""
    if place < len(text.ids):
        return float(log_probs[text.ids[place]])
    return _end(log_probs, special) if text.reason == "end" else -math.inf


def _end(log_probs: Float[Tensor, " V"], special: SpecialIds) -> float:
    return max((float(log_probs[id_]) for id_ in special.end if id_ < len(log_probs)), default=-math.inf)


def _targets(special: SpecialIds, case: Case) -> list[list[int]]:
    assert special.start is not None
    return [[special.start, *ids] for ids in case.said]


def _padded(
    network: Network, rows: Sequence[list[int]], junk: tuple[int, ...]
) -> tuple[Int[Tensor, "B T"], Int[Tensor, " B"]]:
    """The rows padded on the right with junk, as far as learned positions go, and their lengths."""
    longest = max(map(len, rows)) + bool(junk)
    if network.config.positions == "learned":
        longest = min(longest, network.config.max_length)
    filled = [[*ids, *(junk[(i + j) % len(junk)] for j in range(longest - len(ids)))] for i, ids in enumerate(rows)]
    device = _device(network)
    return torch.tensor(filled, device=device), torch.tensor([len(ids) for ids in rows], device=device)


def _real(logits: Tensor, lengths: Int[Tensor, " B"]) -> Rows:
    """Each row's logits, without those of the padding."""
    if logits.dim() == 2:
        return list(logits)
    return [row[:length] for row, length in zip(logits, lengths.tolist(), strict=True)]


def _column(network: Network, values: list[int]) -> Int[Tensor, "B 1"]:
    return torch.tensor(values, device=_device(network))[:, None]


def _device(network: Network) -> torch.device:
    return network.device


def _dtype(network: Network) -> torch.dtype:
    return network.embedding.tokens.weight.dtype
