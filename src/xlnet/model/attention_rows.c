/* What attention does to the scores of one tile between the matrix products, in one pass over each row.

   forward:   scores by content and by distance -> weights 2^(score - top), dropped out, and the softmax denominator.
   backward:  the same again, and the gradient with respect to the weights -> gradient with respect to the scores.

   A tile is `items` blocks (heads of one sequence, or sequences for one head) of `rows` rows against `keys` keys. A
   row finds visibility, distance and "another segment" from a few integers a row and a key: no mask is ever stored.
   What is written for a row may take the place of what was read for it: weight that of content,
   score_gradient that of weight_gradient, distance_gradient that of distance.
   `basics.c` comes before this text. */

typedef struct {
  int64_t items, rows, keys, wide;      /* wide: columns of the scores by distance */
  int64_t row_stride, key_stride;       /* from one item to the next in the integer arrays; 0 where items are heads */
  int64_t explicit_stride;              /* the same for `explicit` */
  int64_t value_stride;                 /* the same for the arrays of one real a row */
  int64_t shift;                        /* 1: row i reads the band that starts at column rows - 1 - i; 0: it gathers */
  int64_t sign, low, high, start;       /* gathering: column = clamp(sign * (row - key), low, high) - start */
  int64_t reach;                        /* causal rows see so many positions back; negative: rows are not causal */
  int64_t first_number, number_stride;  /* rows are numbered over the whole call: dropout depends on the number alone */
  uint64_t seed;
  int64_t threshold;                    /* a byte below it drops its entry; 0: no dropout */
  int64_t threads;
  const int32_t *row_position, *key_position;
  const int32_t *sees, *order;               /* visible: order[key] <= sees[row]; NULL: all are */
  const int32_t *row_segment, *key_segment;  /* NULL: no segments */
  const int32_t *own;                        /* the key that is the row itself, always visible; -1 for none */
  const uint8_t *explicit;                   /* [rows, keys] 1 where visible, or NULL */
  const real *by_segment;                    /* one a row: what a key of another segment adds */
  const stored *content, *distance;          /* [items, rows, keys] and [items, rows, wide] */
  real *top, *inverse;                       /* highest score and one over the denominator; written by forward */
  stored *weight;                            /* forward: weights to multiply the values with; backward: the same */
  const stored *weight_gradient;             /* backward: upstream . value */
  const real *inner;                         /* backward: sum over keys of weight times its gradient */
  stored *score_gradient, *distance_gradient;
  real *segment_gradient;
} Tile;

/* Scores of one row in units of log 2, hidden keys at -inf. */
static void score_row(const Tile *t, int64_t item, int64_t i, real *restrict score) {
  int64_t keys = t->keys, line = item * t->rows + i;
  const stored *restrict content = t->content + line * keys;
  const stored *restrict distance = t->distance + line * t->wide;
  const int32_t *restrict position = t->key_position + item * t->key_stride;
  int32_t here = t->row_position[item * t->row_stride + i];
  if (t->shift) {
    distance += t->rows - 1 - i;
    for (int64_t j = 0; j < keys; ++j) score[j] = load(content[j]) + load(distance[j]);
  } else {
    int32_t sign = (int32_t)t->sign, low = (int32_t)t->low, high = (int32_t)t->high, start = (int32_t)t->start;
    for (int64_t j = 0; j < keys; ++j) {
      int32_t apart = sign * (here - position[j]);
      apart = apart < low ? low : apart;
      apart = apart > high ? high : apart;
      score[j] = load(content[j]) + load(distance[apart - start]);
    }
  }
  if (t->key_segment) {
    const int32_t *restrict segment = t->key_segment + item * t->key_stride;
    int32_t own = t->row_segment[item * t->row_stride + i];
    real other = t->by_segment[item * t->value_stride + i];
    for (int64_t j = 0; j < keys; ++j) score[j] += segment[j] != own ? other : (real)0;
  }
  int64_t self = t->own[i];
  real kept = self >= 0 ? score[self] : (real)0;
  if (t->order) {
    const int32_t *restrict order = t->order + item * t->key_stride;
    int32_t sees = t->sees[item * t->row_stride + i];
    for (int64_t j = 0; j < keys; ++j) score[j] = order[j] <= sees ? score[j] : -(real)INFINITY;
  }
  if (t->reach >= 0) {
    int32_t reach = (int32_t)t->reach;
    for (int64_t j = 0; j < keys; ++j) {
      int32_t back = here - position[j];
      score[j] = (back >= 0) & (back <= reach) ? score[j] : -(real)INFINITY;
    }
  }
  if (t->explicit) {
    const uint8_t *restrict visible = t->explicit + item * t->explicit_stride + i * keys;
    for (int64_t j = 0; j < keys; ++j) score[j] = visible[j] ? score[j] : -(real)INFINITY;
  }
  if (self >= 0) score[self] = kept;
}

