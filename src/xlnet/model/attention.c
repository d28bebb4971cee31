/* Two-stream relative attention in tiles, forward and backward, in one call.

   A tile is a few consecutive rows of one head of one sequence against all keys. Its scores by content and by distance
   are two matrix products; one pass over each row turns them into weights (or, backward, into gradients of the
   scores); further products follow. Tiles stay in the cache of a core, nothing of the size rows x keys is kept, and a
   row finds visibility, distance and "another segment" from a few integers a row and a key: no mask is ever stored.

   Products are done by the matrix library that torch itself is linked with, one thread each inside a parallel region,
   or by those of `products.c`. Within bfloat16 storage they take bfloat16 and sum in float. `lines.c` and
   `attention_call.c` come before this text. */

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

/* Where the tile's row `i` of a tensor [B, R, N, H] lies. */
static inline int64_t row_at(const Call *c, const Tile *t, int64_t i) {
  return ((t->b * c->rows + t->first + i) * c->heads + t->head) * c->size;
}

/* What the rows ask: (q + u) and (q + v) scaled, and (q + b) . difference scaled. */
static void ask(const Call *c, Tile *t) {
  const int64_t size = c->size, head = t->head * size;
  const real units = (real)c->units;
  for (int64_t i = 0; i < t->rows; ++i) {
    const stored *query = c->query + row_at(c, t, i);
    add_scaled(size, query, c->content_bias + head, units, t->content_rows + i * size);
    add_scaled(size, query, c->position_bias + head, units, t->position_rows + i * size);
    if (c->key_segment) t->by_segment[i] = dot(size, query, c->segment_bias + head, c->difference + head) * units;
  }
}

static void score_tile(const Call *c, Tile *t) {
  ask(c, t);
  times_across(c, t->rows, c->keys, t->content_rows, &t->key, 0, t->content, t->keys_line);
  times_across(c, t->rows, t->wide, t->position_rows, &t->table, t->low, t->distance, t->wide_line);
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
    for (int64_t j = 0; j < keys; ++j)
      score[j] = content[j] + distance[apart(sign, here, position[j], low, high) - start];
  }
  if (c->key_segment) {
    const int32_t *restrict segment = c->key_segment + t->b * keys;
    const int32_t mine = c->row_segment[place];
    const real other = t->by_segment[i];
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
  stored *weight = (stored *)(t->content + i * t->keys_line);
  score_row(c, t, i);
  draw_row(c, t, i);
  real top = highest(keys, t->row);
  if (top == -(real)INFINITY) top = 0; /* a row that sees nothing: a finite top makes all its weights zero */
  const real sum = raise(keys, top, t->row);
  c->top[number] = top;
  c->inverse[number] = sum == 0 ? 1 : 1 / sum;
  keep(keys, t->row, (const uint8_t *)t->words, (uint8_t)c->threshold, weight);
  weight[keys] = 0;
}

/* Weights again, in the place of the scores by content, and the gradients of the scores: by content in the place of
   the gradients of the weights, by distance in the place of the scores by distance. */
static void return_row(const Call *c, const Tile *t, int64_t i) {
  const int64_t keys = c->keys, wide = t->wide, number = t->line * c->rows + t->first + i;
  const uint8_t *bytes = (const uint8_t *)t->words, least = (uint8_t)c->threshold;
  real *restrict score = t->row, *restrict spread = t->row + keys, *upstream = t->gradient + i * t->keys_line;
  stored *weight = (stored *)(t->content + i * t->keys_line), *gradient = (stored *)upstream;
  stored *window = (stored *)(t->distance + i * t->wide_line);
  score_row(c, t, i);
  draw_row(c, t, i);
  raise(keys, c->top[number], score);
  keep(keys, score, bytes, least, weight);
  weight[keys] = 0;
  /* The sum comes from the products themselves, not from the output: what must cancel, cancels exactly. */
  part(keys, upstream, meet(keys, score, bytes, least, upstream) * c->inverse[number], score);
  keep_times(keys, score, 1, gradient);
  gradient[keys] = 0;
  if (c->key_segment) {
    const int32_t *restrict segment = c->key_segment + t->b * keys;
    const int32_t mine = c->row_segment[t->b * c->rows + t->first + i];
    real sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < keys; ++j) sum += segment[j] != mine ? score[j] : (real)0;
    t->segment_gradient[i] = sum;
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
  t->layout = NULL;
}

/* The gradient of the head's table, if there is one yet, to where it belongs. */
static void return_table(const Call *c, Tile *t) {
  const int64_t size = c->size, step = c->heads * size;
  if (!t->layout) return;
  for (int64_t j = 0; j < c->columns; ++j)
    add_times(size, t->table_gradient + j * size, 1,
              c->table_gradient + t->group * c->distances * step + t->layout[j] * step + t->head * size);
}

/* The head's table of distances, laid out for the direction of the sequence. */
static void prepare_table(const Call *c, Tile *t, int backward) {
  const int32_t *layout = c->sign[t->b] < 0 ? c->reversed_layout : c->forward_layout;
  const int64_t size = c->size, step = c->heads * size;
  if (layout == t->layout) return;
  if (backward) return_table(c, t);
  t->layout = layout;
  for (int64_t j = 0; j < c->columns; ++j)
    memcpy(t->table_rows + j * size, c->position_key + layout[j] * step + t->head * size,
           (size_t)size * sizeof(stored));
  t->table.plain = t->table_rows;
  lay_across(c, &t->table, c->columns);
  if (!backward) return;
  lay_along(c, &t->table, c->columns);
  memset(t->table_gradient, 0, (size_t)(c->columns * size) * sizeof(real));
}

