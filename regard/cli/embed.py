"""`regard embed`: one vector for each text."""

from collections.abc import Callable
from json import dumps
from pathlib import Path
from typing import Annotated, Any

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
from regard.cli.model_loading import default_model, load_model
from regard.cli.shared_options import OPTIONAL_MODEL_HELP, Device, InputFile, JsonLines, OutputFile, Texts
from regard.cli.text_io import answer_lines, answers, check_input
from regard.errors import RegardError


def embed(
    text: Texts = None,
    model: Annotated[str, typer.Option("--model", "-m", help=OPTIONAL_MODEL_HELP)] = "",
    source: InputFile = None,
    output: OutputFile = None,
    npy: Annotated[
        Path | None, typer.Option(help="Write all vectors to one NumPy file (.npy), one row per text, in float32.")
    ] = None,
    pooling: Annotated[
        str, typer.Option(help="mean averages over the tokens of a text; cls takes the first token of an encoder.")
    ] = "mean",
    json: JsonLines = False,
    device: Device = "auto",
    columns: RowColumns = "",
    keys: RowKeys = "",
    workers: WorkerCount = None,
    restart: Restart = False,
    engine: EngineName = "auto",
    address: Address = None,
) -> None:
    """Turn texts into vectors, which are similar for similar texts. Each input line gives one vector, in order.

    Vectors are printed as numbers separated by spaces, as JSON (--json), or written to a file that numpy.load reads.

    With an input file and an output file, several processes share the work; run an interrupted command again to resume.

    Example: regard embed "A cat sleeps." "A cat is sleeping." --model minilm

    Example: regard embed --model minilm --input sentences.txt --npy vectors.npy
    """
    if npy is not None and npy.suffix != ".npy":  # as numpy.save does
        npy = npy.with_name(f"{npy.name}.npy")
    check_input(text, source, npy or output, "embed")
    if npy is not None and (json or output is not None):
        other = "--json" if json else f"--output {output}"
        raise RegardError(f"both --npy {npy} and {other} were given: use one of them")
    options = JobOptions(columns, keys, workers, restart, engine, address)
    if is_job([] if source is None else [source], output, options) and source is not None and output is not None:
        from regard.jobs.tasks import EmbedTask

        task = EmbedTask(model=model or default_model(), pooling=pooling)  # type: ignore[arg-type]  # reports others
        run_text_job(task, [source], output, device, options, as_json=json)
        return
    loaded = load_model(model or default_model(), device)
    loaded.require("embed")

    from regard.decoding.sentence_vectors import check_pooling

    check_pooling(loaded.network, pooling)  # type: ignore[arg-type]  # reports other values

    def vectors(texts: list[str]) -> Any:
        return loaded.embed(texts, pooling).numpy()

    if npy is not None:
        _write_npy(npy, list(answers(text, source, "embed", vectors)), loaded.config.d_model)
        return
    row = _json_row if json else _plain_row
    answer_lines(text, source, output, "embed", lambda texts: list(map(row, texts, vectors(texts).tolist())))


def _plain_row(_: str, vector: list[float]) -> str:
    return " ".join(f"{value:.9g}" for value in vector)  # nine digits identify every float32


def _json_row(text: str, vector: list[float]) -> str:
    return dumps({"text": text, "vector": [float(f"{value:.9g}") for value in vector]}, ensure_ascii=False)


def _write_npy(path: Path, vectors: list[Any], width: int) -> None:
    from io import BytesIO

    import numpy as np

    from regard.atomic_files import write_file

    buffer = BytesIO()
    np.save(buffer, np.array(vectors, np.float32).reshape(-1, width))
    write_file(path, buffer.getvalue())
    typer.echo(f"{path}  {len(vectors):,} × {width:,}")


COMMANDS: list[Callable[..., None]] = [embed]
