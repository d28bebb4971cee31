/* Two-stream relative attention in tiles, forward and backward, in one call.

   A tile is a few consecutive rows of one head of one sequence against all keys. Its scores by content and by distance
   are two matrix products; one pass over each row turns them into weights (or, backward, into gradients of the
   scores); further products follow. Tiles stay in the cache of a core, nothing of the size rows x keys is kept, and a
   row finds visibility, distance and "another segment" from a few integers a row and a key: no mask is ever stored.

   Products are done by the matrix library that torch itself is linked with; inside a parallel region it uses one thread.
   Within bfloat16 storage they take bfloat16 and sum in float. `basics.c` comes before this text. */

#include <omp.h>

/* C = alpha A B + beta C, all by columns, as Fortran has it. */
typedef void Product(const char *, const char *, const int *, const int *, const int *, const real *, const stored *,
                     const int *, const stored *, const int *, const real *, real *, const int *);

typedef struct {
  int64_t batch, heads, rows, keys, size;  /* B, N, R, S, H */
  int64_t groups;                          /* of sequences, G: a thread takes one head of one group at a time */
  int64_t columns;                         /* of the tables of distances, T */
  int64_t shift_rows, tile_rows;           /* the first rows are consecutive tokens and read their distances by a shift */
  int64_t low, high, lowest_column;        /* distances the table covers; column of the lowest, for rows that gather */
  int64_t reach;                           /* causal rows see so many positions back; negative: rows are not causal */
  int64_t threshold;                       /* a byte below it drops its entry; 0: no dropout */
  uint64_t seed;
  int64_t threads, room;                   /* room: reals of scratch a thread has */
  double scale;                            /* of what dropout keeps */
  Product *product;
  const int64_t *sign;                                     /* [B] +1 or -1: which way distances count */
  const int32_t *row_position, *key_position, *sees, *order, *row_segment, *key_segment; /* [B, R] or [B, S] or NULL */
  const int32_t *own;                                      /* [R] the key that is the row itself; -1 for none */
  const uint8_t *explicit;                                 /* [B, R, S] 1 where visible, instead of orders, or NULL */
  const stored *by_content, *by_position;                  /* [B, N, R, H] (q + u) and (q + v), scaled */
  const real *by_segment;                                  /* [B, N, R] what a key of another segment adds */
  const stored *key, *value;                               /* [B, N, S, H] */
  const stored *forward_table, *reversed_table;            /* [N, T, H] for either sign */
  real *scratch;                                           /* [threads, room] */
  real *out, *top, *inverse;                               /* [B, N, R, H], [B, N, R] twice: forward writes them */
  const stored *upstream;                                  /* [B, N, R, H] gradient of out over the denominator */
  const real *inner;                                       /* [B, N, R] gradient . out, over the denominator */
  real *content_gradient, *position_gradient;              /* [B, N, R, H], of by_content and by_position */
  real *segment_gradient;                                  /* [B, N, R] */
  real *key_gradient, *value_gradient;                     /* [B, N, S, H], zeros to add to */
  real *table_gradient;                                    /* [G, 2, N, T, H] (forward, reversed), zeros to add to */
} Call;

typedef struct {
  int64_t group, head;
  int64_t b, last, line; /* sequence; end of the group's; number of the sequence times N plus the head */
  int64_t first, rows;   /* rows of the tile */
  int64_t low, wide;     /* window of the table: first column and how many */
  int shift;
  real *content, *distance, *gradient; /* [rows, S], [rows, wide], [rows, S] in scratch */
  real *row;                           /* one row of S, then one of the widest window */
  uint32_t *words;
} Tile;

enum { RATIO = sizeof(real) / sizeof(stored) }; /* narrow rows take the place of wide ones, with their distance */

/* C [m, n] += or = A [m, k] B [k, n] by rows; `a_across`: A is stored as [k, m]; `b_across`: B is stored as [n, k]. */
static void multiply(const Call *c, int a_across, int b_across, int64_t m, int64_t n, int64_t k, real alpha,
                     const stored *a, int64_t a_step, const stored *b, int64_t b_step, real beta, real *out) {
  int rows = (int)m, columns = (int)n, depth = (int)k, a_line = (int)a_step, b_line = (int)b_step, line = (int)n;
  c->product(b_across ? "T" : "N", a_across ? "T" : "N", &columns, &rows, &depth, &alpha, b, &b_line, a, &a_line, &beta,
             out, &line);
}

