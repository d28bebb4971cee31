"""Settings of the pretraining stream, and the rules that make them fit together."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from xlnet.errors import ConfigurationError, check_choice, known_keys
from xlnet.pretraining.any_subset import AnySubsetConfig
from xlnet.pretraining.permutation import OrderKind
from xlnet.pretraining.spans import SpanRule

MemoryReset = Literal["lane", "document", "never"]
_SEED_BELOW = 1 << 63
SPECIAL_TOKENS = 3  # <sep> after A, <sep> after B, <cls>


@known_keys
@dataclass(frozen=True, kw_only=True)
class StreamConfig:
    """How text becomes sequences ``[reused part | A | <sep> | B | <sep> | <cls>]`` with targets and an order.

    Args:
        seq_len: length L of a sequence.
        reuse_len: tokens of the reused part. The stream advances by it, so the text of A comes again as reused part.
            With 0 there is none: the stream advances by the ``seq_len - 3`` text tokens of a sequence.
        perm_size: tokens are permuted inside blocks of this size in either part; 0 is one block for the whole part.
        batch_size: rows of a micro-batch; each row is a lane with its own share of the corpus.
        micro_batches: micro-batches of one optimizer step, each with its own lanes.
        bidirectional: half of the lanes read their share backwards. Of an odd number one lane changes its direction
            from epoch to epoch, so ``batch_size=1`` reads the corpus forwards, then backwards.
        consecutive_probability: how often B continues A; else B is drawn from anywhere in the lane.
        predict_fraction: shares of the tokens to predict; each micro-batch draws one of them (paper: 1/K, K = 6).
        max_span: longest span of targets, in words or pieces.
        span_rule: ``whole_word``, or ``pieces`` as released (see ``spans``).
        order_kind: ``permutation``, ``lattice``, ``left_to_right`` or ``masked`` (see ``permutation``).
        any_subset: how many of the batches are any-subset ones instead, and how much those hide (see ``any_subset``).
        reset_memory: ``lane``: where a lane begins its share; ``document``: also where the text passed the end of a
            document; ``never``: not even at the start of an epoch, as released (but where a lane turns round).
        seed: of all random draws, below 2^63.

    Raises:
        ConfigurationError: for values that are out of range or contradict each other.
    """

    seq_len: int = 512
    reuse_len: int = 256
    perm_size: int = 0
    batch_size: int = 8
    micro_batches: int = 1
    bidirectional: bool = True
    consecutive_probability: float = 0.5
    predict_fraction: tuple[float, ...] = (1 / 6,)
    max_span: int = 5
    span_rule: SpanRule = "whole_word"
    order_kind: OrderKind = "permutation"
    any_subset: AnySubsetConfig = field(default_factory=AnySubsetConfig)
    reset_memory: MemoryReset = "lane"
    seed: int = 0

    def __post_init__(self) -> None:
        fractions = self.predict_fraction
        object.__setattr__(
            self, "predict_fraction", (fractions,) if isinstance(fractions, int | float) else tuple(fractions)
        )
        self._check_choices()
        self._check_numbers()
        self._check_lengths()
        if self.order_kind == "left_to_right" and self.predict_fraction != (1.0,):
            raise ConfigurationError(
                f"predict_fraction={list(self.predict_fraction)} contradicts order_kind='left_to_right', which "
                "predicts every token: set predict_fraction=[1.0]."
            )
        if self.perm_size and self.order_kind != "permutation":
            raise ConfigurationError(
                f"perm_size={self.perm_size} has no meaning for order_kind={self.order_kind!r}, which permutes "
                "nothing: leave it at 0."
            )
        if self.any_subset.share and self.reset_memory == "never":
            raise ConfigurationError(
                f"reset_memory='never' contradicts any_subset.share={self.any_subset.share}: an any-subset batch "
                "starts without memory and leaves none. Use reset_memory='lane' or 'document', or any_subset.share=0."
            )

    @property
    def text_len(self) -> int:
        """Tokens of A and B together."""
        return self.seq_len - self.reuse_len - SPECIAL_TOKENS

    @property
    def advance(self) -> int:
        """Tokens a lane moves on with each sequence."""
        return self.reuse_len or self.text_len

    @property
    def window(self) -> int:
        """Consecutive tokens a lane needs for one sequence."""
        return self.reuse_len + self.text_len

    def _check_choices(self) -> None:
        for key, kinds in (("span_rule", SpanRule), ("order_kind", OrderKind), ("reset_memory", MemoryReset)):
            value, allowed = getattr(self, key), get_args(kinds)
            check_choice(key, value, allowed)

    def _check_numbers(self) -> None:
        least = {"seq_len": 1, "reuse_len": 0, "perm_size": 0, "batch_size": 1, "micro_batches": 1, "max_span": 1}
        for key, low in {**least, "seed": 0}.items():
            value = getattr(self, key)
            if not _is_whole(value) or value < low:
                raise ConfigurationError(f"{key}={value!r} must be a whole number of at least {low}.")
        if self.seed >= _SEED_BELOW:
            raise ConfigurationError(f"seed={self.seed} must be below 2^63 = {_SEED_BELOW}.")
        probability = self.consecutive_probability
        if not (isinstance(probability, int | float) and 0.0 <= probability <= 1.0):
            raise ConfigurationError(f"consecutive_probability={probability!r} must be a probability from 0 to 1.")
        if not self.predict_fraction:
            raise ConfigurationError("predict_fraction is empty; it must hold at least one share such as 1/6.")
        for share in self.predict_fraction:
            if not (isinstance(share, int | float) and math.isfinite(share) and 0.0 < share <= 1.0):
                raise ConfigurationError(
                    f"predict_fraction holds {share!r}; a share must be above 0 and at most 1 (1/K for the paper's K)."
                )

    def _check_lengths(self) -> None:
        if self.text_len < 2:
            raise ConfigurationError(
                f"seq_len={self.seq_len} with reuse_len={self.reuse_len} leaves {self.text_len} tokens for A and B, "
                f"which need one each: seq_len must be at least reuse_len + 5 (<sep>, <sep>, <cls>, A, B), so set "
                f"seq_len >= {self.reuse_len + 5} or reuse_len <= {max(0, self.seq_len - 5)}."
            )
        longest = max(self.reuse_len, self.seq_len - self.reuse_len)
        if self.perm_size > longest:
            raise ConfigurationError(
                f"perm_size={self.perm_size} is longer than both parts of a sequence (reused {self.reuse_len}, new "
                f"{self.seq_len - self.reuse_len}): it must be at most {longest}, or 0 for one block per part."
            )


def target_count(share: float, available: int) -> int:
    """Targets among ``available`` tokens: the share, rounded, at least one where there is a token."""
    return min(available, max(1, math.floor(share * available + 0.5)))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
