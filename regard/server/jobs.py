"""What waits for a model, and what of it is done next."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.decoding.translator import Translation
from regard.server import limits as bounds
from regard.server.http_errors import Refusal
from regard.server.text_generation import Prompt, Written, write


@dataclass(eq=False)
class Job:
    """Work that someone waits for."""

    size: int
    """characters"""
    gone: bool = field(default=False, init=False)
    """whether nobody waits any more; set in the event loop, read by the thread"""

    @property
    def count(self) -> int:
        """How much of the line it takes: the texts that are left of it."""
        return 1

    def refuse(self, refusal: Refusal) -> None:
        """Tell whoever waits that nothing will come; called in the event loop."""
        raise NotImplementedError


@dataclass(eq=False)
class Answered(Job):
    """What has one answer."""

    answer: "asyncio.Future[Any]"

    def refuse(self, refusal: Refusal) -> None:
        """In place of the answer."""
        if not self.answer.done():
            self.answer.set_exception(refusal)


@dataclass(eq=False)
class Texts(Answered):
    """Texts to be translated in one way."""

    texts: Sequence[str]
    options: Decoding
    taken: int = 0
    """how many of them have been given to the model"""
    found: dict[int, list[Translation]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Texts that have not been given to the model."""
        return len(self.texts) - self.taken


@dataclass(eq=False)
class Call(Answered):
    """Anything else that needs the model, alone."""

    work: Callable[[], Any]


@dataclass(eq=False)
class Writing(Job):
    """Prompts to be continued in one way."""

    prompts: Sequence[Prompt]
    options: Decoding
    told: "asyncio.Queue[Written | Exception]"

    @property
    def count(self) -> int:
        """Prompts."""
        return len(self.prompts)

    @property
    def places(self) -> int:
        """Tokens that the cache must hold."""
        return sum(len(prompt.ids) + prompt.limit for prompt in self.prompts)

    def refuse(self, refusal: Refusal) -> None:
        """In place of the next piece."""
        self.told.put_nowait(refusal)


Waiting = deque[Texts | Call | Writing]
Batch = list[tuple[Texts, int]]
"""texts that are translated together: whose, and which of theirs"""


def gather(first: Texts, waiting: Waiting) -> Batch:
    """Some texts of all who wait and ask in the same way, in turn. Jobs of which texts are left go to the end."""
    jobs = [job for job in waiting if isinstance(job, Texts) and job.options == first.options]
    batch: Batch = []
    characters = 0
    while open_ := [job for job in jobs if job.count]:
        for job in open_:
            characters += len(job.texts[job.taken])
            if batch and (characters > bounds.BATCH_CHARACTERS or len(batch) >= bounds.BATCH):
                break
            batch.append((job, job.taken))
            job.taken += 1
        else:
            continue
        break
    for job in owners(batch):
        waiting.remove(job)
        if job.count:
            waiting.append(job)
    return batch


def owners(batch: Batch) -> list[Texts]:
    """Whose texts these are, each once."""
    return list({job: None for job, _ in batch})


@dataclass(eq=False)
class Walk:
    """Jobs that are written together, and the tokens that come of them."""

    jobs: list[Writing]
    steps: Iterator[list[tuple[Writing, Written]]]

    @property
    def places(self) -> int:
        """Tokens that the cache holds."""
        return sum(job.places for job in self.jobs)


def walk(model: Model, first: Writing, waiting: Waiting, room: int) -> Walk:
    """Writing that begins with this job, and with all in the line that ask in the same way and have room."""
    jobs, places = [first], first.places
    for job in [each for each in waiting if isinstance(each, Writing) and each.options == first.options]:
        if places + job.places <= room:
            waiting.remove(job)
            jobs.append(job)
            places += job.places
    return Walk(jobs, _steps(model, jobs))


def _steps(model: Model, jobs: list[Writing]) -> Iterator[list[tuple[Writing, Written]]]:
    """What each step of writing these jobs together gives them."""
    rows = [(job, row) for job in jobs for row in range(len(job.prompts))]
    prompts = [job.prompts[row] for job, row in rows]
    for pieces in write(model, prompts, jobs[0].options):
        yield [(rows[piece.row][0], piece.of(rows[piece.row][1])) for piece in pieces]
