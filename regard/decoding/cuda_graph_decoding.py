"""Decoding steps recorded as CUDA graphs: one replay in place of hundreds of launches, and a wait every few tokens.

Shapes must stay the same, so that sentences which have ended go on being computed with the others; the state of a
search (`Beams`) is made so that this changes nothing. Batches are brought to a few sizes, so that few graphs serve all.
A graph is reused for every batch that needs the same kernels: only the shapes and the options that are compiled into it
are part of its key.

Dimensions: N sentences, R rows, V outputs, S source length, T places for tokens.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.beam import Beams, advance, hypotheses
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.cuda_graph_capture import warmed_up_capture
from regard.decoding.options import Decoding
from regard.decoding.search import Hypothesis, Rules
from regard.model.cache import Cache
from regard.model.masks import padding_mask
from regard.model.transformer import Decoder, EncoderDecoder

FIELDS = [field.name for field in fields(Beams)]
TOGETHER = 8
"""tokens between two looks at whether all sentences have ended"""
KEPT = 16
"""graphs kept for later batches"""


@dataclass
class Past:
    """What a network has taken in."""

    cache: Cache
    lengths: Int[Tensor, " R"]
    """tokens in each row: where its next one goes"""
    longest: int
    """as many as any row may have"""
    prefix: Int[Tensor, " R"] | None = None
    """how much of each row sees itself whole, in a network with a prefix"""


@dataclass(frozen=True)
class Task:
    """All that a search begins with."""

    network: Decoder | EncoderDecoder
    tokens: Int[Tensor, "N P"]
    """the sources or prompts, padded on the right"""
    lengths: Int[Tensor, " N"]
    limits: list[int]
    """the most tokens of each sentence"""
    rules: Rules
    draws: Float[Tensor, "N L"] | None
    """a random number for each token that may be drawn"""
    start: int
    """what a target starts with, in an encoder–decoder"""
    room: int
    """places for tokens in each row of the cache"""

    def padded(self) -> "Task":
        """The same search in one of few sizes: the last sentence is repeated, histories and draws are lengthened."""
        n = len(self.limits)
        size = n if n <= 4 else -(-n // 16) * 16
        rows = torch.arange(size, device=self.tokens.device).clamp(max=n - 1)
        options, prompts, draws = self.rules.options, self.rules.prompts, self.draws
        if options.repetition_penalty == 1 and not options.no_repeat_ngram:
            prompts = prompts[:, :0]  # nothing reads them
        history, places = rounded(prompts.size(1)), rounded(max(self.limits))
        prompts = F.pad(prompts, (history - prompts.size(1), 0), value=-1)
        draws = None if draws is None else F.pad(draws, (0, places - draws.size(1)))
        return replace(
            self,
            tokens=self.tokens[rows],
            lengths=self.lengths[rows],
            limits=self.limits + self.limits[-1:] * (size - n),
            rules=replace(self.rules, prompts=prompts[rows], options=graph_options(options)),
            draws=None if draws is None else draws[rows],
        )


def graph_options(options: Decoding) -> Decoding:
    """The options that a graph depends on. The others are inputs of a search (seed, max_tokens) or chosen from its
    result (n_best): they must not cost a new graph."""
    return replace(options, seed=0, max_tokens=None, n_best=options.beam)


class Loops:
    """The recorded loops of one network, for the shapes it has met. Threads take turns."""

    def __init__(self, compiled: bool = False) -> None:
        self.compiled = compiled
        self.recorded: OrderedDict[Any, Loop] = OrderedDict()
        self._turn = threading.Lock()  # a loop's tensors hold one batch at a time

    @torch.inference_mode()
    def search(self, task: Task) -> list[list[Hypothesis]]:
        """As `beam_search`, for a beam of any width; a beam of 1 may draw."""
        with self._turn:
            return self._search(task)

    def _search(self, task: Task) -> list[list[Hypothesis]]:
        sentences, n_best, task = len(task.limits), task.rules.options.n_best, task.padded()
        rules = task.rules
        shapes = [None if x is None else tuple(x.shape) for x in (task.tokens, rules.prompts, task.draws)]
        ids = (*rules.end.tolist(), -1, *rules.suppressed.tolist())
        key = (*shapes, task.start, task.room, rounded(max(task.limits)), rules.options, ids)
        if key not in self.recorded:
            self.recorded[key] = Loop(task, self.compiled)
            if len(self.recorded) > KEPT:
                self.recorded.popitem(last=False)
        self.recorded.move_to_end(key)
        beams = self.recorded[key].run(task, n_best).at(torch.arange(sentences, device=task.tokens.device))
        return [best[:n_best] for best in hypotheses([beams], sentences, rules, None)]


class Loop:
    """The steps of one search, over tensors that stay where they are."""

    def __init__(self, task: Task, compiled: bool) -> None:
        self.network, self.start, options = task.network, task.start, task.rules.options
        self.tokens, self.lengths = task.tokens.clone(), task.lengths.clone()
        self.rules = replace(task.rules, prompts=task.rules.prompts.clone())
        self.draws = None if task.draws is None else task.draws.clone()
        self.beams = self._fresh(task)
        self.width = options.beam
        rows = len(task.limits) * self.width
        self.fed, self.places = (self.tokens.new_zeros(rows) for _ in range(2))
        self.finished = torch.zeros_like(self.beams.sentence, dtype=torch.bool)
        self.n_best = torch.ones_like(self.beams.tokens)
        self.prefix = self.lengths.repeat_interleave(self.width) if task.network.config.prefix else None
        if isinstance(self.network, EncoderDecoder):
            encoded = self.network.start(self.tokens, 1, self.lengths)
            mask = padding_mask(self.lengths, self.tokens.size(1)).clone()
            self.cache = Cache(self.network.allocate(rows, task.room), encoded.cross, mask)
        else:
            self.cache = self.network.start(rows, task.room)
        turn: Callable[[int], None] = self.turn
        if compiled:
            turn = torch.compile(turn, fullgraph=True, dynamic=False)
        record = recorded if self.tokens.is_cuda else _as_it_is
        self.read_graph = record(self.read) if isinstance(self.network, EncoderDecoder) else None
        self.turns = {upto: record(partial(turn, upto)) for upto in stages(task.room, 1 if compiled else 4)}

    def _fresh(self, task: Task) -> Beams:
        options, places = task.rules.options, rounded(max(task.limits))
        like = task.tokens.new_empty(0, dtype=torch.float32)
        return Beams.of(task.limits, options, like, options.beam, places)

    def run(self, task: Task, n_best: int) -> Beams:
        """One batch, until the `n_best` hypotheses of each of its sentences are known."""
        pairs = [(self.tokens, task.tokens), (self.lengths, task.lengths), (self.rules.prompts, task.rules.prompts)]
        fresh = self._fresh(task)
        pairs += [(getattr(self.beams, name), getattr(fresh, name)) for name in FIELDS]
        if self.draws is not None and task.draws is not None:
            pairs.append((self.draws, task.draws))
        for mine, other in pairs:
            mine.copy_(other)
        self.n_best.fill_(n_best)
        self.read_graph() if self.read_graph is not None else self.read()
        before = 0 if isinstance(self.network, EncoderDecoder) else int(self.lengths.max()) - 1
        for token in range(max(task.limits)):
            raise_if_cancelled()
            upto = next((upto for upto in self.turns if upto > before + token), self.cache.length)
            self.turns[upto]()
            if token % TOGETHER == TOGETHER - 1 and bool(self.finished.all()):
                break
        return self.beams

    def read(self) -> None:
        """Take the sources or prompts in; the last token of a prompt is left to be fed."""
        if isinstance(self.network, EncoderDecoder):
            encoded = self.network.start(self.tokens, 1, self.lengths)
            for mine, other in zip(self.cache.cross, encoded.cross, strict=True):
                mine.k.copy_(other.k)
                mine.v.copy_(other.v)
            assert self.cache.source_mask is not None
            self.cache.source_mask.copy_(padding_mask(self.lengths, self.tokens.size(1)))
            self.fed.fill_(self.start)
            self.places.zero_()
            return
        n, longest = self.tokens.shape
        alone = self.network.start(n, longest)
        prefix = self.lengths if self.prefix is not None else None
        places = torch.arange(longest, device=self.tokens.device).expand(n, longest)
        self.network.extend(self.tokens, places, alone, prefix)
        for room, read in zip(self.cache.own, alone.own, strict=True):
            for whole, part in zip(room, read, strict=True):
                whole[:, :, :longest] = part.repeat_interleave(self.width, 0)
        last = self.tokens.gather(1, self.lengths[:, None] - 1)[:, 0]  # [N]
        self.fed.copy_(last.repeat_interleave(self.width))
        self.places.copy_((self.lengths - 1).repeat_interleave(self.width))
        if self.prefix is not None:
            self.prefix.copy_(self.lengths.repeat_interleave(self.width))

    def turn(self, upto: int) -> None:
        """One token further, in place, while no row has more than `upto` tokens."""
        # What is recorded runs once for every stage, those too that are shorter than this prompt.
        prefix = {} if self.prefix is None else {"prefix": self.prefix.clamp(max=upto)}
        places = self.places.clamp(max=upto - 1)  # an ended sentence may run over
        cache = self.cache.upto(upto)
        logits = self.network.step(self.fed[:, None], places[:, None], cache, **prefix)[:, 0]
        beams, rows = advance(self.beams, logits, self.rules, draws=self.draws)
        for room in cache.own if self.width > 1 else []:
            for x in room:
                x.copy_(x[rows.flatten()])
        self.fed.copy_(beams.said[..., -1].flatten())
        self.places.add_(1)
        self.finished.copy_(beams.finished(self.rules.options.length_penalty, self.n_best))
        for name in FIELDS:
            getattr(self.beams, name).copy_(getattr(beams, name))


def _as_it_is(body: Callable[[], None]) -> Callable[[], None]:
    return body


def recorded(body: Callable[[], None]) -> Callable[[], None]:
    """The body as a CUDA graph."""
    return warmed_up_capture(body).replay


def stages(room: int, most: int) -> list[int]:
    """Lengths of the cache that steps are recorded for: the first tokens need not attend to places for the last.

    >>> stages(32, 2), stages(288, 4)
    ([16, 32], [80, 144, 224, 288])
    """
    return sorted({min(room, -(-room * i // most // 16) * 16) for i in range(1, most + 1)} | {room})


def rounded(length: int) -> int:
    """Up to a multiple of 32: of every size that graphs must know there are then few."""
    return -(-length // 32) * 32
