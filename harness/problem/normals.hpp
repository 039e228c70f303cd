// The random numbers that inputs are made of.
#pragma once
#include <cstdint>
#include <span>

#include "harness/stages/hash.hpp"

namespace ladder {

// Independent N(0, 1) values, in pairs that depend on `stream` and their number alone, from pair `first` on: any thread can
// make any of them. They are computed as doubles, so that the last bits, in which mathematical libraries differ, are far below
// what an f16 keeps. An even number of values.
void draw_normals(uint64_t stream, uint64_t first, std::span<float> values);

}  // namespace ladder
