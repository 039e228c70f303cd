// wavefronts: 8 shared-memory instructions x 14 address patterns, one launch of one warp each, to be counted by Nsight
// Compute. That table is what the emulator's bank rule is held to (harness/tests/fixtures/wavefronts_h200.csv).
//
// To record it on another GPU:
//   ncu --csv --print-units base --metrics l1tex__data_pipe_lsu_wavefronts_mem_shared.sum --kernel-name regex:counted
//       ./wavefronts > ncu.csv        one row per launch, in the order that `./wavefronts` prints
// and subtract 1 from each value: a kernel that touches no shared memory shows 1. (On the H200 cp.async shows 3 for
// every pattern; this metric does not see its writes, so the table leaves it out.)
#include <cstdint>
#include <cstdio>

#include "common/gpu.cuh"

namespace {

// ---- the patterns: byte offset of lane l ------------------------------------------------------------------------

struct Pattern {
  const char* name;
  uint32_t (*offset)(uint32_t lane);
};

constexpr Pattern PATTERNS[] = {
    // Rows of a tile as ldmatrix.x4 addresses them: row l % 16, 16-byte chunk l / 16.
    {"rows_256B", [](uint32_t l) { return l % 16 * 256 + l / 16 * 16; }},
    {"rows_256B_xor", [](uint32_t l) { return l % 16 * 256 + (l / 16 ^ l % 8) * 16; }},
    {"rows_272B_padded", [](uint32_t l) { return l % 16 * 272 + l / 16 * 16; }},
    {"rows_128B", [](uint32_t l) { return l % 16 * 128 + l / 16 * 16; }},
    {"rows_64B", [](uint32_t l) { return l % 16 * 64 + l / 16 * 16; }},
    // Sharing and strides.
    {"broadcast", [](uint32_t) { return 0u; }},
    {"contiguous_16B", [](uint32_t l) { return l * 16; }},
    {"one_chunk_per_8_lanes", [](uint32_t l) { return l / 8 * 16; }},
    {"repeat_every_8_lanes", [](uint32_t l) { return l % 8 * 16; }},
    {"stride_32B", [](uint32_t l) { return l * 32; }},
    // Rows of an accumulator fragment: row l / 4, chunk l % 4.
    {"fragment_c_256B", [](uint32_t l) { return l / 4 * 256 + l % 4 * 16; }},
    {"fragment_c_256B_xor", [](uint32_t l) { return l / 4 * 256 + (l / 4 ^ l % 4) * 16; }},
    {"even_odd_256B", [](uint32_t l) { return l % 2 * 256 + l / 2 * 16; }},
    {"permuted_stride_80B", [](uint32_t l) { return l * 7 % 32 * 80; }},
};
constexpr uint32_t SMEM_BYTES = 8192;  // the farthest access is 15 rows of 272 B and two chunks

// ---- the instructions -------------------------------------------------------------------------------------------

enum class Instruction { ldmatrix_x4, ld_v4, ld_v2, ld_b32, st_v4, st_v2, st_b32, cp_async };

struct Offsets {
  uint32_t of_lane[32];
};

template <Instruction INSTRUCTION>
__global__ void counted(Offsets offsets, const uint4* source) {
  const uint32_t address = smem_base() + offsets.of_lane[threadIdx.x];
  if constexpr (INSTRUCTION == Instruction::ldmatrix_x4) {
    uint32_t matrices[4];
    ldmatrix_x4(matrices, address);
  }
  if constexpr (INSTRUCTION == Instruction::ld_v4) ld_shared_v4(address);
  if constexpr (INSTRUCTION == Instruction::ld_v2) ld_shared_v2(address);
  if constexpr (INSTRUCTION == Instruction::ld_b32) ld_shared_b32(address);
  if constexpr (INSTRUCTION == Instruction::st_v4) st_shared_v4(address, uint4{1, 2, 3, 4});
  if constexpr (INSTRUCTION == Instruction::st_v2) st_shared_v2(address, uint2{1, 2});
  if constexpr (INSTRUCTION == Instruction::st_b32) st_shared_b32(address, 1);
  if constexpr (INSTRUCTION == Instruction::cp_async) {
    cp_async_16(address, source + threadIdx.x);
    cp_async_commit();
    cp_async_wait<0>();
  }
}

struct Kernel {
  const char* name;
  void (*function)(Offsets, const uint4*);
};

constexpr Kernel KERNELS[] = {
    {"ldmatrix.x4", counted<Instruction::ldmatrix_x4>}, {"ld.shared.v4.b32", counted<Instruction::ld_v4>},
    {"ld.shared.v2.b32", counted<Instruction::ld_v2>},  {"ld.shared.b32", counted<Instruction::ld_b32>},
    {"st.shared.v4.b32", counted<Instruction::st_v4>},  {"st.shared.v2.b32", counted<Instruction::st_v2>},
    {"st.shared.b32", counted<Instruction::st_b32>},    {"cp.async.cg.16", counted<Instruction::cp_async>},
};

}  // namespace

int main() {
  Device device;
  uint4* source = nullptr;  // what cp.async copies; freed with the process
  device.error = cudaMalloc(&source, 32 * sizeof(uint4));
  std::printf("launch,instruction,pattern\n");
  int launches = 0;
  for (const Kernel& kernel : KERNELS) {
    for (const Pattern& pattern : PATTERNS) {
      Offsets offsets;
      for (uint32_t lane = 0; lane < 32; ++lane) offsets.of_lane[lane] = pattern.offset(lane);
      launch(device, kernel.function, dim3(1), dim3(32), SMEM_BYTES, offsets, source);
      std::printf("%d,%s,%s\n", launches++, kernel.name, pattern.name);
    }
  }
  if (device.error == cudaSuccess) device.error = cudaDeviceSynchronize();
  if (device.error == cudaSuccess) return 0;
  std::fprintf(stderr, "wavefronts: %s\n", cudaGetErrorString(device.error));
  return 1;
}
