#include "common/emulator/bank_model.hpp"

#include <algorithm>

namespace emulator {
namespace {

constexpr uint32_t BANK_CYCLE = 128;  // 32 banks of 4 B

// A phase takes as many wavefronts as the busiest bank has different words to deliver. Accesses are aligned to their
// size, so all banks of one access are equally busy with it: it suffices to count different addresses per slot.
int phase_wavefronts(const uint32_t* addresses, int lanes, uint32_t active, uint32_t bytes) {
  uint32_t different[32][32];
  int count[32] = {};
  int busiest = 0;
  for (int lane = 0; lane < lanes; ++lane) {
    if ((active >> lane & 1) == 0) continue;
    const uint32_t slot = addresses[lane] % BANK_CYCLE / bytes;
    uint32_t* const known = different[slot];
    int& n = count[slot];
    if (std::find(known, known + n, addresses[lane]) != known + n) continue;
    known[n++] = addresses[lane];
    busiest = std::max(busiest, n);
  }
  return busiest;
}

// Lane i and lane i ^ distance have the same address, for all lanes.
bool pairwise_equal(const uint32_t (&addresses)[32], int distance) {
  for (int lane = 0; lane < 32; ++lane) {
    if (addresses[lane] != addresses[lane ^ distance]) return false;
  }
  return true;
}

}  // namespace

Wavefronts ldmatrix_wavefronts(const uint32_t* rows, int matrices) {
  Wavefronts sum{0, matrices};
  for (int matrix = 0; matrix < matrices; ++matrix, rows += 8) {
    uint32_t slots = 0;
    for (int row = 0; row < 8; ++row) slots |= 1u << (rows[row] % BANK_CYCLE / 16);
    sum.taken += slots == 0xff ? 1 : phase_wavefronts(rows, 8, 0xff, 16);
  }
  return sum;
}

Wavefronts request_wavefronts(const uint32_t (&addresses)[32], uint32_t active, uint32_t bytes, bool is_load) {
  int lanes = static_cast<int>(BANK_CYCLE / bytes);
  if (is_load && bytes > 4 && active == ~0u && (pairwise_equal(addresses, 1) || pairwise_equal(addresses, 2)))
    lanes *= 2;
  Wavefronts sum;
  for (int first = 0; first < 32; first += lanes) {
    const int taken = phase_wavefronts(addresses + first, lanes, active >> first, bytes);
    sum.taken += taken;
    sum.ideal += taken > 0;
  }
  return sum;
}

}  // namespace emulator
