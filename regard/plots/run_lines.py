"""A run in words: one line per event, and what to do with the model at the end."""

import json
import re
import shlex

from regard.formatting import duration, visible
from regard.plots.heat_map import shorten_to_width
from regard.plots.run_progress import RunProgress, is_unvalidated
from regard.training.events import WARNING, Ended, Event, Noted, Sample, Saved, Started, Stepped, Ticked, Validated

SAMPLE_COLUMNS = 60
"""Columns of a sample's source, and of its output, in a plain line."""
RESUME, CONTINUE, USE = "To resume:", "To continue:", "To use the model:"
RESUME_MODULE = "repeat the same call with resume=True, or the same command with --resume"
"""How to resume a run that trains a user's own module, whose code is not part of the recipe."""
"""Beginnings of lines with a command, which must be copied unbroken."""
NO_VALIDATION = "no validation text: the last model is kept"
SET_VALIDATION = "set data.validation or data.held_out"
COMMANDS = {
    "translation": "translate",
    "language": "generate",
    "classification": "classify",
    "tagging": "tag",
    "masked": "fill",
}
"""The command that uses a model, by its task."""
EXAMPLE_TEXTS = {
    "translation": "Le chat dort.",
    "language": "Once upon a time",
    "classification": "Le chat dort.",
    "tagging": "Le chat dort.",
    "masked": "Le chat <mask> sur la table.",
}


def event_line(event: Event, state: RunProgress) -> str:
    """An event in one line."""
    step = f"step {event.step:>{len(f'{state.steps:,}')},}/{state.steps:,}"
    match event:
        case Started():
            return f"{visible(event.name)}: {'; '.join(_start_parts(event))}"
        case Stepped():
            return "  ".join([step, *_step_parts(event, state)])
        case Ticked():
            pace = state.seconds_per_step
            return step if pace is None else f"{step}  ({short_duration(pace)} per step)"
        case Validated():
            if is_unvalidated(event):
                return f"{step}  {NO_VALIDATION} ({SET_VALIDATION})"
            return f"{step}  validation {_validation_text(event)}  ({duration(event.seconds)})"
        case Saved() | Noted():
            return f"{step}  {message_text(event)}"
        case Ended():
            return step


def message_text(event: Saved | Noted) -> str:
    """A note or a checkpoint in words, without its step."""
    if isinstance(event, Saved):
        return f"saved {visible(event.folder)} ({event.bytes / 1e6:,.1f} MB, {duration(event.seconds)})"
    return visible(event.text) if event.text.startswith(WARNING) else f"note: {visible(event.text)}"


def sample_line(sample: Sample) -> str:
    """A sample's source and output in one line."""
    source, output = (shorten_to_width(visible(text), SAMPLE_COLUMNS) for text in (sample.source, sample.output))
    return f"{source} → {output or '(nothing)'}"


def closing_lines(event: Ended, state: RunProgress, recipe: str) -> list[str]:
    """What is printed at the end: the reason, the result, the cost, and what to do next."""
    lines = [_reason(event, state)]
    if event.best_step is not None:
        lines.append(_best_model(event, state))
    elif event.reason == "interrupted":
        lines.append("There is no model to use yet: the first validation saves one.")
    unit = "texts" if state.unit == "texts" else "target tokens"
    flops = f"{event.flops:.1e} floating-point operations"
    lines.append(f"{event.tokens:,} {unit} in {duration(event.seconds)} of training, {flops}.")
    if event.skipped:
        lines.append(f"Updates skipped because the loss or a gradient was not finite: {event.skipped:,}.")
    return lines + _next_commands(event, state, recipe)


def usage(started: Started, validated: Validated | None, options: str = "") -> str:
    """One line that uses the model: a command, or Python for a user's module, which commands do not know."""
    if started.module:
        folder = json.dumps(visible(started.out), ensure_ascii=False)
        return f"regard.load({folder}, network={started.module}(...)) in Python"
    verb, text = COMMANDS[started.task], example_text(started, validated)
    return f"regard {verb} {shell_argument(text)} --model {shlex.quote(visible(started.out))}{options}"


def example_text(started: Started, validated: Validated | None) -> str:
    """A short text in one line to try the model with."""
    sources = () if validated is None else (sample.source for sample in validated.samples)
    lines = (source.partition("\n")[0].strip() for source in sources)
    usable = (line for line in lines if line[:1].isalnum() and line == visible(line))
    return min(usable, key=len, default=EXAMPLE_TEXTS[started.task])


