"""Where the tests find recorded numbers (in the repository) and real data (beside it, optional)."""

from __future__ import annotations

from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"
SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def golden() -> Path:
    """Folder of arrays recorded from the official code; part of the repository."""
    return GOLDEN


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real corpora, tokenizers and tasks beside the repository; tests skip where it is absent."""
    folder = SHARED / "data"
    if not folder.is_dir():
        pytest.skip("no shared data folder beside the repository")
    return folder


@pytest.fixture(scope="session")
def shared_golden() -> Path:
    """The full set of recorded arrays beside the repository; tests skip where it is absent."""
    folder = SHARED / "golden"
    if not folder.is_dir():
        pytest.skip("no shared golden folder beside the repository")
    return folder
