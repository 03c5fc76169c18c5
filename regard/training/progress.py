"""How far a run has come: the counters a checkpoint stores next to the weights and the optimizer's moments."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from regard.config import check_type
from regard.errors import RegardError
from regard.training.prefetch import PrefetchedBatch

JSON_KEYS = {
    "next_batch": "index",
    "consecutive_skips": "in_a_row",
    "validations_since_best": "waited",
    "averaged_steps": "kept",
    "unlogged_loss": "loss",
    "unlogged_targets": "counted",
    "text_digest": "text",
}
"""Keys of `training.json` that differ from the field's name. Checkpoints of earlier versions use these keys."""


@dataclass
class Progress:
    """The counters of a run."""

    step: int = 0
    epoch: int = 0
    shard: int = 0
    """Part of the epoch. Only a large corpus has more than one."""
    shards: int = 1
    """Number of parts of an epoch."""
    next_batch: int = 0
    """Index of the next batch within the shard."""
    tokens: int = 0
    """Number of target tokens seen so far."""
    seconds: float = 0.0
    """Seconds of training so far, without validation and saving."""
    flops: float = 0.0
    skipped: int = 0
    """Number of updates skipped because the loss or a gradient was not finite."""
    consecutive_skips: int = 0
    validations_since_best: int = 0
    best_step: int | None = None
    best_loss: float | None = None
    best_score: float | None = None
    averaged_steps: list[int] = field(default_factory=list)
    """Steps whose weights are kept for averaging."""
    unlogged_loss: float = 0.0
    """Sum of the losses since the last line of the log."""
    unlogged_targets: float = 0.0
    """Number of targets that `unlogged_loss` covers."""
    text_digest: str = ""
    """Digest of the training and validation text."""
    packed: bool = False
    """Whether sentences share rows. `epoch` and `next_batch` count batches of this kind."""

    def advance(self, last: PrefetchedBatch, targets: float, flops: float) -> None:
        """Count one step that ends with the batch `last`."""
        self.step += 1
        self.epoch, self.shard, self.next_batch = last.epoch, last.shard, last.next_batch
        self.tokens += int(targets)
        self.flops += flops

    def to_json(self) -> dict[str, Any]:
        """The content of `training.json`."""
        return {JSON_KEYS.get(name, name): value for name, value in vars(self).items()}

    @classmethod
    def from_json(cls, values: dict[str, Any], path: Path) -> "Progress":
        """Read the content of `training.json`. Unknown keys are ignored and missing ones take their defaults.

        Raises a RegardError, which names `path`, if the step is missing or a value has the wrong type.
        """
        hints = get_type_hints(cls)
        keys = {JSON_KEYS.get(name, name): name for name in hints}
        known = {key: value for key, value in values.items() if key in keys}
        try:
            for key, value in ({"step": None} | known).items():
                check_type(key, value, list if keys[key] == "averaged_steps" else hints[keys[key]])
            for step in known.get(JSON_KEYS["averaged_steps"], ()):
                check_type(JSON_KEYS["averaged_steps"], step, int)
        except ValueError as error:
            raise RegardError(f"no run can be resumed from {path}: {error}") from None
        return cls(**{keys[key]: value for key, value in known.items()})