/* The factors of a sequence and head, in the forms that the direction needs. */
static void prepare(const Call *c, Tile *t, int backward) {
  const int64_t start = (t->b * c->keys * c->heads + t->head) * c->size;
  t->line = t->b * c->heads + t->head;
  t->key.plain = c->key + start;
  t->value.plain = c->value + start;
  lay_across(c, &t->key, c->keys);
  if (backward) {
    lay_across(c, &t->value, c->keys);
    lay_along(c, &t->key, c->keys);
  } else lay_along(c, &t->value, c->keys);
  prepare_table(c, t, backward);
}

void forward(const Call *c) {
  #pragma omp parallel num_threads(c->threads)
  {
    Tile t = {0};
    lay_out(c, &t, c->scratch + omp_get_thread_num() * c->room);
    #pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < c->groups * c->heads; ++task)
    for (begin(c, &t, task); t.b < t.last; ++t.b) {
      prepare(c, &t, 0);
      for (int64_t first = 0; first < c->rows; first += t.rows) {
        place(c, &t, first);
        score_tile(c, &t);
        for (int64_t i = 0; i < t.rows; ++i) weigh_row(c, &t, i);
        times_along(c, t.rows, c->keys, (const stored *)t.content, t.keys_line, &t.value, 0, t.result);
        for (int64_t i = 0; i < t.rows; ++i) {
          const real factor = c->inverse[t.line * c->rows + first + i] * (real)c->scale;
          keep_times(c->size, t.result + i * c->size, factor, c->out + row_at(c, &t, i));
        }
      }
    }
  }
}

/* The tile's rows as factors, and of the gradient of the output, which is scaled as the output was. */
static void follow(const Call *c, Tile *t) {
  for (int64_t i = 0; i < t->rows; ++i) {
    const real factor = c->inverse[t->line * c->rows + t->first + i] * (real)c->scale;
    times(c->size, c->upstream + row_at(c, t, i), factor, t->upstream_rows + i * c->size);
  }
  t->upstream.plain = t->upstream_rows;
  t->by_content.plain = t->content_rows;
  t->by_position.plain = t->position_rows;
  lay_along(c, &t->upstream, t->rows);
  lay_along(c, &t->by_content, t->rows);
  lay_along(c, &t->by_position, t->rows);
}

/* From the gradients of what the rows asked, in t->result and t->second, to those of the query and the biases. */
static void answer(const Call *c, const Tile *t) {
  const int64_t size = c->size, head = t->head * size, place = t->group * c->heads * size + head;
  const real scale = (real)(c->units * 0.69314718055994531);
  for (int64_t i = 0; i < t->rows; ++i) {
    real *first = t->result + i * size;
    const real *second = t->second + i * size;
    add_times(size, first, scale, c->content_gradient + place);
    add_times(size, second, scale, c->position_gradient + place);
    add_times(size, second, 1, first);
    if (c->key_segment) {
      const real third = t->segment_gradient[i];
      add_times(size, c->difference + head, third, first);
      add_times_sum(size, c->query + row_at(c, t, i), c->segment_bias + head, third * scale,
                    c->embedding_gradient + place);
      c->segment_gradient[t->group * c->heads + t->head] += third * scale;
    }
    keep_times(size, first, scale, c->query_gradient + row_at(c, t, i));
  }
}

/* The sums of a sequence and head to where they belong. */
static void deliver(const Call *c, const Tile *t) {
  const int64_t size = c->size, step = c->heads * size, start = t->b * c->keys * step + t->head * size;
  for (int64_t j = 0; j < c->keys; ++j) {
    keep_times(size, t->key_gradient + j * size, 1, c->key_gradient + start + j * step);
    keep_times(size, t->value_gradient + j * size, 1, c->value_gradient + start + j * step);
  }
}

void backward(const Call *c) {
  const real ln2 = (real)0.69314718055994531;
  #pragma omp parallel num_threads(c->threads)
  {
    Tile t = {0};
    lay_out(c, &t, c->scratch + omp_get_thread_num() * c->room);
    #pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < c->groups * c->heads; ++task) {
    for (begin(c, &t, task); t.b < t.last; ++t.b) {
      prepare(c, &t, 1);
      const int64_t keys = c->keys;
      for (int64_t first = 0; first < c->rows; first += t.rows) {
        place(c, &t, first);
        score_tile(c, &t);
        follow(c, &t);
        times_across(c, t.rows, keys, t.upstream_rows, &t.value, 0, t.gradient, t.keys_line);
        for (int64_t i = 0; i < t.rows; ++i) return_row(c, &t, i);
        const stored *weight = (const stored *)t.content, *scores = (const stored *)t.gradient;
        const stored *window = (const stored *)t.distance;
        const int add = first > 0;
        transposed_times(c, &t, keys, weight, t.keys_line, 1, &t.upstream, add, t.value_gradient);
        transposed_times(c, &t, keys, scores, t.keys_line, ln2, &t.by_content, add, t.key_gradient);
        transposed_times(c, &t, t.wide, window, t.wide_line, ln2, &t.by_position, 1,
                         t.table_gradient + t.low * c->size);
        times_along(c, t.rows, keys, scores, t.keys_line, &t.key, 0, t.result);
        times_along(c, t.rows, t.wide, window, t.wide_line, &t.table, t.low, t.second);
        answer(c, &t);
      }
      deliver(c, &t);
    }
    return_table(c, &t);
    }
  }
}
