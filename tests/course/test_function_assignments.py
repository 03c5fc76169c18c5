"""The assignments that ask for functions. Every mistake is named, and correct solutions pass."""

import itertools
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from torch import Tensor, nn

from regard.course.assignment import load_assignment
from regard.course.diagnose import diagnose
from regard.course.line_search import TracedFile, edited_functions
from regard.course.mistake_catalogue import load_catalogue
from regard.course.numeric_equality import same_probe
from regard.course.observe import SolutionRun, observe
from regard.course.probe_values import (
    accepts,
    items_from,
    number_from,
    padded,
    tensor_from,
    text_value,
    token_row,
    written_parts,
)
from regard.course.unfinished import find_gaps
from regard.course.worked_example import example_table, wrong_shapes
from tests.support.variant_runs import groups_that_look_alike, observe_untraced, observe_variant

NAMES = ("decoding", "batching", "bleu", "positions", "training-loop", "bpe-tokenizer")
ASSIGNMENTS = {name: load_assignment(name) for name in NAMES}
SOLUTIONS = [path for of in ASSIGNMENTS.values() for path in sorted((of.folder / "solutions").glob("*.py"))]
MIN_MISTAKES = 20


@pytest.mark.slow
@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_mistakes_differ_from_the_reference_and_from_each_other(name: str) -> None:
    of = ASSIGNMENTS[name]
    runs = {variant: observe_untraced(variant.applied_to(of.reference), of) for variant in of.variants}
    expected = observe_untraced(of.reference, of)
    for variant, run in runs.items():
        wrong = [probe for probe in of.probes if not same_probe(run, expected, probe)]
        assert any(probe in run.values for probe in wrong), variant  # an error alone is not enough to name a mistake
    for alike in groups_that_look_alike(runs, of.probes):
        assert len({variant.mistake for variant in alike}) == 1, alike


@pytest.mark.long
@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_each_variant_of_a_mistake_is_named(name: str) -> None:
    of = ASSIGNMENTS[name]
    wrong = {}
    for variant in of.variants:
        found = diagnose(observe_variant(variant, of), of, variant.applied_to(of.reference))
        if ([match.id for match in found.mistakes], found.possible) != ([variant.mistake], ()):
            wrong[variant.mistake, variant.edits] = found
    assert not wrong


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_many_mistakes_are_described(name: str) -> None:
    known, catalogue = {variant.mistake for variant in ASSIGNMENTS[name].variants}, load_catalogue()
    assert len(known) >= MIN_MISTAKES
    for mistake in known:
        texts = catalogue[mistake]
        assert all([texts.title, texts.why, texts.fix, texts.part])
        assert texts.question.endswith("?")


@pytest.mark.slow
@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_a_correct_solution_in_another_style_gets_all_points(path: Any) -> None:
    of = ASSIGNMENTS[path.parts[-3]]
    source = path.read_text(encoding="utf-8")
    found = diagnose(observe(source, of), of, source)
    assert (found.passed, found.mistakes, found.failures) == (True, (), {})
    assert found.points == sum(of.points.values())


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_there_are_solutions_in_other_styles_and_every_probe_has_points(name: str) -> None:
    of = ASSIGNMENTS[name]
    assert sum(path.parts[-3] == name for path in SOLUTIONS) >= 3
    assert set(of.points) == set(of.probes)


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_a_starter_has_a_gap_for_each_name_and_no_mistake(name: str) -> None:
    of = ASSIGNMENTS[name]
    assert {function.split(".")[0] for function, _ in find_gaps(of.starter)} == set(of.defines)
    found = diagnose(observe(of.starter, of), of, of.starter)
    assert (found.passed, found.mistakes, found.possible) == (False, (), ())
    assert {failure.kind for failure in found.failures.values()} == {"NotImplementedError"}


@cache
def reference_names(name: str) -> dict[str, Any]:
    """The functions of an assignment's reference."""
    names: dict[str, Any] = {}
    exec(ASSIGNMENTS[name].reference, names)
    return names


# Decoding


def table_model(vocab: int = 4) -> Callable[[Tensor], Tensor]:
    table = torch.randn(vocab, 8, vocab, generator=torch.Generator().manual_seed(5))
    return lambda tokens: table[tokens[:, -1], tokens.shape[1]]


