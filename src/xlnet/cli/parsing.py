"""From an ordinary function to a command: its signature gives the options, its docstring the help.

Parameters before ``*`` are positional arguments, those after it are options. A parameter that is a settings dataclass
becomes a group of dotted options (``--stream.seq_len 128``), unless it is called ``settings``: then its fields are
options of the command itself. Dashes and underscores are the same. Every command also takes ``--config FILE.yaml``
(or the name of a recipe) and ``--print_config``.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn

from jsonargparse import ActionYesNo, ArgumentParser

from xlnet.cli.complaints import in_words, typed_values
from xlnet.cli.recipes import find_recipe
from xlnet.cli.settings_file import check_settings_file
from xlnet.errors import ConfigurationError, InputError, did_you_mean

SETTINGS = "settings"
GIVEN: ContextVar[frozenset[str]] = ContextVar("GIVEN", default=frozenset())
"""Dotted names of the settings that somebody asked for, on the command line or in a file of ``--config``: for commands
where a default must not override what a model brings."""


class CommandParser(ArgumentParser):
    """A parser whose complaints are our errors: one message, the nearest option, exit code 2."""

    typed: Mapping[str, str] = {}

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise instead of printing usage and leaving."""
        text = re.sub(r"^Validation failed:\s*", "", message.strip())
        kinds = {action.dest: getattr(action, "_typehint", None) for action in self._actions}
        text = in_words(text, {key: kind for key, kind in kinds.items() if kind is not None}, self.typed)
        for typed in re.findall(r"--[\w.-]+|(?<=[Kk]ey ')[\w.]+(?=' is not expected)", text):
            known = [option for action in self._actions for option in action.option_strings]
            name = typed.split("=")[0]
            if "--" + name.removeprefix("--") not in known:
                text += "." * (text[-1] != ".") + did_you_mean("--" + name.removeprefix("--"), known)
                break
        raise ConfigurationError(f"{text}\nSee all options: {self.prog} --help")


def build_parser(name: str, function: Callable[..., Any]) -> CommandParser:
    """The parser of one command."""
    description = inspect.cleandoc(function.__doc__ or "").split("\n\nArgs:")[0]
    parser = CommandParser(prog=f"xlnet {name}", usage=_usage(name, function), description=description)
    parser.add_argument("--config", action="config", help="settings from a YAML file, or from a recipe by its name")
    documented = _argument_help(function)
    special: set[str | int] = set()
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        key, text = parameter.name, documented.get(parameter.name, "")
        required = parameter.default is inspect.Parameter.empty
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            special.add(key)
            many: dict[str, Any] = {}
            if parameter.annotation == list[str]:
                many = {"nargs": "+" if required else "*"}
                if not required:
                    many["default"] = []
            elif not required:
                many = {"nargs": "?"}
            kind = str if many.get("nargs") in ("+", "*") else parameter.annotation
            parser.add_argument(key, type=kind, help=text, **many)
        elif parameter.annotation is bool:
            special.add(key)
            parser.add_argument(f"--{key}", action=ActionYesNo, help=text, default=parameter.default)
        elif key == SETTINGS:
            special.add(key)
            parser.add_class_arguments(parameter.annotation, fail_untyped=True)
    parser.add_function_arguments(function, as_group=False, skip=special, fail_untyped=True)
    for action in parser._actions:
        # Docstrings speak to who reads the source: on this page there is no markup, and nothing is written null.
        action.help = re.sub(r"\bNone\b", "null", (action.help or "").replace("``", ""))
    return parser


def _usage(name: str, function: Callable[..., Any]) -> str:
    """One line that shows what must be given."""
    words = [f"xlnet {name}"]
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        required = parameter.default is inspect.Parameter.empty
        many = " ..." if parameter.annotation == list[str] else ""
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            words.append(f"{parameter.name.upper()}{many}" if required else f"[{parameter.name.upper()}{many}]")
        elif required and parameter.name != SETTINGS:
            words.append(f"--{parameter.name} {parameter.name.upper()}")
    return " ".join([*words, "[options]"])


