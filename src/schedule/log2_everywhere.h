// A logarithm that gives the same bits on every system. Ranks on different systems must compute the
// same costs, but the logarithms of their mathematical libraries differ in the last bits.
#pragma once

namespace mccl::schedule {

/// Logarithm to base 2 of a number above 0. It is exact for powers of two, and otherwise accurate
/// to a few units in the last place. The result is the same wherever arithmetic follows IEEE 754
/// and the compiler fuses no operations.
double log2_everywhere(double x);

}  // namespace mccl::schedule
