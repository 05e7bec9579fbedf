#include "schedule/log2_everywhere.h"

#include <cmath>

namespace mccl::schedule {

double log2_everywhere(double x) {
  constexpr double kHalfRoot = 0.70710678118654752;
  constexpr double kTwoByLog2 = 2.8853900817779268;  // 2 / ln 2
  int exponent = 0;
  double fraction = std::frexp(x, &exponent);  // in [1/2, 1)
  if (fraction < kHalfRoot) {
    fraction *= 2;
    --exponent;
  }
  // ln f = 2 artanh z. Since |z| < 0.172, the omitted terms are below the last place.
  const double z = (fraction - 1) / (fraction + 1);
  const double square = z * z;
  double sum = 0;
  for (int power = 21; power >= 1; power -= 2) sum = sum * square + 1.0 / power;
  return exponent + kTwoByLog2 * z * sum;
}

}  // namespace mccl::schedule
