"""Without matplotlib, commands that draw pictures name the extra to install."""

import pytest

from regard.errors import RegardError
from regard.labs.lab import load_lab, questions
from regard.plots import optional_matplotlib
from tests.support.commands import refused


@pytest.fixture(autouse=True)
def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optional_matplotlib, "has_matplotlib", lambda: False)


def test_attend_refuses_a_picture_before_the_model_is_loaded() -> None:
    message = refused("attend", "Le chat dort.", "--model", "missing", "--png", "attention.png")
    assert message == "--png needs the package matplotlib: pip install 'regard[plot]'"


def test_labs_are_listed_but_do_not_run() -> None:
    assert "scaling" in questions()
    with pytest.raises(RegardError, match=r"^the labs need the package matplotlib: pip install 'regard\[plot\]'$"):
        load_lab("scaling")
