/* Activation and dropout of the feed-forward layer in one pass, forward and backward. Without an activation the
   backward pass is the forward pass of the gradient.

   Entries go in chunks of 1024 that are numbered over the whole array: dropout depends on seed and number alone, so the
   backward pass draws the same decisions again and nothing is kept. `basics.c` and `gelu.c` come before this text. */

enum { CHUNK = 1024 };

typedef struct {
  int64_t count;      /* entries */
  int64_t activation; /* 0: none; 1: gelu */
  int64_t threshold;  /* a byte below it drops its entry; 0: no dropout */
  uint64_t seed;
  double scale;       /* of what is kept */
  int64_t threads;
  const stored *input;
  const stored *upstream; /* gradient of an activated result: the output is then that of the input; else NULL */
  stored *output;
} Pointwise;

static inline real slope(real x) {
  real e = decay(x), gate = 1 / (1 + e);
  return gate + x * gate * (e * gate) * 2 * SLOPE * (1 + 3 * CUBIC * x * x); /* e * gate = 1 - gate, not cancelled */
}

void run(const Pointwise *p) {
  int64_t chunks = (p->count + CHUNK - 1) / CHUNK;
  real scale = (real)p->scale;
  uint8_t least = (uint8_t)p->threshold;
  #pragma omp parallel for num_threads(p->threads) schedule(static)
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    int64_t first = chunk * CHUNK, length = p->count - first < CHUNK ? p->count - first : CHUNK;
    const stored *restrict x = p->input + first;
    stored *restrict y = p->output + first;
    uint32_t words[CHUNK / 4] = {0};
    const uint8_t *restrict bytes = (const uint8_t *)words;
    if (least) draw(p->seed, (uint64_t)chunk, length, words);
    if (p->upstream) {
      const stored *restrict up = p->upstream + first;
      for (int64_t j = 0; j < length; ++j) {
        real kept = load(up[j]) * slope(load(x[j])) * scale;
        y[j] = store(bytes[j] >= least ? kept : (real)0);
      }
    } else if (p->activation) {
      for (int64_t j = 0; j < length; ++j) {
        real kept = gelu(load(x[j])) * scale;
        y[j] = store(bytes[j] >= least ? kept : (real)0);
      }
    } else {
      for (int64_t j = 0; j < length; ++j) y[j] = store(bytes[j] >= least ? load(x[j]) * scale : (real)0);
    }
  }
}
