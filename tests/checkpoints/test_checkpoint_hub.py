"""Hub names without a network: a cache laid out on disk as the hub's own client lays it out."""

from __future__ import annotations

import fnmatch
import importlib
import json
import os
import shutil
from pathlib import Path

import pytest
from hugging_face_peers import our_model
from safetensors.torch import load_file, save_file

from xlnet.checkpoints import read_checkpoint, resolve, write_hugging_face
from xlnet.cli import main
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


def test_a_home_folder_of_nobody_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CheckpointError, match=r"~nobody-at-all/model does not exist: ~nobody-at-all is nobody's home"):
        resolve("~nobody-at-all/model")
    assert main(["info", "~nobody-at-all/model"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def client_errors() -> list[Exception]:
    """What the client lets through: errors of its HTTP library (whichever it is), of its storage, of the disk."""
    from huggingface_hub import errors

    library = importlib.import_module(errors.HfHubHTTPError.__mro__[1].__module__.split(".")[0])
    names = ("ReadError", "ProxyError", "ConnectTimeout", "ReadTimeout", "RemoteProtocolError", "TooManyRedirects")
    kinds = [getattr(library, name) for name in names if hasattr(library, name)]
    assert len(kinds) >= 3
    return [
        *(kind("it broke off") for kind in kinds),
        RuntimeError("storage"),
        OSError(28, "No space left"),
        ValueError(),
    ]


def test_what_the_client_lets_through_is_the_machines_refusal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import huggingface_hub

    for error in client_errors():

        def fail(*_: object, error: Exception = error, **__: object) -> str:
            raise error

        monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
        with pytest.raises(MachineError, match=r"could not deliver 'someone/model': .*try again") as caught:
            resolve("someone/model")
        assert str(error).rstrip(".") in str(caught.value)
        assert main(["info", "someone/model"]) == 1
        assert "Traceback" not in capsys.readouterr().err


SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json")


@pytest.fixture
def sharded(tmp_path: Path) -> tuple[Path, Path]:
    """A cached model of two shards, and the folder it was made from."""
    model = our_model("language_model")
    write_hugging_face(tmp_path / "whole", model.config, model.state_dict(), "language_model")
    state = load_file(tmp_path / "whole" / "model.safetensors")
    (tmp_path / "whole" / "model.safetensors").unlink()
    where = {name: SHARDS[i % 2] for i, name in enumerate(sorted(state))}
    for shard in SHARDS[:2]:
        part = {name: value for name, value in state.items() if where[name] == shard}
        save_file(part, tmp_path / "whole" / shard, {"format": "pt"})
    (tmp_path / "whole" / SHARDS[2]).write_text(json.dumps({"weight_map": where}))
    return lay_out(tmp_path / "cache", "someone/big", tmp_path / "whole"), tmp_path / "whole"


@pytest.mark.parametrize("lost", [SHARDS[:1], SHARDS[1:2], SHARDS[2:], SHARDS[1:]])
def test_a_download_that_broke_off_is_completed_or_told(
    sharded: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: tuple[str, ...]
) -> None:
    import huggingface_hub

    snapshot, whole = sharded
    for name in lost:
        (snapshot / name).unlink()
    with pytest.raises(CheckpointError, match=r"not whole in the hub's cache: .*Go online once") as caught:
        resolve("someone/big", cache_dir=tmp_path / "cache", offline=True)
    assert all(name in str(caught.value) for name in lost)

    def deliver(_: str, allow_patterns: list[str], **__: object) -> str:
        for file in whole.iterdir():
            if any(fnmatch.fnmatch(file.name, pattern) for pattern in allow_patterns):
                (snapshot / file.name).unlink(missing_ok=True)
                shutil.copy(file, snapshot)
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", deliver)
    assert read_checkpoint("someone/big").has_language_model
    assert {path.name for path in snapshot.iterdir()} == {path.name for path in whole.iterdir()}


def test_a_checkpoint_of_the_release_that_broke_off_is_told(golden: Path, tmp_path: Path) -> None:
    snapshot = lay_out(tmp_path / "cache", "someone/tf", golden / "tf_checkpoint/adam")
    assert read_checkpoint("someone/tf", cache_dir=tmp_path / "cache", offline=True).kind == "tensorflow"
    (snapshot / "xlnet_model.ckpt.data-00000-of-00001").unlink()
    with pytest.raises(CheckpointError, match=r"lacks xlnet_model\.ckpt\.data-00000-of-00001"):
        resolve("someone/tf", cache_dir=tmp_path / "cache", offline=True)


@pytest.mark.parametrize(("listed", "told"), [("README.md", ""), ("tokenizer_config.json", "tokenizer_config.json")])
def test_what_the_cache_knows_to_lack(cached: tuple[Path, Path], listed: str, told: str) -> None:
    """Newer clients keep the hub's list of files: a lost card is no reason to refuse, a lost tokenizer file is."""
    from huggingface_hub import errors

    if not hasattr(errors, "IncompleteSnapshotError"):
        pytest.skip("this client keeps no list of the hub's files")
    cache, snapshot = cached
    names = [*(file.name for file in snapshot.iterdir()), listed]
    trees = snapshot.parent.parent / "trees"
    trees.mkdir()
    files = {name: {"size": 1, "blob_id": f"{i:040x}"} for i, name in enumerate(names)}
    (trees / f"{COMMIT}.json").write_text(json.dumps({"format_version": 1, "files": files}))
    if not told:
        assert resolve("xlnet/xlnet-base-cased", cache_dir=cache, offline=True) == snapshot
        return
    with pytest.raises(CheckpointError, match=f"not whole in the hub's cache: .*{told}"):
        resolve("xlnet/xlnet-base-cased", cache_dir=cache, offline=True)
