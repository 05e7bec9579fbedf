// Selects the instruction sets that the kernels are compiled for. Must be included before any
// Highway header.
//
// Each set costs compile time, so sets that no relevant machine needs are left out. x86 without
// SSE4 runs the scalar code, and SVE machines run NEON.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
