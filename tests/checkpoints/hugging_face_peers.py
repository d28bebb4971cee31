"""Models of `transformers` with random weights, and the comparison of every head's outputs with ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import xlnet.model
from xlnet.checkpoints.names import CLASS_NAMES, Head
from xlnet.configuration import XLNetConfig

HEADS: list[Head] = list(CLASS_NAMES)
SHAPE = {"vocab_size": 40, "n_layer": 2, "d_model": 24, "n_head": 4, "d_inner": 36, "mem_len": 5, "dropout": 0.0}
LABELS = {0: "red", 1: "green", 2: "blue"}


def their_model(head: Head, **changes: Any) -> torch.nn.Module:
    """A model of `transformers` with weights large enough for differences to show."""
    import transformers

    torch.manual_seed(3)
    config = transformers.XLNetConfig(**{**SHAPE, "id2label": LABELS, **changes})
    config.summary_last_dropout = 0.0
    model = getattr(transformers, CLASS_NAMES[head])(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.25)
    return model


def our_model(head: Head, **changes: Any) -> torch.nn.Module:
    """One of our models, as above."""
    torch.manual_seed(4)
    values = {**SHAPE, "d_head": 6, "dropatt": 0.0, "num_labels": 3, "labels": tuple(LABELS.values()), **changes}
    model = getattr(xlnet.model, CLASS_NAMES[head])(XLNetConfig(**values)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.25)
    return model


def batch(choices: int = 0) -> dict[str, Tensor]:
    """Three rows of unlike lengths, padded on the left; with choices, ``[3, choices, 7]``."""
    generator = torch.Generator().manual_seed(5)
    shape = (3, choices, 7) if choices else (3, 7)
    mask = torch.ones(shape, dtype=torch.long)
    mask[1, ..., :2] = 0
    mask[2, ..., :1] = 0
    segments = torch.tensor([0, 0, 0, 1, 1, 1, 2]).expand(shape)
    ids = torch.randint(3, 40, shape, generator=generator)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}


def largest_difference(head: Head, theirs: torch.nn.Module, ours: torch.nn.Module) -> float:
    """Over every output of a head on :func:`batch`."""
    with torch.no_grad():
        if head == "question_answering":
            return _answers(theirs, ours)
        inputs = batch(choices=2 if head == "multiple_choice" else 0)
        expected, found = theirs(**inputs), ours(**inputs)
        real = inputs["attention_mask"].bool()
        if head == "encoder":
            return float((found.content - expected.last_hidden_state)[real].abs().max())
        if head in ("language_model", "token_classification"):
            return float((found.logits - expected.logits)[real].abs().max())
        return float((found.logits - expected.logits).abs().max())


def _answers(theirs: torch.nn.Module, ours: torch.nn.Module) -> float:
    inputs = {"input_ids": batch()["input_ids"], "token_type_ids": batch()["token_type_ids"]}
    expected, found = theirs(**inputs), ours(**inputs)
    starts = ours.config.start_n_top
    # There, what is called log probabilities are probabilities, and ends come before starts.
    ends = expected.end_top_log_probs.unflatten(1, (-1, starts)).transpose(1, 2).flatten(1)
    places = expected.end_top_index.unflatten(1, (-1, starts)).transpose(1, 2).flatten(1)
    assert torch.equal(found.start_top_index, expected.start_top_index)
    assert torch.equal(found.end_top_index, places)
    differences = [
        found.start_top_log_probs.exp() - expected.start_top_log_probs,
        found.end_top_log_probs.exp() - ends,
        found.cls_logits - expected.cls_logits.flatten(),
    ]
    return max(float(difference.abs().max()) for difference in differences)


def save_theirs(model: torch.nn.Module, folder: Path, **options: Any) -> Path:
    """``save_pretrained`` without its progress bars."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model.save_pretrained(folder, **options)
    return folder


def load_theirs(head: Head, folder: Path) -> torch.nn.Module:
    """Load with `transformers`, which must find nothing missing, unexpected or mis-shaped."""
    import transformers
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model, told = getattr(transformers, CLASS_NAMES[head]).from_pretrained(folder, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not told[kind], (kind, told[kind])
    return model.eval()
