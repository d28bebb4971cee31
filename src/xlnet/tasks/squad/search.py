"""From the beams of all windows of a passage to its best answers, and the odds that it holds none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xlnet.tasks.squad.windows import Window


@dataclass(frozen=True)
class Beams:
    """What the model says of one window; positions are those of the row without padding.

    Attributes:
        start_log_probs, start_index: ``[K]`` best starts.
        end_log_probs, end_index: ``[K, J]`` best ends, given each of these starts.
        cls_logit: logit of "no answer in this window".
    """

    start_log_probs: NDArray[np.float32]
    start_index: NDArray[np.int64]
    end_log_probs: NDArray[np.float32]
    end_index: NDArray[np.int64]
    cls_logit: float


@dataclass(frozen=True)
class Candidate:
    """A stretch of the passage that may be the answer.

    Attributes:
        text: as it stands in the passage, without white space at its ends.
        start, end: its first character and the one after its last; ``passage[start:end] == text``.
        start_log_prob, end_log_prob: log p(start) and log p(end | start); their sum is the score.
    """

    text: str
    start: int
    end: int
    start_log_prob: float
    end_log_prob: float

    @property
    def score(self) -> float:
        """log p(start, end)."""
        return self.start_log_prob + self.end_log_prob


def null_odds(beams: Sequence[Beams]) -> float:
    """Log-odds that the passage holds no answer: those of the window that is most sure to hold one."""
    return min(found.cls_logit for found in beams)


def best_answers(
    passage: str, windows: Sequence[Window], beams: Sequence[Beams], *, max_answer_length: int, n_best: int
) -> list[Candidate]:
    """The best answers of a passage, best first, each text once.

    A start is taken from the window that shows it with most context; an answer ends at or after its start, in the same
    window. The last piece of a window may begin or end an answer like any other.

    Args:
        passage: the original text.
        windows: W of them.
        beams: what the model says of each.
        max_answer_length: pieces at most.
        n_best: answers at most.

    Returns:
        An empty list where no beam holds a stretch with a visible character.
    """
    found: list[NDArray[np.float64]] = []
    for number, (window, beam) in enumerate(zip(windows, beams, strict=True)):
        count = len(window)
        start, end = np.broadcast_arrays(beam.start_index[:, None], beam.end_index)
        good = (start >= 0) & (start <= end) & (end < count) & (end - start < max_answer_length)
        good &= np.append(window.max_context, False)[np.where(good, start, count)]
        start_scores = np.broadcast_to(beam.start_log_probs[:, None], end.shape)
        columns = (np.full(end.shape, number), start, end, start_scores, beam.end_log_probs)
        found.append(np.stack([column[good] for column in columns], axis=1).astype(np.float64))
    table = np.concatenate(found) if found else np.empty((0, 5))
    best: dict[str, Candidate] = {}
    for number, first, last, start_score, end_score in table[np.argsort(-(table[:, 3] + table[:, 4]), kind="stable")]:
        if len(best) == n_best:
            break
        window = windows[int(number)]
        begin, stop = int(window.starts[int(first)]), int(window.ends[int(last)])
        whole = passage[begin:stop]
        text = whole.strip()
        if text and text not in best:
            begin += len(whole) - len(whole.lstrip())
            best[text] = Candidate(text, begin, begin + len(text), float(start_score), float(end_score))
    return list(best.values())


def probabilities(candidates: Sequence[Candidate]) -> list[float]:
    """Softmax of the scores over the candidates, as in the release's n-best file."""
    if not candidates:
        return []
    scores = np.array([candidate.score for candidate in candidates])
    powers = np.exp(scores - scores.max())
    return (powers / powers.sum()).tolist()
