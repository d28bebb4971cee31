"""ONNX graphs: onnxruntime computes what the model computes, at sizes unlike the traced ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from xlnet.configuration import XLNetConfig
from xlnet.errors import ConfigurationError, MachineError
from xlnet.export import export_onnx
from xlnet.export.onnx import _write
from xlnet.model import (
    XLNetForMultipleChoice,
    XLNetForQuestionAnswering,
    XLNetForSequenceClassification,
    XLNetForTokenClassification,
    XLNetLMHeadModel,
    XLNetModel,
)

pytest.importorskip("onnxscript", reason="needs the extra `export`")
runtime = pytest.importorskip("onnxruntime", reason="needs the extra `export`")
CONFIG = XLNetConfig(
    vocab_size=40, n_layer=2, d_model=24, n_head=4, d_head=5, d_inner=36, mem_len=6, num_labels=3, initializer_range=0.3
)  # fmt: skip
SHAPES = [(1, 1), (3, 12), (5, 33)]
TOLERANCE = 1e-4


def model_of(kind: type, **changes: Any) -> Any:
    torch.manual_seed(1)
    return kind(CONFIG.replace(**changes)).eval()


def inputs(rows: int, length: int, choices: int = 0) -> dict[str, Tensor]:
    """Random ids; padding on the left, on the right and none; both segments."""
    shape = (rows, choices, length) if choices else (rows, length)
    ids = torch.randint(0, 40, shape, generator=torch.Generator().manual_seed(length))
    mask, segments = torch.ones(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)
    for row in range(rows):
        if length > 4:
            padding = [0, 1, length // 3][row % 3]
            mask[row, ..., slice(0, padding) if row % 2 else slice(length - padding, length)] = 0
        segments[row, ..., length // 2 :] = 1
        segments[row, ..., -1] = 2
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}


def run(path: Path, given: dict[str, Tensor]) -> np.ndarray:
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [node.name for node in session.get_inputs()] == list(given)
    return session.run(None, {name: value.numpy() for name, value in given.items()})[0]


def compare(found: np.ndarray, expected: Tensor, counted: Tensor) -> None:
    assert found.shape == tuple(expected.shape)
    assert np.abs(found - expected.numpy())[counted.numpy()].max() < TOLERANCE


@pytest.mark.slow
def test_encoder(tmp_path: Path) -> None:
    model = model_of(XLNetModel, attention_backend="tiles", clamp_len=9)
    graph = export_onnx(model, tmp_path / "e.onnx")
    assert (graph.kind, graph.output, graph.path) == ("encoder", "content", tmp_path / "e.onnx")
    for shape in SHAPES:
        given = inputs(*shape)
        with torch.no_grad():
            compare(run(graph.path, given), model(**given).content, given["attention_mask"].bool())
    assert [path.name for path in tmp_path.iterdir()] == ["e.onnx"]


@pytest.mark.slow
def test_large_weights_lie_beside_the_graph_that_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.onnx._internal.exporter import _onnx_program

    monkeypatch.setattr(_onnx_program, "_LARGE_MODEL_THRESHOLD", 0)
    model = model_of(XLNetModel)
    for _ in range(2):
        graph = export_onnx(model, tmp_path / "e.onnx")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["e.onnx", "e.onnx.data"]
    assert graph.beside == (tmp_path / "e.onnx.data",)
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    given = inputs(3, 12)
    with torch.no_grad():
        compare(run(moved / "e.onnx", given), model(**given).content, given["attention_mask"].bool())


def test_files_appear_under_their_final_names_or_not_at_all(tmp_path: Path) -> None:
    def save(name: str) -> None:
        Path(name).write_text(Path(name).name)
        Path(f"{name}.data").write_text("weights")

    def fail(name: str) -> None:
        save(name)
        raise OSError(28, "No space left on device")

    assert _write(save, tmp_path / "sub/x.onnx") == (tmp_path / "sub/x.onnx.data",)
    assert (tmp_path / "sub/x.onnx").read_text() == "x.onnx"
    (tmp_path / "sub/x.onnx").write_text("older")
    with pytest.raises(MachineError, match="No space left"):
        _write(fail, tmp_path / "sub/x.onnx")
    assert sorted(path.name for path in (tmp_path / "sub").iterdir()) == ["x.onnx", "x.onnx.data"]
    assert (tmp_path / "sub/x.onnx").read_text() == "older"


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"summary_type": "mean", "untie_r": False, "ff_activation": "relu"}])
def test_classifier(tmp_path: Path, changes: dict[str, Any]) -> None:
    model = model_of(XLNetForSequenceClassification, **changes).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    parameters = dict(model.named_parameters())
    graph = export_onnx(model, tmp_path / "c.onnx", "classifier")
    assert model.training and model.config.mem_len == 6, "the model is left as it was"
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    for name, parameter in model.named_parameters():
        assert parameters[name] is parameter and parameter.requires_grad == (name != "encoder.mask_embedding")
    model.eval()
    for shape in SHAPES:
        given = inputs(*shape)
        with torch.no_grad():
            expected = model(**given).logits
        compare(run(graph.path, given), expected, torch.ones_like(expected, dtype=torch.bool))


@pytest.mark.slow
def test_tokens_and_choices(tmp_path: Path) -> None:
    model = model_of(XLNetForTokenClassification)
    graph = export_onnx(model, tmp_path / "t.onnx")
    choice = model_of(XLNetForMultipleChoice)
    graph_of_choices = export_onnx(choice, tmp_path / "m.onnx")
    for rows, length in SHAPES:
        given = inputs(rows, length)
        with torch.no_grad():
            compare(run(graph.path, given), model(**given).logits, given["attention_mask"].bool())
            given = inputs(rows, length, choices=4)
            expected = choice(**given).logits
        compare(run(graph_of_choices.path, given), expected, torch.ones_like(expected, dtype=torch.bool))


@pytest.mark.slow
def test_language_model(tmp_path: Path) -> None:
    model = model_of(XLNetLMHeadModel)
    graph = export_onnx(model, tmp_path / "l.onnx")
    for (rows, length), count in zip(SHAPES, (1, 4, 7), strict=True):
        given = inputs(rows, length)
        generator = torch.Generator().manual_seed(rows)
        given["order"] = torch.randint(0, length, (rows, length), generator=generator)
        given["target_positions"] = torch.randint(-1, length, (rows, count), generator=generator)
        given["target_positions"][0, 0] = length - 1
        with torch.no_grad():
            expected = model(**given).logits
        used = given["target_positions"] >= 0
        real = given["attention_mask"].gather(1, given["target_positions"].clamp(min=0)).bool()
        compare(run(graph.path, given), expected, used & real)


def test_what_has_no_graph_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"kind='encodr' must be one of.*Did you mean 'encoder'"):
        export_onnx(model_of(XLNetModel), tmp_path / "x", "encodr")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="XLNetModel has no graph of kind 'classifier'"):
        export_onnx(model_of(XLNetModel), tmp_path / "x", "classifier")
    with pytest.raises(ConfigurationError, match="XLNetForQuestionAnswering has no graph"):
        export_onnx(model_of(XLNetForQuestionAnswering), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MachineError, match=r"pip install 'xlnet\[export\]'"):
        export_onnx(model_of(XLNetModel), tmp_path / "x")
