"""The parser's complaints about values, in words for the person who typed them."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

from xlnet.errors import did_you_mean

_SINGLE = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_EXAMPLES = {int: "[1, 2]", float: "[0.1, 0.2]", bool: "[true, false]", str: "[one, two]"}


def wanted(kind: Any) -> str:
    """What a value of a type looks like on the command line: ``a whole number``, ``one of bi, uni`` ..."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if origin in (Union, types.UnionType):
        options = [wanted(part) for part in inner if part is not types.NoneType]
        return " or ".join([*options, "null for none"] if types.NoneType in inner else options)
    if origin in (list, tuple):
        return f"a list in brackets, such as {_EXAMPLES.get(inner[0], '[a, b]')}"
    if origin is dict:
        return 'JSON in braces, such as {"key": 1}'
    return _SINGLE.get(kind, "a mapping of settings to values")


def in_words(message: str, kinds: Mapping[str, Any], typed: Mapping[str, str]) -> str:
    """The complaint with the option, the value, and what it must be, where it is about the value of an option.

    Args:
        message: of the parser.
        kinds: type of each option, by its dotted name.
        typed: values as they stand on the command line, by dotted name.

    Returns:
        The message itself where it is about anything else.
    """
    named = re.search(r'(?:Parser key|[Kk]ey) "([\w.]+)"', message)
    if named and named[1] in kinds:
        key = named[1]
        kind = kinds[key]
        found = re.findall(r"(?:Got value|Given value): (.*)", message)
        value = typed.get(key, found[-1].strip() if found else "")
        near = did_you_mean(value, map(str, get_args(kind))) if get_origin(kind) is Literal else ""
        return f"--{key} {value}: it must be {wanted(kind)}.{near}"
    lacking = re.search(r"argument --([\w.]+)\S*: expected one argument", message)
    if lacking and lacking[1] in kinds:
        return f"--{lacking[1]} has no value behind it; it must be {wanted(kinds[lacking[1]])}."
    return message


def typed_values(arguments: list[str]) -> dict[str, str]:
    """Options and their values as typed: ``--a.b 1`` and ``--a.b=1`` give ``{"a.b": "1"}``."""
    values: dict[str, str] = {}
    for place, argument in enumerate(arguments):
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            following = arguments[place + 1] if place + 1 < len(arguments) else ""
            values[name] = value if equals else following
    return values
