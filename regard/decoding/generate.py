"""Networks to hypotheses: batches of inputs of any length, through the key/value cache.

A decoder reads its prompts in one step, padded on the right, and each row continues after its own last token. An
encoder–decoder reads its sources, and starts every target with the same id.

Dimensions: N inputs, R rows, P prompt length, V outputs, C model width.
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
from regard.decoding.cuda_graph_decoding import RecordedSearches, round_length
from regard.decoding.decoding_state import (
    DecodingState,
    SearchInputs,
    decode_one_token,
    select_rows,
    token_positions,
)
from regard.decoding.fast_copy import FastCopy
from regard.decoding.greedy import ChosenToken, collect_hypotheses, generate_tokens
from regard.decoding.options import Decoding
from regard.decoding.sampling import random_numbers
from regard.decoding.search import Hypothesis, StopCheck, TokenRules
from regard.decoding.speculative import AcceptanceCount, speculative_tokens
from regard.decoding.text_stream import Decode, make_stop_check
from regard.errors import RegardError
from regard.model.cache import Cache
from regard.model.transformer import Decoder, EncoderDecoder, Network

DEFAULT_MAX_TOKENS = 200
"""Maximum number of generated tokens if `max_tokens` is not given."""

PREFILL_TOKENS = 512
"""Number of prompt tokens that are read at once. The mask over a long prompt grows quadratically, and a caller may
cancel between two parts."""

Inputs = Sequence[Sequence[int]]
"""Ids as the model reads them, of any lengths."""


def generate(
    network: Decoder, special: SpecialIds, prompts: Inputs, options: Decoding, decode: Decode | None = None
) -> list[list[Hypothesis]]:
    """A decoder's continuations of each prompt: `n_best` hypotheses each, best first.

    `decode` turns ids into text; stop strings need it.
    """
    return _search(_generation_inputs(network, special, prompts, options), decode) if prompts else []


def search_translations(
    network: Decoder | EncoderDecoder,
    special: SpecialIds,
    sources: Inputs,
    options: Decoding,
    decode: Decode | None = None,
) -> list[list[Hypothesis]]:
    """The translations of each source: `n_best` hypotheses each, best first.

    Sources are framed with the tokenizer's start and end tokens; a decoder's separator is added here.
    """
    return _search(translation_inputs(network, special, sources, options), decode) if sources else []


def stream(
    network: Decoder | EncoderDecoder,
    special: SpecialIds,
    prompt: Sequence[int],
    options: Decoding,
    decode: Decode | None = None,
    translating: bool = False,
) -> Iterator[ChosenToken]:
    """The tokens one by one as they are chosen: of a prompt's continuation or, with an encoder–decoder or if
    `translating`, of a source's translation. The prompt is checked and read before this function returns."""
    if options.beam > 1:
        raise RegardError(f"beam={options.beam} cannot stream: the best hypothesis is not known before the end")
    if isinstance(network, EncoderDecoder) or translating:
        inputs = translation_inputs(network, special, [prompt], options)
    else:
        inputs = _generation_inputs(network, special, [prompt], options)
    return (token for latest in _generate_tokens(inputs, decode) for token in latest)


def stream_with_draft(
    network: Decoder,
    draft: Decoder,
    special: SpecialIds,
    prompt: Sequence[int],
    options: Decoding,
    decode: Decode | None = None,
    count: AcceptanceCount | None = None,
) -> Iterator[ChosenToken]:
    """As `stream`, with tokens that a smaller network proposes; `count` counts how many of them were accepted."""
    if options.beam > 1:
        raise RegardError(f"beam={options.beam} with a draft: a draft proposes one text; use beam=1")
    inputs, draft_inputs = (_generation_inputs(each, special, [prompt], options) for each in (network, draft))
    stops = _stop_check(options, decode)
    prefilled, draft_prefilled = prefill(inputs), prefill(draft_inputs)
    count = AcceptanceCount() if count is None else count
    return speculative_tokens(inputs, prefilled, draft_inputs, draft_prefilled, stops, count)


