"""SQuAD 1.1 and 2.0 as benchmarks: which files they have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from xlnet.tasks.datasets.benchmark import Benchmark
from xlnet.tasks.datasets.tables import find_file
from xlnet.tasks.squad.examples import SquadExample
from xlnet.tasks.squad.files import PREDICTIONS_FILE, write_squad
from xlnet.tasks.squad.reading import read_squad
from xlnet.tasks.squad.task import QuestionAnswering


@dataclass(frozen=True)
class SquadReader:
    """Reads ``train`` and ``dev`` of one version.

    Attributes:
        version: as in the names of the official files, ``1.1`` or ``2.0``.
    """

    version: str

    def __call__(self, folder: Path, split: str) -> list[SquadExample]:
        """Questions of ``train-v1.1.json`` and the like, of ``train.json``, or of a file whatever it is called.

        Raises:
            InputError: no such file, or none of SQuAD's form.
        """
        return read_squad(find_file(folder, (f"{split}-v{self.version}.json", f"{split}.json")))


def _benchmark(name: str, version: str, summary: str) -> Benchmark:
    task = QuestionAnswering(name=name, unanswerable=version == "2.0")
    return Benchmark(
        summary, task, SquadReader(version), test=("dev",), submission=(PREDICTIONS_FILE,), write=write_squad
    )


SQUAD: dict[str, Benchmark] = {
    "squad": _benchmark("squad", "1.1", "answers in a passage, SQuAD 1.1 (F1, exact match)"),
    "squad2": _benchmark("squad2", "2.0", "answers in a passage, or none: SQuAD 2.0 (F1, exact match)"),
}
