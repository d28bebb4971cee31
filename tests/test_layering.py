"""Imports go down only: a module imports from lower floors and from its own folder (docs/architecture.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import xlnet

PACKAGE = Path(xlnet.__file__).parent
FLOOR = {
    "errors": 0, "configuration": 0, "batch": 0, "checkpoints": 0, "processor": 0, "float32": 0,
    "text": 1, "model": 1, "training": 1,
    "pretraining": 2, "tasks": 2, "generation": 2, "export": 2,
    "cli": 3, "__init__": 4, "__main__": 4,
}  # fmt: skip
MODULES = sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[tuple[str, int]]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} uses a relative import"
            names = [node.module or ""]
            if node.module == "xlnet":
                names = [f"xlnet.{alias.name}" for alias in node.names if alias.name != "__version__"]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "xlnet":
                found.add((parts[1] if len(parts) > 1 else "__init__", node.lineno))
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down_only(path: Path) -> None:
    here = room(path)
    for other, line in imported_rooms(path):
        if other == here:
            continue
        # The ground floor's files may use each other; `test_ground_floor_has_no_cycles` watches them.
        below = FLOOR[other] < FLOOR[here] or FLOOR[other] == FLOOR[here] == 0
        assert below, f"{path.relative_to(PACKAGE)}:{line} imports xlnet.{other}, which is not below xlnet.{here}"


def test_ground_floor_has_no_cycles() -> None:
    ground = [name for name, floor in FLOOR.items() if floor == 0]
    edges = {name: set() for name in ground}
    for path in MODULES:
        if room(path) in edges:
            edges[room(path)] |= {other for other, _ in imported_rooms(path)} - {room(path)}
    while edges:
        free = [name for name, needs in edges.items() if not needs & edges.keys()]
        assert free, f"the ground floor's imports form a cycle among {sorted(edges)}"
        for name in free:
            del edges[name]
