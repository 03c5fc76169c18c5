"""The finished model's scores on the validation text, asked as it will be used."""

from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.evaluation.classification import ClassScores, class_scores
from regard.evaluation.metrics import TranslationScores, translation_scores
from regard.training.preparation import Task
from regard.training.validation import for_decoding

VALIDATION = "the validation text"

Scores = TranslationScores | ClassScores


def final_scores(task: Task, model: Model, decode: Decoding) -> list[Scores]:
    """BLEU and chrF2++ of a translator, a classifier's accuracy; a language model's loss is known already."""
    sources, wanted = [source for source, _ in task.examples], [target for _, target in task.examples]
    if task.kind == "language" or not sources:
        return []
    if task.kind == "classification":
        said = [label for label, _ in model.classify(sources)]
        return [class_scores(wanted, said)]
    outputs = for_decoding(model).translate(sources, decoding=decode)
    return [translation_scores(outputs, [wanted], VALIDATION)]
