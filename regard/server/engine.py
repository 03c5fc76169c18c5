"""The engine: one thread per model that processes queued requests in batches.

Texts with the same options are translated (or classified, embedded …) together, a few from each request, so that a
large request does not delay small ones; a batch never waits to fill up. Generation is streamed: every running
generation advances by one token per round. When a client disconnects, its queued work is dropped at once and its
running work at the next token or batch (see `regard.decoding.cancellation`).

A request cannot end the thread: an exception becomes the request's error response. If the thread ends nevertheless,
the requests it was working on fail and a new thread replaces it.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import Any, Literal, TypeVar

import torch

from regard.decoding.cancellation import Cancelled, cancellable
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.decoding.translator import Translation, join_translations, split_into_parts
from regard.errors import ModelError, RegardError
from regard.server import limits
from regard.server.http_errors import INTERNAL_ERROR, HttpError, to_http_error
from regard.server.jobs import (
    EngineJob,
    FunctionJob,
    GenerationBatch,
    GenerationJob,
    JobQueue,
    ResultJob,
    TextBatch,
    TextJob,
    jobs_in,
    start_generation,
    take_text_batch,
)
from regard.server.memory_release import RELEASE_AFTER_IDLE, RELEASE_EVERY, release_freed_memory
from regard.server.text_generation import GeneratedToken, GenerationPrompt

log = logging.getLogger("regard.serve")
T = TypeVar("T")
EngineState = Literal["ok", "stalled", "failed", "ending"]
"""State of a model's thread: working, stuck in one step, failed too often, or shutting down."""
MAX_THREAD_FAILURES = 3
"""Maximum number of consecutive failures of a model's thread. After one more it is not replaced."""
MAX_RETRY_SECONDS = 60
"""Maximum value of a Retry-After header."""


