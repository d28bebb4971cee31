"""The choice of float32 products: the rule, the measurement behind it, and a switch that is always put back."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor

from xlnet import float32
from xlnet.errors import ConfigurationError, MachineError
from xlnet.float32 import ProductErrors, choose_onednn, float32_products, product_errors
from xlnet.processor import Processor

AMD, INTEL, OLD_AMD = (
    Processor("AuthenticAMD", "AVX512"),
    Processor("GenuineIntel", "AVX512"),
    Processor("AuthenticAMD", "AVX2"),
)
GOOD, ROUNDING, BROKEN = (
    ProductErrors(2.5e-7, 3.7e-7),
    ProductErrors(2.5e-7, 2.4e-3),
    ProductErrors(2.5e-7, float("nan")),
)


def switch() -> str:
    return torch.backends.mkldnn.matmul.fp32_precision


@pytest.mark.parametrize(
    ("machine", "available", "errors", "expected"),
    [
        (AMD, True, GOOD, True),
        (AMD, True, ROUNDING, False),
        (AMD, True, BROKEN, False),
        (AMD, False, GOOD, False),
        (INTEL, True, GOOD, False),
        (OLD_AMD, True, GOOD, False),
        (Processor("", "AVX512"), True, GOOD, False),
        (Processor("", "DEFAULT"), True, GOOD, False),
    ],
)
def test_rule(machine: Processor, available: bool, errors: ProductErrors, expected: bool) -> None:
    assert choose_onednn("auto", machine, available, lambda: errors) is expected
    assert choose_onednn("default", machine, available, lambda: errors) is False
    if available and errors is GOOD:
        assert choose_onednn("onednn", machine, available, lambda: errors) is True
    else:
        with pytest.raises(MachineError, match=r"float32_products='onednn'.*Set float32_products='auto'"):
            choose_onednn("onednn", machine, available, lambda: errors)


def test_what_is_not_asked_is_not_measured() -> None:
    def never() -> ProductErrors:
        raise ZeroDivisionError

    assert not choose_onednn("default", AMD, True, never)
    assert not choose_onednn("auto", INTEL, True, never)
    with pytest.raises(ZeroDivisionError):
        choose_onednn("auto", AMD, True, never)


def test_refusal_says_what_was_measured() -> None:
    with pytest.raises(MachineError, match=r"2\.4e-03 where .* 2\.5e-07 .*at most 3 times"):
        choose_onednn("onednn", AMD, True, lambda: ROUNDING)


def test_a_switch_without_effect_is_no_onednn() -> None:
    """Without AVX-512 torch multiplies as always, whatever the switch says: nobody is told that this is oneDNN."""
    errors = product_errors(lambda onednn, left, right: left @ right)
    assert errors.same
    assert not choose_onednn("auto", AMD, True, lambda: errors)
    with pytest.raises(MachineError, match="every product is that of its default"):
        choose_onednn("onednn", OLD_AMD, True, lambda: errors)
    other = product_errors(
        lambda onednn, left, right: (left.double() @ right.double()).float() if onednn else left @ right
    )
    assert not other.same


def rounded(bits: int, value: Tensor) -> Tensor:
    """To so many bits of precision."""
    fraction, exponent = torch.frexp(value)
    return torch.ldexp((fraction * 2**bits).round() / 2**bits, exponent)


@pytest.mark.parametrize(("bits", "accepted"), [(24, True), (16, False), (11, False), (8, False)])
def test_less_than_float32_is_noticed(bits: int, accepted: bool) -> None:
    """Inputs of 8 bits are bfloat16, of 11 TF32, of 16 two bfloat16 parts."""

    def multiply(onednn: bool, left: Tensor, right: Tensor) -> Tensor:
        return rounded(bits, left) @ rounded(bits, right) if onednn else left @ right

    assert product_errors(multiply).is_float32 is accepted


def test_one_wrong_shape_is_enough() -> None:
    def multiply(onednn: bool, left: Tensor, right: Tensor) -> Tensor:
        narrow = onednn and left.ndim == 3 and not left.is_contiguous()
        return rounded(8, left) @ right if narrow else left @ right

    assert not product_errors(multiply).is_float32


def test_measurement_is_repeatable_and_leaves_no_trace() -> None:
    torch.manual_seed(3)
    before, state = switch(), torch.get_rng_state()
    measure = float32.measured_errors.__wrapped__
    first = measure()
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
        assert measure() == first
    assert switch() == before
    assert torch.equal(torch.get_rng_state(), state)
    assert first.default < 1e-6


@pytest.fixture
def capable(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where ``auto`` takes oneDNN."""
    monkeypatch.setattr(float32, "uses_onednn", lambda choice="auto": choice != "default")


@pytest.mark.usefixtures("capable")
def test_contexts_nest_and_restore() -> None:
    outside = switch()
    with float32_products():
        assert switch() == "bf16"
        with float32_products("default"):
            assert switch() == outside
            with float32_products("auto"):
                assert switch() == outside, "auto follows what surrounds it"
            with float32_products("onednn"):
                assert switch() == "bf16"
            assert switch() == outside
        with pytest.raises(ZeroDivisionError), float32_products("default"):
            _ = 1 / 0
        assert switch() == "bf16"
    assert switch() == outside
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.usefixtures("capable")
def test_what_the_user_had_set_comes_back() -> None:
    matmul, before = torch.backends.mkldnn.matmul, switch()
    try:
        for word in ("ieee", "bf16"):
            matmul.fp32_precision = word
            with float32_products("default"):
                assert switch() == word
            with float32_products("onednn"):
                assert switch() == "bf16"
            assert switch() == word
    finally:
        matmul.fp32_precision = before


@pytest.mark.usefixtures("capable")
def test_threads_that_overlap_leave_the_switch_as_it_was() -> None:
    """One enters first and leaves first: restoring what each found would leave oneDNN on for good."""
    outside = switch()
    entered, leave = threading.Event(), threading.Event()

    def work() -> None:
        with float32_products("onednn"):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=work)
    with float32_products("onednn"):
        thread.start()
        assert entered.wait(10)
    assert switch() == "bf16", "the other one is still inside"
    leave.set()
    thread.join()
    assert switch() == outside


def test_a_refused_context_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = switch()
    monkeypatch.setattr(float32, "measured_errors", lambda: ROUNDING)
    with pytest.raises(MachineError, match="bfloat16"), float32_products("onednn"):
        pass
    with (
        pytest.raises(ConfigurationError, match=r"float32_products='mkl'.*auto, default, onednn"),
        float32_products("mkl"),  # type: ignore[arg-type]
    ):
        pass
    assert switch() == before


@pytest.mark.usefixtures("capable")
def test_other_devices_are_left_alone() -> None:
    before = switch()
    for device in ("cuda", torch.device("cuda", 1), "mps"):
        with float32_products("onednn", device):
            assert switch() == before
