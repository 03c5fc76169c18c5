"""One thread per model, which decodes what has gathered while it was at work.

Texts that are asked for in the same way are translated together, a few of each request in turn, so that one who sends
many does not hold up one who sends one; nothing waits for company. What a language model writes comes token by token:
all that is being written advances by one token in turn. Whoever has left is forgotten: at once while waiting, at the
next token while decoding.
"""

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch

from regard.api import Model
from regard.decode.loops import Loops
from regard.decode.options import Decoding
from regard.decode.translate import Translation, Translator
from regard.view.serve import bounds
from regard.view.serve.errors import Refusal
from regard.view.serve.writing import Prompt, Written, write

log = logging.getLogger("regard.serve")
T = TypeVar("T")


class Left(Exception):  # noqa: N818  # nothing went wrong
    """Nobody waits for this any more."""


@dataclass(eq=False)
class Job:
    """Work that someone waits for."""

    size: int
    """characters"""
    gone: bool = field(default=False, init=False)
    """whether nobody waits any more; set in the event loop, read by the thread"""


@dataclass(eq=False)
class Texts(Job):
    """Texts to be translated in one way."""

    texts: Sequence[str]
    options: Decoding
    answer: "asyncio.Future[list[list[Translation]]]"
    taken: int = 0
    """how many of them have been given to the model"""
    found: dict[int, list[Translation]] = field(default_factory=dict)


@dataclass(eq=False)
class Call(Job):
    """Anything else that needs the model, alone."""

    work: Callable[[], Any]
    answer: "asyncio.Future[Any]"


@dataclass(eq=False)
class Writing(Job):
    """Prompts to be continued in one way."""

    prompts: Sequence[Prompt]
    options: Decoding
    told: "asyncio.Queue[Written | Exception]"

    @property
    def places(self) -> int:
        """Tokens that the cache must hold."""
        return sum(len(prompt.ids) + prompt.limit for prompt in self.prompts)


@dataclass(eq=False)
class Walk:
    """Jobs that are written together, and the tokens that come of them."""

    jobs: list[Writing]
    steps: Iterator[list[tuple[Writing, Written]]]


