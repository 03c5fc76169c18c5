"""`regard evaluate` and `regard compare`: figures equal those of plain loops and other libraries."""

import gzip
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import sacrebleu
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.cli.compare import short_names
from regard.config import SpecialIds
from regard.data.corpus import Corpus
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.decoding.translator import Translation, Translator
from regard.evaluation import evaluate as run
from regard.evaluation import sliding_window as windows
from regard.evaluation.alignment import AttentionPair, alignment_scores, source_token_words, token_words, words_of_rows
from regard.evaluation.attention_alignment import ROW_TOKENS, score_alignment
from regard.evaluation.classification import class_scores
from regard.evaluation.comparison import ComparedSystem, SystemRun, compare
from regard.evaluation.result_json import to_json_value
from regard.evaluation.results import ClassificationResult, System, SystemOutputs
from regard.evaluation.sliding_window import choose_window, score_texts
from regard.evaluation.test_sets import Examples, GoldAnnotations, read_documents, read_examples, read_gold
from regard.petit import pairs, spans
from regard.petit.gold_files import find_gold_files
from regard.plots import score_tables as view
from regard.plots.comparison_tables import show_comparison
from tests.support.commands import command, refused, shown, write
from tests.support.real_data import REAL_DATA
from tests.support.text_models import TOKENIZER, random_model

STORIES = REAL_DATA / "weights/stories260K"
PETIT = list(pairs(24, seed=3))
FRENCH, ENGLISH = [pair.french for pair in PETIT], [pair.english for pair in PETIT]
STORY = (
    "Once upon a time, there was a little girl named Lily. She loved to play in the park.\n\nOne day, she saw a cat."
)


def examples(sources: list[str], *references: list[str], files: tuple[str, ...] = ("a.fr", "a.en")) -> Examples:
    return Examples(files, sources, list(references), list(range(1, len(sources) + 1)), len(sources))


def language_model(**changes: object) -> Model:
    """A language model: a decoder without a separator."""
    model = random_model(kind="decoder", **changes)
    return replace(model, special=SpecialIds(end=(TOKENIZER.end,)))


def classifier() -> Model:
    model = random_model(kind="encoder", classes=3)
    return replace(model, about={"classes": ["cold", "mild", "warm"]})


def saved(model: Model, folder: Path) -> str:
    model.network.float()
    model.save(folder)
    return str(folder)


# Windows: every token is scored once.


@given(st.integers(0, 60), st.integers(1, 12), st.data())
def test_windows_predict_every_id_except_the_first_once(count: int, window: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, window))
    found = windows.windows(count, window, stride)
    foretold = [i for each in found for i in range(each.first, each.stop + 1)]
    assert foretold == list(range(1, count))
    for number, each in enumerate(found):
        assert 0 < each.stop - each.begin <= window
        assert each.begin < each.first
        if number:  # every token after the first window has at least this much context
            assert each.first - each.begin > window - stride


