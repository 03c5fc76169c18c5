"""The programs in docs/own-models.md run as they are written."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.model.masks import causal_mask
from regard.petit import corpus_files

PAGE = Path(__file__).parents[2] / "docs/own-models.md"


@pytest.mark.slow
def test_the_programs_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(corpus_files, "HELD_OUT", 12)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(programs) == 4
    names: dict[str, Any] = {}
    for program in programs:
        exec(program, names)
    assert "Le chat" in capsys.readouterr().out
    assert repr(names["model"]).startswith("<Model: your own Bigrams as decoder")
    assert "Bigrams" in (tmp_path / "runs/bigrams/README.md").read_text(encoding="utf-8")
    assert (tmp_path / "runs/focal/model.safetensors").is_file()
    logits = names["OneAttention"](11)(torch.tensor([[1, 2, 3]]), causal_mask(3)[None])
    assert logits.shape == (1, 3, 11)
    assert logits.isfinite().all()  # with an inverted mask, the last token would see nothing