def run(name: str, function: Callable[..., Any], arguments: Sequence[str], default_config: str = "") -> Any:
    """Parse the arguments of a command and call it.

    Args:
        name: of the command.
        function: what it does.
        arguments: from the command line.
        default_config: recipe that applies where no ``--config`` is given.
    """
    parser = build_parser(name, function)
    complete = _with_recipes(list(arguments), default_config)
    parser.typed = typed_values(complete)
    known = {action.dest for action in parser._actions}
    asked = set(parser.typed) & known
    for place, argument in enumerate(complete[:-1]):
        if argument == "--config":
            keys = check_settings_file(Path(complete[place + 1]), known)
            asked |= keys if any(given.startswith("--config") for given in arguments) else set()
    GIVEN.set(frozenset(asked - {"config"}))
    parsed = parser.parse_args(complete)
    values = vars(parser.instantiate_classes(parsed))
    positional = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            value = values.pop(parameter.name)
            positional.append(parameter.default if value is None else value)
    accepted = inspect.signature(function, eval_str=True).parameters
    if SETTINGS in accepted:
        flattened = accepted[SETTINGS].annotation
        names = [field.name for field in dataclasses.fields(flattened) if field.init]
        values[SETTINGS] = flattened(**{name: values.pop(name) for name in names})
    return function(*positional, **{key: value for key, value in values.items() if key in accepted})


def _with_recipes(arguments: list[str], default_config: str) -> list[str]:
    """Settings files first, in their order, recipe names as files; the default recipe where none is given.

    The parser takes arguments from left to right, and options on the command line change a file wherever they stand.
    """
    arguments = [re.sub(r"^--[\w.-]+", lambda m: "--" + m[0][2:].replace("-", "_"), argument) for argument in arguments]
    files: list[str] = []
    others: list[str] = []
    left = iter(arguments)
    for argument in left:
        name = next(left, None) if argument == "--config" else argument.removeprefix("--config=")
        if argument == "--config" and name is None:
            others.append(argument)  # the parser says what is missing
        elif argument == "--config" or argument.startswith("--config="):
            files += ["--config", str(find_recipe(str(name)))]
        else:
            others.append(argument)
    if default_config and not files and others[-1:] != ["--config"]:
        files = ["--config", str(find_recipe(default_config))]
    return [*files, *others]


def _argument_help(function: Callable[..., Any]) -> dict[str, str]:
    """Descriptions from the ``Args:`` section of a docstring."""
    lines = inspect.cleandoc(function.__doc__ or "").partition("\nArgs:\n")[2].split("\n")
    found: dict[str, str] = {}
    current = ""
    for line in lines:
        if line and not line.startswith("    "):
            break
        start = re.match(r"    (\w+): (.*)", line)
        if start:
            current = start[1]
            found[current] = start[2]
        elif current and line.strip():
            found[current] += " " + line.strip()
    return found


def read_lines(source: str | None, given: Sequence[str]) -> list[str]:
    """Texts from arguments, or from a file, or from standard input (``-``); newlines alone end a line."""
    if given and source:
        raise ConfigurationError("Give texts either as arguments or with --input, not both.")
    if given:
        return list(given)
    if source is None or source == "-":
        if source is None and sys.stdin.isatty():
            raise ConfigurationError("No text is given: write it after the command, or use --input FILE (- for stdin).")
        data = sys.stdin.buffer.read()
        where = "standard input"
    else:
        try:
            data = Path(source).read_bytes()
        except OSError as error:
            raise ConfigurationError(f"--input {source!r} cannot be read: {error.strerror}.") from error
        where = source
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{where} is not UTF-8: byte {error.start} is 0x{data[error.start]:02x}. Convert it to UTF-8 first."
        ) from error
    if not text.strip():
        raise InputError(f"{where} holds no text.")
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
