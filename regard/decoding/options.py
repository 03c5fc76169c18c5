"""Decoding options: a frozen dataclass that checks its values.

The docstring under each field is also its documentation in the recipe reference. `regard generate --help` and the HTTP
API use the same words, which a test compares.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, cast

from regard.config import StrictConfig, require_at_least
from regard.errors import RegardError
from regard.formatting import quoted

DECODING_MAXIMA = {
    "beam": 100_000,
    "n_best": 100_000,
    "length_penalty": 1e6,
    "temperature": 1e6,
    "top_k": 2**31,
    "seed": 2**64 - 1,
    "repetition_penalty": 1e6,
    "no_repeat_ngram": 2**31,
    "min_tokens": 2**31,
    "max_tokens": 2**31,
}
"""Maximum values of the numbers in `Decoding`."""


DEFAULT_BEAM = 4
"""Beam of a translator when none is given, as in the paper."""


@dataclass(frozen=True, kw_only=True)
class Decoding(StrictConfig, maxima=DECODING_MAXIMA):
    """How to choose tokens. The defaults are greedy decoding."""

    beam: int = 1
    """Number of hypotheses kept per text. 1 is greedy decoding, or sampling if temperature is above 0."""
    n_best: int = 1
    """Number of hypotheses to return, best first; at most `beam`."""
    length_penalty: float = 0.6
    """The paper's alpha: a beam ranks by log-probability ÷ ((5 + tokens) / 6)^alpha. 0 favours short texts."""
    temperature: float = 0.0
    """0 is greedy; otherwise sample: 1 uses the model's distribution, lower values sharpen it."""
    top_k: int = 0
    """Sample from the k most likely tokens only; 0 disables."""
    top_p: float = 1.0
    """Sample from the smallest set of tokens whose probabilities add up to at least p; 1 disables."""
    min_p: float = 0.0
    """Sample from tokens whose probability is at least this fraction of the best token's; 0 disables."""
    seed: int = 0
    """Seed for sampling. The same seed and prompt give the same text, whatever else is in the batch."""
    repetition_penalty: float = 1.0
    """Divides positive logits of tokens already in the text and multiplies negative ones; 1 disables."""
    no_repeat_ngram: int = 0
    """Forbid repeating any n-gram of this length; 0 disables."""
    stop: tuple[str, ...] = ()
    """Strings that end the text; the text is cut before the first of them."""
    min_tokens: int = 0
    """Minimum number of new tokens."""
    max_tokens: int | None = None
    """Maximum number of new tokens, the end token included. Default: 200, or for a translation twice its source plus
    10."""

    def __post_init__(self) -> None:
        """Check the values and their combinations."""
        super().__post_init__()
        require_at_least(1, beam=self.beam, n_best=self.n_best, max_tokens=self.max_tokens)
        require_at_least(
            0, top_k=self.top_k, seed=self.seed, no_repeat_ngram=self.no_repeat_ngram, min_tokens=self.min_tokens
        )
        if self.n_best > self.beam:
            raise RegardError(f"n_best={self.n_best} is more than beam={self.beam}, the number of hypotheses")
        _check("length_penalty", self.length_penalty, 0 <= self.length_penalty < math.inf, "at least 0 and finite")
        _check("temperature", self.temperature, 0 <= self.temperature < math.inf, "at least 0 and finite")
        _check("top_p", self.top_p, 0 < self.top_p <= 1, "above 0 and at most 1")
        _check("min_p", self.min_p, 0 <= self.min_p <= 1, "from 0 to 1")
        _check("repetition_penalty", self.repetition_penalty, 0 < self.repetition_penalty < math.inf, "above 0, finite")
        if self.beam > 1 and self.temperature:
            raise RegardError(f"beam={self.beam} with temperature={self.temperature}: choose beam search or sampling")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RegardError(f"min_tokens={self.min_tokens} is more than max_tokens={self.max_tokens}")
        if "" in self.stop:
            raise RegardError("stop contains an empty string, which would end every text at once")


def _check(name: str, value: float, is_valid: bool, wanted: str) -> None:
    """Raise a RegardError unless `is_valid`, which is False for NaN in every comparison."""
    if not is_valid:
        raise RegardError(f"{name}={quoted(value)} is not possible: it must be {wanted}")


class DecodingOptions(TypedDict, total=False):
    """The fields of `Decoding` as keyword arguments, so that editors complete them; each is documented there."""

    beam: int
    n_best: int
    length_penalty: float
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    repetition_penalty: float
    no_repeat_ngram: int
    stop: str | Sequence[str]
    min_tokens: int
    max_tokens: int | None


def make_decoding(decoding: Decoding | None, options: DecodingOptions) -> Decoding:
    """`decoding`, or the defaults, with the given options; `stop` may be one string or several."""
    keywords = dict(options)
    if "stop" in options:
        stop = options["stop"]
        keywords["stop"] = (stop,) if isinstance(stop, str) else tuple(stop) if isinstance(stop, Sequence) else stop
    return Decoding(**keywords) if decoding is None else replace(decoding, **keywords)  # type: ignore[arg-type]


OWN_SETTINGS = ("temperature", "top_k", "top_p", "min_p")
"""Options of sampling that a model may set for itself; they have the same names in `generation_config.json`."""


def with_own_settings(options: DecodingOptions, generation: object) -> DecodingOptions:
    """The options, and those that a model's "generation" metadata sets for generating text where none are given.

    A beam search is not sampled. Invalid metadata is ignored.

    >>> with_own_settings({"seed": 3}, {"do_sample": True, "temperature": 0.8, "max_new_tokens": 300, "num_beams": 4})
    {'max_tokens': 300, 'temperature': 0.8, 'seed': 3}
    >>> with_own_settings({"beam": 4}, {"do_sample": True, "temperature": 0.8})
    {'beam': 4}
    """
    settings = generation if isinstance(generation, dict) else {}
    own = {"max_tokens": settings.get("max_new_tokens")}
    if settings.get("do_sample") is True and options.get("beam", 1) == 1:
        own |= {name: settings.get(name) for name in OWN_SETTINGS}
    given = {name: value for name, value in own.items() if value is not None}
    try:
        Decoding(**given)
    except RegardError:  # the metadata of a folder may be untrusted
        return options
    return cast("DecodingOptions", {**given, **options})


def make_translation_decoding(decoding: Decoding | None, options: DecodingOptions, outputs: int) -> Decoding:
    """As `make_decoding`; without an explicit beam it is `DEFAULT_BEAM`, unless the translation is to be sampled.

    The default beam is at least `n_best`, and no wider than a model's number of `outputs`.
    """
    if decoding is None and "beam" not in options:
        n_best = options.get("n_best", 1)
        beam = 1 if options.get("temperature") else max(DEFAULT_BEAM, n_best if isinstance(n_best, int) else 1)
        options = cast("DecodingOptions", {"beam": min(beam, outputs), **options})
    return make_decoding(decoding, options)
