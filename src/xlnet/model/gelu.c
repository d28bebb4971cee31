/* The release's gelu: x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3), which is x (1 + tanh u) / 2.
   `basics.c` comes before this text. */

#define SLOPE ((real)0.79788456080286536)
#define CUBIC ((real)0.044715)

/* exp(-2u). */
static inline real decay(real x) {
  real exponent = (real)-2.8853900817779268 * SLOPE * (x + CUBIC * x * x * x);
  return power(exponent > 120 ? 120 : exponent);
}

static inline real gelu(real x) { return x / (1 + decay(x)); }
