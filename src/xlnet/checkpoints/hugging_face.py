"""Hugging Face folders: ``config.json`` with safetensors (one file or shards) or ``pytorch_model.bin``; and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from xlnet.checkpoints.arrays import Entry, LazyTensors, as_lazy
from xlnet.checkpoints.failures import writing
from xlnet.checkpoints.files import read_json, write_json
from xlnet.checkpoints.names import ENCODER_PREFIX, FAMILY_PREFIX, HEAD_ROWS, Head, pairs
from xlnet.checkpoints.native import CONFIG, with_prefix
from xlnet.checkpoints.pickles import read_pickle
from xlnet.checkpoints.safetensors_files import INDEX, WEIGHTS, read_safetensors, read_sharded, write_safetensors
from xlnet.checkpoints.settings import Settings, changes_in_hugging_face, to_hugging_face
from xlnet.checkpoints.translate import into_ours, into_theirs
from xlnet.configuration import XLNetConfig
from xlnet.errors import CheckpointError

PICKLE = "pytorch_model.bin"
PICKLE_INDEX = "pytorch_model.bin.index.json"
WEIGHT_FILES = (WEIGHTS, INDEX, PICKLE, PICKLE_INDEX)
_PREFIX = FAMILY_PREFIX["hf"]
_OLD_ENDINGS = {".gamma": ".weight", ".beta": ".bias"}


def read_stored(folder: Path) -> LazyTensors:
    """All arrays of a folder under the names stored there, preferring safetensors.

    Raises:
        CheckpointError: there are no weights, or damaged ones, or a pickle that wants to run code.
    """
    if (folder / WEIGHTS).is_file():
        return read_safetensors(folder / WEIGHTS)[0]
    if (folder / INDEX).is_file():
        return read_sharded(folder / INDEX)
    if (folder / PICKLE).is_file():
        return read_pickle(folder / PICKLE)
    if (folder / PICKLE_INDEX).is_file():
        shards = read_json(folder / PICKLE_INDEX).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise CheckpointError(f"{folder / PICKLE_INDEX} has no usable 'weight_map' from array names to files.")
        entries: dict[str, Entry] = {}
        for shard in sorted({Path(str(name)).name for name in shards.values()}):
            tensors = read_pickle(folder / shard)
            entries |= {name: tensors.entry(name) for name in tensors}
        return LazyTensors(entries)
    other = [name for name in ("tf_model.h5", "flax_model.msgpack", "rust_model.ot") if (folder / name).is_file()]
    only = f" Its {other[0]} holds weights of another framework, which this library does not read." if other else ""
    raise CheckpointError(f"{folder} has a {CONFIG} but neither {WEIGHTS} nor {PICKLE}.{only}")


def read_tensors(folder: Path, settings: Settings) -> tuple[LazyTensors, Head, list[str]]:
    """Arrays by our names, the head they belong to, and what was left aside.

    Raises:
        CheckpointError: see :func:`read_stored`; or an array with the wrong number of dimensions.
    """
    stored = read_stored(folder)
    theirs = LazyTensors({_current(name): stored.entry(name) for name in stored})
    if not any(name.startswith(_PREFIX) for name in theirs):
        foreign = {row.hugging_face.name for rows in HEAD_ROWS.values() for row in rows if row.hugging_face}
        theirs = LazyTensors({name if name in foreign else _PREFIX + name: theirs.entry(name) for name in theirs})
    head = settings.head or guess_head(theirs, settings.config.num_labels)
    ignored: list[str] = []
    if settings.config.tie_word_embeddings and "lm_loss.weight" in theirs:
        theirs = LazyTensors({name: theirs.entry(name) for name in theirs if name != "lm_loss.weight"})
        ignored.append("lm_loss.weight (the word embedding is used in its place, as tie_word_embeddings says)")
    ours, used = into_ours(theirs, pairs("hf", head, settings.config.n_layer))
    known = {row.hugging_face.name for rows in HEAD_ROWS.values() for row in rows if row.hugging_face}
    extra = {}
    for name in theirs:
        if name in used:
            continue
        if name in known or not name.startswith(_PREFIX):
            ignored.append(f"{name} (no place for it in a {head} model)")
        else:
            extra[ENCODER_PREFIX + name.removeprefix(_PREFIX)] = theirs.entry(name)
    return LazyTensors({**{name: ours.entry(name) for name in ours}, **extra}), head, ignored


def _current(name: str) -> str:
    for old, new in _OLD_ENDINGS.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


_MARKS_OF_HEADS: tuple[tuple[str, Head], ...] = (
    ("start_logits.dense.weight", "question_answering"),
    ("classifier.weight", "token_classification"),
    ("logits_proj.weight", "classification"),
    ("lm_loss.bias", "language_model"),
)


def guess_head(theirs: LazyTensors, num_labels: int) -> Head:
    """Which model these Hugging Face names belong to, where the configuration does not say.

    Multiple choice has the names of a classifier, and one output whatever the number of labels is.
    """
    head: Head = next((head for mark, head in _MARKS_OF_HEADS if mark in theirs), "encoder")
    single = head == "classification" and theirs.entry("logits_proj.weight").shape[:1] == (1,)
    return "multiple_choice" if single and num_labels != 1 else head


def write_hugging_face(
    folder: str | Path, config: XLNetConfig, tensors: Mapping[str, Tensor], head: Head = "encoder"
) -> list[str]:
    """Write a folder that ``transformers`` loads with equal outputs.

    Args:
        folder: made if it is not there; other files in it stay.
        config: the model's configuration.
        tensors: the model's state by our names.
        head: which model it is.

    Returns:
        What will differ there although the weights are equal (training with tied biases, a lost rate).

    Raises:
        CheckpointError: what Hugging Face's XLNet cannot express, before anything is written.
        MachineError: the disk is full or the folder cannot be written.
    """
    values = to_hugging_face(config, head)
    state = with_prefix(as_lazy(tensors))
    table = pairs("hf", head, config.n_layer, tied_biases=not config.untie_r)
    strange = sorted(set(state) - {pair.ours for pair in table})
    if strange:
        raise CheckpointError(f"Hugging Face's XLNet ({head}) has no place for: {', '.join(strange)}.")
    theirs = into_theirs(state, table, config.n_head)
    if head == "encoder":
        theirs = LazyTensors({name.removeprefix(_PREFIX): theirs.entry(name) for name in theirs})
    types = {theirs.entry(name).dtype for name in theirs if theirs.entry(name).dtype.is_floating_point}
    if len(types) == 1:
        values["dtype"] = str(types.pop()).removeprefix("torch.")
    folder = Path(folder)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / WEIGHTS, theirs, {"format": "pt"})
    write_json(folder / CONFIG, values)
    return changes_in_hugging_face(config)
