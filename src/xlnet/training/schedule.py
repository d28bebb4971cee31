"""Learning-rate schedules as pure functions of the step: warm-up from zero, then linear, cosine or constant.

The curves are those of the release (``lr_schedule`` of its recorded arrays): step t of a run uses ``factor(t)``, so
with warm-up the very first update has rate 0, and ``factor(total_steps)`` would be the minimum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from xlnet.errors import ConfigurationError, check_choice, known_keys

ScheduleKind = Literal["linear", "cosine", "constant"]
_KINDS = ("linear", "cosine", "constant")


@known_keys
@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Shape of the learning rate over a run.

    Args:
        kind: ``linear`` (the paper's), ``cosine`` or ``constant`` after the warm-up.
        warmup_steps: steps over which the rate rises linearly from 0 to its peak.
        min_lr_ratio: the decay ends at this fraction of the peak (the release pretrains with 0.001, fine-tunes with 0).
    """

    kind: ScheduleKind = "linear"
    warmup_steps: int = 0
    min_lr_ratio: float = 0.0

    def __post_init__(self) -> None:
        check_choice("schedule.kind", self.kind, _KINDS)
        if self.warmup_steps < 0:
            raise ConfigurationError(
                f"schedule.warmup_steps={self.warmup_steps} must not be negative; 0 is no warm-up."
            )
        if not 0.0 <= self.min_lr_ratio <= 1.0:
            raise ConfigurationError(
                f"schedule.min_lr_ratio={self.min_lr_ratio} must be a fraction of the peak in [0, 1]."
            )


def factor(step: int, total_steps: int, config: ScheduleConfig) -> float:
    """What the peak learning rate is multiplied by at ``step`` (0-based) of ``total_steps``.

    Beyond ``total_steps`` the rate stays at its minimum.
    """
    if step < config.warmup_steps:
        return step / config.warmup_steps
    if config.kind == "constant":
        return 1.0
    decay_steps = max(1, total_steps - config.warmup_steps)
    progress = min(1.0, (step - config.warmup_steps) / decay_steps)
    remaining = 1.0 - progress if config.kind == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
    return config.min_lr_ratio + (1.0 - config.min_lr_ratio) * remaining
