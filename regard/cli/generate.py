"""`regard generate`: continue a prompt."""

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from regard.cli.model_loading import load_model
from regard.cli.shared_options import MODEL_HELP, Device
from regard.cli.text_io import for_output, input_lines, note_file_name
from regard.models import DEFAULT_LANGUAGE_MODEL, bundled_folder

OWN_SETTING = "Default: the model's own setting, or"


def generate(
    prompt: Annotated[str, typer.Argument(help="Text to continue; - reads it from stdin.")],
    model: Annotated[
        str, typer.Option("--model", "-m", help=f"{MODEL_HELP} The default is the bundled {DEFAULT_LANGUAGE_MODEL}.")
    ] = "",
    max_tokens: Annotated[
        int | None, typer.Option(help=f"Maximum number of new tokens, the end token included. {OWN_SETTING} 200.")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            help="0 is greedy; otherwise sample: 1 uses the model's distribution, lower values sharpen it. "
            f"{OWN_SETTING} 0."
        ),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help=f"Sample from the k most likely tokens only; 0 disables. {OWN_SETTING} 0.")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            help="Sample from the smallest set of tokens whose probabilities add up to at least p; 1 disables. "
            f"{OWN_SETTING} 1."
        ),
    ] = None,
    min_p: Annotated[
        float,
        typer.Option(
            help="Sample from tokens whose probability is at least this fraction of the best token's; 0 disables."
        ),
    ] = 0.0,
    seed: Annotated[
        int,
        typer.Option(
            help="Seed for sampling. The same seed and prompt give the same text, whatever else is in the batch."
        ),
    ] = 0,
    repetition_penalty: Annotated[
        float,
        typer.Option(
            help="Divides positive logits of tokens already in the text and multiplies negative ones; 1 disables."
        ),
    ] = 1.0,
    no_repeat_ngram: Annotated[int, typer.Option(help="Forbid repeating any n-gram of this length; 0 disables.")] = 0,
    stop: Annotated[
        list[str] | None,
        typer.Option(help="Strings that end the text; the text is cut before the first of them. Repeatable."),
    ] = None,
    draft: Annotated[
        str,
        typer.Option(
            help="A smaller model with the same tokenizer that proposes tokens. The text stays the same. Prints the "
            "share of accepted tokens on stderr."
        ),
    ] = "",
    stream: Annotated[
        bool, typer.Option("--stream/--no-stream", help="Print tokens as they are generated, or all at the end.")
    ] = True,
    device: Device = "auto",
) -> None:
    """Continue a prompt with a language model.

    Example: regard generate "Once upon a time" --seed 3

    Example: regard generate "Once upon a time" --model runs/stories --temperature 0.8 --top-p 0.95
    """
    from regard.decoding.options import DecodingOptions, make_decoding
    from regard.decoding.speculative import AcceptanceCount

    options: DecodingOptions = {
        "min_p": min_p,
        "seed": seed,
        "repetition_penalty": repetition_penalty,
        "no_repeat_ngram": no_repeat_ngram,
        "stop": stop or (),
    }
    if max_tokens is not None:
        options["max_tokens"] = max_tokens
    if temperature is not None:
        options["temperature"] = temperature
    if top_k is not None:
        options["top_k"] = top_k
    if top_p is not None:
        options["top_p"] = top_p
    make_decoding(None, options)  # report a wrong option before the model is loaded
    note_file_name([prompt], "regard generate - < {}")
    prompt = "\n".join(input_lines(None)) if prompt == "-" else prompt
    loaded = load_model(model or str(bundled_folder(DEFAULT_LANGUAGE_MODEL)), device, few=True)
    count = AcceptanceCount()
    if draft:
        pieces = loaded.stream(prompt, draft=load_model(draft, device, few=True), count=count, **options)
    else:
        pieces = loaded.stream(prompt, **options)
    if not stream:
        pieces = iter(["".join(pieces)])
    typer.secho(for_output(sys.stdout, prompt), bold=True, nl=False)
    try:
        for piece in pieces:
            sys.stdout.write(for_output(sys.stdout, piece))
            sys.stdout.flush()
    finally:
        typer.echo()
    if draft:
        typer.echo(f"{count.accepted} of {count.proposed} tokens of the draft accepted ({count.rate:.0%})", err=True)


COMMANDS: list[Callable[..., None]] = [generate]
