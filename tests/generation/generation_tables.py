"""Stand-ins for the tests of exactness: a table for a model, and a chooser that takes every branch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from xlnet.generation.engine import Rows


class Table:
    """Arbitrary conditionals: logits are a fixed random function of what a query sees and where it stands."""

    def __init__(self, vocab_size: int, *, seed: int = 0, sharpness: float = 1.5, samples: int = 1) -> None:
        self.vocab_size, self.seed, self.sharpness = vocab_size, seed, sharpness
        self.keys: list[list[tuple[int, int, int]]] = [[] for _ in range(samples)]
        self.calls = 0
        self._known: dict[tuple, Tensor] = {}

    def logits(self, seen: Sequence[tuple[int, int]], position: int) -> Tensor:
        """``[V]`` float64 logits of the token at ``position`` given (position, id) pairs."""
        question = (tuple(sorted(seen)), position)
        if question not in self._known:
            flat = [self.seed, position, *(1000 + n for pair in question[0] for n in pair)]
            values = np.random.default_rng(flat).normal(size=self.vocab_size) * self.sharpness
            self._known[question] = torch.from_numpy(values)
        return self._known[question]

    def ask(self, rows: Sequence[Rows]) -> list[Tensor]:
        self.calls += 1
        answers = []
        for own, row in zip(self.keys, rows, strict=True):
            if row.forget_from is not None:
                own[:] = [key for key in own if key[1] < row.forget_from]
            own.extend(row.content)
            places = [position for position, _, _ in own]
            assert len(set(places)) == len(places), "a place is known twice"
            answers.append(
                torch.stack(
                    [
                        self.logits([(at, token) for at, order, token in own if order < sees], position)
                        for position, sees in row.query
                    ]
                )
            )
        return answers

    def select(self, rows: Sequence[int]) -> None:
        self.keys = [list(self.keys[row]) for row in rows]

    def fresh(self) -> Table:
        """The same table, nothing known yet."""
        self.keys = [[] for _ in self.keys]
        self.calls = 0
        return self


class Branching:
    """A chooser that follows a script and, run after run, takes every branch once."""

    def __init__(self) -> None:
        self.script: list[int] = []
        self.options: list[list[tuple[int, float]]] = []
        self.place = 0

    def _take(self, options: list[tuple[int, float]]) -> int:
        if self.place == len(self.script):
            self.script.append(0)
            self.options.append(options)
        outcome = options[self.script[self.place]][0]
        self.place += 1
        return outcome

    def choose(self, probabilities: Tensor) -> int:
        return self._take([(i, p) for i, p in enumerate(probabilities.tolist()) if p > 0])

    def accept(self, probability: float) -> bool:
        return bool(self._take([(v, p) for v, p in ((1, probability), (0, 1 - probability)) if p > 0]))

    def weight(self) -> float:
        """Probability of the branch just taken."""
        product = 1.0
        for taken, options in zip(self.script, self.options, strict=True):
            product *= options[taken][1]
        return product

    def advance(self) -> bool:
        """Move to the next branch; False after the last."""
        self.place = 0
        while self.script:
            if self.script[-1] + 1 < len(self.options[-1]):
                self.script[-1] += 1
                return True
            self.script.pop()
            self.options.pop()
        return False


def enumerate_law(experiment: Callable[[Branching], tuple]) -> dict[tuple, float]:
    """Probability of every outcome of a random experiment, by taking every branch of it."""
    law: dict[tuple, float] = {}
    chooser = Branching()
    while True:
        outcome = experiment(chooser)
        law[outcome] = law.get(outcome, 0.0) + chooser.weight()
        if not chooser.advance():
            return law


def total_variation(first: dict[tuple, float], second: dict[tuple, float]) -> float:
    """Half the sum of absolute differences of two laws."""
    return 0.5 * sum(abs(first.get(key, 0.0) - second.get(key, 0.0)) for key in first.keys() | second.keys())