def loss_by_loops(model: Model, texts: list[str], window: int, stride: int) -> tuple[float, int]:
    """Compute the loss token by token, each in its own pass over the context of its window."""
    nats, tokens = 0.0, 0
    for text in texts:
        ids = [TOKENIZER.end, *TOKENIZER.encode(text)]
        for position in range(1, len(ids)):
            late = max(0, -(-(position - window) // stride))  # the first window that contains it
            context = ids[late * stride : position]
            with torch.no_grad():
                logits = model.network(torch.tensor([context]))[0, -1]
            nats -= float(logits.log_softmax(-1)[ids[position]])
            tokens += 1
    return nats, tokens


@pytest.mark.slow
@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize(("window", "stride"), [(7, 3), (8, 8), (32, 16), (5, 1)])
def test_the_loss_equals_single_passes(positions: str, window: int, stride: int) -> None:
    model = language_model(positions=positions)
    texts = [" ".join(ENGLISH[:4]), "", ENGLISH[5], "é"]
    score = score_texts(model, texts, window, stride)
    nats, tokens = loss_by_loops(model, texts, window, stride)
    assert score.tokens == tokens == sum(len(TOKENIZER.encode(text)) for text in texts)
    assert score.bytes == sum(len(text.encode()) for text in texts)
    assert score.loss == pytest.approx(nats / tokens, rel=1e-5)
    assert score.bits_per_byte == pytest.approx(nats / math.log(2) / score.bytes, rel=1e-5)
    assert score.perplexity == pytest.approx(math.exp(nats / tokens), rel=1e-5)


def test_more_context_changes_the_loss() -> None:
    model, text = language_model(), " ".join(ENGLISH[:6])
    losses = {score_texts(model, [text], window, stride).loss for window, stride in ((4, 4), (4, 1), (16, 8))}
    assert len(losses) == 3


def test_short_texts_match_model_score() -> None:
    """`Model.score` skips the first token; here it follows </s>."""
    model = language_model()
    framed = replace(model, tokenizer=TOKENIZER.with_template(before=[TOKENIZER.end]))
    texts = [text for text in ENGLISH if len(TOKENIZER.encode(text)) < 30][:5]
    nats = score_texts(model, texts, 32, 16)
    assert nats.loss * nats.tokens == pytest.approx(-sum(framed.score(texts)), rel=1e-5)


def test_without_a_start_the_first_token_and_its_bytes_do_not_count() -> None:
    model = replace(language_model(), special=SpecialIds())
    text = ENGLISH[0]
    score = score_texts(model, [text], 32, 16)
    ids = TOKENIZER.encode(text)
    assert (score.tokens, score.bytes) == (len(ids) - 1, len(text) - len(TOKENIZER.decode(ids[:1])))
    assert -score.loss * score.tokens == pytest.approx(model.score([text])[0], rel=1e-5)
    result = run.evaluate_language("m", model, [text])
    assert result.starts_with is None


def test_ids_before_a_text_are_not_predicted() -> None:
    model = language_model()
    two = replace(model, tokenizer=TOKENIZER.with_template(before=[TOKENIZER.end, TOKENIZER.separator]))
    score = score_texts(two, [ENGLISH[0]], 32, 16)
    assert score.tokens == len(TOKENIZER.encode(ENGLISH[0]))
    assert -score.loss * score.tokens == pytest.approx(two.score([ENGLISH[0]])[0], rel=1e-5)


def test_windows_have_defaults_and_limits() -> None:
    model = language_model(positions="learned")
    assert choose_window(model, None, None) == (32, 16)
    assert choose_window(model, 8, None) == (8, 4)
    for given_, message in (
        ((33, None), "context=33 is more than the 32 positions"),
        ((8, 9), "stride=9 is more than context=8"),
        ((0, None), "context=0 is too small"),
        ((8, 0), "stride=0 is too small"),
        ((8.5, None), "context=8.5 has type float: expected int or none"),
        ((8, "4"), "stride='4' has type str: expected int or none"),
    ):
        with pytest.raises(ValueError, match=message):
            choose_window(model, *given_)


@pytest.mark.slow
@pytest.mark.skipif(not STORIES.is_dir(), reason="stories260K is not there (REGARD_REAL_DATA)")
def test_the_loss_equals_that_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(STORIES).eval()
    ids = torch.tensor([transformers.AutoTokenizer.from_pretrained(STORIES)(STORY).input_ids])
    with torch.no_grad():
        wanted = float(theirs(ids, labels=ids).loss)
    model = regard.load(STORIES)
    result = run.evaluate_language("stories", model, [STORY])
    assert (result.starts_with, result.context, result.stride) == ("<s>", 512, 256)
    assert result.score.tokens == ids.shape[1] - 1
    assert result.score.loss == pytest.approx(wanted, rel=1e-5)
    # Windows, too: one pass of theirs per window, with labels for the new tokens only.
    short, begin, nats = 16, 0, 0.0
    for stop in range(short, ids.shape[1] + 8, 8):
        stop, first = min(stop, ids.shape[1] - 1), 1 if begin == 0 else begin + 9
        labels = ids[0, begin : stop + 1].clone()
        labels[: first - begin] = -100
        with torch.no_grad():
            logits = theirs(ids[:, begin:stop]).logits[0]
        nats += float(F.cross_entropy(logits, labels[1:], reduction="sum"))
        begin += 8
        if stop == ids.shape[1] - 1:
            break
    assert score_texts(model, [STORY], short, 8).loss * (ids.shape[1] - 1) == pytest.approx(nats, rel=1e-4)


# Test sets.


def test_documents_are_split_as_in_training(tmp_path: Path) -> None:
    corpus = Corpus((write(tmp_path, "text", ["a b", "c", "", "", "d"]),))
    assert read_documents(corpus, "file") == ["a b\nc\n\n\nd\n"]
    assert read_documents(corpus, "blank-line") == ["a b\nc\n", "d\n"]
    assert read_documents(corpus, "line") == ["a b", "c", "d"]
    assert read_documents(corpus, "line", limit=2) == ["a b", "c"]
    with pytest.raises(ValueError, match="documents=lines is not a valid choice"):
        read_documents(corpus, "lines")


def test_files_of_unequal_length_are_counted(tmp_path: Path) -> None:
    files = (write(tmp_path, "a.fr", ["a", "b", "c"]), write(tmp_path, "a.en", ["a"]))
    for skip_bad in (False, True):
        with pytest.raises(
            ValueError, match=r"a\.fr has 3 lines and .*a\.en has 1: both must have the same number of lines"
        ):
            read_examples(Corpus(files), skip_bad=skip_bad)


def test_skipped_lines_do_not_shift_the_others(tmp_path: Path) -> None:
    files = (write(tmp_path, "a.fr", ["a", "", "c", "d"]), write(tmp_path, "a.en", ["A", "B", "C", "D"]))
    with pytest.raises(ValueError, match=r"a\.fr:2: empty side"):
        read_examples(Corpus(files))
    found = read_examples(Corpus(files), limit=2, skip_bad=True)
    assert (found.sources, found.references, found.lines, found.total) == (["a", "c"], [["A", "C"]], [1, 3], 4)
    assert found.select([10, 20, 30, 40], "x") == [10, 30]  # one line for each line of the file
    assert found.select([10, 20], "x") == [10, 20]  # or for each row
    with pytest.raises(ValueError, match=r"a\.fr has 4 lines and x has 3"):
        found.select([1, 2, 3], "x")


def test_gold_alignments_are_found_next_to_petits_files(tmp_path: Path) -> None:
    for suffix, lines in (("fr", ["a b"]), ("en", ["a b"]), ("align", ["0-0 1-1"]), ("tags", ["negation"])):
        write(tmp_path, f"test.{suffix}", lines)
    french, english = str(tmp_path / "test.fr"), str(tmp_path / "test.en")
    gold = read_gold(examples(["a b"], ["a b"]), *find_gold_files((french, english)))
    assert (gold.tags, gold.links) == ([["negation"]], [frozenset({(0, 0), (1, 1)})])
    assert find_gold_files((english, french)) == (None, None)
    only = read_gold(examples(["a b"], ["a b"]), tmp_path / "test.tags", None)
    assert (only.tags, only.links) == ([["negation"]], None)
    (tmp_path / "test.align").unlink()
    assert find_gold_files((french, english)) == (None, None)
    with pytest.raises(ValueError, match="nowhere does not exist"):
        read_gold(examples(["a b"], ["a b"]), tmp_path / "nowhere", None)


# Translators.


def test_figures_equal_sacrebleus() -> None:
    outputs = [*ENGLISH[:20], *FRENCH[20:]]
    result = run.evaluate_translation(SystemOutputs(System("x"), outputs), examples(FRENCH, ENGLISH))
    assert result.scores.bleu.value == sacrebleu.corpus_bleu(outputs, [ENGLISH]).score
    assert result.scores.chrf.value == sacrebleu.corpus_chrf(outputs, [ENGLISH], word_order=2).score
    assert result.suspicious_counts["copied"] == sum(each.kind == "copied" for each in result.suspicious) > 0
    assert all(
        each.source == each.output == FRENCH[each.line - 1] for each in result.suspicious if each.kind == "copied"
    )
    assert (result.tag_accuracy, result.alignment) == (None, None)


def test_two_references_are_better_than_one() -> None:
    system = SystemOutputs(System("x"), ENGLISH)
    one = run.evaluate_translation(system, examples(FRENCH, FRENCH))
    both = run.evaluate_translation(system, examples(FRENCH, FRENCH, ENGLISH))
    assert one.scores.bleu.value < 50 < both.scores.bleu.value == pytest.approx(100)
    assert "nrefs:2" in both.scores.bleu.signature


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder"])
def test_evaluation_translates_like_the_model(kind: str) -> None:
    model = random_model(kind=kind)
    seen: list[int] = []
    options = Decoding(beam=2, max_tokens=6)
    found = run.translate_examples("m", model, examples(FRENCH[:5], ENGLISH[:5]), options, progress=seen.append)
    wanted = [re.sub(r"[\r\n\0]+", " ", text) for text in model.translate(FRENCH[:5], beam=2, max_tokens=6)]
    assert found.outputs == wanted
    assert seen[-1] == 5
    assert found.system.parameters == sum(each.numel() for each in model.network.parameters())
    assert found.system.decoding == {"beam": 2, "length_penalty": 0.6, "precision": "float32"}
    assert found.system.speed is not None
    assert found.system.speed.seconds > 0


def test_lines_stay_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model()
    translation = Translation("a\r\nb\0c", 0.0, 0.0, True)
    monkeypatch.setattr(Translator, "translate_all", lambda *_: [[translation]])
    assert run.translate_examples("m", model, examples(["x"], ["y"]), Decoding()).outputs == ["a b c"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [random_model(), random_model(kind="decoder"), random_model(kind="decoder", prefix=True)],
    ids=["encoder-decoder", "decoder", "decoder with a prefix"],
)
def test_attention_to_the_source_equals_attend(model: Model) -> None:
    """In batches of padded pairs the weights, and so the error rates, equal those of single pairs."""
    tokenizer, links = model.tokenizer or TOKENIZER, [frozenset(pair.alignment) for pair in PETIT]
    found = score_alignment(model, examples(FRENCH, ENGLISH), GoldAnnotations(links=links, word_spans=spans))
    assert found is not None
    for row_token in ROW_TOKENS:
        single_pairs = []
        for french, english, link in zip(FRENCH, ENGLISH, links, strict=True):
            words, seen = source_token_words(tokenizer, french, spans), model.attend(french, english).weights
            weights = seen["cross"] if "cross" in seen else seen["decoder"][:, :, len(words) :, : len(words)]
            single_pairs.append(
                AttentionPair(
                    weights.numpy(), words_of_rows(token_words(tokenizer, english, spans), row_token), words, link
                )
            )
        assert found[row_token] == alignment_scores(single_pairs)
        assert found[row_token].sentences == len(PETIT)
    assert found["writing"] != found["reading"]


@pytest.mark.slow
def test_a_decoder_is_evaluated_on_all_sentences() -> None:
    many = [frozenset(pair.alignment) for pair in PETIT] * 10
    found = score_alignment(
        random_model(kind="decoder"), examples(FRENCH * 10, ENGLISH * 10), GoldAnnotations(links=many, word_spans=spans)
    )
    assert found is not None
    assert [each.sentences for each in found.values()] == [len(many)] * 2


def test_a_language_model_has_no_attention_to_a_source() -> None:
    links = [frozenset(pair.alignment) for pair in PETIT]
    assert score_alignment(language_model(), examples(FRENCH, ENGLISH), GoldAnnotations(links=links)) is None


def test_the_metrics_depend_on_the_model() -> None:
    assert run.task_of(random_model()) == "translation"
    assert run.task_of(random_model(kind="decoder")) == "translation"
    assert run.task_of(language_model()) == "language"
    assert run.task_of(classifier()) == "classes"
    with pytest.raises(ValueError, match="cannot be evaluated: it does not translate, continue or classify text"):
        run.task_of(random_model(kind="encoder"))
    with pytest.raises(ValueError, match="m does not translate: it is a language model"):
        run.translate_examples("m", language_model(), examples(["a"], ["b"]), Decoding())
    with pytest.raises(ValueError, match="m is not a language model: it translates"):
        run.evaluate_language("m", random_model(), ["a"])


# The public function.


@pytest.mark.slow
def test_evaluate_returns_sacrebleus_figures() -> None:
    model = random_model()
    done: list[int] = []
    scores = regard.evaluate(model, FRENCH, ENGLISH, beam=2, max_tokens=6, progress=done.append)
    outputs = model.translate(FRENCH, beam=2, max_tokens=6)
    assert scores.bleu.value == sacrebleu.corpus_bleu(outputs, [ENGLISH]).score
    assert scores.chrf.value == sacrebleu.corpus_chrf(outputs, [ENGLISH], word_order=2).score
    assert scores.bleu_lowercase.value == sacrebleu.corpus_bleu(outputs, [ENGLISH], lowercase=True).score
    low, high = scores.chrf.interval
    assert low <= scores.chrf.value <= high
    assert scores.bleu.signature.startswith("nrefs:1|")
    assert done[-1] == len(FRENCH)
    both = regard.evaluate(model, FRENCH, [ENGLISH, outputs], beam=2, max_tokens=6)
    assert both.bleu.signature.startswith("nrefs:2|")
    assert both.bleu.value == pytest.approx(100)


@pytest.mark.slow
def test_evaluate_scores_language_models_and_classifiers() -> None:
    model = language_model()
    assert regard.evaluate(model, ENGLISH, context=8, stride=4) == score_texts(model, ENGLISH, 8, 4)
    labels = ["cold", *(name for name, _ in classifier().classify(FRENCH[1:]))]
    assert regard.evaluate(classifier(), FRENCH, labels=labels).accuracy.correct >= len(FRENCH) - 1
    for arguments, message in (
        ((model, FRENCH, ENGLISH), "translate"),
        ((random_model(), FRENCH), "requires a language model"),
        ((random_model(), FRENCH, ENGLISH[1:]), "24 outputs but 23 references"),
        ((random_model(), "Le chat dort.", ["The cat sleeps."]), "sources must be a list of strings"),
    ):
        with pytest.raises(regard.RegardError, match=message):
            regard.evaluate(*arguments)
    with pytest.raises(regard.RegardError, match=r"labels\[1\]: unknown class 'wram': did you mean 'warm'\?"):
        regard.evaluate(classifier(), FRENCH[:2], labels=["cold", "wram"])
    with pytest.raises(regard.RegardError, match="sources must be a list of strings, not int: 5"):
        regard.evaluate(classifier(), 5, labels=["cold"])  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="both references and labels"):
        regard.evaluate(random_model(), FRENCH, ENGLISH, labels=ENGLISH)  # type: ignore[call-overload]


# Classifiers.


def test_a_classifier() -> None:
    model = classifier()
    answers = [name for name, _ in model.classify(FRENCH)]
    truth = ["cold", *answers[1:-1], "warm"]
    result = run.evaluate_classification("m", model, model.classify, examples(FRENCH, truth))
    right = sum(a == b for a, b in zip(answers, truth, strict=True))
    assert (result.scores.accuracy.correct, result.scores.accuracy.total) == (right, len(FRENCH))
    assert sum(map(sum, result.scores.confusion)) == len(FRENCH)
    with pytest.raises(ValueError, match=r"a\.en:2: unknown class 'wram': did you mean 'warm'\?"):
        run.evaluate_classification("m", model, model.classify, examples(FRENCH[:2], ["cold", "wram"]))


# Comparing systems.


def single_run(name: str, outputs: list[str]) -> ComparedSystem:
    """Return a system of one run."""
    return ComparedSystem(name, (SystemRun(SystemOutputs(System(name), outputs)),))


@pytest.mark.slow
def test_several_systems_are_compared() -> None:
    better, worse = ENGLISH, [*ENGLISH[:18], "Yes.", *FRENCH[19:]]
    systems = [single_run("better", better), single_run("worse", worse)]
    result = compare(systems, examples(FRENCH, ENGLISH), sentences=3)
    for comparison, score in zip(
        result.comparisons,
        (sacrebleu.corpus_bleu(worse, [ENGLISH]), sacrebleu.corpus_chrf(worse, [ENGLISH], word_order=2)),
        strict=True,
    ):
        first, second = comparison.systems
        assert second.score.value == score.score
        assert second.difference == pytest.approx(score.score - 100)
        assert first.p_value is None
        assert second.p_value is not None
        assert second.p_value < 0.1
    assert result.identical == sum(a == b for a, b in zip(better, worse, strict=True))
    assert [each.chrf[0] for each in result.differing] == pytest.approx([100.0] * 3)
    assert [each.chrf[1] for each in result.differing] == sorted(each.chrf[1] for each in result.differing)
    assert all(each.outputs == (ENGLISH[each.line - 1], worse[each.line - 1]) for each in result.differing)
    assert result.suspicious_counts[1]["copied"] > 0
    with pytest.raises(ValueError, match="better was given twice"):
        compare([systems[0], systems[0]], examples(FRENCH, ENGLISH))


@pytest.mark.slow
def test_a_system_compared_with_itself() -> None:
    systems = [single_run(name, ENGLISH) for name in "ab"]
    result = compare(systems, examples(FRENCH, ENGLISH))
    assert [each.systems[1].p_value for each in result.comparisons] == [1.0, 1.0]
    assert (result.differing, result.identical) == ((), len(ENGLISH))
    assert "All systems give the same output for every sentence." in shown(show_comparison, result)


@pytest.mark.slow
def test_warnings_name_their_system() -> None:
    tokenised = [text.replace(".", " .").replace(",", " ,") for text in ENGLISH]
    systems = [single_run("a", ENGLISH), single_run("b", tokenised)]
    warnings = compare(systems, examples(FRENCH, ENGLISH)).note.warnings
    assert [warning for warning in warnings if "look tokenised" in warning] == [
        "b: The outputs look tokenised: score detokenised text, or the scores are not comparable."
    ]
    assert sum("too noisy" in warning for warning in warnings) == 1


def test_names_are_shortened_but_distinct() -> None:
    assert short_names(["runs/a", "runs/b"]) == ["a", "b"]
    assert short_names(["x/best", "y/best", "out.en"]) == ["x/best", "y/best", "out.en"]
    assert short_names(["a", "a"]) == ["a", "a"]


# Tables.


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 120])
def test_a_table_of_a_translator(width: int) -> None:
    outputs = [*ENGLISH[:20], "[bold]x[/]", "", *FRENCH[22:]]
    gold = GoldAnnotations([list(pair.tags) for pair in PETIT], [frozenset(pair.alignment) for pair in PETIT])
    system = SystemOutputs(System("m"), outputs)
    result = run.evaluate_translation(system, examples(FRENCH, ENGLISH), gold, random_model())
    text = shown(view.show_translation, result, width)
    assert f"BLEU: {result.scores.bleu.signature}" in text.replace("\n", "")
    assert "[bold]x[/]" in text
    assert "(empty)" in text
    assert f"Exact match: {20 / 24:.1%}" in text
    assert "best head" in text
    assert "not a known test set" in text
    for name in result.tag_accuracy.by_tag if result.tag_accuracy else ():
        row = next(line for line in text.splitlines() if line.startswith(f"{name} "))
        assert re.search(r"\d+ +\d+ +[\d.]+% +[\d.]+% – [\d.]+%", row), "a row is broken"
    assert max(len(line) for line in text.splitlines() if "nrefs:" not in line) <= width  # signatures are not wrapped


