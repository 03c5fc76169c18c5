"""Models as workers of Ray Data: classes for `map_batches`, each of which loads a model once and adds columns.

    rows = ray.data.read_text("crawl/")
    rows = rows.map_batches(regard.ray.Translator, fn_constructor_kwargs={"model": "fr-en"}, batch_size=2048)
    rows.write_parquet("translated/")

Rows that have no text, or that the model refuses, get None. A worker uses the GPU that Ray assigns to it
(`num_gpus=1`), or else the CPU.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Unpack

import torch

from regard.decoding.fast_copy import Precision
from regard.decoding.options import DecodingOptions, make_decoding
from regard.decoding.sentence_vectors import Pooling
from regard.decoding.translator import BATCH_TOKENS
from regard.jobs.tasks import ClassifyTask, EmbedTask, JobTask, ScoreTask, TranslateTask, answer_each

Batch = Mapping[str, Iterable[Any]]
"""Columns of a batch by their names: arrays or lists of the same length."""


class _Worker:
    """A model that adds the columns of a task to batches."""

    def __init__(self, task: JobTask, texts: tuple[str, ...]) -> None:
        self.columns, self.texts = [column.name for column in task.columns], texts
        _, self.answer = task.load("cuda" if torch.cuda.is_available() else "cpu")

    def __call__(self, batch: Batch) -> dict[str, Any]:
        """Return the batch with the columns of the answers."""
        rows = list(zip(*(batch[name] for name in self.texts), strict=True))
        known = [number for number, row in enumerate(rows) if all(isinstance(text, str) for text in row)]
        answers = dict(zip(known, answer_each(self.answer, [rows[number] for number in known]), strict=True))
        added: dict[str, list[Any]] = {name: [] for name in self.columns}
        for number in range(len(rows)):
            answer = answers.get(number)
            values = (None,) * len(self.columns) if answer is None or isinstance(answer, str) else answer[0]
            for name, value in zip(self.columns, values, strict=True):
                added[name].append(value)
        return {**batch, **added}


class Translator(_Worker):
    """Adds the column `translation`."""

    def __init__(
        self,
        model: str = "fr-en",
        text: str = "text",
        source: str | None = None,
        target: str | None = None,
        precision: Precision = "auto",
        batch_tokens: int = BATCH_TOKENS,
        **options: Unpack[DecodingOptions],
    ) -> None:
        """`model` is a path that every worker can read, or a bundled name; `text` is the column of the texts.

        `source` and `target` are the languages of a multilingual model. Other options are those of `regard.Decoding`.
        """
        beam = TranslateTask(model=model).decoding
        task = TranslateTask(
            model=model,
            source_language=source,
            target_language=target,
            decoding=make_decoding(beam, options),
            batch_tokens=batch_tokens,
            precision=precision,
        )
        super().__init__(task, (text,))


class Scorer(_Worker):
    """Adds the columns `score`, the log-probability of a target given its source, and `tokens`, their number."""

    def __init__(self, model: str = "fr-en", source: str = "source", target: str = "target") -> None:
        """`source` and `target` are the columns of the texts."""
        super().__init__(ScoreTask(model=model), (source, target))


class Embedder(_Worker):
    """Adds the column `vector`."""

    def __init__(self, model: str, text: str = "text", pooling: Pooling = "mean") -> None:
        """`text` is the column of the texts; `pooling` is that of `regard.Model.embed`."""
        super().__init__(EmbedTask(model=model, pooling=pooling), (text,))


class Classifier(_Worker):
    """Adds the columns `label`, the most likely class, and `probability`."""

    def __init__(self, model: str, text: str = "text") -> None:
        """`text` is the column of the texts."""
        super().__init__(ClassifyTask(model=model), (text,))
