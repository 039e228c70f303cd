// What the ladder computes. A problem is one of these, a Spec says which and of what size; a rung's variants say which of
// them they solve. One file of formulas/ each.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/problem/inputs.hpp"
#include "harness/problem/reference.hpp"
#include "harness/problem/tensors.hpp"
#include "harness/stages/rung.hpp"

namespace ladder {

// What a launch does at least, by convention and not what a kernel executes, and which of the two bounds its rate.
struct Work {
  enum class Bound { products, reads };
  double flops = 0, bytes = 0;  // bytes: of each input and output once
  Bound bound = Bound::products;
};

// The bytes that a variant has to move between global memory and the chip, on paper, as measured bytes are set beside them;
// and per head in words: "4nd + 4n^2 d / 64".
struct IoModel {
  double bytes = 0;
  std::string text;
};

// A trial of a formula's own that is more than a problem: the mistake that it is for, the features that a variant has to take, the problem,
// of so many tiles and heads or as the text says, its inputs, and how it is run, as verify/trials.hpp has it.
struct OwnTrial {
  std::string_view name, mistake;
  uint32_t needs = 0;
  int tiles = 0, heads = 1;  // 0: as the text says
  const char* text = "";
  void (*change)(Spec&) = nullptr;  // what no text can say
  std::vector<InputKind> kinds = {InputKind::normal};
  float scale = 1;  // times the usual one
  uint32_t multiprocessors = emulator::MULTIPROCESSORS;
  bool ends_only = false, both_builds = false;
};

struct Formula {
  std::string_view name;  // a literal: "forward"
  // The tensors that a kernel reads, and those that it may write. Of the outputs, the first is always written.
  std::vector<TensorSpec> (*inputs)(const Spec&);
  std::vector<TensorSpec> (*outputs)(const Spec&);
  Work (*work)(const Spec&);
  IoModel (*io_model)(const Variant&, const Spec&);
  // Each head is of one input set: head i of kinds[i % kinds.size()].
  Tensors (*make_inputs)(std::span<const InputKind> kinds, const Spec&, uint64_t seed);
  // The inputs that follow from the others, made anew where those have been changed; null where none does.
  void (*complete)(const Spec&, Tensors& inputs) = nullptr;
  // Inputs whose units belong together: a launch that begins at a later unit of one begins there in all of them.
  std::vector<std::string_view> together = {};
  // The cells of each output that a check looks at: all of them, or a sample.
  Cells (*cells)(const Spec&);
  // The right answers in cells, and how far a kernel may be from them.
  Reference (*make_reference)(const Spec&, const Tensors& inputs, const Cells& cells, size_t sets,
                              bool with_score_terms);
  // With this input these outputs change their signs, and no others change; "" and none, where there is no such input.
  std::string_view odd_input;
  std::vector<std::string_view> odd_outputs;
  // The same problem of so many heads of keys alone, with its first units; null where a unit is not a problem by itself.
  Spec (*of_heads)(const Spec&, int key_heads);
  bool is_attention =
      false;  // its inputs are Q, K and V, of every kind: all trials and properties of attention are for it
  std::vector<InputKind> kinds = {};  // the input sets that another formula is tried on; empty: it has one of its own
  // Its own hostile problems, of those that the variant takes: behind the trials that any formula has. Lengths may be no
  // multiple of a tile; a variant that minds gets the next ones. Null: none.
  std::vector<Spec> (*trials)(const Accepts&, const Spec& usual);
  std::vector<OwnTrial> own_trials = {};  // and those that need inputs of a kind, or so many multiprocessors
};

// Made before main, in a file of formulas/ or of a test: nothing else has to know of it.
struct FormulaRegistration {
  explicit FormulaRegistration(Formula formula);
};
// All of this binary, by their names.
const std::vector<const Formula*>& formulas();
const Formula& formula_of(const Spec& spec);

inline double flops_of(const Spec& spec) {
  return formula_of(spec).work(spec).flops;
}

// The bytes of all rows that they have.
double bytes_of_rows(std::span<const TensorSpec> tensors);

// The tensors that the variant writes.
std::vector<TensorSpec> outputs_of(const Variant& variant, const Spec& spec);

}  // namespace ladder
