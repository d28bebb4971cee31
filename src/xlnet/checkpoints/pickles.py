"""``pytorch_model.bin`` and its like: pickles, of which only tensors are accepted."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from torch import Tensor

from xlnet.checkpoints.arrays import Entry, LazyTensors
from xlnet.checkpoints.failures import reading
from xlnet.errors import CheckpointError

_WINDOW = 1 << 24
_FORBIDDEN = ("Unsupported", "GLOBAL", "REDUCE", "weights_only")


def read_pickle(path: Path) -> LazyTensors:
    """The tensors of a file written by ``torch.save``. Objects that would run code are refused, never executed.

    Raises:
        CheckpointError: the file is missing, damaged, or holds more than tensors.
    """
    file = _PickleFile(path)
    return LazyTensors(
        {
            name: Entry(tuple(tensor.shape), tensor.dtype, _Reader(file, name), name)
            for name, tensor in file.state.items()
        }
    )


class _PickleFile:
    """The open file. A tensor that is handed out is forgotten here, so that the two together need memory only once.

    The zip form is mapped into memory, and mapped anew after a while, so that pages already read do not add up.
    The form from before 2020 cannot be mapped and is held whole.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with reading(path), path.open("rb") as file:
            self.mapped = file.read(4) == b"PK\x03\x04"
        self.state = self.load()
        self.taken = 0

    def take(self, name: str) -> Tensor:
        if name not in self.state:
            self.state, self.taken = self.load(), 0
        tensor = self.state[name]
        place = tensor.untyped_storage().data_ptr()
        # Tied tensors share their storage; one that stays would keep it alive.
        self.state = {n: t for n, t in self.state.items() if t.untyped_storage().data_ptr() != place}
        self.taken += tensor.nbytes
        if not self.mapped:
            return tensor
        if self.taken > _WINDOW:
            self.state = {}
        return tensor.clone()

    def load(self) -> dict[str, Tensor]:
        path = self.path
        try:
            with reading(path):
                state = torch.load(path, map_location="cpu", weights_only=True, mmap=self.mapped)
        except pickle.UnpicklingError as error:
            if any(word in str(error) for word in _FORBIDDEN):
                raise CheckpointError(
                    f"{path} is a pickle with more than tensors in it, which could run any code, so it was not opened. "
                    "Ask its author for model.safetensors."
                ) from error
            raise CheckpointError(f"{path} is damaged or not a PyTorch file. Fetch it again.") from error
        except (RuntimeError, EOFError, ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
            raise CheckpointError(f"{path} is damaged or not a PyTorch file: {error}. Fetch it again.") from error
        if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
            raise CheckpointError(f"{path} must hold a dictionary of tensors.")
        return {str(name): tensor for name, tensor in state.items()}


class _Reader:
    def __init__(self, file: _PickleFile, name: str) -> None:
        self.file = file
        self.name = name

    def __call__(self) -> Tensor:
        return self.file.take(self.name)
