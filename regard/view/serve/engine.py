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
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import torch

from regard.api import Model
from regard.decode.loops import Loops
from regard.decode.options import Decoding
from regard.decode.translate import Translation, Translator
from regard.view.serve import bounds
from regard.view.serve.errors import Refusal
from regard.view.serve.jobs import Answered, Batch, Call, Job, Texts, Waiting, Walk, Writing, gather, owners, walk
from regard.view.serve.writing import Prompt, Written

log = logging.getLogger("regard.serve")
T = TypeVar("T")


class Left(Exception):  # noqa: N818  # nothing went wrong
    """Nobody waits for this any more."""


class Engine:
    """A model's thread, and what waits for it. All methods but the thread's own are called in the event loop."""

    def __init__(self, model: Model, threads: int = 0, deadline: float = bounds.DEADLINE) -> None:
        self.model, self.threads, self.deadline = model, threads, deadline
        self.pace = 1_000.0
        """characters a second, as of late"""
        self._ready = threading.Condition()
        self._waiting: Waiting = Waiting()
        self._walks: list[Walk] = []
        self._open: set[Job] = set()
        """all that someone waits for, at work or not"""
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
        return sum(job.count for job in list(self._waiting))

    def start(self) -> None:
        """Begin to work for the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def end(self) -> None:
        """End at the next token; whoever waits is told at once."""
        with self._ready:
            self._ending = True
            self._ready.notify()
        for job in list(self._open):
            job.refuse(_ending())

    def join(self) -> None:
        """Wait for the thread that was told to end, for a moment: it may be in the middle of a long step."""
        self._thread.join(2)

    async def translate(self, texts: Sequence[str], options: Decoding) -> list[list[Translation]]:
        """The best translations of each text."""
        job = Texts(sum(map(len, texts)), asyncio.get_running_loop().create_future(), texts, options)
        return await self._answered(job) if texts else []

    async def call(self, size: int, work: Callable[[], T]) -> T:
        """What the work gives, done in the model's thread."""
        answer: T = await self._answered(Call(size, asyncio.get_running_loop().create_future(), work))
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

    async def _answered(self, job: "Texts | Call") -> Any:
        self._wait_in_line(job)
        try:
            async with asyncio.timeout(self.deadline):
                return await job.answer
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
                raise _ending()
            characters = sum(each.size for each in self._waiting)
            full = self.queued + job.count > bounds.QUEUE or characters + job.size > bounds.QUEUE_CHARACTERS
            if self._waiting and full:
                raise Refusal(429, "too much is waiting for this model already: ask again later", self.patience())
            self._waiting.append(job)
            self._open.add(job)
            self._ready.notify()

    def _forget(self, job: "Texts | Call | Writing") -> None:
        job.gone = True
        self._open.discard(job)
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
                    return
                work = self._next()
            if isinstance(work, Call):
                self._call(work)
            elif work is not None:
                self._translate(work)
            self._advance()

    def _next(self) -> "Call | Batch | None":
        """What to do next: a call, or some texts of all jobs that ask in the same way as the first. Writing that there
        is room for begins."""
        for job in [job for job in self._waiting if isinstance(job, Writing)]:
            room = bounds.PLACES - sum(each.places for each in self._walks)
            if job in self._waiting and (not self._walks or job.places <= room):  # not begun with another
                self._waiting.remove(job)
                self._walks.append(walk(self.model, job, self._waiting, room))
        first = next((job for job in self._waiting if not isinstance(job, Writing)), None)
        if isinstance(first, Call):
            self._waiting.remove(first)
        return gather(first, self._waiting) if isinstance(first, Texts) else first

    def _call(self, job: Call) -> None:
        self._at_work = [job]
        try:
            self._settle([(job, job.work())])
        except Left:
            return
        except Exception as error:
            self._refuse(job, error)

    def _translate(self, batch: Batch) -> None:
        """Give each job what it waits for; where one text is at fault, it alone is refused."""
        begun = time.perf_counter()
        self._at_work = jobs = owners(batch)
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
        done = [job for job in jobs if len(job.found) == len(job.texts)]
        self._settle([(job, [job.found[i] for i in range(len(job.texts))]) for job in done])
        self.pace += 0.2 * (sum(map(len, texts)) / (time.perf_counter() - begun) - self.pace)

    def _advance(self) -> None:
        """One token further in all that is being written."""
        for each in list(self._walks):
            self._at_work = each.jobs
            try:
                told = next(each.steps, None)
            except Left:
                told = None
            except Exception as error:
                told = None
                for job in each.jobs:
                    self._refuse(job, error)
            if told is None:
                self._walks.remove(each)
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
        self._soon(partial(job.refuse, _as_refusal(error)))

    def _settle(self, answers: Sequence[tuple[Answered, Any]]) -> None:
        for job, value in answers:  # each by itself: between them the event loop hears others
            self._soon(partial(_answer, job, value))

    def _soon(self, work: Callable[[], object]) -> None:
        """Have the event loop do it, if there still is one."""
        assert self._loop is not None
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(work)


def _tell(told: list[tuple[Writing, Written]]) -> None:
    for job, piece in told:
        job.told.put_nowait(piece)


def _answer(job: Answered, value: Any) -> None:
    if not job.answer.done():
        job.answer.set_result(value)


def _ending() -> Refusal:
    return Refusal(503, "the server is ending", 5)


def _as_refusal(error: Exception) -> Refusal:
    """A model's refusal is the client's mistake; anything else is ours."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, ValueError):
        return Refusal(400, str(error))
    log.error("decoding went wrong", exc_info=error)
    return Refusal(500, "something went wrong here: the server's log has it")
