"""Fixtures of the tests of tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from task_toys import toy_run, toy_tokenizer

from xlnet.tasks.fine_tuned import FineTuned
from xlnet.text import XLNetTokenizer


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Small products are fastest on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tokenizer() -> XLNetTokenizer:
    """2,000 pieces."""
    return toy_tokenizer()


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> FineTuned:
    """A classifier after a few steps, loaded from its folder."""
    folder = tmp_path_factory.mktemp("tuned") / "run"
    toy_run(folder)
    return FineTuned.from_pretrained(folder / "model", device="cpu")
