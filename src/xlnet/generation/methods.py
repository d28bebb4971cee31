"""Ways to decide the targets of a plan: one after another, or several a call with exactly the same law.

Each method is a coroutine of one sample: it yields the rows it needs and receives their logits. The driver runs many
samples side by side, so what a sample gets cannot depend on its neighbours.

``sequential``   one token a call.
``speculative``  k drafts from one call, verified by a second (arXiv 2504.20456, with the free bonus token).
``one_pass``     every verifying call also emits the next drafts, for each place where it may stop.

The last two commit tokens by speculative sampling, exact for any draft law fixed before drawing, so their output law is
that of ``sequential``; calls never exceed tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from xlnet.errors import ConfigurationError, InputError, did_you_mean
from xlnet.generation.engine import Conditionals, Rows
from xlnet.generation.plan import FillPlan
from xlnet.generation.sampling import Chooser, RandomStream, SamplingConfig, law, residual

Steps = Generator[Rows, Tensor, None]


@dataclass
class Run:
    """One sample on its way.

    Attributes:
        plan: what to decide.
        sampling: how a token is chosen.
        chooser: makes the random decisions.
        mask: ``[V]`` bool of ids that may be chosen anywhere; None is all.
        stop: called after each committed token; True ends the sample early.
        decided: ids so far, in the order of decision.
        log_probs: of each decided token under the model itself (temperature 1, nothing banned), in nats.
        calls: calls of the model.
        accepted: tokens committed by each round that had drafts.
    """

    plan: FillPlan
    sampling: SamplingConfig
    chooser: Chooser
    mask: Tensor | None = None
    stop: Callable[[Run], bool] | None = None
    decided: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    calls: int = 0
    accepted: list[int] = field(default_factory=list)
    pending: list[tuple[int, int, int]] = field(default_factory=list)
    done: bool = False

    def __post_init__(self) -> None:
        self.pending = self.plan.given()
        self._given = [token for _, _, token in self.pending]
        self.done = not self.plan.targets
        self._masks = {place: _both(self.mask, own, place) for place, own in self.plan.allowed.items()}

    @property
    def total(self) -> int:
        """How many targets there are."""
        return len(self.plan.targets)

    def take_pending(self) -> list[tuple[int, int, int]]:
        """Tokens that are not yet keys."""
        pending, self.pending = self.pending, []
        return pending

    def content(self, rank: int, token: int) -> tuple[int, int, int]:
        """A content row for the target of this rank."""
        return self.plan.targets[rank], self.plan.order_of(rank), token

    def query(self, rank: int, sees: int | None = None) -> tuple[int, int]:
        """A query row at the target of ``rank`` that sees the ranks below ``sees`` (by default its own)."""
        return self.plan.targets[rank], self.plan.order_of(rank if sees is None else sees)

    def law(self, logits: Tensor, rank: int, drafts: Sequence[int] = ()) -> Tensor:
        """What the token of this rank is drawn from, after what is decided and ``drafts``."""
        mask = self._masks.get(self.plan.targets[rank], self.mask)
        seen = [*self._given, *self.decided, *drafts] if self.sampling.repetition_penalty != 1.0 else ()
        return law(logits, self.sampling, seen, mask)

    def choose(self, probabilities: Tensor) -> int:
        """Draw; a greedy law needs no random number."""
        return int(probabilities.argmax()) if self.sampling.greedy else self.chooser.choose(probabilities)

    def commit(self, token: int, logits: Tensor, *, cached: bool = False) -> None:
        """Decide the next rank; ``logits [V]`` are the model's, given every earlier rank."""
        rank = len(self.decided)
        self.decided.append(token)
        wide = logits.double()
        self.log_probs.append(float(wide[token] - wide.logsumexp(0)))
        if not cached:
            self.pending.append(self.content(rank, token))
        self.done = len(self.decided) == self.total or (self.stop is not None and self.stop(self))


def _both(everywhere: Tensor | None, own: Tensor, place: int) -> Tensor:
    """What may stand at one place: its own constraint and what holds everywhere."""
    if everywhere is None:
        return own
    if not bool((everywhere & own).any()):
        raise InputError(
            f"The constraints of position {place} contradict what is allowed or banned everywhere: no piece is left."
        )
    return everywhere & own


def sequential(run: Run, k: int) -> Steps:
    """One token a call; ``k`` is not read."""
    while not run.done:
        rank = len(run.decided)
        logits = yield Rows(run.take_pending(), [run.query(rank)])
        run.commit(run.choose(run.law(logits[0], rank)), logits[0])


def speculative(run: Run, k: int) -> Steps:
    """Draft up to ``k`` tokens independently, verify them together, keep the longest exact prefix and one more."""
    refused: int | None = None
    while not run.done:
        rank = len(run.decided)
        width = min(k, run.total - rank)
        drawn = yield Rows(run.take_pending(), [run.query(rank + t, rank) for t in range(width)], refused)
        refused = None
        if width == 1:
            run.commit(run.choose(run.law(drawn[0], rank)), drawn[0])
            continue
        laws = [run.law(drawn[t], rank + t) for t in range(width)]
        drafts = [run.choose(one) for one in laws]
        last = min(width, run.total - rank - 1)
        checked = yield Rows(_contents(run, rank, drafts), [run.query(rank + t) for t in range(last + 1)])
        if _verify(run, drafts, laws, checked, certain=1) < width:
            refused = run.plan.order_of(len(run.decided) - 1)


