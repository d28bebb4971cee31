"""XLNet: permutation language modelling, from a text file to a model that fills, scores and continues text."""

__version__ = "0.1.0"
