/* Products of one to eight rows with a matrix: every weight is read once, whatever the rows, and memory sets the pace.

   The weights are one stream, fetched two kilobytes ahead: the processor's own guesses stop at every page. Each row has
   up to four sums at a time, since one would wait for itself. `basics.c` comes before this text. */

#include <omp.h>
#include <stddef.h>

#if defined(__AVX512F__) && !defined(NARROW)
enum { VECTOR = 64, SUMS = 24 }; /* bytes of a vector; sums that fit beside what is multiplied */
#else
enum { VECTOR = 32, SUMS = 12 };
#endif
enum { W = VECTOR / sizeof(real), FETCHED_AHEAD = 2048 / sizeof(real) };

typedef real vec __attribute__((vector_size(VECTOR)));
typedef real loose __attribute__((vector_size(VECTOR), aligned(sizeof(real)), may_alias)); /* at any address */

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 24")

INLINE real total(vec value) {
  real part[W] __attribute__((aligned(VECTOR)));
  *(vec *)part = value;
  for (int width = W / 2; width; width /= 2)
    for (int i = 0; i < width; ++i) part[i] += part[i + width];
  return part[0];
}

/* out[r n] = x[r] . weight for all rows; `rows` and `ways` are constants where this is called. */
INLINE void one_weight(const int rows, const int ways, const real *restrict x, const real *restrict weight, ptrdiff_t n,
                       ptrdiff_t k, real *restrict out) {
  vec sum[SUMS];
  UNROLL for (int s = 0; s < rows * ways; ++s) sum[s] = (vec){0};
  ptrdiff_t i = 0;
  for (; i + W * ways <= k; i += W * ways) {
    UNROLL for (int u = 0; u < ways; ++u) {
      const vec a = *(const loose *)(weight + i + u * W);
      __builtin_prefetch(weight + i + u * W + FETCHED_AHEAD, 0, 3);
      UNROLL for (int r = 0; r < rows; ++r) sum[r * ways + u] += a * *(const loose *)(x + r * k + i + u * W);
    }
  }
  UNROLL for (int r = 0; r < rows; ++r) {
    UNROLL for (int u = 1; u < ways; ++u) sum[r * ways] += sum[r * ways + u];
    real product = total(sum[r * ways]);
    for (ptrdiff_t j = i; j < k; ++j) product += weight[j] * x[r * k + j];
    out[r * n] = product;
  }
}

#define WAYS(rows) ((rows) * 4 <= SUMS ? 4 : (rows) * 3 <= SUMS ? 3 : (rows) * 2 <= SUMS ? 2 : 1)
#define ROWS(count) \
  case count: \
    for (ptrdiff_t j = from; j < to; ++j) one_weight(count, WAYS(count), x, weight + j * k, n, k, out + j); \
    break;

/* Columns from .. to of out [rows, n] = x [rows, k] weight' [n, k]. */
static void columns(int64_t rows, const real *restrict x, const real *restrict weight, ptrdiff_t n, ptrdiff_t k,
                    ptrdiff_t from, ptrdiff_t to, real *restrict out) {
  switch (rows) { ROWS(1) ROWS(2) ROWS(3) ROWS(4) ROWS(5) ROWS(6) ROWS(7) ROWS(8) }
}

/* Where the share of thread `me` of `all` begins, of n columns. */
static inline ptrdiff_t share(ptrdiff_t n, int64_t me, int64_t all) { return n * me / all; }

/* out [rows, n] = x [rows, k] weight' [n, k] + bias [n], or none where that is NULL. */
void few_rows(int64_t rows, const real *x, const real *weight, const real *bias, real *out, int64_t n, int64_t k,
              int64_t threads) {
  #pragma omp parallel num_threads(threads)
  {
    const int64_t me = omp_get_thread_num(), all = omp_get_num_threads();
    const ptrdiff_t from = share(n, me, all), to = share(n, me + 1, all);
    columns(rows, x, weight, n, k, from, to, out);
    for (int64_t r = 0; bias && r < rows; ++r)
      for (ptrdiff_t j = from; j < to; ++j) out[r * n + j] += bias[j];
  }
}
