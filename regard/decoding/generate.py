"""Networks to hypotheses: whole batches of ragged inputs through the key/value cache.

A decoder reads its prompts in one step, padded on the right, and each row goes on behind its own last token; an
encoder–decoder reads its sources, and starts every target with the same id.

Dimensions: N sentences, R rows, P prompt length, V outputs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.config import SpecialIds, check_token_count
from regard.decoding.batching import pad_rows
from regard.decoding.beam import beam_search
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.cuda_graph_decoding import Loops, Past, Task, rounded
from regard.decoding.greedy import Said, collect, walk
from regard.decoding.options import Decoding
from regard.decoding.sampling import numbers
from regard.decoding.search import Hypothesis, Rules, Stops
from regard.decoding.text_stream import Decode, stops_in
from regard.errors import RegardError
from regard.model.tensor_checks import trusted
from regard.model.transformer import Decoder, EncoderDecoder, Network

TOKENS = 200
"""how much is generated when nothing is said about it"""

PREFILL_TOKENS = 512
"""Tokens of each prompt that are read at once: the mask over a long prompt grows with its square, and whoever asked
may leave meanwhile."""

Inputs = Sequence[Sequence[int]]


def generate(
    network: Decoder, special: SpecialIds, prompts: Inputs, options: Decoding, decode: Decode | None = None
) -> list[list[Hypothesis]]:
    """What a decoder says behind each prompt: `n_best` hypotheses each, best first.

    Prompts are ids as the model reads them, of any lengths. `decode` gives the text of ids; stop strings need it.
    """
    return _search(_generation(network, special, prompts, options), decode) if prompts else []


def search_translations(
    network: Decoder | EncoderDecoder,
    special: SpecialIds,
    sources: Inputs,
    options: Decoding,
    decode: Decode | None = None,
) -> list[list[Hypothesis]]:
    """Each source's translations: `n_best` hypotheses each, best first.

    Sources are ids as the model reads them (framed), of any lengths; for a decoder its separator is put behind them.
    """
    return _search(translation(network, special, sources, options), decode) if sources else []


def stream(
    network: Decoder | EncoderDecoder,
    special: SpecialIds,
    prompt: Sequence[int],
    options: Decoding,
    decode: Decode | None = None,
    translating: bool = False,
) -> Iterator[Said]:
    """The tokens one by one as they are chosen: behind a prompt or, in an encoder–decoder or if `translating`, as the
    translation of a source. The prompt is read at once; a mistake does not wait for the first token."""
    if options.beam > 1:
        raise RegardError(f"beam={options.beam} cannot stream: what a beam says is not known before its end")
    if isinstance(network, EncoderDecoder) or translating:
        task = translation(network, special, [prompt], options)
    else:
        task = _generation(network, special, [prompt], options)
    return (said for latest in _walk(task, decode) for said in latest)


def stream_all(
    network: Decoder,
    special: SpecialIds,
    prompts: Inputs,
    options: Decoding,
    seeds: Sequence[int],
    limits: Sequence[int],
    decode: Decode | None = None,
) -> Iterator[list[Said]]:
    """The next token of each prompt at a time, as `stream`; each prompt has a seed and a greatest length of its own."""
    longest = replace(options, max_tokens=max(limits))
    task = _generation(network, special, prompts, longest)
    own = [min(limit, most) for limit, most in zip(limits, task.limits, strict=True)]
    draws = None
    if options.temperature:
        rows = [numbers(seed, ids, max(own)) for seed, ids in zip(seeds, prompts, strict=True)]
        draws = torch.stack(rows).to(task.tokens.device)
    return _walk(replace(task, limits=own, draws=draws), decode)


def step(network: Decoder | EncoderDecoder, tokens: Int[Tensor, " R"], past: Past) -> Float[Tensor, "R V"]:
    """Logits behind one more token in each row, which the past takes in; what lies ahead of all rows is not read."""
    cache = past.cache.upto(past.longest + 1)
    prefix = {} if past.prefix is None else {"prefix": past.prefix}
    with trusted():
        logits = network.step(tokens[:, None], past.lengths[:, None], cache, **prefix)  # [R, 1, V]
    past.lengths, past.longest = past.lengths + 1, past.longest + 1
    return logits[:, 0]


def select(past: Past, rows: Int[Tensor, " Q"], sentences: Int[Tensor, " n"] | None) -> Past:
    """The past of these rows, and of these of the sentences (None: of all)."""
    prefix = None if past.prefix is None else past.prefix[rows]
    return Past(past.cache.pick(rows, sentences, past.longest), past.lengths[rows], past.longest, prefix)


def _search(task: Task, decode: Decode | None) -> list[list[Hypothesis]]:
    options = task.rules.options
    if isinstance(task.network.loops, Loops) and not options.stop:
        return task.network.loops.search(task)
    if options.beam == 1:
        return [[one] for one in collect(_walk(task, decode), len(task.limits), options.length_penalty)]
    logits, past = begin(task)
    ahead = partial(step, task.network)
    return beam_search(logits, past, ahead, select, task.rules, task.limits, _stops(options, decode))


def _walk(task: Task, decode: Decode | None) -> Iterator[list[Said]]:
    logits, past = begin(task)
    ahead, stops = partial(step, task.network), _stops(task.rules.options, decode)
    return walk(logits, past, ahead, select, task.rules, task.limits, task.draws, stops)


def _stops(options: Decoding, decode: Decode | None) -> Stops | None:
    if options.stop and decode is None:
        raise RegardError(f"stop={options.stop} is text, and here are ids alone: give `decode`, a tokenizer's")
    return None if decode is None else stops_in(options.stop, decode)


@torch.inference_mode()
def begin(task: Task) -> tuple[Float[Tensor, "N V"], Past]:
    """The logits behind all that is given, and the past that has taken it in."""
    network, tokens, lengths = task.network, task.tokens, task.lengths
    if isinstance(network, EncoderDecoder):
        past = Past(network.start(tokens, task.room, lengths), torch.zeros_like(lengths), 0)
        return step(network, torch.full_like(lengths, task.start), past), past
    n, longest = tokens.shape
    past = Past(network.start(n, task.room), lengths, longest, lengths if network.config.prefix else None)
    # A prefix sees itself whole, and so is read whole.
    together = longest if network.config.prefix else PREFILL_TOKENS
    rows, last = torch.arange(n, device=tokens.device), torch.empty(0)
    for first in range(0, longest, together):
        raise_if_cancelled()
        some, places = (each[:, first : first + together] for each in (tokens, _places(tokens)))  # [N, p]
        end = first + some.size(1)
        hidden = network.extend(some, places, past.cache.upto(end), past.prefix)  # [N, p, C]
        place = lengths - 1 - first  # [N]: of each row's last token; negative once it has been read
        found = hidden[rows, place.clamp(0, end - first - 1)]  # [N, C]
        last = found if first == 0 else torch.where((place >= 0)[:, None], found, last)
    return network.head(last[:, None])[:, 0], past  # of the last token alone, for V is large


def _places(tokens: Int[Tensor, "N P"]) -> Int[Tensor, "N P"]:
    return torch.arange(tokens.size(1), device=tokens.device).expand(tokens.shape)


def _generation(network: Decoder, special: SpecialIds, prompts: Inputs, options: Decoding) -> Task:
    if not isinstance(network, Decoder):
        raise RegardError(f"generation needs a decoder, and this is an {network.config.kind}")
    check_inputs(network, special, prompts, options)
    return _task(network, special, prompts, options, [TOKENS] * len(prompts), history=prompts)


def translation(network: Decoder | EncoderDecoder, special: SpecialIds, sources: Inputs, options: Decoding) -> Task:
    """All that the translation of these sources begins with."""
    apart = isinstance(network, EncoderDecoder)
    if not apart and (not isinstance(network, Decoder) or special.separator is None):
        raise RegardError(
            f"translation needs an encoder-decoder, or a decoder with a separator between source and target: this is "
            f"a model of kind {network.config.kind!r}, and its separator is {special.separator}"
        )
    check_inputs(network, special, sources, options)
    wanted = [2 * len(source) + 10 for source in sources]
    if isinstance(network, Decoder):
        assert special.separator is not None
        sources = [[*source, special.separator] for source in sources]
        check_inputs(network, special, sources, options)
    return _task(network, special, sources, options, wanted, history=[[]] * len(sources))


def _task(
    network: Decoder | EncoderDecoder,
    special: SpecialIds,
    inputs: Inputs,
    options: Decoding,
    wanted: list[int],
    history: Inputs,
) -> Task:
    """All that a search begins with; `history` is what it must not repeat."""
    apart = isinstance(network, EncoderDecoder)
    before = [0 if apart else len(ids) - 1 for ids in inputs]  # the last token is said, never read
    limits = _limits(network, options, wanted, [network.config.max_length - places for places in before])
    room = max(places + limit for places, limit in zip(before, limits, strict=True))
    tokens, lengths = padded(network, inputs)  # [N, P], [N]
    rules = Rules.of(special, options, network.config.outputs, history, tokens.device)
    draws = None
    if options.temperature:
        draws = torch.stack([numbers(options.seed, ids, max(limits)) for ids in inputs]).to(tokens.device)
    return Task(network, tokens, lengths, limits, rules, draws, special.start or 0, _room(network, room))


def check_inputs(network: Network, special: SpecialIds, inputs: Inputs, options: Decoding) -> None:
    """A ValueError unless the network can say something behind each of these inputs, in this way."""
    config = network.config
    if network.training:
        raise RegardError("this network is being trained, and would drop values at random: call its .eval() first")
    special.check(config)
    if options.beam > config.outputs:
        raise RegardError(f"beam={options.beam} is wider than the {config.outputs} ids that the model can say")
    for number, ids in enumerate(inputs):
        if not len(ids):
            raise RegardError(f"input {number} is empty: there is nothing to go on from")
        if config.pad_id not in special.end and all(id_ == config.pad_id for id_ in ids):
            raise RegardError(f"input {number} is nothing but padding (id {config.pad_id}): leave padding out")
        check_token_count(f"input {number}", len(ids), config.max_positions)


def _limits(network: Network, options: Decoding, wanted: list[int], room: list[int]) -> list[int]:
    """The most tokens for each input: what is asked for or `wanted`, and no more than learned positions allow."""
    limits = wanted if options.max_tokens is None else [options.max_tokens] * len(wanted)
    limits = [max(limit, options.min_tokens) for limit in limits]
    if network.config.positions == "learned":
        limits = [min(limit, most) for limit, most in zip(limits, room, strict=True)]
    if min(limits) < options.min_tokens:
        number = limits.index(min(limits))
        raise RegardError(
            f"min_tokens={options.min_tokens}, and behind input {number} learned positions leave {limits[number]} alone"
        )
    return limits


def _room(network: Network, length: int) -> int:
    """Places for so many tokens; where steps are recorded as graphs, one of few numbers of them."""
    if not isinstance(network.loops, Loops):
        return length
    return min(rounded(length), network.config.max_length) if network.config.positions == "learned" else rounded(length)


def padded(network: Network, inputs: Inputs) -> tuple[Int[Tensor, "N P"], Int[Tensor, " N"]]:
    """The ids in rows where the network is, padded on the right, and how many there are in each."""
    return pad_rows(inputs, network.device, _room(network, max(map(len, inputs))))
