// How fast the card can go at all: rates that no kernel of the ladder can exceed, measured beside them in the same run.
#pragma once
#include <cstdint>
#include <memory>

#include "harness/base/error.hpp"

namespace ladder {

// mma.sync.m16n8k16, f16 operands and f32 accumulators, from registers only: the ceiling of every stage built on it.
// Operands are random: on zeros the same loop is 5-8 % faster, because fewer wires switch.
class MmaCeiling {
 public:
  static Result<MmaCeiling> create();
  MmaCeiling(MmaCeiling&&) noexcept;
  MmaCeiling& operator=(MmaCeiling&&) noexcept;
  ~MmaCeiling();

  double flops() const;  // of one launch
  // Milliseconds of `launches` back-to-back launches, between two CUDA events.
  Result<double> time_ms(int launches);

 private:
  struct State;
  explicit MmaCeiling(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ladder
