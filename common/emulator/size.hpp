// How large the emulated GPU is.
#pragma once
#include <cstdint>

namespace emulator {

// SMs of the emulated GPU, unless Options say otherwise: few, so that the blocks of a persistent kernel have more than
// one share of the work each. Where parts of a grid alone are run there are more than anybody has work for, and a block
// has one share.
inline constexpr uint32_t MULTIPROCESSORS = 4, MANY_MULTIPROCESSORS = 1u << 30;

}  // namespace emulator
