"""C kernels that are built once on the user's machine: optional, kept in the user's cache folder, never required.

Every kernel has a complete form in Python beside it; where no C compiler is at hand, that form serves.
"""

from __future__ import annotations

import ctypes
import hashlib
import platform
import re
import shutil
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path

import torch

from xlnet.processor import processor

_SECONDS = 60
_OPENMP = re.compile(r"/lib(gomp|omp|iomp5)[^/]*$")
_BUILDS: dict[torch.dtype, tuple[str, ...]] = {
    torch.float32: (),
    torch.bfloat16: ("BFLOAT16",),
    torch.float64: ("DOUBLE",),
}
_FLAGS = (
    "-O3",
    "-march=native",
    "-fopenmp",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",
    "-shared",
    "-fPIC",
)


def load_compiled(name: str, source: str, definitions: tuple[str, ...] = ()) -> ctypes.CDLL | None:
    """Build C code if it was not built before, and load it.

    Args:
        name: of the library's file.
        source: C code; may use OpenMP.
        definitions: names to define for the preprocessor.

    Returns:
        The library, or None where it cannot be had: not Linux, no compiler (cc, gcc or clang), a failed build, or
        another OpenMP library than torch's.
    """
    compiler = _compiler()
    if compiler is None:
        return None
    flags = (*_FLAGS, *(f"-D{definition}" for definition in definitions))
    mark = hashlib.sha256("\0".join((source, compiler, *flags, *_tuned_for())).encode()).hexdigest()[:16]
    library = Path.home() / ".cache" / "xlnet" / f"{name}-{mark}.so"
    try:
        if not library.is_file():
            _build([compiler, *flags], source, library)
        loaded = ctypes.CDLL(str(library))
        return loaded if _shares_openmp() else None
    except (OSError, RuntimeError, subprocess.SubprocessError):
        return None


def load_kernels(name: str, dtype: torch.dtype, parts: tuple[str, ...] = ()) -> ctypes.CDLL | None:
    """The kernels of ``NAME.c`` beside this file that store in ``dtype`` (float32, bfloat16 or float64), or None.

    ``parts`` are files that come before it.
    """
    folder = files("xlnet.model")
    texts = (folder.joinpath(f"{part}.c").read_text(encoding="utf-8") for part in ("basics", *parts, name))
    source = "".join(texts)
    return load_compiled(name, source, _BUILDS[dtype])


def _compiler() -> str | None:
    if platform.system() != "Linux":
        return None
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def _build(command: list[str], source: str, library: Path) -> None:
    """Compile beside the final place, then move there, so that no half-written file is ever loaded."""
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        written, built = Path(folder) / "kernel.c", Path(folder) / "kernel.so"
        written.write_text(source, encoding="utf-8")
        full = [*command, "-o", str(built), str(written), "-lm"]
        subprocess.run(full, check=True, capture_output=True, timeout=_SECONDS)
        built.replace(library)


def _tuned_for() -> list[str]:
    """What the compiler tunes for, in words: the cache folder may be shared by unlike machines."""
    machine = processor()
    return sorted({platform.machine(), *machine.flags, *(word for model in machine.models for word in model.split())})


def has_bfloat16_products() -> bool:
    """Whether the kernels may multiply bfloat16; faster than float32 it need not be (:mod:`xlnet.processor`)."""
    return platform.system() == "Linux" and processor().multiplies_bfloat16


def has_own_products(dtype: torch.dtype) -> bool:
    """Whether ``products.c`` serves this processor, and better than the usual library, which is Intel's.

    Measured on an AMD Zen 5: 210 against 90 GFLOP/s in float32. On Intel's own processors the library does well.
    """
    if dtype == torch.bfloat16 and "avx512_bf16" not in processor().flags:
        return False
    return dtype in (torch.float32, torch.bfloat16) and processor().wide_and_not_intel


def _shares_openmp() -> bool:
    """Whether torch and a library built here use the same OpenMP: two pools of threads would fight for the cores.

    A library built here is bound to the one that bears the plain name. Copies that other packages carry for themselves
    (their names end in a hash) do no harm; one that torch carries for itself would.
    """
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    loaded = {Path(line.split()[-1]) for line in maps if _OPENMP.search(line)}
    private = {path for path in loaded if re.search(r"-[0-9a-f]{8}\b", path.name)}
    own = {path.parent.name for path in private} & {"lib", "torch.libs"}
    return len(loaded - private) == 1 and not own
