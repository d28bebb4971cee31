/* Two-stream relative attention in tiles, forward and backward, in one call.

   A tile is a few consecutive rows of one head of one sequence against all keys. Its scores by content and by distance
   are two matrix products; one pass over each row turns them into weights (or, backward, into gradients of the
   scores); further products follow. Tiles stay in the cache of a core, nothing of the size rows x keys is kept, and a
   row finds visibility, distance and "another segment" from a few integers a row and a key: no mask is ever stored.

   Products are done by the matrix library that torch itself is linked with, one thread each inside a parallel region, or
   by those of `products.c`, which comes before this text, as does `basics.c`. Within bfloat16 storage they take bfloat16
   and sum in float. */

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
  int64_t threads, room;                   /* room: reals of scratch a thread has, at least what `room` says */
  double scale;                            /* of what dropout keeps */
  Product *product;                        /* of the library; NULL: ours, with a size that is a multiple of WIDE */
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
  const stored *upstream;                                  /* [B, N, R, H] gradient of out, scaled as out was */
  real *content_gradient, *position_gradient;              /* [B, N, R, H], of by_content and by_position */
  real *segment_gradient;                                  /* [B, N, R] */
  real *key_gradient, *value_gradient;                     /* [B, N, S, H], zeros to add to */
  real *table_gradient;                                    /* [G, 2, N, T, H] (forward, reversed), zeros to add to */
} Call;

/* The rows of a factor, [count, size], and the forms in which our own products read them. */
typedef struct {
  const stored *plain;
  word *across; /* [words of a row, line]: for products with the transposed matrix */
  word *along;  /* [words of a column, size]: for products that sum over the rows */
  int64_t line;
} Factor;

typedef struct {
  int64_t group, head;
  int64_t b, last, line; /* sequence; end of the group's; number of the sequence times N plus the head */
  int64_t first, rows;   /* rows of the tile */
  int64_t low, wide;     /* window of the table: first column and how many; low is even */
  int64_t skip;          /* columns of the window before the one that the last row and the first key read, if shifted */
  int shift;
  int64_t keys_line, wide_line;        /* reals between rows of what follows */
  real *content, *distance, *gradient; /* [rows, keys_line], [rows, wide_line], [rows, keys_line] in scratch */
  real *row;                           /* one row of S, then one of the widest window */
  uint32_t *words;
  Factor key, value, table, upstream, by_content, by_position;
  word *pairs; /* a tile in words of two rows each */
} Tile;

enum { RATIO = sizeof(real) / sizeof(stored) }; /* narrow rows take the place of wide ones, with their distance */

/* Room for a form of a factor: `lines` of `line` words, as the next piece of scratch. */
static word *take(real **at, int64_t count) {
  word *taken = (word *)*at;
  *at += round_up(count, LANES) * (int64_t)(sizeof(word)) / (int64_t)sizeof(real) + LANES;
  return taken;
}

/* Lay out a thread's scratch from `base`; returns its end. */
static real *lay_out(const Call *c, Tile *t, real *base) {
  real *at = base;
  t->keys_line = line_of(c->keys + 1);
  t->wide_line = line_of(c->columns + 1);
  t->content = at, at += c->tile_rows * t->keys_line;
  t->gradient = at, at += c->tile_rows * t->keys_line;
  t->distance = at, at += c->tile_rows * t->wide_line;
  t->row = at, at += t->keys_line + t->wide_line;
  t->words = (uint32_t *)at, at += round_up(c->keys, LANES);
#if defined(OWN_PRODUCTS)
  if (c->product) return at;
  const int64_t deep = c->size / DEEP;
  t->key.line = t->value.line = t->keys_line;
  t->table.line = line_of(c->columns + WIDE); /* a window may begin anywhere */
  t->key.across = take(&at, deep * t->key.line);
  t->value.across = take(&at, deep * t->value.line);
  t->table.across = take(&at, deep * t->table.line);
  if (DEEP > 1) {
    const int64_t keys = (c->keys + 1) / DEEP * c->size, rows = (c->tile_rows + 1) / DEEP * c->size;
    t->key.along = take(&at, keys);
    t->value.along = take(&at, keys);
    t->table.along = take(&at, (c->columns + 1) / DEEP * c->size);
    t->upstream.along = take(&at, rows);
    t->by_content.along = take(&at, rows);
    t->by_position.along = take(&at, rows);
    t->pairs = take(&at, (c->tile_rows + 1) / DEEP * (t->keys_line > t->wide_line ? t->keys_line : t->wide_line));
  }
#endif
  return at;
}

/* Reals of scratch that a thread needs. */
int64_t room(const Call *c) {
  static real nothing[1];
  Tile t;
  return lay_out(c, &t, nothing) - nothing;
}

static void turned(const Call *c, Factor *f, int64_t count) {
#if defined(OWN_PRODUCTS)
  if (!c->product) turn((const word *)f->plain, count, c->size / DEEP, f->across, f->line);
#endif
}

