"""The product for a handful of rows: as exact as torch's, never used where it cannot serve."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch
from torch import nn

from xlnet.errors import ConfigurationError, MachineError
from xlnet.model import compiled, few_rows
from xlnet.model.few_rows import MOST_ROWS, choose_linear


def needs_kernel() -> None:
    if few_rows._kernel() is None:
        pytest.skip("no C compiler, or not Linux")


@pytest.mark.parametrize("rows", range(1, MOST_ROWS + 2))
@pytest.mark.parametrize("shape", [(301, 770), (256, 256), (70000, 1), (1, 70000), (39, 3079)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_error_is_that_of_float32(rows: int, shape: tuple[int, int], with_bias: bool) -> None:
    needs_kernel()
    torch.manual_seed(rows)
    x = torch.randn(1, rows, shape[1], dtype=torch.float64)
    weight = torch.randn(shape, dtype=torch.float64)
    bias = torch.randn(shape[0], dtype=torch.float64) if with_bias else None
    want = nn.functional.linear(x, weight, bias)
    single = (x.float(), weight.float(), None if bias is None else bias.float())
    exact_inputs = nn.functional.linear(
        single[0].double(), single[1].double(), None if bias is None else bias.float().double()
    )
    error = (choose_linear("compiled")(*single) - exact_inputs).abs().max()
    own = (nn.functional.linear(*single) - exact_inputs).abs().max()
    assert error <= 2 * own + 1e-6 * want.abs().max()


def test_rows_of_any_layout_give_the_same() -> None:
    needs_kernel()
    linear = choose_linear("compiled")
    weight = torch.randn(300, 400)
    for rows in (
        torch.randn(2, 400),
        torch.randn(400, 2).t(),
        torch.randn(1, 2, 800)[..., ::2],
        torch.randn(2, 1, 400),
    ):
        assert torch.allclose(linear(rows, weight, None), nn.functional.linear(rows, weight), atol=1e-3)
        assert linear(rows, weight, None).shape == (*rows.shape[:-1], 300)


def test_the_result_is_float32_whatever_new_tensors_are_by_default() -> None:
    needs_kernel()
    rows, weight = torch.randn(2, 400), torch.randn(300, 400)
    torch.set_default_dtype(torch.float64)
    try:
        found = choose_linear("compiled")(rows, weight, None)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(found, nn.functional.linear(rows, weight), rtol=1e-4, atol=1e-3)


def test_other_dtypes_layouts_and_sizes_go_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(few_rows, "_kernel", lambda: refuse)
    linear = choose_linear("compiled")
    big = torch.randn(300, 400)
    with pytest.raises(ZeroDivisionError):
        linear(torch.randn(2, 400), big, None)
    for rows, weight in (
        (torch.randn(MOST_ROWS + 1, 400), big),
        (torch.randn(2, 400).bfloat16(), big.bfloat16()),
        (torch.randn(2, 400).double(), big.double()),
        (torch.randn(2, 300), big.t()),
        (torch.randn(2, 8), torch.randn(8, 8)),
        (torch.randn(0, 400), big),
    ):
        assert torch.equal(linear(rows, weight, None), nn.functional.linear(rows, weight))


def test_without_a_compiler_torch_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_rows, "_kernel", lambda: None)
    assert choose_linear("auto") is nn.functional.linear
    assert choose_linear("torch") is nn.functional.linear
    with pytest.raises(MachineError, match="C compiler"):
        choose_linear("compiled")
    with pytest.raises(ConfigurationError, match="products='fast'"):
        choose_linear("fast")  # type: ignore[arg-type]


def test_a_failing_compiler_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(compiled.Path, "home", classmethod(lambda cls: tmp_path))
    monkeypatch.setattr(compiled.shutil, "which", lambda name: "/bin/false")
    few_rows._kernel.cache_clear()
    try:
        assert few_rows._kernel() is None
        assert not list(tmp_path.rglob("*.so"))
    finally:
        few_rows._kernel.cache_clear()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("vectors", [(), ("NARROW",)])
def test_every_build_gives_the_same(vectors: tuple[str, ...], dtype: torch.dtype) -> None:
    """Also the one for processors with fewer and shorter vectors, built for this one."""
    needs_kernel()
    folder = Path(compiled.__file__).parent
    source = "".join((folder / f"{name}.c").read_text() for name in ("basics", "few_rows"))
    loaded = compiled.load_compiled("few_rows_test", source, (*compiled._BUILDS[dtype], *vectors))
    assert loaded is not None
    torch.manual_seed(0)
    weight, bias = torch.randn(53, 2501, dtype=dtype), torch.randn(53, dtype=dtype)
    for count in range(1, MOST_ROWS + 1):
        rows, out = torch.randn(count, 2501, dtype=dtype), torch.empty(count, 53, dtype=dtype)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (rows, weight, bias, out)]
        loaded.few_rows(ctypes.c_int64(count), *pointers, *(ctypes.c_int64(n) for n in (53, 2501, 3)))
        tolerance = 1e-12 if dtype == torch.float64 else 1e-4
        torch.testing.assert_close(out, nn.functional.linear(rows, weight, bias), rtol=tolerance, atol=10 * tolerance)