static const stored *table_of(const Call *c, const Tile *t) {
  const stored *table = c->sign[t->b] < 0 ? c->reversed_table : c->forward_table;
  return table + (t->head * c->columns + t->low) * c->size;
}

/* Which rows, and which columns of the table they read. */
static void place(const Call *c, Tile *t, int64_t first) {
  int64_t end = first < c->shift_rows ? c->shift_rows : c->rows;
  t->first = first;
  t->rows = end - first < c->tile_rows ? end - first : c->tile_rows;
  t->shift = first < c->shift_rows;
  if (t->shift) {
    t->low = c->shift_rows - first - t->rows;
    t->wide = c->keys + t->rows - 1;
    return;
  }
  const int32_t *row = c->row_position + t->b * c->rows + first, *key = c->key_position + t->b * c->keys;
  int64_t row_low = row[0], row_high = row[0], key_low = key[0], key_high = key[0];
  for (int64_t i = 1; i < t->rows; ++i) {
    row_low = row[i] < row_low ? row[i] : row_low;
    row_high = row[i] > row_high ? row[i] : row_high;
  }
  for (int64_t j = 1; j < c->keys; ++j) {
    key_low = key[j] < key_low ? key[j] : key_low;
    key_high = key[j] > key_high ? key[j] : key_high;
  }
  int64_t low = row_low - key_high, high = row_high - key_low;
  if (c->sign[t->b] < 0) {
    int64_t turned = -high;
    high = -low;
    low = turned;
  }
  low = low < c->low ? c->low : low > c->high ? c->high : low;
  high = high < c->low ? c->low : high > c->high ? c->high : high;
  t->low = c->lowest_column + low - c->low;
  t->wide = high - low + 1;
}

static void score_tile(const Call *c, const Tile *t) {
  const int64_t start = (t->line * c->rows + t->first) * c->size;
  multiply(c, 0, 1, t->rows, c->keys, c->size, 1, c->by_content + start, c->size, c->key + t->line * c->keys * c->size,
           c->size, 0, t->content);
  multiply(c, 0, 1, t->rows, t->wide, c->size, 1, c->by_position + start, c->size, table_of(c, t), c->size, 0,
           t->distance);
}

/* Column of the window that a row at `here` reads for a key, before the start of the window is taken off. */
static inline int32_t apart(int32_t sign, int32_t here, int32_t there, int32_t low, int32_t high) {
  int32_t distance = sign * (here - there);
  distance = distance < low ? low : distance;
  return distance > high ? high : distance;
}

/* Scores of row i of a tile in units of log 2, hidden keys at -inf, into t->row. */
static void score_row(const Call *c, const Tile *t, int64_t i) {
  const int64_t keys = c->keys, row = t->first + i, place = t->b * c->rows + row;
  const int32_t *restrict position = c->key_position + t->b * keys;
  const int32_t here = c->row_position[place];
  const real *restrict content = t->content + i * keys, *restrict distance = t->distance + i * t->wide;
  real *restrict score = t->row;
  if (t->shift) {
    distance += t->rows - 1 - i;
    for (int64_t j = 0; j < keys; ++j) score[j] = content[j] + distance[j];
  } else {
    const int32_t sign = (int32_t)c->sign[t->b], low = (int32_t)c->low, high = (int32_t)c->high;
    const int32_t start = (int32_t)(t->low - c->lowest_column + c->low);
    for (int64_t j = 0; j < keys; ++j) score[j] = content[j] + distance[apart(sign, here, position[j], low, high) - start];
  }
  if (c->key_segment) {
    const int32_t *restrict segment = c->key_segment + t->b * keys;
    const int32_t mine = c->row_segment[place];
    const real other = c->by_segment[t->line * c->rows + row];
    for (int64_t j = 0; j < keys; ++j) score[j] += segment[j] != mine ? other : (real)0;
  }
  const int64_t self = c->own[row];
  const real kept = self >= 0 ? score[self] : (real)0;
  if (c->order) {
    const int32_t *restrict order = c->order + t->b * keys;
    const int32_t sees = c->sees[place];
    for (int64_t j = 0; j < keys; ++j) score[j] = order[j] <= sees ? score[j] : -(real)INFINITY;
  }
  if (c->reach >= 0) {
    const int32_t reach = (int32_t)c->reach;
    for (int64_t j = 0; j < keys; ++j) {
      int32_t back = here - position[j];
      score[j] = (back >= 0) & (back <= reach) ? score[j] : -(real)INFINITY;
    }
  }
  if (c->explicit) {
    const uint8_t *restrict visible = c->explicit + place * keys;
    for (int64_t j = 0; j < keys; ++j) score[j] = visible[j] ? score[j] : -(real)INFINITY;
  }
  if (self >= 0) score[self] = kept;
}

