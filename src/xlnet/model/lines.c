/* Loops over lines of numbers. Each is a function of its own, because compilers make vector code of such and not of the
   same loop inside a larger function. `basics.c` comes before this text. */

#define LINE static __attribute__((noinline))

LINE void add_scaled(int64_t count, const stored *restrict from, const real *restrict bias, real factor,
                     stored *restrict to) {
  for (int64_t h = 0; h < count; ++h) to[h] = store((load(from[h]) + bias[h]) * factor);
}

LINE void add_times(int64_t count, const real *restrict from, real factor, real *restrict to) {
  for (int64_t h = 0; h < count; ++h) to[h] += from[h] * factor;
}

LINE void add_times_sum(int64_t count, const stored *restrict from, const real *restrict bias, real factor,
                        real *restrict to) {
  for (int64_t h = 0; h < count; ++h) to[h] += (load(from[h]) + bias[h]) * factor;
}

LINE void times(int64_t count, const stored *restrict from, real factor, stored *restrict to) {
  for (int64_t h = 0; h < count; ++h) to[h] = store(load(from[h]) * factor);
}

LINE void keep_times(int64_t count, const real *restrict from, real factor, stored *restrict to) {
  for (int64_t h = 0; h < count; ++h) to[h] = store(from[h] * factor);
}

/* (from + bias) . other. */
LINE real dot(int64_t count, const stored *restrict from, const real *restrict bias, const real *restrict other) {
  real sum = 0;
  #pragma omp simd reduction(+ : sum)
  for (int64_t h = 0; h < count; ++h) sum += (load(from[h]) + bias[h]) * other[h];
  return sum;
}

LINE real highest(int64_t count, const real *restrict from) {
  real top = -INFINITY;
  #pragma omp simd reduction(max : top)
  for (int64_t j = 0; j < count; ++j) top = from[j] > top ? from[j] : top;
  return top;
}

/* Scores to 2^(score - top), and their sum. */
LINE real raise(int64_t count, real top, real *restrict score) {
  real sum = 0;
  #pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < count; ++j) {
    score[j] = power(score[j] - top);
    sum += score[j];
  }
  return sum;
}

LINE void keep(int64_t count, const real *restrict from, const uint8_t *restrict bytes, uint8_t least,
               stored *restrict to) {
  for (int64_t j = 0; j < count; ++j) to[j] = store(bytes[j] >= least ? from[j] : (real)0);
}

/* Gradients of weights to those times the kept weights; their sum. */
LINE real meet(int64_t count, const real *restrict all, const uint8_t *restrict bytes, uint8_t least,
               real *restrict upstream) {
  real sum = 0;
  #pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < count; ++j) {
    upstream[j] *= bytes[j] >= least ? all[j] : (real)0;
    sum += upstream[j];
  }
  return sum;
}

LINE void part(int64_t count, const real *restrict upstream, real inner, real *restrict all) {
  for (int64_t j = 0; j < count; ++j) all[j] = upstream[j] - all[j] * inner;
}
