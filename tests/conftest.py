"""Where the tests find recorded numbers (in the repository) and real data (beside it, optional)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from xlnet import float32

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


@pytest.fixture
def onednn() -> None:
    """The rest of the test multiplies float32 matrices through oneDNN; skips where that would not be float32."""
    errors = float32.measured_errors()
    if not torch.backends.mkldnn.is_available() or errors.same or not errors.is_float32:
        pytest.skip("oneDNN is missing, not taken, or does not compute in float32 on this processor")
    with float32.float32_products("onednn"):
        yield


@pytest.fixture
def products_seen(monkeypatch: pytest.MonkeyPatch) -> Callable[[torch.nn.Module], list[str]]:
    """Watch which float32 products are set whenever a model embeds tokens: ``bf16`` is torch's word for oneDNN.

    As if on a machine where ``auto`` takes oneDNN; the numbers may be bfloat16's where it is none.
    """
    monkeypatch.setattr(float32, "uses_onednn", lambda choice="auto": choice != "default")

    def watch(model: torch.nn.Module) -> list[str]:
        seen: list[str] = []
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding):
                module.register_forward_hook(lambda *_: seen.append(torch.backends.mkldnn.matmul.fp32_precision))
        return seen

    return watch
