"""Speculative decoding: a draft changes how fast a text is generated, never the text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.decoding.generate import stream, stream_with_draft
from regard.decoding.options import Decoding
from regard.decoding.speculative import DRAFT_TOKENS, AcceptanceCount
from regard.decoding.text_model import Model
from tests.support.commands import command
from tests.support.text_models import TOKENIZER, random_model

MODEL = random_model(kind="decoder")


def blurred(noise: float) -> Model:
    """The model with noise in its weights: a draft that is often right."""
    draft = random_model(kind="decoder")
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in draft.network.parameters():
            parameter.add_(torch.randn_like(parameter) * noise)
    return draft


DRAFTS = {"itself": MODEL, "similar": blurred(0.02), "other": random_model(kind="decoder", layers=1)}


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(sorted(DRAFTS)),
    prompt=st.sampled_from(["Le chat", "é", "Il a un"]),
    options=st.fixed_dictionaries(
        {"max_tokens": st.integers(1, 30), "temperature": st.sampled_from([0.0, 0.7, 1.5]), "seed": st.integers(0, 99)},
        optional={
            "top_k": st.integers(1, 9),
            "top_p": st.floats(0.2, 1),
            "repetition_penalty": st.sampled_from([1.3]),
            "no_repeat_ngram": st.sampled_from([2]),
            "min_tokens": st.just(1),
        },
    ),
)
def test_a_draft_does_not_change_the_tokens(name: str, prompt: str, options: dict[str, Any]) -> None:
    ids, chosen, count = MODEL.prompt_ids(prompt), Decoding(**options), AcceptanceCount()
    network, draft, special, decode = MODEL.network, DRAFTS[name].network, MODEL.special, TOKENIZER.decode
    alone = list(stream(network, special, ids, chosen, decode))  # type: ignore[arg-type]
    together = list(stream_with_draft(network, draft, special, ids, chosen, decode, count))  # type: ignore[arg-type]
    assert [(token.token, token.reason) for token in together] == [(token.token, token.reason) for token in alone]
    assert [token.log_prob for token in together] == pytest.approx([token.log_prob for token in alone], abs=1e-9)
    assert 0 <= count.accepted <= count.proposed <= DRAFT_TOKENS * len(alone)
    if name == "itself":  # of the last proposals, some may come after the end
        assert count.proposed - count.accepted < DRAFT_TOKENS


def test_a_good_draft_saves_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step of the model reads all proposals: with a perfect draft, it reads five tokens at a time."""
    shapes = []
    network: Any = random_model(kind="decoder").network
    step = network.step

    def counted(tokens: torch.Tensor, *rest: Any, **more: Any) -> Any:
        shapes.append(tuple(tokens.shape))
        return step(tokens, *rest, **more)

    monkeypatch.setattr(network, "step", counted)
    model = Model(network, MODEL.tokenizer, MODEL.special)
    text = model.generate("Le chat", draft=DRAFTS["itself"], max_tokens=21, min_tokens=21)
    assert text == MODEL.generate("Le chat", max_tokens=21, min_tokens=21)
    assert shapes == [(1, 1 + DRAFT_TOKENS)] * 4


@pytest.mark.parametrize(
    "options", [Decoding(max_tokens=20, stop=("e",)), Decoding(max_tokens=20, temperature=1.0, seed=3)]
)
@pytest.mark.parametrize("name", sorted(DRAFTS))
def test_text_is_streamed_and_stops(options: Decoding, name: str) -> None:
    pieces = MODEL.stream("Le chat", draft=DRAFTS[name], decoding=options)
    assert "Le chat" + "".join(pieces) == MODEL.generate("Le chat", decoding=options)


def test_a_draft_must_predict_the_same_tokens() -> None:
    class Renamed(HuggingFaceTokenizer):
        def pieces(self, ids: Sequence[int]) -> list[str]:
            return [piece.upper() for piece in super().pieces(ids)]

    other = random_model(kind="decoder")
    assert isinstance(other.tokenizer, HuggingFaceTokenizer)
    other.tokenizer = Renamed(other.tokenizer.engine, other.tokenizer.settings)
    with pytest.raises(ValueError, match="the draft predicts other tokens"):
        MODEL.generate("Le chat", draft=other)
    with pytest.raises(ValueError, match="beam=3 with a draft"):
        MODEL.generate("Le chat", draft=MODEL, beam=3)
    with pytest.raises(ValueError, match="requires a decoder"):
        MODEL.generate("Le chat", draft=random_model())
    with pytest.raises(ValueError, match="has no tokenizer"):
        MODEL.generate("Le chat", draft=Model(MODEL.network, None, MODEL.special))


@pytest.mark.slow
def test_the_command_prints_the_share_of_accepted_tokens(tmp_path: Path) -> None:
    for name, model in {"model": random_model(kind="decoder"), "draft": blurred(0.02)}.items():
        model.network.float()
        model.save(tmp_path / name)
    options = ("--model", str(tmp_path / "model"), "--max-tokens", "20")
    alone = command("generate", "Le chat", *options)
    done = command("generate", "Le chat", *options, "--draft", str(tmp_path / "draft"))
    assert done.stdout == alone.stdout
    assert "tokens of the draft accepted (" in done.stderr
