/* What every kernel begins with: types, bfloat16, powers of two, random bytes.
   Built three times: for float (default), for bfloat16 storage (-DBFLOAT16) and for double (-DDOUBLE). */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(DOUBLE)
typedef double real;
typedef double stored;
#elif defined(BFLOAT16)
typedef float real;
typedef uint16_t stored;
#else
typedef float real;
typedef float stored;
#endif

#if defined(BFLOAT16)
static inline real load(stored value) {
  union { uint32_t bits; float number; } both = {(uint32_t)value << 16};
  return both.number;
}
static inline stored store(real value) {
  union { float number; uint32_t bits; } both = {value};
  uint32_t rounded = (both.bits + 0x7fffu + ((both.bits >> 16) & 1u)) >> 16; /* to nearest, ties to even */
  return value != value ? 0x7fc0u : (stored)rounded;
}
#else
static inline real load(stored value) { return value; }
static inline stored store(real value) { return value; }
#endif

/* 2^x for x <= 126. The float form is a polynomial that compilers turn into vector code; its error is below 1e-7. */
static inline real power(real x) {
#if defined(DOUBLE)
  return exp2(x);
#else
  union { float number; int32_t bits; } scale;
  float clamped = x < -125.0f ? -125.0f : x;
  float whole = rintf(clamped), f = clamped - whole;
  float p = 1.5252734e-5f;
  p = p * f + 1.5403530e-4f;
  p = p * f + 1.3333558e-3f;
  p = p * f + 9.6181291e-3f;
  p = p * f + 5.5504109e-2f;
  p = p * f + 2.4022651e-1f;
  p = p * f + 6.9314718e-1f;
  p = p * f + 1.0f;
  scale.bits = ((int32_t)whole + 127) << 23;
  return x < -125.0f ? 0.0f : p * scale.number;
#endif
}

static inline uint64_t mixed64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static inline uint32_t mixed32(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

/* Four random bytes a word for `count` entries: a counter, scrambled with two keys that follow from seed and number. */
static inline void draw(uint64_t seed, uint64_t number, int64_t count, uint32_t *restrict words) {
  uint64_t key = mixed64(seed ^ mixed64(number));
  uint32_t first = (uint32_t)key, second = (uint32_t)(key >> 32);
  for (int64_t w = 0; w < (count + 3) / 4; ++w) words[w] = mixed32(mixed32((uint32_t)w * 0x9e3779b9u + first) ^ second);
}
