/* All layers of a decode step in one call: up to eight rows, which read every weight and every cached key once.

   The threads stay together through all layers and share out the columns of each product, so that a layer costs five
   meetings of the threads and no call. What is a matter of a few rows (normalization, residuals) each thread does for
   itself rather than wait. `basics.c`, `lines.c`, `gelu.c`, `few_rows.c` and `decode.c` come before this text. */

enum { RELU, GELU_TANH, GELU };

typedef struct {
  const real *query, *key, *value;              /* [N H, D] */
  const real *output, *norm, *norm_bias;        /* [D, N H], [D], [D] */
  const real *inner, *inner_bias;               /* [F, D], [F] */
  const real *outer, *outer_bias;               /* [D, F], [D] */
  const real *last_norm, *last_norm_bias;       /* [D] */
  const real *content_bias, *position_bias, *segment_bias; /* [N, H] */
  const real *difference;                       /* [N, H] segment embedding, other less same */
  real *keys, *values;                          /* [B, N, S, H] of the cache, with the steps below */
  const real *table;                            /* [N, T, H] keys of distances, likewise */
} LayerOf;

typedef struct {
  int64_t batch, rows, content;                 /* B; R rows each, of which the first become keys, the last of S */
  int64_t heads, size, width, inner, layers, keys; /* N, H, D, F, L, S */
  int64_t head_step, batch_step, table_step;    /* entries between heads and sequences of keys, heads of the table */
  int64_t need_content, activation, threads;
  double scale, eps;
  const LayerOf *layer;
  const int64_t *index;                         /* as in `Decode`, [B, R, S] */
  const real *hidden, *other;
  const uint8_t *blind;
  real *scratch;                                /* `room` entries */
  real *states;                                 /* [B, R, D] before the first layer and after the last; the content rows
                                                   are left out of the latter where they are not needed */
} Step;

LINE void normalize(int64_t rows, int64_t width, real eps, const real *restrict weight, const real *restrict bias,
                    const real *restrict from, real *restrict to) {
  for (int64_t r = 0; r < rows; ++r, from += width, to += width) {
    real sum = 0, squares = 0;
    #pragma omp simd reduction(+ : sum)
    for (int64_t d = 0; d < width; ++d) sum += from[d];
    const real mean = sum / (real)width;
    #pragma omp simd reduction(+ : squares)
    for (int64_t d = 0; d < width; ++d) squares += (from[d] - mean) * (from[d] - mean);
    const real inverse = 1 / (real)sqrt(squares / (real)width + eps);
    for (int64_t d = 0; d < width; ++d) to[d] = (from[d] - mean) * inverse * weight[d] + bias[d];
  }
}

LINE void activate(int64_t count, int64_t kind, const real *restrict bias, real *restrict x) {
  for (int64_t j = 0; j < count; ++j) x[j] += bias[j];
  if (kind == GELU_TANH)
    for (int64_t j = 0; j < count; ++j) x[j] = gelu(x[j]);
  else if (kind == RELU)
    for (int64_t j = 0; j < count; ++j) x[j] = x[j] > 0 ? x[j] : 0;
  else
    for (int64_t j = 0; j < count; ++j) x[j] = x[j] / 2 * (1 + (real)erf(x[j] * (real)0.70710678118654752));
}

/* Entries of scratch: those that all threads share, and those of each. */
static int64_t shared_room(const Step *c) {
  return c->batch * c->rows * (4 * c->heads * c->size + c->width + c->inner);
}
static int64_t own_room(const Step *c) {
  return c->batch * c->rows * c->width + c->rows * (c->keys + 2 * c->size);
}
int64_t room(const Step *c) { return shared_room(c) + c->threads * own_room(c); }

/* New keys and values [B, rows, N H] of a head to their places, the last of the S columns. */
static void keep_keys(const Step *c, const LayerOf *layer, int64_t b, int64_t n, const real *key, const real *value) {
  for (int64_t t = 0; t < c->content; ++t) {
    const int64_t from = ((b * (c->batch > 1 ? c->rows : c->content) + t) * c->heads + n) * c->size;
    const int64_t to = b * c->batch_step + n * c->head_step + (c->keys - c->content + t) * c->size;
    memcpy(layer->keys + to, key + from, (size_t)c->size * sizeof(real));
    memcpy(layer->values + to, value + from, (size_t)c->size * sizeof(real));
  }
}