def test_a_table_of_a_language_model() -> None:
    result = run.evaluate_language("m", language_model(), ENGLISH, ("text",), "line", 8, 4)
    text = " ".join(shown(view.show_language, result).split())
    assert f"loss {result.score.loss:.4f} nats per token" in text
    assert f"bits per byte {result.score.bits_per_byte:.4f}" in text
    assert "It starts with </s>. It is read in windows of 8 tokens, 4 tokens apart." in text
    assert "at least 4 tokens of context" in text


@pytest.mark.parametrize("count", [3, 12])
def test_a_table_of_a_classifier(count: int) -> None:
    names = [f"class {i:02}" for i in range(count)]
    answers = [names[0], *names[:-1]]
    scores = class_scores(names, answers)
    text = shown(view.show_classification, ClassificationResult(System("m"), ("a", "b"), scores))
    assert "accuracy" in text
    assert f"1 of {count}" in text
    assert ("label ↓" in text) == (count == 3)
    assert ("predicted as" in text) == (count == 12)


# The commands.


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write models and a test set of Petit."""
    folder = tmp_path_factory.mktemp("evaluate")
    saved(random_model(), folder / "pair")
    saved(random_model(kind="decoder"), folder / "both")
    saved(language_model(), folder / "language")
    saved(classifier(), folder / "classes")
    sides = {
        "fr": FRENCH,
        "en": ENGLISH,
        "tags": [" ".join(pair.tags) for pair in PETIT],
        "align": [" ".join(f"{i}-{j}" for i, j in pair.alignment) for pair in PETIT],
    }
    for suffix, lines in sides.items():
        write(folder, f"test.{suffix}", lines)
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_evaluate_a_translator(inputs: Path, tmp_path: Path) -> None:
    out, outputs = tmp_path / "scores.json", tmp_path / "out.en"
    arguments = (
        "evaluate",
        f"{inputs}/pair",
        f"{inputs}/test.fr",
        f"{inputs}/test.en",
        "--beam",
        "2",
        "--limit",
        "8",
    )
    done = command(*arguments, "--out", str(out), "--outputs", str(outputs))
    assert done.exit_code == 0, done.output
    assert "best head" in done.stdout
    assert "\x1b[" not in done.stdout
    told = json.loads(out.read_text())
    written = outputs.read_text().split("\n")[:-1]
    wanted = regard.load(inputs / "pair").translate(FRENCH[:8], beam=2)
    assert written == [re.sub(r"[\r\n\0]+", " ", text) for text in wanted]
    assert told["scores"]["bleu"]["score"] == sacrebleu.corpus_bleu(written, [ENGLISH[:8]]).score
    assert told["scores"]["chrf"]["score"] == sacrebleu.corpus_chrf(written, [ENGLISH[:8]], word_order=2).score
    assert (told["kind"], told["system"]["decoding"]["beam"], told["petit"]["overall"]["total"]) == (
        "translation",
        2,
        8,
    )
    assert set(told["alignment"]) == {"writing", "reading"}
    assert told["scores"]["note"]["warnings"][0].startswith("Only 8 of 24 lines were scored")
    # Its outputs can be used as a system, with the same figures.
    again = command(
        "evaluate",
        str(outputs),
        f"{inputs}/test.fr",
        f"{inputs}/test.en",
        "--limit",
        "8",
        "--out",
        str(out),
    )
    assert again.exit_code == 0, again.output
    same = json.loads(out.read_text())
    assert [same[key] for key in ("scores", "suspects", "suspected", "petit")] == [
        told[key] for key in ("scores", "suspects", "suspected", "petit")
    ]
    assert (same["alignment"], same["system"]["speed"]) == (None, None)


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("name", "attention", "heading"),
    [
        ("pair", "cross", "of cross-attention against"),
        ("both", "decoder", "of self-attention from target to source against"),
    ],
)
def test_evaluate_reports_the_alignment_of_a_translator(
    inputs: Path, tmp_path: Path, name: str, attention: str, heading: str
) -> None:
    out = tmp_path / "scores.json"
    arguments = (
        f"{inputs}/{name}",
        f"{inputs}/test.fr",
        f"{inputs}/test.en",
        "--limit",
        "3",
        "--out",
        str(out),
    )
    done = command("evaluate", *arguments, "--beam", "1")
    assert done.exit_code == 0, done.output
    words = " ".join(done.stdout.split())
    assert f"Alignment error rate {heading} the gold links" in words
    assert words.count("cross-attention") == (attention == "cross")
    told = json.loads(out.read_text())
    assert told["attention"] == attention
    assert told["alignment"]["writing"]["sentences"] == 3


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_any_format_gives_the_same_figures(inputs: Path, tmp_path: Path) -> None:
    hypotheses = write(tmp_path, "out", [*ENGLISH[:20], *FRENCH[20:]])
    rows = list(zip(ENGLISH, FRENCH, strict=True))
    packed = tmp_path / "a.tsv.gz"
    packed.write_bytes(gzip.compress("".join(f"{en}\t{fr}\n" for en, fr in rows).encode()))
    lines = write(tmp_path, "a.jsonl", [json.dumps({"fr": fr, "en": en}) for en, fr in rows])
    found = []
    for arguments in (
        (f"{inputs}/test.fr", f"{inputs}/test.en"),
        (str(packed), "--columns", "2,1"),
        (lines, "--keys", "fr,en"),
    ):
        done = command("evaluate", hypotheses, *arguments, "--out", str(tmp_path / "out.json"))
        assert done.exit_code == 0, done.output
        found.append(json.loads((tmp_path / "out.json").read_text())["scores"]["bleu"])
    assert found[0] == found[1] == found[2]
    several = command(
        "evaluate", hypotheses, f"{inputs}/test.fr", f"{inputs}/test.en", "--reference", hypotheses,
        "--out", str(tmp_path / "out.json"),
    )  # fmt: skip
    assert several.exit_code == 0, several.output
    assert json.loads((tmp_path / "out.json").read_text())["scores"]["bleu"]["score"] == pytest.approx(100)


@pytest.mark.usefixtures("without_type_checks")
def test_evaluate_a_language_model(inputs: Path, tmp_path: Path) -> None:
    out = tmp_path / "scores.json"
    done = command(
        "evaluate",
        f"{inputs}/language",
        f"{inputs}/test.en",
        "--documents",
        "line",
        "--out",
        str(out),
    )
    assert done.exit_code == 0, done.output
    told = json.loads(out.read_text())
    wanted = score_texts(regard.load(inputs / "language"), ENGLISH, 32, 16)
    assert told["score"] == pytest.approx(to_json_value(wanted), rel=1e-6)
    assert (told["kind"], told["texts"], told["context"], told["stride"]) == ("language", len(ENGLISH), 32, 16)
    assert f"{wanted.loss:.4f}" in done.stdout


@pytest.mark.usefixtures("without_type_checks")
def test_evaluate_a_classifier(inputs: Path, tmp_path: Path) -> None:
    answers = [name for name, _ in regard.load(inputs / "classes").classify(FRENCH)]
    labels = write(tmp_path, "labels", answers)
    table = write(tmp_path, "a.tsv", [f"{label}\t{text}" for label, text in zip(answers, FRENCH, strict=True)])
    for files in ((f"{inputs}/test.fr", labels), (table, "--columns", "2,1")):
        done = command("evaluate", f"{inputs}/classes", *files, "--out", str(tmp_path / "out.json"))
        assert done.exit_code == 0, done.output
        assert "100.0%" in done.stdout
        told = json.loads((tmp_path / "out.json").read_text())
        assert (told["kind"], told["scores"]["accuracy"]["value"]) == ("classes", 1.0)


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_compare_models_and_files(inputs: Path, tmp_path: Path) -> None:
    theirs, out = write(tmp_path, "theirs.en", ENGLISH), tmp_path / "out.json"
    arguments = (
        "--source",
        f"{inputs}/test.fr",
        "--reference",
        f"{inputs}/test.en",
        "--beam",
        "1",
        "--limit",
        "6",
    )
    done = command(
        "compare",
        f"{inputs}/pair",
        f"{inputs}/both",
        theirs,
        *arguments,
        "--sentences",
        "2",
        "--out",
        str(out),
    )
    assert done.exit_code == 0, done.output
    told = json.loads(out.read_text())
    assert [system["name"] for system in told["systems"]] == ["pair", "both", "theirs.en"]
    assert told["systems"][2]["parameters"] is None
    assert told["comparisons"][0]["systems"][2]["score"]["score"] == pytest.approx(100)
    assert len(told["apart"]) == 2
    assert "Largest differences" in done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_user_errors_are_reported(inputs: Path, tmp_path: Path) -> None:
    pair, language, french, english = (f"{inputs}/{name}" for name in ("pair", "language", "test.fr", "test.en"))
    two, empty = write(tmp_path, "two", ["a", "b"]), write(tmp_path, "empty", [])
    count = len(FRENCH)
    assert f"test.fr has {count} lines and {two} has 2" in refused("evaluate", pair, french, two)
    assert f"test.fr has {count} lines and {two} has 2" in refused("evaluate", two, french, english)
    assert f"test.fr has {count} lines and {two} has 2" in refused(
        "compare", two, pair, "--source", french, "--reference", english
    )
    assert f"{empty} is empty" in refused("evaluate", pair, empty, empty)
    assert f"{empty} is empty" in refused("evaluate", language, empty)
    assert "no model at nowhere" in refused("evaluate", "nowhere", french, english)
    assert "nowhere: no such file" in refused("evaluate", pair, french, "nowhere")
    assert "did you mean 'cuda'" in refused("evaluate", pair, french, english, "--device", "cdua")
    assert "a source and a reference are required" in refused("evaluate", pair, french)
    assert "a text and its class are required" in refused("evaluate", f"{inputs}/classes", french)
    assert "needs one text, but 2 sides were given" in refused("evaluate", language, french, english)
    assert "--tags is for translators" in refused("evaluate", language, french, "--tags", f"{inputs}/test.tags")
    assert "--context is for language models" in refused("evaluate", pair, french, english, "--context", "9")
    assert "has no attention to its source" in refused(
        "evaluate", english, french, english, "--align", f"{inputs}/test.align"
    )
    assert "documents=lin is not a valid choice" in refused("evaluate", language, french, "--documents", "lin")
    assert "beam=0 is too small" in refused("evaluate", pair, french, english, "--beam", "0")
    assert "does not exist" in refused("evaluate", pair, french, english, "--out", f"{tmp_path}/none/x.json")
    assert "is a folder: pass a file" in refused("evaluate", pair, french, english, "--outputs", str(tmp_path))
    assert "is already a file of outputs" in refused("evaluate", english, french, english, "--outputs", f"{tmp_path}/x")
    assert "name the folder that holds it" in refused("evaluate", f"{pair}/model.safetensors", french, english)
    assert "name at least two" in refused("compare", pair, "--source", french, "--reference", english)
    assert "--source and --reference are required" in refused("compare", pair, english, "--source", french)
    assert "does not translate" in refused("compare", english, language, "--source", french, "--reference", english)


@pytest.mark.parametrize("name", ["evaluate", "compare"])
def test_help_has_an_example(name: str) -> None:
    assert f"Example: regard {name}" in re.sub(r"\s+", " ", command(name, "--help").stdout)


@pytest.mark.slow
def test_a_process(inputs: Path) -> None:
    arguments = [
        sys.executable,
        "-m",
        "regard",
        "evaluate",
        f"{inputs}/test.en",
        f"{inputs}/test.fr",
        f"{inputs}/test.en",
    ]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Exact match: 100.0%" in done.stdout
    assert refused(*arguments[3:-1], "nowhere").startswith("nowhere: no such file")
