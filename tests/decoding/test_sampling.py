"""Each filter against the same one in `transformers`, what must hold of any logits, and options that make no sense."""

import dataclasses
import math
from typing import get_type_hints

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers.generation import logits_process as theirs

from regard.decoding.options import Decoding, DecodingOptions, make_decoding, make_translation_decoding
from regard.decoding.sampling import (
    choose_tokens,
    forbid_repeated_ngrams,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalise_repetition,
    random_numbers,
)

ROWS = st.integers(0, 10_000)


def logits_of(seed: int, rows: int = 4, outputs: int = 17) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(rows, outputs, generator=generator, dtype=torch.float64)


@given(seed=ROWS, k=st.integers(1, 20))
def test_top_k(seed: int, k: int) -> None:
    logits = logits_of(seed)
    assert torch.equal(keep_top_k(logits, k), theirs.TopKLogitsWarper(k)(None, logits))


@given(seed=ROWS, p=st.floats(0.01, 0.999))
def test_top_p(seed: int, p: float) -> None:
    logits = logits_of(seed)
    assert torch.equal(keep_top_p(logits, p), theirs.TopPLogitsWarper(p)(None, logits))


@given(seed=ROWS, p=st.floats(0.0, 1.0))
def test_min_p(seed: int, p: float) -> None:
    logits = logits_of(seed)
    assert torch.equal(keep_min_p(logits, p), theirs.MinPLogitsWarper(p)(None, logits))  # type: ignore[arg-type]


@given(seed=ROWS, penalty=st.floats(0.5, 3.0), length=st.integers(1, 12))
def test_repetition(seed: int, penalty: float, length: int) -> None:
    logits = logits_of(seed)
    history = torch.randint(0, 17, (4, length), generator=torch.Generator().manual_seed(seed))
    wanted = theirs.RepetitionPenaltyLogitsProcessor(penalty)(history, logits.clone())
    torch.testing.assert_close(penalise_repetition(logits, history, penalty), wanted, rtol=1e-14, atol=0)
    padded = torch.cat([torch.full((4, 3), -1), history, torch.full((4, 1), 17)], 1)  # none, and one without an output
    torch.testing.assert_close(penalise_repetition(logits, padded, penalty), wanted, rtol=1e-14, atol=0)


@given(seed=ROWS, n=st.integers(1, 4), length=st.integers(0, 25))
def test_ngrams(seed: int, n: int, length: int) -> None:
    logits = logits_of(seed, outputs=4)
    history = torch.randint(0, 4, (4, length), generator=torch.Generator().manual_seed(seed))
    wanted = theirs.NoRepeatNGramLogitsProcessor(n)(history, logits.clone())
    assert torch.equal(forbid_repeated_ngrams(logits, history, n), wanted)
    padded = torch.cat([torch.full((4, 3), -1), history], 1)
    assert torch.equal(forbid_repeated_ngrams(logits, padded, n), wanted)


