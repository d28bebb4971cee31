"""Recipes: settings of real runs, as YAML files that travel with the package."""

from __future__ import annotations

from pathlib import Path

from xlnet.errors import ConfigurationError, did_you_mean

_PLACES = (Path(__file__).parents[1] / "recipes", Path(__file__).parents[3] / "recipes")


def recipes() -> dict[str, Path]:
    """Name of each recipe and its file; those of `xlnet finetune` are called ``finetune/...``."""
    for place in _PLACES:
        if place.is_dir():
            return {
                path.relative_to(place).with_suffix("").as_posix(): path
                for path in sorted(place.rglob("*.yaml"), key=lambda path: (len(path.parts), path))
            }
    return {}


def find_recipe(name: str) -> Path:
    """The YAML file a user means: a path that exists, or the name of a recipe.

    Raises:
        ConfigurationError: neither is there; names the recipes.
    """
    path = Path(name)
    if path.is_file():
        return path
    known = recipes()
    if name in known:
        return known[name]
    raise ConfigurationError(
        f"--config {name!r} is neither a file nor a recipe ({', '.join(known) or 'none installed'})."
        + did_you_mean(name, known)
    )
