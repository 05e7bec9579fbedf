// Ranks of different systems must find the same costs to the last bit, and the logarithms of their
// mathematical libraries differ there.
#pragma once

namespace mccl::schedule {

/// The logarithm to base 2 of a number above 0: exact for powers of two, else within a few units of
/// the last place; alike wherever arithmetic is IEEE's and nothing is fused.
double log2_everywhere(double x);

}  // namespace mccl::schedule
