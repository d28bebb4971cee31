"""Every backend against the reference: outputs, all gradients, blind rows, leaks, dropout, seeds."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_cases import Case
from test_model_golden import test_content_stream as content_stream
from test_model_golden import test_two_stream_pretraining as two_stream_pretraining
from torch import Tensor

from xlnet.configuration import XLNetConfig
from xlnet.errors import ConfigurationError
from xlnet.model import Memory, XLNetLMHeadModel, XLNetModel, attention, attention_compiled, tiles
from xlnet.model.attention import BACKENDS, choose_backend, reference_attention
from xlnet.model.attention_inputs import AttentionInputs
from xlnet.model.geometry import Geometry
from xlnet.model.layout import lay_out
from xlnet.model.positions import position_table

DRAWS = 8
FAST = [name for name in BACKENDS if name != "reference"]
DROPS_WEIGHTS = [name for name in BACKENDS if name != "flex"]  # what flex does instead: test_model_flex.py
BIASES = ("content_bias", "position_bias", "segment_bias", "segment_embedding")
TENSORS = ("query", "key", "value", "position_key", *BIASES)


@dataclass(frozen=True)
class Situation:
    """One way of using attention; every batch has unlike rows."""

    length: int = 11
    batch: int = 3
    memory: int = 0
    targets: int = 0
    segments: bool = False
    padding: str = ""
    direction: bool = False
    clamp: int = -1
    uni: bool = False
    same_length: bool = False
    visible: bool = False
    order: bool = True
    position_ids: bool = False
    heads: int = 3
    size: int = 5

    def geometry(self) -> Geometry:
        """Rows and keys as the encoder lays them out."""
        b, n = self.batch, self.length
        config = XLNetConfig(
            attn_type="uni" if self.uni else "bi", same_length=self.same_length, clamp_len=self.clamp,
            n_layer=1, d_model=6, mem_len=self.memory,
        )  # fmt: skip
        lengths = torch.tensor([n, max(1, n - 3), max(1, n // 2)] * b)[:b]
        mask = None
        if self.padding:
            mask = torch.arange(n)[None] < lengths[:, None]
            mask = mask if self.padding == "right" else mask.flip(1)
        memory = None
        if self.memory:
            valid = torch.arange(self.memory)[None] >= torch.tensor([0, self.memory, self.memory // 2] * b)[:b, None]
            memory = Memory(torch.zeros(1, b, self.memory, 6), valid, torch.ones(b, dtype=torch.int64))
        orders = torch.stack([torch.randperm(n) for _ in range(b)]) if self.order and not self.visible else None
        targets = None
        if self.targets:
            targets = torch.stack([torch.randperm(n)[: self.targets] for _ in range(b)])
            targets[0, -1] = -1
        return lay_out(
            config,
            torch.zeros(b, n, dtype=torch.int64),
            attention_mask=mask,
            token_type_ids=(torch.arange(n) > n // 2).long().expand(b, n) if self.segments else None,
            memory=memory,
            order=orders,
            visible=torch.rand(b, n, n) < 0.4 if self.visible else None,
            target_positions=targets,
            direction=torch.tensor([1, -1, 1] * b)[:b] if self.direction else None,
            position_ids=torch.randint(0, 2 * n, (b, n)) if self.position_ids else None,
        )

    def inputs(self, geometry: Geometry | None = None) -> AttentionInputs:
        """Random float64 tensors around that geometry."""
        geometry = geometry or self.geometry()
        low, high = geometry.lowest_distance, geometry.highest_distance
        rows, keys = geometry.rows.own_key.shape[0], geometry.keys.position.shape[1]
        heads = (self.heads, self.size)
        projection = torch.randn(6, self.heads * self.size, dtype=torch.float64)
        table = position_table(low, high, 6, torch.float64, torch.device("cpu")) @ projection
        return AttentionInputs(
            query=torch.randn(self.batch, rows, *heads, dtype=torch.float64),
            key=torch.randn(self.batch, keys, *heads, dtype=torch.float64),
            value=torch.randn(self.batch, keys, *heads, dtype=torch.float64),
            position_key=table.reshape(-1, *heads),
            content_bias=torch.randn(heads, dtype=torch.float64),
            position_bias=torch.randn(heads, dtype=torch.float64),
            segment_bias=torch.randn(heads, dtype=torch.float64),
            segment_embedding=torch.randn(2, *heads, dtype=torch.float64),
            geometry=geometry,
        )

    def flat(self) -> AttentionInputs:
        """All scores equal, and values that show the weights themselves (size of a head = number of keys)."""
        inputs = self.inputs()
        silent = {name: torch.zeros_like(getattr(inputs, name)) for name in TENSORS}
        silent["value"] = torch.eye(self.size).double()[:, None].expand_as(inputs.value).contiguous()
        return dataclasses.replace(inputs, **silent)


SITUATIONS = {
    "plain": Situation(order=False),
    "one token": Situation(length=1, order=False),
    "order": Situation(),
    "two streams": Situation(targets=4),
    "pretraining": Situation(length=13, memory=9, targets=5, segments=True, direction=True),
    "all predicted": Situation(length=12, targets=12, memory=5, direction=True),
    "clamped": Situation(memory=7, targets=3, clamp=4, direction=True, segments=True),
    "padded left": Situation(padding="left", segments=True, order=False),
    "padded right with memory": Situation(padding="right", memory=6, targets=3),
    "padded left with memory": Situation(padding="left", memory=6, segments=True, order=False),
    "left to right": Situation(uni=True, order=False, memory=4),
    "same length": Situation(uni=True, order=False, memory=4, same_length=True),
    "explicit": Situation(visible=True, targets=6, segments=True),
    "explicit with memory": Situation(visible=True, targets=6, memory=3, direction=True),
    "own positions": Situation(position_ids=True, targets=3),
    "one row": Situation(batch=1, targets=1, length=17),
}


def run(backend: Any, inputs: AttentionInputs, dtype: torch.dtype, upstream: Tensor) -> dict[str, Tensor]:
    """Output and gradients in float64, computed in ``dtype``."""
    leaves = {name: getattr(inputs, name).detach().to(dtype, copy=True).requires_grad_() for name in TENSORS}
    out = backend(dataclasses.replace(inputs, **leaves))
    assert out.dtype == dtype
    out.backward(upstream.to(dtype))
    found = {name: leaf.grad for name, leaf in leaves.items()}
    return {"out": out.detach().double(), **{n: g.double() for n, g in found.items() if g is not None}}


def errors_are_as_small(backend: Any, situation: Situation, draws: int = DRAWS) -> None:
    """In float64 equal to rounding; in float32 and bfloat16 with at most twice the reference's own error."""
    torch.manual_seed(1)
    geometry = situation.geometry()
    squares: dict[tuple[torch.dtype, str], Tensor] = {}
    largest: dict[str, float] = {}
    for draw in range(draws):
        inputs = situation.inputs(geometry)
        upstream = torch.randn(inputs.query.shape, dtype=torch.float64)
        exact = run(reference_attention, inputs, torch.float64, upstream)
        if draw == 0:
            largest = {name: float(value.norm()) for name, value in exact.items()}
            found = run(backend, inputs, torch.float64, upstream)
            for name, value in exact.items():
                torch.testing.assert_close(found[name], value, rtol=1e-11, atol=1e-11, msg=f"{name} in float64")
        for dtype in (torch.float32, torch.bfloat16) if draw < 2 else (torch.float32,):
            ours = run(backend, inputs, dtype, upstream)
            theirs = run(reference_attention, inputs, dtype, upstream)
            for name, value in exact.items():
                both = torch.stack([(ours[name] - value).square().sum(), (theirs[name] - value).square().sum()])
                squares[dtype, name] = squares.get((dtype, name), torch.zeros(2)) + both
    for dtype in (torch.float32, torch.bfloat16):
        for names in [(name,) for name in largest if name not in BIASES] + [BIASES]:
            # Some gradients are zero in exact arithmetic; their noise is judged beside the others. Those of the biases
            # are few numbers, sums that nearly cancel: their errors are compared together.
            our, their = sum(squares[dtype, name] for name in names if name in largest).sqrt().tolist()
            noise = torch.finfo(dtype).eps * max(largest[name] for name in (*names, "value") if name in largest)
            assert our <= max(2 * their, noise * draws**0.5), f"{names} in {dtype}"


