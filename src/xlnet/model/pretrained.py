"""Loading and saving, the same two methods for every model class."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import nn

from xlnet.checkpoints import Head, match, may_be_new, read_checkpoint, write_native
from xlnet.configuration import XLNetConfig
from xlnet.errors import CheckpointError
from xlnet.model.initialization import draw

_log = logging.getLogger(__name__)


class PretrainedModel(nn.Module):
    """A module with a configuration that can be written to a folder and read back from many kinds of folder."""

    head: ClassVar[Head] = "encoder"

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        self.config = config

    @property
    def device(self) -> torch.device:
        """Where the parameters lie."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Of the parameters."""
        return next(self.parameters()).dtype

    def parameter_count(self) -> int:
        """Number of trained values; tied ones count once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def save_pretrained(self, folder: str | Path, dtype: torch.dtype | None = None) -> None:
        """Write ``config.json`` and ``model.safetensors`` (native names); tied weights once, files replaced atomically.

        Args:
            folder: made if it is not there.
            dtype: of the stored floating values; by default that of the model.

        Raises:
            MachineError: the disk is full.
        """
        tensors = self.state_dict()
        if dtype is not None:
            tensors = {name: value.to(dtype) for name, value in tensors.items()}
        write_native(folder, self.config, tensors, self.head)

    @classmethod
    def from_pretrained(
        cls,
        path_or_name: str | Path,
        *,
        new_head: bool = False,
        dtype: torch.dtype = torch.float32,
        release_gelu: bool = False,
        offline: bool = False,
        **config_changes: Any,
    ) -> Self:
        """Read a native, official TensorFlow or Hugging Face folder, or a hub name; in eval mode.

        Args:
            path_or_name: the folder, or a name such as ``xlnet/xlnet-base-cased``.
            new_head: let the head start from random weights where the checkpoint holds another one (fine-tuning).
            dtype: of the parameters.
            release_gelu: read Hugging Face's ``gelu`` as the tanh form that the released weights were trained with.
            offline: look for hub names in the cache only.
            config_changes: configuration keys to set otherwise than the checkpoint (``mem_len=384`` ...).

        Raises:
            CheckpointError: what is missing, unexpected or of another shape, with the nearest names.
            ConfigurationError: an unknown or impossible configuration key.
        """
        checkpoint = read_checkpoint(path_or_name, release_gelu=release_gelu, offline=offline)
        config = checkpoint.config.replace(**config_changes) if config_changes else checkpoint.config
        # Built without storage: no value is drawn only to be overwritten, and none exists twice.
        with torch.device("meta"):
            model = cls(config)
        shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
        try:
            found = match(shapes, checkpoint.for_head(cls.head), str(path_or_name), may_be_new(cls.head, new_head))
        except CheckpointError as error:
            if new_head or cls.head in ("encoder", checkpoint.head):
                raise
            raise CheckpointError(
                f"{error}\n  It is a checkpoint of head {checkpoint.head!r}, and {cls.__name__} needs {cls.head!r}: "
                "to fine-tune from it, let the head start afresh with new_head=True."
            ) from error
        if found.new:
            _log.warning("%s: new, not in %s: %s", cls.__name__, path_or_name, ", ".join(found.new))
            fresh = {name: torch.empty(shapes[name], dtype=dtype) for name in found.new}
            draw(fresh.items(), config)
            model.load_state_dict(fresh, strict=False, assign=True)
        for name, tensor in found.items():
            # What a reader hands out has memory of its own: it becomes the parameter without a copy.
            model.load_state_dict({name: tensor.to(dtype)}, strict=False, assign=True)
        return model.eval()