def stream_all(
    network: Decoder,
    special: SpecialIds,
    prompts: Inputs,
    options: Decoding,
    seeds: Sequence[int],
    max_tokens: Sequence[int],
    decode: Decode | None = None,
) -> Iterator[list[ChosenToken]]:
    """The next token of every prompt's continuation at a time; each prompt has its own seed and maximum length."""
    inputs = _generation_inputs(network, special, prompts, replace(options, max_tokens=max(max_tokens)))
    limits = [min(wanted, possible) for wanted, possible in zip(max_tokens, inputs.max_tokens, strict=True)]
    draws = None
    if options.temperature:
        rows = [random_numbers(seed, ids, max(limits)) for seed, ids in zip(seeds, prompts, strict=True)]
        draws = torch.stack(rows).to(inputs.tokens.device)
    return _generate_tokens(replace(inputs, max_tokens=limits, draws=draws), decode)


def _search(inputs: SearchInputs, decode: Decode | None) -> list[list[Hypothesis]]:
    options, recorded = inputs.rules.options, recorded_searches(inputs.network)
    if recorded is not None and not options.stop:
        return recorded.search(inputs)
    engine = inputs.network.search_engine if isinstance(inputs.network, FastCopy) else None
    if engine is not None and engine.supports(options):
        return engine.search(inputs)
    if options.beam == 1:
        steps = _generate_tokens(inputs, decode)
        return [[best] for best in collect_hypotheses(steps, len(inputs.max_tokens), options.length_penalty)]
    logits, state = prefill(inputs)
    step, stops = partial(decode_one_token, inputs.network), _stop_check(options, decode)
    return beam_search(logits, state, step, select_rows, inputs.rules, inputs.max_tokens, stops)


def _generate_tokens(inputs: SearchInputs, decode: Decode | None) -> Iterator[list[ChosenToken]]:
    logits, state = prefill(inputs)
    step, stops = partial(decode_one_token, inputs.network), _stop_check(inputs.rules.options, decode)
    return generate_tokens(logits, state, step, select_rows, inputs.rules, inputs.max_tokens, inputs.draws, stops)


def _stop_check(options: Decoding, decode: Decode | None) -> StopCheck | None:
    if options.stop and decode is None:
        raise RegardError(f"stop={options.stop} is text, but only ids are known here: pass the tokenizer's `decode`")
    return None if decode is None else make_stop_check(options.stop, decode)


@torch.inference_mode()
def prefill(inputs: SearchInputs) -> tuple[Float[Tensor, "N V"], DecodingState]:
    """Read the inputs: the logits that follow them, and the state to continue from."""
    network, tokens, lengths = inputs.network, inputs.tokens, inputs.lengths
    if isinstance(network, EncoderDecoder):
        state = DecodingState(network.start(tokens, inputs.cache_length, lengths), torch.zeros_like(lengths), 0)
        for id_ in inputs.start[:-1]:
            decode_one_token(network, torch.full_like(lengths, id_), state)
        return decode_one_token(network, torch.full_like(lengths, inputs.start[-1]), state), state
    n, longest = tokens.shape
    prefix = lengths if network.config.prefix else None
    state = DecodingState(network.start(n, inputs.cache_length), lengths, longest, prefix)
    rows, last = torch.arange(n, device=tokens.device), torch.empty(0)
    for first, hidden in read_in_parts(network, tokens, state.cache, prefix=prefix):
        index = lengths - 1 - first  # [N]: of each row's last token in this part; negative if it was in an earlier one
        vectors = hidden[rows, index.clamp(0, hidden.size(1) - 1)]  # [N, C]
        last = vectors if first == 0 else torch.where((index >= 0)[:, None], vectors, last)
    return network.head(last[:, None])[:, 0], state  # of the last token only, since V is large


def read_in_parts(
    network: Decoder, tokens: Int[Tensor, "N P"], cache: Cache, start: int = 0, prefix: Int[Tensor, " N"] | None = None
) -> Iterator[tuple[int, Float[Tensor, "N p C"]]]:
    """Read the tokens from `start` on in parts of `PREFILL_TOKENS`: each part's first position and hidden states.

    The work can be cancelled between two parts. A prefix is bidirectional, so it is read in one part.
    """
    length = tokens.size(1)
    size = PREFILL_TOKENS if prefix is None else length
    for first in range(start, length, size):
        raise_if_cancelled()
        part, positions = (x[:, first : first + size] for x in (tokens, token_positions(tokens)))  # [N, p]
        yield first, network.extend(part, positions, cache.upto(first + part.size(1)), prefix)  # [N, p, C]


