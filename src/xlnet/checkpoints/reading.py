"""One call for every kind of folder: configuration, arrays by our names, and what was left aside."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from xlnet.checkpoints import hugging_face, native, tensorflow
from xlnet.checkpoints.arrays import LazyTensors
from xlnet.checkpoints.files import read_json
from xlnet.checkpoints.hub import TOKENIZER_FILES, resolve
from xlnet.checkpoints.names import ENCODER_PREFIX, Head
from xlnet.checkpoints.native import CONFIG
from xlnet.checkpoints.safetensors_files import INDEX, WEIGHTS
from xlnet.checkpoints.settings import from_hugging_face
from xlnet.configuration import XLNetConfig
from xlnet.errors import CheckpointError

Kind = Literal["native", "hf", "tensorflow"]


@dataclass(frozen=True)
class Checkpoint:
    """What a folder holds.

    Attributes:
        path: the folder.
        kind: its format.
        config: the model's configuration.
        head: which model its arrays belong to.
        tensors: arrays by our names, the encoder's with the prefix ``encoder.``; read when looked up.
        ignored: what is stored but has no place in the model, such as optimizer state.
        notes: what the source's configuration says and our model does otherwise.
        head_is_stated: whether the source says which model it is; False where ``head`` is inferred from names that
            several heads share.
        tokenizer_files: files beside the weights that make up a tokenizer.
    """

    path: Path
    kind: Kind
    config: XLNetConfig
    head: Head
    tensors: LazyTensors
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tokenizer_files: tuple[Path, ...] = ()
    head_is_stated: bool = True

    def for_head(self, head: Head) -> LazyTensors:
        """The arrays that a model with ``head`` may take.

        A classifier of tokens and one of texts have equal names and shapes and mean different things. So another
        head's arrays are set aside, unless the source does not say whose they are.
        """
        if head == self.head or not self.head_is_stated:
            return self.tensors
        names = [name for name in self.tensors if name.startswith(ENCODER_PREFIX)]
        return LazyTensors({name: self.tensors.entry(name) for name in names})

    @property
    def has_language_model(self) -> bool:
        """Whether all that predicting tokens needs is stored: the bias and the query stream's first input."""
        needed = {"lm_bias", "encoder.mask_embedding"}
        if not self.config.tie_word_embeddings:
            needed.add("lm_projection.weight")
        return needed <= set(self.tensors)

    @property
    def parameter_count(self) -> int:
        """Number of stored values that belong to the model."""
        return sum(entry.byte_count // entry.dtype.itemsize for entry in map(self.tensors.entry, self.tensors))


def read_checkpoint(
    path_or_name: str | Path,
    *,
    config: XLNetConfig | None = None,
    release_gelu: bool = False,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    offline: bool = False,
) -> Checkpoint:
    """Read a native, Hugging Face or TensorFlow folder, a TensorFlow checkpoint prefix, or a hub name.

    Arrays are not read here, only their names and shapes.

    Args:
        path_or_name: where it is.
        config: take this configuration instead of the folder's, or where the folder has none.
        release_gelu: read Hugging Face's ``gelu`` as the tanh form the released weights were trained with.
        revision: of a hub name.
        cache_dir: of the hub.
        offline: look for hub names in the cache only.

    Raises:
        CheckpointError: nothing there, no configuration, no weights, damaged files, settings we cannot express.
        MachineError: the hub cannot be reached.
    """
    path = resolve(path_or_name, revision=revision, cache_dir=cache_dir, offline=offline)
    folder = path if path.is_dir() else path.parent
    if path.is_file() and path.name in (CONFIG, WEIGHTS, INDEX, hugging_face.PICKLE, tensorflow.CONFIG):
        path = folder
    if path.is_dir() and (path / CONFIG).is_file() and not _is_release(path):
        checkpoint = _read_torch(path, config, release_gelu)
    else:
        checkpoint = _read_tensorflow(path, config)
    files = tuple(folder / name for name in TOKENIZER_FILES if (folder / name).is_file())
    return replace(checkpoint, tokenizer_files=files)


def _is_release(folder: Path) -> bool:
    """Whether a folder with a ``config.json`` is meant as one of the release all the same.

    What this library saved into a folder comes first, then Hugging Face's weights; a ``config.json`` without weights
    beside a checkpoint of the release is only for looks.
    """
    if not (folder / tensorflow.CONFIG).is_file() or native.is_native(read_json(folder / CONFIG)):
        return False
    return not any((folder / name).is_file() for name in hugging_face.WEIGHT_FILES)


def _read_torch(folder: Path, config: XLNetConfig | None, release_gelu: bool) -> Checkpoint:
    source = str(folder / CONFIG)
    values = read_json(folder / CONFIG)
    if native.is_native(values):
        settings = native.read_settings(values, source)
        tensors = native.read_tensors(folder)
        head = settings.head or native.guess_head(tensors)
        stated = settings.head is not None
        return Checkpoint(folder, "native", config or settings.config, head, tensors, head_is_stated=stated)
    settings = from_hugging_face(values, source, release_gelu)
    if config is not None:
        settings = replace(settings, config=config)
    tensors, head, ignored = hugging_face.read_tensors(folder, settings)
    stated = settings.head is not None
    return Checkpoint(
        folder, "hf", settings.config, head, tensors, tuple(ignored), settings.notes, head_is_stated=stated
    )


def _read_tensorflow(path: Path, config: XLNetConfig | None) -> Checkpoint:
    prefix = tensorflow.find_prefix(path)
    if prefix is None:
        raise CheckpointError(_nothing_there(path))
    if config is None:
        config = tensorflow.read_settings(prefix).config
    tensors, head, ignored = tensorflow.read_tensors(prefix, config)
    if head == "classification":
        config = tensorflow.with_stored_labels(config, tensors, prefix)
    return Checkpoint(prefix.parent, "tensorflow", config, head, tensors, tuple(ignored))


def _nothing_there(path: Path) -> str:
    if path.is_file():
        return f"{path} is a file that no reader here knows. Give the folder that holds a model."
    names = sorted(entry.name for entry in path.iterdir())
    weights = [name for name in names if name.endswith((".safetensors", ".bin", ".pt"))]
    if weights:
        return f"{path} holds {weights[0]} but no {CONFIG} that tells the model's shape."
    if tensorflow.CONFIG in names:
        return f"{path} holds {tensorflow.CONFIG} but no checkpoint (*.index and *.data-00000-of-00001)."
    listed = f"It holds {', '.join(names[:6])}{' ...' if len(names) > 6 else ''}." if names else "It is empty."
    return f"{path} holds no model: neither {CONFIG} nor {tensorflow.CONFIG} with a checkpoint. {listed}"
