"""Pretraining from objects: a model, a tokenizer and a stream of batches in, a trained model in a folder out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from xlnet.configuration import XLNetConfig
from xlnet.errors import ConfigurationError, InputError
from xlnet.model import XLNetLMHeadModel
from xlnet.pretraining.evaluate import HeldOutLoss
from xlnet.pretraining.fixed_batches import FixedBatches
from xlnet.pretraining.objective import PermutationObjective
from xlnet.pretraining.stream import PermutationStream
from xlnet.pretraining.stream_config import StreamConfig
from xlnet.text import XLNetTokenizer
from xlnet.training.config import FitConfig
from xlnet.training.loop import FitResult, fit
from xlnet.training.report import Reporter


@dataclass(frozen=True)
class PretrainResult:
    """A finished run.

    Attributes:
        model: the trained model, in eval mode.
        fit: how the run ended.
        folder: ``model/`` inside the output, with weights, configuration and tokenizer.
    """

    model: XLNetLMHeadModel
    fit: FitResult
    folder: Path


def check_shapes(config: XLNetConfig, text: StreamConfig) -> None:
    """Refuse model and stream settings that contradict each other, before any work.

    Raises:
        ConfigurationError: naming both keys, their values and the remedy.
    """
    if config.attn_type == "uni" and text.order_kind != "left_to_right":
        raise ConfigurationError(
            f"attn_type='uni' lets no token look to its right, which contradicts order_kind={text.order_kind!r}. "
            "Use attn_type='bi', or order_kind='left_to_right'."
        )
    if config.attn_type == "uni" and text.any_subset.share:
        raise ConfigurationError(
            f"attn_type='uni' lets no token look to its right, which contradicts any_subset.share="
            f"{text.any_subset.share}: what stands to the right of a blank is part of its question. "
            "Use attn_type='bi', or any_subset.share=0."
        )
    if config.mem_len == 0:
        return
    if text.reuse_len == 0:
        raise ConfigurationError(
            f"mem_len={config.mem_len} needs reuse_len above 0: memory continues the reused part of a sequence. "
            "Set stream.reuse_len, or mem_len=0."
        )
    if config.reuse_len != text.reuse_len:
        raise ConfigurationError(
            f"The model remembers reuse_len={config.reuse_len} positions of a segment, but the stream advances by "
            f"reuse_len={text.reuse_len}: what is remembered would not end where the next segment starts. "
            "Give both the same value."
        )


def check_settings(model: XLNetLMHeadModel, tokenizer: XLNetTokenizer, stream: PermutationStream) -> None:
    """:func:`check_shapes`, and whether the tokenizer fits the model.

    Raises:
        ConfigurationError: settings that contradict each other.
        InputError: a tokenizer that does not fit the model.
    """
    check_shapes(model.config, stream.config)
    if tokenizer.vocab_size > model.config.vocab_size:
        raise InputError(
            f"The tokenizer has {tokenizer.vocab_size} pieces, but the model only vocab_size="
            f"{model.config.vocab_size}: ids above it have no embedding. Use the tokenizer the model was made with, "
            "or set vocab_size."
        )


def pretrain(
    model: XLNetLMHeadModel,
    tokenizer: XLNetTokenizer,
    stream: PermutationStream,
    config: FitConfig,
    output: str | Path,
    *,
    held_out: FixedBatches | None = None,
    any_subset_held_out: FixedBatches | None = None,
    reporter: Reporter | None = None,
    attended_zeros: bool = False,
) -> PretrainResult:
    """Train a language model by permutation language modelling (XLNet §2).

    Args:
        model: fresh or loaded; trained in place.
        tokenizer: saved beside the weights, and checked against the model.
        stream: batches; its ``micro_batches`` must equal ``config.accumulation``.
        config: of the training loop.
        output: folder of the run; see :func:`xlnet.training.loop.fit` for what it will hold.
        held_out: fixed batches of text that is not trained on; their loss is reported as ``loss``.
        any_subset_held_out: any-subset batches of the same; beside ``held_out``, reported as ``any_subset_loss``.
        reporter: receives progress.
        attended_zeros: the release's initial memory, see :class:`PermutationObjective`.

    Raises:
        ConfigurationError, InputError, TrainingError, MachineError, Interrupted: as the loop and the checks say.
    """
    check_settings(model, tokenizer, stream)
    if stream.config.micro_batches != config.accumulation:
        raise ConfigurationError(
            f"accumulation={config.accumulation} differs from the stream's micro_batches="
            f"{stream.config.micro_batches}: each micro-batch of a step has lanes of its own. Give both the same value."
        )
    objective = PermutationObjective(model.config, attended_zeros)
    evaluate = None if held_out is None else HeldOutLoss(held_out, model.config, any_subset_held_out)

    def save_model(folder: Path) -> None:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    try:
        result = fit(
            model, objective, stream, config, output, evaluate=evaluate, reporter=reporter, save_model=save_model
        )
    finally:
        stream.close()
    return PretrainResult(model.eval(), result, Path(output) / "model")