@pytest.mark.parametrize(("tile_rows", "tile_entries"), [(3, 60), (3, 10_000), (128, 60), (128, 400)])
@pytest.mark.parametrize("situation", SITUATIONS.values(), ids=SITUATIONS.keys())
@pytest.mark.parametrize("backend", FAST)
def test_equals_the_reference(
    backend: str, situation: Situation, tile_rows: int, tile_entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "TILE_ROWS", tile_rows)
    monkeypatch.setattr(tiles, "TILE_ENTRIES", tile_entries)
    monkeypatch.setattr(attention_compiled, "tile_rows", lambda keys: tile_rows)
    errors_are_as_small(BACKENDS[backend], situation)


@pytest.mark.parametrize("backend", FAST)
def test_rows_that_see_nothing(backend: str) -> None:
    """Zero output, zero gradient, and nothing that is not a number, however large the hidden scores are."""
    torch.manual_seed(2)
    inputs = Situation(targets=4, segments=True).inputs()
    first = inputs.geometry.rows.sees[1, -1] = torch.iinfo(torch.int64).min
    assert first < 0
    inputs = dataclasses.replace(inputs, key=inputs.key * 1e4)
    query = inputs.query.requires_grad_()
    out = BACKENDS[backend](inputs)
    out.sum().backward()
    assert out[1, -1].abs().max() == 0
    assert query.grad[1, -1].abs().max() == 0
    assert torch.isfinite(query.grad).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_leak(backend: str) -> None:
    """A target's loss does not depend on its own token, nor on any later one in the order, exactly."""
    torch.manual_seed(3)
    config = XLNetConfig(
        vocab_size=29, n_layer=3, d_model=12, n_head=2, d_head=6, d_inner=24, dropout=0.0, dropatt=0.0,
        attention_backend=backend,
    )  # fmt: skip
    model = XLNetModel(config).double()
    order = torch.stack([torch.randperm(9) for _ in range(2)])
    ids = torch.randint(0, 29, (2, 9))
    places = torch.arange(9).expand(2, 9)
    for place in range(9):
        embedded: list[Tensor] = []
        hook = model.word_embedding.register_forward_hook(lambda _m, _i, out, e=embedded: e.append(out))
        out = model(ids, order=order, target_positions=places)
        hook.remove()
        (gradient,) = torch.autograd.grad(out.query[:, place].square().sum(), embedded[0])
        dependent = gradient.abs().amax(dim=-1) > 0
        for row in range(2):
            earlier = order[row] < order[row, place]
            assert torch.equal(dependent[row], earlier)


