/* Attention of a few rows over cached keys: a decode step, where every key is read once for all rows.

   A thread takes one head of one sequence. Scores by content and by distance, softmax and the sum of the values follow
   one after the other with the scores of a head in cache. `basics.c` and `lines.c` come before this text. */

#include <omp.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

typedef struct {
  int64_t batch, rows, heads, size, keys;      /* B, R, N, H, S */
  int64_t told, skipped;                       /* rows that the tables below tell of; how many of them are left out */
  int64_t head_step, batch_step, table_step;   /* entries between heads and sequences of keys, heads of the table */
  int64_t threads;
  double scale;
  const real *query;                           /* [B, R, N, H] */
  const real *content_bias, *position_bias, *segment_bias; /* [N, H] */
  const real *difference;                      /* [N, H] segment embedding, other less same */
  const real *key, *value, *table;             /* [B, N, S, H], [N, T, H] with the steps above */
  const int64_t *index;                        /* [B, told, S] place in the table */
  const real *hidden;                          /* [B, told, S] 0, or hugely negative where hidden; NULL: all visible */
  const real *other;                           /* [B, told, S] 1 where the key is of another segment; NULL: nowhere */
  const uint8_t *blind;                        /* [B, told] 1 for rows that see nothing; NULL: none */
  real *scratch;                               /* [threads, R, S + 2 H] */
  real *out;                                   /* [B, R, N, H] */
} Decode;

enum { AHEAD = 16 }; /* keys fetched before their turn: at a decode step everything comes from memory */

static inline void fetch(int64_t size, const real *line) {
  for (int64_t h = 0; h < size; h += 64 / (int64_t)sizeof(real)) __builtin_prefetch(line + h, 0, 1);
}

/* A row with four others at a time: their sums do not wait for one another. */
LINE void four_dots(int64_t size, const real *restrict row, const real *restrict a, const real *restrict b,
                    const real *restrict c, const real *restrict d, real *restrict out) {
#if defined(__AVX512F__) && !defined(DOUBLE)
  __m512 first = _mm512_setzero_ps(), second = first, third = first, fourth = first;
  for (int64_t h = 0; h < size; h += 16) { /* the last vector may be a part */
    const __mmask16 kept = size - h < 16 ? (__mmask16)((1u << (size - h)) - 1) : (__mmask16)0xffff;
    const __m512 here = _mm512_maskz_loadu_ps(kept, row + h);
    first = _mm512_fmadd_ps(here, _mm512_maskz_loadu_ps(kept, a + h), first);
    second = _mm512_fmadd_ps(here, _mm512_maskz_loadu_ps(kept, b + h), second);
    third = _mm512_fmadd_ps(here, _mm512_maskz_loadu_ps(kept, c + h), third);
    fourth = _mm512_fmadd_ps(here, _mm512_maskz_loadu_ps(kept, d + h), fourth);
  }
  out[0] += _mm512_reduce_add_ps(first), out[1] += _mm512_reduce_add_ps(second);
  out[2] += _mm512_reduce_add_ps(third), out[3] += _mm512_reduce_add_ps(fourth);
#else
  real first = 0, second = 0, third = 0, fourth = 0;
  #pragma omp simd reduction(+ : first, second, third, fourth)
  for (int64_t h = 0; h < size; ++h) {
    first += row[h] * a[h];
    second += row[h] * b[h];
    third += row[h] * c[h];
    fourth += row[h] * d[h];
  }
  out[0] += first, out[1] += second, out[2] += third, out[3] += fourth;
#endif
}

LINE real product_of(int64_t size, const real *restrict a, const real *restrict b) {
  real sum = 0;
  #pragma omp simd reduction(+ : sum)
  for (int64_t h = 0; h < size; ++h) sum += a[h] * b[h];
  return sum;
}

/* Four lines, weighted, added to another. */
LINE void add_four(int64_t size, const real *restrict weight, const real *restrict from, real *restrict to) {
  const real *restrict b = from + size, *restrict c = from + 2 * size, *restrict d = from + 3 * size;
  const real first = weight[0], second = weight[1], third = weight[2], fourth = weight[3];
  for (int64_t h = 0; h < size; ++h) to[h] += (first * from[h] + second * b[h]) + (third * c[h] + fourth * d[h]);
}

static void one_head(const Decode *c, int64_t b, int64_t n, real *scratch) {
  const int64_t size = c->size, keys = c->keys, rows = c->rows;
  const real units = (real)(c->scale * 1.4426950408889634);
  const real *key = c->key + b * c->batch_step + n * c->head_step, *value = c->value + (key - c->key);
  const real *table = c->table + n * c->table_step;
  real *score = scratch, *content = scratch + rows * keys, *position = content + rows * size;
  for (int64_t r = 0; r < rows; ++r) {
    const real *query = c->query + ((b * rows + r) * c->heads + n) * size;
    add_scaled(size, query, c->content_bias + n * size, units, content + r * size);
    add_scaled(size, query, c->position_bias + n * size, units, position + r * size);
  }
  memset(score, 0, (size_t)(rows * keys) * sizeof(real));
  const int64_t whole = keys / 4 * 4;
  for (int64_t j = 0; j < whole; j += 4) {
    const real *at = key + j * size;
    if (j + AHEAD < whole) fetch(4 * size, at + AHEAD * size);
    for (int64_t r = 0; r < rows; ++r)
      four_dots(size, content + r * size, at, at + size, at + 2 * size, at + 3 * size, score + r * keys + j);
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = whole; j < keys; ++j) score[r * keys + j] += product_of(size, content + r * size, key + j * size);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t place = (b * c->told + c->skipped + r) * keys;
    const int64_t *index = c->index + place;
    real *line = score + r * keys;
    for (int64_t j = 0; j < whole; j += 4) {
      if (r == 0 && j + AHEAD < whole)
        for (int64_t i = 0; i < 4; ++i) fetch(size, table + index[j + AHEAD + i] * size);
      four_dots(size, position + r * size, table + index[j] * size, table + index[j + 1] * size,
                table + index[j + 2] * size, table + index[j + 3] * size, line + j);
    }
    for (int64_t j = whole; j < keys; ++j) line[j] += product_of(size, position + r * size, table + index[j] * size);
    if (c->other) {
      const real *query = c->query + ((b * rows + r) * c->heads + n) * size;
      const real segment = dot(size, query, c->segment_bias + n * size, c->difference + n * size) * units;
      add_times(keys, c->other + place, segment, line);
    }
    if (c->hidden) add_times(keys, c->hidden + place, 1, line);
    const real inverse = 1 / raise(keys, highest(keys, line), line); /* weights that sum to one */
    for (int64_t j = 0; j < keys; ++j) line[j] *= inverse;
  }
  for (int64_t r = 0; r < rows; ++r) {
    real *restrict out = c->out + ((b * rows + r) * c->heads + n) * size;
    memset(out, 0, (size_t)size * sizeof(real));
    if (c->blind && c->blind[b * c->told + c->skipped + r]) continue;
    for (int64_t j = 0; j < whole; j += 4) add_four(size, score + r * keys + j, value + j * size, out);
    for (int64_t j = whole; j < keys; ++j) add_times(size, value + j * size, score[r * keys + j], out);
  }
}

void attend(const Decode *c) {
  const int64_t threads = c->threads < c->batch * c->heads ? c->threads : c->batch * c->heads;
  const int64_t room = c->rows * (c->keys + 2 * c->size);
  #pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t task = 0; task < c->batch * c->heads; ++task)
    one_head(c, task / c->heads, task % c->heads, c->scratch + omp_get_thread_num() * room);
}
