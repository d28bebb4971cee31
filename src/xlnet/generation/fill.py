"""Filling blanks: any number of them, decided jointly, each of a fixed or unknown number of pieces."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from xlnet.errors import InputError
from xlnet.generation.beam import BeamConfig, beam_search
from xlnet.generation.blanks import Template, parse
from xlnet.generation.engine import conditionals, evaluating
from xlnet.generation.lengths import LengthPrior, choose_lengths
from xlnet.generation.methods import Run, check_method, drive
from xlnet.generation.pieces import check_vocabulary, fitting, no_text
from xlnet.generation.plan import FillPlan
from xlnet.generation.protocols import Tokenizer
from xlnet.generation.sampling import GREEDY, RandomStream, SamplingConfig, permitted
from xlnet.model.language_model import XLNetLMHeadModel


@dataclass(frozen=True)
class BlankConstraint:
    """What may stand in one blank.

    Attributes:
        allowed: ids that may be chosen; None is all.
        banned: ids that are never chosen.
        spacing: the first piece must fit the space (or its absence) before the blank.
    """

    allowed: tuple[int, ...] | None = None
    banned: tuple[int, ...] = ()
    spacing: bool = True


@dataclass(frozen=True)
class Alternative:
    """One content of a blank.

    Attributes:
        text: as it reads.
        ids: its pieces.
        probability: of these pieces under the model, given all else as filled.
    """

    text: str
    ids: tuple[int, ...]
    probability: float


@dataclass(frozen=True)
class FilledBlank:
    """What was put into one blank.

    Attributes:
        text: as it reads.
        ids: its pieces.
        log_prob: of its pieces under the model as they were decided, in nats.
        alternatives: the best contents of the same number of pieces given all else as filled, best first.
    """

    text: str
    ids: tuple[int, ...]
    log_prob: float
    alternatives: tuple[Alternative, ...] = field(repr=False)


@dataclass(frozen=True)
class Filling:
    """A text without blanks.

    Attributes:
        text: the whole text; what stands outside of the blanks is as it was typed, except that no space is left before
            a piece that has none in front, such as a full stop.
        blanks: in the order of the text.
        log_prob: joint log-probability of all filled pieces under the model (temperature 1, nothing banned), in nats.
        ids: the whole text.
        calls: calls of the model to decide the pieces.
        accepted: pieces committed by each round that had drafts.
    """

    text: str
    blanks: tuple[FilledBlank, ...]
    log_prob: float
    ids: tuple[int, ...] = field(repr=False)
    calls: int
    accepted: tuple[int, ...] = field(repr=False)

    @property
    def tokens_per_call(self) -> float:
        """Pieces decided per call of the model."""
        return sum(len(blank.ids) for blank in self.blanks) / max(1, self.calls)


def fill(
    model: XLNetLMHeadModel,
    tokenizer: Tokenizer,
    text: str,
    *,
    sampling: SamplingConfig = GREEDY,
    method: str = "sequential",
    k: int = 4,
    order: str | Sequence[int] = "lattice",
    alternatives: int = 5,
    constraints: Mapping[int, BlankConstraint] | None = None,
    length_prior: LengthPrior | None = None,
    number: int = 0,
) -> Filling:
    """Fill all blanks of a text: ``<mask>`` is one piece, ``<mask:n>`` n pieces, ``___`` a blank of unknown length.

    Args:
        model: a language model; runs in evaluation mode.
        tokenizer: of that model. Its special ids are never chosen.
        text: with at least one blank.
        sampling: greedy by default.
        method: ``sequential``, ``speculative`` or ``one_pass``; all have the same output law.
        k: tokens drafted at once by the last two.
        order: in which the pieces are decided: a name, or positions counted in pieces.
        alternatives: how many other contents to list for each blank; 0 lists none.
        constraints: blank number (0 first) to its constraint.
        length_prior: of the number of pieces of an unknown blank; see :mod:`xlnet.generation.lengths`.
        number: of this text among several: it draws from its own stream (seed, number).

    Raises:
        InputError: no blank, a malformed one, constraints on a blank that is not there or that leave nothing.
        ConfigurationError: an unknown method or order, ``k`` below 1.
        CheckpointError: a tokenizer with more pieces than the model knows.
    """
    check_method(method, k)
    check_vocabulary(tokenizer, model.config.vocab_size)
    if alternatives < 0:
        raise InputError(f"alternatives={alternatives} must not be negative.")
    template = parse(text, tokenizer)
    rules = dict(constraints or {})
    for blank in rules:
        if not 0 <= blank < len(template.blanks):
            raise InputError(f"constraints name blank {blank}; the text has blanks 0 to {len(template.blanks) - 1}.")
    vocab_size = model.config.vocab_size
    mask = permitted(sampling, vocab_size, no_text(tokenizer, vocab_size))
    masks = [_masks(template, i, rules.get(i), tokenizer, vocab_size) for i in range(len(template.blanks))]

    def plan_for(lengths: Sequence[int]) -> tuple[FillPlan, list[list[int]]]:
        ids, places = template.lay_out(lengths, 0)
        allowed = {}
        for spots, (first, rest) in zip(places, masks, strict=True):
            for spot in spots:
                chosen = first if spot == spots[0] else rest
                if chosen is not None:
                    allowed[spot] = chosen
        blanks = [spot for spots in places for spot in spots]
        return FillPlan.of(ids, blanks, order, seed=sampling.seed, allowed=allowed), places

    with evaluating(model):
        lengths = [blank.length for blank in template.blanks]
        if None in lengths:
            prior = length_prior or LengthPrior.default()
            lengths = choose_lengths(model, lengths, prior, lambda some: plan_for(some)[0], mask)
        plan, places = plan_for([int(length or 0) for length in lengths])
        run = Run(plan, sampling, RandomStream(sampling.seed, number), mask)
        drive([run], conditionals(model, 1), method=method, k=k)
        return _filling(model, tokenizer, template, run, places, alternatives)


def _masks(
    template: Template, number: int, rule: BlankConstraint | None, tokenizer: Tokenizer, vocab_size: int
) -> tuple[Tensor | None, Tensor | None]:
    """Masks of the first and of the other pieces of a blank."""
    rule = rule or BlankConstraint()
    own = SamplingConfig(allowed=rule.allowed, banned=rule.banned)
    rest = permitted(own, vocab_size)
    if not rule.spacing:
        return rest, rest
    first = fitting(template.blanks[number].opens_word, tokenizer, vocab_size)
    if rest is not None:
        first = first & rest
    if not bool(first.any()):
        raise InputError(
            f"The constraint of blank {number} leaves no piece that fits the space before it: "
            "allow others, or give BlankConstraint(spacing=False)."
        )
    return first, rest


def _filling(
    model: XLNetLMHeadModel,
    tokenizer: Tokenizer,
    template: Template,
    run: Run,
    places: list[list[int]],
    alternatives: int,
) -> Filling:
    ids = list(run.plan.tokens)
    log_prob = dict(zip(run.plan.targets, run.log_probs, strict=True))
    for place, token in zip(run.plan.targets, run.decided, strict=True):
        ids[place] = token
    blanks = []
    for spots in places:
        own = tuple(ids[spot] for spot in spots)
        others = _alternatives(model, tokenizer, run, ids, spots, alternatives) if alternatives else ()
        total = math.fsum(log_prob[spot] for spot in spots)
        blanks.append(FilledBlank(tokenizer.decode(list(own)).strip(), own, total, others))
    joint = math.fsum(run.log_probs)
    text = template.filled([blank.ids for blank in blanks], tokenizer)
    return Filling(text, tuple(blanks), joint, tuple(ids), run.calls, tuple(run.accepted))


def _alternatives(
    model: XLNetLMHeadModel, tokenizer: Tokenizer, run: Run, ids: list[int], spots: list[int], count: int
) -> tuple[Alternative, ...]:
    """Best contents of one blank given all else as filled: exact for one piece, by beam search for more."""
    allowed = {spot: run.plan.allowed[spot] for spot in spots if spot in run.plan.allowed}
    plan = FillPlan.of(ids, spots, allowed=allowed)
    found = beam_search(conditionals(model, 1), plan, BeamConfig(width=max(count, 1)), mask=run.mask)
    return tuple(
        Alternative(tokenizer.decode(list(one.ids)).strip(), one.ids, math.exp(one.log_prob)) for one in found[:count]
    )


def fill_ids(
    model: XLNetLMHeadModel,
    plans: Sequence[FillPlan],
    *,
    sampling: SamplingConfig = GREEDY,
    method: str = "sequential",
    k: int = 4,
    cached: bool = True,
    mask: Tensor | None = None,
) -> list[Run]:
    """Decide the targets of several plans side by side; sample i draws from its own stream (seed, i).

    Returns:
        The finished runs: ``.decided`` ids in the order of decision, ``.log_probs``, ``.calls``, ``.accepted``.
    """
    check_method(method, k)
    base = permitted(sampling, model.config.vocab_size)
    both = base if mask is None else mask if base is None else base & mask
    with evaluating(model):
        runs = [Run(plan, sampling, RandomStream(sampling.seed, i), both) for i, plan in enumerate(plans)]
        if runs:
            drive(runs, conditionals(model, len(runs), cached=cached), method=method, k=k)
    return runs


def pieces_mask(vocab_size: int, ids: Sequence[int]) -> Tensor:
    """``[V]`` bool, True at the given ids."""
    mask = torch.zeros(vocab_size, dtype=torch.bool)
    mask[list(ids)] = True
    return mask
