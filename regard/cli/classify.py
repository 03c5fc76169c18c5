"""`regard classify`: the class of each text."""

from collections.abc import Callable
from json import dumps
from typing import Annotated

import typer

from regard.cli.job_options import (
    Address,
    EngineName,
    JobOptions,
    Restart,
    RowColumns,
    RowKeys,
    WorkerCount,
    is_job,
    run_text_job,
)
from regard.cli.model_loading import check_model_is_named, load_model
from regard.cli.shared_options import MODEL_HELP, Device, InputFile, JsonLines, OutputFile, Texts
from regard.cli.text_io import answer_lines, check_input


def classify(
    text: Texts = None,
    model: Annotated[str, typer.Option("--model", "-m", help=MODEL_HELP)] = "",
    source: InputFile = None,
    output: OutputFile = None,
    json: JsonLines = False,
    device: Device = "auto",
    columns: RowColumns = "",
    keys: RowKeys = "",
    workers: WorkerCount = None,
    restart: Restart = False,
    engine: EngineName = "auto",
    address: Address = None,
) -> None:
    """Print the most likely class of each text and its probability. Each input line gives one output line, in order.

    Class and probability are separated by a tab. With --json, each line also has the probabilities of all classes.

    With an input file and an output file, several processes share the work; run an interrupted command again to resume.

    Example: regard classify "Les chats dorment." --model runs/petit-classify

    Example: regard classify --model runs/petit-classify --input texts.txt --json
    """
    check_input(text, source, output, "classify")
    check_model_is_named(model, "classifier", "petit-classify")
    options = JobOptions(columns, keys, workers, restart, engine, address)
    if is_job([] if source is None else [source], output, options) and source is not None and output is not None:
        from regard.jobs.tasks import ClassifyTask

        run_text_job(ClassifyTask(model=model, probabilities=json), [source], output, device, options, as_json=json)
        return
    loaded = load_model(model, device)
    loaded.require("classify")
    names, row = loaded.class_names, _json_row if json else _plain_row

    def rows(texts: list[str]) -> list[str]:
        probabilities = loaded.class_probabilities(texts).tolist()
        return [row(*each, names) for each in zip(texts, probabilities, strict=True)]

    answer_lines(text, source, output, "classify", rows)


def _plain_row(_: str, probabilities: list[float], names: list[str]) -> str:
    best = max(probabilities)
    return f"{names[probabilities.index(best)]}\t{best:.4f}"


def _json_row(text: str, probabilities: list[float], names: list[str]) -> str:
    best = max(probabilities)
    label, by_name = names[probabilities.index(best)], dict(zip(names, probabilities, strict=True))
    return dumps({"text": text, "label": label, "probability": best, "probabilities": by_name}, ensure_ascii=False)


COMMANDS: list[Callable[..., None]] = [classify]
