"""Estimates how long a run on a CPU will take, once its first steps have been timed."""

from regard.formatting import duration
from regard.training.events import DURATION_NOTE

MEASURED_SECONDS = 10.0
"""Seconds of training that the estimate is based on."""
LONG_RUN_SECONDS = 20 * 60
"""Duration from which a run is long enough for a note."""


class DurationEstimate:
    """Times the steps of a process and writes a note, once, if the remaining ones will take long."""

    def __init__(self, steps: int) -> None:
        """`steps` is the number of steps in the complete run."""
        self.steps = steps
        self.start: tuple[int, float] | None = None
        """The step and time from which steps are timed: the first one is slower than the others and not counted."""
        self.is_done = False

    def note(self, step: int, seconds: float) -> str | None:
        """The note, if this is the step after which it is due; `seconds` is the time of training so far."""
        if self.is_done:
            return None
        if self.start is None:
            self.start = step, seconds
            return None
        first_step, first_seconds = self.start
        if seconds - first_seconds < MEASURED_SECONDS:
            return None
        self.is_done = True
        pace = (seconds - first_seconds) / (step - first_step)
        left = (self.steps - step) * pace
        if left < LONG_RUN_SECONDS:
            return None
        step_time = f"{1000 * pace:.0f} ms" if pace < 1 else duration(pace)
        return (
            f"{DURATION_NOTE} {step_time} per step on the CPU, the remaining {self.steps - step:,} steps will take "
            f"{duration(left)}, plus validations. To shorten the run, stop it with Ctrl-C and start one in another "
            "folder with fewer steps (train.steps), smaller batches (train.batch_tokens) or a smaller model "
            "(model.d_model=128, model.layers=2, model.d_ff=512), or use a GPU"
        )
