"""Settings that are built by hand are answered like those of a file: an unknown key is named, with the nearest one."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
from typing import Any

import pytest

import xlnet
from xlnet.configuration import XLNetConfig
from xlnet.errors import ConfigurationError
from xlnet.pretraining.stream_config import StreamConfig
from xlnet.training.config import FitConfig


def settings_classes() -> list[type]:
    """Every frozen dataclass of the library that is called ``...Config``."""
    found = set()
    for module in pkgutil.walk_packages(xlnet.__path__, "xlnet."):
        if not module.name.endswith("__main__"):
            names = vars(importlib.import_module(module.name))
            found |= {value for name, value in names.items() if name.endswith("Config") and inspect.isclass(value)}
    return sorted((kind for kind in found if dataclasses.is_dataclass(kind)), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", settings_classes(), ids=lambda kind: kind.__name__)
def test_every_class_of_settings_names_a_key_it_does_not_know(kind: Any) -> None:
    first = next(iter(dataclasses.fields(kind))).name
    with pytest.raises(ConfigurationError, match=rf"{kind.__name__}: key '{first}x' is not known.*'{first}'"):
        kind(**{f"{first}x": 1})
    with pytest.raises(ConfigurationError, match=rf"{kind.__name__}: key 'qqq' is not known. There are: {first}"):
        kind(qqq=1)


def test_nothing_else_of_the_class_changes() -> None:
    config = XLNetConfig(n_layer=2)
    assert pickle.loads(pickle.dumps(config)) == copy.deepcopy(config) == config != XLNetConfig()
    assert list(inspect.signature(XLNetConfig).parameters) == [field.name for field in dataclasses.fields(config)]
    assert dataclasses.replace(FitConfig(steps=3), seed=1) == FitConfig(steps=3, seed=1)
    with pytest.raises(ConfigurationError, match="Did you mean 'seq_len'"):
        dataclasses.replace(StreamConfig(), seq_length=9)
    with pytest.raises(TypeError):
        XLNetConfig(1)  # type: ignore[misc]
