"""The best model of a run: validated, kept, published in the run's folder and scored."""

import math
import time

from regard.decoding.own_network import OwnNetwork
from regard.decoding.text_model import Model
from regard.training.checkpoint_files import best_model_folder, publish_model, write_best_model
from regard.training.device import attention_kernels
from regard.training.events import SCORING_NOTE, Validated
from regard.training.final_scores import FinalScores, final_scores
from regard.training.run import TrainingRun
from regard.training.validation import ValidationResult, validate


def validate_and_keep_best(run: TrainingRun) -> None:
    """Validate the model, or the average of the last ones, and save it if it is the best so far."""
    run.meter.pause()
    start = time.perf_counter()
    progress, settings = run.progress, run.settings
    weights = run.full_weights()
    result: ValidationResult | None = None
    with run.ranks.sharing_errors():
        if run.ranks.first:
            model = run.model_with(run.average.add(progress.step, weights))
            with attention_kernels(run.device, fixed_shapes=False):
                computed = run.on_training_device(model)
                result = validate(run.setup, computed, settings.validation_sentences, run.recipe.decode)
    result = run.ranks.from_first(result)
    assert result is not None
    is_best = run.setup.validation is None or result.better_than(_best_so_far(run), settings.best_by)
    if is_best:
        progress.validations_since_best = 0
        progress.best_step, progress.best_score = progress.step, result.score
        progress.best_loss = None if math.isnan(result.loss) else result.loss
    else:
        progress.validations_since_best += 1
    with run.ranks.sharing_errors():
        if is_best and run.ranks.first:
            model.about = {**model.about, "scores": _validation_scores(progress.step, result)}
            write_best_model(run.out, progress.step, model)
    run.reporter.send(
        Validated(
            step=progress.step,
            loss=result.loss,
            score=result.score,
            measure=result.measure,
            best=is_best,
            waited=progress.validations_since_best,
            samples=result.samples,
            seconds=time.perf_counter() - start,
        )
    )
    run.meter.resume()


def _best_so_far(run: TrainingRun) -> ValidationResult | None:
    progress = run.progress
    if progress.best_step is None:
        return None
    loss = math.nan if progress.best_loss is None else progress.best_loss
    return ValidationResult(loss, progress.best_score, None, ())


def _validation_scores(step: int, result: ValidationResult) -> dict[str, float | int | str]:
    """What the saved model records about its validation."""
    scores: dict[str, float | int | str] = {"set": "validation", "step": step}
    if not math.isnan(result.loss):
        scores["loss"] = result.loss
    if result.measure and result.score is not None:
        scores[result.measure] = result.score
    return scores


def publish_best_model(run: TrainingRun) -> None:
    """Copy the best model into the run's own folder."""
    if run.ranks.first and run.progress.best_step is not None:
        publish_model(run.out, best_model_folder(run.out, run.progress.best_step))


def score_best_model(run: TrainingRun) -> list[FinalScores]:
    """Scores of the saved best model on the validation text, decoded as the recipe says; none for language models.

    A user's module decodes without a cache, which is slow: it translates only `train.validation_sentences` examples.
    """
    setup, best_step = run.setup, run.progress.best_step
    count, max_translations = len(setup.sentences if setup.kind == "tagging" else setup.examples), None
    if setup.kind == "translation" and isinstance(run.network, OwnNetwork):
        max_translations = run.settings.validation_sentences
        count = min(count, max_translations)
    if not run.ranks.first or best_step is None or not count or setup.kind in ("language", "masked"):
        return []
    run.reporter.note(run.progress.step, SCORING_NOTE.format(f"{count:,}"))
    model = run.on_training_device(Model.from_folder(best_model_folder(run.out, best_step), run.module_to_load()))
    return final_scores(setup, model, run.recipe.decode, max_translations)
