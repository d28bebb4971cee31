"""Beam search over the targets of a plan: the most probable sequences, not samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from xlnet.errors import ConfigurationError, known_keys
from xlnet.generation.engine import Conditionals, Rows
from xlnet.generation.plan import FillPlan


@known_keys
@dataclass(frozen=True)
class BeamConfig:
    """Beam search.

    Args:
        width: hypotheses kept at each step.
        length_penalty: finished hypotheses are compared by ``log p / tokens ** length_penalty``; 0 compares log p.
    """

    width: int = 4
    length_penalty: float = 0.0

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ConfigurationError(f"num_beams={self.width} must be at least 1.")
        if not 0 <= self.length_penalty < math.inf:
            raise ConfigurationError(f"length_penalty={self.length_penalty} must be a finite number, not negative.")


@dataclass(frozen=True)
class Hypothesis:
    """A decided sequence.

    Attributes:
        ids: in the order of decision.
        log_probs: of each under the model (nothing banned), in nats.
    """

    ids: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()

    @property
    def log_prob(self) -> float:
        """Of all together."""
        return sum(self.log_probs)

    def value(self, length_penalty: float) -> float:
        """What hypotheses are compared by."""
        return self.log_prob / max(1, len(self.ids)) ** length_penalty


def beam_search(
    engine: Conditionals,
    plan: FillPlan,
    config: BeamConfig,
    *,
    mask: Tensor | None = None,
    ends: Callable[[Sequence[int]], bool] | None = None,
    after_step: Callable[[int], None] | None = None,
) -> list[Hypothesis]:
    """The ``width`` best hypotheses found, best first.

    Args:
        engine: holding one sample; it is widened to the beam.
        plan: what to decide.
        config: width and length penalty.
        mask: ``[V]`` bool of ids that may be chosen; None is all.
        ends: whether a sequence of decided ids is finished before the plan's end.
        after_step: called with the number of calls so far.

    Ties go to the earlier hypothesis and the lower id.
    """
    beams, finished = [Hypothesis()], []
    content = [plan.given()]
    for rank, place in enumerate(plan.targets):
        rows = [Rows(own, [(place, plan.order_of(rank))]) for own in content]
        logits = torch.cat(engine.ask(rows))
        own_mask = plan.allowed.get(place)
        allowed = mask if own_mask is None else own_mask if mask is None else own_mask & mask
        beams, parents, ended = _extend(beams, logits, allowed, config.width, ends)
        finished.extend(ended)
        if after_step is not None:
            after_step(rank + 1)
        if not beams or _settled(beams, finished, config, len(plan.targets)):
            break
        if rank + 1 < len(plan.targets):
            engine.select(parents)
            content = [[(place, plan.order_of(rank), beam.ids[-1])] for beam in beams]
    else:
        finished.extend(beams)
    finished = finished or beams
    ranked = sorted(finished, key=lambda one: -one.value(config.length_penalty))
    return ranked[: config.width]


def _extend(
    beams: list[Hypothesis],
    logits: Tensor,
    allowed: Tensor | None,
    width: int,
    ends: Callable[[Sequence[int]], bool] | None,
) -> tuple[list[Hypothesis], list[int], list[Hypothesis]]:
    """Best continuations: those that go on, the beams they came from, and those that are finished."""
    log_probs = logits.double().log_softmax(dim=-1)
    before = torch.tensor([beam.log_prob for beam in beams], dtype=torch.float64, device=logits.device)
    totals = log_probs + before[:, None]
    if allowed is not None:
        totals = totals.masked_fill(~allowed.to(totals.device), -torch.inf)
    best, index = _highest(totals.flatten(), min(2 * width, totals.numel()))
    going: list[Hypothesis] = []
    parents: list[int] = []
    ended: list[Hypothesis] = []
    for value, flat in zip(best.tolist(), index.tolist(), strict=True):
        if value == -torch.inf:
            break
        parent, token = divmod(flat, totals.shape[1])
        beam = beams[parent]
        one = Hypothesis((*beam.ids, token), (*beam.log_probs, float(log_probs[parent, token])))
        if ends is not None and ends(one.ids):
            ended.append(one)
        elif len(going) < width:
            going.append(one)
            parents.append(parent)
    return going, parents, ended


def _highest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` highest of ``values [N]`` and their places, equal ones in the order of their places."""
    least = values.topk(count).values[-1]
    # topk takes any of those that equal the last one; all of them are few, and are sorted. Written so that NaN stays.
    places = (~(values < least) & (values != -torch.inf)).nonzero()[:, 0]
    best, order = values[places].sort(descending=True, stable=True)
    return best[:count], places[order[:count]]


def _settled(beams: list[Hypothesis], finished: list[Hypothesis], config: BeamConfig, longest: int) -> bool:
    """Whether no beam can still beat the finished ones: log p only falls, a penalty helps at most to full length."""
    if len(finished) < config.width:
        return False
    values = sorted((one.value(config.length_penalty) for one in finished), reverse=True)
    reachable = max(beam.log_prob / longest**config.length_penalty for beam in beams)
    return reachable <= values[config.width - 1]