def one_pass(run: Run, k: int) -> Steps:
    """Every call verifies the drafts it was handed and drafts anew for every place where it may stop.

    The new drafts of a place see what that place's verification saw, not the token drawn there: a draft law may be any.
    """
    drafts: list[int] = []
    laws: list[Tensor] = []
    refused: int | None = None
    while not run.done:
        rank = len(run.decided)
        last = min(len(drafts), run.total - rank - 1)
        query = [run.query(rank + t) for t in range(last + 1)]
        groups: list[range] = []
        for t in range(last + 1):
            ahead = range(rank + t + 1, min(rank + t + 1 + k, run.total))
            groups.append(range(len(query), len(query) + len(ahead)))
            query.extend(run.query(later, rank + t) for later in ahead)
        logits = yield Rows([*run.take_pending(), *_contents(run, rank, drafts)], query, refused)
        refused = None
        stopped = _verify(run, drafts, laws, logits[: last + 1])
        if run.done:
            return
        if stopped < len(drafts):
            refused = run.plan.order_of(len(run.decided) - 1)
        # `stopped` drafts were kept and one more token was drawn: the next drafts begin behind it.
        rank = len(run.decided)
        laws = [run.law(logits[row], rank + t) for t, row in enumerate(groups[stopped])]
        drafts = [run.choose(one) for one in laws]


def _contents(run: Run, rank: int, drafts: Sequence[int]) -> list[tuple[int, int, int]]:
    return [run.content(rank + t, token) for t, token in enumerate(drafts)]


def _verify(run: Run, drafts: Sequence[int], laws: Sequence[Tensor], logits: Tensor, certain: int = 0) -> int:
    """Commit drafts while they pass, then one token from the residual (or a free one after the last).

    Args:
        run: the sample; the first draft has the rank decided next.
        drafts, laws: tokens and the laws they were drawn from.
        logits: ``[len(drafts) + 1, V]`` of the model given all earlier drafts; without the last row at the end.
        certain: how many drafts come from the target law itself, so that rounding must not refuse them.

    Returns:
        How many drafts were kept.
    """
    before, rank = len(run.decided), len(run.decided)
    kept = 0
    for t, draft in enumerate(drafts):
        target = run.law(logits[t], rank + t)
        if t >= certain and not _passes(run, float(target[draft]), float(laws[t][draft])):
            run.commit(run.choose(residual(target, laws[t])), logits[t])
            break
        kept += 1
        run.commit(draft, logits[t], cached=True)
        if run.done:
            break
    else:
        if rank + kept < run.total:
            run.commit(run.choose(run.law(logits[kept], rank + kept)), logits[kept])
    if drafts:
        run.accepted.append(len(run.decided) - before)
    return kept


def _passes(run: Run, target: float, draft: float) -> bool:
    """Accept with probability min(1, q / p); certain decisions take no random number."""
    if target >= draft:
        return True
    return target > 0 and run.chooser.accept(target / draft)


METHODS: dict[str, Callable[[Run, int], Steps]] = {
    "sequential": sequential,
    "speculative": speculative,
    "one_pass": one_pass,
}


def check_method(method: str, k: int) -> None:
    """Refuse an unknown method or ``k < 1``.

    Raises:
        ConfigurationError: naming the value and what is allowed.
    """
    if method not in METHODS:
        raise ConfigurationError(
            f"method={method!r} is not known; it must be one of {', '.join(METHODS)}." + did_you_mean(method, METHODS)
        )
    if k < 1:
        raise ConfigurationError(f"k={k} must be at least 1: it is the number of tokens drafted at once.")


def drive(
    runs: Sequence[Run],
    engine: Conditionals,
    *,
    method: str = "sequential",
    k: int = 4,
    after_call: Callable[[], None] | None = None,
) -> None:
    """Run all samples to their end; samples that are done leave the batch.

    Args:
        runs: one a sample, in the order of the engine's samples.
        engine: answers rows.
        method, k: see the page above.
        after_call: called after each call of the model (streaming).
    """
    check_method(method, k)
    steps = [METHODS[method](run, k) for run in runs]
    active = list(range(len(runs)))
    asked: dict[int, Rows] = {}

    def advance(number: int, logits: Tensor | None) -> None:
        try:
            asked[number] = next(steps[number]) if logits is None else steps[number].send(logits)
        except StopIteration:
            asked.pop(number, None)

    for number in active:
        advance(number, None)
    while asked:
        kept = [place for place, number in enumerate(active) if number in asked]
        if len(kept) < len(active):
            engine.select(kept)
            active = [active[place] for place in kept]
        answers = engine.ask([asked[number] for number in active])
        for number, logits in zip(active, answers, strict=True):
            runs[number].calls += 1
            advance(number, logits)
        if after_call is not None:
            after_call()


def streams(sampling: SamplingConfig, samples: int) -> list[RandomStream]:
    """One independent random stream a sample."""
    return [RandomStream(sampling.seed, number) for number in range(samples)]
