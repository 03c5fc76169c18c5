"""Pseudo-perplexity, compared with a loop that masks one token at a time, and with a model that knows nothing."""

import json
import math
from pathlib import Path

import pytest
import torch

import regard
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.evaluation.evaluate import evaluate, evaluate_masked, task_of
from regard.evaluation.pseudo_perplexity import MaskedScore
from tests.support.commands import command, refused
from tests.support.text_models import MASK_TOKENIZER, TEXTS, random_masked_model, random_model


def by_hand(model: Model, texts: list[str]) -> tuple[float, int, int]:
    """The sum of -log p of all tokens, how many were the most likely ones, and their number; one at a time."""
    nats, correct, count = 0.0, 0, 0
    for text in texts:
        ids = MASK_TOKENIZER.encode(text)
        for at, label in enumerate(ids):
            row = [0, *ids[:at], 2, *ids[at + 1 :], 0]
            with torch.no_grad():
                logits = model.network(torch.tensor([row]))[0, 1 + at]
            nats += float(logits.logsumexp(0) - logits[label])
            correct += int(logits.argmax()) == label
            count += 1
    return nats, correct, count


@pytest.mark.slow
def test_each_token_is_masked_in_turn() -> None:
    model, texts = random_masked_model(), [TEXTS[0], "chat", *TEXTS[1:3]]
    nats, correct, count = by_hand(model, texts)
    seen: list[int] = []
    score = evaluate(model, texts, progress=seen.append)
    assert isinstance(score, MaskedScore)
    assert score.tokens == count == seen[-1]
    assert score.loss == pytest.approx(nats / count, rel=1e-9)
    assert score.pseudo_perplexity == pytest.approx(math.exp(nats / count), rel=1e-9)
    assert score.accuracy == pytest.approx(correct / count)


def test_a_model_that_knows_nothing_has_the_size_of_the_vocabulary() -> None:
    model = random_masked_model()
    with torch.no_grad():
        model.network.embedding.tokens.weight.zero_()  # also the output layer: all logits are 0
    score = evaluate(model, ["Le chat dort."])
    assert isinstance(score, MaskedScore)
    assert score.pseudo_perplexity == pytest.approx(model.config.outputs)


def test_what_cannot_be_scored_is_refused() -> None:
    short = random_masked_model(positions="learned", max_length=10)
    with pytest.raises(RegardError, match=r"text 2 has .* tokens, but this model reads at most 10"):
        evaluate(short, ["un chat", "chat " * 20])
    with pytest.raises(RegardError, match="the texts have no tokens"):
        evaluate(short, [""])
    with pytest.raises(RegardError, match="m is not a masked language model: it translates"):
        evaluate_masked("m", random_model(kind="decoder"), TEXTS)
    with pytest.raises(RegardError, match="or fill masks"):
        task_of(random_model(kind="encoder"))


@pytest.mark.slow
@pytest.mark.usefixtures("without_type_checks")
def test_the_command_scores_lines_and_writes_json(tmp_path: Path) -> None:
    model = random_masked_model()
    model.network.float()
    model.save(tmp_path / "model")
    (tmp_path / "text").write_text("".join(f"{text}\n" for text in TEXTS[:2]), encoding="utf-8")
    arguments = (str(tmp_path / "model"), str(tmp_path / "text"))
    done = command("evaluate", *arguments, "--out", str(tmp_path / "scores.json"))
    assert "pseudo-perplexity" in done.stdout
    assert "(2 texts in total)" in done.stdout
    written = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    expected = regard.evaluate(regard.load(tmp_path / "model"), TEXTS[:2])
    assert isinstance(expected, MaskedScore)
    assert written["kind"] == "masked"
    assert written["score"]["pseudo_perplexity"] == pytest.approx(expected.pseudo_perplexity)
    assert "--context is for language models, but this model is a masked language model" in refused(
        "evaluate", *arguments, "--context", "9"
    )
    assert "needs one text, but 2 sides were given" in refused("evaluate", *arguments, str(tmp_path / "text"))
