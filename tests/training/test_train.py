"""Complete small runs: they learn, keep the model they report, and stop for the right reasons."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest
import sacrebleu
import torch
from safetensors.torch import load_file
from torch import Tensor

import regard
from regard.data.batches import Batch
from regard.data.corpus import Corpus
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.evaluation.classification import ClassScores
from regard.evaluation.metrics import TranslationScores
from regard.petit import corpus_files as files
from regard.training import best_model, run_setup
from regard.training import train as module
from regard.training.events import Ended, Event, Noted, Saved, Started, Stepped, Ticked, Validated
from regard.training.final_scores import final_scores
from regard.training.metrics_log import read_metrics
from regard.training.objective import Objective
from regard.training.recipe import DataSection, Recipe
from regard.training.schedule import learning_rate
from regard.training.train import TrainingOutcome, train_recipe, update_weights
from regard.training.training_setup import TrainingSetup, cache_folder, prepare_training
from regard.training.validation import ValidationResult, validate, validation_loss
from tests.support.recipes import PETIT_PAIRS, TASK_MODELS, small_recipe

pytestmark = pytest.mark.slow

DEV = 40
E = TypeVar("E", bound=Event)


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of runs that several tests use, with a small Petit prepared once."""
    place = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "HELD_OUT", DEV)
        patch.setenv("REGARD_CACHE", str(place / "cache"))
        finished.cache_clear()
        yield place


def run(recipe: Recipe, out: Path, scored: bool = False) -> tuple[TrainingOutcome, list[Event]]:
    """Train; the scores of the finished model take longer than everything else and are skipped unless requested."""
    events: list[Event] = []
    with pytest.MonkeyPatch.context() as patch:
        if not scored:
            patch.setattr(module, "score_best_model", lambda *_: [])
        outcome = train_recipe(recipe, out, watchers=[events.append])
    ticks = [event.step for event in events if isinstance(event, Ticked)]
    assert ticks == list(range(1, outcome.ended.step + 1))  # one per step, for display only
    return outcome, [event for event in events if not isinstance(event, Ticked)]


@lru_cache
def finished(which: str, folder: Path) -> tuple[TrainingOutcome, list[Event], Path]:
    out = folder / which
    return *run(small_recipe(which), out, scored=TASK_MODELS[which]["task"] != "translation"), out