def all_texts(model: Callable[[Tensor], Tensor], prompt: list[int], limit: int, alpha: float) -> list[Any]:
    """Every complete text with its score, by trying all of them: what a beam that is wide enough must find."""
    texts = []
    for length in range(1, limit + 1):
        for new in itertools.product(range(4), repeat=length):
            if 0 in new[:-1] or (new[-1] != 0 and length < limit):
                continue
            text, total = list(prompt), 0.0
            for token in new:
                total += float(model(torch.tensor([text]))[0].log_softmax(-1)[token])
                text.append(token)
            texts.append((text, total / ((5 + length) / 6) ** alpha))
    return sorted(texts, key=lambda pair: -pair[1])


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_beam_that_is_wide_enough_finds_the_best_of_all_texts(alpha: float) -> None:
    names, model = reference_names("decoding"), table_model()
    expected = all_texts(model, [2, 1], 3, alpha)
    found = names["beam_search"](model, torch.tensor([2, 1]), 0, 3, len(expected), alpha)
    assert [tokens.tolist() for tokens, _ in found] == [text for text, _ in expected]
    assert [float(score) for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-5)


def test_a_beam_of_one_is_greedy_search() -> None:
    names, model, prompt = reference_names("decoding"), table_model(), torch.tensor([1])
    [(tokens, _)] = names["beam_search"](model, prompt, 0, 6, 1, 0.6)
    assert torch.equal(tokens, names["greedy"](model, prompt, 0, 6))


def test_the_filters_keep_what_their_definitions_say() -> None:
    names, logits = reference_names("decoding"), torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3]]).log()
    assert names["top_k"](logits, 2).isfinite().tolist() == [[False, True, True], [True, False, True]]
    assert names["top_p"](logits, 0.55).isfinite().tolist() == [[False, True, False], [True, False, True]]
    assert names["next_probabilities"](logits, 1.0, 2)[1].tolist() == pytest.approx([0.625, 0, 0.375])


@pytest.mark.long  # importing transformers takes longer than all other tests of this file
def test_the_filters_equal_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    names, logits = reference_names("decoding"), torch.randn(5, 9, generator=torch.Generator().manual_seed(1))
    for k in (1, 4, 20):
        assert torch.equal(names["top_k"](logits, k), transformers.TopKLogitsWarper(k)(None, logits))
    for p in (0.2, 0.5, 0.9):
        assert torch.equal(names["top_p"](logits, p), transformers.TopPLogitsWarper(p)(None, logits))


# Batching


def test_the_loss_of_batching_equals_that_of_torch() -> None:
    names, generator = reference_names("batching"), torch.Generator().manual_seed(2)
    logits, labels = torch.randn(3, 5, 7, generator=generator), torch.randint(7, (3, 5), generator=generator)
    expected = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=4)
    assert torch.allclose(names["masked_loss"](logits, labels, 4), expected)


def test_the_masks_of_batching_equal_those_of_torch() -> None:
    names, tokens = reference_names("batching"), torch.tensor([[3, 4, 0], [5, 0, 0]])
    causal = nn.Transformer.generate_square_subsequent_mask(3) == 0
    assert torch.equal(names["causal_mask"](3), causal)
    scores = torch.randn(2, 1, 3, 3, generator=torch.Generator().manual_seed(4))
    mask = names["target_mask"](tokens, 0)
    values = torch.eye(3).expand(2, 1, 3, 3)  # attention to the unit vectors is the weights; the scores are q · kᵀ
    expected = F.scaled_dot_product_attention(
        scores, values, values, (causal & (tokens != 0)[:, None])[:, None], scale=1
    )
    assert torch.allclose(names["masked_softmax"](scores[:, 0], mask), expected[:, 0], atol=1e-6)


@pytest.mark.slow
@given(st.lists(st.integers(1, 40), max_size=30), st.integers(1, 60))
def test_batches_contain_every_sequence_once_and_respect_the_limit(lengths: list[int], limit: int) -> None:
    batches = reference_names("batching")["make_batches"](lengths, limit)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    sizes = [max(lengths[index] for index in batch) * len(batch) for batch in batches]
    assert all(size <= limit or len(batch) == 1 for size, batch in zip(sizes, batches, strict=True))
    order = [lengths[index] for batch in batches for index in batch]
    assert order == sorted(order)
    for batch, following in itertools.pairwise(batches):
        assert lengths[following[0]] * (len(batch) + 1) > limit


# BLEU

