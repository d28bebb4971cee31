"""The release's updates against recorded ones, parameter groups, clipping, and resumption of optimizer state."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from xlnet.errors import ConfigurationError
from xlnet.training.optimizer import (
    OptimizerConfig,
    build_optimizer,
    clip_gradients,
    gradients_of,
    native_decays,
    native_layers,
    parameter_groups,
    released_decays,
    released_layer_of,
    scale_gradients,
    set_learning_rate,
)

CASES = ["e1_adamw", "e2_adam", "e3_adam_layerdecay", "e5_adam_layerdecay_finetune_gather", "e6_adam_noclip_eps8"]


def native_name(name: str) -> str:
    """The names of the release's variables as this library would spell them (stacked attention biases stay one)."""
    name = name.removeprefix("model/").removeprefix("transformer/")
    for old, new in (
        (r"^layer_(\d+)/", r"layers.\1."),
        (r"^r_\w_bias$", "attention_biases.\\g<0>"),
        (r"^seg_embed$", "layers.0.attention.segment_embedding"),
        (r"^word_embedding/lookup_table$", "word_embedding.weight"),
        (r"^mask_emb/mask_emb$", "mask_embedding"),
        (r"LayerNorm/gamma$", "norm.weight"),
        (r"LayerNorm/beta$", "norm.bias"),
        (r"kernel$", "weight"),
    ):
        name = re.sub(old, new, name)
    return name.replace("attention_biases.r_", "attention_biases.0.r_").replace("/", ".")


class Named:
    """Stands for a module: just named parameters."""

    def __init__(self, parameters: dict[str, nn.Parameter]) -> None:
        self.parameters = parameters

    def named_parameters(self):
        return self.parameters.items()


def replay(path: Path, rate_of_step: int = 0) -> float:
    """Feed the recorded gradients to our optimizer; the largest deviation of any parameter after any step.

    ``rate_of_step`` 1 takes the learning rate of the step after.
    """
    recorded = np.load(path)
    options = json.loads(str(recorded["meta/config"]))["opt"]
    variables = [key.removeprefix("var/") for key in recorded.files if key.startswith("var/")]
    model = Named({native_name(v): nn.Parameter(torch.from_numpy(recorded[f"var/{v}"])) for v in variables})
    assert len(model.parameters) == len(variables)
    config = OptimizerConfig(
        kind="release",
        weight_decay=options["weight_decay"],
        epsilon=options["adam_epsilon"],
        layer_decay=options.get("lr_layer_decay_rate", 1.0),
        layer_decay_mode="gradient",
    )
    optimizer = build_optimizer(model, config)  # type: ignore[arg-type]
    worst = 0.0
    for t in range(5):
        for variable in variables:
            parameter = model.parameters[native_name(variable)]
            key = f"step{t}/grad/{variable}"
            # A variable that the loss does not reach has a gradient of zero in TensorFlow's dense form, or none.
            parameter.grad = torch.from_numpy(recorded[key].copy()) if key in recorded.files else None
        if variables_complete(recorded):
            measured = float(nn.utils.get_total_norm(gradients_of(optimizer)))
            assert measured == pytest.approx(float(recorded[f"step{t}/gnorm_dense"]), rel=2e-6)
        clip_gradients(gradients_of(optimizer), options["clip"], torch.tensor(recorded[f"step{t}/gnorm"]))
        scale_gradients(optimizer)
        rates = [float(recorded[f"step{i}/lr"]) for i in range(5)]
        # lr(5) is beyond the recording; the last step is left out when rates are taken one step late.
        if t + rate_of_step > 4:
            break
        set_learning_rate(optimizer, rates[t + rate_of_step])
        optimizer.step()
        for variable in variables:
            expected = recorded[f"step{t}/param/{variable}"]
            deviation = np.abs(model.parameters[native_name(variable)].detach().numpy() - expected).max()
            worst = max(worst, float(deviation))
    return worst


def variables_complete(recorded) -> bool:
    return sum(key.startswith("var/") for key in recorded.files) > 20


@pytest.mark.parametrize("case", CASES)
def test_release_updates(golden: Path, case: str) -> None:
    assert replay(golden / "training" / f"{case}.npz") < 5e-7


