"""``xlnet info``, ``xlnet convert`` and ``xlnet export``: looking at weights and carrying them elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from xlnet.checkpoints import convert as convert_checkpoint
from xlnet.checkpoints import describe
from xlnet.cli.outputs import check_folder
from xlnet.cli.progress import say
from xlnet.errors import ConfigurationError


def info(path: str, *, offline: bool = False) -> None:
    """Say what a model folder is: format, configuration, parameters, vocabulary, and what will load from it.

    Args:
        path: a native, official TensorFlow or Hugging Face folder, or a hub name
        offline: look for hub names in the cache only
    """
    print(describe(path, offline=offline))


def convert(
    source: str, target: str, *, to: Literal["native", "hf"] = "native", release_gelu: bool = False,
    overwrite: bool = False,
) -> None:  # fmt: skip
    """Rewrite a model in another format; every weight keeps its value.

    Args:
        source: a native, official TensorFlow or Hugging Face folder, or a hub name
        target: folder to write
        to: native, or hf for a folder that transformers loads
        release_gelu: read Hugging Face's gelu as the tanh form that the released weights were trained with
        overwrite: replace a model that already lies in the target folder
    """
    done = convert_checkpoint(source, target, to, release_gelu=release_gelu, overwrite=overwrite)
    for note in done.notes:
        say(f"note: {note}")
    for name in done.ignored:
        say(f"left aside: {name}")
    say(
        f"{done.source_kind} {done.head} -> {to} in {done.target}"
        + (f", with {', '.join(done.copied)}" if done.copied else "")
    )


def export(model: str, output: str, *, kind: Literal["encoder", "classifier", "language_model"] | None = None) -> None:
    """Write an ONNX graph with free batch size and length, for onnxruntime.

    Args:
        model: folder of a model, or a hub name
        output: the .onnx file to write
        kind: which graph; by default the one that belongs to the weights
    """
    if Path(output).is_dir():
        raise ConfigurationError(f"{output} is a folder; give the name of the file to write, such as {output}/x.onnx.")
    check_folder(Path(output).parent)
    from xlnet.checkpoints import read_checkpoint
    from xlnet.export import export_onnx
    from xlnet.model import model_class

    loaded = model_class("encoder" if kind == "encoder" else read_checkpoint(model).head).from_pretrained(model)
    graph = export_onnx(loaded, output, kind)
    weights = "".join(f", its weights in {file}" for file in graph.beside)
    say(f"{graph.kind} graph with inputs {', '.join(graph.inputs)} in {graph.path}{weights}")
