"""The model a fine-tuning run starts from: pretrained weights under a new head, or random ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from xlnet.checkpoints import read_checkpoint
from xlnet.configuration import SummaryType, XLNetConfig
from xlnet.model import PretrainedModel
from xlnet.model.initialization import initialize
from xlnet.tasks.contract import Task


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

    From a pretrained folder all but the head is loaded. From a fine-tuned one (MNLI to RTE, as in the paper) the
    sequence summary is kept too, and the last layer only where its labels are those of this task.

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
        if before.head == model.head and before.config.labels != model.config.labels:
            initialize(model.get_submodule("classifier"), model.config)
    return model