@pytest.mark.data
@pytest.mark.parametrize("case", CASES)
def test_release_updates_of_all_variables(shared_golden: Path, case: str) -> None:
    assert replay(shared_golden / "model" / f"{case}.npz") < 5e-7


def test_the_race_of_the_release_uses_the_rate_of_the_next_step(golden: Path) -> None:
    """Its AdamWeightDecay increments the step beside the update, so step t runs with lr(t + 1); ours uses lr(t)."""
    path = golden / "training" / "e1_adamw_as_is.npz"
    assert replay(path, rate_of_step=1) < 5e-7
    assert replay(path, rate_of_step=0) > 1e-3


@pytest.mark.parametrize("change", [{"layer_decay_mode": "lr"}, {"epsilon": 1e-7}, {"layer_decay": 1.0}])
def test_the_recordings_can_tell(golden: Path, monkeypatch: pytest.MonkeyPatch, change: dict) -> None:
    """The same replay with one setting off must fail, or the tests above prove nothing."""
    original = OptimizerConfig
    monkeypatch.setitem(replay.__globals__, "OptimizerConfig", lambda **given: original(**{**given, **change}))
    assert replay(golden / "training" / "e3_adam_layerdecay.npz") > 1e-5


NAMES = [
    "word_embedding.weight", "mask_embedding",
    "layers.0.attention.query.weight", "layers.0.attention.norm.weight", "layers.0.feed_forward.inner.bias",
    "layers.0.attention.segment_embedding", "attention_biases.0.content",
    "layers.2.attention.query.weight", "attention_biases.2.content", "lm_head.bias", "summary.weight",
]  # fmt: skip


def groups_of(config: OptimizerConfig, names: list[str] = NAMES, **rules) -> dict[str, dict]:
    named = [(name, nn.Parameter(torch.ones(2))) for name in names]
    return {name: group for group in parameter_groups(named, config, **rules) for name in group["names"]}


def test_layer_decay_on_the_rate() -> None:
    groups = groups_of(OptimizerConfig(layer_decay=0.5))
    scale = {name: groups[name]["lr_scale"] for name in NAMES}
    assert scale["summary.weight"] == scale["lm_head.bias"] == 1.0
    assert scale["layers.2.attention.query.weight"] == scale["attention_biases.2.content"] == 1.0
    assert scale["layers.0.attention.norm.weight"] == scale["attention_biases.0.content"] == 0.25
    assert scale["word_embedding.weight"] == scale["mask_embedding"] == 0.125 == min(scale.values())
    assert {group["gradient_scale"] for group in groups.values()} == {1.0}


def test_layer_decay_on_the_gradient_as_released() -> None:
    groups = groups_of(OptimizerConfig(layer_decay=0.5, layer_decay_mode="gradient"))
    scale = {name: groups[name]["gradient_scale"] for name in NAMES}
    assert scale["layers.0.attention.query.weight"] == 0.25
    for name in ("word_embedding.weight", "attention_biases.0.content", "layers.0.attention.segment_embedding"):
        assert scale[name] == 1.0
    assert {group["lr_scale"] for group in groups.values()} == {1.0}


def test_biases_shared_by_all_layers_have_no_layer() -> None:
    assert (
        native_layers(["layers.0.x", "layers.1.x", "attention_biases.0.content"])("attention_biases.0.content") is None
    )
    assert native_layers(["layers.0.x", "attention_biases.0.content"])("attention_biases.0.content") == 0
    assert native_layers(["encoder.layers.0.x", "encoder.layers.1.x"])("encoder.layers.1.x") == 1
    assert native_layers([])("classifier.weight") is None
    assert released_layer_of("model.layers.11.feed_forward.inner.weight") == 11