def events_of(kind: type[E], events: list[Event]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def weights_of(place: Path) -> dict[str, Tensor]:
    return load_file(place / "model.safetensors")


def same_tensors(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# Learning


@pytest.mark.parametrize("which", TASK_MODELS)
def test_the_loss_falls(which: str, folder: Path) -> None:
    outcome, events, _ = finished(which, folder)
    first, *_, last = (event.loss for event in events_of(Stepped, events))
    assert last < first - (0.3 if which == "classification" else 0.7)  # most of the some 40 classes are rare
    before, after = (event.loss for event in events_of(Validated, events))
    assert after < before - {"classification": 0.02, "masked": 0.05}.get(which, 0.1)
    assert outcome.ended.reason == "steps"
    assert (outcome.ended.step, outcome.ended.best_step, outcome.ended.best_loss) == (60, 60, after)
    assert (outcome.signal, outcome.first, outcome.ended.skipped) == (None, True, 0)


@pytest.mark.parametrize("which", TASK_MODELS)
def test_events_are_in_order_and_logged(which: str, folder: Path) -> None:
    outcome, events, out = finished(which, folder)
    told = [(type(event), event.step) for event in events]
    assert told[-1] == (Ended, 60)
    assert [each for each in told if each[0] != Noted] == [
        (Started, 0),
        (Stepped, 10),
        (Stepped, 20),
        (Stepped, 30),
        (Validated, 30),
        (Stepped, 40),
        (Stepped, 50),
        (Stepped, 60),
        (Validated, 60),
        (Saved, 60),
        (Ended, 60),
    ]
    assert read_metrics(out) == events
    assert events[-1] == outcome.ended
    started = events[0]
    assert isinstance(started, Started)
    assert started.task == TASK_MODELS[which]["task"]
    assert started.examples + started.left_out + sum(started.problems.values()) == PETIT_PAIRS
    assert started.parameters == sum(x.numel() for x in weights_of(out).values())
    steps = events_of(Stepped, events)
    settings = small_recipe(which).train
    assert [event.lr for event in steps] == [learning_rate(event.step, settings, 32) for event in steps]
    for earlier, later in pairwise(steps):
        assert earlier.tokens < later.tokens
        assert earlier.epoch < later.epoch
        assert earlier.seconds < later.seconds
    assert steps[-1].tokens == outcome.ended.tokens
    assert all(event.utilisation is None and event.tokens_per_second > 0 and event.gradient > 0 for event in steps)


@pytest.mark.parametrize("which", TASK_MODELS)
def test_the_saved_model_records_its_origin(which: str, folder: Path) -> None:
    _, events, out = finished(which, folder)
    model = Model.from_folder(out)
    about, last = model.about, events_of(Validated, events)[-1]
    assert about["name"] == f"a {which}"
    assert about["recipe"]["train"]["steps"] == 60
    assert about["scores"]["loss"] == pytest.approx(last.loss)
    assert about["scores"]["step"] == 60
    assert (about.get("longest", 0) > 5) == (TASK_MODELS[which]["task"] == "translation")
    assert (len(about.get("classes", [])) > 5) == (which == "classification")
    if last.measure is not None:
        assert about["scores"][last.measure] == last.score
    assert (model.special.separator is None) == (which != "decoder")
    task = prepare_training(small_recipe(which), cache_folder(), packed=False)
    assert task.validation is not None
    assert validation_loss(model, task.validation) == pytest.approx(last.loss, abs=1e-5)


def test_a_language_model_continues_its_prompts(folder: Path) -> None:
    outcome, events, out = finished("language", folder)
    last = events_of(Validated, events)[-1]
    assert (last.score, last.measure, outcome.scores) == (None, None, [])
    assert len(last.samples) == 3
    m = regard.load(str(out))
    for sample in last.samples:
        assert sample.source
        assert sample.source + sample.output == m.generate(
            sample.source, max_tokens=100, beam=2
        )  # as set in the recipe


def test_a_run_is_reproducible(tmp_path: Path) -> None:
    """Including dropout; another seed gives another result."""
    found = []
    for number, seed in enumerate((0, 0, 1)):
        recipe = small_recipe("classification", steps=6, validate_every=6, log_every=2, seed=seed)
        recipe = replace(recipe, model={**recipe.model, "dropout": 0.3})
        _, events = run(recipe, tmp_path / str(number))
        found.append(([event.loss for event in events_of(Stepped, events)], weights_of(tmp_path / str(number))))
    assert found[0][0] == found[1][0]
    assert same_tensors(found[0][1], found[1][1])
    assert found[0][0] != found[2][0]


def test_accumulated_batches_are_one_step(tmp_path: Path) -> None:
    _, events = run(
        small_recipe("classification", steps=4, accumulate=3, validate_every=4, log_every=1), tmp_path / "a"
    )
    _, single = run(small_recipe("classification", steps=12, validate_every=12, log_every=1), tmp_path / "b")
    tokens = [event.tokens for event in events_of(Stepped, single)]
    assert [event.tokens for event in events_of(Stepped, events)] == tokens[2::3]
    assert [event.epoch for event in events_of(Stepped, events)] == [
        event.epoch for event in events_of(Stepped, single)
    ][2::3]


def test_dropout_is_only_used_in_training(tmp_path: Path) -> None:
    recipe = small_recipe("classification", steps=2, validate_every=2)
    recipe = replace(recipe, model={**recipe.model, "dropout": 0.5})
    _, events = run(recipe, tmp_path / "run")
    (validated,) = events_of(Validated, events)
    task = prepare_training(recipe, cache_folder(), packed=False)
    assert task.validation is not None
    assert validation_loss(Model.from_folder(tmp_path / "run"), task.validation) == pytest.approx(
        validated.loss, abs=1e-6
    )


def test_packed_batches_learn_too(tmp_path: Path) -> None:
    _, events = run(small_recipe(packed=True, steps=30, validate_every=30, validation_sentences=0), tmp_path / "run")
    first, *_, last = (event.loss for event in events_of(Stepped, events))
    assert last < first - 0.5


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_other_precisions_learn_and_keep_float32_weights(precision: str, tmp_path: Path) -> None:
    outcome, events = run(
        small_recipe(precision=precision, steps=24, validate_every=24, log_every=4, validation_sentences=0),
        tmp_path / "run",
    )
    first, *_, last = (event.loss for event in events_of(Stepped, events))
    assert last < first - 0.5
    assert {x.dtype for x in weights_of(tmp_path / "run").values()} == {torch.float32}
    assert any(not torch.equal(x, x.to(torch.bfloat16).float()) for x in weights_of(tmp_path / "run").values())
    assert outcome.ended.skipped < 10


# Starting from a model


def test_further_training_starts_from_the_model(folder: Path, tmp_path: Path) -> None:
    outcome, events, out = finished("encoder-decoder", folder)
    recipe = replace(
        small_recipe(steps=1, validate_every=1, lr=1e-12, validation_sentences=0),
        model={"start": str(out)},
        name="more",
    )
    _, further = run(recipe, tmp_path / "more")
    (validated,) = events_of(Validated, further)
    assert validated.loss == pytest.approx(outcome.ended.best_loss, abs=1e-5)
    model = Model.from_folder(tmp_path / "more")
    assert model.about["origin"] == f"fine-tuned from {out} (a encoder-decoder)"
    assert model.about["name"] == "more"
    run(replace(recipe, model={"start": str(tmp_path / "more")}, name="again"), tmp_path / "again")
    origin = Model.from_folder(tmp_path / "again").about["origin"]
    assert origin == f"fine-tuned from {tmp_path / 'more'}", "the folder already has the model's name"
    assert model.special == Model.from_folder(out).special
    stepped = events_of(Stepped, events)
    recipe = replace(recipe, train=replace(recipe.train, steps=20, validate_every=20, log_every=5, lr=5e-3))
    _, further = run(recipe, tmp_path / "still more")
    assert events_of(Stepped, further)[0].loss < stepped[1].loss
    assert events_of(Validated, further)[-1].loss < validated.loss


def test_a_classifier_can_start_from_a_language_model(folder: Path, tmp_path: Path) -> None:
    _, _, out = finished("language", folder)
    recipe = replace(small_recipe("classification", steps=20, validate_every=20), model={"start": str(out)})
    _, events = run(recipe, tmp_path / "run")
    first, last = (event.loss for event in events_of(Stepped, events))
    assert last < first
    model = Model.from_folder(tmp_path / "run")
    assert model.config.classes == len(model.about["classes"])


# Validation and the best model


def test_validation_bleu_equals_sacrebleu_on_greedy_translations(tmp_path: Path) -> None:
    """With a model that has learned enough for the score not to be 0."""
    outcome, events = run(
        small_recipe(steps=200, validate_every=200, validation_sentences=DEV, batch_tokens=1_000),
        tmp_path / "run",
        scored=True,
    )
    (validated,) = events_of(Validated, events)
    examples = prepare_training(small_recipe(), cache_folder(), packed=False).examples
    assert len(examples) == DEV
    sources, wanted = [source for source, _ in examples], [target for _, target in examples]
    m = regard.load(str(tmp_path / "run"))
    greedy = m.translate(sources, beam=1)
    assert validated.measure == "BLEU"
    assert validated.score == pytest.approx(sacrebleu.corpus_bleu(greedy, [wanted]).score, abs=1e-6)
    assert validated.score is not None
    assert validated.score > 1
    assert [(s.source, s.output, s.reference) for s in validated.samples] == list(
        zip(sources, greedy, wanted, strict=True)
    )[:3]
    (scores,) = outcome.scores
    assert isinstance(scores, TranslationScores)
    right = sacrebleu.corpus_bleu(m.translate(sources, beam=2), [wanted]).score
    assert scores.bleu.value == pytest.approx(right, abs=1e-6)
    assert scores.sentences == DEV
    task = prepare_training(small_recipe(), cache_folder(), packed=False)
    for count in (0, 1, 2, 12):
        found = validate(task, Model.from_folder(tmp_path / "run"), count, Decoding())
        assert len(found.samples) == 3
        if count == 0:
            assert found.score is None
        else:
            assert found.score == pytest.approx(sacrebleu.corpus_bleu(greedy[:count], [wanted[:count]]).score, abs=1e-6)


@pytest.mark.parametrize("sentences", [0, 5])
def test_accuracy_covers_all_examples(sentences: int, folder: Path) -> None:
    """`validation_sentences` applies to translations only."""
    outcome, events, out = finished("classification", folder)
    task = prepare_training(small_recipe("classification"), cache_folder(), packed=False)
    m = regard.load(str(out))
    said = [label for label, _ in m.classify([text for text, _ in task.examples])]
    right = sum(answer == label for answer, (_, label) in zip(said, task.examples, strict=True))
    found = validate(task, Model.from_folder(out), sentences, Decoding())
    assert found.measure == "accuracy"
    assert found.score == pytest.approx(100 * right / len(task.examples))
    assert events_of(Validated, events)[-1].score == found.score
    assert [sample.output for sample in found.samples] == said[:3]
    (scores,) = outcome.scores
    assert isinstance(scores, ClassScores)
    assert (scores.accuracy.correct, scores.accuracy.total) == (right, len(task.examples))


def test_validation_results_are_compared() -> None:
    def result(loss: float, score: float | None = None) -> ValidationResult:
        return ValidationResult(loss, score, None, ())

    nan = math.nan
    assert result(nan).better_than(None, "loss")
    assert result(2.0, 10.0).better_than(result(3.0, 20.0), "loss")
    assert not result(2.0, 10.0).better_than(result(3.0, 20.0), "score")
    assert result(4.0, 21.0).better_than(result(3.0, 20.0), "score")
    assert not result(3.0, 20.0).better_than(result(3.0, 20.0), "score")
    assert result(2.0, 100.0).better_than(result(3.0, 100.0), "score")
    assert not result(4.0, 100.0).better_than(result(3.0, 100.0), "score")
    assert result(4.0, 100.0).better_than(result(nan, 100.0), "score")
    assert not result(3.0).better_than(result(3.0), "loss")
    assert result(2.0).better_than(result(3.0), "score")
    assert not result(nan).better_than(result(3.0), "loss")
    assert result(3.0).better_than(result(nan), "loss")  # otherwise one bad validation would be the last one kept
    assert not result(nan).better_than(result(nan), "loss")


def script_validations(monkeypatch: pytest.MonkeyPatch, losses: list[float], scores: list[float] | None = None) -> None:
    """Replace the validations by these results."""
    nothing: list[float | None] = [None] * len(losses)
    script = iter(zip(losses, scores or nothing, strict=True))

    def instead(_task: TrainingSetup, _stored: Model, _sentences: int, _decode: Decoding) -> ValidationResult:
        loss, score = next(script)
        return ValidationResult(loss, score, None if score is None else "BLEU", ())

    monkeypatch.setattr(best_model, "validate", instead)


LOSSES, SCORES = [5.0, 3.0, 4.0, 3.5, 3.2], [1.0, 2.0, 9.0, 8.0, 3.0]


@pytest.mark.parametrize(("by", "step"), [("loss", 4), ("score", 6)])
def test_the_best_model_is_kept(by: str, step: int, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        script_validations(patch, LOSSES, SCORES)
        outcome, events = run(small_recipe("classification", best_by=by, steps=10, validate_every=2), out)
    assert [event.best for event in events_of(Validated, events)] == [True, True, by == "score", False, False]
    assert [event.waited for event in events_of(Validated, events)] == [
        0,
        0,
        *([1, 2, 3] if by == "loss" else [0, 1, 2]),
    ]
    which = step // 2 - 1
    assert (outcome.ended.best_step, outcome.ended.best_loss, outcome.ended.best_score) == (
        step,
        LOSSES[which],
        SCORES[which],
    )
    run(small_recipe("classification", steps=step, validate_every=step), tmp_path / "short")
    assert same_tensors(weights_of(out), weights_of(tmp_path / "short"))  # the same run up to that step
    assert Model.from_folder(out).about["scores"]["step"] == step


def test_of_equal_scores_the_lower_loss_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script_validations(monkeypatch, [5.0, 3.0, 4.0], [100.0, 100.0, 100.0])
    recipe = small_recipe("classification", best_by="score", steps=6, validate_every=2)
    outcome, events = run(recipe, tmp_path / "run")
    assert [event.best for event in events_of(Validated, events)] == [True, True, False]
    assert (outcome.ended.best_step, outcome.ended.best_loss) == (4, 3.0)
    assert Model.from_folder(tmp_path / "run").about["scores"]["step"] == 4


def test_a_nan_validation_does_not_block_better_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script_validations(monkeypatch, [math.nan, 4.0, 5.0])
    outcome, _ = run(small_recipe("language", steps=3, validate_every=1), tmp_path / "run")
    assert (outcome.ended.best_step, outcome.ended.best_loss) == (2, 4.0)


def test_patience_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script_validations(monkeypatch, LOSSES)
    outcome, events = run(small_recipe("language", steps=10, validate_every=2, patience=2), tmp_path / "run")
    assert (outcome.ended.reason, outcome.ended.step, outcome.ended.best_step) == ("patience", 8, 4)
    assert [event.step for event in events_of(Saved, events)] == [8]
    assert Model.from_folder(tmp_path / "run").about["scores"]["step"] == 4


def test_the_mean_of_the_last_three_is_validated_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of every step are read from a run that keeps them, and averaged here."""
    monkeypatch.setattr("regard.training.checkpoint_files.CHECKPOINTS_KEPT", 100)
    plain = small_recipe("classification", steps=5, validate_every=1, checkpoint_every=1)
    run(plain, tmp_path / "plain")
    steps = [weights_of(tmp_path / f"plain/checkpoints/step-{step:08d}") for step in range(1, 6)]
    averaged = replace(plain, train=replace(plain.train, average=3))
    outcome, events = run(averaged, tmp_path / "mean")
    assert outcome.ended.best_step == 5  # its loss still falls
    task = prepare_training(plain, cache_folder(), packed=False)
    assert task.validation is not None
    for number, validated in enumerate(events_of(Validated, events), start=1):
        held = steps[max(0, number - 3) : number]
        wanted = {name: torch.stack([each[name] for each in held]).mean(0) for name in held[0]}
        model = task.model()
        model.network.load_state_dict(wanted)
        assert validation_loss(replace_eval(model), task.validation) == pytest.approx(validated.loss, abs=1e-5)
    kept = weights_of(tmp_path / "mean")
    for name, right in wanted.items():
        torch.testing.assert_close(kept[name], right, rtol=0, atol=1e-7)
    assert not same_tensors(kept, steps[-1])
    last = tmp_path / "mean/checkpoints/step-00000005"
    assert same_tensors(weights_of(last), steps[-1])  # training itself continues with its own weights


def replace_eval(model: Model) -> Model:
    model.network.eval()
    return model


def make_corpus(folder: Path, count: int = 60) -> Corpus:
    """Two files and nothing else."""
    words = ["un", "deux", "trois", "quatre", "cinq"]
    lines = [" ".join(words[(i * k) % 5] for k in range(1, 2 + i % 4)) for i in range(count)]
    for side in ("fr", "en"):
        (folder / f"text.{side}").write_text("".join(f"{line}\n" for line in lines))
    return Corpus((str(folder / "text.fr"), str(folder / "text.en")))


def test_without_validation_text_the_last_model_is_kept(tmp_path: Path) -> None:
    data = DataSection(train=(make_corpus(tmp_path),))
    outcome, events = run(small_recipe(data=data, steps=4, validate_every=2, checkpoint_every=4), tmp_path / "run")
    assert outcome.ended.best_step == 4
    assert outcome.scores == []
    assert all(math.isnan(event.loss) and event.best and event.score is None for event in events_of(Validated, events))
    assert same_tensors(weights_of(tmp_path / "run"), weights_of(tmp_path / "run/checkpoints/step-00000004"))
    assert Model.from_folder(tmp_path / "run").config.d_model == 32


def test_a_share_can_be_held_out(tmp_path: Path) -> None:
    data = DataSection(train=(make_corpus(tmp_path),), held_out=0.2)
    outcome, events = run(small_recipe(data=data, steps=4, validate_every=2), tmp_path / "run", scored=True)
    assert [event.examples for event in events_of(Started, events)] == [48]
    assert all(math.isfinite(event.loss) for event in events_of(Validated, events))
    (scores,) = outcome.scores
    assert isinstance(scores, TranslationScores)
    assert scores.sentences == 12


def test_a_language_model_has_no_final_scores() -> None:
    task = prepare_training(small_recipe("language"), cache_folder(), packed=False)
    assert final_scores(task, task.model(), Decoding()) == []


# When training goes wrong


class FailingObjective(Objective):
    """An objective whose loss is NaN at some calls."""

    at: tuple[int, ...] = ()
    calls = 0

    def forward(self, batch: Batch) -> Tensor:
        FailingObjective.calls += self.training
        return super().forward(batch) * (math.nan if self.training and FailingObjective.calls in self.at else 1.0)


def make_losses_nan(monkeypatch: pytest.MonkeyPatch, *at: int) -> None:
    monkeypatch.setattr(run_setup, "Objective", FailingObjective)
    monkeypatch.setattr(FailingObjective, "at", at)
    monkeypatch.setattr(FailingObjective, "calls", 0)


def test_non_finite_updates_are_skipped_counted_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_losses_nan(monkeypatch, 3, 4, 7)
    outcome, events = run(small_recipe("classification", steps=10, validate_every=10, log_every=5), tmp_path / "run")
    assert [event.step for event in events_of(Noted, events) if "this update was skipped" in event.text] == [3, 4, 7]
    assert (outcome.ended.reason, outcome.ended.skipped) == ("steps", 3)
    assert all(math.isfinite(event.loss) for event in events_of(Stepped, events))
    assert all(x.isfinite().all() for x in weights_of(tmp_path / "run").values())


def test_nine_bad_updates_in_a_row_are_tolerated_and_ten_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_losses_nan(monkeypatch, *range(2, 11))
    outcome, _ = run(small_recipe("classification", steps=12, validate_every=12), tmp_path / "nine")
    assert outcome.ended.skipped == 9
    make_losses_nan(monkeypatch, *range(2, 12))
    events: list[Event] = []
    with pytest.raises(ValueError, match="10 updates in a row up to step 11 were not finite"):
        train_recipe(
            small_recipe("classification", steps=12, validate_every=12), tmp_path / "ten", watchers=[events.append]
        )
    last = events[-1]
    assert isinstance(last, Ended)
    assert (last.reason, last.step, last.skipped) == ("diverged", 11, 10)


def test_a_huge_learning_rate_is_diagnosed(tmp_path: Path) -> None:
    """After one step of 1e30 nothing is finite."""
    events: list[Event] = []
    recipe = small_recipe("language", lr=1e30, warmup=0, validate_every=100, steps=100)
    with pytest.raises(ValueError, match=r"10 updates in a row up to step 1[12] were not finite") as caught:
        train_recipe(recipe, tmp_path / "run", watchers=[events.append])
    assert "the output of decoder" in str(caught.value)
    assert "The learning rate was 1e+30: try a lower train.lr" in str(caught.value)
    last = events[-1]
    assert isinstance(last, Ended)
    assert (last.reason, last.skipped) == ("diverged", 10)


def test_a_batch_that_was_split_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(batches: Sequence[Batch], *arguments: Any) -> Tensor:
        if len(batches) < 4:
            raise torch.OutOfMemoryError("too much")
        return update_weights(batches, *arguments)

    monkeypatch.setattr(module, "update_weights", out_of_memory)
    recipe = small_recipe("classification", steps=2, validate_every=2, log_every=1)
    _, events = run(recipe, tmp_path / "run")
    split = "a batch did not fit into memory: batches are split into 4 pieces from now on"
    assert [event.step for event in events_of(Noted, events) if event.text == split] == [1]
    monkeypatch.setattr(module, "update_weights", update_weights)
    _, whole = run(recipe, tmp_path / "whole")
    assert [event.loss for event in events_of(Stepped, events)] == pytest.approx(
        [event.loss for event in events_of(Stepped, whole)], rel=1e-5
    )


def test_a_run_is_not_overwritten(folder: Path, tmp_path: Path) -> None:
    _, _, out = finished("language", folder)
    with pytest.raises(ValueError, match="already holds a run"):
        run(small_recipe("language"), out)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "diary.txt").write_text("mine")
    with pytest.raises(ValueError, match="does not hold a run"):
        run(small_recipe("language"), tmp_path / "other")
    assert (tmp_path / "other" / "diary.txt").read_text() == "mine"


# Regressions


def test_a_packed_language_model_is_validated_as_it_is_trained(tmp_path: Path) -> None:
    """Its texts do not see each other in training and must not in validation either."""
    task = prepare_training(small_recipe("language", packed=True), cache_folder(), packed=True)
    assert task.packed
    assert task.fixed_shapes
    assert task.validation is not None
    learned, tried = next(task.batches.epoch(0)), next(task.validation.epoch(0))
    assert learned.lengths is not None
    assert tried.lengths is not None
    assert learned.lengths.dim() == tried.lengths.dim() == 2


def test_divergence_is_reported_by_the_diagnosis_not_the_decoder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"updates in a row up to step \d+ were not finite"):
        run(small_recipe(lr=1e30, warmup=0, schedule="constant", validate_every=2), tmp_path / "run")
    assert events_of(Ended, read_metrics(tmp_path / "run"))[-1].reason == "diverged"


def test_old_best_models_are_removed(tmp_path: Path) -> None:
    bests: set[int] = set()
    improved: list[bool] = []

    def look(event: Event) -> None:
        if isinstance(event, Validated):
            improved.append(event.best)
            bests.add(len(list((tmp_path / "run" / "checkpoints").glob("best-*"))))

    recipe = small_recipe("classification", steps=10, validate_every=2, checkpoint_every=1_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "score_best_model", lambda *_: [])
        train_recipe(recipe, tmp_path / "run", watchers=[look])
    assert bests == {1}
    assert sum(improved) > 2


def test_the_end_of_a_run_is_logged(tmp_path: Path) -> None:
    _, events = run(small_recipe(steps=5, log_every=50), tmp_path / "run")
    assert [event.step for event in events_of(Stepped, events)] == [5]


def test_checkpoint_files_are_not_kept_open(tmp_path: Path) -> None:
    """Otherwise a removed file would occupy the disk until the process ends."""
    settings: dict[str, Any] = {"checkpoint_every": 2, "average": 2, "validate_every": 2}
    run(small_recipe("classification", steps=4, **settings), tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "score_best_model", lambda *_: [])
        train_recipe(small_recipe("classification", steps=10, **settings), tmp_path / "run", resume=True)
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_settings_that_need_validation_are_rejected_without_it() -> None:
    data = DataSection(train=(Corpus(("a.fr", "a.en")),))
    for settings in ({"patience": 3}, {"best_by": "score"}):
        with pytest.raises(ValueError, match=f"train.{next(iter(settings))} needs validation text"):
            small_recipe(data=data, **settings)
