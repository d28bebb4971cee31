/* What one call of attention is given, a thread's scratch, and the matrix products on it. `basics.c` and `products.c`
   come before this text, `attention.c` behind it. */

#include <omp.h>

/* C = alpha A B + beta C, all by columns, as Fortran has it. */
typedef void Product(const char *, const char *, const int *, const int *, const int *, const real *, const stored *,
                     const int *, const stored *, const int *, const real *, real *, const int *);

typedef struct {
  int64_t batch, heads, rows, keys, size;  /* B, N, R, S, H */
  int64_t groups;                          /* of sequences, G: a thread takes one head of one group at a time */
  int64_t distances, columns;              /* T of the position table; columns of it as laid out for one direction */
  int64_t shift_rows, tile_rows;           /* the first rows are consecutive tokens, which read distances by a shift */
  int64_t low, high, lowest_column;        /* distances the table covers; column of the lowest, for rows that gather */
  int64_t reach;                           /* causal rows see so many positions back; negative: rows are not causal */
  int64_t threshold;                       /* a byte below it drops its entry; 0: no dropout */
  uint64_t seed;
  int64_t threads, room;                   /* room: reals of scratch a thread has, at least what `room` says */
  double scale, units;                     /* of what dropout keeps; of scores, in units of log 2 */
  Product *product;                        /* of the library; NULL: ours, with a size that is a multiple of WIDE */
  const int64_t *sign;                                     /* [B] +1 or -1: which way distances count */
  const int32_t *row_position, *key_position, *sees, *order, *row_segment, *key_segment; /* [B, R] or [B, S] or NULL */
  const int32_t *own;                                      /* [R] the key that is the row itself; -1 for none */
  const uint8_t *explicit;                                 /* [B, R, S] 1 where visible, instead of orders, or NULL */
  const stored *query, *key, *value;                       /* [B, R, N, H], [B, S, N, H] twice */
  const real *content_bias, *position_bias, *segment_bias; /* [N, H]: u, v, b */
  const real *difference;                                  /* [N, H] embedding of another segment less the same's */
  const stored *position_key;                              /* [T, N, H] */
  const int32_t *forward_layout, *reversed_layout;         /* [columns] which distance a column is, for either sign */
  real *scratch;                                           /* [threads, room] */
  stored *out;                                             /* [B, R, N, H] forward writes it, and both of these: */
  real *top, *inverse;                                     /* [B, N, R] highest score; 1 / sum of weights */
  const stored *upstream;                                  /* [B, R, N, H] gradient of out */
  stored *query_gradient, *key_gradient, *value_gradient;  /* [B, R, N, H], [B, S, N, H] twice */
  real *content_gradient, *position_gradient;              /* [G, N, H] of biases; zeros to add to, as the next four */
  real *segment_gradient;                                  /* [G, N] of what another segment adds, over all rows */
  real *embedding_gradient;                                /* [G, N, H] the same times (query + segment bias) */
  real *table_gradient;                                    /* [G, T, N, H] of the position table */
} Call;

/* Rows of `size`, `step` apart, and the forms in which our own products read them. */
typedef struct {
  const stored *plain;
  int64_t step;
  word *across; /* [words of a row, line]: for products with the transposed matrix */
  word *along;  /* [words of a column, size]: for products that sum over the rows */
  word *room;   /* for `along`, where `plain` cannot serve */
  int64_t line;
} Factor;

typedef struct {
  int64_t group, head;
  int64_t b, last, line; /* sequence; end of the group's; number of the sequence times N plus the head */
  int64_t first, rows;   /* rows of the tile */
  int64_t low, wide;     /* window of the table: first column and how many; low is even */
  int64_t skip;          /* columns of the window before the one that the last row and the first key read, if shifted */
  int shift;
  int64_t keys_line, wide_line;                 /* reals between rows of what follows */
  real *content, *distance, *gradient;          /* [rows, keys_line], [rows, wide_line], [rows, keys_line] in scratch */
  real *row;                                    /* one row of S, then one of the widest window */
  real *by_segment, *segment_gradient;          /* [rows] what a key of another segment adds, and its gradient */
  real *result, *second;                        /* [rows, size] of products */
  real *key_gradient, *value_gradient;          /* [S, size] of a sequence and head */
  const int32_t *layout;                        /* of the direction at hand */
  stored *table_rows;                           /* [columns, size] the table of a head in that layout */
  real *table_gradient;                         /* [columns, size] its gradient */
  stored *content_rows, *position_rows, *upstream_rows; /* [rows, size] */
  uint32_t *words;
  Factor key, value, table, upstream, by_content, by_position;
  word *pairs; /* a tile in words of two rows each */
} Tile;

enum { RATIO = sizeof(real) / sizeof(stored) }; /* narrow rows take the place of wide ones, with their distance */

/* The next `count` reals of scratch. */
static real *take(real **at, int64_t count) {
  real *taken = *at;
  *at += round_up(count, LANES);
  return taken;
}

