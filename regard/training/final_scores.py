"""The finished model's scores on the validation text, decoded as the recipe says."""

from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.evaluation.classification import ClassScores, class_scores
from regard.evaluation.metrics import TranslationScores, translation_scores
from regard.training.training_setup import TrainingSetup
from regard.training.validation import for_decoding

VALIDATION_SET = "the validation text"

FinalScores = TranslationScores | ClassScores


def final_scores(setup: TrainingSetup, model: Model, decode: Decoding) -> list[FinalScores]:
    """BLEU and chrF2++ of a translator, a classifier's accuracy; nothing for a language model."""
    sources, references = [source for source, _ in setup.examples], [target for _, target in setup.examples]
    if setup.kind == "language" or not sources:
        return []
    if setup.kind == "classification":
        labels = [label for label, _ in model.classify(sources)]
        return [class_scores(references, labels)]
    outputs = for_decoding(model).translate(sources, decoding=decode)
    return [translation_scores(outputs, [references], VALIDATION_SET)]
