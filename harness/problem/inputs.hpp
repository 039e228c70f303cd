// The input sets that a kernel must survive. Their numbers are those of the tensors' own types, within their range, made from a seed,
// the same on every machine.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "harness/problem/tensors.hpp"
#include "harness/stages/rung.hpp"

namespace ladder {

// What goes into one problem, on the host.
using Inputs = Tensors;

enum class InputKind {
  normal,          // N(0, 1)
  large_logits,    // Q and K from N(0, 8^2): a nearly one-hot softmax, exponents overflow without a running maximum
  peaky,           // Q and K from N(0, 16^2)
  one_hot,         // every query meets exactly one key with a dominating score
  constant_v,      // V is constant: any weights that sum to 1 give it back
  last_tile_max,   // each row's maximum is among the last keys
  first_tile_max,  // ... among the first
  negative_rows,   // all scores far below zero
  nan_head,        // nothing but NaN: none of it may reach the heads beside it, before and after, which are finite
  ties,            // all scores equal: O is the mean of V
  creeping_max,    // maxima rise key by key, in each row by another step: below and above every threshold of a rescale
  giant_keys,      // one key in the first tile, one in the middle, one in the last: giants to some rows of every warp
  edge_weights,    // all weights but one between 2^-10 and 2^-24, in sum far from nothing: the edge of f16
  balanced,        // one key against all others, which outweigh it together: shows a scale that is off by 0.05 %
  cancelling,      // two halves that cancel but for rounding: shows how often, and how, the weights were rounded
  not_finite,      // a few NaN and infinities in Q, K and V, which must reach the outputs that depend on them alone
  nan_key,         // one NaN in one key: no query that sees it has an answer
  sinks,           // nearly every query likes key 0: its score is 7 above the others', give or take 3.5
  sinks14,         // ... 14 above, give or take 7
  sinks35,         // ... 35 above, give or take 17.5
  trained,         // of a small trained model: near keys hold most of a row, maxima rise towards the diagonal
  near_ties,       // maxima rise by 0.5 at most over all keys; V is positive in one half of them, negative in the other
  rising_weights,  // weights grow by 13 powers of two and shrink again, V the other way round, with the same two signs
  wide_values,  // every query picks one key, with values from 1 up to nearly the largest of f16, or of a smaller type
  one_sign,     // creeping_max below 0, V near 2000: errors of a sum or of O multiply all; undivided, O leaves f16
  deep_scores,  // all scores are below -10^4, for every second query below -10^6, and one is the deepest of all
  nan_queries,  // giant_keys, and where two rows of a warp alone meet a giant, the warp's other rows are NaN
  huge_keys,    // K small, but for two equal keys a million times as large; no check of all sets has it: trials.cpp
  nan_unseen,  // normal, and NaN in all keys and values that nobody sees; nor has any this: they may lie in a tile with others
};

// But huge_keys, whose scores may be larger than a rung takes (Variant::largest_score), and nan_unseen.
std::span<const InputKind> all_input_kinds();
std::string_view to_string(InputKind kind);
// Whether all answers are numbers.
constexpr bool has_numbers(InputKind kind) {
  return kind != InputKind::not_finite && kind != InputKind::nan_head && kind != InputKind::nan_key &&
         kind != InputKind::nan_queries;
}

// The inputs of attention. Of several kinds, head i of the keys, with its group of queries, is of kinds[i % kinds.size()],
// each head from a seed of its own.
Inputs make_inputs(InputKind kind, const Spec& spec, uint64_t seed);
Inputs make_inputs(std::span<const InputKind> kinds, const Spec& spec, uint64_t seed);

}  // namespace ladder
