"""Conversion takes everything along, refuses to overwrite, and says what it left behind; the page of `xlnet info`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hugging_face_peers import HEADS, our_model

from xlnet.checkpoints import TOKENIZER_FILES, convert, describe, read_checkpoint
from xlnet.checkpoints.names import CLASS_NAMES, Head
from xlnet.checkpoints.shapes import expected_shapes
from xlnet.errors import CheckpointError
from xlnet.model import XLNetLMHeadModel


def test_the_release_goes_to_both_formats_with_its_tokenizer_and_card(golden: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(golden / "tf_checkpoint/adam", tmp_path / "release"))
    (source / "spiece.model").write_bytes(b"\x00pieces\xff")
    (source / "README.md").write_text("# A card\n")
    (source / "unrelated.txt").write_text("no")
    done = convert(source, tmp_path / "native")
    assert (done.source_kind, done.head) == ("tensorflow", "language_model")
    assert done.copied == ("spiece.model", "README.md")
    assert any("optimizer state" in text for text in done.ignored)
    there = convert(tmp_path / "native", tmp_path / "hf", "hf")
    assert there.copied == done.copied and there.ignored == ()
    for name in done.copied:
        assert (tmp_path / "hf" / name).read_bytes() == (source / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "hf").iterdir()) == [
        "README.md", "config.json", "model.safetensors", "spiece.model",
    ]  # fmt: skip
    assert json.loads((tmp_path / "hf/config.json").read_text())["ff_activation"] == "gelu_new"
    expected = XLNetLMHeadModel.from_pretrained(source).state_dict()
    for folder in ("native", "hf"):
        found = XLNetLMHeadModel.from_pretrained(tmp_path / folder)
        assert found.config == XLNetLMHeadModel.from_pretrained(source).config
        assert all(torch.equal(found.state_dict()[name], value) for name, value in expected.items())


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    our_model("encoder").save_pretrained(tmp_path / "a")
    our_model("encoder", vocab_size=50).save_pretrained(tmp_path / "b")
    before = (tmp_path / "b/model.safetensors").read_bytes()
    with pytest.raises(CheckpointError, match=r"holds a model already.*overwrite"):
        convert(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b/model.safetensors").read_bytes() == before
    convert(tmp_path / "a", tmp_path / "b", overwrite=True)
    assert read_checkpoint(tmp_path / "b").config.vocab_size == 40
    with pytest.raises(CheckpointError, match="is the source itself"):
        convert(tmp_path / "a", tmp_path / "x" / ".." / "a", overwrite=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="is a file"):
        convert(tmp_path / "a", tmp_path / "file")
    with pytest.raises(CheckpointError, match=r"to='hff' must be one of native, hf\. Did you mean 'hf'"):
        convert(tmp_path / "a", tmp_path / "c", "hff")  # type: ignore[arg-type]


def test_overwriting_leaves_no_older_weights_that_would_be_read_instead(tmp_path: Path) -> None:
    """A folder may hold a sharded or pickled model; after conversion, only what was written counts."""
    our_model("encoder").save_pretrained(tmp_path / "a")
    target = tmp_path / "b"
    target.mkdir()
    (target / "config.json").write_text("{}")
    (target / "pytorch_model.bin").write_bytes(b"old")
    (target / "model.safetensors.index.json").write_text("{}")
    convert(tmp_path / "a", target, "hf", overwrite=True)
    expected, found = read_checkpoint(tmp_path / "a"), read_checkpoint(target)
    assert all(torch.equal(found.tensors[name], expected.tensors[name]) for name in expected.tensors)


@pytest.mark.parametrize("brings", [(), ("spiece.model",), TOKENIZER_FILES])
def test_overwriting_leaves_no_older_tokenizer(tmp_path: Path, brings: tuple[str, ...]) -> None:
    """Its files would be read together with those of the new model."""
    our_model("encoder").save_pretrained(tmp_path / "a")
    our_model("encoder").save_pretrained(tmp_path / "b")
    for name in brings:
        (tmp_path / "a" / name).write_text("new")
    for name in (*TOKENIZER_FILES, "notes.txt"):
        (tmp_path / "b" / name).write_text("old")
    done = convert(tmp_path / "a", tmp_path / "b", overwrite=True)
    assert set(done.copied) == set(brings)
    left = {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir() if path.suffix != ".safetensors"}
    assert left.keys() == {"config.json", "notes.txt", *brings} and left["notes.txt"] == b"old"
    assert all(left[name] == b"new" for name in brings)


def test_a_tokenizer_stays_where_the_new_model_could_not_be_written(tmp_path: Path) -> None:
    our_model("classification", summary_type="attn").save_pretrained(tmp_path / "a")
    our_model("encoder").save_pretrained(tmp_path / "b")
    (tmp_path / "b/spiece.model").write_text("old")
    with pytest.raises(CheckpointError, match="not implemented there"):
        convert(tmp_path / "a", tmp_path / "b", "hf", overwrite=True)
    assert (tmp_path / "b/spiece.model").read_text() == "old"


def test_arrays_that_do_not_fit_their_configuration_are_told(tmp_path: Path) -> None:
    """By the page before "loads as" is said, and by conversion before anything is written."""
    our_model("classification").save_pretrained(tmp_path / "a")
    path = tmp_path / "a/config.json"
    whole = json.loads(path.read_text())
    path.write_text(json.dumps({**whole, "num_labels": 2, "labels": []}))
    page = describe(tmp_path / "a")
    assert "XLNetForSequenceClassification" not in page.loads and "XLNetModel" in page.loads
    assert "classifier.weight [3, 24], should be [2, 24]" in page.partly["XLNetForSequenceClassification"]
    with pytest.raises(CheckpointError, match=r"classifier\.weight \[3, 24\](.|\n)*nothing was written"):
        convert(tmp_path / "a", tmp_path / "b")
    assert not (tmp_path / "b").exists()
    path.write_text(json.dumps({**whole, "d_inner": 37}))
    page = describe(tmp_path / "a")
    assert page.loads == () and page.partly == {}
    assert all("feed_forward" in page.refused[CLASS_NAMES[head]] for head in HEADS if head != "language_model")


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    "changes",
    [{}, {"untie_r": False, "tie_word_embeddings": False, "summary_type": "attn"}, {"summary_use_proj": False}],
)
def test_expected_shapes_are_those_of_the_models(head: Head, changes: dict[str, Any]) -> None:
    model = our_model(head, d_head=5, **changes)
    prefix = "encoder." if head == "encoder" else ""
    found = {prefix + name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert expected_shapes(model.config, head) == found


def test_what_was_saved_last_into_a_folder_of_the_release_is_read(golden: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(golden / "tf_checkpoint/adam", tmp_path / "f"))
    (folder / "config.json").write_text('{"model_type": "xlnet"}')
    assert read_checkpoint(folder).kind == "tensorflow", "a config.json alone holds no weights"
    convert(folder, tmp_path / "hf", "hf")
    shutil.copy(tmp_path / "hf/model.safetensors", folder)
    shutil.copy(tmp_path / "hf/config.json", folder)
    assert read_checkpoint(folder).kind == "hf"
    our_model("encoder").save_pretrained(folder)
    assert read_checkpoint(folder).kind == "native" and read_checkpoint(folder).config.vocab_size == 40
    assert read_checkpoint(folder / "xlnet_model.ckpt").kind == "tensorflow", "asked for by its name"


@pytest.mark.parametrize("head", HEADS)
def test_the_page_says_what_loads_and_it_does(tmp_path: Path, head: Head) -> None:
    import xlnet.model

    our_model(head).save_pretrained(tmp_path)
    page = describe(tmp_path)
    assert page.head == head and page.kind == "native" and CLASS_NAMES[head] in page.loads
    assert {*page.loads, *page.partly, *page.refused} == set(CLASS_NAMES.values())
    for name in page.loads:
        getattr(xlnet.model, name).from_pretrained(tmp_path)
    for name in (*page.partly, *page.refused):
        with pytest.raises(CheckpointError):
            getattr(xlnet.model, name).from_pretrained(tmp_path)
    for name in page.partly:
        getattr(xlnet.model, name).from_pretrained(tmp_path, new_head=True)
    text = str(page)
    assert f"{page.parameter_count:,}" in text and "float32" in text and str(tmp_path) in text
    assert page.parameter_count == our_model(head).parameter_count()


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, "holds no model.*It is empty"),
        ({"notes.txt": ""}, r"holds no model.*notes\.txt"),
        ({"model.safetensors": ""}, r"holds model\.safetensors but no config\.json"),
        ({"pytorch_model.bin": ""}, r"holds pytorch_model\.bin but no config\.json"),
        ({"xlnet_config.json": "{}"}, r"holds xlnet_config\.json but no checkpoint"),
        ({"config.json": "{}"}, r"neither model\.safetensors nor pytorch_model\.bin"),
        ({"config.json": "{}", "tf_model.h5": ""}, r"tf_model\.h5 holds weights of another framework"),
        ({"config.json": '{"format": "native"}'}, r"no model\.safetensors"),
        ({"config.json": "{"}, r"config\.json is not valid JSON, line 1"),
        ({"config.json": "[1]"}, r"config\.json must hold an object"),
        ({"config.json": "[" * 100000}, r"config\.json is not valid JSON"),
        ({"config.json": "\udcff"}, r"config\.json is not UTF-8"),
        ({"config.json": "{}", "model.safetensors.index.json": "{}"}, "no usable 'weight_map'"),
        ({"config.json": "{}", "model.safetensors.index.json": '{"weight_map": {"x": "../y"}}'}, "in the same folder"),
        ({"config.json": "{}", "model.safetensors.index.json": '{"weight_map": {"x": 3}}'}, "no usable 'weight_map'"),
    ],
)
def test_folders_that_hold_no_model_say_why(tmp_path: Path, files: dict[str, str], told: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=told):
        read_checkpoint(tmp_path)


def test_a_file_of_no_known_kind_is_told(tmp_path: Path) -> None:
    (tmp_path / "weights.pt").write_bytes(b"x")
    with pytest.raises(CheckpointError, match="no reader here knows"):
        read_checkpoint(tmp_path / "weights.pt")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_file_of_the_folder_stands_for_it(tmp_path: Path, name: str) -> None:
    our_model("encoder").save_pretrained(tmp_path)
    assert read_checkpoint(tmp_path / name).path == tmp_path


@pytest.mark.data
def test_the_exported_tokenizer_loads_there(shared_data: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="parity needs the development extra `transformers`")
    model = our_model("encoder")
    model.save_pretrained(tmp_path / "native")
    shutil.copy(shared_data / "tokenizers/xlnet-base-cased/spiece.model", tmp_path / "native")
    done = convert(tmp_path / "native", tmp_path / "hf", "hf")
    assert done.copied == ("spiece.model",)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert tokenizer("A short text.")["input_ids"][-2:] == [4, 3]
