"""FlexAttention: the framework's own forms of it get the same numbers from our rules, and which form serves when."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from test_model_backends import SITUATIONS, TENSORS, Situation, run
from torch import Tensor
from torch.nn.attention import flex_attention as framework

from xlnet.configuration import XLNetConfig
from xlnet.errors import ConfigurationError
from xlnet.model import XLNetLMHeadModel, attention_flex
from xlnet.model.attention import choose_backend, reference_attention
from xlnet.model.attention_flex import flexible_attention
from xlnet.model.attention_inputs import AttentionInputs


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The framework's uncompiled form for every call. Its public door refuses gradients on CPU, what lies behind it has
    them, and they are made from the rules as the kernel's are."""
    if not hasattr(framework, "_validate_device"):
        pytest.skip("this torch asks for its devices elsewhere")
    monkeypatch.setattr(framework, "_validate_device", lambda *tensors: None)
    monkeypatch.setattr(attention_flex, "_kernel", lambda inputs: framework.flex_attention)


@pytest.mark.slow
@pytest.mark.usefixtures("uncompiled")
@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("situation", SITUATIONS.values(), ids=SITUATIONS.keys())
def test_the_framework_differentiates_the_rules(situation: Situation) -> None:
    """Output and the gradients of query, keys, values, positions, biases and segments, in float64."""
    torch.manual_seed(1)
    inputs = situation.inputs()
    upstream = torch.randn(inputs.query.shape, dtype=torch.float64)
    exact = run(reference_attention, inputs, torch.float64, upstream)
    found = run(flexible_attention, inputs, torch.float64, upstream)
    for name, value in exact.items():
        torch.testing.assert_close(found[name], value, rtol=1e-11, atol=1e-11, msg=name)


@pytest.mark.slow
@pytest.mark.usefixtures("uncompiled")
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_the_framework_gives_blind_rows_zeros() -> None:
    inputs = Situation(targets=4, segments=True).inputs()
    assert inputs.geometry.rows.sees is not None
    inputs.geometry.rows.sees[1, -1] = torch.iinfo(torch.int64).min
    found = run(flexible_attention, inputs, torch.float64, torch.ones_like(inputs.query))
    assert found["out"][1, -1].abs().max() == 0
    assert found["query"][1, -1].abs().max() == 0
    assert all(bool(torch.isfinite(value).all()) for value in found.values())


def wide(name: str) -> AttentionInputs:
    """float32, and heads wide enough for the kernel."""
    torch.manual_seed(2)
    inputs = dataclasses.replace(SITUATIONS[name], size=16).inputs()
    return dataclasses.replace(inputs, **{tensor: getattr(inputs, tensor).float() for tensor in TENSORS})


@pytest.mark.slow
def test_a_compiler_on_cpu_is_given_the_written_out_form() -> None:
    """In one graph, with and without gradients."""
    graphs: list[str] = []

    def keep(graph: torch.fx.GraphModule, examples: list[Tensor]) -> Callable[..., object]:
        graphs.append(str(graph.graph))
        return graph.forward

    inputs = wide("pretraining")
    compiled = torch.compile(flexible_attention, backend=keep, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(inputs), reference_attention(inputs), rtol=1e-5, atol=1e-5)
    learning = dataclasses.replace(inputs, query=inputs.query.clone().requires_grad_())
    torch.testing.assert_close(compiled(learning), reference_attention(inputs), rtol=1e-5, atol=1e-5)
    assert graphs and not any("flex_attention" in graph for graph in graphs)


def test_training_with_dropout_of_weights_is_refused() -> None:
    """In training only: the same model predicts."""
    config = XLNetConfig(
        vocab_size=31, n_layer=1, d_model=16, n_head=2, d_head=6, d_inner=24, dropatt=0.3, attention_backend="flex"
    )
    model = XLNetLMHeadModel(config).train()
    ids = torch.randint(0, 31, (2, 5))
    with pytest.raises(ConfigurationError, match=r"dropatt=0\.3 in training.*set dropatt to 0"):
        model(ids)
    model.eval()
    assert torch.isfinite(model(ids).logits).all()


def test_only_who_asks_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = wide("pretraining")
    assert choose_backend("flex", inputs) is flexible_attention
    for compiling in (False, True):
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda compiling=compiling: compiling)
        assert choose_backend("auto", inputs) is not flexible_attention
        assert attention_flex._kernel(inputs) is None, "no CUDA"
