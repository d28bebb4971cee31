"""Exact log-probabilities: of any tokens given any other tokens, in one forward pass an order (XLNet §2.2, §2.3).

    log p(x_T | x_G) = sum over targets t, in the order of decision, of log p(x_t | x_G, targets decided before t)

The query stream gives all terms at once. The first term of an empty context depends on no token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from xlnet.batch import NO_TARGET, check_ids
from xlnet.errors import ConfigurationError, InputError, did_you_mean
from xlnet.generation.engine import evaluating
from xlnet.generation.orders import decision_order
from xlnet.generation.pieces import check_vocabulary
from xlnet.generation.protocols import Tokenizer
from xlnet.model.language_model import XLNetLMHeadModel
from xlnet.model.memory import Memory

CONTEXT, NEVER = 0, 1 << 40
_LOGIT_ROWS = 512
_ORDERS = ("left_to_right", "right_to_left", "lattice", "random", "pseudo", "pseudo_word")


@dataclass(frozen=True)
class LogProbability:
    """Log-probability of some tokens of a sequence, in nats.

    Attributes:
        targets: positions in the order of their decision.
        per_token: log p of each of them, given what is given and what was decided before.
    """

    targets: tuple[int, ...]
    per_token: tuple[float, ...]

    @property
    def total(self) -> float:
        """Of all targets together."""
        return math.fsum(self.per_token)


@dataclass(frozen=True)
class TextScore:
    """Log-probability of a text, in nats.

    Attributes:
        text: as given.
        pieces: the scored pieces, in the order of the text.
        log_probs: of each piece; the mean over orders where there are several.
        total: log-probability of the text; with several orders the log of the mean probability; with ``pseudo`` orders
            a sum of conditionals that is no probability of the text.
        order: name of the order.
        order_totals: one total an order.
    """

    text: str
    pieces: tuple[str, ...] = field(repr=False)
    log_probs: tuple[float, ...] = field(repr=False)
    total: float
    order: str
    order_totals: tuple[float, ...] = field(repr=False)

    @property
    def token_count(self) -> int:
        """Number of scored pieces."""
        return len(self.log_probs)

    @property
    def perplexity(self) -> float:
        """``exp(-total / token_count)``, per piece."""
        return math.exp(min(-self.total / self.token_count, 700.0))

    @property
    def spread(self) -> float:
        """Standard deviation of the totals over orders, 0 for one order."""
        mean = math.fsum(self.order_totals) / len(self.order_totals)
        count = max(1, len(self.order_totals) - 1)
        return math.sqrt(math.fsum((value - mean) ** 2 for value in self.order_totals) / count)


@dataclass(frozen=True)
class Request:
    """One pass over one sequence: what to predict, in which order, and what nobody may see."""

    tokens: Sequence[int]
    targets: Sequence[int]
    hidden: frozenset[int] = frozenset()
    memory_row: int = 0


def log_prob(
    model: XLNetLMHeadModel,
    tokens: Sequence[int],
    *,
    given: Sequence[int] | None = None,
    targets: Sequence[int] | None = None,
    order: str | Sequence[int] = "left_to_right",
    seed: int = 0,
) -> LogProbability:
    """Exact log p(targets | given) for any two disjoint sets of positions of one sequence.

    Args:
        model: a language model; runs in evaluation mode.
        tokens: L ids.
        given: positions that are seen from the start; by default all that are not targets, or none.
        targets: positions to score; by default all that are not given.
        order: see :func:`~xlnet.generation.orders.decision_order`.
        seed: of a random order.

    Raises:
        InputError: positions outside the sequence, given and targets that overlap, nothing to score, a bad order.
    """
    places = range(len(tokens))
    for name, chosen in (("given", given), ("targets", targets)):
        for place in chosen or ():
            if place not in places:
                raise InputError(f"{name} holds position {place}; the sequence has positions 0 to {len(tokens) - 1}.")
        if chosen is not None and len(set(chosen)) != len(chosen):
            raise InputError(f"{name}={list(chosen)} names a position twice.")
    if targets is None:
        targets = [place for place in places if place not in set(given or ())]
    elif given is None:
        given = [place for place in places if place not in set(targets)]
    both = sorted(set(given or ()) & set(targets))
    if both:
        raise InputError(f"Position(s) {both} are given and to be scored at once: choose one.")
    if not targets:
        raise InputError("There is nothing to score: every position is given.")
    decided = decision_order(order, targets, seed=seed)
    hidden = frozenset(places) - set(given or ()) - set(targets)
    with evaluating(model):
        (per_token,) = request_log_probs(model, [Request(tokens, decided, hidden)], batch_size=1)
    return LogProbability(decided, tuple(per_token))


def score(
    model: XLNetLMHeadModel,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    order: str = "left_to_right",
    orders: int = 1,
    given: str | Sequence[str] | None = None,
    batch_size: int = 16,
    max_length: int = 2048,
    seed: int = 0,
) -> list[TextScore]:
    """Log-probability of each text.

    Args:
        model: a language model; runs in evaluation mode.
        tokenizer: of that model.
        texts: what to score; nothing is added to them.
        order: ``left_to_right``, ``right_to_left``, ``lattice``, ``random``; or for comparison with masked models
            ``pseudo`` (each piece given all others, arXiv 1910.14659) or ``pseudo_word`` (the rest of the word to the
            right is hidden too, arXiv 2305.10588).
        orders: number of random orders to average over.
        given: text in front that is not scored; one for all, or one each. Joined to the text as it is.
        batch_size: sequences a forward pass.
        max_length: pieces of given and text together; longer texts belong to ``score_long_text``.
        seed: of random orders.

    Raises:
        InputError: an empty text, or one that is too long.
        ConfigurationError: an unknown order, ``orders`` below 1 or above 1 for an order that is not random.
        CheckpointError: a tokenizer with more pieces than the model knows.
    """
    check_order(order, orders)
    check_vocabulary(tokenizer, model.config.vocab_size)
    if isinstance(texts, str):
        raise InputError("texts is one string; give a list of texts, [text] for a single one.")
    prefixes = _prefixes(given, len(texts))
    encoded = [
        _encode(tokenizer, prefix, text, number, max_length)
        for number, (prefix, text) in enumerate(zip(prefixes, texts, strict=True))
    ]
    requests = [_requests(tokenizer, ids, first, order, orders, seed) for ids, _, first in encoded]
    with evaluating(model):
        flat = request_log_probs(model, [one for some in requests for one in some], batch_size=batch_size)
    results, place = [], 0
    for text, (ids, pieces, first), some in zip(texts, encoded, requests, strict=True):
        values = flat[place : place + len(some)]
        place += len(some)
        results.append(_text_score(text, pieces[first:], first, len(ids), order, some, values))
    return results


def check_order(order: str, orders: int) -> None:
    """Refuse an unknown order, and several of one that is not random.

    Raises:
        ConfigurationError: naming the value and what is allowed.
    """
    if order not in _ORDERS:
        raise ConfigurationError(
            f"order={order!r} is not known; it must be one of {', '.join(_ORDERS)}." + did_you_mean(order, _ORDERS)
        )
    if orders < 1:
        raise ConfigurationError(f"orders={orders} must be at least 1.")
    if orders > 1 and order != "random":
        raise ConfigurationError(f"orders={orders} needs order='random'; order={order!r} is one order only.")


def _prefixes(given: str | Sequence[str] | None, count: int) -> list[str]:
    if given is None or isinstance(given, str):
        return [given or ""] * count
    if len(given) != count:
        raise InputError(f"given holds {len(given)} texts for {count} texts to score: give one for all, or one each.")
    return list(given)


def _encode(
    tokenizer: Tokenizer, prefix: str, text: str, number: int, max_length: int
) -> tuple[list[int], list[str], int]:
    """Those of ``pieces_behind``, where there are some and not too many."""
    ids, pieces, first = pieces_behind(tokenizer, prefix, text)
    if len(ids) <= first:
        raise InputError(f"texts[{number}]={text!r} holds no piece to score.")
    if len(ids) > max_length:
        raise InputError(
            f"texts[{number}] has {len(ids)} pieces, more than max_length={max_length}: raise max_length (time and "
            "memory grow with its square), or use score_long_text, which walks any length with memory."
        )
    return ids, pieces, first


def pieces_behind(tokenizer: Tokenizer, prefix: str, text: str) -> tuple[list[int], list[str], int]:
    """Ids and pieces of ``prefix + text`` and the first scored one: a piece across the border is scored."""
    encoding = tokenizer.encode(prefix + text, special_tokens=False)
    border = len(prefix)
    first = sum(1 for _, end in encoding.offsets if end <= border) if prefix else 0
    return list(encoding.input_ids), list(encoding.pieces), first


def _requests(tokenizer: Tokenizer, ids: list[int], first: int, order: str, orders: int, seed: int) -> list[Request]:
    targets = range(first, len(ids))
    if order == "pseudo":
        return [Request(ids, [place]) for place in targets]
    if order == "pseudo_word":
        starts = tokenizer.starts_word
        requests = []
        for place in targets:
            end = place + 1
            while end < len(ids) and not bool(starts[ids[end]]):
                end += 1
            requests.append(Request(ids, [place], frozenset(range(place + 1, end))))
        return requests
    return [Request(ids, decision_order(order, targets, seed=seed, draw=draw)) for draw in range(orders)]


def _text_score(
    text: str,
    pieces: list[str],
    first: int,
    length: int,
    order: str,
    requests: list[Request],
    values: list[list[float]],
) -> TextScore:
    sums = [0.0] * (length - first)
    for request, some in zip(requests, values, strict=True):
        for place, value in zip(request.targets, some, strict=True):
            sums[place - first] += value
    if order.startswith("pseudo"):
        total = math.fsum(sums)
        return TextScore(text, tuple(pieces), tuple(sums), total, order, (total,))
    totals = tuple(math.fsum(some) for some in values)
    highest = max(totals)
    total = highest + math.log(math.fsum(math.exp(value - highest) for value in totals) / len(totals))
    return TextScore(text, tuple(pieces), tuple(value / len(totals) for value in sums), total, order, totals)


def request_log_probs(
    model: XLNetLMHeadModel, requests: Sequence[Request], *, batch_size: int, memory: Memory | None = None
) -> list[list[float]]:
    """Log-probabilities of each request's targets, in its order of decision; similar lengths share a batch.

    Raises:
        ConfigurationError: ``batch_size`` below 1.
        InputError: an id outside the vocabulary.
    """
    if batch_size < 1:
        raise ConfigurationError(f"batch_size={batch_size} must be at least 1.")
    by_length = sorted(range(len(requests)), key=lambda i: len(requests[i].tokens), reverse=True)
    results: list[list[float]] = [[] for _ in requests]
    for start in range(0, len(by_length), batch_size):
        chosen = by_length[start : start + batch_size]
        batch = [requests[i] for i in chosen]
        for i, values in zip(chosen, _batch_log_probs(model, batch, memory), strict=True):
            results[i] = values
    return results


def _batch_log_probs(model: XLNetLMHeadModel, batch: list[Request], memory: Memory | None) -> list[list[float]]:
    length = max(len(request.tokens) for request in batch)
    count = max(len(request.targets) for request in batch)
    ids = torch.zeros(len(batch), length, dtype=torch.int64)
    real = torch.zeros(len(batch), length, dtype=torch.bool)
    order = torch.full((len(batch), length), CONTEXT)
    targets = torch.full((len(batch), count), NO_TARGET)
    for i, request in enumerate(batch):
        places = torch.tensor(list(request.targets))
        ids[i, : len(request.tokens)] = torch.tensor(list(request.tokens))
        real[i, : len(request.tokens)] = True
        order[i, places] = torch.arange(len(places)) + CONTEXT + 1
        order[i, list(request.hidden)] = NEVER
        targets[i, : len(places)] = places
    check_ids(ids, model.config.vocab_size, "tokens")
    device = model.device
    encoded = model.encoder(
        ids.to(device),
        None if bool(real.all()) else real.to(device),
        order=order.to(device),
        target_positions=targets.to(device),
        memory=memory,
    )
    used = (targets != NO_TARGET).to(device)
    labels = ids.to(device).gather(1, targets.clamp(min=0).to(device))[used]
    values = chosen_log_probs(model, encoded.query[used], labels).tolist()
    counts = [len(request.targets) for request in batch]
    starts = [sum(counts[:i]) for i in range(len(counts))]
    return [values[start : start + size] for start, size in zip(starts, counts, strict=True)]


def chosen_log_probs(model: XLNetLMHeadModel, states: Tensor, labels: Tensor) -> Tensor:
    """log p of ``labels [R]`` at ``states [R, D]``, in at least float32; a slice of rows at a time to save memory."""
    parts = []
    for start in range(0, len(labels), _LOGIT_ROWS):
        logits = model.logits(states[start : start + _LOGIT_ROWS])
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        wanted = logits.gather(1, labels[start : start + _LOGIT_ROWS, None])[:, 0]
        parts.append(wanted - logits.logsumexp(dim=-1))
    return torch.cat(parts)
