"""What a job does with each row: translate, score, embed or classify it with a model."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import Any, ClassVar

import torch

from regard.data.corpus import LineFault
from regard.decoding.engine_choice import DecodingEngine, quick_copy
from regard.decoding.fast_copy import Precision
from regard.decoding.options import DEFAULT_BEAM, Decoding
from regard.decoding.sentence_vectors import Pooling, check_pooling
from regard.decoding.text_model import Model
from regard.decoding.translator import BATCH_TOKENS, FIRST_LINES, max_lines_together
from regard.errors import ModelError, RegardError
from regard.interop.load import load
from regard.jobs.records import Answer, Column, RecordFile
from regard.jobs.shards import FinishedShard, RowFault, Shard

ROWS_TOGETHER = 256
"""Number of rows that are scored, embedded or classified together."""
SHARD_ROWS = 2_048
"""Number of rows of a shard, except of translations: see `TranslateTask`."""

Texts = Sequence[tuple[str, ...]]
"""The texts of several rows: one of each row, or a source and a target."""
AnswerTexts = Callable[[Texts], list[Answer]]


@dataclass(frozen=True, kw_only=True)
class JobTask(ABC):
    """A task and its model. It can be sent to other processes, which load the model themselves."""

    model: str
    """Path or bundled name."""
    model_digest: str = ""
    """Digest of the model with which the job began; any other is refused."""

    verb: ClassVar[str]
    participle: ClassVar[str]
    texts_per_row: ClassVar[int] = 1
    memory_option: ClassVar[str] = ""
    """The option that limits the memory of a worker, if there is one."""

    @property
    @abstractmethod
    def columns(self) -> list[Column]:
        """The columns that are added to each row."""

    @property
    def shard_rows(self) -> tuple[int, int]:
        """Number of rows of the first shard, and of the largest."""
        return ROWS_TOGETHER, SHARD_ROWS

    @abstractmethod
    def answerer(self, model: Model) -> AnswerTexts:
        """The function that answers texts, after checking that the model can."""

    def load(self, device: str) -> tuple[Model, AnswerTexts]:
        """The model and the function that answers texts; raises a RegardError if the model has changed."""
        model = load(self.model, device)
        if self.model_digest and model_digest(model) != self.model_digest:
            raise RegardError(f"{self.model} is not the model with which this job began: every worker needs the same")
        return model, self.answerer(model)

    def describe(self) -> dict[str, Any]:
        """The options on which the answers depend, in JSON types."""
        options = {name: value for name, value in asdict(self).items() if name != "model_digest"}
        return {"task": self.verb, **json.loads(json.dumps(options)), "model": self.model_digest}


@dataclass(frozen=True, kw_only=True)
class TranslateTask(JobTask):
    """Translate the text of each row. Shards have the lines that `regard translate` would read together from stdin."""

    source_language: str | None = None
    target_language: str | None = None
    decoding: Decoding = field(default_factory=lambda: Decoding(beam=DEFAULT_BEAM))
    batch_tokens: int = BATCH_TOKENS
    precision: Precision = "auto"
    scores: bool = False
    engine: DecodingEngine = "auto"

    verb: ClassVar[str] = "translate"
    participle: ClassVar[str] = "translated"
    memory_option: ClassVar[str] = "--batch-tokens"

    @property
    def columns(self) -> list[Column]:
        """The translation, after its log-probability if scores were asked for."""
        score = [Column("score", float, "{:.4f}".format)] if self.scores else []
        return [*score, Column("translation", str, one_line)]

    @property
    def shard_rows(self) -> tuple[int, int]:
        """As `Translator.translate_lines` reads lines."""
        return FIRST_LINES, max_lines_together(self.batch_tokens)

    def answerer(self, model: Model) -> AnswerTexts:
        """The function that translates texts."""
        model.require("translate")
        chosen = model.for_languages(self.source_language, self.target_language)
        chosen.require_target_language("--to")
        copy, _ = quick_copy(chosen, self.precision, self.engine)
        translator = copy.translator(self.decoding, self.batch_tokens)

        def answer(texts: Texts) -> list[Answer]:
            return [
                [(*([best.score] if self.scores else []), best.text) for best in translations]
                for translations in translator.translate_all([text for (text,) in texts])
            ]

        return answer


@dataclass(frozen=True, kw_only=True)
class ScoreTask(JobTask):
    """The log-probability of the second text of each row given the first, and its number of tokens."""

    source_language: str | None = None
    target_language: str | None = None

    verb: ClassVar[str] = "score"
    participle: ClassVar[str] = "scored"
    texts_per_row: ClassVar[int] = 2

    @property
    def columns(self) -> list[Column]:
        """The log-probability, and the number of tokens over which it is summed, the end included."""
        return [Column("score", float, "{:.4f}".format), Column("tokens", int)]

    def answerer(self, model: Model) -> AnswerTexts:
        """The function that scores pairs."""
        model.require("score pairs")
        chosen = model.for_languages(self.source_language, self.target_language)
        chosen.require_target_language("--to")
        encode = chosen.require_tokenizer().encode_target

        def answer(texts: Texts) -> list[Answer]:
            sources, targets = zip(*texts, strict=True)
            scores = chosen.score(sources, targets)
            return [[(score, len(encode(target)) + 1)] for score, target in zip(scores, targets, strict=True)]

        return answer


@dataclass(frozen=True, kw_only=True)
class EmbedTask(JobTask):
    """A vector for the text of each row."""

    pooling: Pooling = "mean"

    verb: ClassVar[str] = "embed"
    participle: ClassVar[str] = "embedded"

    @property
    def columns(self) -> list[Column]:
        """The vector: nine digits identify every float32."""
        return [Column("vector", list, lambda vector: " ".join(f"{value:.9g}" for value in vector))]

    def answerer(self, model: Model) -> AnswerTexts:
        """The function that embeds texts."""
        model.require("embed")
        check_pooling(model.network, self.pooling)

        def answer(texts: Texts) -> list[Answer]:
            vectors = model.embed([text for (text,) in texts], self.pooling).tolist()
            return [[([float(f"{value:.9g}") for value in vector],)] for vector in vectors]

        return answer


@dataclass(frozen=True, kw_only=True)
class ClassifyTask(JobTask):
    """The most likely class of the text of each row, and its probability."""

    probabilities: bool = False
    """Whether to add the probabilities of all classes, which only JSON can hold."""

    verb: ClassVar[str] = "classify"
    participle: ClassVar[str] = "classified"

    @property
    def columns(self) -> list[Column]:
        """The class and its probability."""
        all_classes = [Column("probabilities", dict)] if self.probabilities else []
        return [Column("label", str), Column("probability", float, "{:.4f}".format), *all_classes]

    def answerer(self, model: Model) -> AnswerTexts:
        """The function that classifies texts."""
        model.require("classify")
        names = model.class_names

        def answer(texts: Texts) -> list[Answer]:
            return [self._answer(names, row) for row in model.class_probabilities([text for (text,) in texts]).tolist()]

        return answer

    def _answer(self, names: list[str], probabilities: list[float]) -> Answer:
        best = max(probabilities)
        by_name = [dict(zip(names, probabilities, strict=True))] if self.probabilities else []
        return [(names[probabilities.index(best)], best, *by_name)]


def one_line(text: str) -> str:
    """A text as one line: line breaks become spaces."""
    return re.sub(r"[\r\n]+", " ", text)


@dataclass(frozen=True)
class ShardWork:
    """All that a worker needs to know to answer shards."""

    task: JobTask
    records: RecordFile

    @property
    def columns(self) -> list[Column]:
        """The columns of the output after those of the input."""
        return [Column("line", int), *self.task.columns] if self._is_numbered else self.task.columns

    @property
    def _is_numbered(self) -> bool:
        """Whether each answer starts with the number of its row, because rows have several answers."""
        return isinstance(self.task, TranslateTask) and self.task.decoding.n_best > 1

    def finish(self, shard: Shard, answer: AnswerTexts) -> FinishedShard:
        """Answer a shard. Rows that cannot be read or answered become faults, and have empty answers."""
        common = (shard.number, shard.first, shard.rows, shard.size, shard.digest)
        if shard.error:
            return FinishedShard(*common, b"", error=shard.error)
        records = self.records.records(shard.content)
        answers: list[Answer | None] = [None] * len(records)
        faults: dict[int, RowFault] = {}
        readable: list[tuple[int, tuple[str, ...]]] = []
        for index, record in enumerate(records):
            if isinstance(record.fields, LineFault):
                kind, detail = record.fields
                reason = f"{kind} ({detail})" if detail else kind
                faults[index] = RowFault(shard.first + index, reason, kind)
            else:
                readable.append((index, record.fields))
        together = len(readable) if isinstance(self.task, TranslateTask) else ROWS_TOGETHER
        for start in range(0, len(readable), max(1, together)):
            rows = readable[start : start + together]
            answered = answer_each(answer, [fields for _, fields in rows])
            for (index, _), row_answer in zip(rows, answered, strict=True):
                if isinstance(row_answer, str):
                    faults[index] = RowFault(shard.first + index, row_answer)
                else:
                    answers[index] = row_answer
        if self._is_numbered:
            nothing = [(None,) * len(self.task.columns)]
            answers = [
                [(shard.first + index, *values) for values in row_answer or nothing]
                for index, row_answer in enumerate(answers)
            ]
        output = self.records.render(shard.content, records, answers, self.columns)
        return FinishedShard(*common, output, tuple(sorted(faults.values())))


def answer_each(answer: AnswerTexts, texts: Texts) -> list[Answer | str]:
    """The answer to each row's texts, or why the model refuses them.

    If the texts are refused together, halves of them are answered, and so on, until those at fault are found.
    """
    if not texts:
        return []
    try:
        return list(answer(texts))
    except ModelError:
        raise  # damaged weights, which no text is to blame for
    except RegardError as error:
        if len(texts) == 1:
            return [str(error)]
    middle = len(texts) // 2
    return [*answer_each(answer, texts[:middle]), *answer_each(answer, texts[middle:])]


def model_digest(model: Model) -> str:
    """A digest of everything in a model that its answers depend on."""
    digest = sha256(repr((model.config, model.special, model.about.get("longest"))).encode())
    digest.update(model.tokenizer.digest.encode() if model.tokenizer is not None else b"")
    for name, tensor in sorted(model.network.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def with_digest(task: JobTask, model: Model) -> JobTask:
    """The task bound to this very model."""
    return replace(task, model_digest=model_digest(model))
