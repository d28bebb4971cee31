"""Our own folders: exact, written whole or not at all, loaded without a second copy in memory."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from bundle_writer import Variable, write_bundle
from hugging_face_peers import HEADS, batch, our_model
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

import xlnet.model
from xlnet.checkpoints import read_checkpoint, safetensors_files, write_hugging_face, write_native
from xlnet.checkpoints.arrays import as_lazy
from xlnet.checkpoints.names import CLASS_NAMES, Head, pairs
from xlnet.checkpoints.safetensors_files import TYPES, read_safetensors, write_safetensors
from xlnet.checkpoints.translate import into_theirs
from xlnet.configuration import XLNetConfig
from xlnet.errors import CheckpointError, MachineError

SMALL = XLNetConfig(vocab_size=13, n_layer=1, d_model=8, n_head=2, d_head=4, d_inner=6)


def small_state(value: float = 0.0) -> dict[str, torch.Tensor]:
    return {name: torch.full_like(t, value) for name, t in xlnet.model.XLNetModel(SMALL).state_dict().items()}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("changes", [{}, {"untie_r": False, "d_head": 5, "summary_type": "attn"}])
def test_save_and_load_is_the_identity(tmp_path: Path, head: Head, changes: dict[str, object]) -> None:
    model = our_model(head, **changes)
    model.save_pretrained(tmp_path)
    kind = getattr(xlnet.model, CLASS_NAMES[head])
    found = kind.from_pretrained(tmp_path)
    assert found.config == model.config
    assert set(found.state_dict()) == set(model.state_dict())
    for name, value in model.state_dict().items():
        assert torch.equal(found.state_dict()[name], value), name
    found.save_pretrained(tmp_path / "again")
    for file in ("model.safetensors", "config.json"):
        assert (tmp_path / file).read_bytes() == (tmp_path / "again" / file).read_bytes()
    assert read_checkpoint(tmp_path).head == head


def test_a_folder_is_independent_of_the_model_that_came_from_it(tmp_path: Path) -> None:
    """Saving over the folder a model was loaded from must not touch the model, nor the model the file."""
    model = our_model("encoder")
    model.save_pretrained(tmp_path)
    found = xlnet.model.XLNetModel.from_pretrained(tmp_path)
    before = found(batch()["input_ids"]).content.clone()
    our_model("encoder", vocab_size=50).save_pretrained(tmp_path)
    assert torch.equal(found(batch()["input_ids"]).content, before)
    with torch.no_grad():
        found.mask_embedding.zero_()
    assert xlnet.model.XLNetModel.from_pretrained(tmp_path).mask_embedding.abs().max() > 0


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8"), max_size=12),
            st.sampled_from(sorted(TYPES)),
            st.lists(st.integers(0, 3), max_size=3),
        ),
        max_size=6,
        unique_by=lambda item: item[0],
    )
)
def test_any_arrays_survive_and_the_file_is_a_real_one(items: list[tuple[str, str, list[int]]]) -> None:
    import tempfile

    tensors = {
        name: torch.randint(0, 2, shape).to(TYPES[code]) for name, code, shape in items if name != "__metadata__"
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.safetensors"
        write_safetensors(path, tensors, {"format": "pt"})
        reference = load_file(path)
        found, metadata = read_safetensors(path)
        assert set(found) == set(reference) == set(tensors) and metadata == {"format": "pt"}
        for name, tensor in tensors.items():
            assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor)
            assert torch.equal(reference[name], tensor)


def test_views_are_written_by_value(tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    tensors = {"turned": base.t(), "part": base[1:3, ::2], "same": base, "scalar": base[0, 3]}
    write_safetensors(tmp_path / "x", tensors, {})
    found = load_file(tmp_path / "x")
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def test_an_unknown_element_type_is_refused_before_writing(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"x is of type torch\.complex64"):
        write_safetensors(tmp_path / "f", {"x": torch.zeros(2, dtype=torch.complex64)}, {})
    assert list(tmp_path.iterdir()) == []


def test_lazy_mappings_stay_lazy(tmp_path: Path) -> None:
    """Writing reads one tensor at a time: at most one is alive at any moment."""
    import weakref

    alive: list[weakref.ref] = []
    most = 0

    class Watched(dict):
        pass

    from xlnet.checkpoints.arrays import Entry, LazyTensors

    def reader() -> torch.Tensor:
        nonlocal most
        tensor = torch.zeros(5)
        alive.append(weakref.ref(tensor))
        most = max(most, sum(ref() is not None for ref in alive))
        return tensor

    lazy = LazyTensors({str(i): Entry((5,), torch.float32, reader, str(i)) for i in range(6)})
    write_safetensors(tmp_path / "x", lazy, {})
    assert len(alive) == 6 and most <= 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_failed_write_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    write_native(tmp_path, SMALL, small_state(1.0))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(safetensors_files.os, "fsync", fail)
    told = "disk is full" if number == errno.ENOSPC else "cannot be written"
    with pytest.raises(MachineError, match=told):
        write_native(tmp_path, SMALL, small_state(2.0))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="file"):
        write_native(tmp_path / "file" / "model", SMALL, small_state())


_WRITER = """
import torch
from pathlib import Path
from xlnet.checkpoints import write_native
from xlnet.configuration import XLNetConfig
config = XLNetConfig(**{config!r})
print("ready", flush=True)
number = 0
while True:
    number += 1
    write_native(Path({folder!r}), config, {{str(i): torch.full((200, 100), float(number)) for i in range(9)}})