@pytest.mark.parametrize(
    ("name", "ours", "released"),
    [
        ("layers.0.attention.query.weight", True, True),
        ("layers.0.attention.norm.weight", False, False),
        ("layers.0.attention.norm.bias", False, False),
        ("layers.0.feed_forward.inner.bias", False, False),
        ("summary.LayerNorm.weight", False, False),
        ("attention_biases.0.content", False, True),
        ("layers.0.attention.segment_embedding", True, True),
        ("word_embedding.weight", True, True),
        ("lm_head.bias", False, False),
    ],
)
def test_what_decays(name: str, ours: bool, released: bool) -> None:
    assert (native_decays(name), released_decays(name)) == (ours, released)
    assert groups_of(OptimizerConfig(), [name])[name]["weight_decay"] == (0.01 if ours else 0.0)
    assert groups_of(OptimizerConfig(kind="release"), [name])[name]["weight_decay"] == (0.01 if released else 0.0)


def test_rules_can_be_replaced_and_frozen_parameters_are_left_out() -> None:
    groups = groups_of(
        OptimizerConfig(layer_decay=0.5),
        ["a", "b"],
        layer_of=lambda name: "ab".index(name),
        decays=lambda name: name == "a",
    )
    assert (groups["a"]["lr_scale"], groups["b"]["lr_scale"]) == (0.5, 1.0)
    assert (groups["a"]["weight_decay"], groups["b"]["weight_decay"]) == (0.01, 0.0)
    frozen = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(ConfigurationError, match="no trainable parameter"):
        build_optimizer(frozen, OptimizerConfig())


def test_clipping_is_exact_and_scales_first() -> None:
    gradients = [torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])]
    assert float(clip_gradients(gradients, 10.0)) == 5.0
    assert gradients[0].tolist() == [3.0, 0.0]
    assert float(clip_gradients(gradients, 0.0, scale=2.0)) == 10.0
    assert gradients[1].item() == 8.0
    assert float(clip_gradients(gradients, 1.0, scale=0.5)) == 5.0
    assert gradients[0].tolist() == pytest.approx([0.6, 0.0]) and gradients[1].item() == pytest.approx(0.8)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        optimizer.zero_grad()
        model(torch.randn(4, 3, generator=generator)).square().sum().backward()
        if step % 2:
            model[0].bias.grad = None
        set_learning_rate(optimizer, 0.01 * (step + 1))
        optimizer.step()


@pytest.mark.parametrize("kind", ["adamw", "release"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_optimizer_state_resumes_bit_for_bit(kind, weight_decay: float, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = OptimizerConfig(kind=kind, weight_decay=weight_decay, layer_decay=0.9)
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 1))
    optimizer = build_optimizer(model, config)
    train(model, optimizer, range(3))
    other = copy.deepcopy(model)
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    train(model, optimizer, range(3, 8))
    resumed = build_optimizer(other, config)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    train(other, resumed, range(3, 8))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_adamw_is_torch_adamw() -> None:
    """Our groups, fused, against the plain for-loop form of torch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    plain = copy.deepcopy(model)
    ours = build_optimizer(model, OptimizerConfig(weight_decay=0.1), decays=lambda name: True)
    theirs = torch.optim.AdamW(plain.parameters(), weight_decay=0.1, eps=1e-6, foreach=False)
    for group in theirs.param_groups:
        group["lr_scale"] = 1.0
    train(model, ours, range(6))
    train(plain, theirs, range(6))
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"kind": "adam"}, "Did you mean 'adamw'?"),
        ({"layer_decay_mode": "rate"}, "layer_decay_mode='rate'"),
        ({"learning_rate": float("nan")}, "learning_rate=nan"),
        ({"learning_rate": -1.0}, "learning_rate=-1.0"),
        ({"beta2": 1.0}, "beta2=1.0"),
        ({"epsilon": 0.0}, "epsilon=0.0"),
        ({"layer_decay": 0.0}, "layer_decay=0.0"),
    ],
)
def test_refuses(settings: dict, word: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(word)):
        OptimizerConfig(**settings)


def test_tensor_norm_and_number_agree() -> None:
    one: list[Tensor] = [torch.full((7,), 2.0)]
    two: list[Tensor] = [torch.full((7,), 2.0)]
    norm = float(nn.utils.get_total_norm(one))
    clip_gradients(one, 0.3, torch.tensor(norm), 0.25)
    clip_gradients(two, 0.3, norm, 0.25)
    torch.testing.assert_close(one[0], two[0], rtol=1e-6, atol=0.0)
    assert float(one[0].norm()) == pytest.approx(0.3, rel=1e-6)