static void all_layers(const Step *c, int64_t me, int64_t all) {
  const int64_t deep = c->heads * c->size, width = c->width, most = c->batch * c->rows;
  real *query = c->scratch, *key = query + most * deep, *value = key + most * deep, *attended = value + most * deep;
  real *sums = attended + most * deep, *inner = sums + most * width;
  real *mine = c->scratch + shared_room(c) + me * own_room(c), *scores = mine + most * width;
  /* Columns of this thread, in results as wide as the heads together, as the states, as the inner layer. */
  const ptrdiff_t from = share(deep, me, all), to = share(deep, me + 1, all);
  const ptrdiff_t first = share(width, me, all), stop = share(width, me + 1, all);
  const ptrdiff_t start = share(c->inner, me, all), end = share(c->inner, me + 1, all);
  int64_t rows = c->rows, count = most;
  memcpy(mine, c->states, (size_t)(most * width) * sizeof(real));
  for (int64_t l = 0; l < c->layers; ++l) {
    const LayerOf *layer = c->layer + l;
    if (c->content) { /* of a single sequence the content rows stand together; of several, all rows go along */
      const int64_t keyed = c->batch > 1 ? count : c->content;
      columns(keyed, mine, layer->key, deep, width, from, to, key);
      columns(keyed, mine, layer->value, deep, width, from, to, value);
    }
    if (l == c->layers - 1 && !c->need_content) { /* only the query rows go on */
      rows -= c->content, count = c->batch * rows;
      for (int64_t b = 0; b < c->batch; ++b)
        memmove(mine + b * rows * width, mine + (b * c->rows + c->content) * width, (size_t)(rows * width) * sizeof(real));
    }
    columns(count, mine, layer->query, deep, width, from, to, query);
    const Decode attention = {
      .batch = c->batch, .rows = rows, .heads = c->heads, .size = c->size, .keys = c->keys, .told = c->rows,
      .skipped = c->rows - rows, .head_step = c->head_step, .batch_step = c->batch_step, .table_step = c->table_step,
      .scale = c->scale, .query = query, .content_bias = layer->content_bias, .position_bias = layer->position_bias,
      .segment_bias = layer->segment_bias, .difference = layer->difference, .key = layer->keys,
      .value = layer->values, .table = layer->table, .index = c->index, .hidden = c->hidden, .other = c->other,
      .blind = c->blind, .out = attended,
    };
    #pragma omp barrier
    #pragma omp for schedule(static)
    for (int64_t task = 0; task < c->batch * c->heads; ++task) {
      keep_keys(c, layer, task / c->heads, task % c->heads, key, value);
      if (rows) one_head(&attention, task / c->heads, task % c->heads, scores);
    } /* the threads meet here, and at each barrier below */
    if (!rows) return;
    columns(count, attended, layer->output, width, deep, first, stop, sums);
    for (int64_t r = 0; r < count; ++r)
      for (ptrdiff_t d = first; d < stop; ++d) sums[r * width + d] += mine[r * width + d];
    #pragma omp barrier
    normalize(count, width, (real)c->eps, layer->norm, layer->norm_bias, sums, mine);
    columns(count, mine, layer->inner, c->inner, width, start, end, inner);
    for (int64_t r = 0; r < count; ++r)
      activate(end - start, c->activation, layer->inner_bias + start, inner + r * c->inner + start);
    #pragma omp barrier
    columns(count, inner, layer->outer, width, c->inner, first, stop, sums);
    for (int64_t r = 0; r < count; ++r)
      for (ptrdiff_t d = first; d < stop; ++d) sums[r * width + d] += mine[r * width + d] + layer->outer_bias[d];
    #pragma omp barrier
    normalize(count, width, (real)c->eps, layer->last_norm, layer->last_norm_bias, sums, mine);
  }
  if (me == 0) memcpy(c->states, mine, (size_t)(count * width) * sizeof(real));
}

void step(const Step *c) {
  #pragma omp parallel num_threads(c->threads)
  all_layers(c, omp_get_thread_num(), omp_get_num_threads());
}
