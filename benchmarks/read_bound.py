"""The least time to read the weights of a decode step on this machine: the bound that generation is held against."""

from __future__ import annotations

import ctypes

import torch
from measure import Timing, timed

from xlnet.model import XLNetLMHeadModel
from xlnet.model.compiled import load_compiled

_SOURCE = """
#include <omp.h>
#include <stddef.h>
typedef float vec __attribute__((vector_size(64), aligned(4), may_alias));

/* Every entry of the arrays once: a sum, with eight additions under way and what comes next already asked for. */
float read_all(const float **arrays, const ptrdiff_t *sizes, ptrdiff_t count, int threads) {
  float all = 0;
  #pragma omp parallel num_threads(threads) reduction(+ : all)
  for (ptrdiff_t a = 0; a < count; ++a) {
    const ptrdiff_t me = omp_get_thread_num(), of = omp_get_num_threads();
    const ptrdiff_t from = sizes[a] / 128 * me / of * 128, to = sizes[a] / 128 * (me + 1) / of * 128;
    vec sum[8] = {{0}};
    for (ptrdiff_t i = from; i < to; i += 128)
      _Pragma("GCC unroll 8") for (int u = 0; u < 8; ++u) {
        __builtin_prefetch(arrays[a] + i + 16 * u + 512, 0, 3);
        sum[u] += *(const vec *)(arrays[a] + i + 16 * u);
      }
    for (int u = 0; u < 8; ++u)
      for (int l = 0; l < 16; ++l) all += sum[u][l];
  }
  return all;
}
"""


class Weights:
    """What a step must read once: every matrix except position projections, whose results are cached."""

    def __init__(self, model: XLNetLMHeadModel) -> None:
        self.matrices = [p.detach() for name, p in model.named_parameters() if p.ndim == 2 and ".position." not in name]
        self.rows = {weight.shape[1]: torch.randn(1, weight.shape[1]) for weight in self.matrices}
        count = len(self.matrices)
        self._arrays = (ctypes.c_void_p * count)(*(weight.data_ptr() for weight in self.matrices))
        self._sizes = (ctypes.c_ssize_t * count)(*(weight.numel() for weight in self.matrices))
        self._reader = load_compiled("read_bound", _SOURCE)

    @property
    def megabytes(self) -> float:
        """Of all of them."""
        return sum(weight.numel() for weight in self.matrices) * 4 / 1e6

    def read(self) -> float:
        """Seconds to read them, median of five: by torch's sum or by a loop in C, whichever is the faster."""
        seconds = timed(lambda: [weight.sum() for weight in self.matrices], 5, warm_up=1).median
        if self._reader is None:
            return seconds
        return min(seconds, timed(self._read_in_c, 5, warm_up=1).median)

    def _read_in_c(self) -> None:
        assert self._reader is not None
        count, threads = ctypes.c_ssize_t(len(self.matrices)), ctypes.c_int(torch.get_num_threads())
        self._reader.read_all(self._arrays, self._sizes, count, threads)

    def one_row(self, runs: int) -> Timing:
        """Each multiplied with one row by torch."""
        linear = torch.nn.functional.linear
        return timed(lambda: [linear(self.rows[weight.shape[1]], weight) for weight in self.matrices], runs)
