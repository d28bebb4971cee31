"""Hub names without a network: a cache laid out on disk as the hub's own client lays it out."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hugging_face_peers import our_model

from xlnet.checkpoints import read_checkpoint, resolve, write_hugging_face
from xlnet.errors import CheckpointError, MachineError
from xlnet.model import XLNetLMHeadModel

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Any attempt to connect fails at once and is recorded as such."""
    import socket

    def refuse(*_: object, **__: object) -> None:
        raise OSError("the test has no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.chdir(tmp_path)


def lay_out(cache: Path, name: str, source: Path) -> Path:
    """``models--owner--name`` with blobs, a snapshot of links to them, and a branch that points to it."""
    root = cache / f"models--{name.replace('/', '--')}"
    snapshot = root / "snapshots" / COMMIT
    for folder in (root / "blobs", root / "refs", snapshot):
        folder.mkdir(parents=True)
    (root / "refs" / "main").write_text(COMMIT)
    for i, file in enumerate(sorted(source.iterdir())):
        blob = root / "blobs" / f"{i:040x}"
        shutil.copy(file, blob)
        (snapshot / file.name).symlink_to(os.path.relpath(blob, snapshot))
    return snapshot


@pytest.fixture
def cached(tmp_path: Path) -> tuple[Path, Path]:
    model = our_model("language_model")
    write_hugging_face(tmp_path / "source", model.config, model.state_dict(), "language_model")
    (tmp_path / "source" / "spiece.model").write_bytes(b"pieces")
    cache = tmp_path / "cache"
    return cache, lay_out(cache, "xlnet/xlnet-base-cased", tmp_path / "source")


@pytest.mark.parametrize("offline", [True, False])
def test_a_cached_name_is_found(cached: tuple[Path, Path], offline: bool) -> None:
    cache, snapshot = cached
    found = resolve("xlnet/xlnet-base-cased", cache_dir=cache, offline=offline)
    assert found == snapshot
    checkpoint = read_checkpoint("xlnet/xlnet-base-cased", cache_dir=cache, offline=offline)
    assert checkpoint.kind == "hf" and checkpoint.has_language_model
    assert [file.name for file in checkpoint.tokenizer_files] == ["spiece.model"]


def test_from_pretrained_takes_a_name(cached: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    cache, _ = cached
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    model = XLNetLMHeadModel.from_pretrained("xlnet/xlnet-base-cased", offline=True)
    expected = our_model("language_model").state_dict()
    assert all((model.state_dict()[name] == value).all() for name, value in expected.items())


def test_the_name_without_owner_still_works(cached: tuple[Path, Path]) -> None:
    cache, snapshot = cached
    assert resolve("xlnet-base-cased", cache_dir=cache, offline=True) == snapshot


def test_a_revision_is_looked_up(cached: tuple[Path, Path]) -> None:
    cache, snapshot = cached
    assert resolve("xlnet/xlnet-base-cased", cache_dir=cache, offline=True, revision=COMMIT) == snapshot
    with pytest.raises(CheckpointError, match="revision 'v9'"):
        resolve("xlnet/xlnet-base-cased", cache_dir=cache, offline=True, revision="v9")


@pytest.mark.parametrize("offline", [True, False])
def test_a_name_that_is_not_cached_is_told(tmp_path: Path, offline: bool) -> None:
    with pytest.raises((CheckpointError, MachineError), match="'someone/model' is neither a path here nor in the"):
        resolve("someone/model", cache_dir=tmp_path / "cache", offline=offline)


def test_a_cached_configuration_without_weights_is_told(cached: tuple[Path, Path]) -> None:
    cache, snapshot = cached
    (snapshot / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor pytorch_model\.bin"):
        read_checkpoint("xlnet/xlnet-base-cased", cache_dir=cache, offline=True)
    assert resolve("xlnet/xlnet-base-cased", cache_dir=cache, offline=True, weights=False) == snapshot


def test_a_folder_on_disk_comes_before_the_hub(tmp_path: Path) -> None:
    (tmp_path / "xlnet" / "xlnet-base-cased").mkdir(parents=True)
    assert resolve("xlnet/xlnet-base-cased") == Path("xlnet/xlnet-base-cased")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("./modle", r"did you mean model"),
        ("/nowhere/at/all", "there is no folder /nowhere/at"),
        ("a/b/c", "does not exist"),
        ("with space/x", "does not exist"),
        ("", "name of the model is empty"),
        ("bad..name/x--y", "neither a path here nor"),
        ("../up", "does not exist"),
    ],
)
def test_what_cannot_be_a_name_is_a_missing_path(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(CheckpointError, match=told):
        resolve(name, cache_dir=tmp_path / "cache", offline=True)


def test_a_path_object_is_never_a_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        resolve(Path("xlnet/xlnet-base-cased"), cache_dir=tmp_path)
