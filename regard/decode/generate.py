"""Networks to hypotheses: whole batches of ragged inputs through the key/value cache.

A decoder reads its prompts in one step, padded on the right, and each row goes on behind its own last token; an
encoder–decoder reads its sources, and starts every target with the same id.

Dimensions: N sentences, R rows, P prompt length, V outputs.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.config import SpecialIds
from regard.decode.beam import beam_search
from regard.decode.loops import Loops, Past, Start, rounded
from regard.decode.options import Decoding
from regard.decode.sample import numbers
from regard.decode.search import Hypothesis, Rules, Stops
from regard.decode.text import Decode, stops_in
from regard.decode.walk import Said, collect, walk
from regard.model.checks import trusted
from regard.model.transformer import Decoder, EncoderDecoder, Network

TOKENS = 200
"""how much is generated when nothing is said about it"""

Inputs = Sequence[Sequence[int]]


def generate(
    network: Decoder, special: SpecialIds, prompts: Inputs, options: Decoding, decode: Decode | None = None
) -> list[list[Hypothesis]]:
    """What a decoder says behind each prompt: `n_best` hypotheses each, best first.

    Prompts are ids as the model reads them, of any lengths. `decode` gives the text of ids; stop strings need it.
    """
    return _search(_generation(network, special, prompts, options), decode) if prompts else []


def translate(
    network: Decoder | EncoderDecoder,
    special: SpecialIds,
    sources: Inputs,
    options: Decoding,
    decode: Decode | None = None,
) -> list[list[Hypothesis]]:
    """Each source's translations: `n_best` hypotheses each, best first.

    Sources are ids as the model reads them (framed), of any lengths; for a decoder its separator is put behind them.
    """
    return _search(_translation(network, special, sources, options), decode) if sources else []


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
        raise ValueError(f"beam={options.beam} cannot stream: what a beam says is not known before its end")
    if isinstance(network, EncoderDecoder) or translating:
        start = _translation(network, special, [prompt], options)
    else:
        start = _generation(network, special, [prompt], options)
    return (said for latest in _walk(start, decode) for said in latest)


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


def _search(start: Start, decode: Decode | None) -> list[list[Hypothesis]]:
    options = start.rules.options
    if isinstance(start.network.loops, Loops) and not options.stop:
        return start.network.loops.search(start, step, select)
    if options.beam == 1:
        return [[one] for one in collect(_walk(start, decode), len(start.limits), options.length_penalty)]
    ahead = partial(step, start.network)
    return beam_search(start.logits, start.past, ahead, select, start.rules, start.limits, _stops(options, decode))


def _walk(start: Start, decode: Decode | None) -> Iterator[list[Said]]:
    ahead, stops = partial(step, start.network), _stops(start.rules.options, decode)
    return walk(start.logits, start.past, ahead, select, start.rules, start.limits, start.draws, stops)


def _stops(options: Decoding, decode: Decode | None) -> Stops | None:
    if options.stop and decode is None:
        raise ValueError(f"stop={options.stop} is text, and here are ids alone: give `decode`, a tokenizer's")
    return None if decode is None else stops_in(options.stop, decode)


def _generation(network: Decoder, special: SpecialIds, prompts: Inputs, options: Decoding) -> Start:
    if not isinstance(network, Decoder):
        raise ValueError(f"generation needs a decoder, and this is an {network.config.kind}")
    return _read(network, special, prompts, options, [TOKENS] * len(prompts), history=prompts)


def _translation(network: Decoder | EncoderDecoder, special: SpecialIds, sources: Inputs, options: Decoding) -> Start:
    wanted = [2 * len(source) + 10 for source in sources]
    if isinstance(network, EncoderDecoder):
        return _encode(network, special, sources, options, wanted)
    if not isinstance(network, Decoder) or special.separator is None:
        raise ValueError(
            f"translation needs an encoder-decoder, or a decoder with a separator between source and target: this is "
            f"a model of kind {network.config.kind!r}, and its separator is {special.separator}"
        )
    check_inputs(network, special, sources, options)
    prompts = [[*source, special.separator] for source in sources]
    return _read(network, special, prompts, options, wanted, history=[[]] * len(sources))


@torch.inference_mode()
def _read(
    network: Decoder, special: SpecialIds, prompts: Inputs, options: Decoding, wanted: list[int], history: Inputs
) -> Start:
    """A decoder that has read its prompts; `history` is what it must not repeat."""
    check_inputs(network, special, prompts, options)
    room = [network.config.max_length - len(prompt) + 1 for prompt in prompts]  # the last token is said, never read
    limits = _limits(network, options, wanted, room)
    tokens, lengths = _padded(network, prompts)  # [N, P], [N]
    n, longest = tokens.shape
    most = max(len(prompt) + limit - 1 for prompt, limit in zip(prompts, limits, strict=True))
    cache = network.start(n, _room(network, most))
    prefix = lengths if network.config.prefix else None
    positions = torch.arange(longest, device=tokens.device).expand(n, longest)
    hidden = network.extend(tokens, positions, cache.upto(longest), prefix)  # [N, P, C]
    last = hidden[torch.arange(n, device=tokens.device), lengths - 1]  # [N, C]
    behind = network.head(last[:, None])[:, 0]  # [N, V]: of the last token alone, for V is large
    return _start(network, special, options, behind, Past(cache, lengths, longest, prefix), limits, prompts, history)


@torch.inference_mode()
def _encode(
    network: EncoderDecoder, special: SpecialIds, sources: Inputs, options: Decoding, wanted: list[int]
) -> Start:
    """An encoder–decoder that has read its sources and the start of each target."""
    check_inputs(network, special, sources, options)
    limits = _limits(network, options, wanted, [network.config.max_length] * len(sources))
    tokens, lengths = _padded(network, sources)  # [N, S], [N]
    past = Past(network.start(tokens, _room(network, max(limits)), lengths), torch.zeros_like(lengths), 0)
    logits = step(network, torch.full_like(lengths, special.start), past)  # type: ignore[arg-type]  # checked
    return _start(network, special, options, logits, past, limits, sources, history=[[]] * len(sources))


def _start(
    network: Decoder | EncoderDecoder,
    special: SpecialIds,
    options: Decoding,
    logits: Float[Tensor, "N V"],
    past: Past,
    limits: list[int],
    inputs: Inputs,
    history: Inputs,
) -> Start:
    rules = Rules.of(special, options, network.config.outputs, history, logits.device)
    draws = None
    if options.temperature:
        draws = torch.stack([numbers(options.seed, ids, max(limits)) for ids in inputs]).to(logits.device)
    return Start(network, logits, past, limits, rules, draws)


def check_inputs(network: Network, special: SpecialIds, inputs: Inputs, options: Decoding) -> None:
    """A ValueError unless the network can say something behind each of these inputs, in this way."""
    config = network.config
    if network.training:
        raise ValueError("this network is being trained, and would drop values at random: call its .eval() first")
    special.check(config)
    if options.beam > config.outputs:
        raise ValueError(f"beam={options.beam} is wider than the {config.outputs} ids that the model can say")
    for number, ids in enumerate(inputs):
        if not len(ids):
            raise ValueError(f"input {number} is empty: there is nothing to go on from")
        if config.pad_id not in special.end and all(id_ == config.pad_id for id_ in ids):
            raise ValueError(f"input {number} is nothing but padding (id {config.pad_id}): leave padding out")
        if config.positions == "learned" and len(ids) > config.max_length:
            raise ValueError(
                f"input {number} has {len(ids)} ids, and learned positions for {config.max_length} alone (max_length): "
                "shorten it"
            )


def _limits(network: Network, options: Decoding, wanted: list[int], room: list[int]) -> list[int]:
    """The most tokens for each input: what is asked for or `wanted`, and no more than learned positions allow."""
    limits = wanted if options.max_tokens is None else [options.max_tokens] * len(wanted)
    limits = [max(limit, options.min_tokens) for limit in limits]
    if network.config.positions == "learned":
        limits = [min(limit, most) for limit, most in zip(limits, room, strict=True)]
    if min(limits) < options.min_tokens:
        number = limits.index(min(limits))
        raise ValueError(
            f"min_tokens={options.min_tokens}, and behind input {number} learned positions leave {limits[number]} alone"
        )
    return limits


def _room(network: Network, length: int) -> int:
    """Places for so many tokens; where steps are recorded as graphs, one of few numbers of them."""
    if not isinstance(network.loops, Loops):
        return length
    return min(rounded(length), network.config.max_length) if network.config.positions == "learned" else rounded(length)


def _padded(network: Network, inputs: Inputs) -> tuple[Int[Tensor, "N P"], Int[Tensor, " N"]]:
    """The ids in rows, padded on the right, and how many there are in each."""
    longest, device = _room(network, max(map(len, inputs))), network.embedding.tokens.weight.device
    filled = [[*ids, *[0] * (longest - len(ids))] for ids in inputs]  # whatever stands there, it is not seen
    return torch.tensor(filled, device=device), torch.tensor([len(ids) for ids in inputs], device=device)