/* Room for one row of a thread: scores, random words, a row of distances. */
static char *room(const Tile *t) {
  return malloc((size_t)(t->keys + t->wide) * sizeof(real) + (size_t)((t->keys + 3) / 4) * sizeof(uint32_t));
}

/* Both return 0, or 1 where memory ran out. */
int forward(const Tile *t) {
  int failed = 0;
  #pragma omp parallel num_threads(t->threads)
  {
    char *memory = room(t);
    if (!memory) {
      #pragma omp atomic write
      failed = 1;
    }
    real *score = (real *)memory;
    uint32_t *words = (uint32_t *)(score + (memory ? t->keys + t->wide : 0));
    #pragma omp for schedule(static)
    for (int64_t line = 0; line < t->items * t->rows; ++line) {
      if (!memory) continue;
      int64_t item = line / t->rows, i = line % t->rows, keys = t->keys;
      score_row(t, item, i, score);
      real top = -INFINITY, sum = 0;
      #pragma omp simd reduction(max : top)
      for (int64_t j = 0; j < keys; ++j) top = score[j] > top ? score[j] : top;
      /* A row that sees nothing has a top of -inf: a finite one makes all its weights zero. */
      if (top == -(real)INFINITY) top = 0;
      #pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < keys; ++j) {
        score[j] = power(score[j] - top);
        sum += score[j];
      }
      t->top[item * t->value_stride + i] = top;
      t->inverse[item * t->value_stride + i] = sum == 0 ? 1 : 1 / sum;
      stored *weight = t->weight + line * keys;
      if (t->threshold) {
        uint8_t least = (uint8_t)t->threshold;
        const uint8_t *bytes = (const uint8_t *)words;
        draw(t->seed, (uint64_t)(t->first_number + item * t->number_stride + i), keys, words);
        #pragma omp simd
        for (int64_t j = 0; j < keys; ++j) weight[j] = store(bytes[j] >= least ? score[j] : (real)0);
      } else {
        #pragma omp simd
        for (int64_t j = 0; j < keys; ++j) weight[j] = store(score[j]);
      }
    }
    free(memory);
  }
  return failed;
}

int backward(const Tile *t) {
  int failed = 0;
  #pragma omp parallel num_threads(t->threads)
  {
    char *memory = room(t);
    if (!memory) {
      #pragma omp atomic write
      failed = 1;
    }
    real *score = (real *)memory, *apart = score + (memory ? t->keys : 0);
    uint32_t *words = (uint32_t *)(apart + (memory ? t->wide : 0));
    #pragma omp for schedule(static)
    for (int64_t line = 0; line < t->items * t->rows; ++line) {
      if (!memory) continue;
      int64_t item = line / t->rows, i = line % t->rows, keys = t->keys;
      real top = t->top[item * t->value_stride + i], inner = t->inner[item * t->value_stride + i];
      const stored *upstream = t->weight_gradient + line * keys;
      stored *weight = t->weight + line * keys;
      stored *gradient = t->score_gradient + line * keys;
      stored *wide = t->distance_gradient + line * t->wide;
      const uint8_t *bytes = (const uint8_t *)words;
      uint8_t least = (uint8_t)t->threshold;
      score_row(t, item, i, score);
      if (least) draw(t->seed, (uint64_t)(t->first_number + item * t->number_stride + i), keys, words);
      else memset(words, 0, (size_t)keys);
      #pragma omp simd
      for (int64_t j = 0; j < keys; ++j) {
        real all = power(score[j] - top), kept = bytes[j] >= least ? all : (real)0;
        weight[j] = store(kept);
        score[j] = load(upstream[j]) * kept - all * inner;
        gradient[j] = store(score[j]);
      }
      if (t->key_segment) {
        const int32_t *restrict segment = t->key_segment + item * t->key_stride;
        int32_t own = t->row_segment[item * t->row_stride + i];
        real sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < keys; ++j) sum += segment[j] != own ? score[j] : (real)0;
        t->segment_gradient[item * t->value_stride + i] = sum;
      }
      if (t->shift) {
        int64_t before = t->rows - 1 - i;
        memset(wide, 0, (size_t)before * sizeof(stored));
        memcpy(wide + before, gradient, (size_t)keys * sizeof(stored));
        memset(wide + before + keys, 0, (size_t)(t->wide - before - keys) * sizeof(stored));
      } else {
        const int32_t *restrict position = t->key_position + item * t->key_stride;
        int64_t here = t->row_position[item * t->row_stride + i];
        memset(apart, 0, (size_t)t->wide * sizeof(real));
        for (int64_t j = 0; j < keys; ++j) {
          int64_t distance = t->sign * (here - position[j]);
          distance = distance < t->low ? t->low : distance;
          distance = distance > t->high ? t->high : distance;
          apart[distance - t->start] += score[j];
        }
        #pragma omp simd
        for (int64_t j = 0; j < t->wide; ++j) wide[j] = store(apart[j]);
      }
    }
    free(memory);
  }
  return failed;
}
