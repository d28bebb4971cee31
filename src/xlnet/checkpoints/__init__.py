"""Any folder of weights -> configuration + named arrays, and back. Knows arrays and names, no modules.

Begin with :func:`read_checkpoint`. The table of names is in ``names.py``; each format has a module of its own:
``native.py``, ``hugging_face.py``, ``tensorflow.py`` (on ``tensor_bundle.py``, which reads the files themselves).
"""

from xlnet.checkpoints.arrays import Entry, LazyTensors
from xlnet.checkpoints.converting import Conversion, convert
from xlnet.checkpoints.describing import Description, describe
from xlnet.checkpoints.hub import TOKENIZER_FILES, resolve
from xlnet.checkpoints.hugging_face import write_hugging_face
from xlnet.checkpoints.matching import Match, match, may_be_new
from xlnet.checkpoints.names import CLASS_NAMES, Head
from xlnet.checkpoints.native import write_native
from xlnet.checkpoints.reading import Checkpoint, read_checkpoint

__all__ = [
    "CLASS_NAMES",
    "TOKENIZER_FILES",
    "Checkpoint",
    "Conversion",
    "Description",
    "Entry",
    "Head",
    "LazyTensors",
    "Match",
    "convert",
    "describe",
    "match",
    "may_be_new",
    "read_checkpoint",
    "resolve",
    "write_hugging_face",
    "write_native",
]