static void draw_row(const Call *c, const Tile *t, int64_t i) {
  if (c->threshold) draw(c->seed, (uint64_t)(t->line * c->rows + t->first + i), c->keys, t->words);
  else memset(t->words, 0, (size_t)c->keys);
}

/* Weights 2^(score - top) of a row, dropped out, in the place of its scores by content; top and denominator noted. */
static void weigh_row(const Call *c, const Tile *t, int64_t i) {
  const int64_t keys = c->keys, number = t->line * c->rows + t->first + i;
  const uint8_t *bytes = (const uint8_t *)t->words, least = (uint8_t)c->threshold;
  real *restrict score = t->row;
  stored *weight = (stored *)(t->content + i * keys);
  real top = -INFINITY, sum = 0;
  score_row(c, t, i);
  draw_row(c, t, i);
  #pragma omp simd reduction(max : top)
  for (int64_t j = 0; j < keys; ++j) top = score[j] > top ? score[j] : top;
  if (top == -(real)INFINITY) top = 0; /* a row that sees nothing: a finite top makes all its weights zero */
  #pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < keys; ++j) {
    score[j] = power(score[j] - top);
    sum += score[j];
  }
  c->top[number] = top;
  c->inverse[number] = sum == 0 ? 1 : 1 / sum;
  for (int64_t j = 0; j < keys; ++j) weight[j] = store(bytes[j] >= least ? score[j] : (real)0);
}

/* Weights again, in the place of the scores by content, and the gradients of the scores: by content in the place of
   the gradients of the weights, by distance in the place of the scores by distance. */
static void return_row(const Call *c, const Tile *t, int64_t i) {
  const int64_t keys = c->keys, wide = t->wide, number = t->line * c->rows + t->first + i;
  const uint8_t *bytes = (const uint8_t *)t->words, least = (uint8_t)c->threshold;
  const real top = c->top[number], inner = c->inner[number];
  real *restrict score = t->row, *restrict spread = t->row + keys;
  const real *upstream = t->gradient + i * keys;
  stored *weight = (stored *)(t->content + i * keys), *gradient = (stored *)(t->gradient + i * keys);
  stored *window = (stored *)(t->distance + i * wide);
  score_row(c, t, i);
  draw_row(c, t, i);
  for (int64_t j = 0; j < keys; ++j) {
    real all = power(score[j] - top), kept = bytes[j] >= least ? all : (real)0;
    weight[j] = store(kept);
    score[j] = upstream[j] * kept - all * inner;
  }
  for (int64_t j = 0; j < keys; ++j) gradient[j] = store(score[j]);
  if (c->key_segment) {
    const int32_t *restrict segment = c->key_segment + t->b * keys;
    const int32_t mine = c->row_segment[t->b * c->rows + t->first + i];
    real sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < keys; ++j) sum += segment[j] != mine ? score[j] : (real)0;
    c->segment_gradient[number] = sum;
  }
  if (t->shift) {
    const int64_t before = t->rows - 1 - i;
    memset(window, 0, (size_t)before * sizeof(stored));
    memcpy(window + before, gradient, (size_t)keys * sizeof(stored));
    memset(window + before + keys, 0, (size_t)(wide - before - keys) * sizeof(stored));
  } else {
    const int32_t *restrict position = c->key_position + t->b * keys;
    const int32_t here = c->row_position[t->b * c->rows + t->first + i], sign = (int32_t)c->sign[t->b];
    const int32_t low = (int32_t)c->low, high = (int32_t)c->high;
    const int32_t start = (int32_t)(t->low - c->lowest_column + c->low);
    memset(spread, 0, (size_t)wide * sizeof(real));
    for (int64_t j = 0; j < keys; ++j) spread[apart(sign, here, position[j], low, high) - start] += score[j];
    for (int64_t j = 0; j < wide; ++j) window[j] = store(spread[j]);
  }
}

