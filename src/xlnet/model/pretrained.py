"""Loading and saving, the same two methods for every model class."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import nn

from xlnet.configuration import XLNetConfig


class PretrainedModel(nn.Module):
    """A module with a configuration that can be written to a folder and read back from many kinds of folder."""

    head: ClassVar[str] = "encoder"

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

    def save_pretrained(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``model.safetensors`` (native names); tied weights once, files replaced atomically.

        Raises:
            MachineError: the disk is full.
        """
        from xlnet.checkpoints import write_native

        write_native(folder, self.config, self.state_dict(), head=self.head)

    @classmethod
    def from_pretrained(cls, path_or_name: str | Path, **config_changes: Any) -> Self:
        """Read a native, official TensorFlow or Hugging Face folder, or a hub name.

        Args:
            path_or_name: the folder, or a name such as ``xlnet/xlnet-base-cased``.
            config_changes: configuration keys to set otherwise than the checkpoint (``mem_len=384`` ...).

        Raises:
            CheckpointError: what is missing, unexpected or of another shape, with the nearest names.
        """
        raise NotImplementedError
