"""Folders of the release: found, named, and computing what the official code computed from them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from bundle_writer import Variable, write_bundle
from torch import Tensor

from xlnet.checkpoints import convert, describe, read_checkpoint
from xlnet.checkpoints.arrays import as_lazy
from xlnet.checkpoints.names import pairs
from xlnet.checkpoints.translate import into_theirs
from xlnet.configuration import XLNetConfig
from xlnet.errors import CheckpointError
from xlnet.model import (
    Memory,
    XLNetForMultipleChoice,
    XLNetForQuestionAnswering,
    XLNetForSequenceClassification,
    XLNetLMHeadModel,
    XLNetModel,
)

TOLERANCE = 2e-5
RELEASE = {"n_layer": 2, "d_model": 12, "n_head": 2, "d_head": 5, "d_inner": 7, "n_token": 11, "ff_activation": "gelu"}


def adam(golden: Path) -> Path:
    return golden / "tf_checkpoint" / "adam"


def recorded(golden: Path, key: str) -> Tensor:
    array = np.load(adam(golden) / "expected_outputs.npz")[key]
    tensor = torch.from_numpy(array)
    return tensor if tensor.is_floating_point() else tensor.long()


def copy_of(golden: Path, target: Path) -> Path:
    shutil.copytree(adam(golden), target)
    for path in target.iterdir():
        path.chmod(0o644)
    return target


def test_what_is_in_the_folder(golden: Path) -> None:
    checkpoint = read_checkpoint(adam(golden))
    assert checkpoint.kind == "tensorflow" and checkpoint.head == "language_model" and checkpoint.has_language_model
    config = checkpoint.config
    assert (config.vocab_size, config.n_layer, config.d_model, config.untie_r) == (64, 3, 24, True)
    assert config.ff_activation == "gelu_tanh", "the release's gelu is the tanh form"
    assert config.dropout == 0.1, "keys that the file lacks have our defaults"
    assert any("94 arrays of optimizer state" in text for text in checkpoint.ignored)
    assert "global_step" in checkpoint.ignored
    assert checkpoint.parameter_count == 16864
    page = str(describe(adam(golden)))
    for text in ("TensorFlow checkpoint", "16,864", "64 pieces", "XLNetLMHeadModel", "global_step"):
        assert text in page


def test_two_segments_with_memory_equal_the_official_outputs(golden: Path) -> None:
    model = XLNetLMHeadModel.from_pretrained(adam(golden), mem_len=12, reuse_len=8)
    direction = torch.tensor([1, 1, -1, -1])
    memory = Memory.attended_zeros(model.config, 4)
    memory = Memory(memory.states, memory.valid, direction)
    for segment in ("seg0", "seg1"):
        counted = recorded(golden, f"{segment}/in/target_mask") > 0
        targets = torch.where(counted, recorded(golden, f"{segment}/in/target_mapping").argmax(dim=-1), -1)
        out = model(
            recorded(golden, f"{segment}/in/input_k"),
            token_type_ids=recorded(golden, f"{segment}/in/seg_id"),
            visible=recorded(golden, f"{segment}/in/perm_mask") < 0.5,
            target_positions=targets,
            labels=torch.where(counted, recorded(golden, f"{segment}/in/target"), -100),
            memory=memory,
            direction=direction,
            need_logits=True,
        )
        logits = recorded(golden, f"{segment}/logits").transpose(0, 1)
        assert counted.sum() > 15
        assert (out.logits - logits)[counted].abs().max() < TOLERANCE
        assert abs(out.loss - recorded(golden, f"{segment}/total_loss")) < TOLERANCE
        losses = recorded(golden, f"{segment}/lm_loss_per_token").transpose(0, 1)
        assert abs(out.loss_sum - losses[counted].sum()) < TOLERANCE * counted.sum()
        memory = out.memory
        for layer in range(3):
            expected = recorded(golden, f"{segment}/new_mems/{layer}").transpose(0, 1)
            assert (memory.states[layer] - expected).abs().max() < TOLERANCE


def test_content_stream_equals_the_official_output(golden: Path) -> None:
    model = XLNetModel.from_pretrained(adam(golden))
    real = recorded(golden, "content/in/input_mask").T == 0
    out = model(recorded(golden, "content/in/input_ids").T, real, recorded(golden, "content/in/seg_ids").T)
    expected = recorded(golden, "content/sequence_output").transpose(0, 1)
    assert (out.content - expected)[real].abs().max() < TOLERANCE


def test_cleaned_checkpoint_has_no_configuration_of_its_own(golden: Path) -> None:
    clean = golden / "tf_checkpoint" / "clean"
    with pytest.raises(CheckpointError, match=r"xlnet_config\.json"):
        read_checkpoint(clean)
    full = read_checkpoint(adam(golden))
    for path in (clean, clean / "model.ckpt-0", clean / "model.ckpt-0.index"):
        checkpoint = read_checkpoint(path, config=full.config)
        assert set(checkpoint.tensors) == set(full.tensors)
        for name in full.tensors:
            assert torch.equal(checkpoint.tensors[name], full.tensors[name])


@pytest.mark.data
@pytest.mark.parametrize(("folder", "untie_r"), [("test_checkpoint_tune", True), ("test_checkpoint_empty", False)])
def test_foreign_checkpoints_load_as_encoders_only(shared_data: Path, folder: str, untie_r: bool) -> None:
    path = shared_data / "tf_tiny" / folder
    model = XLNetModel.from_pretrained(path, attn_type="uni")
    assert model.config.untie_r is untie_r
    ids, segments = (torch.from_numpy(np.load(path / f"{name}.npy")).long() for name in ("input_ids", "seg_ids"))
    memory = None
    mems = sorted(path.glob("mems_*.npy"))
    if mems:
        states = torch.stack([torch.from_numpy(np.load(mem)).float() for mem in mems])
        model = XLNetModel.from_pretrained(path, attn_type="uni", mem_len=states.shape[2])
        memory = Memory(states, torch.ones(states.shape[1:3], dtype=torch.bool), torch.ones(len(ids), dtype=torch.long))
    out = model(ids, token_type_ids=segments, memory=memory)
    expected = torch.from_numpy(np.load(next(path.glob("*_output.npy"))))
    assert (out.content - expected).abs().max() < TOLERANCE
    with pytest.raises(CheckpointError) as caught:
        XLNetLMHeadModel.from_pretrained(path)
    assert "lm_bias" in str(caught.value) and "mask_embedding" in str(caught.value)
    assert "lm_bias" in describe(path).refused["XLNetLMHeadModel"]


def write_release(folder: Path, model: torch.nn.Module, task: str | None, shards: int = 2, **config: object) -> None:
    """A checkpoint of the release, written by hand from a model of ours: weights, slots and counters in two shards."""
    folder.mkdir(exist_ok=True)
    state = {f"encoder.{n}" if model.head == "encoder" else n: v for n, v in model.state_dict().items()}
    state = {name: value.detach() for name, value in state.items() if "mask_embedding" not in name}
    table = pairs("tensorflow", model.head, model.config.n_layer, not model.config.untie_r, task)
    theirs = into_theirs(as_lazy(state), table, model.config.n_head)
    variables = [Variable(name, theirs[name].numpy(), i % shards) for i, name in enumerate(theirs)]
    variables += [Variable(f"{name}/Adam", theirs[name].numpy(), i % shards) for i, name in enumerate(theirs)]
    variables.append(Variable("global_step", np.array(7, dtype=np.int64)))
    write_bundle(folder / "model.ckpt-7", variables, shards)
    values = {**RELEASE, "untie_r": model.config.untie_r, **config}
    (folder / "xlnet_config.json").write_text(json.dumps(values))


@pytest.mark.parametrize("untie_r", [True, False])
@pytest.mark.parametrize(
    ("kind", "task", "changes"),
    [
        (XLNetForSequenceClassification, "classification_mnli", {"num_labels": 3}),
        (XLNetForSequenceClassification, "regression_sts-b", {"num_labels": 1}),
        (XLNetForSequenceClassification, "classification_x", {"num_labels": 2, "summary_type": "attn"}),
        (XLNetForMultipleChoice, None, {}),
        (XLNetForQuestionAnswering, None, {}),
    ],
)
def test_fine_tuned_checkpoints_in_two_shards(
    tmp_path: Path, kind: type, task: str | None, changes: dict, untie_r: bool
) -> None:
    """They have no mask embedding: the official fine-tuning never makes one."""
    torch.manual_seed(2)
    config = XLNetConfig(
        vocab_size=11, n_layer=2, d_model=12, n_head=2, d_head=5, d_inner=7, untie_r=untie_r, **changes
    )  # fmt: skip
    model = kind(config).eval()
    write_release(tmp_path / "r", model, task)
    found = kind.from_pretrained(tmp_path / "r", **changes)
    for name, value in model.state_dict().items():
        if "mask_embedding" not in name:
            assert torch.equal(found.state_dict()[name], value), name
            assert found.state_dict()[name].is_contiguous(), name
    assert any("optimizer state" in text for text in read_checkpoint(tmp_path / "r").ignored)


@pytest.mark.parametrize(("task", "outputs"), [("classification_mnli", 3), ("regression_sts-b", 1)])
def test_a_classifier_has_the_labels_that_are_stored(tmp_path: Path, task: str, outputs: int) -> None:
    """No file of the release says how many; the converted folder loads, and the page does not promise what fails."""
    torch.manual_seed(2)
    config = XLNetConfig(vocab_size=11, n_layer=2, d_model=12, n_head=2, d_head=5, d_inner=7, num_labels=outputs)
    model = XLNetForSequenceClassification(config).eval()
    write_release(tmp_path / "r", model, task)
    assert "XLNetForSequenceClassification" in describe(tmp_path / "r").loads
    done = convert(tmp_path / "r", tmp_path / "n")
    assert done.head == "classification"
    for folder in ("r", "n"):
        found = XLNetForSequenceClassification.from_pretrained(tmp_path / folder)
        assert found.config.num_labels == outputs
        assert torch.equal(found.state_dict()["classifier.weight"], model.state_dict()["classifier.weight"])
    write_release(tmp_path / "r", model, task, num_labels=2, labels=["no", "yes"])
    with pytest.raises(CheckpointError, match=f"has {outputs} outputs. 2 label names are given"):
        read_checkpoint(tmp_path / "r")


def test_the_file_checkpoint_chooses_among_several(golden: Path, tmp_path: Path) -> None:
    folder = copy_of(golden, tmp_path / "several")
    for suffix in ("index", "data-00000-of-00001"):
        shutil.copy(golden / f"tf_checkpoint/clean/model.ckpt-0.{suffix}", folder)
    assert any("94 arrays" in text for text in read_checkpoint(folder).ignored)
    (folder / "checkpoint").write_text('model_checkpoint_path: "/old/place/model.ckpt-0"\n')
    assert not any("94 arrays" in text for text in read_checkpoint(folder).ignored)
    assert any("94 arrays" in text for text in read_checkpoint(folder / "xlnet_model.ckpt").ignored)
    (folder / "checkpoint").unlink()
    with pytest.raises(CheckpointError, match=r"several checkpoints.*model\.ckpt-0.*xlnet_model\.ckpt"):
        read_checkpoint(folder)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"ff_activation": "swish"}, "ff_activation='swish'.*gelu, relu"),
        ({"n_token": 65}, r"word_embedding.weight \[64, 24\], should be \[65, 24\].*lookup_table"),
        ({"n_layer": 2}, "begin with the number of layers, 2"),
        ({"n_haed": 3}, "key 'n_haed' is not known.*Did you mean 'n_head'"),
        ({"n_head": 0}, "n_head=0 must be at least 1"),
        ({"d_inner": "40"}, "d_inner='40' must be of type int"),
        ({"n_token": None}, "vocab_size=None must be of type int"),
    ],
)
def test_wrong_settings_are_told(golden: Path, tmp_path: Path, change: dict[str, object], told: str) -> None:
    folder = copy_of(golden, tmp_path / "c")
    values = json.loads((folder / "xlnet_config.json").read_text())
    (folder / "xlnet_config.json").write_text(json.dumps({**values, **change}))
    with pytest.raises(CheckpointError, match=told):
        XLNetLMHeadModel.from_pretrained(folder)


@pytest.mark.parametrize("key", ["n_token", "untie_r", "ff_activation"])
def test_missing_settings_are_told(golden: Path, tmp_path: Path, key: str) -> None:
    folder = copy_of(golden, tmp_path / "c")
    values = json.loads((folder / "xlnet_config.json").read_text())
    del values[key]
    (folder / "xlnet_config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=f"lacks {key}"):
        read_checkpoint(folder)


def test_an_old_format_is_recognized(tmp_path: Path) -> None:
    (tmp_path / "xlnet_model.ckpt").write_bytes(b"V1")
    (tmp_path / "xlnet_config.json").write_text(json.dumps({**RELEASE, "untie_r": True}))
    with pytest.raises(CheckpointError, match=r"xlnet_model\.ckpt has no \.index beside it"):
        read_checkpoint(tmp_path)


def test_classifiers_of_two_tasks_are_reported(tmp_path: Path) -> None:
    torch.manual_seed(2)
    config = XLNetConfig(vocab_size=11, n_layer=2, d_model=12, n_head=2, d_head=5, d_inner=7)
    write_release(tmp_path, XLNetModel(config), None)
    weights = read_checkpoint(tmp_path)
    variables = [Variable(f"model/classification_{t}/logit/bias", np.zeros(2, np.float32)) for t in ("a", "b")]
    write_bundle(tmp_path / "model.ckpt-7", variables)
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint.head == "encoder" and weights.head == "encoder"
    assert any("2 tasks (classification_a, classification_b)" in text for text in checkpoint.ignored)
