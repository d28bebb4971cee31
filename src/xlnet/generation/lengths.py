"""Blanks of unknown length: each candidate number of pieces is filled, and compared by exact density and a prior.

    value(n) = log prior(n) + log p(best filling of n pieces | everything else, a gap of n places)

The density of a filling is exact (a chain of conditionals of the model); positions tell the model how wide the gap is.
The prior is how many pieces a span of whole words has when spans are drawn as pretraining draws them: w words with
probability proportional to 1/w, w = 1..5 (XLNet release). ``LengthPrior.from_texts`` counts it on a corpus; the
default is such a count on 6 MB of classic English books with the released vocabulary of 32,000 pieces.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from xlnet.errors import ConfigurationError, InputError
from xlnet.generation.engine import conditionals
from xlnet.generation.methods import Run, drive
from xlnet.generation.plan import FillPlan
from xlnet.generation.protocols import Tokenizer
from xlnet.generation.sampling import GREEDY, RandomStream
from xlnet.model.language_model import XLNetLMHeadModel

SPAN_WORDS = 5
_MOST_TOGETHER = 64
_DEFAULT = (0.399, 0.203, 0.143, 0.109, 0.086, 0.034, 0.018, 0.008)


@dataclass(frozen=True)
class LengthPrior:
    """Probability of a blank having 1, 2, 3 ... pieces; longer ones are not tried.

    Attributes:
        probabilities: of 1, 2, ... pieces; they are normalized.
    """

    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        values = tuple(float(value) for value in self.probabilities)
        if not values or any(not value >= 0 for value in values) or not 0 < sum(values) < math.inf:
            raise ConfigurationError(
                f"probabilities={values} must be at least one number, none negative, not all of them 0."
            )
        total = math.fsum(values)
        object.__setattr__(self, "probabilities", tuple(value / total for value in values))

    @property
    def candidates(self) -> tuple[int, ...]:
        """Numbers of pieces that are tried."""
        return tuple(n for n, value in enumerate(self.probabilities, start=1) if value > 0)

    def log(self, length: int) -> float:
        """Log-probability of a length, in nats."""
        value = self.probabilities[length - 1] if 1 <= length <= len(self.probabilities) else 0.0
        return math.log(value) if value > 0 else -math.inf

    @classmethod
    def default(cls) -> LengthPrior:
        """Counted on English novels; see the top of this page."""
        return cls(_DEFAULT)

    @classmethod
    def uniform(cls, longest: int) -> LengthPrior:
        """Every length up to ``longest`` alike: density alone decides (and favours short ones)."""
        return cls((1.0,) * longest)

    @classmethod
    def from_texts(cls, tokenizer: Tokenizer, texts: Iterable[str], *, longest: int = 8) -> LengthPrior:
        """Count spans of 1 to 5 whole words of a corpus, w words weighted 1/w.

        Raises:
            InputError: the texts hold no word.
        """
        starts = np.asarray(tokenizer.starts_word, dtype=bool)
        weights: Counter[int] = Counter()
        for text in texts:
            ids = np.asarray(tokenizer.encode(text, special_tokens=False).input_ids, dtype=np.int64)
            borders = [*np.nonzero(starts[ids])[0].tolist(), len(ids)] if len(ids) else []
            for words in range(1, SPAN_WORDS + 1):
                for first, last in zip(borders, borders[words:], strict=False):
                    weights[last - first] += 1.0 / words  # type: ignore[assignment]
        if not weights:
            raise InputError("The texts hold no word to learn lengths from.")
        return cls(tuple(float(weights.get(n, 0.0)) for n in range(1, longest + 1)))


def choose_lengths(
    model: XLNetLMHeadModel,
    lengths: Sequence[int | None],
    prior: LengthPrior,
    plan_for: Callable[[Sequence[int]], FillPlan],
    mask: Tensor | None,
) -> list[int | None]:
    """Numbers of pieces of all blanks, the unknown ones (None) chosen by density and prior.

    Up to 64 combinations are compared together; where there are more, one blank after the other is settled, the rest
    standing at the prior's most probable length.
    """
    unknown = [i for i, length in enumerate(lengths) if length is None]
    chosen = [length if length is not None else _mode(prior) for length in lengths]
    groups = [unknown] if len(prior.candidates) ** len(unknown) <= _MOST_TOGETHER else [[i] for i in unknown]
    for group in groups:
        combinations = list(itertools.product(prior.candidates, repeat=len(group)))
        trials = []
        for combination in combinations:
            trial = list(chosen)
            for blank, length in zip(group, combination, strict=True):
                trial[blank] = length
            trials.append(trial)
        runs = [Run(plan_for(trial), GREEDY, RandomStream(0, i), mask) for i, trial in enumerate(trials)]
        drive(runs, conditionals(model, len(runs)))
        values = [
            math.fsum(run.log_probs) + sum(prior.log(trial[blank]) for blank in group)
            for run, trial in zip(runs, trials, strict=True)
        ]
        chosen = trials[values.index(max(values))]
    return list(chosen)


def _mode(prior: LengthPrior) -> int:
    return max(prior.candidates, key=prior.log)
