"""Settings that cannot work are refused before any work."""

from __future__ import annotations

import pytest

from xlnet.errors import ConfigurationError
from xlnet.pretraining.stream_config import StreamConfig


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"seq_len": 260}, "seq_len must be at least reuse_len [+] 5.*seq_len >= 261 or reuse_len <= 255"),
        ({"perm_size": 300}, "perm_size=300 .* at most 256"),
        ({"perm_size": 8, "order_kind": "lattice"}, "leave it at 0"),
        ({"order_kind": "left_to_right"}, r"set predict_fraction=\[1.0\]"),
        ({"order_kind": "permutaton"}, "Did you mean 'permutation'"),
        ({"span_rule": "words"}, "one of whole_word, pieces"),
        ({"reset_memory": "always"}, "one of lane, document, never"),
        ({"predict_fraction": (0.0,)}, "above 0 and at most 1"),
        ({"predict_fraction": (1.5,)}, "above 0 and at most 1"),
        ({"predict_fraction": (float("nan"),)}, "above 0 and at most 1"),
        ({"predict_fraction": ()}, "is empty"),
        ({"consecutive_probability": 1.1}, "from 0 to 1"),
        ({"consecutive_probability": "half"}, "from 0 to 1"),
        ({"predict_fraction": "1/6"}, "above 0 and at most 1"),
        ({"batch_size": 0}, "at least 1"),
        ({"batch_size": 1.5}, "whole number"),
        ({"micro_batches": True}, "whole number"),
        ({"reuse_len": -1}, "at least 0"),
        ({"seed": -1}, "at least 0"),
        ({"seed": 2**63}, "below 2\\^63"),
        ({"consecutive_probability": float("nan")}, "from 0 to 1"),
        ({"max_span": 0}, "at least 1"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_rule(change: dict, rule: str) -> None:
    with pytest.raises(ConfigurationError, match=rule):
        StreamConfig(**change)
