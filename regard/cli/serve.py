"""`regard serve`: the web page and the HTTP APIs."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.shared_options import MODEL_HELP, Device, SourceLanguage, TargetLanguage, Verbose
from regard.errors import RegardError

DEFAULT_PORT = 7878


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(help=f"{MODEL_HELP} NAME=PATH sets the name. Default: all bundled models."),
    ] = None,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = DEFAULT_PORT,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Addresses other than loopback require a token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(envvar="REGARD_TOKEN", show_envvar=True, help="Token that clients must send as Bearer token."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Additional host name to accept in the Host header. Repeatable.")
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(help="Origin whose pages may send requests, such as https://example.org. Repeatable."),
    ] = None,
    precision: Annotated[
        str, typer.Option(help="auto, float32, bfloat16 or int8; see regard translate --help.")
    ] = "auto",
    engine: Annotated[
        str, typer.Option(help="auto, pytorch, compiled or ctranslate2; see regard translate --help.")
    ] = "auto",
    verbose: Verbose = False,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    device: Device = "auto",
) -> None:
    """Serve the web page and HTTP APIs compatible with LibreTranslate and OpenAI, until Ctrl-C.

    Any model can be served: translators, language models, classifiers, taggers, masked language models and sentence
    encoders. Concurrent requests are processed in batches. /openapi.json describes the APIs. A multilingual translator
    is served for one pair of languages, --from and --to. For a run, the page also shows its curves, its samples and how
    its attention emerged, while it is being trained or afterwards.

    With regard --debug serve (or REGARD_DEBUG=1) the log contains the traceback of every rejected request.

    Example: regard serve --open

    Example: regard serve fr-en stories=runs/stories --port 8000
    """
    from regard.server.memory_release import bound_kernel_caches

    bound_kernel_caches()  # before torch is imported
    try:
        from regard.server import guards, listen
    except ImportError as error:
        raise RegardError(f"the server needs the package {error.name}: pip install 'regard[serve]'") from None
    from regard.plots.console import console
    from regard.server.app import create_app
    from regard.server.model_registry import build_registry, parse_model_arguments
    from regard.server.run_history import is_run
    from regard.server.runs_api import RunRegistry

    rules = guards.access_rules(host, allow_host or (), cors or (), token)
    paths = parse_model_arguments(models or ())
    listener = listen.bind(host, port)  # before the models are loaded, so that an error is reported at once
    terminal = console()
    with terminal.status("Loading the models"):
        runs = {name: Path(path) for name, path in paths.items() if is_run(Path(path))}
        loaded, without_model = _load_models(paths, runs, device)
        notes: list[str] = []
        registry = build_registry(
            _for_languages(loaded, source_language, target_language), precision, engine, notes.append
        )
    for note in notes if verbose else ():
        typer.echo(f"regard: {note}", err=True)
    for reason in without_model:
        terminal.print(f"{reason}. Its curves are served.", markup=False)
    app = create_app(registry, rules, RunRegistry(runs))
    listen.run_server(
        app, listener, lambda: _print_banner(terminal, listen.page_url(listener), registry, runs), registry.stop, open_
    )
    terminal.print("Stopped.")


def _load_models(paths: dict[str, str], runs: Collection[str], device: str) -> tuple[dict[str, Any], list[str]]:
    """The models at these paths, and the reason for each run that is served without one, because it has none yet."""
    from regard.cli.model_loading import load_model

    models, reasons = {}, []
    for name, path in paths.items():
        try:
            models[name] = load_model(path, device)
        except RegardError as error:
            if name not in runs:
                raise
            reasons.append(str(error))
    return models, reasons


def _for_languages(models: dict[str, Any], source: str | None, target: str | None) -> dict[str, Any]:
    """The models, those that are multilingual for the languages of --from and --to."""
    from regard.cli.model_loading import for_languages

    multilingual = {name: model for name, model in models.items() if model.languages}
    if not multilingual and (source is not None or target is not None):
        raise RegardError(f"--from and --to are for multilingual models, not for {', '.join(models)}: leave them out")
    chosen = {}
    for name, model in multilingual.items():
        try:
            chosen[name] = for_languages(model, source, target)
        except RegardError as error:
            raise RegardError(f"{name}: {error}") from None
    return models | chosen


def _print_banner(terminal: Any, url: str, registry: Any, runs: Collection[str]) -> None:
    """Print the URL, a table of the models and the names of the runs."""
    from rich.markup import escape
    from rich.table import Table

    terminal.print(f"\n[bold]Regard[/] is serving at [bold cyan]{escape(url)}[/]\n")
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("model", "task", "parameters"):
        table.add_column(column, justify="right" if column == "parameters" else "left")
    for served in registry.by_name.values():
        table.add_row(escape(served.name), escape(_tasks(served)), f"{served.parameters:,}")
    if registry.by_name:
        terminal.print(table)
    if runs:
        terminal.print(f"\n[dim]curves and snapshots of {escape(', '.join(runs))}:[/] {escape(url)}#/runs")
    terminal.print(
        "\n[dim]LibreTranslate: /translate   OpenAI: /v1/completions, /v1/embeddings   all APIs: /openapi.json[/]\n"
        "[dim]Press Ctrl-C to stop.[/]"
    )
    terminal.file.flush()  # a reader at the other end of a pipe needs the URL now


def _tasks(served: Any) -> str:
    """What a model does, in words."""
    tasks = []
    if served.translates:
        tasks.append(f"translates {' → '.join(served.languages)}" if served.languages else "translates")
    if served.generates:
        tasks.append("generates text")
    if not tasks:  # translators and language models also embed texts, but that is not their main task
        tasks = list(served.abilities.values())
    return ", ".join(tasks)


COMMANDS: list[Callable[..., None]] = [serve]
