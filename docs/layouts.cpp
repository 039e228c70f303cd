// Prints, as JSON, the layouts that the site draws: from the functions that the kernels and the emulator themselves use.
#include <cstdio>

#include "common/emulator/bank_model.hpp"
#include "common/fragments.hpp"
#include "common/gpu.cuh"

namespace plain {
#include "01_base/kernel.cuh"
}
namespace swizzled {
#include "02_swizzle/kernel.cuh"
}

namespace {

// [lane][element] = [row, column]
template <class Fragment>
void print_fragment(const char* name) {
  std::printf("\"%s\": {\"rows\": %d, \"cols\": %d, \"lanes\": [", name, Fragment::ROWS, Fragment::COLS);
  for (int lane = 0; lane < 32; ++lane) {
    std::printf("%s[", lane == 0 ? "" : ", ");
    for (int i = 0; i < Fragment::ELEMENTS; ++i) {
      std::printf("%s[%d, %d]", i == 0 ? "" : ", ", Fragment::row(lane, i), Fragment::col(lane, i));
    }
    std::printf("]");
  }
  std::printf("]},\n");
}

// Where the first eight chunks of eight rows lie, and what reading one column of them costs.
template <class ChunkOffset>
void print_banks(const char* name, ChunkOffset chunk_offset, const char* end) {
  uint32_t column[8];
  for (uint32_t row = 0; row < 8; ++row) column[row] = chunk_offset(row, 2);
  std::printf("\"%s\": {\"wavefronts\": %d, \"offsets\": [", name, emulator::ldmatrix_wavefronts(column, 1).taken);
  for (uint32_t row = 0; row < 8; ++row) {
    std::printf("%s[", row == 0 ? "" : ", ");
    for (uint32_t chunk = 0; chunk < 8; ++chunk) std::printf("%s%u", chunk == 0 ? "" : ", ", chunk_offset(row, chunk));
    std::printf("]");
  }
  std::printf("]}%s\n", end);
}

}  // namespace

int main() {
  std::printf("{\n");
  print_fragment<FragmentA>("A");
  print_fragment<FragmentB>("B");
  print_fragment<FragmentC>("C");
  print_banks("plain", plain::chunk_offset, ",");
  print_banks("swizzled", swizzled::chunk_offset, "\n}");
}