class Engine:
    """A model's thread, and what waits for it. All methods but the thread's own are called in the event loop."""

    def __init__(self, model: Model, threads: int = 0, deadline: float = bounds.DEADLINE) -> None:
        self.model, self.threads, self.deadline = model, threads, deadline
        self.pace = 1_000.0
        """characters a second, as of late"""
        self._ready = threading.Condition()
        self._waiting: deque[Texts | Call | Writing] = deque()
        self._walks: list[Walk] = []
        self._at_work: Sequence[Job] = ()
        self._ending = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="regard-engine", daemon=True)
        if not isinstance(model.network.loops, Loops):  # steps that are recorded cannot ask
            network: Any = model.network
            network.step = self._asking(network.step)

    @property
    def queued(self) -> int:
        """Texts and prompts that wait."""
        return sum(_count(job) for job in list(self._waiting))

    def start(self) -> None:
        """Begin to work for the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """End at the next token; what waits gets no answer but a refusal."""
        with self._ready:
            self._ending = True
            self._ready.notify()
        self._thread.join(5)

    async def translate(self, texts: Sequence[str], options: Decoding) -> list[list[Translation]]:
        """The best translations of each text."""
        loop = asyncio.get_running_loop()
        job = Texts(sum(map(len, texts)), texts, options, loop.create_future())
        return await self._answered(job, job.answer) if texts else []

    async def call(self, size: int, work: Callable[[], T]) -> T:
        """What the work gives, done in the model's thread."""
        job = Call(size, work, asyncio.get_running_loop().create_future())
        answer: T = await self._answered(job, job.answer)
        return answer

    async def write(self, size: int, prompts: Sequence[Prompt], options: Decoding) -> AsyncIterator[Written]:
        """What a language model says behind each prompt, piece by piece; the last piece of each says why it ended."""
        job = Writing(size, prompts, options, asyncio.Queue())
        self._wait_in_line(job)
        loop, left = asyncio.get_running_loop(), len(prompts)
        until = loop.time() + self.deadline
        try:
            while left:
                async with asyncio.timeout_at(until):  # not around what is yielded: its reader has a time of its own
                    piece = await job.told.get()
                if isinstance(piece, Exception):
                    raise piece
                left -= piece.reason is not None
                yield piece
        except TimeoutError:
            raise self._late() from None
        finally:
            self._forget(job)

    async def _answered(self, job: "Texts | Call", answer: "asyncio.Future[Any]") -> Any:
        self._wait_in_line(job)
        try:
            async with asyncio.timeout(self.deadline):
                return await answer
        except TimeoutError:
            raise self._late() from None
        finally:
            self._forget(job)

    def _late(self) -> Refusal:
        return Refusal(503, f"this took longer than {self.deadline:g} s: ask for less, or later", self.patience())

    def patience(self) -> int:
        """Seconds after which it may be worth asking again."""
        return min(60, max(1, math.ceil(sum(job.size for job in list(self._waiting)) / self.pace)))

    def _wait_in_line(self, job: "Texts | Call | Writing") -> None:
        with self._ready:
            if self._ending:
                raise Refusal(503, "the server is ending", 5)
            characters = sum(each.size for each in self._waiting)
            full = self.queued + _count(job) > bounds.QUEUE or characters + job.size > bounds.QUEUE_CHARACTERS
            if self._waiting and full:
                raise Refusal(429, "too much is waiting for this model already: ask again later", self.patience())
            self._waiting.append(job)
            self._ready.notify()

    def _forget(self, job: "Texts | Call | Writing") -> None:
        job.gone = True
        with self._ready, suppress(ValueError):
            self._waiting.remove(job)

    # From here on, what the thread does.

    def _run(self) -> None:
        if self.threads:
            torch.set_num_threads(self.threads)
        while True:
            with self._ready:
                self._ready.wait_for(lambda: self._waiting or self._walks or self._ending)
                if self._ending:
                    break
                work = self._next()
            if isinstance(work, Call):
                self._call(work)
            elif isinstance(work, list):
                self._translate(work)
            self._advance()
        for job in [*self._waiting, *(job for walk in self._walks for job in walk.jobs)]:
            self._refuse(job, Refusal(503, "the server is ending", 5))

    def _call(self, job: Call) -> None:
        self._at_work = [job]
        try:
            self._settle([(job.answer, job.work())])
        except Left:
            return
        except Exception as error:
            self._refuse(job, error)

    def _next(self) -> "Call | list[tuple[Texts, int]] | None":
        """What to do next: a call, or some texts of all jobs that ask in the same way as the first. Writing that there
        is room for begins. Jobs of which texts are left go to the end of the line."""
        for job in [job for job in self._waiting if isinstance(job, Writing)]:
            room = not self._walks or self._places() + job.places <= bounds.PLACES
            if room and job in self._waiting:  # not begun with another
                self._waiting.remove(job)
                self._begin(job)
        first = next((job for job in self._waiting if not isinstance(job, Writing)), None)
        if isinstance(first, Call):
            self._waiting.remove(first)
        return self._gathered(first) if isinstance(first, Texts) else first

    def _gathered(self, first: Texts) -> list[tuple[Texts, int]]:
        jobs = [job for job in self._waiting if isinstance(job, Texts) and job.options == first.options]
        batch: list[tuple[Texts, int]] = []
        characters = 0
        while any(job.taken < len(job.texts) for job in jobs):
            for job in jobs:
                if job.taken < len(job.texts):
                    characters += len(job.texts[job.taken])
                    if batch and (characters > bounds.BATCH_CHARACTERS or len(batch) >= bounds.BATCH):
                        break
                    batch.append((job, job.taken))
                    job.taken += 1
            else:
                continue
            break
        for job in {job: None for job, _ in batch}:
            self._waiting.remove(job)
            if job.taken < len(job.texts):
                self._waiting.append(job)
        return batch

    def _translate(self, batch: list[tuple[Texts, int]]) -> None:
        """Give each job what it waits for; where one text is at fault, it alone is refused."""
        begun = time.perf_counter()
        self._at_work = list({job: None for job, _ in batch})
        texts = [job.texts[i] for job, i in batch]
        try:
            translator = Translator(self.model, batch[0][0].options, bounds.BATCH_CHARACTERS)
            for (job, i), found in zip(batch, translator.all(texts), strict=True):
                job.found[i] = found
        except Left:
            return
        except Exception as error:
            if len(batch) > 1:
                for one in batch:
                    self._translate([one])
            else:
                self._refuse(batch[0][0], error)
            return
        done = [job for job in self._at_work if isinstance(job, Texts) and len(job.found) == len(job.texts)]
        self._settle([(job.answer, [job.found[i] for i in range(len(job.texts))]) for job in done])
        self.pace += 0.2 * (sum(map(len, texts)) / (time.perf_counter() - begun) - self.pace)

    def _begin(self, job: Writing) -> None:
        """Start writing, together with all that waits to be written in the same way."""
        alike = [each for each in self._waiting if isinstance(each, Writing) and each.options == job.options]
        jobs, places = [job], job.places
        for each in alike:
            if self._places() + places + each.places <= bounds.PLACES:
                self._waiting.remove(each)
                jobs.append(each)
                places += each.places
        self._walks.append(Walk(jobs, _steps(self.model, jobs)))

    def _places(self) -> int:
        return sum(job.places for walk in self._walks for job in walk.jobs)

    def _advance(self) -> None:
        """One token further in all that is being written."""
        for walk in list(self._walks):
            self._at_work = walk.jobs
            try:
                told = next(walk.steps, None)
            except Left:
                told = None
            except Exception as error:
                told = None
                for job in walk.jobs:
                    self._refuse(job, error)
            if told is None:
                self._walks.remove(walk)
            elif told:
                self._soon(partial(_tell, told))

    def _asking(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """A network's step that goes no further when nobody waits."""

        def asking(*args: Any, **options: Any) -> Any:
            if threading.current_thread() is self._thread and (self._ending or all(job.gone for job in self._at_work)):
                raise Left
            return step(*args, **options)

        return asking

    def _refuse(self, job: Job, error: Exception) -> None:
        refusal = _as_refusal(error)
        if isinstance(job, Writing):
            self._soon(lambda: job.told.put_nowait(refusal))
        elif isinstance(job, Texts | Call):
            self._soon(lambda: None if job.answer.done() else job.answer.set_exception(refusal))

    def _settle(self, answers: "list[tuple[asyncio.Future[Any], Any]]") -> None:
        self._soon(partial(_answer, answers))

    def _soon(self, work: Callable[[], object]) -> None:
        """Have the event loop do it, if there still is one."""
        assert self._loop is not None
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(work)


def _steps(model: Model, jobs: list[Writing]) -> Iterator[list[tuple[Writing, Written]]]:
    """What each step of writing these jobs together gives them."""
    owners = [(job, row) for job in jobs for row in range(len(job.prompts))]
    prompts = [job.prompts[row] for job, row in owners]
    for pieces in write(model, prompts, jobs[0].options):
        yield [(owners[piece.row][0], piece.of(owners[piece.row][1])) for piece in pieces]


def _tell(told: list[tuple[Writing, Written]]) -> None:
    for job, piece in told:
        job.told.put_nowait(piece)


def _answer(answers: "list[tuple[asyncio.Future[Any], Any]]") -> None:
    for answer, value in answers:
        if not answer.done():
            answer.set_result(value)


def _as_refusal(error: Exception) -> Refusal:
    """A model's refusal is the client's mistake; anything else is ours."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, ValueError):
        return Refusal(400, str(error))
    log.error("decoding went wrong", exc_info=error)
    return Refusal(500, "something went wrong here: the server's log has it")


def _count(job: Job) -> int:
    if isinstance(job, Texts):
        return len(job.texts) - job.taken
    return len(job.prompts) if isinstance(job, Writing) else 1