def tiny(backend: str, **changes: Any) -> XLNetLMHeadModel:
    """A small model in training mode with dropout everywhere that the backend has it."""
    torch.manual_seed(4)
    config = XLNetConfig(
        vocab_size=31, n_layer=2, d_model=16, n_head=2, d_head=6, d_inner=24, mem_len=6, dropout=0.2, dropatt=0.3,
        attention_backend=backend, initializer_range=0.3,
    )  # fmt: skip
    if backend not in DROPS_WEIGHTS:
        config = config.replace(dropatt=0.0)
    return XLNetLMHeadModel(config.replace(**changes)).train()


def losses_and_gradients(model: XLNetLMHeadModel, seed: int) -> tuple[Tensor, list[Tensor]]:
    torch.manual_seed(5)
    ids, order = torch.randint(0, 31, (2, 10)), torch.stack([torch.randperm(10) for _ in range(2)])
    targets = torch.stack([torch.randperm(10)[:4] for _ in range(2)])
    torch.manual_seed(seed)
    model.zero_grad()
    out = model(ids, labels=ids.gather(1, targets), order=order, target_positions=targets)
    out.loss.backward()
    return out.loss.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("backend", BACKENDS)
def test_seed_decides(backend: str) -> None:
    model = tiny(backend)
    loss, gradients = losses_and_gradients(model, 1)
    again, same = losses_and_gradients(model, 1)
    other, _ = losses_and_gradients(model, 2)
    assert torch.equal(loss, again)
    assert all(torch.equal(a, b) for a, b in zip(gradients, same, strict=True))
    assert not torch.equal(loss, other)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradient_checkpointing_with_dropout(backend: str) -> None:
    model = tiny(backend)
    loss, gradients = losses_and_gradients(model, 1)
    model.encoder.gradient_checkpointing = True
    again, same = losses_and_gradients(model, 1)
    assert torch.equal(loss, again)
    assert all(torch.equal(a, b) for a, b in zip(gradients, same, strict=True))


