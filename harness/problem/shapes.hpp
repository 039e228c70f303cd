// Which problems a stage takes.
#pragma once
#include <string>

#include "harness/base/error.hpp"
#include "harness/stage.hpp"

namespace ladder {

// "B=1 H=1 N=512 d=128"
std::string to_string(const Shape& shape);

// Success, or why the variant cannot solve this shape, with the nearest N that it can: usage, or cannot_run_here when no
// GPU, emulated or not, has the shared memory for it.
Status supports(const Stage& stage, const Variant& variant, const Shape& shape);

// Success, or how much shared memory per block the variant needs at n keys and that `who` has `available` bytes of it
// (cannot_run_here).
Status fits_shared_memory(const Stage& stage, const Variant& variant, int n, size_t available, const std::string& who);

}  // namespace ladder
