// How fast the card can go at all: loops of nothing but one instruction, measured beside the kernels in the same run.
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "harness/base/error.hpp"

namespace ladder {

// Operands are random: on zeros a loop of matrix products is 5-8 % faster, because fewer wires switch.
class Ceiling {
 public:
  // mma_sync, wgmma (A in shared memory), wgmma_rs (in registers): FLOPs, of operands of this type in the words of
  // results: fp16, bf16, e4m3. ex2: results. l2_read and dram_read: bytes that come from the L2 cache, and from global
  // memory.
  static std::vector<std::string_view> names(std::string_view dtype);
  // One of these. Fails with cannot_run_here on a card without the instruction, or in a build without the CUDA Toolkit.
  static Result<std::unique_ptr<Ceiling>> create(std::string_view name, std::string_view dtype);
  virtual ~Ceiling() = default;

  virtual double work() const = 0;  // of one launch: FLOPs, results, bytes
  // Milliseconds of `launches` back-to-back launches, between two CUDA events.
  virtual Result<double> time_ms(int launches) = 0;
  // Launches that keep the card busy for about so long, waited for.
  virtual Status keep_busy(double ms) = 0;
};

}  // namespace ladder
