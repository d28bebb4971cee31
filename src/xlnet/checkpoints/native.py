"""This library's own folder: ``config.json`` marked ``"format": "native"``, and ``model.safetensors``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from xlnet.checkpoints.arrays import Entry, LazyTensors
from xlnet.checkpoints.failures import writing
from xlnet.checkpoints.files import write_json
from xlnet.checkpoints.names import CLASS_NAMES, ENCODER_PREFIX, HEAD_ROWS, Head
from xlnet.checkpoints.safetensors_files import INDEX, WEIGHTS, read_safetensors, read_sharded, write_safetensors
from xlnet.checkpoints.settings import Settings
from xlnet.configuration import XLNetConfig
from xlnet.errors import CheckpointError, ConfigurationError, did_you_mean

_MARKS = ("model_type", "format", "head")
CONFIG = "config.json"


def is_native(values: Mapping[str, Any]) -> bool:
    """Whether these are the contents of our own ``config.json``."""
    return values.get("format") == "native"


def read_settings(values: Mapping[str, Any], source: str) -> Settings:
    """Our own ``config.json``.

    Raises:
        CheckpointError: an unknown key, head or value; names ``source``.
    """
    head = values.get("head")
    if head is not None and head not in CLASS_NAMES:
        raise CheckpointError(
            f"{source}: head={head!r} is not known; it must be one of {', '.join(CLASS_NAMES)}."
            + did_you_mean(str(head), CLASS_NAMES)
        )
    try:
        config = XLNetConfig.from_dict({k: v for k, v in values.items() if k not in _MARKS}, source)
    except ConfigurationError as error:
        text = str(error)
        raise CheckpointError(text if text.startswith(source) else f"{source}: {text}") from error
    return Settings(config, head)


def read_tensors(folder: Path) -> LazyTensors:
    """All arrays of the folder by our names, the encoder's always with their prefix ``encoder.``.

    Raises:
        CheckpointError: no weights, or damaged ones.
    """
    if (folder / WEIGHTS).is_file():
        tensors, _ = read_safetensors(folder / WEIGHTS)
    elif (folder / INDEX).is_file():
        tensors = read_sharded(folder / INDEX)
    else:
        raise CheckpointError(f"{folder} has a {CONFIG} but no {WEIGHTS}.")
    return with_prefix(tensors)


def with_prefix(tensors: LazyTensors) -> LazyTensors:
    """Names of a lone encoder become those of a whole model."""
    heads = {row.ours for rows in HEAD_ROWS.values() for row in rows}
    if any(name.startswith(ENCODER_PREFIX) for name in tensors):
        return tensors
    entries: dict[str, Entry] = {}
    for name in tensors:
        entries[name if name in heads else ENCODER_PREFIX + name] = tensors.entry(name)
    return LazyTensors(entries)


_MARKS_OF_HEADS: tuple[tuple[str, Head], ...] = (
    ("start.weight", "question_answering"),
    ("summary.projection.weight", "classification"),
    ("classifier.weight", "token_classification"),
    ("lm_bias", "language_model"),
)


def guess_head(tensors: LazyTensors) -> Head:
    """Which model these names belong to, where the configuration does not say."""
    return next((head for mark, head in _MARKS_OF_HEADS if mark in tensors), "encoder")


def write_native(
    folder: str | Path, config: XLNetConfig, tensors: Mapping[str, Tensor], head: Head | str = "encoder"
) -> None:
    """Write a model. Weights come first and each file is replaced as a whole, so a kill never leaves half a file.

    Args:
        folder: made if it is not there; other files in it stay.
        config: the model's configuration.
        tensors: the model's state by our names (a lone encoder's may lack the prefix); a lazy mapping stays lazy.
        head: which model it is, one of :data:`~xlnet.checkpoints.names.CLASS_NAMES`.

    Raises:
        CheckpointError: an unknown head.
        MachineError: the disk is full or the folder cannot be written.
    """
    if head not in CLASS_NAMES:
        raise CheckpointError(f"head={head!r} is not known; it must be one of {', '.join(CLASS_NAMES)}.")
    folder = Path(folder)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / WEIGHTS, tensors, {"format": "pt"})
    write_json(folder / CONFIG, {"model_type": "xlnet", "format": "native", "head": head, **config.to_dict()})
