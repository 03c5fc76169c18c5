"""Tests of the server. They are skipped where its packages are not installed."""

import pytest

pytest.importorskip("fastapi", reason="pip install 'regard[serve]'")
pytest.importorskip("uvicorn", reason="pip install 'regard[serve]'")