def shell_argument(text: str) -> str:
    """A text quoted for a shell, in double quotes where it contains nothing special."""
    return shlex.quote(text) if re.search(r'["$`\\!]', text) else f'"{text}"'


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "example"), plural(2000, "example")
    ('1 example', '2,000 examples')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def short_duration(seconds: float) -> str:
    """A duration that may be less than a second.

    >>> short_duration(0.004)
    '4ms'
    """
    return duration(seconds) if seconds >= 0.1 else f"{1000 * seconds:.0f}ms"


def _start_parts(started: Started) -> list[str]:
    """What is trained, on what, and where."""
    examples = plural(started.examples, "example")
    if started.left_out:
        examples += f" ({started.left_out:,} too long)"
    parts = [f"{started.task}, {started.parameters:,} parameters", examples]
    problems = ", ".join(f"{count:,} {visible(kind)}" for kind, count in started.problems.items() if count)
    if problems:
        parts.append(f"skipped lines: {problems}")
    parts += [visible(started.place), f"to {visible(started.out)}"]
    if started.step:
        parts.append(f"resuming after step {started.step:,}")
    return parts


def _step_parts(event: Stepped, state: RunProgress) -> list[str]:
    parts = [f"loss {event.loss:.3f}", f"lr {event.lr:.1e}", f"{event.tokens_per_second:,.0f} {state.unit}/s"]
    if event.utilisation is not None:
        parts.append(f"{event.utilisation:.0%} of the GPU")
    if state.seconds_left is not None:
        parts.append(f"ETA {duration(state.seconds_left)}")
    return parts


def _validation_text(event: Validated) -> str:
    parts = [f"loss {event.loss:.3f}"]
    if event.score is not None:
        parts.append(f"{event.measure} {event.score:.1f}")
    return "  ".join([*parts, "best" if event.best else f"{event.waited:,} since the best"])


def _reason(event: Ended, state: RunProgress) -> str:
    if _was_finished(event, state):
        reason = "all steps were done" if event.reason == "steps" else "patience had run out"
        return f"Nothing left to do: {reason} before, at step {event.step:,}."
    return {
        "steps": "All steps are done.",
        "patience": "Stopped early: no improvement for train.patience validations.",
        "interrupted": f"Interrupted at step {event.step:,}.",
        "diverged": f"The loss diverged at step {event.step:,}: try a lower train.lr or a longer train.warmup.",
    }[event.reason]


def _was_finished(event: Ended, state: RunProgress) -> bool:
    """Whether a resumed run was finished already."""
    first_step = 0 if state.started is None else state.started.step
    return event.reason in ("steps", "patience") and 0 < first_step == event.step


def _best_model(event: Ended, state: RunProgress) -> str:
    """Which model is in the folder."""
    if state.validated is not None and is_unvalidated(state.validated):
        return f"The model is from step {event.best_step:,}; there was no validation text."
    task = "" if state.started is None else state.started.task
    measure: str | None = {"translation": "BLEU", "classification": "accuracy"}.get(task, "score")
    measure = measure if state.validated is None else state.validated.measure
    score = "" if event.best_score is None else f", {measure} {event.best_score:.1f}"
    loss = "" if event.best_loss is None else f", loss {event.best_loss:.3f}"
    return f"The best model is from step {event.best_step:,}{loss}{score}."


def _next_commands(event: Ended, state: RunProgress, recipe: str) -> list[str]:
    """Commands to resume the run, to continue it with more steps, or to use the model."""
    started = state.started
    if started is None or event.reason == "diverged":
        return []
    resume = f"regard train {shlex.quote(recipe)} --out {shlex.quote(visible(started.out))} --resume"
    if event.reason == "interrupted":
        return [f"{RESUME} {RESUME_MODULE if started.module else resume}"]
    lines = []
    if _was_finished(event, state) and not started.module:
        setting = f"steps={2 * event.step}" if event.reason == "steps" else "patience=0"
        lines.append(f"{CONTINUE} {resume} --set train.{setting}")
    if event.best_step is not None:
        lines.append(f"{USE} {usage(started, state.validated)}")
    return lines
