"""Networks to hypotheses: batched = single, cached = uncached, scores = one full pass, each key and value once."""

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.config import SpecialIds
from regard.data.tokenizer_training import train_tokenizer
from regard.decoding.generate import Inputs, generate, search_translations, stream
from regard.decoding.options import Decoding
from regard.decoding.search import Hypothesis
from regard.decoding.text_stream import make_stop_check, stream_text, text_before_stop
from regard.model.cache import AttentionCache, Cache, KeyValueBuffer
from regard.model.transformer import Decoder, Encoder, EncoderDecoder, build
from tests.support.decoding_cases import pairs_of
from tests.support.networks import SHAPES
from tests.support.oracles import small

SPECIAL = SpecialIds(end=(0, 5), start=30, separator=1, suppressed=(2, 30))
NETWORKS = {
    **{name: config for name, config in SHAPES.items() if config.kind != "encoder"},
    "prefix": small(kind="decoder", prefix=True),
    "prefix, learned": small(kind="decoder", prefix=True, positions="learned"),
    "no positions": small(positions="none"),
}
INPUTS = [[7, 8, 9, 10, 11, 0], [12, 0], [13, 14, 15, 0], [16, 17, 0]]
WAYS = {
    "greedy": Decoding(max_tokens=9),
    "beam": Decoding(beam=4, n_best=3, max_tokens=9),
    "short beam": Decoding(beam=3, length_penalty=0.0, max_tokens=7, min_tokens=2),
    "drawn": Decoding(temperature=1.5, top_k=20, top_p=0.95, min_p=0.01, seed=4, max_tokens=9),
    "careful": Decoding(repetition_penalty=1.7, no_repeat_ngram=2, max_tokens=12, min_tokens=8),
    "careful beam": Decoding(beam=3, n_best=2, repetition_penalty=1.3, no_repeat_ngram=2, max_tokens=12, min_tokens=8),
}


def network_of(name: str) -> Decoder | EncoderDecoder:
    """Weights that make its choices sharp: fresh ones say nearly the same thing everywhere."""
    network = build(NETWORKS[name]).double().eval()
    assert not isinstance(network, Encoder)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return network


def say(network: Decoder | EncoderDecoder, inputs: Inputs, options: Decoding, **more: object) -> list[list[Hypothesis]]:
    if isinstance(network, EncoderDecoder):
        return search_translations(network, SPECIAL, inputs, options, **more)  # type: ignore[arg-type]
    return generate(network, SPECIAL, inputs, options, **more)  # type: ignore[arg-type]


def all_at_once(network: Decoder | EncoderDecoder, given: Sequence[int], said: Sequence[int]) -> Tensor:
    """Logits behind the input and behind each token said, by one pass without a cache."""
    with torch.inference_mode():
        if isinstance(network, EncoderDecoder):
            return network(torch.tensor([given]), torch.tensor([[30, *said]]))[0]
        prefix = torch.tensor([len(given)]) if network.config.prefix else None
        return network(torch.tensor([[*given, *said]]), prefix=prefix)[0, len(given) - 1 :]


