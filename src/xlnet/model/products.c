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

typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef word four __attribute__((vector_size(16), aligned(4), may_alias));

#if defined(BFLOAT16)
enum { DEEP = 2 }; /* entries a word */
#define ADD_PRODUCT(sum, a, b) \
  sum = (lanes)_mm512_dpbf16_ps((__m512)(sum), (__m512bh)_mm512_set1_epi32((int)(a)), (__m512bh)(b))
#else
enum { DEEP = 1 };
#define ADD_PRODUCT(sum, a, b) sum += (lanes)_mm512_castsi512_ps(_mm512_set1_epi32((int)(a))) * (b)
#endif

/* A few rows (a constant, so that the sums stay in registers) times WIDE columns. */
static inline __attribute__((always_inline)) void block(const int rows, int64_t depth, const word *a, int64_t a_row,
                                                        int64_t a_step, const word *b, int64_t b_line, real factor,
                                                        int add, real *out, int64_t out_line) {
  lanes left[rows], right[rows];
  #pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) left[i] = right[i] = (lanes){0};
  for (int64_t k = 0; k < depth; ++k) {
    const lanes first = *(const lanes *)(b + k * b_line), second = *(const lanes *)(b + k * b_line + LANES);
    #pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const word here = a[i * a_row + k * a_step];
      ADD_PRODUCT(left[i], here, first);
      ADD_PRODUCT(right[i], here, second);
    }
  }
  #pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
    lanes *to = (lanes *)(out + i * out_line);
    to[0] = add ? to[0] + factor * left[i] : factor * left[i];
    to[1] = add ? to[1] + factor * right[i] : factor * right[i];
  }
}

/* out [m, n] = or += factor A [m, depth] B [depth, n], depth in words; n is a multiple of WIDE, or `out` and `b` have
   room for one. A is read at `i a_row + k a_step`, one of which is 1. */
static void product(int64_t m, int64_t n, int64_t depth, const word *a, int64_t a_row, int64_t a_step, const word *b,
                    int64_t b_line, real factor, int add, real *out, int64_t out_line) {
  for (int64_t j = 0; j < n; j += WIDE) {
    int64_t i = 0;
    if (a_step == 1) /* said twice, so that the step is a constant within the block */
      for (; i + TALL <= m; i += TALL)
        block(TALL, depth, a + i * a_row, a_row, 1, b + j, b_line, factor, add, out + i * out_line + j, out_line);
    else
      for (; i + TALL <= m; i += TALL)
        block(TALL, depth, a + i, 1, a_step, b + j, b_line, factor, add, out + i * out_line + j, out_line);
    for (; i + 2 <= m; i += 2)
      block(2, depth, a + i * a_row, a_row, a_step, b + j, b_line, factor, add, out + i * out_line + j, out_line);
    for (; i < m; ++i)
      block(1, depth, a + i * a_row, a_row, a_step, b + j, b_line, factor, add, out + i * out_line + j, out_line);
  }
}

/* Words [rows, wide], `wide` a multiple of 4, to [wide, line], zeros behind the rows. */
static void turn(const word *from, int64_t rows, int64_t wide, word *to, int64_t line) {
  int64_t j = 0;
  for (; j + 4 <= rows; j += 4)
    for (int64_t h = 0; h < wide; h += 4) {
      const word *at = from + j * wide + h;
      const four a = *(const four *)at, b = *(const four *)(at + wide), c = *(const four *)(at + 2 * wide),
                 d = *(const four *)(at + 3 * wide);
      const four ab = __builtin_shuffle(a, b, (four){0, 4, 1, 5}), cd = __builtin_shuffle(c, d, (four){0, 4, 1, 5});
      const four ef = __builtin_shuffle(a, b, (four){2, 6, 3, 7}), gh = __builtin_shuffle(c, d, (four){2, 6, 3, 7});
      word *into = to + h * line + j;
      *(four *)into = __builtin_shuffle(ab, cd, (four){0, 1, 4, 5});
      *(four *)(into + line) = __builtin_shuffle(ab, cd, (four){2, 3, 6, 7});
      *(four *)(into + 2 * line) = __builtin_shuffle(ef, gh, (four){0, 1, 4, 5});
      *(four *)(into + 3 * line) = __builtin_shuffle(ef, gh, (four){2, 3, 6, 7});
    }
  for (; j < rows; ++j)
    for (int64_t h = 0; h < wide; ++h) to[h * line + j] = from[j * wide + h];
  for (int64_t h = 0; h < wide; ++h) memset(to + h * line + rows, 0, (size_t)(line - rows) * sizeof(word));
}

#if defined(BFLOAT16)
/* Rows of bfloat16, `step` apart, to words of two rows each; zeros stand for a missing last row. */
static void pair(const stored *from, int64_t rows, int64_t step, int64_t wide, word *to, int64_t line) {
  for (int64_t k = 0; k < rows; k += 2) {
    const stored *restrict even = from + k * step, *restrict odd = even + step;
    word *restrict into = to + k / 2 * line;
    if (k + 1 < rows)
      for (int64_t j = 0; j < wide; ++j) into[j] = (word)even[j] | (word)odd[j] << 16;
    else
      for (int64_t j = 0; j < wide; ++j) into[j] = even[j];
  }
}
#endif
#endif
