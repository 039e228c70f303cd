// Prints, as JSON, the layouts that the site draws: from the functions that the kernels and the emulator themselves
// use.
#include <cstdio>
#include <iterator>
#include <set>

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

// ---- what the explorer's own bank model is held to ------------------------------------------------------------------

constexpr uint32_t ROWS = 32, CHUNKS = 16;  // of the explorer's tile

struct Mapping {
  const char* text;
  uint32_t (*place)(uint32_t row, uint32_t chunk);
  uint32_t pitch;  // from row to row, in chunks of 16 bytes

  uint32_t offset(uint32_t row, uint32_t chunk) const { return (row * pitch + place(row, chunk)) * 16; }
};

// clang-format off
// The text that the explorer parses, and the function that the compiler makes of it.
#define MAPPING(expression, pitch) \
  Mapping { #expression, []([[maybe_unused]] uint32_t row, uint32_t chunk) -> uint32_t { return expression; }, pitch }

// Some leave it to the order of precedence, to hold the explorer's to C's.
#pragma GCC diagnostic ignored "-Wparentheses"
const Mapping MAPPINGS[] = {
    MAPPING(chunk, 16),
    MAPPING(chunk ^ row % 8, 16),
    MAPPING(chunk, 17),
    MAPPING((chunk + row) % 16, 16),
    MAPPING(chunk ^ row % 4, 16),
    MAPPING(chunk ^ row / 2 % 8, 16),
    MAPPING(chunk ^ (row & 3) << 1, 16),
    MAPPING(chunk ^ row, 16),
    MAPPING(chunk % 8, 16),
    MAPPING(chunk, 18),
    MAPPING(chunk, 20),
    MAPPING(chunk * 3 % 16 ^ row % 8, 16),
    MAPPING((chunk >> 1 | chunk << 3) & 15, 16),
    MAPPING(~chunk + row & 0xf, 16),
    MAPPING(chunk ^ row & 7, 16),
    MAPPING(chunk ^ row % 8 | 8, 16),
    MAPPING(chunk + 24 - row % 8 - 8 & 15, 16),
    MAPPING(chunk * 8 / 4 % 16 + chunk / 8 ^ row % 8, 16),
    MAPPING(chunk * row % 16, 16),
    MAPPING(chunk ^ row * chunk % 8, 16),
    MAPPING(chunk ^ row / 3, 16),
    MAPPING(chunk ^ row % 8, 19),
    MAPPING(chunk / 2 + row % 4 * 3, 16),
    MAPPING(15 - chunk ^ (row & 1) * 4 + row / 8, 16),
};
// clang-format on

// Wavefronts: of ldmatrix for one chunk of eight rows, [group of rows][chunk]; of st.shared.v4 by a warp that writes
// two rows, as load_tile does, [pair of rows]. And how many chunks share their place with another, and how many lie
// past the tile's last byte.
void print_mapping(const Mapping& mapping, const char* end) {
  std::printf("{\"expression\": \"%s\", \"pitch\": %u, \"reads\": [", mapping.text, mapping.pitch);
  for (uint32_t first = 0; first < ROWS; first += 8) {
    std::printf("%s[", first == 0 ? "" : ", ");
    for (uint32_t chunk = 0; chunk < CHUNKS; ++chunk) {
      uint32_t rows[8];
      for (uint32_t i = 0; i < 8; ++i) rows[i] = mapping.offset(first + i, chunk);
      std::printf("%s%d", chunk == 0 ? "" : ", ", emulator::ldmatrix_wavefronts(rows, 1).taken);
    }
    std::printf("]");
  }
  std::printf("], \"writes\": [");
  for (uint32_t first = 0; first < ROWS; first += 2) {
    uint32_t addresses[32];
    for (uint32_t lane = 0; lane < 32; ++lane) addresses[lane] = mapping.offset(first + lane / CHUNKS, lane % CHUNKS);
    std::printf("%s%d", first == 0 ? "" : ", ", emulator::request_wavefronts(addresses, ~0u, 16, false).taken);
  }
  std::set<uint32_t> taken;
  uint32_t behind = 0;
  for (uint32_t row = 0; row < ROWS; ++row) {
    for (uint32_t chunk = 0; chunk < CHUNKS; ++chunk) {
      taken.insert(mapping.offset(row, chunk));
      behind += mapping.offset(row, chunk) >= ROWS * mapping.pitch * 16;
    }
  }
  std::printf("], \"lost\": %zu, \"behind\": %u}%s\n", ROWS * CHUNKS - taken.size(), behind, end);
}

}  // namespace

int main() {
  std::printf("{\n");
  print_fragment<FragmentA>("A");
  print_fragment<FragmentB>("B");
  print_fragment<FragmentC>("C");
  print_banks("plain", plain::chunk_offset, ",");
  print_banks("swizzled", swizzled::chunk_offset, ",");
  std::printf("\"mappings\": [\n");
  for (const Mapping& mapping : MAPPINGS) print_mapping(mapping, &mapping == std::end(MAPPINGS) - 1 ? "" : ",");
  std::printf("]}\n");
}
