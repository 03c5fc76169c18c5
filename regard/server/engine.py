"""One thread per model, which decodes what has gathered while it was at work.

Texts that are asked for in the same way are translated together, a few of each request in turn, so that one who sends
many does not hold up one who sends one; nothing waits for company. What a language model writes comes token by token:
all that is being written advances by one token in turn. Whoever has left is forgotten: at once while waiting, at the
next token while decoding (see `regard.decoding.cancellation`).

Nothing that a request does ends the thread: whatever it raises is that request's answer. If the thread ends all the
same, the requests it was working on are refused and another thread takes its place.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Literal, TypeVar

import torch

from regard.decoding.cancellation import Cancelled, cancellable
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.decoding.translator import Translation, in_parts, joined
from regard.server import limits as bounds
from regard.server.http_errors import Refusal
from regard.server.jobs import Answered, Batch, Call, Job, Texts, Waiting, Walk, Writing, gather, owners, walk
from regard.server.memory_release import RELEASE_AFTER_IDLE, RELEASE_EVERY, release_freed_memory
from regard.server.text_generation import Prompt, Written

log = logging.getLogger("regard.serve")
T = TypeVar("T")
State = Literal["ok", "stalled", "failed", "ending"]
"""of a model's thread: it works; it is stuck in one step; it ended too often; the server is shutting down"""
MAX_DEATHS = 3
"""Number of times in a row that a model's thread may end before it is no longer replaced."""


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
        self._called = False
        """whether the last thing done was a call"""
        self._ending = False
        self._deaths = 0
        """threads that have ended in a row, without one request answered between them"""
        self._progress = time.monotonic()
        """when the thread last took a step"""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = self._new_thread()

    @property
    def queued(self) -> int:
        """Texts and prompts that wait."""
        return sum(job.count for job in list(self._waiting))

    @property
    def state(self) -> State:
        """Whether the model can serve requests."""
        if self._ending:
            return "ending"
        if self._deaths > MAX_DEATHS or (self._loop is not None and not self._thread.is_alive()):
            return "failed"
        return "stalled" if self._busy and time.monotonic() - self._progress > self.deadline else "ok"

    @property
    def _busy(self) -> bool:
        return bool(self._at_work or self._waiting or self._walks)

    def start(self) -> None:
        """Begin to work for the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._progress = time.monotonic()
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
        """The best translations of each text; a Refusal if the texts are too long for so wide a beam."""
        if (cost := sum(map(len, texts)) * options.beam) > bounds.SEARCHED:
            raise Refusal(
                400,
                f"{cost // options.beam:,} characters with a beam of {options.beam} are too much work for one request; "
                f"the maximum for this beam is {bounds.SEARCHED // options.beam:,}: send less, or ask for a narrower "
                "beam or fewer alternatives",
            )
        language = self.model.source_language
        parts = [in_parts(text, bounds.PART_CHARACTERS, language) for text in texts]
        every = [part for each in parts for part in each]
        job = Texts(sum(map(len, texts)), asyncio.get_running_loop().create_future(), every, options)
        found: Iterator[list[Translation]] = iter(await self._answered(job) if texts else [])
        return [joined(list(islice(found, len(each))), options.n_best) for each in parts]

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
            if self.state != "ok":
                raise Refusal(503, f"this model cannot serve requests: its thread has {self.state}", 60)
            characters = sum(each.size for each in self._waiting)
            full = self.queued + job.count > bounds.QUEUE or characters + job.size > bounds.QUEUE_CHARACTERS
            if self._waiting and full:
                raise Refusal(429, "too much is waiting for this model already: ask again later", self.patience())
            if not self._busy:
                self._progress = time.monotonic()
            self._waiting.append(job)
            self._open.add(job)
            self._ready.notify()

    def _forget(self, job: "Texts | Call | Writing") -> None:
        job.gone = True
        self._open.discard(job)
        with self._ready, suppress(ValueError):
            self._waiting.remove(job)

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._main, name="regard-engine", daemon=True)

    def _replace_thread(self) -> None:
        """Start another thread in place of one that has ended; refuse what was lost with it."""
        if self._ending:
            return
        with self._ready:
            begun = {job for job in self._open if job not in self._waiting or (isinstance(job, Texts) and job.taken)}
            self._deaths += 1
            lost = self._open.copy() if self._deaths > MAX_DEATHS else begun
            self._waiting = Waiting(job for job in self._waiting if job not in lost)
            self._walks, self._at_work = [], ()
        for job in lost:
            job.refuse(_our_fault())
        if self._deaths > MAX_DEATHS:
            log.critical("a model's thread has ended %d times in a row: it no longer serves requests", self._deaths)
            return
        self._progress = time.monotonic()
        self._thread = self._new_thread()
        self._thread.start()

    # From here on, what the thread does.

    def _main(self) -> None:
        """The thread's whole life. Python ends a thread at the first exception that nobody catches."""
        try:
            if self.threads:
                torch.set_num_threads(self.threads)
            with cancellable(self._nobody_waits):
                self._run()
        except BaseException as error:
            log.critical("a model's thread has ended", exc_info=error)
        finally:
            if not self._ending:
                self._soon(self._replace_thread)

    def _run(self) -> None:
        released, used = time.monotonic(), True  # when memory was last given back; whether there was work since
        while True:
            with self._ready:
                patience = RELEASE_AFTER_IDLE if used else None
                woken = self._ready.wait_for(lambda: self._waiting or self._walks or self._ending, patience)
                if self._ending:
                    return
                self._progress = time.monotonic()
                work = self._next() if woken else None
            used = bool(woken)
            if not woken or self._progress - released > RELEASE_EVERY:
                release_freed_memory()
                released = time.monotonic()
            if isinstance(work, Call):
                self._call(work)
            elif work is not None:
                self._translate(work)
            self._advance()
            self._at_work = ()

    def _nobody_waits(self) -> bool:
        """Whether the work at hand is to be given up; decoding asks before each step."""
        self._progress = time.monotonic()
        return self._ending or (bool(self._at_work) and all(job.gone for job in self._at_work))

    def _next(self) -> "Call | Batch | None":
        """What to do next: a call, or some texts of all jobs that ask in the same way as the first; in turn, where both
        wait. Writing that there is room for begins."""
        for job in [job for job in self._waiting if isinstance(job, Writing)]:
            room = bounds.PLACES - sum(each.places for each in self._walks)
            if job in self._waiting and (not self._walks or job.places <= room):  # not begun with another
                self._waiting.remove(job)
                self._walks.append(walk(self.model, job, self._waiting, room))
        waiting = [job for job in self._waiting if not isinstance(job, Writing)]
        others = (job for job in waiting if isinstance(job, Call) != self._called)
        first = next(others, waiting[0] if waiting else None)
        self._called = isinstance(first, Call)
        if isinstance(first, Call):
            self._waiting.remove(first)
        return gather(first, self._waiting) if isinstance(first, Texts) else first

    def _call(self, job: Call) -> None:
        self._at_work = [job]
        try:
            self._settle([(job, job.work())])
        except Cancelled:
            return
        except BaseException as error:  # a panic of a Rust library is no Exception
            self._refuse(job, error)

    def _translate(self, batch: Batch) -> None:
        """Give each job what it waits for; where one text is at fault, it alone is refused."""
        begun = time.perf_counter()
        self._at_work = jobs = owners(batch)
        texts = [job.texts[i] for job, i in batch]
        try:
            translator = self.model.translator(batch[0][0].options, bounds.BATCH_TOKENS)
            for (job, i), found in zip(batch, translator.translate_all(texts), strict=True):
                job.found[i] = found
        except Cancelled:
            return
        except BaseException as error:
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
            except Cancelled:
                told = None
            except BaseException as error:
                told = None
                for job in each.jobs:
                    self._refuse(job, error)
            if told is None:
                self._walks.remove(each)
            elif told:
                self._deaths = 0
                self._soon(partial(_tell, told))

    def _refuse(self, job: Job, error: BaseException) -> None:
        self._soon(partial(job.refuse, _as_refusal(error)))

    def _settle(self, answers: Sequence[tuple[Answered, Any]]) -> None:
        self._deaths = 0
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


def _our_fault() -> Refusal:
    return Refusal(500, "something went wrong here: the server's log has it")


def _as_refusal(error: BaseException) -> Refusal:
    """A model's refusal is the client's mistake; anything else is ours."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, ValueError):
        return Refusal(400, str(error))
    log.error("decoding went wrong", exc_info=error)
    return _our_fault()
