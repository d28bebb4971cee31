"""ONNX graphs of the encoder, the heads and the language model, with free batch size and length.

A graph takes ``input_ids``, ``attention_mask`` and ``token_type_ids``, each ``[batch, length]`` int64; padding may be
on either side. The graph of a language model also takes ``order [batch, length]`` and ``target_positions
[batch, targets]`` (-1: none), so one graph scores, fills and generates. Attention takes the reference path, which is
plain algebra; memory is not part of a graph.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from xlnet.errors import ConfigurationError, MachineError, did_you_mean
from xlnet.model import PretrainedModel

Kind = Literal["encoder", "classifier", "language_model"]
OPSET = 18
_TOKENS = ("input_ids", "attention_mask", "token_type_ids")
_TARGETS = ("order", "target_positions")
_HEADS: dict[Kind, tuple[str, ...]] = {
    "encoder": ("encoder",),
    "classifier": ("classification", "token_classification", "multiple_choice"),
    "language_model": ("language_model",),
}


@dataclass(frozen=True)
class ExportedGraph:
    """A written graph.

    Attributes:
        path: the file.
        kind: which graph it is.
        inputs: names of its inputs, in order.
        output: name of its output: ``content [batch, length, D]`` or ``logits``.
        beside: files with weights that lie beside it and belong to it; none for all but large models.
    """

    path: Path
    kind: Kind
    inputs: tuple[str, ...]
    output: str
    beside: tuple[Path, ...] = ()


def export_onnx(model: PretrainedModel, path: str | Path, kind: Kind | None = None) -> ExportedGraph:
    """Write a model as an ONNX file that onnxruntime runs without this library.

    Args:
        model: an encoder, a classifier (of texts, tokens or choices) or a language model; exported in eval mode.
        path: the file to make or replace; weights above 1.5 GB go to ``NAME.data`` beside it.
        kind: which graph; by default the one that belongs to the model.

    Raises:
        ConfigurationError: an unknown kind, or a model that has no such graph.
        MachineError: the optional packages are not installed, or the file cannot be written.
    """
    kind = _checked_kind(model, kind)
    names = _TOKENS + (_TARGETS if kind == "language_model" else ())
    output = "content" if kind == "encoder" else "logits"
    graph = _Graph(_plain(model), output).eval()
    example = _example(kind, model)
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MachineError(f"Export needs the package {error.name!r}: pip install 'xlnet[export]'.") from error
    with torch.no_grad():
        program: Any = torch.onnx.export(
            graph,
            tuple(example[name] for name in names),
            input_names=list(names),
            output_names=[output],
            dynamic_shapes={"given": tuple(_axes(name, model.head) for name in names)},
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    path = Path(path)
    beside = _write(lambda part: program.save(part), path)
    return ExportedGraph(path, kind, names, output, beside)


class _Graph(nn.Module):
    """A model with positional inputs and one output, as a graph has them."""

    def __init__(self, model: nn.Module, output: str) -> None:
        super().__init__()
        self.model = model
        self.output = output

    def forward(self, *given: Tensor) -> Tensor:
        input_ids, attention_mask, token_type_ids, *targets = given
        more = dict(zip(_TARGETS, targets, strict=False))
        out = self.model(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids, **more)
        return getattr(out, self.output)


def _checked_kind(model: PretrainedModel, kind: Kind | None) -> Kind:
    if kind is not None and kind not in get_args(Kind):
        raise ConfigurationError(
            f"kind={kind!r} must be one of {', '.join(get_args(Kind))}.{did_you_mean(kind, get_args(Kind))}"
        )
    own = next((name for name, heads in _HEADS.items() if model.head in heads), None)
    if own is None or kind not in (None, own):
        raise ConfigurationError(
            f"A {type(model).__name__} has no graph of kind {kind or 'its own'!r}; "
            "encoders, classifiers and language models can be exported."
        )
    return own


def _plain(model: PretrainedModel) -> nn.Module:
    """The same parameters in a model without memory and with the attention that exporters understand."""
    config = model.config.replace(attention_backend="reference", mem_len=0, reuse_len=0)
    with torch.device("meta"):
        copy = type(model)(config)
    copy.load_state_dict(model.state_dict(), assign=True)
    return copy


def _example(kind: Kind, model: PretrainedModel) -> dict[str, Tensor]:
    """Inputs to trace with: sizes unlike one another and unlike 1, padding, both segments, an unused target."""
    shape = (2, 3, 7) if model.head == "multiple_choice" else (2, 7)
    ids = torch.arange(shape[-1]).expand(shape) % model.config.vocab_size
    mask = torch.ones(shape, dtype=torch.int64)
    mask[0, ..., :2] = 0
    segments = torch.tensor([0, 0, 0, 0, 1, 1, 2]).expand(shape)
    example = {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
    if kind == "language_model":
        example["order"] = torch.tensor([[0, 0, 0, 1, 0, 2, 3], [0, 1, 2, 0, 0, 0, 3]])
        example["target_positions"] = torch.tensor([[3, 5, 6], [1, 2, -1]])
    return {name: value.to(model.device) for name, value in example.items()}


def _axes(name: str, head: str) -> dict[int, Any]:
    from torch.export import Dim

    if name == "target_positions":
        return {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    return dict.fromkeys(range(3 if head == "multiple_choice" else 2), Dim.DYNAMIC)


def _write(save: Callable[[str], None], path: Path) -> tuple[Path, ...]:
    """Save into a folder of its own beside the target and move what came of it, the graph last; returns the rest.

    Large weights go to a second file, which the graph calls by its name: so both are saved under their final names.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            save(str(Path(folder) / path.name))
            beside = sorted(file for file in Path(folder).iterdir() if file.name != path.name)
            for file in (*beside, Path(folder) / path.name):
                file.replace(path.with_name(file.name))
    except OSError as error:
        raise MachineError(f"{path} cannot be written: {error.strerror or error}.") from error
    return tuple(path.with_name(file.name) for file in beside)
