"""The finished model's scores on the validation text, asked as it will be used."""

from regard.api import Model
from regard.decode.options import Decoding
from regard.decode.translate import Translator
from regard.evaluate.classes import ClassScores, class_scores
from regard.evaluate.scores import TranslationScores, translation_scores
from regard.store import Stored
from regard.train.task import Task
from regard.train.validate import for_decoding

VALIDATION = "the validation text"

Scores = TranslationScores | ClassScores


def final_scores(task: Task, model: Stored, decode: Decoding) -> list[Scores]:
    """BLEU and chrF2++ of a translator, a classifier's accuracy; a language model's loss is known already."""
    sources, wanted = [source for source, _ in task.examples], [target for _, target in task.examples]
    if task.kind == "language" or not sources:
        return []
    if task.kind == "classification":
        said = [label for label, _ in Model(**vars(model)).classify(sources)]
        return [class_scores(wanted, said)]
    outputs = [found[0].text for found in Translator(for_decoding(model), decode).all(sources)]
    return [translation_scores(outputs, [wanted], VALIDATION)]
