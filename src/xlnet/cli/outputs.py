"""Output folders, looked at before hours of work."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from xlnet.errors import ConfigurationError, MachineError
from xlnet.training.run import never_began


def check_folder(output: Path) -> None:
    """Whether a folder is there, or can be made; nothing is.

    Raises:
        ConfigurationError: it is a file, lies under one, or is a link that leads nowhere.
        MachineError: one may not write there.
    """
    for path in (output.absolute(), *output.absolute().parents):
        if path.is_dir():
            if not os.access(path, os.W_OK | os.X_OK):
                raise MachineError(f"Output to {str(output)!r}: {path} may not be written to. Choose another folder.")
            return
        if path.exists() or path.is_symlink():
            what = "a file" if path.exists() else "a link that leads nowhere"
            raise ConfigurationError(f"Output to {str(output)!r}: {path} is {what}, and a folder is needed there.")


def refuse_other_run(output: Path, resume: bool, records: Sequence[str] = ("run.json",)) -> None:
    """An output folder that holds a run needs --resume; one that ended before its first step is free.

    Args:
        output: folder of the run.
        resume: whether the run in it is to go on.
        records: files of which a run leaves one.

    Raises:
        ConfigurationError: it holds a run that is not to go on, or can be no folder.
        MachineError: it may not be written to.
    """
    check_folder(output)
    if not resume and any((output / name).exists() for name in records) and not never_began(output):
        raise ConfigurationError(
            f"--output {str(output)!r} already holds a run. Go on with it by adding --resume, or choose another folder."
        )
