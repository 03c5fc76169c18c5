"""Golden losses: a few training steps on a fixed task, recorded, so that a change of behaviour is always noticed.

A change that is meant to alter them says so, and why, in the commit that updates the figures here.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from regard.model.transformer import build
from regard.petit import corpus_files as files
from regard.training import train as train_module
from regard.training.events import Event, Stepped
from regard.training.recipe import DataSection, Recipe, TokenizerSection, TrainSection
from tests.support.networks import SHAPES

GOLDEN = {
    "paper": [3.9320, 3.3235, 3.2222, 3.0570, 2.9510],
    "llama": [3.4923, 3.3316, 3.3541, 3.2661, 3.2550],
}
"""Loss after 0, 10, 20, 30 and 40 steps of Adam at 0.003."""


@pytest.mark.slow
@pytest.mark.parametrize("name", GOLDEN)
def test_step_losses_match_the_recorded_ones(name: str) -> None:
    model = build(SHAPES[name])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    losses = []
    for step in range(41):
        text = torch.randint(0, 30, (8, 6))  # reverse it: five look-ups, each at a different position
        source, target = text, torch.cat([torch.full((8, 1), 30), text.flip(1)], 1)
        if name == "paper":
            logits = model(source, target[:, :-1])
        else:
            logits = model(torch.cat([source, target[:, :-1]], 1))[:, 6:]
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            losses.append(round(loss.item(), 4))
    assert losses == pytest.approx(GOLDEN[name], abs=2e-3)


RUNS: dict[str, dict[str, Any]] = {
    "encoder-decoder": {"task": "translation", "norm": "post"},
    "decoder": {"task": "translation", "kind": "decoder", "prefix": True, "positions": "rotary", "kv_heads": 1},
    "language": {"task": "language", "kind": "decoder", "positions": "learned", "max_length": 64},
    "classification": {"task": "classification", "kind": "encoder"},
    "masked": {"task": "masked", "kind": "encoder", "output_transform": True},
}
GOLDEN_RUNS: dict[str, list[float]] = {
    "encoder-decoder": [
        6.22625,
        6.12623,
        5.92634,
        5.74944,
        5.55693,
        5.40395,
        5.28509,
        5.14932,
        5.1216,
        5.02881,
        4.96017,
        4.89747,
        4.89299,
        4.84651,
        4.81356,
        4.80986,
        4.79897,
        4.80542,
        4.77758,
        4.80628,
    ],
    "decoder": [
        6.46345,
        6.46536,
        6.32841,
        6.17522,
        6.03737,
        5.80741,
        5.63271,
        5.43886,
        5.30725,
        5.23839,
        5.09877,
        4.98824,
        4.99295,
        4.90451,
        4.85329,
        4.85966,
        4.8463,
        4.83284,
        4.83823,
        4.79369,
    ],
    "language": [
        6.34763,
        6.27092,
        6.19789,
        6.13026,
        5.95557,
        5.72781,
        5.5642,
        5.41893,
        5.31785,
        5.22858,
        5.0876,
        5.09896,
        4.98677,
        5.00915,
        4.93753,
        4.92897,
        4.90191,
        4.92097,
        4.89153,
        4.92222,
    ],
    "classification": [
        3.81728,
        3.89796,
        3.75024,
        3.67922,
        3.55229,
        3.43525,
        3.38008,
        3.10833,
        3.17094,
        3.09103,
        2.9349,
        3.01929,
        2.84278,
        2.87414,
        2.96966,
        2.91299,
        2.83009,
        2.6899,
        2.77274,
        2.83604,
    ],
    "masked": [
        6.30805,
        6.23497,
        6.23725,
        6.03401,
        5.99465,
        5.39421,
        5.62299,
        5.5044,
        5.44508,
        5.58477,
        5.46423,
        5.34951,
        5.24496,
        5.25726,
        5.21923,
        5.19554,
        5.17595,
        5.30203,
        5.2324,
        5.2201,
    ],
}
"""Loss of each of the first 20 steps of a run: text, tokenizer, batches, schedule, smoothing, clipping and decay."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


QUICK = "classification"
"""The run that is also among the fast tests."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name == QUICK else pytest.mark.slow) for name in RUNS])
def test_run_losses_match_the_recorded_ones(
    name: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "HELD_OUT", 10)
    monkeypatch.setattr(train_module, "score_best_model", lambda *_: [])
    monkeypatch.setenv("REGARD_CACHE", str(cache))
    model: dict[str, Any] = {"d_model": 32, "heads": 2, "layers": 1, "d_ff": 64, "dropout": 0.0, "norm": "pre"} | RUNS[
        name
    ]
    recipe = Recipe(
        name="golden",
        data=DataSection(petit=100, task=model.pop("task")),
        tokenizer=TokenizerSection(vocab_size=320),
        model=model,
        train=TrainSection(
            steps=20,
            batch_tokens=600,
            max_length=64,
            accumulate=2,
            packed=name == "decoder",
            optimizer="adamw",
            lr=5e-3,
            schedule="cosine",
            warmup=5,
            weight_decay=0.1,
            clip=1.0,
            validate_every=20,
            validation_sentences=0,
            log_every=1,
            device="cpu",
        ),
    )
    events: list[Event] = []
    train_module.train_recipe(recipe, tmp_path / "run", watchers=[events.append])
    losses = [event.loss for event in events if isinstance(event, Stepped)]
    assert losses == pytest.approx(GOLDEN_RUNS[name], rel=1e-4)
