"""Every error a user of this library can cause or meet.

A message says four things: the key or file and line as the user gave it, the value found, the rule, the remedy.
The command line prints the message alone, without a traceback, and exits with ``exit_code``.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Iterable
from typing import Any, TypeVar

T = TypeVar("T")


class XLNetError(Exception):
    """Ancestor of all errors of this library; ``exit_code`` is what the command line returns."""

    exit_code = 2


class InputError(XLNetError):
    """Text, ids or records that cannot be used as given (a file, its line, its value)."""


class ConfigurationError(XLNetError):
    """Settings that are unknown, out of range, or contradict each other."""


class CheckpointError(XLNetError):
    """A model or tokenizer folder that is missing, damaged, or does not fit what is asked of it."""


class MachineError(XLNetError):
    """The machine refuses: disk full, out of memory, an optional package or device that is not there."""

    exit_code = 1


class TrainingError(XLNetError):
    """Training cannot go on: a loss that is not a number, or that diverged."""

    exit_code = 1


class Interrupted(XLNetError):
    """The user stopped the work; the message says what was saved and how to resume."""

    exit_code = 130


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint ``" Did you mean 'x'?"`` for a mistyped name, or an empty string when nothing is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


def check_choice(key: str, value: object, allowed: Iterable[str]) -> None:
    """Refuse a setting that is none of the allowed words.

    Raises:
        ConfigurationError: names the key, the value, the words, and the nearest of them.
    """
    known = list(allowed)
    if value not in known:
        hint = did_you_mean(str(value), known)
        raise ConfigurationError(f"{key}={value!r} is not known; it must be one of {', '.join(known)}.{hint}")


def known_keys(cls: type[T]) -> type[T]:
    """Class decorator above ``@dataclass``: a key that is no field is an error of ours, with the nearest field.

    Python's own would be a bare ``TypeError``. Signature, help and type checkers see the dataclass as it is.
    """
    settings: Any = cls
    plain = settings.__init__
    fields = [field.name for field in dataclasses.fields(settings) if field.init]

    @functools.wraps(plain)
    def __init__(self: Any, *given: Any, **values: Any) -> None:
        for key in values:
            if key not in fields:
                hint = did_you_mean(key, fields) or f" There are: {', '.join(fields)}."
                raise ConfigurationError(f"{cls.__name__}: key {key!r} is not known.{hint}")
        plain(self, *given, **values)

    settings.__init__ = __init__
    return cls
