"""One any-order engine: score, fill and generate with a model and its tokenizer.

Read in this order: orders, plan, engine, sampling, methods, then score, fill, generate.
"""

from xlnet.generation.beam import BeamConfig, Hypothesis, beam_search
from xlnet.generation.fill import Alternative, BlankConstraint, FilledBlank, Filling, fill, fill_ids
from xlnet.generation.generate import Generation, GenerationConfig, generate
from xlnet.generation.lengths import LengthPrior
from xlnet.generation.long_text import (
    LongScore,
    WalkConfig,
    loss_by_memory_length,
    score_long_text,
    walk_log_probs,
    walk_states,
)
from xlnet.generation.plan import FillPlan
from xlnet.generation.sampling import GREEDY, SamplingConfig
from xlnet.generation.score import LogProbability, TextScore, log_prob, score

__all__ = [
    "GREEDY",
    "Alternative",
    "BeamConfig",
    "BlankConstraint",
    "FillPlan",
    "FilledBlank",
    "Filling",
    "Generation",
    "GenerationConfig",
    "Hypothesis",
    "LengthPrior",
    "LogProbability",
    "LongScore",
    "SamplingConfig",
    "TextScore",
    "WalkConfig",
    "beam_search",
    "fill",
    "fill_ids",
    "generate",
    "log_prob",
    "loss_by_memory_length",
    "score",
    "score_long_text",
    "walk_log_probs",
    "walk_states",
]
