"""The model a fine-tuning run starts from: pretrained weights under a new head, or random ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from xlnet.checkpoints import Head, read_checkpoint
from xlnet.configuration import SummaryType, XLNetConfig
from xlnet.model import PretrainedModel
from xlnet.model.initialization import initialize
from xlnet.tasks.contract import Task
from xlnet.tasks.fine_tuned import TASK_FILE

_LABELLING: tuple[Head, ...] = ("classification", "token_classification")


def start_model(
    source: str | Path | XLNetConfig,
    task: Task,
    *,
    seed: int = 0,
    dropout: float | None = None,
    summary: SummaryType | None = None,
    release_gelu: bool = False,
    offline: bool = False,
) -> PretrainedModel:
    """A model for ``task``, ready to be trained.

    From a pretrained folder all but the head is loaded. From the folder of another task (MNLI to RTE, as in the paper)
    the sequence summary is kept too, and the last layer of labels starts afresh: those of another task mean something
    else, even by equal names. From a folder of the same task, or of no task of ours (Hugging Face), with these labels,
    all of it is kept; so is a head that picks one of several texts (RACE to COPA) or an answer, which needs no labels.

    Args:
        source: a folder or hub name, or a configuration for random weights.
        task: says which head.
        seed: of the new parts.
        dropout: rate of all kinds of dropout; by default what the source has.
        summary: what sums up a sequence, where the task needs that; by default what the source has.
        release_gelu: see ``from_pretrained``.
        offline: look for hub names in the cache only.

    Raises:
        CheckpointError: the source does not fit.
    """
    changes: dict[str, Any] = {"mem_len": 0, "reuse_len": 0, **task.model_settings()}
    if dropout is not None:
        changes |= {"dropout": dropout, "dropatt": dropout, "summary_dropout": dropout}
    if summary is not None:
        changes["summary_type"] = summary
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if isinstance(source, XLNetConfig):
            model = task.model_class(source.replace(**changes))
            initialize(model, model.config)
            return model
        before = read_checkpoint(source, release_gelu=release_gelu, offline=offline)
        model = task.model_class.from_pretrained(
            source, new_head=True, release_gelu=release_gelu, offline=offline, **changes
        )
        alike = before.config.labels == model.config.labels and _task_name(source) in (None, task.name)
        if before.head == model.head and model.head in _LABELLING and not alike:
            initialize(model.get_submodule("classifier"), model.config)
    return model


def _task_name(source: str | Path) -> str | None:
    """What a folder was fine-tuned for; None where nothing says so."""
    try:
        return str(json.loads((Path(source) / TASK_FILE).read_text(encoding="utf-8"))["settings"]["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
