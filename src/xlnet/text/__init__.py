"""Text to ids and back: symbols, normalization, the tokenizer, and training a SentencePiece model."""

from xlnet.text.encoding import BatchEncoding, Encoding, pad, truncate_pair
from xlnet.text.normalize import Normalization, NormalizedText
from xlnet.text.sentencepiece_training import train_tokenizer
from xlnet.text.tokenizer import XLNetTokenizer

__all__ = [
    "BatchEncoding",
    "Encoding",
    "Normalization",
    "NormalizedText",
    "XLNetTokenizer",
    "pad",
    "train_tokenizer",
    "truncate_pair",
]
