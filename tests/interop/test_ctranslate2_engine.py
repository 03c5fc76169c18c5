"""CTranslate2 as an engine: the texts and scores of the Python search, through Regard's API."""

from dataclasses import replace
from itertools import chain

import pytest

import regard
import regard.interop
from regard.decoding.fast_copy import FastCopy
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.errors import RegardError
from tests.support.decoding_cases import INPUTS, SPECIAL, network_of

pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")

from regard.decoding.generate import search_translations

KINDS = ["paper", "pre-norm, grouped, no bias", "separate vocabularies"]


@pytest.mark.slow
@pytest.mark.parametrize("first", [None, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_texts_and_scores(kind: str, first: int | None) -> None:
    special = replace(SPECIAL, first=first, start=22 if kind == "separate vocabularies" else 30)
    model = Model(network_of(kind).float(), None, special)
    copy = model.quick("float32", engine="ctranslate2").network
    assert isinstance(copy, FastCopy)
    assert copy.search_engine is not None
    for options in (Decoding(max_tokens=9), Decoding(max_tokens=9, min_tokens=4)):
        assert copy.search_engine.supports(options) == (options.min_tokens == 0)
        theirs = search_translations(model.network, special, INPUTS, options)  # type: ignore[arg-type]
        ours = search_translations(copy, special, INPUTS, options)  # type: ignore[arg-type]
        assert [[(each.ids, each.reason) for each in best] for best in ours] == [
            [(each.ids, each.reason) for each in best] for best in theirs
        ]
        for one, other in zip(chain(*ours), chain(*theirs), strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-3)
            assert one.penalised == pytest.approx(other.penalised, abs=1e-3)


@pytest.mark.slow
def test_real_sentences_have_the_scores_of_the_python_search() -> None:
    model = regard.load("petit-fr-en")
    texts = ["Le chat dort.", "Les deux chiens noirs mangent."]
    copy = model.quick("float32", engine="ctranslate2")
    for beam in (1, 4):
        ours, theirs = (each.translations(texts, beam=beam, n_best=1) for each in (copy, model))
        assert [best[0].text for best in ours] == [best[0].text for best in theirs]
        for one, other in zip(chain(*ours), chain(*theirs), strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-3)
            assert one.penalised == pytest.approx(other.penalised, abs=1e-3)


def test_what_ctranslate2_cannot_do_is_an_error() -> None:
    with pytest.raises(RegardError, match="for encoder–decoders on a CPU"):
        Model(network_of("gpt2"), None, SPECIAL).quick(engine="ctranslate2")
    with pytest.raises(RegardError, match="no precision='bfloat16'"):
        Model(network_of("paper"), None, SPECIAL).quick("bfloat16", engine="ctranslate2")