class Engine:
    """A model's thread and its queue. All methods except the thread's own are called in the event loop."""

    def __init__(
        self, model: Model | None, threads: int = 0, timeout_seconds: float = limits.REQUEST_TIMEOUT_SECONDS
    ) -> None:
        """`model` is None for a thread that only calls functions."""
        self._model, self.threads, self.timeout_seconds = model, threads, timeout_seconds
        self.characters_per_second = 1_000.0
        """Recent speed of answering texts."""
        self._wakeup = threading.Condition()
        self._queue: JobQueue = JobQueue()
        self._generations: list[GenerationBatch] = []
        self._open_jobs: set[EngineJob] = set()
        """Jobs that a client waits for, queued or running."""
        self._running: Sequence[EngineJob] = ()
        self._ran_function = False
        """Whether the last job was a `FunctionJob`."""
        self._stopping = False
        self._failures = 0
        """Number of consecutive thread failures without a successful request between them."""
        self._last_progress = time.monotonic()
        """When the thread last made a step."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = self._new_thread()

    @property
    def model(self) -> Model:
        """The model that translates and generates."""
        assert self._model is not None
        return self._model

    @property
    def queued(self) -> int:
        """Number of queued texts and prompts."""
        return sum(job.pending for job in list(self._queue))

    @property
    def state(self) -> EngineState:
        """Whether the model can serve requests."""
        if self._stopping:
            return "ending"
        if self._failures > MAX_THREAD_FAILURES or (self._loop is not None and not self._thread.is_alive()):
            return "failed"
        return "stalled" if self._busy and time.monotonic() - self._last_progress > self.timeout_seconds else "ok"

    @property
    def _busy(self) -> bool:
        return bool(self._running or self._queue or self._generations)

    def start(self) -> None:
        """Start the thread. Must be called in the event loop that will await the results."""
        self._loop = asyncio.get_running_loop()
        self._last_progress = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread at the next token. All open jobs fail at once."""
        with self._wakeup:
            self._stopping = True
            self._wakeup.notify()
        for job in list(self._open_jobs):
            job.fail(_shutting_down())

    def join(self) -> None:
        """Wait up to 2 s for the stopped thread, which may be in the middle of a long step."""
        self._thread.join(2)

    async def translate(self, texts: Sequence[str], options: Decoding) -> list[list[Translation]]:
        """The best translations of each text. An HttpError if the texts are too long for this beam."""
        characters = sum(map(len, texts))
        if characters * options.beam > limits.MAX_BEAM_CHARACTERS:
            raise HttpError(
                400,
                f"{characters:,} characters with a beam of {options.beam} are too much work for one request; the "
                f"maximum for this beam is {limits.MAX_BEAM_CHARACTERS // options.beam:,}: send less text, or request "
                "a narrower beam or fewer alternatives",
            )
        language = self.model.source_language
        parts_of_texts = [split_into_parts(text, limits.SPLIT_CHARACTERS, language) for text in texts]
        parts = list(chain.from_iterable(parts_of_texts))
        answers = self.answer(parts, options, partial(self._translate, options)) if texts else None
        translations: Iterator[list[Translation]] = iter([] if answers is None else await answers)
        return [join_translations(list(islice(translations, len(parts))), options.n_best) for parts in parts_of_texts]

    async def answer(
        self, texts: Sequence[str], key: Hashable, answer: Callable[[list[str]], Sequence[T]], numbered: bool = False
    ) -> list[T]:
        """The answer to each text. The function runs in the model's thread, with texts of all requests of this key.

        With `numbered`, an error names the text at fault by its number, if there are several.
        """
        future = asyncio.get_running_loop().create_future()
        answers: list[T] = await self._result(TextJob(sum(map(len, texts)), future, texts, key, answer, numbered))
        return answers

    async def call(self, size: int, function: Callable[[], T]) -> T:
        """The result of the function, which runs in the model's thread. `size` is its weight in the queue."""
        result: T = await self._result(FunctionJob(size, asyncio.get_running_loop().create_future(), function))
        return result

    async def generate(
        self, size: int, prompts: Sequence[GenerationPrompt], options: Decoding
    ) -> AsyncIterator[GeneratedToken]:
        """The tokens generated for all prompts, in the order of generation."""
        job = GenerationJob(size, prompts, options, asyncio.Queue())
        self._enqueue(job)
        loop, unfinished = asyncio.get_running_loop(), len(prompts)
        deadline = loop.time() + self.timeout_seconds
        try:
            while unfinished:
                async with asyncio.timeout_at(deadline):  # not around `yield`: the consumer's time does not count
                    token = await job.results.get()
                if isinstance(token, Exception):
                    raise token
                if token.finish_reason is not None:
                    unfinished -= 1
                yield token
        except TimeoutError:
            raise self._timed_out() from None
        finally:
            self._forget(job)

    async def _result(self, job: "TextJob | FunctionJob") -> Any:
        self._enqueue(job)
        try:
            async with asyncio.timeout(self.timeout_seconds):
                return await job.result
        except TimeoutError:
            raise self._timed_out() from None
        finally:
            self._forget(job)

    def _timed_out(self) -> HttpError:
        message = f"the request took longer than {self.timeout_seconds:g} s: send a smaller request, or try again later"
        return HttpError(503, message, self.retry_seconds())

    def retry_seconds(self) -> int:
        """Number of seconds after which a rejected client should try again: the time to process the queue."""
        seconds = math.ceil(sum(job.size for job in list(self._queue)) / self.characters_per_second)
        return min(MAX_RETRY_SECONDS, max(1, seconds))

    def _enqueue(self, job: "TextJob | FunctionJob | GenerationJob") -> None:
        with self._wakeup:
            if self._stopping:
                raise _shutting_down()
            if self.state != "ok":
                raise HttpError(503, f"this model cannot serve requests: its thread has {self.state}", 60)
            characters = sum(queued.size for queued in self._queue) + job.size
            texts = self.queued + job.pending
            is_full = texts > limits.MAX_QUEUED_TEXTS or characters > limits.MAX_QUEUED_CHARACTERS
            if self._queue and is_full:
                raise HttpError(429, "this model's queue is full: try again later", self.retry_seconds())
            if not self._busy:
                self._last_progress = time.monotonic()
            self._queue.append(job)
            self._open_jobs.add(job)
            self._wakeup.notify()

    def _forget(self, job: "TextJob | FunctionJob | GenerationJob") -> None:
        job.abandoned = True
        self._open_jobs.discard(job)
        with self._wakeup, suppress(ValueError):
            self._queue.remove(job)

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._main, name="regard-engine", daemon=True)

    def _replace_thread(self) -> None:
        """Start a new thread after one has ended, and fail the jobs that it was working on."""
        if self._stopping:
            return
        with self._wakeup:
            self._failures += 1
            is_final = self._failures > MAX_THREAD_FAILURES
            lost = {job for job in self._open_jobs if is_final or self._has_started(job)}
            self._queue = JobQueue(job for job in self._queue if job not in lost)
            self._generations, self._running = [], ()
        for job in lost:
            job.fail(HttpError(500, INTERNAL_ERROR))
        if is_final:
            log.critical("a model's thread has failed %d times in a row: it no longer serves requests", self._failures)
            return
        self._last_progress = time.monotonic()
        self._thread = self._new_thread()
        self._thread.start()

    def _has_started(self, job: EngineJob) -> bool:
        return job not in self._queue or (isinstance(job, TextJob) and job.started > 0)

    # The methods below run in the model's thread.

    def _main(self) -> None:
        """The thread's main function. It catches everything, since an uncaught exception would end the thread."""
        try:
            if self.threads:
                torch.set_num_threads(self.threads)
            with cancellable(self._should_cancel):
                self._run()
        except BaseException as error:
            log.critical("a model's thread has failed", exc_info=error)
        finally:
            if not self._stopping:
                self._call_in_loop(self._replace_thread)

    def _run(self) -> None:
        last_release, was_used = time.monotonic(), True
        while True:
            with self._wakeup:
                timeout = RELEASE_AFTER_IDLE if was_used else None
                has_work = self._wakeup.wait_for(lambda: self._queue or self._generations or self._stopping, timeout)
                if self._stopping:
                    return
                self._last_progress = time.monotonic()
                work = self._next_work() if has_work else None
            was_used = bool(has_work)
            if not has_work or self._last_progress - last_release > RELEASE_EVERY:
                release_freed_memory()
                last_release = time.monotonic()
            if isinstance(work, FunctionJob):
                self._run_function(work)
            elif work is not None:
                self._answer_batch(work)
            self._advance_generations()
            self._running = ()

    def _should_cancel(self) -> bool:
        """Whether the current work is no longer needed. Decoding checks this before each step."""
        self._last_progress = time.monotonic()
        return self._stopping or (bool(self._running) and all(job.abandoned for job in self._running))

    def _next_work(self) -> "FunctionJob | TextBatch | None":
        """The next function or batch of texts, alternating if both are queued. Generations that fit are started."""
        for job in [job for job in self._queue if isinstance(job, GenerationJob)]:
            room = limits.MAX_CACHE_TOKENS - sum(batch.cache_tokens for batch in self._generations)
            fits = not self._generations or job.cache_tokens <= room
            if job in self._queue and fits:  # it may have been started together with another
                self._queue.remove(job)
                self._generations.append(start_generation(self.model, job, self._queue, room))
        candidates = [job for job in self._queue if not isinstance(job, GenerationJob)]
        other_kind = (job for job in candidates if isinstance(job, FunctionJob) != self._ran_function)
        first = next(other_kind, candidates[0] if candidates else None)
        self._ran_function = isinstance(first, FunctionJob)
        if isinstance(first, FunctionJob):
            self._queue.remove(first)
        return take_text_batch(first, self._queue) if isinstance(first, TextJob) else first

    def _run_function(self, job: FunctionJob) -> None:
        self._running = [job]
        try:
            self._succeed([(job, job.function())])
        except Cancelled:
            return
        except BaseException as error:  # a panic in a Rust library is not an Exception
            self._fail([job], error)

    def _translate(self, options: Decoding, texts: list[str]) -> list[list[Translation]]:
        return self.model.translator(options, limits.MAX_BATCH_TOKENS).translate_all(texts)

    def _answer_batch(self, batch: TextBatch) -> None:
        """Answer a batch. If it fails, each text is retried on its own, so that only the one at fault gets an error."""
        started = time.perf_counter()
        self._running = jobs = jobs_in(batch)
        texts = [job.texts[i] for job, i in batch]
        try:
            for (job, i), answer in zip(batch, batch[0][0].answer(texts), strict=True):
                job.answers[i] = answer
        except Cancelled:
            return
        except BaseException as error:
            if len(batch) > 1:
                for item in batch:
                    self._answer_batch([item])
            else:
                self._fail(jobs, _name_text(error, *batch[0]))
            return
        complete = [job for job in jobs if len(job.answers) == len(job.texts)]
        self._succeed([(job, [job.answers[i] for i in range(len(job.texts))]) for job in complete])
        speed = sum(map(len, texts)) / (time.perf_counter() - started)
        self.characters_per_second += 0.2 * (speed - self.characters_per_second)

    def _advance_generations(self) -> None:
        """Generate one more token in every running generation."""
        for batch in list(self._generations):
            self._running = batch.jobs
            try:
                tokens = next(batch.steps, None)
            except Cancelled:
                tokens = None
            except BaseException as error:
                tokens = None
                self._fail(batch.jobs, error)
            if tokens is None:
                self._generations.remove(batch)
            elif tokens:
                self._failures = 0
                self._call_in_loop(partial(_deliver, tokens))

    def _fail(self, jobs: Sequence[EngineJob], error: BaseException) -> None:
        http_error = to_http_error(error)
        for job in jobs:
            self._call_in_loop(partial(job.fail, http_error))

    def _succeed(self, results: Sequence[tuple[ResultJob, Any]]) -> None:
        self._failures = 0
        for job, value in results:  # one call each, so that the event loop can do other work between them
            self._call_in_loop(partial(_set_result, job, value))

    def _call_in_loop(self, function: Callable[[], object]) -> None:
        """Have the event loop call the function, unless the loop is closed."""
        assert self._loop is not None
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)


def _deliver(tokens: list[tuple[GenerationJob, GeneratedToken]]) -> None:
    for job, token in tokens:
        job.results.put_nowait(token)


def _set_result(job: ResultJob, value: Any) -> None:
    if not job.result.done():
        job.result.set_result(value)


def _name_text(error: BaseException, job: TextJob, index: int) -> BaseException:
    """The error with the number of the text that caused it, if the job asks for that and has several."""
    is_input_error = isinstance(error, RegardError) and not isinstance(error, ModelError)
    return RegardError(f"text {index}: {error}") if is_input_error and job.numbered and len(job.texts) > 1 else error


def _shutting_down() -> HttpError:
    return HttpError(503, "the server is shutting down", 5)
