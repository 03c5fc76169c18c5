"""A user's own module trained on a GPU: in float32, in bfloat16 and compiled, without CUDA graphs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard import training_api
from regard.config import ModelConfig
from regard.errors import RegardError
from regard.petit import corpus_files
from tests.support.recipes import small_recipe

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.fixture(autouse=True)
def small_petit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_files, "HELD_OUT", 12)
    monkeypatch.setattr(training_api, "write_report", lambda folder, _scores: folder / "report.md")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


class Pair(nn.Module):
    """torch's Transformer with embeddings; its mask for the future is made in `forward`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, 32)
        self.positions = nn.Embedding(config.max_length, 32)
        self.transformer = nn.Transformer(32, 2, 1, 1, 64, dropout=0.0, batch_first=True)
        self.output = nn.Linear(32, config.outputs)

    def embed(self, tokens: Tensor) -> Tensor:
        return self.embedding(tokens) + self.positions(torch.arange(tokens.size(1), device=tokens.device))

    def forward(self, source: Tensor, target: Tensor, source_mask: Tensor) -> Tensor:
        t, padding = target.size(1), ~source_mask[:, 0]
        future = torch.ones(t, t, dtype=torch.bool, device=target.device).triu(1)
        return self.output(
            self.transformer(
                self.embed(source),
                self.embed(target),
                tgt_mask=future,
                src_key_padding_mask=padding,
                memory_key_padding_mask=padding,
            )
        )


@pytest.mark.parametrize(
    "settings", [{}, {"precision": "bfloat16"}, {"compile": True}], ids=["float32", "bfloat16", "compiled"]
)
@pytest.mark.filterwarnings("ignore:::torch")  # its own encoder and compiler warn, about nested tensors and TF32
def test_a_module_is_trained_validated_and_translates(settings: dict[str, Any], tmp_path: Path) -> None:
    recipe = small_recipe(steps=30, validate_every=15, device="cuda", **settings)
    run = regard.train(recipe, tmp_path / "run", progress=False, network=Pair)
    losses = [record["loss"] for record in run.history if record["event"] == "Validated"]
    assert losses[-1] < losses[0] < 6
    assert run.module is not None
    assert next(run.module.parameters()).is_cuda
    assert isinstance(run.model.translate("Le chat dort.", beam=2), str)
    assert isinstance(run.model.to("cuda").translate("Le chat dort.", beam=2), str)


def test_a_tensor_that_stays_on_the_cpu_is_explained(tmp_path: Path) -> None:
    class KeepsTensor(Pair):
        def __init__(self, config: ModelConfig) -> None:
            super().__init__(config)
            self.offset = torch.zeros(32)  # should be a buffer

        def embed(self, tokens: Tensor) -> Tensor:
            return super().embed(tokens) + self.offset

    with pytest.raises(RegardError, match=r"test_own_modules_on_gpu.py, line \d+: RuntimeError.*register_buffer"):
        regard.train(small_recipe(device="cuda"), tmp_path / "run", progress=False, network=KeepsTensor)
