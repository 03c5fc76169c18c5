"""`regard generate`: continue a prompt."""

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from regard.cli.model_loading import load_model
from regard.cli.shared_options import MODEL_HELP, Device
from regard.cli.text_io import for_output, input_lines


def generate(
    prompt: Annotated[str, typer.Argument(help="Text to continue; - reads it from stdin.")],
    model: Annotated[str, typer.Option("--model", "-m", help=MODEL_HELP)],
    max_tokens: Annotated[int, typer.Option(help="Maximum number of new tokens.")] = 200,
    temperature: Annotated[
        float,
        typer.Option(help="0 is greedy; otherwise sample: 1 uses the model's distribution, lower values sharpen it."),
    ] = 0.0,
    top_k: Annotated[int, typer.Option(help="Sample among the k most likely tokens; 0 disables.")] = 0,
    top_p: Annotated[
        float, typer.Option(help="Sample among the fewest tokens that have this total probability; 1 disables.")
    ] = 1.0,
    min_p: Annotated[
        float, typer.Option(help="Drop tokens less likely than this fraction of the most likely one; 0 disables.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed and prompt give the same text.")] = 0,
    repetition_penalty: Annotated[
        float, typer.Option(help="Values above 1 make tokens that already occurred less likely.")
    ] = 1.0,
    no_repeat_ngram: Annotated[int, typer.Option(help="Forbid repeating any n-gram of this length; 0 disables.")] = 0,
    stop: Annotated[list[str] | None, typer.Option(help="Stop before this text. Repeatable.")] = None,
    stream: Annotated[
        bool, typer.Option("--stream/--no-stream", help="Print tokens as they are generated, or all at the end.")
    ] = True,
    device: Device = "auto",
) -> None:
    """Continue a prompt with a language model.

    Example: regard generate "Once upon a time" --model runs/stories --temperature 0.8 --top-p 0.95
    """
    from regard.decoding.options import DecodingOptions, make_decoding

    options: DecodingOptions = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "seed": seed,
        "repetition_penalty": repetition_penalty,
        "no_repeat_ngram": no_repeat_ngram,
        "stop": stop or (),
    }
    make_decoding(None, options)  # report a wrong option before the model is loaded
    prompt = "\n".join(input_lines(None)) if prompt == "-" else prompt
    loaded = load_model(model, device)
    pieces = loaded.stream(prompt, **options) if stream else iter([loaded.generate(prompt, **options)[len(prompt) :]])
    typer.secho(for_output(sys.stdout, prompt), bold=True, nl=False)
    try:
        for piece in pieces:
            sys.stdout.write(for_output(sys.stdout, piece))
            sys.stdout.flush()
    finally:
        typer.echo()


COMMANDS: list[Callable[..., None]] = [generate]
