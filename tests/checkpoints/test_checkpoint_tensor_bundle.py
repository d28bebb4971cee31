"""TensorFlow's files without TensorFlow: recorded checkpoints bit for bit, written varieties, and damage."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from bundle_writer import Variable, write_bundle
from hypothesis import given, settings
from hypothesis import strategies as st

from xlnet.checkpoints.crc32c import _BLOCK_BYTES, crc32c, mask, unmask
from xlnet.checkpoints.leveldb_table import uncompress
from xlnet.checkpoints.tensor_bundle import read_bundle, slice_key
from xlnet.checkpoints.varint import Damaged
from xlnet.errors import CheckpointError


def expected(golden: Path) -> dict[str, np.ndarray]:
    arrays = np.load(golden / "tf_checkpoint/adam/expected_variables.npz")
    return {name.replace("|", "/"): arrays[name] for name in arrays}


def test_recorded_checkpoint_is_read_bit_for_bit(golden: Path) -> None:
    tensors, other = read_bundle(golden / "tf_checkpoint/adam/xlnet_model.ckpt")
    variables = expected(golden)
    assert set(tensors) == set(variables) and len(variables) == 141 and other == []
    for name, array in variables.items():
        assert tensors[name].numpy().dtype == array.dtype
        assert tensors[name].numpy().tobytes() == array.tobytes(), name


def test_cleaned_checkpoint_holds_the_same_weights(golden: Path) -> None:
    tensors, _ = read_bundle(golden / "tf_checkpoint/clean/model.ckpt-0")
    variables = expected(golden)
    weights = [name for name in tensors if name.startswith("model/")]
    assert len(weights) == 46
    for name in weights:
        assert tensors[name].numpy().tobytes() == variables[name].tobytes()
    assert int(tensors["global_step"]) == 0


def varieties() -> list[Variable]:
    rng = np.random.default_rng(0)
    return [
        Variable("a/kernel", rng.standard_normal((3, 4)).astype(np.float32), shard=0),
        Variable("a/kernel/Adam", rng.standard_normal((3, 4)).astype(np.float32), shard=1),
        Variable("b", rng.standard_normal(7).astype(np.float16), shard=1),
        Variable("c", np.array([0x3F80, 0xC000], dtype=np.uint16), shard=1, dtype=14),
        Variable("double", rng.standard_normal((2, 2)), shard=0),
        Variable("empty", np.zeros((0, 3), dtype=np.float32), shard=0),
        Variable("int", rng.integers(-5, 5, (2, 3)).astype(np.int32), shard=1),
        Variable("step", np.array(123456789012, dtype=np.int64), shard=1),
        Variable("table", rng.standard_normal((10, 3)).astype(np.float32), cuts=(4, 7)),
        Variable("table/long", rng.standard_normal((5, 2)).astype(np.float32), shard=1),
        Variable("flag", np.array([True, False]), shard=1),
    ]


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("shards", [2, 3])
def test_shards_slices_types_and_compression(tmp_path: Path, shards: int, compress: bool) -> None:
    variables = varieties()
    write_bundle(tmp_path / "model.ckpt-9", variables, shards, compress)
    tensors, other = read_bundle(tmp_path / "model.ckpt-9")
    assert sorted(tensors) == sorted(variable.name for variable in variables) and other == []
    for variable in variables:
        found = tensors[variable.name]
        assert tuple(found.shape) == variable.array.shape
        raw = found.view(torch.uint16) if found.dtype == torch.bfloat16 else found
        assert raw.numpy().tobytes() == variable.array.tobytes(), variable.name
    assert tensors["c"].tolist() == [1.0, -2.0]
    assert tensors["c"].dtype == torch.bfloat16


def test_strings_are_reported_and_not_read(tmp_path: Path) -> None:
    graph = Variable("_CHECKPOINTABLE_OBJECT_GRAPH", np.frombuffer(b"\x04abcd1234", np.uint8), dtype=7, shape=(1,))
    write_bundle(tmp_path / "m", [graph, Variable("x", np.ones(2, np.float32))])
    tensors, other = read_bundle(tmp_path / "m")
    assert list(tensors) == ["x"] and other == ["_CHECKPOINTABLE_OBJECT_GRAPH"]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        # Published examples of the ordered code: one byte below 64, two below 8192; negative numbers sort before.
        (0, b"\x80"), (63, b"\xbf"), (-1, b"\x7f"), (-64, b"\x40"), (64, b"\xc0\x40"), (-65, b"\x3f\xbf"),
        (8191, b"\xdf\xff"), (8192, b"\xe0\x20\x00"),
    ],
)  # fmt: skip
def test_ordered_code(value: int, code: bytes) -> None:
    assert slice_key(b"n", ((value, -1),)) == b"\x00n\x00\x01\x01\x01" + code + b"\x7f"


@given(st.lists(st.integers(-(2**62), 2**62), min_size=2, max_size=2))
def test_ordered_code_keeps_the_order(values: list[int]) -> None:
    first, second = (slice_key(b"n", ((value, 0),)) for value in values)
    assert (first < second) == (values[0] < values[1])


def crc_by_bits(data: bytes) -> int:
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 5000), st.integers(0, 2**32 - 1))
def test_checksum_equals_its_definition(size: int, seed: int) -> None:
    data = random.Random(seed).randbytes(size)
    assert crc32c(data) == crc_by_bits(data)
    assert unmask(mask(seed)) == seed


def test_checksum_of_published_vectors_and_of_large_buffers() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(bytes(range(32))) == 0x46DD794E
    data = random.Random(1).randbytes(70 * _BLOCK_BYTES + 4321)  # long enough to be folded
    half = len(data) // 2
    assert crc32c(data) == crc32c(memoryview(data)) != crc32c(data[:half] + b"?" + data[half + 1 :])
    # A checksum is linear: three messages of one length and their sum.
    other, third = (random.Random(i).randbytes(len(data)) for i in (2, 3))
    total = bytes(np.bitwise_xor.reduce([np.frombuffer(d, np.uint8) for d in (data, other, third)]))
    assert crc32c(total) == crc32c(data) ^ crc32c(other) ^ crc32c(third)


def test_folding_equals_the_plain_way(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random.Random(4).randbytes(70 * 64 + 33)
    plain = crc_by_bits(data)
    monkeypatch.setattr("xlnet.checkpoints.crc32c._BLOCK_BYTES", 64)
    monkeypatch.setattr("xlnet.checkpoints.crc32c._CHUNK_BLOCKS", 8)
    assert crc32c(data) == plain


@pytest.mark.parametrize(
    ("compressed", "plain"),
    [
        (b"\x0a\x00a\x15\x01", b"aaaaaaaaaa"),  # a copy of nine that overlaps itself
        (b"\x06\x08abc\x0a\x03\x00", b"abcabc"),  # two-byte offset
        (b"\x06\x08abc\x0b\x03\x00\x00\x00", b"abcabc"),  # four-byte offset
        (b"\x46\xf0\x45" + b"x" * 70, b"x" * 70),  # length in an extra byte
    ],
)
def test_snappy(compressed: bytes, plain: bytes) -> None:
    assert uncompress(compressed) == plain


@pytest.mark.parametrize("data", [b"", b"\x05\x08abc", b"\x06\x08abc\x0a\x04\x00", b"\x03\x10ab", b"\x09\x08abc\x0a"])
def test_broken_snappy_is_damage(data: bytes) -> None:
    with pytest.raises(Damaged):
        uncompress(data)


def read_everything(prefix: Path) -> None:
    tensors, _ = read_bundle(prefix)
    for name in tensors:
        assert tensors[name].shape == tensors.entry(name).shape


@pytest.mark.parametrize("suffix", ["index", "data-00000-of-00001"])
def test_truncated_files_are_refused_by_name(golden: Path, tmp_path: Path, suffix: str) -> None:
    source = golden / "tf_checkpoint/clean"
    whole = (source / f"model.ckpt-0.{suffix}").read_bytes()
    shutil.copytree(source, tmp_path / "c")
    path = tmp_path / "c" / f"model.ckpt-0.{suffix}"
    for size in (0, 1, 7, 47, 48, len(whole) // 2, len(whole) - 1):
        path.chmod(0o644)
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=path.name):
            read_everything(tmp_path / "c" / "model.ckpt-0")
    path.unlink()
    with pytest.raises(CheckpointError, match="does not exist"):
        read_everything(tmp_path / "c" / "model.ckpt-0")


@pytest.mark.parametrize("suffix", ["index", "data-00000-of-00002", "data-00001-of-00002"])
def test_every_flipped_byte_is_noticed(tmp_path: Path, suffix: str) -> None:
    """No byte of an index block or of an array can change without an error. (The footer's padding may.)"""
    rng = random.Random(0)
    variables = [variable for variable in varieties() if variable.name in ("a/kernel", "b", "table", "step")]
    write_bundle(tmp_path / "m", variables, shards=2)
    path = tmp_path / f"m.{suffix}"
    whole = path.read_bytes()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        try:
            read_everything(tmp_path / "m")
        except CheckpointError:
            continue
        assert suffix == "index" and len(whole) - 48 < place < len(whole) - 8, f"byte {place} of {len(whole)}"


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_garbage_never_escapes_as_another_error(data: st.DataObject) -> None:
    """Checksums made right again, so that the damage reaches the parsers."""
    from xlnet.checkpoints import leveldb_table
    from xlnet.checkpoints.tensor_bundle import parse_entry

    body = data.draw(st.binary(max_size=80))
    for parser in (parse_entry, uncompress, lambda value: list(leveldb_table._entries(value))):
        try:
            parser(body)
        except Damaged:
            pass
        except CheckpointError:
            pass


def test_another_kind_of_file_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "m.index").write_bytes(b"model_checkpoint_path: nothing at all, just text that is long enough")
    with pytest.raises(CheckpointError, match="not the index of a TensorFlow V2 checkpoint"):
        read_bundle(tmp_path / "m")


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_bundle(tmp_path / "m", varieties(), shards=2)
    (tmp_path / "m.data-00001-of-00002").unlink()
    with pytest.raises(CheckpointError, match=r"m\.data-00001-of-00002 does not exist"):
        read_bundle(tmp_path / "m")


def test_checksum_guards_against_equal_sized_damage(golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden / "tf_checkpoint/clean", tmp_path / "c")
    path = tmp_path / "c/model.ckpt-0.data-00000-of-00001"
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[1000:1004] = struct.pack("<f", 1.0)
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="fails its checksum"):
        read_everything(tmp_path / "c/model.ckpt-0")
