"""Fixtures of the tests of pretraining."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_helpers import prose


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(prose())
    return path