WORD = st.sampled_from(["the", "The", "a", "cat", "dog", "sat", "on", "mat"])
SENTENCE = st.lists(WORD, min_size=1, max_size=12)


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(st.tuples(SENTENCE, SENTENCE, SENTENCE), min_size=1, max_size=4))
def test_bleu_equals_sacrebleu(corpus: list[tuple[list[str], list[str], list[str]]]) -> None:
    """sacreBLEU on words that are already separated; its add-k smoothing with k = 1 is that of the assignment."""
    names = reference_names("bleu")
    hypotheses, references = [one for one, *_ in corpus], [[first, second] for _, first, second in corpus]
    texts = [" ".join(hypothesis) for hypothesis in hypotheses]
    streams = [[" ".join(several[index]) for several in references] for index in (0, 1)]
    expected = BLEU(smooth_method="none", tokenize="none", force=True).corpus_score(texts, streams)
    assert names["corpus_bleu"](hypotheses, references) == pytest.approx(expected.score, abs=1e-9)
    smoothed = BLEU(smooth_method="add-k", smooth_value=1, effective_order=True, tokenize="none", force=True)
    expected = smoothed.sentence_score(texts[0], [stream[0] for stream in streams])
    assert names["sentence_bleu"](hypotheses[0], references[0]) == pytest.approx(expected.score, abs=1e-9)


def test_the_example_of_the_paper_is_clipped() -> None:
    """Papineni et al. (2002), section 2.1: seven times "the" has a clipped precision of 2/7."""
    references = [sentence.split() for sentence in ("the cat is on the mat", "there is a cat on the mat")]
    assert reference_names("bleu")["clipped_matches"](["the"] * 7, references, 1) == (2, 7)


# Helpers of probes


def test_values_of_probes() -> None:
    assert token_row(torch.tensor([[1, 2]]), "f") == token_row([1, torch.tensor(2)], "f") == [1, 2]
    assert padded([[1], [2, 3]], 1).tolist() == [[1, -1], [2, 3]]
    assert padded([], 3).shape == (0, 3)
    assert padded([[0.5]], 2, math.nan).isnan().tolist() == [[False, True]]
    assert number_from(torch.tensor([2.5]), "f") == number_from(2.5, "f") == 2.5
    assert items_from((1, 2), "f", 2) == items_from(torch.tensor([1, 2]), "f") == [1, 2]
    assert tensor_from([[1, 2]], "f").shape == (1, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: token_row(None, "greedy"), "greedy returned NoneType, but a 1-D tensor of token ids was expected"),
        (lambda: token_row(torch.tensor([0.5]), "greedy"), "greedy returned list, but a 1-D tensor of token ids"),
        (lambda: tensor_from("text", "top_k"), "top_k returned str, but a tensor was expected"),
        (lambda: number_from("2", "mean"), "mean returned str, but a number was expected"),
        (lambda: number_from(torch.ones(2), "mean"), "mean returned Tensor, but a number was expected"),
        (lambda: items_from({}, "shift", 2), "shift returned dict, but a tuple of 2 was expected"),
        (lambda: items_from([1], "shift", 2), "shift returned 1 values, but 2 were expected"),
        (lambda: items_from(torch.tensor(1), "make_batches"), "make_batches returned Tensor, but a list was expected"),
    ],
)
def test_a_result_of_another_kind_is_refused_by_the_name_of_its_function(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


def test_a_refused_call_is_told_from_one_that_is_not_written() -> None:
    def missing() -> None:
        raise NotImplementedError

    assert accepts(lambda: 1)
    assert not accepts(lambda: [][0])
    with pytest.raises(NotImplementedError):
        accepts(missing)


def test_parts_that_are_not_written_are_left_out() -> None:
    def missing() -> None:
        raise NotImplementedError

    assert written_parts({"one": lambda: 1, "two": missing}) == {"one": 1}
    assert written_parts({}) == {}
    with pytest.raises(NotImplementedError):
        written_parts({"two": missing})
    with pytest.raises(IndexError):
        written_parts({"one": lambda: 1, "wrong": lambda: [][0]})


def test_texts_are_shown_as_texts() -> None:
    of = ASSIGNMENTS["bpe-tokenizer"]
    expected, run = SolutionRun({"example": {"text": text_value("a é", "f")}}), SolutionRun()
    run.values["example"] = {"text": text_value("a\n�", "f")}
    table = example_table(run, expected, of.stages)
    assert table is not None
    assert (table.expected, table.actual, table.differs) == ([["'a é'"]], [["'a\\n�'"]], [[True]])
    assert wrong_shapes(run, expected) == {}
    with pytest.raises(TypeError, match="decode returned bytes, but a text was expected"):
        text_value(b"a", "decode")


def test_the_functions_that_an_edit_changes_are_found() -> None:
    right = "def f():\n    return 1\n\n\nclass A:\n    def g(self):\n        return 2\n"
    wrong = {
        right.replace("return 2", "return 3"): {"A.g"},
        right.replace("return 1", "pass\n    return 1"): {"f"},
        right.replace("return", "return 1 +"): {"f", "A.g"},
        right + "x = 1\n": set(),
    }
    for source, names in wrong.items():
        assert edited_functions(TracedFile(source, []), TracedFile(right, [])) == names