@pytest.mark.parametrize("backend", [name for name in FAST if name in DROPS_WEIGHTS])
def test_dropout_statistics(backend: str) -> None:
    """With one-hot values the output shows every weight: kept at the right rate, scaled, independent, never biased."""
    torch.manual_seed(6)
    keys, heads = 32, 2
    situation = Situation(length=keys, batch=40, heads=heads, size=keys, order=False)
    inputs = dataclasses.replace(situation.flat(), dropatt=0.3)
    out = BACKENDS[backend](inputs)  # [B, R, N, S]: probabilities after dropout, all equal before
    kept = out > 0
    rate = 77 / 256 if backend in ("tiles", "compiled") else 0.3
    assert torch.allclose(out[kept], torch.tensor(1 / keys / (1 - rate), dtype=out.dtype), rtol=1e-6)
    count = kept.numel()
    assert abs(float(kept.double().mean()) - (1 - rate)) < 4 * (rate * (1 - rate) / count) ** 0.5
    noise = kept.double() - (1 - rate)
    for dim in range(4):
        shifted = (noise.narrow(dim, 0, kept.shape[dim] - 1) * noise.narrow(dim, 1, kept.shape[dim] - 1)).mean()
        assert abs(float(shifted)) < 5 * rate * (1 - rate) / count**0.5


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("backend", BACKENDS)
def test_recorded_arrays(backend: str, dtype: torch.dtype, golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs, memories and all gradients of the official code, through every backend."""
    of_case = Case.config
    monkeypatch.setattr(Case, "config", lambda case, **changes: of_case(case, attention_backend=backend, **changes))
    two_stream_pretraining(golden, "b1_pretrain_A", dtype)
    content_stream(golden, "a2_content_B", dtype)


@pytest.mark.parametrize("compiler", [True, False])
def test_automatic_choice_for_millions_of_scores(compiler: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "can_compile", lambda: compiler)
    many = Situation(length=800, batch=3).inputs()
    assert choose_backend("auto", many) is BACKENDS["compiled" if compiler else "tiles"]
    if not compiler:
        with pytest.raises(ConfigurationError, match="needs Linux and a C compiler"):
            choose_backend("compiled", many)


def test_dropout_does_not_depend_on_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are numbered over the whole call, so any cut draws the same."""
    torch.manual_seed(3)
    inputs = dataclasses.replace(Situation(batch=5, targets=4, memory=6, direction=True).inputs(), dropatt=0.4)
    found = []
    for rows in (2, 128, 5):
        monkeypatch.setattr(attention_compiled, "tile_rows", lambda keys, rows=rows: rows)
        torch.manual_seed(4)
        found.append(BACKENDS["compiled"](inputs))
    torch.testing.assert_close(found[1], found[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found[2], found[0], rtol=1e-12, atol=1e-12)


def test_automatic_choice_and_override() -> None:
    inputs = Situation().inputs()
    assert choose_backend("auto", inputs) is reference_attention, "few scores"
    assert choose_backend("reference", inputs) is reference_attention
    assert choose_backend("flex", inputs) is BACKENDS["flex"]
    with pytest.raises(ConfigurationError, match="tensor_cores"):
        choose_backend("tensor_cores", inputs)
