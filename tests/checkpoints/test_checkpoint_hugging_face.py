"""Hugging Face folders: equal outputs in both directions, equal bytes after a round trip, damage and danger refused."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hugging_face_peers import (
    HEADS,
    SHAPE,
    batch,
    largest_difference,
    load_theirs,
    our_model,
    save_theirs,
    their_model,
)  # fmt: skip
from safetensors.torch import load_file, save_file

import xlnet.model
from xlnet.checkpoints import convert, describe, read_checkpoint, write_hugging_face
from xlnet.checkpoints.names import CLASS_NAMES, Head
from xlnet.checkpoints.settings import from_hugging_face, to_hugging_face
from xlnet.configuration import XLNetConfig
from xlnet.errors import CheckpointError

pytest.importorskip("transformers", reason="parity needs the development extra `transformers`")
TOLERANCE = 2e-5


def ours(head: Head, folder: Path, **options: Any) -> Any:
    return getattr(xlnet.model, CLASS_NAMES[head]).from_pretrained(folder, **options)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Head, Path]:
    """A folder saved by transformers for every head."""
    root = tmp_path_factory.mktemp("theirs")
    return {head: save_theirs(their_model(head), root / head) for head in HEADS}


@pytest.mark.parametrize("head", HEADS)
def test_their_folder_gives_their_outputs_here(folders: dict[Head, Path], head: Head) -> None:
    found = ours(head, folders[head])
    assert found.config.ff_activation == "gelu" and found.config.mem_len == 5
    assert largest_difference(head, load_theirs(head, folders[head]), found) < TOLERANCE
    if head == "classification":
        assert found.config.labels == ("red", "green", "blue")


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    "changes",
    [
        {"ff_activation": "gelu_tanh"},
        {"ff_activation": "gelu", "untie_r": False, "summary_type": "mean", "summary_use_proj": False, "clamp_len": 3},
        pytest.param(
            {
                "ff_activation": "relu",
                "summary_type": "first",
                "tie_word_embeddings": False,
                "summary_activation": "none",
            },
            marks=pytest.mark.slow,
        ),
    ],
    ids=["gelu_tanh", "tied-biases", "untied-words"],
)
def test_our_folder_gives_our_outputs_there(tmp_path: Path, head: Head, changes: dict[str, Any]) -> None:
    model = our_model(head, **changes)
    notes = write_hugging_face(tmp_path, model.config, model.state_dict(), head)
    assert bool(notes) == (not model.config.untie_r)
    peer = load_theirs(head, tmp_path)
    inputs_differ = changes.get("summary_type") in ("mean", "first") and head in ("classification", "multiple_choice")
    if inputs_differ:  # there, padding counts in the mean and is the first position
        ids = batch(choices=2 if head == "multiple_choice" else 0)["input_ids"]
        assert (model(ids).logits - peer(ids).logits).abs().max() < TOLERANCE
    else:
        assert largest_difference(head, peer, model) < TOLERANCE
    again = ours(head, tmp_path)
    assert largest_difference(head, peer, again) < TOLERANCE or inputs_differ


def test_two_streams_and_memory_over_two_segments(folders: dict[Head, Path]) -> None:
    theirs, found = (
        load_theirs("language_model", folders["language_model"]),
        ours("language_model", folders["language_model"]),
    )
    mems, memory = None, None
    for number in range(2):
        ids = torch.randint(3, 40, (2, 6), generator=torch.Generator().manual_seed(number))
        visible = torch.ones(2, 6, 6, dtype=torch.bool)
        visible[0, :, 4:] = False
        visible[1, :, 1] = False
        visible[1, 4:, 1] = True
        targets = torch.tensor([[4, 5], [1, 3]])
        mapping = torch.nn.functional.one_hot(targets, 6).float()
        with torch.no_grad():
            expected = theirs(ids, perm_mask=(~visible).float(), target_mapping=mapping, mems=mems, use_mems=True)
            out = found(ids, visible=visible, target_positions=targets, memory=memory)
        assert (out.logits - expected.logits).abs().max() < TOLERANCE
        mems, memory = expected.mems, out.memory
        for layer, states in enumerate(mems):
            kept = states.transpose(0, 1)
            assert (memory.states[layer][:, -kept.shape[1] :] - kept).abs().max() < TOLERANCE


@pytest.mark.parametrize("head", HEADS)
def test_there_and_back_keeps_every_byte(folders: dict[Head, Path], tmp_path: Path, head: Head) -> None:
    convert(folders[head], tmp_path / "native")
    convert(tmp_path / "native", tmp_path / "back", "hf")
    before, after = (load_file(folder / "model.safetensors") for folder in (folders[head], tmp_path / "back"))
    assert list(before) and set(before) == set(after)
    for name, tensor in before.items():
        assert tensor.dtype == after[name].dtype and tensor.shape == after[name].shape, name
        assert tensor.numpy().tobytes() == after[name].numpy().tobytes(), name
    kept = ("architectures", "ff_activation", "mem_len", "id2label", "d_inner", "n_layer", "summary_type")
    values = [json.loads((folder / "config.json").read_text()) for folder in (folders[head], tmp_path / "back")]
    for key in kept:
        if key != "id2label" or head in ("classification", "token_classification"):
            assert values[0].get(key) == values[1].get(key), key


def test_tied_weights_are_stored_once(tmp_path: Path) -> None:
    model = our_model("language_model")
    write_hugging_face(tmp_path / "hf", model.config, model.state_dict(), "language_model")
    model.save_pretrained(tmp_path / "native")
    for folder in ("hf", "native"):
        tensors = load_file(tmp_path / folder / "model.safetensors")
        assert [name for name in tensors if 40 in tensors[name].shape and tensors[name].ndim == 2] == [
            "transformer.word_embedding.weight" if folder == "hf" else "encoder.word_embedding.weight"
        ]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_element_types_are_kept(folders: dict[Head, Path], tmp_path: Path, dtype: torch.dtype) -> None:
    save_theirs(their_model("language_model").to(dtype), tmp_path / "half")
    checkpoint = read_checkpoint(tmp_path / "half")
    assert {checkpoint.tensors[name].dtype for name in checkpoint.tensors} == {dtype}
    convert(tmp_path / "half", tmp_path / "native")
    convert(tmp_path / "native", tmp_path / "back", "hf")
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("half", "back"))
    assert all(torch.equal(before[name].view(torch.int16), after[name].view(torch.int16)) for name in before)
    assert json.loads((tmp_path / "back/config.json").read_text())["dtype"] == str(dtype).removeprefix("torch.")
    assert ours("language_model", tmp_path / "half").dtype == torch.float32


def test_shards_load(folders: dict[Head, Path], tmp_path: Path) -> None:
    model = their_model("classification")
    save_theirs(model, tmp_path, max_shard_size="8KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    assert largest_difference("classification", model, ours("classification", tmp_path)) < TOLERANCE
    shard = sorted(tmp_path.glob("model-*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(CheckpointError, match=f"lacks the shard {shard.name}"):
        read_checkpoint(tmp_path)


def as_pickle(source: Path, target: Path, legacy: bool = False, tied: bool = True) -> Path:
    """A folder as old versions of transformers wrote it: tied matrix twice, in one storage."""
    target.mkdir()
    shutil.copy(source / "config.json", target)
    state = load_file(source / "model.safetensors")
    if tied:
        state["lm_loss.weight"] = state["transformer.word_embedding.weight"]
    torch.save(state, target / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    return target


@pytest.mark.parametrize("legacy", [False, True])
def test_old_pickles_load(folders: dict[Head, Path], tmp_path: Path, legacy: bool) -> None:
    folder = as_pickle(folders["language_model"], tmp_path / "old", legacy)
    model = ours("language_model", folder)
    assert (
        largest_difference("language_model", load_theirs("language_model", folders["language_model"]), model)
        < TOLERANCE
    )
    assert any("lm_loss.weight" in text for text in read_checkpoint(folder).ignored)


def test_sharded_pickles_load(folders: dict[Head, Path], tmp_path: Path) -> None:
    shutil.copy(folders["classification"] / "config.json", tmp_path)
    state = load_file(folders["classification"] / "model.safetensors")
    names = sorted(state)
    parts = {"pytorch_model-00001-of-00002.bin": names[:9], "pytorch_model-00002-of-00002.bin": names[9:]}
    for file, part in parts.items():
        torch.save({name: state[name] for name in part}, tmp_path / file)
    where = {name: file for file, part in parts.items() for name in part}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": where}))
    theirs = load_theirs("classification", folders["classification"])
    assert largest_difference("classification", theirs, ours("classification", tmp_path)) < TOLERANCE


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("exploded",)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_with_code_is_refused_and_not_run(
    folders: dict[Head, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, legacy: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = as_pickle(folders["language_model"], tmp_path / "bad")
    state = {"transformer.mask_emb": torch.zeros(1, 1, 24), "bomb": Bomb()}
    torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    with pytest.raises(CheckpointError, match="could run any code"):
        read_checkpoint(folder)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors", "config.json"])
def test_damaged_files_are_told(folders: dict[Head, Path], tmp_path: Path, name: str) -> None:
    if name == "pytorch_model.bin":
        folder = as_pickle(folders["language_model"], tmp_path / "f")
    else:
        folder = Path(shutil.copytree(folders["language_model"], tmp_path / "f"))
    whole = (folder / name).read_bytes()
    for content in (b"", whole[:3], whole[: len(whole) // 3], whole[:-10], b"\xff" * len(whole), b"\x80\x04]" * 20):
        (folder / name).write_bytes(content)
        with pytest.raises(CheckpointError, match=name):
            checkpoint = read_checkpoint(folder)
            for key in checkpoint.tensors:
                _ = checkpoint.tensors[key]


def test_a_pickle_of_something_else_is_refused(folders: dict[Head, Path], tmp_path: Path) -> None:
    folder = as_pickle(folders["language_model"], tmp_path / "f")
    torch.save({"epoch": 3, "model": {}}, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="dictionary of tensors"):
        read_checkpoint(folder)


def test_old_names_of_layer_normalization(folders: dict[Head, Path], tmp_path: Path) -> None:
    shutil.copy(folders["encoder"] / "config.json", tmp_path)
    state = load_file(folders["encoder"] / "model.safetensors")
    renamed = {
        n.replace("layer_norm.weight", "layer_norm.gamma").replace("layer_norm.bias", "layer_norm.beta"): v
        for n, v in state.items()
    }
    assert set(renamed) != set(state)
    save_file(renamed, tmp_path / "model.safetensors", {"format": "pt"})
    found = ours("encoder", tmp_path)
    assert largest_difference("encoder", load_theirs("encoder", folders["encoder"]), found) < TOLERANCE


def test_release_gelu_is_a_switch(folders: dict[Head, Path]) -> None:
    plain, switched = (ours("encoder", folders["encoder"], release_gelu=value) for value in (False, True))
    assert (plain.config.ff_activation, switched.config.ff_activation) == ("gelu", "gelu_tanh")
    difference = (plain(**batch()).content - switched(**batch()).content).abs().max()
    assert 1e-5 < difference < 1e-1


def test_a_head_without_a_place_here_is_reported(tmp_path: Path) -> None:
    import transformers

    model = transformers.XLNetForQuestionAnsweringSimple(transformers.XLNetConfig(**SHAPE))
    save_theirs(model, tmp_path)
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint.head == "encoder"
    assert [text.split(" ")[0] for text in checkpoint.ignored] == ["qa_outputs.bias", "qa_outputs.weight"]
    assert "qa_outputs.weight" in str(describe(tmp_path))
    ours("encoder", tmp_path)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"d_head": 5}, r"n_head \* d_head = 4 \* 5 must equal d_model = 24"),
        ({"summary_type": "attn"}, "summary_type='attn' is not implemented there"),
        ({"labels": ("a", "a", "b")}, "two labels have the same name"),
    ],
)
def test_what_they_cannot_express_is_refused_before_writing(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    model = our_model("classification", **changes)
    with pytest.raises(CheckpointError, match=told):
        write_hugging_face(tmp_path / "f", model.config, model.state_dict(), "classification")
    assert not (tmp_path / "f").exists()
    model.save_pretrained(tmp_path / "native")
    assert describe(tmp_path / "native").to_hugging_face
    with pytest.raises(CheckpointError, match=told):
        convert(tmp_path / "native", tmp_path / "f", "hf")
    assert not (tmp_path / "f").exists()


def test_an_encoder_with_attentive_summary_setting_is_exported(tmp_path: Path) -> None:
    model = our_model("encoder", summary_type="attn")
    write_hugging_face(tmp_path, model.config, model.state_dict(), "encoder")
    load_theirs("encoder", tmp_path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model_type": "bert"}, "model_type='bert' is another kind of model"),
        ({"ff_activation": "silu"}, "ff_activation='silu' is not known"),
        ({"ff_activation": "gelo"}, "Did you mean 'gelu'"),
        ({"ff_activation": None}, "ff_activation=None is not known"),
        ({"summary_type": "attn"}, "summary_type='attn' must be one of"),
        ({"summary_activation": "relu"}, "summary_activation='relu' must be"),
        ({"summary_use_proj": False, "architectures": None}, "tanh of the bare state there"),
        ({"d_model": 25}, "d_model=25 must be a multiple of n_head=4"),
        ({"d_head": 7}, "d_head=7 must be d_model / n_head = 6"),
        ({"n_layer": "2"}, "n_layer='2' must be of type int"),
        ({"id2label": {"0": "a", "2": "b"}}, "classes 0 to 1 without gaps"),
        ({"id2label": {"x": "a"}}, "must map class numbers to names"),
        ({"dropout": 1.5}, "dropout=1.5 must be a rate"),
    ],
)
def test_settings_we_cannot_express_are_told(
    folders: dict[Head, Path], tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    folder = Path(shutil.copytree(folders["encoder"], tmp_path / "f"))
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, **change}))
    with pytest.raises(CheckpointError, match=told) as caught:
        read_checkpoint(folder)
    assert "config.json" in str(caught.value)


def test_the_vocabulary_of_the_oldest_folders() -> None:
    found = from_hugging_face({"n_token": 40, "d_model": 24, "n_head": 4}, "c").config
    assert found.vocab_size == 40
    with pytest.raises(CheckpointError, match="c: n_token=40 and vocab_size=32000 are two words for one setting"):
        from_hugging_face({"n_token": 40, "vocab_size": 32000}, "c")
    assert from_hugging_face({"n_token": 40, "vocab_size": 40}, "c").config.vocab_size == 40


def test_settings_of_old_folders(tmp_path: Path) -> None:
    """Null memory lengths, renamed width keys, other words for the tanh gelu, a batch-wide flag for direction."""
    values = {"hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2, "mem_len": None, "reuse_len": None}
    found = from_hugging_face({**values, "ff_activation": "gelu_new", "bi_data": True, "num_labels": 4}, "c")
    config = found.config
    assert (config.d_model, config.n_head, config.d_head, config.n_layer, config.mem_len) == (24, 4, 6, 2, 0)
    assert config.ff_activation == "gelu_tanh" and config.num_labels == 4
    assert found.head is None and "direction" in found.notes[0]


def test_an_architecture_that_is_not_said_is_guessed_from_the_outputs(
    folders: dict[Head, Path], tmp_path: Path
) -> None:
    """Multiple choice and classification have equal names; a single output beside three labels is no classifier."""
    for head in ("multiple_choice", "classification"):
        folder = Path(shutil.copytree(folders[head], tmp_path / head))
        values = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**values, "architectures": None}))
        assert read_checkpoint(folder).head == head and CLASS_NAMES[head] in describe(folder).loads


@pytest.mark.parametrize("head", HEADS)
def test_settings_go_there_and_back(head: Head) -> None:
    config = XLNetConfig(
        vocab_size=9, n_layer=2, d_model=8, n_head=2, d_head=4, d_inner=6, ff_activation="relu", mem_len=3,
        reuse_len=2, clamp_len=4, dropout=0.2, dropatt=0.2, attn_type="uni", same_length=True, layer_norm_eps=1e-6,
        initializer_range=0.3, tie_word_embeddings=False, summary_type="mean", summary_use_proj=False,
        summary_activation="none", summary_dropout=0.3, num_labels=3, labels=("a", "b", "c"), start_n_top=2,
        end_n_top=3,
    )  # fmt: skip
    found = from_hugging_face(to_hugging_face(config, head), "c")
    assert found.head == head
    if head not in ("classification", "token_classification"):
        config = config.replace(num_labels=2, labels=())
    assert found.config == config
