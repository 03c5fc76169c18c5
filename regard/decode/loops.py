"""Decoding steps recorded as CUDA graphs: one replay in place of hundreds of launches, and a wait every few tokens.

Shapes must stay the same, so that sentences which have ended go on being computed with the others; the state of a
search (`Beams`) is made so that this changes nothing. Batches are brought to a few sizes, so that few graphs serve all.

Dimensions: N sentences, R rows, V outputs, S source length, T places for tokens.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.beam import Beams, advance, hypotheses
from regard.decode.search import Hypothesis, Rules
from regard.model.cache import Cache, KeyValues, Room
from regard.model.transformer import Decoder, EncoderDecoder

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


@dataclass
class Start:
    """All that a search begins with."""

    network: Decoder | EncoderDecoder
    logits: Float[Tensor, "N V"]
    past: Past
    limits: list[int]
    """the most tokens of each sentence"""
    rules: Rules
    draws: Float[Tensor, "N L"] | None
    """a random number for each token that may be drawn"""


class Loops:
    """The recorded loops of one network, for the shapes it has met."""

    def __init__(self, compiled: bool = False) -> None:
        self.compiled = compiled
        self.recorded: OrderedDict[Any, Loop] = OrderedDict()

    @torch.inference_mode()
    def search(self, start: Start, step: Callable[..., Tensor], select: Callable[..., Past]) -> list[list[Hypothesis]]:
        """As `beam_search`, for a beam of any width; a beam of 1 may draw."""
        options, sentences = start.rules.options, len(start.limits)
        start = _padded(start, select)
        kept = torch.arange(sentences, device=start.logits.device)
        logits, past, draws = start.logits, start.past, start.draws
        beams = Beams.of(start.limits, options, logits, rounded(max(start.limits)))
        while True:  # by hand, until there are as many hypotheses as there may be
            beams, rows = advance(beams, logits, start.rules, draws=draws)
            if bool(beams.finished(options.length_penalty).all()):
                return hypotheses([beams.at(kept)], sentences, start.rules, None)
            past = select(past, rows.flatten(), None)
            logits = step(start.network, beams.said[..., -1].flatten(), past)
            if beams.score.size(1) == options.beam:
                break
        state = State(logits, beams, past, start.rules, draws)
        loop = self._loop(state, start.network)
        loop.take(state)
        beams = loop.run(max(start.limits))
        return hypotheses([beams.at(kept)], sentences, start.rules, None)

    def _loop(self, state: "State", network: Decoder | EncoderDecoder) -> "Loop":
        key = (tuple(tuple(x.shape) for x in state.tensors()), state.rules.options)
        if key not in self.recorded:
            self.recorded[key] = Loop(state.clone(), network, self.compiled)
            if len(self.recorded) > KEPT:
                self.recorded.popitem(last=False)
        self.recorded.move_to_end(key)
        return self.recorded[key]


@dataclass(frozen=True)
class State:
    """All that changes from step to step, or from batch to batch."""

    logits: Float[Tensor, "R V"]
    beams: Beams
    past: Past
    rules: Rules
    draws: Float[Tensor, "N L"] | None

    def tensors(self) -> Iterator[Tensor]:
        """Each tensor of the state, in an order that is always the same."""
        cache, rules = self.past.cache, self.rules
        yield from (self.logits, self.past.lengths, rules.end, rules.suppressed, rules.prompts)
        yield from (getattr(self.beams, field.name) for field in fields(self.beams))
        yield from (x for room in cache.own for x in room)
        yield from (x for each in cache.cross for x in (each.k, each.v))
        yield from (x for x in (cache.source_mask, self.past.prefix, self.draws) if x is not None)

    def clone(self) -> "State":
        """A copy that shares no memory."""
        copies = {id(x): x.clone() for x in self.tensors()}

        def of(x: Tensor | None) -> Any:
            return None if x is None else copies[id(x)]

        cache, rules = self.past.cache, self.rules
        own = [Room(of(room.k), of(room.v)) for room in cache.own]
        cross = [KeyValues(of(each.k), of(each.v)) for each in cache.cross]
        past = replace(self.past, cache=Cache(own, cross, of(cache.source_mask)), lengths=of(self.past.lengths))
        past.prefix = of(self.past.prefix)
        beams = Beams(*(of(getattr(self.beams, field.name)) for field in fields(self.beams)))
        kept = replace(rules, end=of(rules.end), suppressed=of(rules.suppressed), prompts=of(rules.prompts))
        return State(of(self.logits), beams, past, kept, of(self.draws))


class Loop:
    """One step, recorded over tensors that stay where they are."""

    def __init__(self, state: State, network: Decoder | EncoderDecoder, compiled: bool) -> None:
        self.state = state
        self.step: Callable[..., Tensor] = network.step
        if compiled:
            self.step = torch.compile(network.step, fullgraph=True, dynamic=False)
        self.finished = torch.zeros_like(state.beams.sentence, dtype=torch.bool)
        kept = state.clone()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries set themselves up in a first run, which cannot be recorded
            for _ in range(2):
                self.once()
        torch.cuda.current_stream().wait_stream(side)
        self.take(kept)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.once()

    def take(self, state: State) -> None:
        """Another batch of the same shapes."""
        for mine, other in zip(self.state.tensors(), state.tensors(), strict=True):
            mine.copy_(other)

    def once(self) -> None:
        """One token further, in place."""
        state = self.state
        beams, rows = advance(state.beams, state.logits, state.rules, draws=state.draws)
        for room in state.past.cache.own if state.rules.options.beam > 1 else []:
            for x in room:
                x.copy_(x[rows.flatten()])
        tokens = beams.said[..., -1].flatten()
        prefix = {} if state.past.prefix is None else {"prefix": state.past.prefix}
        places = state.past.lengths.clamp(max=state.past.cache.length - 1)  # an ended sentence may run over
        logits = self.step(tokens[:, None], places[:, None], state.past.cache, **prefix)[:, 0]
        state.logits.copy_(logits)
        state.past.lengths.add_(1)
        for field in fields(beams):
            getattr(state.beams, field.name).copy_(getattr(beams, field.name))
        self.finished.copy_(beams.finished(state.rules.options.length_penalty))

    def run(self, longest: int) -> Beams:
        """Until all sentences have ended."""
        for token in range(longest):
            self.graph.replay()
            if token % TOGETHER == TOGETHER - 1 and bool(self.finished.all()):
                break
        return self.state.beams


def rounded(length: int) -> int:
    """Up to a multiple of 32: of every size that graphs must know there are then few."""
    return -(-length // 32) * 32


def _padded(start: Start, select: Callable[..., Past]) -> Start:
    """The same batch with more rows, so that few sizes come up: the last sentence comes again."""
    n = len(start.limits)
    size = n if n <= 4 else -(-n // 16) * 16
    rows: Int[Tensor, " R"] = torch.arange(size, device=start.logits.device).clamp(max=n - 1)
    if size == n:
        return start
    rules = replace(start.rules, prompts=start.rules.prompts[rows])
    return replace(
        start,
        logits=start.logits[rows],
        past=select(start.past, rows, rows),
        limits=start.limits + start.limits[-1:] * (size - n),
        rules=rules,
        draws=None if start.draws is None else start.draws[rows],
    )
