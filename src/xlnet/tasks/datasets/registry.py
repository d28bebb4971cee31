"""All benchmarks by name."""

from __future__ import annotations

from xlnet.errors import ConfigurationError, did_you_mean
from xlnet.tasks.datasets.benchmark import Benchmark
from xlnet.tasks.datasets.comparisons import COMPARISONS
from xlnet.tasks.datasets.glue import GLUE
from xlnet.tasks.datasets.race import RACE
from xlnet.tasks.datasets.superglue import SUPERGLUE
from xlnet.tasks.datasets.topics import TOPICS
from xlnet.tasks.squad.benchmark import SQUAD

BENCHMARKS: dict[str, Benchmark] = {**GLUE, **SUPERGLUE, **COMPARISONS, **RACE, **SQUAD, **TOPICS}


def benchmark(name: str) -> Benchmark:
    """A benchmark by its name; capitals and hyphens do not matter (``SST-2`` is ``sst2``).

    Raises:
        ConfigurationError: an unknown name.
    """
    plain = {key.replace("-", ""): value for key, value in BENCHMARKS.items()}
    found = plain.get(name.lower().replace("-", "").replace("_", ""))
    if found is None:
        raise ConfigurationError(
            f"{name!r} is no task; known are {', '.join(BENCHMARKS)}.{did_you_mean(name.lower(), BENCHMARKS)}"
        )
    return found
