"""The copy made for decoding, and the loop over tensors that stay where they are: the same text as the network."""

from collections.abc import Callable  # noqa: TC003
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path

import pytest
import torch

from regard.config import SpecialIds, preset
from regard.data.tokenizer_training import train_tokenizer
from regard.decoding.cuda_graph_decoding import RecordedSearches
from regard.decoding.fast_copy import FastDecoder, JoinedLinear, PackedLinear, Precision, make_copy, make_fast_copy
from regard.decoding.generate import generate, search_translations
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.interop.export import export
from regard.model.transformer import Decoder, EncoderDecoder, build
from tests.support.decoding_cases import INPUTS, KINDS, SPECIAL, WAYS, network_of, pairs_of, special_of
from tests.support.oracles import randomise, small

CASES = pairs_of(KINDS, WAYS, "beam")


@pytest.mark.parametrize(("kind", "way"), CASES)
def test_a_fast_copy_generates_the_same(kind: str, way: str) -> None:
    network = network_of(kind)
    search = generate if kind in ("gpt2", "llama") else search_translations
    theirs = search(network, special_of(kind), INPUTS, WAYS[way])  # type: ignore[arg-type]
    ours = search(make_fast_copy(network, "float32"), special_of(kind), INPUTS, WAYS[way])  # type: ignore[arg-type]
    assert [[each.ids for each in best] for best in ours] == [[each.ids for each in best] for best in theirs]
    for one, other in zip(chain(*ours), chain(*theirs), strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)


@pytest.mark.parametrize(("kind", "way"), CASES)
def test_a_recorded_search_generates_the_same(kind: str, way: str) -> None:
    """What a GPU records as a graph, run here as it is; twice, as for a second batch of the same shapes."""
    network = network_of(kind)
    looped = make_copy(network)
    looped.recorded_searches = RecordedSearches()
    search = generate if kind in ("gpt2", "llama") else search_translations
    for inputs in (INPUTS, INPUTS[::-1]):
        theirs = search(network, special_of(kind), inputs, WAYS[way])  # type: ignore[arg-type]
        ours = search(looped, special_of(kind), inputs, WAYS[way])  # type: ignore[arg-type]
        assert [[each.ids for each in best] for best in ours] == [[each.ids for each in best] for best in theirs]
        assert [[each.reason for each in best] for best in ours] == [[each.reason for each in best] for best in theirs]
        for one, other in zip(chain(*ours), chain(*theirs), strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)
            assert one.penalised == pytest.approx(other.penalised, abs=1e-4)
    assert len(looped.recorded_searches.searches) == 1


def test_the_original_network_is_unchanged() -> None:
    network = network_of("paper")
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    copy = make_fast_copy(network, "bfloat16")
    search_translations(copy, SPECIAL, INPUTS, WAYS["beam"])
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert not any(parameter.requires_grad for parameter in copy.parameters())
    assert all(parameter.requires_grad for parameter in network.parameters())


@pytest.mark.parametrize(("precision", "most"), [("bfloat16", 0.1), ("int8", 0.4)])
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu-tanh", "silu", "swiglu"])
def test_lower_precision_is_close(activation: str, precision: Precision, most: float) -> None:
    network = build(small(activation=activation)).eval()
    assert isinstance(network, EncoderDecoder)
    randomise([network])
    source, target = torch.tensor([INPUTS[1]]), torch.tensor([[30, *INPUTS[1]]])
    with torch.no_grad():
        exact, near = network(source, target), make_fast_copy(network, precision)(source, target)
    difference = (exact.log_softmax(-1) - near.log_softmax(-1)).abs().max()
    assert 0 < difference < most


def test_several_linear_layers_are_one_product() -> None:
    a, b = torch.nn.Linear(6, 4), torch.nn.Linear(6, 3)
    x = torch.randn(5, 6)
    packed = PackedLinear([(a.weight, a.bias), (b.weight, b.bias)], torch.float32)
    torch.testing.assert_close(packed(x), torch.cat([a(x), b(x)], 1).detach())


def test_joined_layers_may_have_biases_or_not() -> None:
    a, b, c = torch.nn.Linear(6, 4, bias=False), torch.nn.Linear(6, 3), torch.nn.Linear(6, 4, bias=False)
    x = torch.randn(5, 6)
    layers = [(each.weight, each.bias) for each in (a, b, c)]
    wanted = torch.cat([a(x), b(x), c(x)], 1).detach()
    torch.testing.assert_close(PackedLinear(layers, torch.float32)(x), wanted)
    torch.testing.assert_close(JoinedLinear(layers, torch.float32)(x), wanted)


