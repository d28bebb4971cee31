"""Folders of the official release: ``xlnet_config.json`` and ``xlnet_model.ckpt.*``, or what its fine-tuning wrote."""

from __future__ import annotations

import re
from pathlib import Path

from xlnet.checkpoints.arrays import LazyTensors
from xlnet.checkpoints.failures import reading
from xlnet.checkpoints.files import read_json
from xlnet.checkpoints.names import ENCODER_PREFIX, FAMILY_PREFIX, TASK, Head, pairs
from xlnet.checkpoints.settings import Settings, from_release
from xlnet.checkpoints.tensor_bundle import read_bundle
from xlnet.checkpoints.translate import into_ours
from xlnet.configuration import XLNetConfig
from xlnet.errors import CheckpointError, ConfigurationError

CONFIG = "xlnet_config.json"
_OPTIMIZER = re.compile(r"(?:.*/(?:Adam|Adam_1|adam_m|adam_v|Momentum|ExponentialMovingAverage)|beta[12]_power)")
_BOOKKEEPING = re.compile(r"global_step|.*/global_step|save_counter.*|_CHECKPOINTABLE_OBJECT_GRAPH")


def find_prefix(path: Path) -> Path | None:
    """The checkpoint that ``path`` means: a prefix, its ``.index`` file, or the one in a folder. None if there is none.

    In a folder with several, the file ``checkpoint`` says which is the latest.

    Raises:
        CheckpointError: several checkpoints and nothing that says which; or one in the old V1 format.
    """
    if path.name.endswith(".index"):
        path = path.with_name(path.name.removesuffix(".index"))
    if path.with_name(path.name + ".index").is_file():
        return path
    if not path.is_dir():
        return None
    found = sorted(file.name.removesuffix(".index") for file in path.glob("*.index"))
    if len(found) > 1:
        latest = _latest(path)
        if latest not in found:
            raise CheckpointError(
                f"{path} holds several checkpoints ({', '.join(found)}) and no file 'checkpoint' that chooses one of "
                f"them. Give one by its name, such as {path / found[-1]}."
            )
        return path / latest
    if found:
        return path / found[0]
    old = sorted(file.name for file in path.glob("*.ckpt") if file.is_file())
    if old:
        raise CheckpointError(
            f"{path / old[0]} has no .index beside it: it is a TensorFlow V1 checkpoint, or its other files are "
            "missing. Only the V2 format of the XLNet release is read."
        )
    return None


def _latest(folder: Path) -> str:
    state = folder / "checkpoint"
    if not state.is_file():
        return ""
    with reading(state):
        text = state.read_text(encoding="utf-8", errors="replace")
    found = re.search(r'^model_checkpoint_path:\s*"([^"]*)"', text, re.MULTILINE)
    return Path(found.group(1)).name if found else ""


def read_settings(prefix: Path) -> Settings:
    """The ``xlnet_config.json`` beside a checkpoint.

    Raises:
        CheckpointError: there is none, or it cannot be used.
    """
    path = prefix.parent / CONFIG
    if not path.is_file():
        raise CheckpointError(
            f"{prefix.parent} has a TensorFlow checkpoint ({prefix.name}) but no {CONFIG} "
            "that tells the model's shape. Copy the one of the model it was made from."
        )
    return from_release(read_json(path), str(path))


def read_tensors(prefix: Path, config: XLNetConfig) -> tuple[LazyTensors, Head, list[str]]:
    """Arrays by our names, the head they belong to, and what was left aside (optimizer state, counters).

    Raises:
        CheckpointError: damaged files, or arrays of an unexpected shape.
    """
    stored, other = read_bundle(prefix)
    head, task, notes = guess_head(stored)
    table = pairs("tensorflow", head, config.n_layer, tied_biases=not config.untie_r, task=task)
    ours, used = into_ours(stored, table)
    slots, counters, unknown, extra = [], [], [], {}
    for name in stored:
        if name in used:
            continue
        if _OPTIMIZER.fullmatch(name):
            slots.append(name)
        elif _BOOKKEEPING.fullmatch(name):
            counters.append(name)
        elif name.startswith(FAMILY_PREFIX["tensorflow"]):
            extra[ENCODER_PREFIX + name] = stored.entry(name)
        else:
            unknown.append(name)
    ignored = [*notes]
    if slots:
        ignored.append(f"{len(slots)} arrays of optimizer state ({slots[0]} ...)")
    ignored += [*counters, *(f"{name} (not an array)" for name in other)]
    ignored += [f"{name} (no place for it in a {head} model)" for name in unknown]
    return LazyTensors({**{name: ours.entry(name) for name in ours}, **extra}), head, ignored


def with_stored_labels(config: XLNetConfig, tensors: LazyTensors, prefix: Path) -> XLNetConfig:
    """The configuration with as many labels as the stored classifier has outputs, which no file of the release says.

    Args:
        config: of the model.
        tensors: a classifier's arrays by our names.
        prefix: of the checkpoint, for messages.

    Raises:
        CheckpointError: the configuration names labels, and not as many.
    """
    shapes = (tensors.entry(name).shape for name in ("classifier.bias", "classifier.weight") if name in tensors)
    outputs = next((shape[0] for shape in shapes if shape), config.num_labels)
    if outputs == config.num_labels:
        return config
    try:
        return config.replace(num_labels=outputs)
    except ConfigurationError as error:
        raise CheckpointError(f"{prefix}: its classifier has {outputs} outputs. {error}") from error


def guess_head(stored: LazyTensors) -> tuple[Head, str | None, list[str]]:
    """Which model the release's names belong to, its task's name if it is a classifier, and remarks."""
    tasks = sorted({found.group(1) for name in stored if (found := TASK.fullmatch(name))})
    if len(tasks) == 1:
        return "classification", tasks[0], []
    notes = [f"the classifiers of {len(tasks)} tasks ({', '.join(tasks)}): a model has one"] if tasks else []
    if "logits/dense/kernel" in stored:
        return "multiple_choice", None, notes
    if "start_logits/dense/kernel" in stored:
        return "question_answering", None, notes
    if "model/lm_loss/bias" in stored:
        return "language_model", None, notes
    return "encoder", None, notes
