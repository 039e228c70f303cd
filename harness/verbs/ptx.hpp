// What nvcc makes of a rung's kernels, read from PTX and from what ptxas says of it. The emulator runs a kernel's arithmetic on the host's
// processor, and so cannot count it.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "harness/verify/check.hpp"

namespace ladder {

struct CompiledKernel {
  std::string name;                    // as it is written, with template arguments
  int most_threads = 0;                // of a block, by its launch bounds; 0 without any
  int registers = 0, stack_bytes = 0;  // of a thread
  // Of the loop with most products (mma, or else fma), a turn by the way that has most of them, and of these the shortest: what it executes
  // beside the products, instruction by instruction ("add.f32"). Moves between registers are none to ptxas.
  bool has_mma = false;
  int products = 0;
  std::map<std::string, int> beside = {};
};

// A name as the linker knows it, as it is written in C++.
std::string demangled(const std::string& name);

// In the order of the PTX. `log` is that of ptxas -v.
std::vector<CompiledKernel> compiled_kernels(const std::string& ptx, const std::string& log);

// What costs more than in the rung's own kernel of that name, or cannot be launched where that one can.
std::vector<Failure> dearer(const std::vector<CompiledKernel>& kernels, const std::vector<CompiledKernel>& own);

}  // namespace ladder
