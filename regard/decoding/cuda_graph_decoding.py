"""Searches recorded as CUDA graphs: one replay instead of hundreds of kernel launches, and a wait every few tokens.

Shapes must stay constant, so inputs that have finished are still computed along with the others; `BeamState` is made so
that this changes nothing. Batches are padded to a few sizes, so that few graphs serve all of them. A graph is reused
for every batch that needs the same kernels: its key holds only the shapes and the options that are compiled into it.

Dimensions: N inputs, R rows, V outputs, S source length, T maximum number of generated tokens.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.decoding.beam import BeamState, advance, finished_hypotheses, search_has_stopped
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.cuda_graph_capture import warmed_up_capture
from regard.decoding.decoding_state import SearchInputs, token_positions
from regard.decoding.options import Decoding
from regard.decoding.search import Hypothesis
from regard.model.cache import Cache
from regard.model.masks import padding_mask
from regard.model.transformer import EncoderDecoder
from regard.rounding import round_up

BEAM_STATE_FIELDS = [field.name for field in fields(BeamState)]
STEPS_PER_CHECK = 8
"""Number of tokens between two checks of whether all inputs have finished; each check waits for the device."""
MAX_RECORDED_SEARCHES = 16
"""Number of recorded searches that are kept for later batches."""
MAX_RECORDED_PROMPT = 4096
"""Maximum number of tokens of prompts that are read by a graph. Reading more keeps the GPU busy without one, and graphs
keep their memory."""
MAX_EXACT_BATCH = 4
"""Largest number of inputs that is not padded to a multiple of `BATCH_MULTIPLE`."""
BATCH_MULTIPLE, LENGTH_MULTIPLE, STAGE_MULTIPLE = 16, 32, 16


class RecordedSearches:
    """The recorded searches of one network, one for each shape it has met. Threads take turns."""

    def __init__(self, compiled: bool = False) -> None:
        self.compiled = compiled
        self.searches: OrderedDict[Any, RecordedSearch] = OrderedDict()
        self._lock = threading.Lock()  # the tensors of a recorded search hold one batch at a time

    @torch.inference_mode()
    def search(self, inputs: SearchInputs) -> list[list[Hypothesis]]:
        """As `beam_search`, for a beam of any width; a beam of 1 may sample."""
        device = inputs.tokens.device  # graphs are recorded on the current device, which may be another GPU
        with self._lock, torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            return self._search(inputs)

    def _search(self, inputs: SearchInputs) -> list[list[Hypothesis]]:
        count, n_best = len(inputs.max_tokens), inputs.rules.options.n_best
        inputs = pad_inputs(inputs)
        key = _key(inputs)
        if key not in self.searches:
            self.searches[key] = RecordedSearch(inputs, self.compiled)
            if len(self.searches) > MAX_RECORDED_SEARCHES:
                self.searches.popitem(last=False)
        self.searches.move_to_end(key)
        beams = self.searches[key].run(inputs, n_best).select(torch.arange(count, device=inputs.tokens.device))
        return finished_hypotheses([beams.best(n_best)], count, inputs.rules, None)


def _key(inputs: SearchInputs) -> tuple[Any, ...]:
    """All that is compiled into a recorded search."""
    rules = inputs.rules
    shapes = [None if x is None else tuple(x.shape) for x in (inputs.tokens, rules.prompts, inputs.draws)]
    ids = (*rules.end.tolist(), -1, *rules.suppressed.tolist())
    longest = round_length(max(inputs.max_tokens))
    return (*shapes, inputs.start, inputs.cache_length, longest, rules.options, ids)


def pad_inputs(inputs: SearchInputs) -> SearchInputs:
    """The same search in one of a few sizes: the last input is repeated, histories and draws are lengthened."""
    n = len(inputs.max_tokens)
    size = n if n <= MAX_EXACT_BATCH else round_up(n, BATCH_MULTIPLE)
    rows = torch.arange(size, device=inputs.tokens.device).clamp(max=n - 1)
    options, prompts, draws = inputs.rules.options, inputs.rules.prompts, inputs.draws
    if options.repetition_penalty == 1 and not options.no_repeat_ngram:
        prompts = prompts[:, :0]  # not used
    prompts = F.pad(prompts, (round_length(prompts.size(1)) - prompts.size(1), 0), value=-1)
    if draws is not None:
        draws = F.pad(draws, (0, round_length(max(inputs.max_tokens)) - draws.size(1)))[rows]
    return replace(
        inputs,
        tokens=inputs.tokens[rows],
        lengths=inputs.lengths[rows],
        max_tokens=inputs.max_tokens + inputs.max_tokens[-1:] * (size - n),
        rules=replace(inputs.rules, prompts=prompts[rows], options=recorded_options(options)),
        draws=draws,
    )


def recorded_options(options: Decoding) -> Decoding:
    """The options that a recorded search depends on.

    The others are inputs of a search (seed, max_tokens) or selected from its result (n_best), and must not cost a new
    graph.
    """
    return replace(options, seed=0, max_tokens=None, n_best=options.beam)


class RecordedSearch:
    """The steps of one search, over tensors that stay at the same address."""

    def __init__(self, inputs: SearchInputs, compiled: bool) -> None:
        self.network, self.start, options = inputs.network, inputs.start, inputs.rules.options
        self.tokens, self.lengths = inputs.tokens.clone(), inputs.lengths.clone()
        self.rules = replace(inputs.rules, prompts=inputs.rules.prompts.clone())
        self.draws = None if inputs.draws is None else inputs.draws.clone()
        self.beams = self._initial_beams(inputs)
        self.width = options.beam
        rows = len(inputs.max_tokens) * self.width
        self.next_tokens, self.positions = (self.tokens.new_zeros(rows) for _ in range(2))
        self.finished = torch.zeros_like(self.beams.inputs, dtype=torch.bool)
        self.n_best = torch.ones_like(self.beams.length)
        self.prefix = self.lengths.repeat_interleave(self.width) if inputs.network.config.prefix else None
        self.cache = self._allocate(rows, inputs.cache_length)
        self.rows = torch.arange(rows, device=self.tokens.device)
        if self.width > 1:
            self.cache.owners = self.rows[:, None].repeat(1, self.cache.length)
        step: Callable[[int], None] = self.step
        if compiled:
            step = torch.compile(step, fullgraph=True, dynamic=False, options=_compile_options(rows))
        record = record_graph if self.tokens.is_cuda else _run_directly
        is_pair = isinstance(self.network, EncoderDecoder)
        recorded = is_pair or self.tokens.numel() <= MAX_RECORDED_PROMPT
        self.prefill_graph = record(self.prefill) if recorded else None
        stages = cache_stages(inputs.cache_length, 1 if compiled else 4)
        self.step_graphs = {length: record(partial(step, length)) for length in stages}

    def _allocate(self, rows: int, length: int) -> Cache:
        if not isinstance(self.network, EncoderDecoder):
            return self.network.start(rows, length)
        encoded = self.network.start(self.tokens, 1, self.lengths)
        mask = padding_mask(self.lengths, self.tokens.size(1)).clone()
        return Cache(self.network.allocate_cache(rows, length), encoded.cross_attention, mask)

    def _initial_beams(self, inputs: SearchInputs) -> BeamState:
        options, capacity = inputs.rules.options, round_length(max(inputs.max_tokens))
        like = inputs.tokens.new_empty(0, dtype=torch.float32)
        return BeamState.initial(inputs.max_tokens, options, like, options.beam, capacity)

    def run(self, inputs: SearchInputs, n_best: int) -> BeamState:
        """Search one batch until the `n_best` hypotheses of each input are known."""
        self._load(inputs, n_best)
        self.prefill() if self.prefill_graph is None else self.prefill_graph()
        is_pair = isinstance(self.network, EncoderDecoder)
        prompt = len(self.start) - 1 if is_pair else int(self.lengths.max()) - 1
        for token in range(max(inputs.max_tokens)):
            raise_if_cancelled()
            stage = next((length for length in self.step_graphs if length > prompt + token), self.cache.length)
            self.step_graphs[stage]()
            if token % STEPS_PER_CHECK == STEPS_PER_CHECK - 1 and bool(self.finished.all()):
                break
        return self.beams

    def _load(self, inputs: SearchInputs, n_best: int) -> None:
        """Copy a batch into the tensors that the graphs read."""
        self.tokens.copy_(inputs.tokens)
        self.lengths.copy_(inputs.lengths)
        self.rules.prompts.copy_(inputs.rules.prompts)
        _copy_beams(self.beams, self._initial_beams(inputs))
        if self.draws is not None and inputs.draws is not None:
            self.draws.copy_(inputs.draws)
        if self.cache.owners is not None:
            self.cache.owners.copy_(self.rows[:, None])
        self.n_best.fill_(n_best)

    def prefill(self) -> None:
        """Read the sources, or the prompts up to their last token, which the first step feeds."""
        if isinstance(self.network, EncoderDecoder):
            self._encode(self.network)
            return
        n, longest = self.tokens.shape
        prompt_cache = self.network.start(n, longest)
        prefix = self.lengths if self.prefix is not None else None
        self.network.extend(self.tokens, token_positions(self.tokens), prompt_cache, prefix)
        for buffers, read in zip(self.cache.self_attention, prompt_cache.self_attention, strict=True):
            for buffer, part in zip(buffers, read, strict=True):
                buffer[:, :, :longest] = part.repeat_interleave(self.width, 0)
        last = self.tokens.gather(1, self.lengths[:, None] - 1)[:, 0]  # [N]
        self.next_tokens.copy_(last.repeat_interleave(self.width))
        self.positions.copy_((self.lengths - 1).repeat_interleave(self.width))
        if self.prefix is not None:
            self.prefix.copy_(self.lengths.repeat_interleave(self.width))

    def _encode(self, network: EncoderDecoder) -> None:
        encoded = network.start(self.tokens, 1, self.lengths)
        for cached, new in zip(self.cache.cross_attention, encoded.cross_attention, strict=True):
            cached.k.copy_(new.k)
            cached.v.copy_(new.v)
        assert self.cache.source_mask is not None
        self.cache.source_mask.copy_(padding_mask(self.lengths, self.tokens.size(1)))
        self.positions.zero_()
        for number, id_ in enumerate(self.start):
            self.next_tokens.fill_(id_)
            if number < len(self.start) - 1:  # the first step reads the last one
                network.step(self.next_tokens[:, None], self.positions[:, None], self.cache.upto(number + 1))
                self.positions.add_(1)

    def step(self, length: int) -> None:
        """Generate one token in each row, in place, while no row has more than `length` tokens."""
        # Recording runs this once for every stage, including stages that are shorter than the present prompt.
        prefix = {} if self.prefix is None else {"prefix": self.prefix.clamp(max=length)}
        positions = self.positions.clamp(max=length - 1)  # a finished input may run past the end
        owners = self.cache.owners
        if owners is not None:
            owners[self.rows, positions] = self.rows
        cache = self.cache.upto(length)
        logits = self.network.step(self.next_tokens[:, None], positions[:, None], cache, **prefix)[:, 0]  # [R, V]
        beams, parents = advance(self.beams, logits, self.rules, draws=self.draws)
        if owners is not None:
            owners.copy_(owners[parents.flatten()])
        self.next_tokens.copy_(beams.live_tokens[..., -1].flatten())
        self.positions.add_(1)
        self.finished.copy_(search_has_stopped(beams, self.rules.options.length_penalty, self.n_best))
        _copy_beams(self.beams, beams)


def _compile_options(rows: int) -> dict[str, Any]:
    """Options of torch.compile. With one row, products are sums over weights that are read once: the compiler can then
    fuse them with what follows, and tuning the sizes of their kernels pays off."""
    return {"coordinate_descent_tuning": True} if rows == 1 else {}


def _copy_beams(to: BeamState, new: BeamState) -> None:
    for name in BEAM_STATE_FIELDS:
        tensor: Tensor = getattr(to, name)
        tensor.copy_(getattr(new, name))


def _run_directly(body: Callable[[], None]) -> Callable[[], None]:
    return body


def record_graph(body: Callable[[], None]) -> Callable[[], None]:
    """A function that replays the body as a CUDA graph."""
    return warmed_up_capture(body).replay


def cache_stages(length: int, count: int) -> list[int]:
    """Cache lengths that steps are recorded for: early tokens need not attend to the empty end of the cache.

    >>> cache_stages(32, 2), cache_stages(288, 4)
    ([16, 32], [80, 144, 224, 288])
    """
    parts = {min(length, round_up(math.ceil(length * i / count), STAGE_MULTIPLE)) for i in range(1, count + 1)}
    return sorted(parts | {length})


def round_length(length: int) -> int:
    """The next multiple of `LENGTH_MULTIPLE`: graphs then need to know few lengths."""
    return round_up(length, LENGTH_MULTIPLE)