/* Lay out the scratch of the calling thread: room >= tile_rows (2 S + T) + S + T + S. */
static void settle(const Call *c, Tile *t) {
  t->content = c->scratch + omp_get_thread_num() * c->room;
  t->gradient = t->content + c->tile_rows * c->keys;
  t->distance = t->gradient + c->tile_rows * c->keys;
  t->row = t->distance + c->tile_rows * c->columns;
  t->words = (uint32_t *)(t->row + c->keys + c->columns);
}

/* The first sequence of a task. */
static void begin(const Call *c, Tile *t, int64_t task) {
  t->group = task / c->heads;
  t->head = task % c->heads;
  t->b = t->group * c->batch / c->groups;
  t->last = (t->group + 1) * c->batch / c->groups;
}

void forward(const Call *c) {
  #pragma omp parallel num_threads(c->threads)
  {
    Tile t;
    settle(c, &t);
    #pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < c->groups * c->heads; ++task)
    for (begin(c, &t, task); t.b < t.last; ++t.b) {
      const int64_t line = t.line = t.b * c->heads + t.head;
      for (int64_t first = 0; first < c->rows; first += t.rows) {
        place(c, &t, first);
        score_tile(c, &t);
        for (int64_t i = 0; i < t.rows; ++i) weigh_row(c, &t, i);
        const int64_t number = line * c->rows + first;
        real *out = c->out + number * c->size;
        multiply(c, 0, 0, t.rows, c->size, c->keys, 1, (const stored *)t.content, c->keys * RATIO,
                 c->value + line * c->keys * c->size, c->size, 0, out);
        for (int64_t i = 0; i < t.rows; ++i) {
          const real factor = c->inverse[number + i] * (real)c->scale;
          for (int64_t h = 0; h < c->size; ++h) out[i * c->size + h] *= factor;
        }
      }
    }
  }
}

void backward(const Call *c) {
  const real ln2 = (real)0.69314718055994531;
  #pragma omp parallel num_threads(c->threads)
  {
    Tile t;
    settle(c, &t);
    #pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < c->groups * c->heads; ++task)
    for (begin(c, &t, task); t.b < t.last; ++t.b) {
      const int64_t line = t.line = t.b * c->heads + t.head, size = c->size, keys = c->keys, all = line * keys * size;
      real *table = c->table_gradient + ((t.group * 2 + (c->sign[t.b] < 0)) * c->heads + t.head) * c->columns * size;
      for (int64_t first = 0; first < c->rows; first += t.rows) {
        place(c, &t, first);
        score_tile(c, &t);
        const int64_t start = (line * c->rows + first) * size;
        const stored *upstream = c->upstream + start;
        multiply(c, 0, 1, t.rows, keys, size, 1, upstream, size, c->value + all, size, 0, t.gradient);
        for (int64_t i = 0; i < t.rows; ++i) return_row(c, &t, i);
        const stored *weight = (const stored *)t.content, *scores = (const stored *)t.gradient;
        const stored *window = (const stored *)t.distance;
        multiply(c, 1, 0, keys, size, t.rows, 1, weight, keys * RATIO, upstream, size, 1, c->value_gradient + all);
        multiply(c, 0, 0, t.rows, size, keys, 1, scores, keys * RATIO, c->key + all, size, 0,
                 c->content_gradient + start);
        multiply(c, 1, 0, keys, size, t.rows, ln2, scores, keys * RATIO, c->by_content + start, size, 1,
                 c->key_gradient + all);
        multiply(c, 0, 0, t.rows, size, t.wide, 1, window, t.wide * RATIO, table_of(c, &t), size, 0,
                 c->position_gradient + start);
        multiply(c, 1, 0, t.wide, size, t.rows, ln2, window, t.wide * RATIO, c->by_position + start, size, 1,
                 table + t.low * size);
      }
    }
  }
}
