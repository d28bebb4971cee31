"""What a folder is, for people: the page that ``xlnet info`` prints."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from xlnet.checkpoints.matching import match, may_be_new
from xlnet.checkpoints.names import CLASS_NAMES, Head
from xlnet.checkpoints.reading import Checkpoint, read_checkpoint
from xlnet.checkpoints.settings import inexpressible
from xlnet.checkpoints.shapes import expected_shapes
from xlnet.configuration import XLNetConfig
from xlnet.errors import CheckpointError

_KINDS = {"native": "xlnet folder", "hf": "Hugging Face folder", "tensorflow": "TensorFlow checkpoint of the release"}


@dataclass(frozen=True)
class Description:
    """Facts about a checkpoint; ``str()`` gives the page.

    Attributes:
        path: the folder.
        kind: ``native``, ``hf`` or ``tensorflow``.
        head: which model its weights belong to.
        config: its configuration.
        parameter_count: number of stored values that belong to the model.
        dtypes: element types and the number of arrays of each.
        loads: class names that load with all their weights.
        partly: class names that load with what is missing, and why.
        refused: class names that do not load, and why.
        ignored: what is stored but not read.
        notes: what its configuration says and this library does otherwise.
        tokenizer_files: names of the tokenizer's files.
        to_hugging_face: why it cannot be written as a Hugging Face folder; empty if it can.
    """

    path: Path
    kind: str
    head: Head
    config: XLNetConfig
    parameter_count: int
    dtypes: dict[str, int]
    loads: tuple[str, ...]
    partly: dict[str, str]
    refused: dict[str, str]
    ignored: tuple[str, ...]
    notes: tuple[str, ...]
    tokenizer_files: tuple[str, ...]
    to_hugging_face: tuple[str, ...]

    def __str__(self) -> str:
        config = self.config
        types = ", ".join(f"{name} ({count} arrays)" for name, count in self.dtypes.items())
        lines = [
            f"{self.path}",
            f"  what        {_KINDS[self.kind]}, {CLASS_NAMES[self.head]}",
            f"  parameters  {self.parameter_count:,} in {types}",
            f"  shape       {config.n_layer} layers, width {config.d_model}, {config.n_head} heads of {config.d_head}, "
            f"inner {config.d_inner}, {config.ff_activation}",
            f"  vocabulary  {config.vocab_size:,} pieces; tokenizer files: {', '.join(self.tokenizer_files) or 'none'}",
            f"  memory      mem_len {config.mem_len}, reuse_len {config.reuse_len}",
        ]
        if config.labels:
            lines.append(f"  labels      {', '.join(config.labels)}")
        lines.append(f"  loads as    {', '.join(self.loads) or 'nothing'}")
        lines += [f"  in part as  {name}: {why}" for name, why in self.partly.items()]
        lines += [f"  not as      {name}: {why}" for name, why in self.refused.items()]
        lines += [f"  left aside  {text}" for text in self.ignored]
        lines += [f"  note        {text}" for text in self.notes]
        if self.to_hugging_face:
            lines.append(f"  no export to Hugging Face: {'; '.join(self.to_hugging_face)}")
        return "\n".join(lines)


def describe(path_or_name: str | Path, *, config: XLNetConfig | None = None, offline: bool = False) -> Description:
    """Look at a folder or hub name without reading its weights.

    Raises:
        CheckpointError: as :func:`~xlnet.checkpoints.reading.read_checkpoint`.
    """
    checkpoint = read_checkpoint(path_or_name, config=config, offline=offline)
    loads, partly, refused = _verdicts(checkpoint)
    types = Counter(str(checkpoint.tensors.entry(name).dtype).removeprefix("torch.") for name in checkpoint.tensors)
    return Description(
        path=checkpoint.path,
        kind=checkpoint.kind,
        head=checkpoint.head,
        config=checkpoint.config,
        parameter_count=checkpoint.parameter_count,
        dtypes=dict(types),
        loads=tuple(loads),
        partly=partly,
        refused=refused,
        ignored=checkpoint.ignored,
        notes=checkpoint.notes,
        tokenizer_files=tuple(file.name for file in checkpoint.tokenizer_files),
        to_hugging_face=tuple(inexpressible(checkpoint.config, checkpoint.head)),
    )


def _verdicts(checkpoint: Checkpoint) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Class names that load whole, in part, or not, by the same comparison of names and shapes that loading makes."""
    loads: list[str] = []
    partly: dict[str, str] = {}
    refused: dict[str, str] = {}
    for head, name in CLASS_NAMES.items():
        misfit = _misfit(checkpoint, head, new_head=False)
        absent = [array for array in ("encoder.mask_embedding", "lm_bias") if array not in checkpoint.tensors]
        if head == "language_model" and absent:
            refused[name] = f"{' and '.join(absent)} {'are' if len(absent) > 1 else 'is'} missing"
        elif not misfit and head == "encoder" and "encoder.mask_embedding" in absent:
            partly[name] = "there is no mask embedding, so the query stream starts untrained"
        elif not misfit:
            loads.append(name)
        elif head in ("encoder", "language_model") or _misfit(checkpoint, head, new_head=True):
            refused[name] = misfit
        elif head == checkpoint.head:
            partly[name] = f"its own head does not fit ({misfit}), so a new one has to be trained"
        else:
            partly[name] = "a new head has to be trained"
    return loads, partly, refused


def _misfit(checkpoint: Checkpoint, head: Head, new_head: bool) -> str:
    """What keeps a model with ``head`` from loading, in one line; empty if nothing does."""
    expected = expected_shapes(checkpoint.config, head)
    try:
        match(expected, checkpoint.for_head(head), str(checkpoint.path), may_be_new(head, new_head))
    except CheckpointError as error:
        return "; ".join(line.strip() for line in str(error).splitlines()[1:])
    return ""
