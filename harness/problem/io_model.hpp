// How many bytes attention has to move between global memory and the chip, on paper: the model that measured bytes are
// set beside.
#pragma once
#include "harness/stage.hpp"

namespace ladder {

// Per head, with n rows of d elements of 2 bytes:
//   scores kept in global memory: Q, K, V read and O written once, 8nd; n^2 scores of 2 bytes written and read once,
//   4n^2. tiles of b_q queries: Q read and O written once, 4nd; each of the n / b_q query tiles reads all of K and V,
//   4nd bytes: 4n^2 d / b_q. Causal, a tile stops at its own last query: 2nd (n / b_q + 1) instead; and only n (n + 1)
//   / 2 scores exist. A workspace that is too small for scores is written once and read once besides.
// A stage without tiles that keeps no scores is taken as b_q = 1. Caches are not part of the model: what K and V tiles
// find in L2 does not come from DRAM, which is where measurements part from it.
double io_model_bytes(const Stage& stage, const Variant& variant, const Shape& shape);

// The formula that applies, for a table: "4nd + 4n^2 d / 64".
std::string io_model_formula(const Stage& stage, const Variant& variant, const Shape& shape);

}  // namespace ladder
