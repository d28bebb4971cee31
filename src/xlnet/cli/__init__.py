"""The command line: a dict of names, each an ordinary function; help comes from signatures and docstrings.

Only the command that is asked for is imported, so that ``xlnet --help`` answers at once.
"""

from __future__ import annotations

import codecs
import importlib
import io
import sys
from collections.abc import Sequence
from typing import NamedTuple

from xlnet import __version__
from xlnet.errors import ConfigurationError, XLNetError, did_you_mean


class Command(NamedTuple):
    """Where a command lives and what it does."""

    module: str
    summary: str
    default_config: str = ""


COMMANDS: dict[str, Command] = {
    "pretrain": Command("pretrain", "text to a pretrained model: tokenizer, corpus and training in one go", "small"),
    "tokenizer": Command("corpus", "train a SentencePiece tokenizer from text"),
    "prepare": Command("corpus", "turn text into token shards"),
    "finetune": Command("finetune", "train a model on a task: GLUE, SuperGLUE, RACE, your own files ..."),
    "evaluate": Command("evaluate", "metrics of a fine-tuned model, or held-out loss of a pretrained one"),
    "predict": Command("finetune", "labels, numbers, tags or rankings from a fine-tuned model"),
    "fill": Command("use", "fill the blanks of a text"),
    "score": Command("use", "log-probability and perplexity of texts"),
    "generate": Command("use", "continue prompts"),
    "info": Command("weights", "what a model folder is and what will load from it"),
    "convert": Command("weights", "official TensorFlow, Hugging Face and native folders to native or Hugging Face"),
    "export": Command("weights", "write ONNX graphs"),
    "bench": Command("bench", "how fast training, encoding and generation are on this machine"),
    "demo": Command("demo", "pretrain a tiny model on real text, then use it"),
}

_INTERRUPTED = 130


def overview() -> str:
    """What ``xlnet --help`` prints."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            f"xlnet {__version__}: pretrain, fine-tune and use XLNet models.",
            "",
            "usage: xlnet COMMAND [options]     (xlnet COMMAND --help explains each option)",
            "",
            *lines,
        ]
    )


def call(arguments: Sequence[str]) -> None:
    """Run one command, or raise."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return
    if arguments[0] in ("-V", "--version"):
        print(f"xlnet {__version__}")
        return
    name = arguments[0]
    if name not in COMMANDS:
        raise ConfigurationError(f"{name!r} is no command.{did_you_mean(name, COMMANDS)} See: xlnet --help")
    command = COMMANDS[name]
    module = importlib.import_module(f"xlnet.cli.{command.module}")
    from xlnet.cli.parsing import run

    run(name, getattr(module, name), list(arguments[1:]), command.default_config)


def make_printable(stream: object) -> None:
    """Let a stream take every character: results must not be lost because a locale has no letter for them.

    What is read by a program becomes UTF-8; a terminal keeps its own encoding, and shows an escape for what it lacks.
    """
    if not isinstance(stream, io.TextIOWrapper) or stream.errors != "strict":
        return
    known = codecs.lookup(stream.encoding).name.startswith("utf")
    # Half of a surrogate pair, as in the name of a file that is not UTF-8, has no form even in UTF-8.
    stream.reconfigure(
        encoding=stream.encoding if known or stream.isatty() else "utf-8",
        errors="backslashreplace",
    )


def _out_of_memory(error: BaseException) -> bool:
    """Imported late: whoever runs out of memory has torch by now, and help needs none."""
    from xlnet.training.guards import out_of_memory

    return out_of_memory(error)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point: 0 is success, 2 wrong input or usage, 1 the machine, 130 an interrupt."""
    make_printable(sys.stdout)
    try:
        call(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except XLNetError as error:
        print(f"xlnet: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("xlnet: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has left (``xlnet ... | head``); nothing is wrong, and nothing more can be said.
        sys.stderr.close()
        return 0
    except (RuntimeError, MemoryError) as error:
        if not _out_of_memory(error):
            raise
        first = (str(error).splitlines() or ["no more is known"])[0]
        print(f"xlnet: out of memory ({first}). Use a smaller batch, length or model.", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"xlnet: {error.filename or 'the system'}: {error.strerror or error}.", file=sys.stderr)
        return 1
    return 0
