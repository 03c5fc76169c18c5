"""The jobs in a model's queue, and how the next batch is chosen from them."""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.server import limits
from regard.server.http_errors import HttpError
from regard.server.text_generation import GeneratedToken, GenerationPrompt, generate_for_prompts


@dataclass(eq=False)
class EngineJob:
    """Work for a model that a client waits for."""

    size: int
    """Number of characters."""
    abandoned: bool = field(default=False, init=False)
    """Whether nobody waits for the result any more. Set in the event loop, read by the model's thread."""

    @property
    def pending(self) -> int:
        """Number of texts in the job that are still queued."""
        return 1

    def fail(self, error: HttpError) -> None:
        """Report the error to the client. Called in the event loop."""
        raise NotImplementedError


@dataclass(eq=False)
class ResultJob(EngineJob):
    """A job with a single result."""

    result: "asyncio.Future[Any]"

    def fail(self, error: HttpError) -> None:
        """Raise the error where the result is awaited."""
        if not self.result.done():
            self.result.set_exception(error)


@dataclass(eq=False)
class TextJob(ResultJob):
    """Texts that the model answers one by one: translates, classifies, embeds …"""

    texts: Sequence[str]
    key: Hashable
    """Texts of jobs with the same key are answered in one batch."""
    answer: Callable[[list[str]], Sequence[Any]]
    """A function from a batch of texts to the answer to each."""
    numbered: bool = False
    """Whether an error names the text at fault by its number, if there are several."""
    started: int = 0
    """Number of texts that have been given to the model."""
    answers: dict[int, Any] = field(default_factory=dict)

    @property
    def pending(self) -> int:
        """Number of texts that have not been given to the model."""
        return len(self.texts) - self.started


@dataclass(eq=False)
class FunctionJob(ResultJob):
    """A function that needs exclusive use of the model."""

    function: Callable[[], Any]


@dataclass(eq=False)
class GenerationJob(EngineJob):
    """Prompts to continue with the same options."""

    prompts: Sequence[GenerationPrompt]
    options: Decoding
    results: "asyncio.Queue[GeneratedToken | Exception]"

    @property
    def pending(self) -> int:
        """Number of prompts."""
        return len(self.prompts)

    @property
    def cache_tokens(self) -> int:
        """Number of tokens that the cache must hold."""
        return sum(len(prompt.ids) + prompt.max_tokens for prompt in self.prompts)

    def fail(self, error: HttpError) -> None:
        """Raise the error where the next token is awaited."""
        self.results.put_nowait(error)


JobQueue = deque[TextJob | FunctionJob | GenerationJob]
TextBatch = list[tuple[TextJob, int]]
"""Texts that are answered together: the job and the index of the text in it."""


def take_text_batch(first: TextJob, queue: JobQueue) -> TextBatch:
    """Take texts round-robin from all jobs with the same key as `first`. Unfinished jobs move to the end."""
    jobs = [job for job in queue if isinstance(job, TextJob) and job.key == first.key]
    batch: TextBatch = []
    characters = 0
    for job in _round_robin(jobs):
        characters += len(job.texts[job.started])
        if batch and (characters > limits.MAX_BATCH_CHARACTERS or len(batch) >= limits.MAX_TEXTS):
            break
        batch.append((job, job.started))
        job.started += 1
    for job in jobs_in(batch):
        queue.remove(job)
        if job.pending:
            queue.append(job)
    return batch


def _round_robin(jobs: list[TextJob]) -> Iterator[TextJob]:
    """The jobs that have pending texts, one after the other, again and again until none has."""
    while unfinished := [job for job in jobs if job.pending]:
        yield from unfinished


def jobs_in(batch: TextBatch) -> list[TextJob]:
    """The jobs that the texts of a batch belong to, each once."""
    return list(dict.fromkeys(job for job, _ in batch))


@dataclass(eq=False)
class GenerationBatch:
    """Jobs that are generated together, and the steps that generate them."""

    jobs: list[GenerationJob]
    steps: Iterator[list[tuple[GenerationJob, GeneratedToken]]]

    @property
    def cache_tokens(self) -> int:
        """Number of tokens that the cache holds."""
        return sum(job.cache_tokens for job in self.jobs)


def start_generation(model: Model, first: GenerationJob, queue: JobQueue, max_cache_tokens: int) -> GenerationBatch:
    """Start `first` together with all queued jobs that have the same options and fit into the cache."""
    jobs, cache_tokens = [first], first.cache_tokens
    for job in [job for job in queue if isinstance(job, GenerationJob) and job.options == first.options]:
        if cache_tokens + job.cache_tokens <= max_cache_tokens:
            queue.remove(job)
            jobs.append(job)
            cache_tokens += job.cache_tokens
    return GenerationBatch(jobs, _generation_steps(model, jobs))


def _generation_steps(model: Model, jobs: list[GenerationJob]) -> Iterator[list[tuple[GenerationJob, GeneratedToken]]]:
    """Generate for all jobs together. Each step yields its tokens with the job that each belongs to."""
    rows = [(job, index) for job in jobs for index in range(len(job.prompts))]
    prompts = [job.prompts[index] for job, index in rows]
    for tokens in generate_for_prompts(model, prompts, jobs[0].options):
        owners = [rows[token.prompt_index] for token in tokens]
        yield [(job, token.for_prompt(index)) for (job, index), token in zip(owners, tokens, strict=True)]
