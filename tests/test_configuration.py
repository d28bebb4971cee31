"""Shapes of a model that cannot work are refused before anything is built."""

from __future__ import annotations

import re

import pytest

from xlnet.configuration import XLNetConfig
from xlnet.errors import ConfigurationError

NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("key", "values", "rule"),
    [
        ("initializer_range", (-1.0, -1e-9, NAN, INFINITE), "it must be a finite number of at least 0"),
        ("layer_norm_eps", (-1.0, 0.0, NAN, INFINITE), "must be a finite number above 0"),
        *((key, (-0.1, 1.0, NAN), "must be a rate in [0, 1)") for key in ("dropout", "dropatt", "summary_dropout")),
        *(
            (key, (0, -3), "must be at least 1")
            for key in ("vocab_size", "n_layer", "d_model", "n_head", "d_head", "d_inner")
        ),
        *((key, (0, -1), "must be at least 1") for key in ("num_labels", "start_n_top", "end_n_top")),
        *((key, (-1,), "must not be negative") for key in ("mem_len", "reuse_len")),
        ("clamp_len", (0, -2), "must be positive, or -1"),
        ("d_model", (7,), "must be even"),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_rule(key: str, values: tuple[float, ...], rule: str) -> None:
    for value in values:
        with pytest.raises(ConfigurationError, match=re.escape(f"{key}={value}") + ".*" + re.escape(rule)):
            XLNetConfig(**{key: value})


def test_values_at_the_edge_are_taken() -> None:
    config = XLNetConfig(initializer_range=0.0, layer_norm_eps=1e-30, dropout=0.0, num_labels=1, start_n_top=1)
    assert XLNetConfig.from_dict(config.to_dict()) == config
