"""Which families of tasks there are, by the name that a fine-tuned folder keeps."""

from __future__ import annotations

import importlib

from xlnet.errors import ConfigurationError, did_you_mean
from xlnet.tasks.contract import Task

FAMILIES: dict[str, str] = {
    "text_classification": "xlnet.tasks.families.classification:TextClassification",
    "multi_label": "xlnet.tasks.families.multi_label:MultiLabelClassification",
    "pairwise_classification": "xlnet.tasks.families.pairwise:PairwiseClassification",
    "text_regression": "xlnet.tasks.families.regression:TextRegression",
    "multiple_choice": "xlnet.tasks.families.multiple_choice:MultipleChoice",
    "token_classification": "xlnet.tasks.families.token_classification:TokenClassification",
    "ranking": "xlnet.tasks.families.ranking:Ranking",
    "question_answering": "xlnet.tasks.squad.task:QuestionAnswering",
}


def family(name: str) -> type[Task]:
    """The class of a family; only that one is imported.

    Raises:
        ConfigurationError: an unknown name.
    """
    if name not in FAMILIES:
        raise ConfigurationError(
            f"{name!r} is no family of tasks; known are {', '.join(FAMILIES)}. A task of your own is given to "
            f"FineTuned.from_pretrained(folder, task=...).{did_you_mean(name, FAMILIES)}"
        )
    module, _, attribute = FAMILIES[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
