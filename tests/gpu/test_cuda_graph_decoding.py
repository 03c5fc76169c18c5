"""Decoding with CUDA graphs generates the same text as the network step by step."""

from itertools import chain

import pytest
import torch

from regard.decoding.fast_copy import make_fast_copy
from regard.decoding.generate import generate, search_translations
from tests.support.decoding_cases import INPUTS, KINDS, WAYS, network_of, special_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_cuda_graphs_generate_the_same(kind: str, way: str) -> None:
    network = network_of(kind).cuda()
    copy = make_fast_copy(network, "float32")
    search, special = generate if kind in ("gpt2", "llama") else search_translations, special_of(kind)
    for inputs in (INPUTS, INPUTS[::-1]):
        theirs = search(network, special, inputs, WAYS[way])  # type: ignore[arg-type]
        ours = search(copy, special, inputs, WAYS[way])  # type: ignore[arg-type]
        assert [[each.ids for each in best] for best in ours] == [[each.ids for each in best] for best in theirs]
        for one, other in zip(chain(*ours), chain(*theirs), strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-3)
