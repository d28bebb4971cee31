"""XLNet: permutation language modelling, from a text file to a model that fills, scores and continues text.

    from xlnet import XLNetLMHeadModel, XLNetTokenizer, fill

Names are imported when they are first used, so that ``import xlnet`` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xlnet.configuration import XLNetConfig
    from xlnet.errors import XLNetError
    from xlnet.float32 import float32_products
    from xlnet.generation import GenerationConfig, SamplingConfig, fill, generate, score
    from xlnet.model import (
        Memory,
        XLNetForMultipleChoice,
        XLNetForQuestionAnswering,
        XLNetForSequenceClassification,
        XLNetForTokenClassification,
        XLNetLMHeadModel,
        XLNetModel,
    )
    from xlnet.pretraining.corpus.prepare import prepare
    from xlnet.pretraining.corpus.token_corpus import TokenCorpus
    from xlnet.pretraining.pretrain import pretrain
    from xlnet.pretraining.stream import PermutationStream
    from xlnet.pretraining.stream_config import StreamConfig
    from xlnet.tasks.config import FineTuneConfig
    from xlnet.tasks.fine_tuned import FineTuned
    from xlnet.tasks.finetune import TaskData, finetune
    from xlnet.text import XLNetTokenizer, train_tokenizer
    from xlnet.training.config import FitConfig
    from xlnet.training.loop import fit

__version__ = "0.1.0"

_HOMES = {
    "xlnet.configuration": ("XLNetConfig",),
    "xlnet.errors": ("XLNetError",),
    "xlnet.float32": ("float32_products",),
    "xlnet.generation": ("GenerationConfig", "SamplingConfig", "fill", "generate", "score"),
    "xlnet.model": (
        "Memory",
        "XLNetForMultipleChoice",
        "XLNetForQuestionAnswering",
        "XLNetForSequenceClassification",
        "XLNetForTokenClassification",
        "XLNetLMHeadModel",
        "XLNetModel",
    ),
    "xlnet.pretraining.corpus.token_corpus": ("TokenCorpus",),
    "xlnet.pretraining.corpus.prepare": ("prepare",),
    "xlnet.pretraining.pretrain": ("pretrain",),
    "xlnet.pretraining.stream": ("PermutationStream",),
    "xlnet.pretraining.stream_config": ("StreamConfig",),
    "xlnet.tasks.config": ("FineTuneConfig",),
    "xlnet.tasks.fine_tuned": ("FineTuned",),
    "xlnet.tasks.finetune": ("TaskData", "finetune"),
    "xlnet.text": ("XLNetTokenizer", "train_tokenizer"),
    "xlnet.training.config": ("FitConfig",),
    "xlnet.training.loop": ("fit",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "FineTuneConfig",
    "FineTuned",
    "FitConfig",
    "GenerationConfig",
    "Memory",
    "PermutationStream",
    "SamplingConfig",
    "StreamConfig",
    "TaskData",
    "TokenCorpus",
    "XLNetConfig",
    "XLNetError",
    "XLNetForMultipleChoice",
    "XLNetForQuestionAnswering",
    "XLNetForSequenceClassification",
    "XLNetForTokenClassification",
    "XLNetLMHeadModel",
    "XLNetModel",
    "XLNetTokenizer",
    "__version__",
    "fill",
    "finetune",
    "fit",
    "float32_products",
    "generate",
    "prepare",
    "pretrain",
    "score",
    "train_tokenizer",
]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(importlib.import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'xlnet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