def _generation_inputs(network: Decoder, special: SpecialIds, prompts: Inputs, options: Decoding) -> SearchInputs:
    if not isinstance(network, Decoder):
        raise RegardError(f"generation requires a decoder, but this is an {network.config.kind}")
    check_inputs(network, special, prompts, options)
    return _search_inputs(network, special, prompts, options, [DEFAULT_MAX_TOKENS] * len(prompts), history=prompts)


def translation_inputs(
    network: Decoder | EncoderDecoder, special: SpecialIds, sources: Inputs, options: Decoding
) -> SearchInputs:
    """The inputs of a search for translations of these sources."""
    is_pair = isinstance(network, EncoderDecoder)
    if not is_pair and (not isinstance(network, Decoder) or special.separator is None):
        raise RegardError(
            f"translation requires an encoder-decoder, or a decoder with a separator between source and target: this "
            f"is a model of kind {network.config.kind!r}, and its separator is {special.separator}"
        )
    check_inputs(network, special, sources, options)
    max_tokens = [2 * len(source) + 10 for source in sources]
    if isinstance(network, Decoder):
        assert special.separator is not None
        sources = [[*source, special.separator] for source in sources]
        check_inputs(network, special, sources, options)
    return _search_inputs(network, special, sources, options, max_tokens, history=[[]] * len(sources))


def _search_inputs(
    network: Decoder | EncoderDecoder,
    special: SpecialIds,
    inputs: Inputs,
    options: Decoding,
    default_max_tokens: list[int],
    history: Inputs,
) -> SearchInputs:
    """`history` are the ids that count as part of each text when repetitions are looked for."""
    is_pair = isinstance(network, EncoderDecoder)
    start = special.target_start if is_pair else ()
    cached = [len(start or ids) - 1 for ids in inputs]  # the last generated token is never read
    max_tokens = _max_tokens(network, options, default_max_tokens, cached)
    longest = max(before + limit for before, limit in zip(cached, max_tokens, strict=True))
    padded_length = _padded_length(network, max(map(len, inputs)))
    tokens, lengths = pad_rows(inputs, network.device, padded_length)  # [N, P], [N]
    rules = TokenRules.of(special, options, network.config.outputs, history, tokens.device)
    draws = None
    if options.temperature:
        rows = [random_numbers(options.seed, ids, max(max_tokens)) for ids in inputs]
        draws = torch.stack(rows).to(tokens.device)
    cache_length = _padded_length(network, longest)
    return SearchInputs(network, tokens, lengths, max_tokens, rules, draws, start, cache_length)


def check_inputs(network: Network, special: SpecialIds, inputs: Inputs, options: Decoding) -> None:
    """Raise a RegardError unless the network can continue each of these inputs with these options."""
    config = network.config
    if network.training:
        raise RegardError("this network is in training mode, where dropout is active: call its .eval() first")
    special.check(config)
    if options.beam > config.outputs:
        raise RegardError(f"beam={options.beam} is wider than the model's {config.outputs} possible tokens")
    for number, ids in enumerate(inputs):
        if not len(ids):
            raise RegardError(f"input {number} is empty: there is nothing to continue")
        if config.pad_id not in special.end and all(id_ == config.pad_id for id_ in ids):
            raise RegardError(f"input {number} is only padding (id {config.pad_id}): leave padding out")
        check_token_count(f"input {number}", len(ids), config.max_positions)


def _max_tokens(network: Network, options: Decoding, default: list[int], cached: list[int]) -> list[int]:
    """The maximum number of tokens for each input: the option or the default, within the learned positions."""
    limits = default if options.max_tokens is None else [options.max_tokens] * len(default)
    limits = [max(limit, options.min_tokens) for limit in limits]
    positions = network.config.max_positions
    if positions is not None:
        limits = [min(limit, positions - before) for limit, before in zip(limits, cached, strict=True)]
    if min(limits) < options.min_tokens:
        number = limits.index(min(limits))
        raise RegardError(
            f"min_tokens={options.min_tokens}, but the model has positions for only {limits[number]} tokens after "
            f"input {number}"
        )
    return limits


def recorded_searches(network: Network) -> RecordedSearches | None:
    """The recorded searches of a fast copy on a GPU; None for any other network."""
    return network.recorded_searches if isinstance(network, FastCopy) else None


def _padded_length(network: Network, length: int) -> int:
    """The length, or one of a few larger ones for a network with recorded searches."""
    if recorded_searches(network) is None:
        return length
    rounded, positions = round_length(length), network.config.max_positions
    return rounded if positions is None else min(rounded, positions)