@given(
    seed=ROWS,
    temperature=st.floats(0.05, 5.0),
    k=st.integers(0, 20),
    p=st.floats(0.05, 1.0),
    least=st.floats(0.0, 0.9),
)
def test_sampled_tokens_have_passed_every_filter(seed: int, temperature: float, k: int, p: float, least: float) -> None:
    """A filter keeps the best and changes no logit that it keeps; a row's draw is its own affair."""
    logits = logits_of(seed)
    options = Decoding(temperature=temperature, top_k=k, top_p=p, min_p=least)
    draws = torch.rand(4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    chosen = choose_tokens(logits, options, draws)
    kept = logits / temperature
    for filtered in (keep_top_k(kept, k or 17), keep_top_p(kept, p), keep_min_p(kept, least)):
        alive = filtered > -torch.inf
        assert torch.equal(filtered[alive], kept[alive])
        assert alive.gather(1, logits.argmax(1, keepdim=True)).all()
    assert (keep_top_k(kept, k or 17).gather(1, chosen[:, None]) > -torch.inf).all()
    for row in range(4):
        assert choose_tokens(logits[row : row + 1], options, draws[row : row + 1]) == chosen[row]


def test_samples_follow_the_probabilities() -> None:
    """Even steps through [0, 1) draw each id as often as it is likely: exactly, but for rounding to a step."""
    probabilities = torch.tensor([0.5, 0.0, 0.3, 0.2, 0.0])
    steps = 1000
    draws = torch.arange(steps, dtype=torch.float64) / steps + 0.5 / steps
    logits = probabilities.log().expand(steps, -1)
    counts = choose_tokens(logits, Decoding(temperature=1.0), draws).bincount(minlength=5)
    assert counts.tolist() == [500, 0, 300, 200, 0]
    last = torch.tensor([math.nextafter(1.0, 0.0)], dtype=torch.float64)
    assert choose_tokens(logits[:1], Decoding(temperature=1.0), last).tolist() == [3], "the last that has a probability"
    cold = choose_tokens(logits, Decoding(temperature=0.05), draws).bincount(minlength=5)
    assert cold[0] > 990
    assert choose_tokens(logits[:1], Decoding(), None).tolist() == [0]


def test_random_numbers_depend_only_on_seed_and_prompt() -> None:
    assert torch.equal(random_numbers(3, [1, 2], 9)[:4], random_numbers(3, [1, 2], 4))
    assert not torch.equal(random_numbers(3, [1, 2], 4), random_numbers(4, [1, 2], 4))
    assert not torch.equal(random_numbers(3, [1, 2], 4), random_numbers(3, [2, 1], 4))
    many = random_numbers(0, [5], 10_000)
    assert 0 <= many.min() < 0.01
    assert 0.99 < many.max() < 1
    assert abs(many.mean() - 0.5) < 0.02


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "beam=0 is too small: it must be at least 1"),
        ({"beam": 2.0}, "beam=2.0 has type float: expected int"),
        ({"beam": 2, "n_best": 3}, "n_best=3 is more than beam=2"),
        ({"n_best": 0}, "n_best=0 is too small"),
        ({"temperature": math.nan}, "temperature=nan is not possible: it must be at least 0 and finite"),
        ({"temperature": math.inf}, "temperature=inf is not possible"),
        ({"temperature": -1.0}, "temperature=-1.0 is not possible"),
        ({"top_p": 0.0}, "top_p=0.0 is not possible: it must be above 0 and at most 1"),
        ({"top_p": 1.5}, "top_p=1.5 is not possible"),
        ({"top_p": math.nan}, "top_p=nan is not possible"),
        ({"min_p": -0.1}, "min_p=-0.1 is not possible"),
        ({"top_k": -1}, "top_k=-1 is too small"),
        ({"seed": -1}, "seed=-1 is too small"),
        ({"length_penalty": math.nan}, "length_penalty=nan is not possible"),
        ({"repetition_penalty": 0.0}, "repetition_penalty=0.0 is not possible"),
        ({"no_repeat_ngram": -2}, "no_repeat_ngram=-2 is too small"),
        ({"beam": 4, "temperature": 0.7}, "beam=4 with temperature=0.7: choose beam search or sampling"),
        ({"min_tokens": 9, "max_tokens": 5}, "min_tokens=9 is more than max_tokens=5"),
        ({"max_tokens": 0}, "max_tokens=0 is too small"),
        ({"stop": ("",)}, "stop contains an empty string"),
        ({"stop": "\n"}, "expected a list of str"),
        ({"temprature": 1.0}, "did you mean 'temperature'"),
    ],
)
def test_invalid_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Decoding(**options)  # type: ignore[arg-type]


def test_typed_keywords_are_the_fields() -> None:
    """`DecodingOptions`, which editors complete, has the fields of `Decoding` with their types."""
    fields, keywords = get_type_hints(Decoding), get_type_hints(DecodingOptions)
    fields.pop("_most", None)
    assert list(keywords) == [field.name for field in dataclasses.fields(Decoding)]
    for name, annotation in keywords.items():
        if name != "stop":  # one string or several
            assert annotation == fields[name], name


def test_options_override_a_decoding_object() -> None:
    decoding = Decoding(beam=3, max_tokens=9)
    assert make_decoding(decoding, {"max_tokens": 5}) == Decoding(beam=3, max_tokens=5)
    assert make_decoding(None, {"stop": "a"}) == Decoding(stop=("a",))
    assert make_decoding(None, {"stop": ["a", "b"]}) == Decoding(stop=("a", "b"))
    assert make_translation_decoding(decoding, {}, 100) == decoding
    assert make_translation_decoding(None, {}, 3).beam == 3