def same(ours: list[Hypothesis], theirs: list[Hypothesis]) -> None:
    assert [(each.ids, each.reason) for each in ours] == [(each.ids, each.reason) for each in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.score == pytest.approx(other.score, abs=1e-9)
        assert mine.penalised == pytest.approx(other.penalised, abs=1e-9)


@pytest.mark.parametrize(("name", "way"), pairs_of(NETWORKS, WAYS, "careful beam"))
def test_batched_equals_single(name: str, way: str) -> None:
    """Ragged, in any order, whatever the others are."""
    network, options = network_of(name), WAYS[way]
    together = say(network, INPUTS, options)
    backwards = say(network, INPUTS[::-1], options)[::-1]
    for ids, ours, turned in zip(INPUTS, together, backwards, strict=True):
        alone = say(network, [ids], options)[0]
        same(ours, alone)
        same(turned, alone)
    assert len({round(each[0].score, 6) for each in together}) > 1, "they all say the same: this proves little"


@pytest.mark.parametrize(("name", "way"), pairs_of(NETWORKS, ("greedy", "beam", "short beam", "drawn"), "beam"))
def test_scores_are_those_of_one_full_pass(name: str, way: str) -> None:
    network, options = network_of(name), WAYS[way]
    for ids, hypotheses in zip(INPUTS, say(network, INPUTS, options), strict=True):
        ranks = [each.penalised for each in hypotheses]
        assert ranks == sorted(ranks, reverse=True)
        assert len({tuple(each.ids) for each in hypotheses}) == len(hypotheses) == options.n_best
        for each in hypotheses:
            log_probs = all_at_once(network, ids, each.ids).log_softmax(-1)
            score = sum(float(log_probs[i, id_]) for i, id_ in enumerate(each.ids))
            if each.reason == "end":
                ends = [float(log_probs[len(each.ids), id_]) for id_ in SPECIAL.end]
                score += max(ends) if way != "drawn" else min(ends, key=lambda end: abs(each.score - score - end))
            assert each.score == pytest.approx(score, abs=1e-5)
            tokens = len(each.ids) + (each.reason == "end")
            assert each.penalised == pytest.approx(score / ((5 + tokens) / 6) ** options.length_penalty, abs=1e-5)
            assert options.max_tokens is not None
            assert (each.reason == "length") == (len(each.ids) == options.max_tokens)
            assert len(each.ids) >= options.min_tokens
            assert not {0, 2, 5, 30} & set(each.ids)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.slow
def test_greedy_is_the_argmax_of_a_full_pass_at_each_step(name: str) -> None:
    """Without any cache: all is computed anew for every token."""
    network = network_of(name)
    for ids, (ours,) in zip(INPUTS, say(network, INPUTS, Decoding(max_tokens=12)), strict=True):
        said: list[int] = []
        for _ in range(12):
            logits = all_at_once(network, ids, said)[-1].clone()
            logits[[id_ for id_ in SPECIAL.suppressed if id_ < len(logits)]] = -torch.inf
            token = int(logits.argmax())
            if token in SPECIAL.end:
                break
            said.append(token)
        assert ours.ids == said


@pytest.mark.parametrize("name", ["post-norm decoder", "prefix", "llama"])
def test_a_decoder_translates_after_its_separator(name: str) -> None:
    network, options = network_of(name), Decoding(beam=3, max_tokens=8)
    assert isinstance(network, Decoder)
    translated = search_translations(network, SPECIAL, INPUTS, options)
    generated = generate(network, SPECIAL, [[*ids, 1] for ids in INPUTS], options)
    for ours, theirs in zip(translated, generated, strict=True):
        same(ours, theirs)


def test_prompts_count_for_repetition() -> None:
    """In a text that goes on, the prompt counts; a translation may repeat its source."""
    network = network_of("post-norm decoder")
    assert isinstance(network, Decoder)
    prompt = [*range(7, 25), 9]
    options = Decoding(no_repeat_ngram=1, max_tokens=5)
    assert not set(generate(network, SPECIAL, [prompt], options)[0][0].ids) & set(prompt)
    source_bound = SpecialIds(separator=1, suppressed=tuple(id_ for id_ in range(30) if id_ not in prompt))
    (translated,) = search_translations(network, source_bound, [prompt], options)[0]
    assert len(set(translated.ids)) == 5


@pytest.mark.parametrize("way", ["greedy", "drawn"])
@pytest.mark.parametrize("name", ["paper", "gpt2", "prefix"])
def test_a_stream_gives_the_same_tokens(name: str, way: str) -> None:
    network, options = network_of(name), WAYS[way]
    for ids in INPUTS:
        (whole,) = say(network, [ids], options)[0]
        said = []
        for each in stream(network, SPECIAL, ids, options):
            assert not torch.is_inference_mode_enabled(), "the mode is not the reader's between two tokens"
            said.append(each)
        assert [each.token for each in said if each.reason != "end"] == whole.ids
        assert sum(each.log_prob for each in said) == pytest.approx(whole.score)
        assert [each.reason for each in said] == [None] * (len(said) - 1) + [whole.reason]
    with pytest.raises(ValueError, match="beam=2 cannot stream"):
        stream(network, SPECIAL, INPUTS[0], Decoding(beam=2))


def test_a_seed_determines_the_text() -> None:
    network = network_of("llama")
    texts = {
        seed: say(network, INPUTS, Decoding(temperature=2.0, seed=seed, max_tokens=9))[1][0].ids for seed in range(6)
    }
    assert len({tuple(text) for text in texts.values()}) > 3
    alone = say(network, INPUTS[1:2], Decoding(temperature=2.0, seed=3, max_tokens=20))[0][0].ids
    assert alone[: len(texts[3])] == texts[3], "nor does it depend on how much may come"


class Counted:
    """Keys and values that each attention's projections have computed: rows × positions."""

    def __init__(self, network: nn.Module) -> None:
        self.positions: dict[str, int] = {}
        for name, module in network.named_modules():
            if name.endswith((".k", ".v")):
                module.register_forward_hook(self.hook(name))

    def hook(self, name: str) -> Callable[[nn.Module, object, Tensor], None]:
        def count(_module: nn.Module, _inputs: object, output: Tensor) -> None:
            self.positions[name] = self.positions.get(name, 0) + output.shape[:-1].numel()

        return count


@pytest.mark.parametrize("name", ["post-norm decoder", "llama"])
@pytest.mark.parametrize("tokens", [2, 8, 16])
def test_no_key_or_value_is_computed_twice(name: str, tokens: int) -> None:
    """Linear in the output: the prompts once, padding included, then one position per token; the last is not read."""
    network = network_of(name)
    counted = Counted(network)
    found = say(network, INPUTS, Decoding(max_tokens=tokens))
    said = sum(len(each.ids) + (each.reason == "end") - 1 for (each,) in found)
    assert set(counted.positions.values()) == {len(INPUTS) * 6 + said}
    assert len(counted.positions) == 2 * network.config.layers


@pytest.mark.parametrize("tokens", [2, 8, 16])
def test_a_beam_computes_one_position_per_row_and_token(tokens: int) -> None:
    network, beam = network_of("paper"), 3
    counted = Counted(network)
    unending = SpecialIds(start=30)  # so that all go on to the limit
    search_translations(network, unending, INPUTS, Decoding(beam=beam, max_tokens=tokens))
    n, source = len(INPUTS), len(INPUTS) * 6
    for name, positions in counted.positions.items():
        own = name.startswith("decoder") and "cross" not in name
        assert positions == (n + n * beam * (tokens - 1) if own else source), name


def test_rows_of_a_cache() -> None:
    """Hypotheses move within their sentence; the source stays where it is, until its sentence is done."""
    room = KeyValueBuffer(torch.arange(12.0).view(6, 1, 2, 1), -torch.arange(12.0).view(6, 1, 2, 1))
    sources = torch.arange(3.0).view(3, 1, 1, 1)
    cache = Cache([room], [AttentionCache(sources, -sources)], torch.tensor([True, False, True]).view(3, 1, 1, 1))
    picked = cache.select(torch.tensor([1, 1, 2, 3, 5, 4]), None, filled=1)
    assert picked.self_attention[0].k[:, 0, 0, 0].tolist() == [2.0, 2.0, 4.0, 6.0, 10.0, 8.0]
    assert picked.self_attention[0].v[:, 0, 0, 0].tolist() == [-2.0, -2.0, -4.0, -6.0, -10.0, -8.0]
    assert picked.cross_attention[0].k.flatten().tolist() == [0.0, 1.0, 2.0]
    left = cache.select(torch.tensor([0, 1, 5, 4]), torch.tensor([0, 2]), filled=2)
    assert left.self_attention[0].k.flatten().tolist() == [0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 8.0, 9.0]
    assert left.cross_attention[0].k.flatten().tolist() == [0.0, 2.0]
    assert left.source_mask is not None
    assert left.source_mask.flatten().tolist() == [True, True]


@pytest.mark.slow
def test_maximum_lengths() -> None:
    network, unending = network_of("post-norm decoder"), SpecialIds(separator=1)
    assert isinstance(network, Decoder)
    assert len(generate(network, unending, [[3, 4]], Decoding())[0][0].ids) == 200
    assert len(search_translations(network, unending, [[3, 4]], Decoding())[0][0].ids) == 14
    assert len(search_translations(network, unending, [[3, 4]], Decoding(min_tokens=20))[0][0].ids) == 20
    learned = network_of("gpt2")
    assert isinstance(learned, Decoder)
    lengths = [len(each[0].ids) for each in generate(learned, SpecialIds(), [[3] * 32, [3] * 30], Decoding())]
    assert lengths == [1, 3], "a token may be said behind the last position, if none has to read it"
    pair = network_of("uneven")
    found = search_translations(pair, SpecialIds(start=30), [[3] * 32], Decoding(beam=2, max_tokens=99))
    assert len(found[0][0].ids) == 32
    assert search_translations(pair, SPECIAL, [], Decoding()) == []


@pytest.mark.usefixtures("without_type_checks")
def test_inputs_that_cannot_be_decoded() -> None:
    network = build(small(kind="decoder", positions="learned"))
    assert isinstance(network, Decoder)
    with pytest.raises(ValueError, match=r"is in training mode.*\.eval\(\)"):
        generate(network, SPECIAL, [[3]], Decoding())
    network.eval()
    for prompts, message in {
        ((3,), ()): "input 1 is empty",
        ((3,), (30, 30)): r"input 1 is only padding \(id 30\)",
        ((3,) * 33,): "input 0 has 33 tokens, but this model reads at most 32",
        ((31,),): "token id 31 is outside 0 … 30",
    }.items():
        with pytest.raises(ValueError, match=message):
            generate(network, SPECIAL, prompts, Decoding())
    with pytest.raises(ValueError, match="beam=31 is wider than the model's 30 possible tokens"):
        generate(network, SPECIAL, [[3]], Decoding(beam=31))
    with pytest.raises(ValueError, match="min_tokens=9, but the model has positions for only 3 tokens after input 1"):
        generate(network, SPECIAL, [[3], [3] * 30], Decoding(min_tokens=9))
    with pytest.raises(ValueError, match="is text, but only ids are known here"):
        generate(network, SPECIAL, [[3]], Decoding(stop=("a",)))
    with pytest.raises(ValueError, match="its separator is None"):
        search_translations(network, SpecialIds(), [[3]], Decoding())
    with pytest.raises(ValueError, match="input 0 is empty"):
        search_translations(network, SPECIAL, [[]], Decoding())
    with pytest.raises(ValueError, match="input 0 is empty"):
        stream(network, SPECIAL, [], Decoding())
    with pytest.raises(ValueError, match="the end id 77 is outside the vocabulary"):
        generate(network, SpecialIds(end=(77,)), [[3]], Decoding())
    encoder = build(small(kind="encoder")).eval()
    with pytest.raises(ValueError, match="generation requires a decoder, but this is an encoder"):
        generate(encoder, SPECIAL, [[3]], Decoding())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="translation requires an encoder-decoder, or"):
        search_translations(encoder, SPECIAL, [[3]], Decoding())  # type: ignore[arg-type]
    with torch.no_grad():
        network.embedding.tokens.weight.fill_(torch.nan)
    for beam in (1, 2):
        with pytest.raises(ValueError, match=r"non-finite values \(NaN\)"):
            generate(network, SPECIAL, [[3]], Decoding(beam=beam))


