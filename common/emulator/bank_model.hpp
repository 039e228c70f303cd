// How often a shared-memory request passes over the 32 banks ("wavefronts"). The rules were found with ncu on an H200;
// harness/tests/fixtures/wavefronts_h200.csv holds the 98 cases that they reproduce.
#pragma once
#include <cstdint>

namespace emulator {

struct Wavefronts {
  int taken = 0;
  int ideal = 0;  // without bank conflicts
  bool operator==(const Wavefronts&) const = default;
};

// ldmatrix: every 8x8 matrix is a phase of its own, of 8 rows of 16 B. `rows` holds 8 addresses per matrix.
Wavefronts ldmatrix_wavefronts(const uint32_t* rows, int matrices);

// ld/st.shared of 4, 8 or 16 B per lane: the lanes whose bit is set in `active` take part. A phase is the whole warp, a
// half or a quarter of it (128 B); for loads two neighbouring phases merge if each lane has the address of lane ^ 1, or
// each that of lane ^ 2.
Wavefronts request_wavefronts(const uint32_t (&addresses)[32], uint32_t active, uint32_t bytes, bool is_load);

}  // namespace emulator
