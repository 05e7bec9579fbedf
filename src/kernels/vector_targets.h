// Selects the instruction sets that the kernels are compiled for. Must be included before any
// Highway header.
//
// Each instruction set adds compile time, so some are excluded. x86 machines without SSE4 run the
// scalar code, and machines with SVE run the NEON code.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
