"""A tag for each word: named entities (CoNLL), parts of speech. A word is tagged where its first piece stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xlnet.batch import IGNORED_LABEL
from xlnet.errors import ConfigurationError, InputError
from xlnet.model import XLNetForTokenClassification
from xlnet.tasks.contract import Prediction, Row, Task, TaskBatch
from xlnet.tasks.entities import entity_f1, has_entities
from xlnet.tasks.families.classification import label_error, softmax
from xlnet.tasks.families.sequences import Ids, encode_texts, join
from xlnet.tasks.families.text import record_id
from xlnet.text import XLNetTokenizer
from xlnet.text.symbols import UNK_ID
from xlnet.training.contracts import Step

_MARKS = 2


@dataclass(frozen=True)
class WordsExample:
    """A sentence in words.

    Attributes:
        id: what it is called.
        words: as they are in the file; at least none.
        label: one tag a word; None where not known.
        where: file and line of the first word, for messages.
    """

    id: str
    words: tuple[str, ...]
    label: tuple[str, ...] | None = None
    where: str = ""


def tag_names(examples: Sequence[WordsExample]) -> tuple[str, ...]:
    """The tags that occur, ``O`` first, then by the alphabet."""
    found = {tag for example in examples for tag in example.label or ()}
    return tuple(sorted(found, key=lambda tag: (tag != "O", tag)))


@dataclass(frozen=True, kw_only=True)
class TokenClassification(Task):
    """One of several tags for each word.

    A sentence that is too long is read in windows; a word takes its tag from the window that shows most of what is
    around it.

    Args:
        label_names: the tags in the order of their ids.
        overlap: words that neighbouring windows share at least, where that is possible.
    """

    family = "token_classification"
    model_class = XLNetForTokenClassification
    label_names: tuple[str, ...] = ("O", "B", "I")
    overlap: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.label_names) < 2 or len(set(self.label_names)) != len(self.label_names):
            raise ConfigurationError(f"label_names={self.label_names} must be at least two different tags.")
        if self.overlap < 0:
            raise ConfigurationError(f"overlap={self.overlap} must not be negative.")

    @property
    def metric(self) -> str:
        """``f1`` of entities where tags are of the B-I-O kind, else ``accuracy`` of words."""
        return "f1" if has_entities(self.label_names) else "accuracy"

    def model_settings(self) -> dict[str, Any]:
        """One output a tag."""
        return {"num_labels": len(self.label_names), "labels": self.label_names}

    def example(self, record: Mapping[str, Any], where: str, number: int) -> WordsExample:
        """From ``words`` (or ``tokens``, or ``text`` split at white space), and ``tags`` (``ner_tags``, ``labels``)."""
        words = next((record[key] for key in ("words", "tokens", "text") if key in record), None)
        if isinstance(words, str):
            words = words.split()
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise InputError(f"{where}: words must be a list of texts; present are {', '.join(map(repr, record))}.")
        tags = next((record[key] for key in ("tags", "ner_tags", "labels") if record.get(key) is not None), None)
        if tags is not None and not isinstance(tags, list):
            raise InputError(f"{where}: tags must be a list, but is {tags!r}.")
        label = None if tags is None else tuple(map(str, tags))
        return WordsExample(record_id(record, number), tuple(words), label, where)

    def check(self, examples: Sequence[WordsExample], *, labelled: bool) -> None:
        """As many tags as words, all of them known."""
        for example in examples if labelled else ():
            where = example.where or f"example {example.id}"
            if example.label is None:
                raise InputError(f"{where}: there are no tags, and training and evaluation need them.")
            if len(example.label) != len(example.words):
                raise InputError(f"{where}: there are {len(example.words)} words, but {len(example.label)} tags.")
            for tag in example.label:
                if tag not in self.label_names:
                    raise label_error(tag, self.label_names, where)

    def features(self, examples: Sequence[WordsExample], tokenizer: XLNetTokenizer, *, training: bool) -> list[Row]:
        """Pieces of all words, ``<sep> <cls>``; a word without a piece (invisible characters) is ``<unk>``."""
        flat = encode_texts(tokenizer, [word for example in examples for word in example.words])
        unknown = np.array([UNK_ID], dtype=np.int32)
        ids = {name: i for i, name in enumerate(self.label_names)}
        rows, start = [], 0
        for place, example in enumerate(examples):
            own = flat[start : start + len(example.words)]
            pieces = [p[: self.max_length - _MARKS] if len(p) else unknown for p in own]
            start += len(pieces)
            for first, last in word_windows([len(p) for p in pieces], self.max_length - _MARKS, self.overlap):
                label = None
                if example.label is not None:
                    label = tuple(ids.get(tag, IGNORED_LABEL) for tag in example.label[first:last])
                rows.append(_row(place, pieces[first:last], first, label))
        return rows

    def labels(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """``targets``: int64 ``[words of all rows]``."""
        if any(row.label is None for row in rows):
            return {}
        return {"targets": torch.tensor([number for row in rows for number in row.label], dtype=torch.int64)}

    def loss(self, model: nn.Module, batch: TaskBatch) -> Step:
        """Cross-entropy of all words. A batch without words gives 0."""
        logits = self._word_logits(model, batch).float()
        targets = batch.labels["targets"]
        loss = nn.functional.cross_entropy(logits, targets, ignore_index=IGNORED_LABEL, reduction="sum")
        return Step(loss, len(targets))

    def _word_logits(self, model: nn.Module, batch: TaskBatch) -> Tensor:
        """``[words of all rows, num_labels]``."""
        logits = model(**batch.inputs).logits
        width = logits.shape[1]
        which = [i for i, row in enumerate(batch.rows) for _ in row.extra["starts"]]
        # Padding stands on the left.
        where = [width - row.length + start for row in batch.rows for start in row.extra["starts"]]
        return logits[torch.tensor(which, dtype=torch.int64), torch.tensor(where, dtype=torch.int64)]

    def outputs(self, model: nn.Module, batch: TaskBatch) -> list[NDArray[np.float32]]:
        """``[words of the row, num_labels]`` logits."""
        logits = self._word_logits(model, batch).float().cpu().numpy()
        ends = np.cumsum([len(row.extra["starts"]) for row in batch.rows])
        return np.split(logits, ends[:-1])

    def predictions(
        self, examples: Sequence[WordsExample], rows: Sequence[Row], outputs: Sequence[NDArray[np.float32]]
    ) -> list[Prediction]:
        """``label``: one tag a word, ``words`` as given, ``probabilities`` of the tags chosen."""
        chosen = [np.zeros((len(example.words), len(self.label_names))) for example in examples]
        context = [np.full(len(example.words), -1) for example in examples]
        for row, logits in zip(rows, outputs, strict=True):
            first, count = row.extra["first"], len(logits)
            # A word at the edge of the sentence lacks nothing there.
            total = len(chosen[row.example])
            left = np.arange(count) + (total if first == 0 else 0)
            right = np.arange(count)[::-1] + (total if first + count == total else 0)
            seen = np.minimum(left, right)
            better = seen > context[row.example][first : first + count]
            chosen[row.example][first : first + count][better] = logits[better]
            context[row.example][first : first + count][better] = seen[better]
        records = []
        for example, scores in zip(examples, chosen, strict=True):
            probabilities = softmax(scores) if len(scores) else scores
            best = probabilities.argmax(axis=1)
            records.append(
                {
                    "id": example.id,
                    "words": list(example.words),
                    "label": [self.label_names[i] for i in best],
                    "probabilities": probabilities[np.arange(len(best)), best].tolist(),
                }
            )
        return records

    def metrics(self, examples: Sequence[WordsExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        """``accuracy`` of words; ``precision``, ``recall`` and ``f1`` of entities where there are any."""
        gold = [list(example.label or ()) for example in examples]
        found = [prediction["label"] for prediction in predictions]
        pairs = [(g, p) for a, b in zip(gold, found, strict=True) for g, p in zip(a, b, strict=True)]
        metrics = {"accuracy": sum(g == p for g, p in pairs) / max(1, len(pairs))}
        return entity_f1(gold, found) | metrics if has_entities(self.label_names) else metrics


def _row(example: int, pieces: Sequence[Ids], first: int, label: tuple[int, ...] | None) -> Row:
    starts = np.cumsum([0, *(len(p) for p in pieces)])[:-1].tolist()
    ids = np.concatenate(list(pieces)) if pieces else np.zeros(0, dtype=np.int32)
    return Row(example, (join(ids),), label, {"first": first, "starts": starts})


def word_windows(lengths: Sequence[int], room: int, overlap: int) -> list[tuple[int, int]]:
    """Ranges of words whose pieces fit into ``room`` (no word is longer), covering all words; one empty range for none.

    Neighbours share ``overlap`` words, or less where a window must advance.
    """
    ranges, first = [], 0
    while True:
        last, used = first, 0
        while last < len(lengths) and used + lengths[last] <= room:
            used += lengths[last]
            last += 1
        ranges.append((first, last))
        if last >= len(lengths):
            return ranges
        first = max(first + 1, last - overlap)
