"""A user's module decodes without a cache: wrapped like one, Regard's network gives what it gives with its cache."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.config import ModelConfig, SpecialIds
from regard.decoding.generate import generate, search_translations
from regard.decoding.options import Decoding
from regard.decoding.own_network import OwnNetwork, own_config, wrap_module
from regard.decoding.scoring import score_rows
from regard.errors import RegardError
from regard.model.transformer import Decoder, EncoderDecoder, Network, build

SIZES: dict[str, Any] = {"vocab_size": 24, "d_model": 16, "heads": 2, "layers": 2, "d_ff": 24, "dropout": 0.0}
INPUTS = [[3, 7, 1], [5, 2, 9, 9, 4, 0], [6]]
OPTIONS = {
    "greedy": Decoding(max_tokens=8),
    "beam": Decoding(beam=3, n_best=2, max_tokens=8),
    "sampling": Decoding(temperature=1.5, seed=3, max_tokens=8),
}


def regards(kind: str) -> Network:
    torch.manual_seed(2)
    return build(ModelConfig(kind=kind, **SIZES)).double().eval()  # type: ignore[arg-type]


def own(network: nn.Module, config: ModelConfig) -> Network:
    return wrap_module(network, own_config(config, max_length=64)).eval()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_translations_equal_those_with_a_cache(options: Decoding) -> None:
    network = regards("encoder-decoder")
    assert isinstance(network, EncoderDecoder)
    special = SpecialIds(end=(1,), start=23)
    wrapped = own(network, network.config)
    assert isinstance(wrapped, EncoderDecoder)
    expected = search_translations(network, special, INPUTS, options)
    actual = search_translations(wrapped, special, INPUTS, options)
    assert [[each.ids for each in row] for row in actual] == [[each.ids for each in row] for row in expected]
    scores = [[each.score for row in found for each in row] for found in (actual, expected)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-9)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_continuations_equal_those_with_a_cache(options: Decoding) -> None:
    network, special = regards("decoder"), SpecialIds(end=(1,))
    wrapped = own(network, network.config)
    assert isinstance(network, Decoder)
    assert isinstance(wrapped, Decoder)
    expected, actual = (generate(each, special, INPUTS, options) for each in (network, wrapped))
    assert [[each.ids for each in row] for row in actual] == [[each.ids for each in row] for row in expected]


@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
def test_scores_equal_those_of_the_network_itself(kind: str) -> None:
    network, special = regards(kind), SpecialIds(end=(1,), start=23 if kind == "encoder-decoder" else None)
    rows = [([3, 7], [1, 4, 5]), ([2], [6]), ([8, 8, 8], [2, 2])]
    expected = score_rows(network, special, rows, with_end=True)
    assert score_rows(own(network, network.config), special, rows, with_end=True) == pytest.approx(expected, abs=1e-9)


class Recorder(nn.Module):
    """Keeps what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(23))
        self.given: dict[str, Tensor] = {}

    def output(self, tokens: Tensor) -> Tensor:
        return self.weight.expand(*tokens.shape, 23)


def test_masks_and_lengths_are_passed_by_name_and_padding_holds_pad() -> None:
    class Pair(Recorder):
        def forward(
            self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor, target_lengths: Tensor, scale: float = 1
        ) -> Tensor:
            self.given = locals()
            return self.output(tgt)

    module = Pair()
    network = own(module, ModelConfig(kind="encoder-decoder", **SIZES))
    lengths = torch.tensor([2, 3]), torch.tensor([1, 2])
    logits = network(torch.tensor([[4, 5, 0], [6, 7, 8]]), torch.tensor([[23, 0], [23, 9]]), *lengths)
    assert logits.shape == (2, 2, 23)
    assert module.given["src"].tolist() == [[4, 5, 23], [6, 7, 8]]
    assert module.given["tgt"].tolist() == [[23, 23], [23, 9]]
    assert module.given["src_mask"].tolist() == [[[True, True, False]], [[True, True, True]]]
    assert module.given["tgt_mask"].tolist() == [[[True, False], [True, False]], [[True, False], [True, True]]]
    assert module.given["target_lengths"].tolist() == [1, 2]
    assert module.given["scale"] == 1