# Text


def letters(ids: list[int]) -> str:
    return "".join(chr(ord("a") + id_) for id_ in ids)


@pytest.mark.parametrize("beam", [1, 3])
def test_stop_strings(beam: int) -> None:
    network, ids = network_of("llama"), INPUTS[0]
    free = say(network, [ids], Decoding(beam=beam, min_tokens=12, max_tokens=12))[0][0]
    text = letters(free.ids)
    stop = text[3:5]
    options = Decoding(beam=beam, min_tokens=12, max_tokens=12, stop=(stop, "no such"))
    found = say(network, [ids], options, decode=letters)[0][0]
    said = letters(found.ids)
    if beam == 1:
        assert said == text[: text.index(stop) + 2]
        assert found.reason == "stop"
        parts = stream(network, SPECIAL, ids, options, decode=letters)
        assert "".join(stream_text((each.token for each in parts), letters, (stop,))) == text_before_stop(text, [stop])
    assert stop not in said[:-1]


@given(
    text=st.text(st.sampled_from("aé€😀 \n\ufffd"), max_size=30),
    stops=st.lists(st.text(st.sampled_from("aé€ \n"), min_size=1, max_size=3), max_size=2),
)
def test_streamed_text_is_the_text(text: str, stops: list[str]) -> None:
    """Bytes as tokens: no piece ends within a character, none tells what a stop string takes back."""
    read = []

    def tokens() -> object:
        for byte in text.encode():
            read.append(byte)
            yield byte

    pieces = list(stream_text(tokens(), lambda ids: bytes(ids).decode(errors="replace"), stops))  # type: ignore[arg-type]
    assert "".join(pieces) == text_before_stop(text, stops)
    assert all(pieces)
    if any(stop in text for stop in stops):
        end = min(text.index(stop) + len(stop) for stop in stops if stop in text)
        assert len(read) <= len(text[:end].encode()) + 4, "it read on behind a stop"


