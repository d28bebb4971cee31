"""Which library multiplies float32 matrices on a CPU, and the proof that it truly multiplies in float32.

    with float32_products():                # as fast as the machine allows
        loss.backward()

torch hands float32 products to MKL, which reaches half of what AMD's processors with AVX-512 can do. oneDNN reaches all
of it, but torch opens that door only under the name of bfloat16 (``torch.backends.mkldnn.matmul.fp32_precision``):
where the processor has units for bfloat16 matrices, the inputs are then rounded to 8 bits of precision; elsewhere
oneDNN computes in float32. Hence the products are measured before anything relies on them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from xlnet.errors import MachineError, check_choice
from xlnet.processor import Processor, processor

Float32Products = Literal["auto", "default", "onednn"]
FLOAT32_PRODUCTS: tuple[str, ...] = get_args(Float32Products)
MOST_ERROR = 3.0
"""oneDNN adds in another order: 1.0 to 2.2 times MKL's error. Rounding to bfloat16 makes it some 10,000 times."""

_ONEDNN, _FLOAT32 = "bf16", "ieee"
_matmul: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
_lock = threading.RLock()
_requests: list[_Request] = []
_outside = "none"


@dataclass(frozen=True)
class ProductErrors:
    """Error of float32 products against float64, relative, root mean square, in the worst of several shapes.

    Attributes:
        default: of torch's own product in that shape.
        onednn: of oneDNN's.
        same: every product of both is equal bit for bit: torch does not reach for oneDNN on this processor (without
            AVX-512, say), whatever the switch says.
    """

    default: float
    onednn: float
    same: bool = False

    @property
    def is_float32(self) -> bool:
        """Whether oneDNN's product has the error of float32 arithmetic; not so where it is not a number."""
        return self.onednn <= MOST_ERROR * self.default


@dataclass(eq=False)
class _Request:
    """One context that is open; it equals itself alone."""

    onednn: bool


@contextmanager
def float32_products(choice: Float32Products = "auto", device: torch.device | str = "cpu") -> Iterator[None]:
    """Choose the float32 products of the body, and put back what was set before, also after an error.

    Contexts nest, and the innermost holds. The switch belongs to the process, not to a thread (that way it reaches the
    backward pass): of threads that ask for unlike things the last to enter wins, and when all have left, everything is
    as it was. Inside, torch refuses to answer ``torch.get_float32_matmul_precision()``, the older form of the switch.

    Args:
        choice: ``auto``: what the surrounding context says; without one, oneDNN where the processor has AVX-512, is not
            Intel's, and a measurement shows that it computes in float32, else torch's default. ``default``: as torch
            is set. ``onednn``: wherever it computes in float32.
        device: of the work; elsewhere than on a CPU nothing is switched.

    Raises:
        ConfigurationError: an unknown word.
        MachineError: ``onednn`` where oneDNN is missing, is not taken, or computes in less than float32.
    """
    check_choice("float32_products", choice, FLOAT32_PRODUCTS)
    if torch.device(device).type != "cpu":
        yield
        return
    request = _enter(choice)
    try:
        yield
    finally:
        _leave(request)


def uses_onednn(choice: Float32Products = "auto") -> bool:
    """Whether a context with this choice, inside no other, takes oneDNN on this machine; arguments as there."""
    return choose_onednn(choice, processor(), torch.backends.mkldnn.is_available(), measured_errors)


def products_in_words(choice: Float32Products = "auto", device: torch.device | str = "cpu") -> str:
    """A line for people who wonder; arguments and errors as for :func:`float32_products`."""
    if torch.device(device).type != "cpu":
        return "float32 products: the device's own"
    return f"float32 products: {'oneDNN' if uses_onednn(choice) else 'torch default'} (float32_products={choice})"


def choose_onednn(
    choice: Float32Products, machine: Processor, available: bool, measure: Callable[[], ProductErrors]
) -> bool:
    """The rule alone.

    Args:
        choice: as for :func:`float32_products`.
        machine: the processor.
        available: whether torch has oneDNN.
        measure: errors of both products; called only where the answer depends on it.

    Raises:
        MachineError: ``onednn`` cannot be had; says what was measured and what to set.
    """
    if choice == "default":
        return False
    if choice == "auto":
        return available and machine.wide_and_not_intel and measure().is_float32 and not measure().same
    if not available:
        raise MachineError(
            "float32_products='onednn', but this torch is built without oneDNN. Set float32_products='auto'."
        )
    errors = measure()
    if errors.same:
        raise MachineError(
            "float32_products='onednn', but torch does not take oneDNN for float32 on this processor (which has no "
            "AVX-512, say): every product is that of its default. Set float32_products='auto'."
        )
    if not errors.is_float32:
        raise MachineError(
            f"float32_products='onednn', but oneDNN does not multiply in float32 on this processor: its relative error "
            f"is {errors.onednn:.1e} where torch's default product has {errors.default:.1e} (at most {MOST_ERROR:g} "
            "times that is allowed). Set float32_products='auto'; where such an error will do, precision='bfloat16' is "
            "the faster way to it."
        )
    return True


@lru_cache(maxsize=1)
def measured_errors() -> ProductErrors:
    """:func:`product_errors` of this machine; nothing is timed. Some 50 ms, once a process."""

    def multiply(onednn: bool, left: Tensor, right: Tensor) -> Tensor:
        _matmul.fp32_precision = _ONEDNN if onednn else _FLOAT32
        return left @ right

    # Whatever the caller is in the middle of (autocast, another setting) must not reach the measurement.
    with _lock, torch.no_grad(), torch.autocast("cpu", enabled=False):
        before = _matmul.fp32_precision
        try:
            return product_errors(multiply)
        finally:
            _matmul.fp32_precision = before


def product_errors(multiply: Callable[[bool, Tensor, Tensor], Tensor]) -> ProductErrors:
    """Errors of plain, transposed and batched products of few rows and many, short sums and long.

    Args:
        multiply: ``(onednn, left, right)`` to their product, by oneDNN or by torch's default. The inputs are the same
            in every call of this function, and make use of all 24 bits of a float32.
    """
    generator = torch.Generator().manual_seed(20190619)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")

    pairs = [
        (random(64, 768), random(96, 768).t()),
        (random(1, 512), random(256, 512).t()),
        (random(96, 256), random(256, 64)),
        (random(512, 64).t(), random(512, 96)),
        (random(24, 3072), random(48, 3072).t()),
        (random(3, 40, 64), random(3, 72, 64).transpose(1, 2)),
        (random(3, 200, 40).transpose(1, 2), random(3, 200, 64)),
    ]
    found, same = [], True
    for left, right in pairs:
        exact = left.double() @ right.double()
        products = [multiply(onednn, left, right) for onednn in (False, True)]
        same = same and torch.equal(*products)
        default, onednn = (float((product - exact).norm() / exact.norm()) for product in products)
        found.append(ProductErrors(default, onednn))
    worst = max(found, key=lambda errors: (not errors.is_float32, errors.onednn / errors.default))
    return replace(worst, same=same)


def _enter(choice: Float32Products) -> _Request:
    global _outside
    with _lock:
        follows = choice == "auto" and _requests
        request = _Request(_requests[-1].onednn if follows else uses_onednn(choice))
        if not _requests:
            _outside = _matmul.fp32_precision
        _requests.append(request)
        _apply()
    return request


def _leave(request: _Request) -> None:
    with _lock:
        _requests.remove(request)
        _apply()


def _apply() -> None:
    """Set what the context entered last asks for; without any, what was set before the first."""
    _matmul.fp32_precision = _ONEDNN if _requests and _requests[-1].onednn else _outside
