/* Products of a few rows with matrices that fit the cache, for processors that the usual library serves badly.

   A matrix is read in words of 32 bits: one float, or two bfloat16 that are neighbours along the depth, the dimension
   that is summed over. So one loop serves both: a word of A, repeated, times a row of words of B. `basics.c` comes
   before this text. */

typedef uint32_t word;

enum { LANES = 16, WIDE = 2 * LANES, TALL = 8 }; /* a vector; columns and rows of a block: 16 sums, of 32 registers */

static inline int64_t round_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

/* Words a line of `count` words takes: whole blocks, and an odd number of cache lines, so that no two neighbouring rows
   fall on the same place of the cache. */
static inline int64_t line_of(int64_t count) { return round_up(count, WIDE) + LANES; }

#if defined(__AVX512F__) && !defined(DOUBLE) && (!defined(BFLOAT16) || defined(__AVX512BF16__))
#define OWN_PRODUCTS 1
#include <immintrin.h>

typedef word four __attribute__((vector_size(16), aligned(4), may_alias));

#if defined(BFLOAT16)
enum { DEEP = 2 }; /* entries a word */
static inline __m512 add_product(__m512 sum, word a, __m512i b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32((int)a), (__m512bh)b);
}
#else
enum { DEEP = 1 };
static inline __m512 add_product(__m512 sum, word a, __m512i b) {
  return _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_set1_epi32((int)a)), _mm512_castsi512_ps(b), sum);
}
#endif

/* `rows` rows (a constant, so that the sums stay in registers) times WIDE columns. */
static inline __attribute__((always_inline)) void block(const int rows, int64_t depth, const word *a, int64_t a_row,
                                                        int64_t a_step, const word *b, int64_t b_line, real factor,
                                                        int add, real *out, int64_t out_line) {
  __m512 left[rows], right[rows];
  #pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) left[i] = right[i] = _mm512_setzero_ps();
  for (int64_t k = 0; k < depth; ++k) {
    const __m512i first = _mm512_loadu_si512(b + k * b_line), second = _mm512_loadu_si512(b + k * b_line + LANES);
    #pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const word here = a[i * a_row + k * a_step];
      left[i] = add_product(left[i], here, first);
      right[i] = add_product(right[i], here, second);
    }
  }
  const __m512 times = _mm512_set1_ps(factor), none = _mm512_setzero_ps();
  #pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
    float *to = out + i * out_line;
    _mm512_storeu_ps(to, _mm512_fmadd_ps(times, left[i], add ? _mm512_loadu_ps(to) : none));
    _mm512_storeu_ps(to + LANES, _mm512_fmadd_ps(times, right[i], add ? _mm512_loadu_ps(to + LANES) : none));
  }
}

/* Functions of their own: what surrounds them must not take their registers. */
#define BLOCK(name, rows, a_row, a_step)                                                                       \
  static __attribute__((noinline)) void name(int64_t depth, const word *a, int64_t line, const word *b,        \
                                             int64_t b_line, real factor, int add, real *out, int64_t out_line) { \
    block(rows, depth, a, a_row, a_step, b, b_line, factor, add, out, out_line);                               \
  }
typedef void Block(int64_t, const word *, int64_t, const word *, int64_t, real, int, real *, int64_t);
BLOCK(tall, TALL, line, 1)
BLOCK(pair, 2, line, 1)
BLOCK(single, 1, line, 1)
BLOCK(tall_across, TALL, 1, line)
BLOCK(pair_across, 2, 1, line)
BLOCK(single_across, 1, 1, line)

/* out [m, n] = or += factor A [m, depth] B [depth, n], depth in words; n is a multiple of WIDE, or `out` and `b` have
   room for one. `a_across`: A is stored as [depth, m]; `line` is between its rows as stored. */
static void product(int64_t m, int64_t n, int64_t depth, int a_across, const word *a, int64_t line, const word *b,
                    int64_t b_line, real factor, int add, real *out, int64_t out_line) {
  Block *const blocks[2][3] = {{tall, pair, single}, {tall_across, pair_across, single_across}};
  const int64_t step = a_across ? 1 : line;
  for (int64_t j = 0; j < n; j += WIDE)
    for (int64_t i = 0, rows; i < m; i += rows) {
      rows = m - i >= TALL ? TALL : m - i >= 2 ? 2 : 1;
      blocks[a_across][rows == TALL ? 0 : rows == 2 ? 1 : 2](depth, a + i * step, line, b + j, b_line, factor, add,
                                                             out + i * out_line + j, out_line);
    }
}

/* `wide` words, a multiple of 4, of each of the rows, `step` words apart, to [wide, line], zeros behind the rows. */
static void turn(const word *from, int64_t rows, int64_t step, int64_t wide, word *to, int64_t line) {
  int64_t j = 0;
  for (; j + 4 <= rows; j += 4)
    for (int64_t h = 0; h < wide; h += 4) {
      const word *at = from + j * step + h;
      const four a = *(const four *)at, b = *(const four *)(at + step), c = *(const four *)(at + 2 * step),
                 d = *(const four *)(at + 3 * step);
      const four ab = __builtin_shuffle(a, b, (four){0, 4, 1, 5}), cd = __builtin_shuffle(c, d, (four){0, 4, 1, 5});
      const four ef = __builtin_shuffle(a, b, (four){2, 6, 3, 7}), gh = __builtin_shuffle(c, d, (four){2, 6, 3, 7});
      word *into = to + h * line + j;
      *(four *)into = __builtin_shuffle(ab, cd, (four){0, 1, 4, 5});
      *(four *)(into + line) = __builtin_shuffle(ab, cd, (four){2, 3, 6, 7});
      *(four *)(into + 2 * line) = __builtin_shuffle(ef, gh, (four){0, 1, 4, 5});
      *(four *)(into + 3 * line) = __builtin_shuffle(ef, gh, (four){2, 3, 6, 7});
    }
  for (; j < rows; ++j)
    for (int64_t h = 0; h < wide; ++h) to[h * line + j] = from[j * step + h];
  for (int64_t h = 0; h < wide; ++h) memset(to + h * line + rows, 0, (size_t)(line - rows) * sizeof(word));
}

/* `wide` entries of each of the rows, `step` entries apart, to lines of words along the depth: for float the same
   numbers closer together, for bfloat16 two rows a line, with zeros for a missing last row. */
static void join(const stored *from, int64_t rows, int64_t step, int64_t wide, word *to, int64_t line) {
  for (int64_t k = 0; k < rows; k += DEEP) {
    const stored *restrict even = from + k * step;
    word *restrict into = to + k / DEEP * line;
#if defined(BFLOAT16)
    const stored *restrict odd = even + step;
    if (k + 1 < rows)
      for (int64_t j = 0; j < wide; ++j) into[j] = (word)even[j] | (word)odd[j] << 16;
    else
      for (int64_t j = 0; j < wide; ++j) into[j] = even[j];
#else
    memcpy(into, even, (size_t)wide * sizeof(word));
#endif
  }
}
#endif