STREAMED_TOKENIZER = train_tokenizer(["aé€😀 the cat\n"] * 3, 300)


@given(text=st.text(max_size=30))
def test_streamed_text_through_a_tokenizer(text: str) -> None:
    tokenizer = STREAMED_TOKENIZER
    assert "".join(stream_text(tokenizer.encode(text), tokenizer.decode)) == text


def test_text_comes_as_soon_as_it_is_certain() -> None:
    decode = lambda ids: bytes(ids).decode(errors="replace")  # noqa: E731
    assert list(stream_text(b"ab", decode)) == ["a", "b"]
    assert list(stream_text("é€".encode(), decode)) == ["é", "€"]
    assert list(stream_text("a€".encode()[:-1], decode)) == ["a", "\ufffd"], "broken for good, and so told"
    assert list(stream_text(b"\xc3a", decode)) == ["\ufffda"], "nor does it wait for what cannot come"
    assert list(stream_text(b"to\nbe\n\nor", decode, ["\n\n"])) == ["t", "o", "\nb", "e"]


def test_a_decoder_that_drops_the_first_space() -> None:
    words = ["▁the", "▁cat", "s", "▁", "sat"]
    decode = lambda ids: "".join(words[id_] for id_ in ids).replace("▁", " ").removeprefix(" ")  # noqa: E731
    assert "".join(stream_text([0, 1, 2, 3, 4, 1], decode)) == "the cats sat cat"


def test_a_stop_is_found_at_little_cost() -> None:
    """However long the text, only its last ids are decoded."""
    longest = 0

    def decode(ids: list[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return letters(ids)

    stopped = make_stop_check(["dcb"], decode)
    assert stopped is not None
    text: list[int] = []
    for id_ in [*[0] * 500, 3, 2, 1]:
        assert not text or not stopped(text)
        text.append(id_)
    assert stopped(text)
    assert longest <= 20
    assert make_stop_check([], decode) is None
