"""From one format to another: weights, configuration, tokenizer and model card."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from xlnet.checkpoints.failures import reading, writing
from xlnet.checkpoints.files import write_bytes
from xlnet.checkpoints.hub import TOKENIZER_FILES
from xlnet.checkpoints.hugging_face import write_hugging_face
from xlnet.checkpoints.matching import match, may_be_new
from xlnet.checkpoints.names import Head
from xlnet.checkpoints.native import write_native
from xlnet.checkpoints.reading import Checkpoint, read_checkpoint
from xlnet.checkpoints.shapes import expected_shapes
from xlnet.configuration import XLNetConfig
from xlnet.errors import CheckpointError, did_you_mean

_TARGETS = ("native", "hf")
_CARD = "README.md"


@dataclass(frozen=True)
class Conversion:
    """What :func:`convert` did.

    Attributes:
        target: the folder written.
        source_kind: format of the source.
        head: which model it is.
        copied: names of files taken along.
        ignored: what the source holds that the target does not.
        notes: what will differ although the weights are equal.
    """

    target: Path
    source_kind: str
    head: Head
    copied: tuple[str, ...]
    ignored: tuple[str, ...]
    notes: tuple[str, ...]


def convert(
    source: str | Path,
    target: str | Path,
    to: Literal["native", "hf"] = "native",
    *,
    release_gelu: bool = False,
    config: XLNetConfig | None = None,
    overwrite: bool = False,
) -> Conversion:
    """Rewrite a model in another format; every weight keeps its value and element type.

    Args:
        source: a folder, TensorFlow checkpoint prefix, or hub name.
        target: the folder to write.
        to: ``native`` or ``hf``.
        release_gelu: read Hugging Face's ``gelu`` as the tanh form the released weights were trained with.
        config: take this configuration instead of the source's, or where it has none.
        overwrite: replace a model that already lies in the target folder, and its tokenizer.

    Raises:
        CheckpointError: the source cannot be read or does not fit its own configuration, the target holds a model
            already or is the source, or the target's format cannot express the model (nothing is written then).
        MachineError: the disk is full or the target cannot be written.
    """
    if to not in _TARGETS:
        raise CheckpointError(f"to={to!r} must be one of {', '.join(_TARGETS)}.{did_you_mean(to, _TARGETS)}")
    checkpoint = read_checkpoint(source, release_gelu=release_gelu, config=config)
    target = Path(target)
    _check_target(checkpoint, target, overwrite)
    _check_arrays(checkpoint, source)
    notes = list(checkpoint.notes)
    if to == "hf":
        notes += write_hugging_face(target, checkpoint.config, checkpoint.tensors, checkpoint.head)
    else:
        write_native(target, checkpoint.config, checkpoint.tensors, checkpoint.head)
    copied = []
    for file in (*checkpoint.tokenizer_files, checkpoint.path / _CARD):
        if file.is_file():
            with reading(file):
                data = file.read_bytes()
            write_bytes(target / file.name, data)
            copied.append(file.name)
    if overwrite:
        _take_away_older_tokenizer(target, copied)
    return Conversion(target, checkpoint.kind, checkpoint.head, tuple(copied), checkpoint.ignored, tuple(notes))


def _check_target(checkpoint: Checkpoint, target: Path, overwrite: bool) -> None:
    if target.exists() and not target.is_dir():
        raise CheckpointError(f"{target} is a file; give a folder to write to.")
    if target.resolve() == checkpoint.path.resolve():
        raise CheckpointError(f"{target} is the source itself; give another folder to write to.")
    if (target / "config.json").exists() and not overwrite:
        raise CheckpointError(f"{target} holds a model already; give another folder, or allow it with overwrite.")


def _check_arrays(checkpoint: Checkpoint, source: str | Path) -> None:
    """What does not load where it is would not load where it is written either; better said before than after."""
    expected = expected_shapes(checkpoint.config, checkpoint.head)
    try:
        match(expected, checkpoint.tensors, str(source), may_be_new(checkpoint.head, new_head=False))
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}\n  It does not load as its own configuration says; nothing was written."
        ) from error


def _take_away_older_tokenizer(target: Path, copied: Collection[str]) -> None:
    """Files of the older model's tokenizer would be read together with those of the new one."""
    for name in TOKENIZER_FILES:
        if name not in copied:
            with writing(target / name):
                (target / name).unlink(missing_ok=True)