@pytest.mark.usefixtures("without_type_checks")
def test_networks_without_a_fast_copy_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing to decode"):
        make_fast_copy(build(preset("tiny", kind="decoder", classes=3)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="precision='int4' is not a valid choice"):
        make_fast_copy(network_of("paper"), "int4")  # type: ignore[arg-type]


@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("beam", [1, 2])
@pytest.mark.slow
def test_no_ngram_is_repeated_across_the_end_of_a_prompt(beam: int, looped: bool) -> None:
    """Whatever the prompts beside it: its own is what a text must not repeat."""
    network = network_of("gpt2")
    assert isinstance(network, Decoder)
    if looped:
        network = FastDecoder(network)
        network.recorded_searches = RecordedSearches()
    options = Decoding(beam=beam, no_repeat_ngram=2, max_tokens=12)
    prompts = [[5, 2, 5], [2], [3, 4, 5, 6, 7, 3, 4]]
    together = [best[0].ids for best in generate(network, SPECIAL, prompts, options)]
    for prompt, said in zip(prompts, together, strict=True):
        assert said == generate(network, SPECIAL, [prompt], options)[0][0].ids
        whole = prompt + said
        pairs = list(pairwise(whole))
        before, new = pairs[: len(prompt) - 1], pairs[len(prompt) - 1 :]
        assert len(set(new)) == len(new)
        assert not set(new) & set(before)


CHANGES = {
    "greedy": [{"max_tokens": 5}, {"max_tokens": 26}, {"seed": 4}],
    "beam": [{"n_best": 1}, {"n_best": 4}, {"max_tokens": 20, "n_best": 2}],
    "drawn": [{"seed": 8}, {"seed": 9, "max_tokens": 3}, {"max_tokens": 26}],
    "without repetition": [{"max_tokens": 26}, {"n_best": 3}],
}
"""options that a graph does not depend on"""


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["paper", "gpt2", "prefix"])
def test_a_search_is_recorded_once_for_all_batches_that_it_can_serve(kind: str, way: str) -> None:
    """A new seed, n_best, max_tokens or prompt length takes effect without costing a new graph."""
    network = network_of(kind)
    looped = make_copy(network)
    looped.recorded_searches = RecordedSearches()
    search = generate if kind == "gpt2" else search_translations
    for change in [{}, *CHANGES[way]]:
        options = replace(WAYS[way], **change)  # type: ignore[arg-type]
        for inputs in (INPUTS, [ids[:3] for ids in INPUTS]):
            ours, theirs = (search(each, SPECIAL, inputs, options) for each in (looped, network))  # type: ignore[arg-type]
            assert [[each.ids for each in best] for best in ours] == [[each.ids for each in best] for best in theirs]
    assert len(looped.recorded_searches.searches) == 1


@pytest.mark.slow
@pytest.mark.parametrize("way", ["greedy", "beam"])
def test_threads_can_share_a_recorded_search(way: str) -> None:
    """Its tensors hold one batch at a time: without turns, threads would read one another's texts."""
    network = network_of("paper")
    looped = make_copy(network)
    looped.recorded_searches = RecordedSearches()
    batches = [[[3 + i, 4, 5 + i % 7], [6, 7 + i]] for i in range(12)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda batch: search_translations(looped, SPECIAL, batch, WAYS[way]), batches))
    for batch, ours in zip(batches, found, strict=True):
        theirs = search_translations(network, SPECIAL, batch, WAYS[way])
        assert [[each.ids for each in best] for best in ours] == [[each.ids for each in best] for best in theirs]


def test_another_start_token_is_another_recorded_search() -> None:
    network = network_of("paper")
    looped = make_copy(network)
    looped.recorded_searches = RecordedSearches()
    for start in (30, 3):
        special = SpecialIds(start=start, end=(0,))
        ours, theirs = (search_translations(each, special, INPUTS, WAYS["greedy"]) for each in (looped, network))
        assert [each[0].ids for each in ours] == [each[0].ids for each in theirs]


@pytest.mark.parametrize("temperature", [1e-40, 1e-3, 1e6])
def test_any_temperature_samples_a_token(temperature: float) -> None:
    network = network_of("gpt2")
    assert isinstance(network, Decoder)
    options = Decoding(temperature=temperature, max_tokens=5)
    drawn = [each[0].ids for each in generate(network, SPECIAL, INPUTS, options)]
    best = [each[0].ids for each in generate(network, SPECIAL, INPUTS, Decoding(max_tokens=5))]
    assert (drawn == best) == (temperature < 1)


def test_sampling_without_an_allowed_token_is_an_error() -> None:
    network = network_of("gpt2")
    assert isinstance(network, Decoder)
    special = SpecialIds(suppressed=tuple(range(30)))
    with pytest.raises(ValueError, match="no token is allowed"):
        generate(network, special, INPUTS, Decoding(temperature=1.0))
    with torch.no_grad():
        network.embedding.tokens.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="non-finite values"):
        generate(network, SPECIAL, INPUTS, Decoding(temperature=1.0))


def test_a_fast_copy_can_only_decode(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["abc def"], 300)
    network = build(small(vocab_size=tokenizer.size)).eval()
    model = Model(network, tokenizer.with_template(after=[0]), SpecialIds(start=tokenizer.pad, end=(0,)))
    copy = model.quick("float32")
    assert copy.translate("abc", max_tokens=4) == model.translate("abc", max_tokens=4)
    wishes: list[Callable[[], object]] = [
        lambda: copy.save(tmp_path / "copy"),
        lambda: export(copy, tmp_path / "copy"),
        lambda: copy.attend("abc"),
        lambda: copy.quick(),
        lambda: copy.to(dtype=torch.bfloat16),
    ]
    for wish in wishes:
        with pytest.raises(ValueError, match="copy made for decoding"):
            wish()
    assert not (tmp_path / "copy").exists()
