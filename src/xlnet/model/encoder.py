"""The XLNet encoder: one content stream, and on demand a query stream that predicts without seeing its own token.

    out = XLNetModel(config)(input_ids, order=order, target_positions=targets)

Both streams are rows of one tensor and share every weight (XLNet §2.3, "two-stream self-attention").
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from xlnet.batch import check_ids
from xlnet.configuration import XLNetConfig
from xlnet.errors import InputError
from xlnet.model.dropout import dropout
from xlnet.model.geometry import Geometry
from xlnet.model.initialization import initialize
from xlnet.model.layer import AttentionBiases, Layer
from xlnet.model.layout import check_inputs, lay_out
from xlnet.model.memory import Memory, remember
from xlnet.model.outputs import EncoderOutput
from xlnet.model.packing import Packing, plan_packing
from xlnet.model.positions import position_table
from xlnet.model.pretrained import PretrainedModel
from xlnet.model.tracing import being_traced


class XLNetModel(PretrainedModel):
    """Token ids to contextual states.

    ``gradient_checkpointing`` (False) recomputes each layer in the backward pass: less memory, the same gradients.
    """

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__(config)
        self.word_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.mask_embedding = nn.Parameter(torch.empty(config.d_model))
        sets = config.n_layer if config.untie_r else 1
        self.attention_biases = nn.ModuleList(AttentionBiases(config) for _ in range(sets))
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.n_layer))
        self.gradient_checkpointing = False
        initialize(self, config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        memory: Memory | None = None,
        order: Tensor | None = None,
        visible: Tensor | None = None,
        target_positions: Tensor | None = None,
        direction: Tensor | None = None,
        position_ids: Tensor | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> EncoderOutput:
        """Encode a batch.

        Args:
            input_ids: ``[B, L]`` integers below ``vocab_size``; the true tokens, also at the targets.
            attention_mask: ``[B, L]`` of any dtype, non-zero for real tokens; padding may stand on either side.
                States at padding mean nothing, and are zero where the batch is packed (``pack_padding``).
            token_type_ids: ``[B, L]`` segment ids; only equality matters, and memory counts as segment 0.
            memory: states of earlier segments of the same rows.
            order: ``[B, L]`` int64, the factorization order: content i sees j iff ``order[j] <= order[i]`` (or j is i),
                a query at i sees j iff ``order[j] < order[i]``. None: everybody sees everybody.
            visible: ``[B, L, L]`` bool instead of ``order``: a query sees exactly this, content also itself.
            target_positions: ``[B, P]`` int64 positions to predict, -1 for none; starts the query stream.
            direction: ``[B]`` int64, +1 forward, -1 for rows of reversed text (the sign of distances turns).
            position_ids: ``[B, L]`` int64 instead of the positions counted from the first real token.
            output_hidden_states: return the states after every layer, of both streams.
            output_attentions: return the probabilities of every layer (reference path).

        Returns:
            An :class:`EncoderOutput`. With ``target_positions`` the content states of the last layer are computed only
            if hidden states are asked for: nobody else reads them.

        Raises:
            InputError: ids without an embedding (looked for on CPU only), shapes that do not belong together, targets
                without order, a memory of other rows.
        """
        per_token = {"attention_mask": attention_mask, "token_type_ids": token_type_ids, "position_ids": position_ids}
        check_inputs(input_ids, order, visible, target_positions, per_token)
        batch = input_ids.shape[0]
        if direction is not None and direction.shape != (batch,):
            raise InputError(f"direction has shape {list(direction.shape)}; it must be [{batch}], one sign a row.")
        if memory is not None:
            memory.check(self.config, batch, direction)
        if attention_mask is not None:
            attention_mask = attention_mask > 0 if attention_mask.dtype != torch.bool else attention_mask
        others = (memory, order, visible, target_positions, direction, position_ids)
        plain = all(given is None for given in others) and not (output_hidden_states or output_attentions)
        packing = self.plan_packing(attention_mask) if plain and attention_mask is not None else None
        if packing is not None:
            input_ids, attention_mask, visible = packing.pack(input_ids), None, packing.visible
            token_type_ids = None if token_type_ids is None else packing.pack(token_type_ids)
        geometry = lay_out(
            self.config,
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            memory=memory,
            order=order,
            visible=visible,
            target_positions=target_positions,
            direction=direction,
            position_ids=position_ids,
            longest=None if packing is None else packing.longest,
        )
        if input_ids.device.type == "cpu" and not being_traced():
            check_ids(input_ids, self.config.vocab_size)  # on a GPU the check would wait for the device
        content = dropout(self.word_embedding(input_ids), self.config.dropout, self.training)
        query = None
        if target_positions is not None:
            masks = self.mask_embedding.expand(*target_positions.shape, -1)
            query = dropout(masks, self.config.dropout, self.training)
        out, inputs = self.run_layers(content, query, geometry, memory, output_hidden_states, output_attentions)
        if out.query is not None and target_positions is not None:
            out.query = out.query * (target_positions >= 0)[..., None]
        if packing is not None and out.content is not None:
            out.content = packing.unpack(out.content)
        if self.config.mem_len:
            out.memory = remember(torch.stack(inputs), memory, attention_mask, direction, self.config)
        return out

    def plan_packing(self, attention_mask: Tensor) -> Packing | None:
        """How a padded batch may be computed as packed rows (same states, zeros at padding), None where it may not."""
        if not self.config.pack_padding or self.config.mem_len or attention_mask.device.type != "cpu" or being_traced():
            return None
        # Dense layers: 24 D^2 operations a position (an inner layer of 4 D); attention: about 6 D for a pair.
        return plan_packing(attention_mask, 4.0 * self.config.d_model)

    def run_layers(
        self,
        content: Tensor,
        query: Tensor | None,
        geometry: Geometry,
        memory: Memory | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> tuple[EncoderOutput, list[Tensor]]:
        """All layers on given initial states: content ``[B, L, D]`` and query ``[B, P, D]`` or None.

        Returns:
            The output (without memory), and the content states that entered each layer.
        """
        config, length = self.config, content.shape[1]
        table = position_table(
            geometry.lowest_distance, geometry.highest_distance, config.d_model, content.dtype, content.device
        )
        # One draw for all sequences of the batch (the release draws for each): the table stays one small matrix.
        table = dropout(table, config.dropout, self.training)
        rows = content if query is None else torch.cat([content, query], dim=1)
        inputs: list[Tensor] = []
        states, probabilities = [rows], []
        for number, layer in enumerate(self.layers):
            current = rows[:, :length]
            inputs.append(current)
            keys = current
            if memory is not None:
                keys = torch.cat([memory.states[number].to(current.dtype), current], dim=1)
            last = number == config.n_layer - 1
            if last and query is not None and not output_hidden_states and not output_attentions:
                rows, geometry, length = rows[:, length:], geometry.drop_rows(length), 0
            biases = self.attention_biases[number if config.untie_r else 0]
            arguments = (rows, keys, table, biases, geometry, output_attentions)
            if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
                rows, weights = checkpoint(layer, *arguments, use_reentrant=False)
            else:
                rows, weights = layer(*arguments)
            states.append(rows)
            probabilities.append(weights)
        rows = dropout(rows, config.dropout, self.training)
        out = EncoderOutput(
            content=rows[:, :length] if length else None,
            query=rows[:, length:] if query is not None else None,
        )
        if output_hidden_states:
            out.hidden_states = tuple(state[:, :length] for state in states)
            if query is not None:
                out.query_hidden_states = tuple(state[:, length:] for state in states)
        if output_attentions:
            out.attentions = tuple(probabilities)
        return out, inputs


def one_stream_encoder(config: XLNetConfig) -> XLNetModel:
    """An encoder for heads that never run the query stream: its mask embedding is kept but not trained, so that data
    parallel training does not wait for a gradient that never comes."""
    encoder = XLNetModel(config)
    encoder.mask_embedding.requires_grad_(False)
    return encoder
