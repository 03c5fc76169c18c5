"""The finished model's scores on the validation text, decoded as the recipe says."""

from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.evaluation.classification import ClassScores, class_scores
from regard.evaluation.metrics import TranslationScores, translation_scores
from regard.evaluation.tagging import TaggingScores, score_tagger
from regard.training.training_setup import TrainingSetup
from regard.training.validation import for_decoding

VALIDATION_SET = "the validation text"

FinalScores = TranslationScores | ClassScores | TaggingScores


def final_scores(
    setup: TrainingSetup, model: Model, decode: Decoding, max_translations: int | None = None
) -> list[FinalScores]:
    """BLEU and chrF2++ of a translator, the accuracy of a classifier or tagger; nothing for a language model.

    Only the first `max_translations` examples are translated, by default all of them.
    """
    if setup.kind == "tagging":
        return [score_tagger(model, setup.sentences)[0]] if setup.sentences else []
    sources, references = [source for source, _ in setup.examples], [target for _, target in setup.examples]
    if setup.kind in ("language", "masked") or not sources:
        return []
    if setup.kind == "classification":
        labels = [label for label, _ in model.classify(sources)]
        return [class_scores(references, labels)]
    sources, references = sources[:max_translations], references[:max_translations]
    is_part = len(sources) < len(setup.examples)
    test_set = f"the first {len(sources):,} examples of {VALIDATION_SET}" if is_part else VALIDATION_SET
    outputs = for_decoding(model).translate(sources, decoding=decode)
    return [translation_scores(outputs, [references], test_set)]
