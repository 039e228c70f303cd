#include "harness/problem/trained.hpp"

#include <array>
#include <cmath>

// The file becomes part of the program, which may run elsewhere than where it was built.
asm(".section .rodata\n"
    ".balign 16\n"
    "ladder_trained_heads:\n"
    ".incbin \"" LADDER_TRAINED_FILE
    "\"\n"
    ".previous\n");
extern "C" const unsigned char ladder_trained_heads[] __attribute__((visibility("hidden")));

namespace ladder {
namespace {

constexpr int RANK = 8, COLUMNS = TRAINED_COLUMNS, TOKENS = 2048;

// Q or K of a head before the rotation, as tools/trained/pack.py writes it.
struct Packed {
  std::array<float, RANK> scales;
  std::array<std::array<float, COLUMNS>, RANK> directions;
  std::array<float, COLUMNS> widths;
  std::array<std::array<int8_t, RANK>, TOKENS> shares;
};
static_assert(sizeof(Packed) == 4 * (RANK + RANK * COLUMNS + COLUMNS) + TOKENS * RANK);

}  // namespace

void make_trained_row(int64_t head, bool is_key, int64_t position, std::array<float, TRAINED_COLUMNS>& row) {
  const auto& from = reinterpret_cast<const Packed*>(ladder_trained_heads)[head % TRAINED_HEADS * 2 + (is_key ? 1 : 0)];
  // A longer text goes on with the second token: there is one beginning.
  const int64_t token = position < TOKENS ? position : 1 + (position - TOKENS) % (TOKENS - 1);
  for (int c = 0; c < COLUMNS; ++c) {
    row[c] *= from.widths[c];
    for (int r = 0; r < RANK; ++r)
      row[c] += static_cast<float>(from.shares[token][r]) * from.scales[r] * from.directions[r][c];
  }
  for (int c = 0; c < COLUMNS / 2; ++c) {  // rotary: a pair of columns turns with the position
    const double angle = static_cast<double>(position) * std::pow(10000.0, -c / (COLUMNS / 2.0));
    const double low = row[c], high = row[c + COLUMNS / 2];
    row[c] = static_cast<float>(low * std::cos(angle) - high * std::sin(angle));
    row[c + COLUMNS / 2] = static_cast<float>(low * std::sin(angle) + high * std::cos(angle));
  }
}

}  // namespace ladder