def test_an_encoders_mask_hides_only_padding() -> None:
    class Reader(Recorder):
        def forward(self, tokens: Tensor, lengths: Tensor, mask: Tensor) -> Tensor:
            self.given = locals()
            return self.output(tokens)

    module = Reader()
    own(module, ModelConfig(kind="encoder", **SIZES))(torch.tensor([[4, 5, 6]]), torch.tensor([2]))
    assert module.given["mask"].tolist() == [[[True, True, False]] * 3]
    assert module.given["lengths"].tolist() == [2]


@pytest.mark.parametrize("calls_it_itself", [False, True])
def test_a_generator_is_applied_once(calls_it_itself: bool) -> None:
    class Annotated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(24, 23)  # as wide as the output, so that its shape tells nothing
            self.generator = nn.Sequential(nn.Linear(23, 23), nn.LogSoftmax(-1))

        def forward(self, tokens: Tensor) -> Tensor:
            hidden = self.embedding(tokens)
            return self.generator(hidden) if calls_it_itself else hidden

    module = Annotated()
    network, tokens = own(module, ModelConfig(kind="decoder", **SIZES)), torch.tensor([[1, 2]])
    for _ in range(2):  # the first call finds out
        torch.testing.assert_close(network(tokens), module.generator(module.embedding(tokens)))


def test_a_forward_that_cannot_be_called_is_refused_with_its_line() -> None:
    class Unknown(Recorder):
        def forward(self, source: Tensor, target: Tensor, memory: Tensor) -> Tensor:
            return self.output(source + target + memory)

    class Single(Recorder):
        def forward(self, tokens: Tensor) -> Tensor:
            return self.output(tokens)

    pair = ModelConfig(kind="encoder-decoder", **SIZES)
    with pytest.raises(RegardError, match=r"test_own_network.py, line \d+: Unknown.forward needs memory"):
        own(Unknown(), pair)
    with pytest.raises(RegardError, match=r"Single.forward takes 1 arguments.*forward\(source, target, ...\)"):
        own(Single(), pair)


def test_the_config_keeps_the_vocabulary_and_limits_the_length() -> None:
    config = ModelConfig(kind="decoder", positions="rotary", rotary_pairs="adjacent", **SIZES)
    assert own_config(config, 64).max_positions == 64
    assert own_config(config, 64).vocab_size == 24
    assert (
        own_config(replace(config, positions="learned", rotary_pairs="halves", max_length=50), 64).max_positions == 50
    )
    with pytest.raises(RegardError, match="prefix"):
        own_config(ModelConfig(kind="decoder", prefix=True, **SIZES), 64)


def test_attention_weights_that_a_module_keeps_do_not_prevent_a_copy() -> None:
    class Keeping(Recorder):
        def forward(self, tokens: Tensor) -> Tensor:
            self.kept = self.weight * 2  # with a history, as attention weights in The Annotated Transformer
            return self.output(tokens)

    network = own(Keeping(), ModelConfig(kind="decoder", **SIZES))
    network(torch.tensor([[1]]))
    assert isinstance(network, OwnNetwork)
    copy = deepcopy(network)
    assert copy.module is not network.module
    torch.testing.assert_close(copy.module.kept, network.module.kept)


def test_what_needs_regards_network_is_refused_by_name(tmp_path: Any) -> None:
    network = regards("decoder")
    model = regard.Model(own(network, network.config).float(), regard.load("petit-fr-en").tokenizer)
    assert set(model.tasks) == {"generate", "score texts"}
    with pytest.raises(RegardError, match="needs Regard's own network; this is your module"):
        model.quick()
    with pytest.raises(RegardError, match="needs Regard's own network; this is your module"):
        model.attend("Le chat.")
    with pytest.raises(RegardError, match="needs Regard's own network; this is your module"):
        regard.export(model, tmp_path / "exported")
