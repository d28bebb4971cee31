"""Settings files of ``--config``, looked through before the parser takes them: it passes over some mistakes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from xlnet.errors import ConfigurationError, did_you_mean


def check_settings_file(path: Path, known: Collection[str]) -> set[str]:
    """Refuse a file that is no YAML mapping of known settings.

    Args:
        path: of the file.
        known: dotted names of all settings of the command.

    Returns:
        Dotted names of the settings in it.

    Raises:
        ConfigurationError: names the file, the key (with the nearest known one) and what is wrong.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"--config {path} is not UTF-8 at byte {error.start}, so it is no YAML.") from error
    except OSError as error:
        raise ConfigurationError(f"--config {path} cannot be read: {error.strerror or error}.") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"--config {path} is no valid YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(values, Mapping):
        raise ConfigurationError(f"--config {path} must hold 'key: value' lines, not {_shown(values)}.")
    _check_group(path, "", values, known)
    return set(_names(values, ""))


def _names(values: Mapping[Any, Any], prefix: str) -> Iterator[str]:
    for key, value in values.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _names(value, f"{prefix}{key}.")


def _check_group(path: Path, prefix: str, values: Mapping[Any, Any], known: Collection[str]) -> None:
    for key, value in values.items():
        name = f"{prefix}{key}"
        inner = [option for option in known if option.startswith(f"{name}.")]
        if not inner and name not in known and "." not in str(key):
            raise ConfigurationError(f"--config {path}: there is no setting {name!r}.{did_you_mean(name, known)}")
        if not inner or value is None or (isinstance(value, str) and Path(value).is_file()):
            continue
        if not isinstance(value, Mapping):
            raise ConfigurationError(
                f"--config {path}: {name} is {_shown(value)}, but {name} is a group; put settings under it, "
                f"such as {inner[0].removeprefix(f'{name}.')}."
            )
        _check_group(path, f"{name}.", value, known)


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value)[:60]