static void paired(const Call *c, Factor *f, int64_t count) {
#if defined(OWN_PRODUCTS) && defined(BFLOAT16)
  if (!c->product) pair(f->plain, count, c->size, c->size, f->along, c->size);
#elif defined(OWN_PRODUCTS)
  f->along = (word *)f->plain;
#endif
}

/* out [rows, columns] = A [rows, size] F', the transposed factor from its row `start` on. */
static void times_across(const Call *c, int64_t rows, int64_t columns, const stored *a, const Factor *f, int64_t start,
                         real *out, int64_t line) {
#if defined(OWN_PRODUCTS)
  if (!c->product) {
    const int64_t deep = c->size / DEEP;
    product(rows, columns, deep, (const word *)a, deep, 1, f->across + start, f->line, 1, 0, out, line);
    return;
  }
#endif
  const int n = (int)columns, m = (int)rows, k = (int)c->size, step = (int)line;
  const real one = 1, none = 0;
  c->product("T", "N", &n, &m, &k, &one, f->plain + start * c->size, &k, a, &k, &none, out, &step);
}

/* out [rows, size] = A [rows, depth] F, the factor from its row `start` (even) on; `line` reals between rows of A. Behind
   a row of A stands a zero. */
static void times_along(const Call *c, int64_t rows, int64_t depth, const stored *a, int64_t line, const Factor *f,
                        int64_t start, real *out) {
#if defined(OWN_PRODUCTS)
  if (!c->product) {
    product(rows, c->size, (depth + DEEP - 1) / DEEP, (const word *)a, line, 1, f->along + start / DEEP * c->size,
            c->size, 1, 0, out, c->size);
    return;
  }
#endif
  const int n = (int)c->size, m = (int)rows, k = (int)depth, step = (int)line * RATIO;
  const real one = 1, none = 0;
  c->product("N", "N", &n, &m, &k, &one, f->plain + start * c->size, &n, a, &step, &none, out, &n);
}

/* out [columns, size] += factor A' F for the tile A [rows, columns] and the factor's [rows, size]. */
static void add_transposed(const Call *c, const Tile *t, int64_t columns, const stored *a, int64_t line, real factor,
                           const Factor *f, real *out) {
#if defined(OWN_PRODUCTS)
  if (!c->product) {
#if defined(BFLOAT16)
    pair(a, t->rows, line * RATIO, columns, t->pairs, line);
    a = (const stored *)t->pairs;
#endif
    product(columns, c->size, (t->rows + DEEP - 1) / DEEP, (const word *)a, 1, line, f->along, c->size, factor, 1, out,
            c->size);
    return;
  }
#endif
  const int n = (int)c->size, m = (int)columns, k = (int)t->rows, step = (int)line * RATIO;
  const real one = 1;
  c->product("N", "T", &n, &m, &k, &factor, f->plain, &n, a, &step, &one, out, &n);
}

/* Begin the window at an even column: two rows of the table may share a word. */
static void even(Tile *t) {
  t->skip = t->low % 2;
  t->low -= t->skip;
  t->wide += t->skip;
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
    even(t);
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
  even(t);
}

