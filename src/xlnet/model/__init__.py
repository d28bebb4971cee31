"""The model: tensors in, tensors out.

Read in this order: positions, geometry, attention, layer, memory, layout, encoder, language_model.
"""

from xlnet.model.classification import (
    XLNetForMultipleChoice,
    XLNetForSequenceClassification,
    XLNetForTokenClassification,
)
from xlnet.model.encoder import XLNetModel
from xlnet.model.language_model import XLNetLMHeadModel
from xlnet.model.memory import Memory
from xlnet.model.outputs import (
    ClassificationOutput,
    EncoderOutput,
    LanguageModelOutput,
    QuestionAnsweringOutput,
)
from xlnet.model.pretrained import PretrainedModel
from xlnet.model.question_answering import XLNetForQuestionAnswering

_BY_HEAD: dict[str, type[PretrainedModel]] = {
    found.head: found
    for found in (
        XLNetModel,
        XLNetLMHeadModel,
        XLNetForSequenceClassification,
        XLNetForMultipleChoice,
        XLNetForTokenClassification,
        XLNetForQuestionAnswering,
    )
}


def model_class(head: str) -> type[PretrainedModel]:
    """The class whose weights a checkpoint with this head holds."""
    return _BY_HEAD[head]


__all__ = [
    "ClassificationOutput",
    "EncoderOutput",
    "LanguageModelOutput",
    "Memory",
    "PretrainedModel",
    "QuestionAnsweringOutput",
    "XLNetForMultipleChoice",
    "XLNetForQuestionAnswering",
    "XLNetForSequenceClassification",
    "XLNetForTokenClassification",
    "XLNetLMHeadModel",
    "XLNetModel",
    "model_class",
]