/* Lay out a thread's scratch from `base`; returns its end. */
static real *lay_out(const Call *c, Tile *t, real *base) {
  const int64_t rows = c->tile_rows, tile = rows * c->size, all = c->keys * c->size;
  real *at = base;
  t->keys_line = line_of(c->keys + 1);
  t->wide_line = line_of(c->columns + 1);
  t->content = take(&at, rows * t->keys_line);
  t->gradient = take(&at, rows * t->keys_line);
  t->distance = take(&at, rows * t->wide_line);
  t->row = take(&at, t->keys_line + t->wide_line);
  t->by_segment = take(&at, rows), t->segment_gradient = take(&at, rows);
  t->result = take(&at, tile), t->second = take(&at, tile);
  t->key_gradient = take(&at, all), t->value_gradient = take(&at, all);
  t->table_rows = (stored *)take(&at, c->columns * c->size), t->table_gradient = take(&at, c->columns * c->size);
  t->content_rows = (stored *)take(&at, tile);
  t->position_rows = (stored *)take(&at, tile);
  t->upstream_rows = (stored *)take(&at, tile);
  t->words = (uint32_t *)take(&at, c->keys);
  t->key.step = t->value.step = c->heads * c->size;
  t->table.step = t->upstream.step = t->by_content.step = t->by_position.step = c->size;
#if defined(OWN_PRODUCTS)
  if (c->product) return at;
  const int64_t deep = c->size / DEEP;
  t->key.line = t->value.line = t->keys_line;
  t->table.line = line_of(c->columns + WIDE); /* a window may begin anywhere */
  t->key.across = (word *)take(&at, deep * t->key.line);
  t->value.across = (word *)take(&at, deep * t->value.line);
  t->table.across = (word *)take(&at, deep * t->table.line);
  t->key.room = (word *)take(&at, all + c->size);
  t->value.room = (word *)take(&at, all + c->size);
  if (DEEP == 1) return at;
  t->table.room = (word *)take(&at, (c->columns + 1) * c->size);
  t->upstream.room = (word *)take(&at, tile);
  t->by_content.room = (word *)take(&at, tile);
  t->by_position.room = (word *)take(&at, tile);
  t->pairs = (word *)take(&at, rows * (t->keys_line > t->wide_line ? t->keys_line : t->wide_line));
#endif
  return at;
}

/* Reals of scratch that a thread needs. */
int64_t room(const Call *c) {
  static real nothing[1];
  Tile t = {0};
  return lay_out(c, &t, nothing) - nothing;
}

/* Make the form of a factor that products with its transpose read. */
static void lay_across(const Call *c, Factor *f, int64_t count) {
#if defined(OWN_PRODUCTS)
  if (!c->product) turn((const word *)f->plain, count, f->step / DEEP, c->size / DEEP, f->across, f->line);
#else
  (void)c, (void)f, (void)count;
#endif
}

/* Make the form of a factor that sums over its rows read. */
static void lay_along(const Call *c, Factor *f, int64_t count) {
#if defined(OWN_PRODUCTS)
  if (c->product) return;
  f->along = f->room;
  if (DEEP == 1 && f->step == c->size) f->along = (word *)f->plain;
  else join(f->plain, count, f->step, c->size, f->along, c->size);
#else
  (void)c, (void)f, (void)count;
#endif
}

/* out [rows, columns] = A [rows, size] F', the transposed factor from its row `start` on. */
static void times_across(const Call *c, int64_t rows, int64_t columns, const stored *a, const Factor *f, int64_t start,
                         real *out, int64_t line) {
#if defined(OWN_PRODUCTS)
  if (!c->product) {
    const int64_t deep = c->size / DEEP;
    product(rows, columns, deep, 0, (const word *)a, deep, f->across + start, f->line, 1, 0, out, line);
    return;
  }
#endif
  const int n = (int)columns, m = (int)rows, k = (int)c->size, step = (int)f->step, wide = (int)line;
  const real one = 1, none = 0;
  c->product("T", "N", &n, &m, &k, &one, f->plain + start * f->step, &step, a, &k, &none, out, &wide);
}

/* out [rows, size] = A [rows, depth] F, the factor from its row `start` (even) on; `line` reals between rows of A.
   Behind a row of A stands a zero. */
static void times_along(const Call *c, int64_t rows, int64_t depth, const stored *a, int64_t line, const Factor *f,
                        int64_t start, real *out) {
#if defined(OWN_PRODUCTS)
  if (!c->product) {
    product(rows, c->size, (depth + DEEP - 1) / DEEP, 0, (const word *)a, line, f->along + start / DEEP * c->size,
            c->size, 1, 0, out, c->size);
    return;
  }
#endif
  const int n = (int)c->size, m = (int)rows, k = (int)depth, step = (int)f->step, wide = (int)line * RATIO;
  const real one = 1, none = 0;
  c->product("N", "N", &n, &m, &k, &one, f->plain + start * f->step, &step, a, &wide, &none, out, &n);
}

/* out [columns, size] = or += factor A' F for the tile A [rows, columns] and a factor of so many rows. */
static void transposed_times(const Call *c, const Tile *t, int64_t columns, const stored *a, int64_t line, real factor,
                             const Factor *f, int add, real *out) {
#if defined(OWN_PRODUCTS)
  if (!c->product) {
#if defined(BFLOAT16)
    join(a, t->rows, line * RATIO, columns, t->pairs, line);
    a = (const stored *)t->pairs;
#endif
    product(columns, c->size, (t->rows + DEEP - 1) / DEEP, 1, (const word *)a, line, f->along, c->size, factor, add,
            out, c->size);
    return;
  }
#endif
  const int n = (int)c->size, m = (int)columns, k = (int)t->rows, step = (int)f->step, wide = (int)line * RATIO;
  const real kept = (real)add;
  c->product("N", "T", &n, &m, &k, &factor, f->plain, &step, a, &wide, &kept, out, &n);
}