static void score_tile(const Call *c, const Tile *t) {
  const int64_t start = (t->line * c->rows + t->first) * c->size;
  times_across(c, t->rows, c->keys, c->by_content + start, &t->key, 0, t->content, t->keys_line);
  times_across(c, t->rows, t->wide, c->by_position + start, &t->table, t->low, t->distance, t->wide_line);
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
  const real *restrict content = t->content + i * t->keys_line;
  const real *restrict distance = t->distance + i * t->wide_line;
  real *restrict score = t->row;
  if (t->shift) {
    distance += t->skip + t->rows - 1 - i;
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
  stored *weight = (stored *)(t->content + i * t->keys_line);
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
  weight[keys] = 0;
}

/* Weights again, in the place of the scores by content, and the gradients of the scores: by content in the place of
   the gradients of the weights, by distance in the place of the scores by distance. */
static void return_row(const Call *c, const Tile *t, int64_t i) {
  const int64_t keys = c->keys, wide = t->wide, number = t->line * c->rows + t->first + i;
  const uint8_t *bytes = (const uint8_t *)t->words, least = (uint8_t)c->threshold;
  const real top = c->top[number];
  real *restrict score = t->row, *restrict spread = t->row + keys;
  real *upstream = t->gradient + i * t->keys_line, inner = 0;
  stored *weight = (stored *)(t->content + i * t->keys_line), *gradient = (stored *)(t->gradient + i * t->keys_line);
  stored *window = (stored *)(t->distance + i * t->wide_line);
  score_row(c, t, i);
  draw_row(c, t, i);
  #pragma omp simd reduction(+ : inner)
  for (int64_t j = 0; j < keys; ++j) {
    real all = power(score[j] - top), kept = bytes[j] >= least ? all : (real)0;
    weight[j] = store(kept);
    score[j] = all;
    upstream[j] *= kept;
    inner += upstream[j];
  }
  /* Summed from the products themselves, not from the output: what must cancel, cancels exactly. */
  inner *= c->inverse[number];
  for (int64_t j = 0; j < keys; ++j) score[j] = upstream[j] - score[j] * inner;
  for (int64_t j = 0; j < keys; ++j) gradient[j] = store(score[j]);
  gradient[keys] = 0;
  if (c->key_segment) {
    const int32_t *restrict segment = c->key_segment + t->b * keys;
    const int32_t mine = c->row_segment[t->b * c->rows + t->first + i];
    real sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < keys; ++j) sum += segment[j] != mine ? score[j] : (real)0;
    c->segment_gradient[number] = sum;
  }
  if (t->shift) {
    const int64_t before = t->skip + t->rows - 1 - i;
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
  window[wide] = 0;
}

/* The first sequence of a task. */
static void begin(const Call *c, Tile *t, int64_t task) {
  t->group = task / c->heads;
  t->head = task % c->heads;
  t->b = t->group * c->batch / c->groups;
  t->last = (t->group + 1) * c->batch / c->groups;
  t->table.plain = NULL;
}

/* The factors of a sequence and head, in the forms that the direction needs. */
static void prepare(const Call *c, Tile *t, int backward) {
  const stored *table = (c->sign[t->b] < 0 ? c->reversed_table : c->forward_table) + t->head * c->columns * c->size;
  t->line = t->b * c->heads + t->head;
  t->key.plain = c->key + t->line * c->keys * c->size;
  t->value.plain = c->value + t->line * c->keys * c->size;
  turned(c, &t->key, c->keys);
  if (backward) {
    turned(c, &t->value, c->keys);
    paired(c, &t->key, c->keys);
  } else paired(c, &t->value, c->keys);
  if (table == t->table.plain) return;
  t->table.plain = table;
  turned(c, &t->table, c->columns);
  if (backward) paired(c, &t->table, c->columns);
}

void forward(const Call *c) {
  #pragma omp parallel num_threads(c->threads)
  {
    Tile t;
    lay_out(c, &t, c->scratch + omp_get_thread_num() * c->room);
    #pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < c->groups * c->heads; ++task)
    for (begin(c, &t, task); t.b < t.last; ++t.b) {
      prepare(c, &t, 0);
      for (int64_t first = 0; first < c->rows; first += t.rows) {
        place(c, &t, first);
        score_tile(c, &t);
        for (int64_t i = 0; i < t.rows; ++i) weigh_row(c, &t, i);
        const int64_t number = t.line * c->rows + first;
        real *out = c->out + number * c->size;
        times_along(c, t.rows, c->keys, (const stored *)t.content, t.keys_line, &t.value, 0, out);
        for (int64_t i = 0; i < t.rows; ++i) {
          const real factor = c->inverse[number + i] * (real)c->scale;
          for (int64_t h = 0; h < c->size; ++h) out[i * c->size + h] *= factor;
        }
      }
    }
  }
}

/* The tile's rows of a factor that has one for each row. */
static void follow(const Call *c, const Tile *t, Factor *f, const stored *all) {
  f->plain = all + (t->line * c->rows + t->first) * c->size;
  paired(c, f, t->rows);
}

void backward(const Call *c) {
  const real ln2 = (real)0.69314718055994531;
  #pragma omp parallel num_threads(c->threads)
  {
    Tile t;
    lay_out(c, &t, c->scratch + omp_get_thread_num() * c->room);
    #pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < c->groups * c->heads; ++task)
    for (begin(c, &t, task); t.b < t.last; ++t.b) {
      prepare(c, &t, 1);
      const int64_t size = c->size, keys = c->keys, all = t.line * keys * size;
      real *table = c->table_gradient + ((t.group * 2 + (c->sign[t.b] < 0)) * c->heads + t.head) * c->columns * size;
      for (int64_t first = 0; first < c->rows; first += t.rows) {
        place(c, &t, first);
        score_tile(c, &t);
        follow(c, &t, &t.upstream, c->upstream);
        follow(c, &t, &t.by_content, c->by_content);
        follow(c, &t, &t.by_position, c->by_position);
        times_across(c, t.rows, keys, t.upstream.plain, &t.value, 0, t.gradient, t.keys_line);
        for (int64_t i = 0; i < t.rows; ++i) return_row(c, &t, i);
        const int64_t start = (t.line * c->rows + first) * size;
        const stored *weight = (const stored *)t.content, *scores = (const stored *)t.gradient;
        const stored *window = (const stored *)t.distance;
        add_transposed(c, &t, keys, weight, t.keys_line, 1, &t.upstream, c->value_gradient + all);
        times_along(c, t.rows, keys, scores, t.keys_line, &t.key, 0, c->content_gradient + start);
        add_transposed(c, &t, keys, scores, t.keys_line, ln2, &t.by_content, c->key_gradient + all);
        times_along(c, t.rows, t.wide, window, t.wide_line, &t.table, t.low, c->position_gradient + start);
        add_transposed(c, &t, t.wide, window, t.wide_line, ln2, &t.by_position, table + t.low * size);
      }
    }
  }
}