"""


@pytest.mark.slow
def test_killed_writers_leave_whole_files(tmp_path: Path) -> None:
    """A writer that never stops is killed at arbitrary moments; what lies there is always one complete save."""
    script = _WRITER.format(config=SMALL.to_dict(), folder=str(tmp_path / "m"))
    saves = set()
    for attempt in range(3):
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        while not (tmp_path / "m" / "config.json").exists():
            time.sleep(0.01)
        for _ in range(20):
            time.sleep(0.003 + 0.005 * attempt)
            saves.add(_the_one_value(tmp_path / "m"))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        _the_one_value(tmp_path / "m")
    assert len(saves) > 3, "the writer was hardly running"


def _the_one_value(folder: Path) -> float:
    """Reading through one open file is reading one save, however often the file is replaced meanwhile."""
    values = {float(value) for tensor in load_file(folder / "model.safetensors").values() for value in tensor.unique()}
    assert len(values) == 1, "arrays of two saves are mixed"
    return values.pop()


_MEMORY = """
import ctypes, gc, sys
import torch
torch.set_num_threads(1)
from xlnet.model import XLNetModel
def status(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key))
for folder in sys.argv[1:]:
    gc.collect()
    getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)(0)  # what the model before has left would be used again
    open("/proc/self/clear_refs", "w").write("5")  # forget the peak so far
    before = status("VmRSS")
    model = XLNetModel.from_pretrained(folder)
    print((status("VmHWM") - before) / (sum(p.numel() * p.element_size() for p in model.parameters()) / 1024))
    del model
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux's count of resident memory")
def test_loading_takes_little_more_memory_than_the_weights(tmp_path: Path) -> None:
    """Layers as wide as those of the base model, three of them, and a smaller vocabulary: 110 MB."""
    config = XLNetConfig(n_layer=3, vocab_size=8000)
    model = xlnet.model.XLNetModel(config)
    model.save_pretrained(tmp_path / "native")
    write_hugging_face(tmp_path / "hf", config, model.state_dict())
    for kind in ("zip", "legacy"):
        (tmp_path / kind).mkdir()
        shutil.copy(tmp_path / "hf" / "config.json", tmp_path / kind)
        state = load_file(tmp_path / "hf" / "model.safetensors")
        torch.save(state, tmp_path / kind / "pytorch_model.bin", _use_new_zipfile_serialization=kind == "zip")
    (tmp_path / "release").mkdir()
    encoder = {f"encoder.{name}": value.detach() for name, value in model.state_dict().items()}
    theirs = into_theirs(as_lazy(encoder), pairs("tensorflow", "encoder", 3), 12)
    write_bundle(tmp_path / "release" / "m", [Variable(name, theirs[name].numpy()) for name in theirs])
    values = {key: getattr(config, key) for key in ("n_layer", "d_model", "n_head", "d_head", "d_inner", "untie_r")}
    settings = json.dumps({**values, "n_token": 8000, "ff_activation": "gelu"})
    (tmp_path / "release" / "xlnet_config.json").write_text(settings)
    kinds = ["native", "native", "hf", "zip", "legacy", "release"]  # the first pays for what every process loads once
    command = [sys.executable, "-c", _MEMORY, *(str(tmp_path / kind) for kind in kinds)]
    # A system that takes idle pages away and gives them back when they are read only ever adds to a count.
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(3)]
    least = [min(map(float, times)) for times in zip(*runs, strict=True)]
    assert all(times <= 1.3 for times in least[1:]), list(zip(kinds, *runs, strict=True))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"head": "languge_model"}, "head='languge_model' is not known.*Did you mean 'language_model'"),
        ({"d_modell": 8}, "key 'd_modell' is not known.*Did you mean 'd_model'"),
        ({"ff_activation": "gelu_new"}, "ff_activation='gelu_new' is not known"),
        ({"n_layer": 1.5}, "n_layer=1.5 must be of type int"),
        ({"vocab_size": 12}, r"word_embedding\.weight \[13, 8\], should be \[12, 8\]"),
        ({"n_layer": 2}, r"missing \(\d+\): attention_biases\.1"),
    ],
)
def test_wrong_settings_are_told(tmp_path: Path, change: dict[str, object], told: str) -> None:
    write_native(tmp_path, SMALL, small_state())
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, **change}))
    with pytest.raises(CheckpointError, match=told):
        xlnet.model.XLNetModel.from_pretrained(tmp_path)


@pytest.mark.parametrize("head", HEADS)
def test_a_hand_written_configuration_without_a_head_is_enough(tmp_path: Path, head: Head) -> None:
    model = our_model(head)
    model.save_pretrained(tmp_path)
    model.config.save(tmp_path / "config.json")
    assert "head" not in json.loads((tmp_path / "config.json").read_text())
    found = read_checkpoint(tmp_path).head
    assert found == (head if head != "multiple_choice" else "classification"), "their names are equal"


def test_an_unknown_head_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="head='tagger'"):
        write_native(tmp_path, SMALL, small_state(), "tagger")
