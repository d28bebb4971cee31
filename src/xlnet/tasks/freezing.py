"""Train less than everything: frozen lower layers."""

from __future__ import annotations

from xlnet.errors import ConfigurationError
from xlnet.model import PretrainedModel


def freeze_layers(model: PretrainedModel, count: int) -> None:
    """Stop training of the embedding and the lowest ``count`` layers; -1 is all of them, 0 is nothing.

    No gradient is computed below the lowest layer that trains, which saves time and memory.

    Raises:
        ConfigurationError: more layers than there are.
    """
    layers = model.config.n_layer
    if count == 0:
        return
    if count > layers:
        raise ConfigurationError(f"frozen_layers={count}, but the model has {layers} layers; -1 freezes all of them.")
    frozen = layers if count < 0 else count
    encoder = model.get_submodule("encoder")
    encoder.get_submodule("word_embedding").requires_grad_(False)
    for number in range(frozen):
        encoder.get_submodule(f"layers.{number}").requires_grad_(False)
        if model.config.untie_r:
            encoder.get_submodule(f"attention_biases.{number}").requires_grad_(False)
    if frozen == layers and not model.config.untie_r:
        encoder.get_submodule("attention_biases").requires_grad_(False)
