// The bank model against an H200: ncu's l1tex__data_pipe_lsu_wavefronts_mem_shared, less 1 for an empty kernel.
#include <algorithm>
#include <sstream>

#include "common/emulator/bank_model.hpp"
#include "harness/tests/emulator/emulator_test.hpp"

using namespace emulator_test;

namespace {

struct Addresses {
  uint32_t of_lane[32];
};

// The formulas of fixtures/wavefront_patterns.csv.
uint32_t pattern_offset(const std::string& pattern, uint32_t l) {
  const uint32_t r = l % 16, c = l / 16, q = l / 4, t = l % 4;
  if (pattern == "rows_256B") return r * 256 + c * 16;
  if (pattern == "rows_256B_xor") return r * 256 + (c ^ l % 8) * 16;
  if (pattern == "rows_272B_padded") return r * 272 + c * 16;
  if (pattern == "rows_128B") return r * 128 + c * 16;
  if (pattern == "rows_64B") return r * 64 + c * 16;
  if (pattern == "broadcast") return 0;
  if (pattern == "contiguous_16B") return l * 16;
  if (pattern == "one_chunk_per_8_lanes") return l / 8 * 16;
  if (pattern == "repeat_every_8_lanes") return l % 8 * 16;
  if (pattern == "stride_32B") return l * 32;
  if (pattern == "fragment_c_256B") return q * 256 + t * 16;
  if (pattern == "fragment_c_256B_xor") return q * 256 + (q * 16 ^ t * 16);
  if (pattern == "even_odd_256B") return l % 2 * 256 + l / 2 * 16;
  if (pattern == "permuted_stride_80B") return 7 * l % 32 * 80;
  FAIL("unknown pattern " << pattern);
  return 0;
}

__global__ void run_ldmatrix_x4(Addresses a) {
  uint32_t matrices[4];
  ldmatrix_x4(matrices, smem_base() + a.of_lane[threadIdx.x]);
}
__global__ void run_ld_v4(Addresses a) {
  ld_shared_v4(smem_base() + a.of_lane[threadIdx.x]);
}
__global__ void run_ld_v2(Addresses a) {
  ld_shared_v2(smem_base() + a.of_lane[threadIdx.x]);
}
__global__ void run_ld_b32(Addresses a) {
  ld_shared_b32(smem_base() + a.of_lane[threadIdx.x]);
}
__global__ void run_st_v4(Addresses a) {
  st_shared_v4(smem_base() + a.of_lane[threadIdx.x], {});
}
__global__ void run_st_v2(Addresses a) {
  st_shared_v2(smem_base() + a.of_lane[threadIdx.x], {});
}
__global__ void run_st_b32(Addresses a) {
  st_shared_b32(smem_base() + a.of_lane[threadIdx.x], 0);
}

auto kernel_of(const std::string& instruction) {
  if (instruction == "ldmatrix.x4") return run_ldmatrix_x4;
  if (instruction == "ld.shared.v4.b32") return run_ld_v4;
  if (instruction == "ld.shared.v2.b32") return run_ld_v2;
  if (instruction == "ld.shared.b32") return run_ld_b32;
  if (instruction == "st.shared.v4.b32") return run_st_v4;
  if (instruction == "st.shared.v2.b32") return run_st_v2;
  if (instruction == "st.shared.b32") return run_st_b32;
  FAIL("unknown instruction " << instruction);
  return run_st_b32;
}

}  // namespace

TEST_CASE("wavefronts equal those counted on an H200", "[emulator][banks]") {
  std::ifstream table(std::string(LADDER_SOURCE_DIR) + "/harness/tests/fixtures/wavefronts_h200.csv");
  std::string row;
  REQUIRE(std::getline(table, row));
  int cases = 0;
  while (std::getline(table, row)) {
    std::istringstream fields(row);
    std::string instruction, pattern, measured;
    std::getline(fields, instruction, ',');
    std::getline(fields, pattern, ',');
    std::getline(fields, measured, ',');
    INFO(instruction << " " << pattern);

    Addresses addresses;
    for (uint32_t lane = 0; lane < 32; ++lane) addresses.of_lane[lane] = pattern_offset(pattern, lane);
    Device device({.threads = 1, .check = false});
    launch(device, kernel_of(instruction), dim3(1), dim3(32), 9000, addresses);
    REQUIRE(device.counters().sites.size() == 1);
    const emulator::SiteCounts& site = device.counters().sites.front();
    CHECK(site.wavefronts == std::stoull(measured));
    CHECK(site.wavefronts == device.counters().smem_wavefronts);
    CHECK(site.requests == 1);
    CHECK(site.instruction == instruction);
    CHECK_FALSE(device.failed());
    ++cases;
  }
  CHECK(cases == 98);
}

TEST_CASE("lanes that take no part in a request cost nothing", "[emulator][banks]") {
  uint32_t addresses[32];
  for (uint32_t lane = 0; lane < 32; ++lane) addresses[lane] = lane * 128;  // all in bank 0
  CHECK(emulator::request_wavefronts(addresses, ~0u, 4, false) == emulator::Wavefronts{32, 1});
  CHECK(emulator::request_wavefronts(addresses, 0x0000000f, 4, false) == emulator::Wavefronts{4, 1});
  CHECK(emulator::request_wavefronts(addresses, 0x00000003, 16, true) == emulator::Wavefronts{2, 1});
  CHECK(emulator::request_wavefronts(addresses, 0x01000001, 16, true) == emulator::Wavefronts{2, 2});
}

TEST_CASE("loads whose lanes share addresses in pairs merge two phases", "[emulator][banks]") {
  for (const uint32_t distance : {1u, 2u}) {
    uint32_t addresses[32];
    for (uint32_t lane = 0; lane < 32; ++lane) addresses[lane] = (lane & ~distance) % 8 * 16;
    CHECK(emulator::request_wavefronts(addresses, ~0u, 16, true) == emulator::Wavefronts{2, 2});
    CHECK(emulator::request_wavefronts(addresses, ~0u, 16, false) == emulator::Wavefronts{4, 4});
    CHECK(emulator::request_wavefronts(addresses, 0x7fffffff, 16, true) == emulator::Wavefronts{4, 4});
  }
}

namespace {

// Even lanes store twice in the loop, odd lanes once; then all store to one line.
__global__ void uneven_loop() {
  const uint32_t own = smem_base() + threadIdx.x * 4;
  for (uint32_t i = 0; i < 2 - threadIdx.x % 2; ++i) st_shared_b32(own, i);  // @loop
  st_shared_b32(own, 7);                                                     // @after
}

__global__ void branches() {
  const uint32_t own = smem_base() + threadIdx.x * 4;
  if (threadIdx.x % 2 == 0) {
    st_shared_b32(own, 0);  // @even
  } else {
    st_shared_b32(own, 1);  // @odd
  }
  // clang-format off
  st_shared_b32(own, 7); ld_shared_b32(own);  // @all
  // clang-format on
}

// More accesses than a lane's log holds before it lets the others catch up.
__global__ void many_accesses() {
  for (uint32_t i = 0; i < 5000; ++i) st_shared_b32(smem_base() + threadIdx.x * 128, i);
}

__global__ void two_regions() {
  smem_name(smem_base(), 512, "A");
  smem_name(smem_base() + 512, 512, "B");
  for (uint32_t i = 0; i < 3; ++i) st_shared_v4(smem_base() + (i == 0 ? 0 : 512) + threadIdx.x * 16, {});
}

}  // namespace

TEST_CASE("plain accesses are put together into warp requests", "[emulator][banks]") {
  const Device device = run(uneven_loop, 32, 128);
  const auto& sites = device.counters().sites;
  REQUIRE(sites.size() == 2);
  CHECK(sites[0].line == MARKED("loop").line);
  CHECK(sites[0].requests == 2);
  CHECK(sites[1].line == MARKED("after").line);
  CHECK(sites[1].requests == 1);
}

TEST_CASE("the sides of a branch are requests of their own, and so are instructions on one line", "[emulator][banks]") {
  const Device device = run(branches, 32, 128);
  const auto& sites = device.counters().sites;
  REQUIRE(sites.size() == 4);
  const char* const marks[] = {"even", "odd", "all", "all"};
  for (size_t i = 0; i < 4; ++i) {
    CHECK(sites[i].line == MARKED(marks[i]).line);
    CHECK(sites[i].requests == 1);
  }
  CHECK(sites[2].instruction == "ld.shared.b32");
  CHECK(sites[3].instruction == "st.shared.b32");
}

TEST_CASE("lanes that run far ahead still make full requests", "[emulator][banks]") {
  const Device device = run(many_accesses, 64, 64 * 128);
  REQUIRE(device.counters().sites.size() == 1);
  CHECK(device.counters().sites[0].requests == 2 * 5000);
  CHECK(device.counters().sites[0].wavefronts == 2 * 5000 * 32);
  CHECK(device.counters().sites[0].ways() == 32.0);
}

TEST_CASE("traffic is counted per line and named region", "[emulator][banks]") {
  const Device device = run(two_regions, 32, 1024);
  const auto& sites = device.counters().sites;
  REQUIRE(sites.size() == 2);
  CHECK(sites[0].buffer == "A");
  CHECK(sites[0].requests == 1);
  CHECK(sites[1].buffer == "B");
  CHECK(sites[1].requests == 2);
  CHECK(sites[1].ideal == 8);
}

TEST_CASE("nothing is counted when counting is off, but bytes and instructions are", "[emulator][banks]") {
  Device device({.threads = 1, .check = false, .count = false});
  launch(device, run_ldmatrix_x4, dim3(1), dim3(32), 512, Addresses{});
  CHECK(device.counters().sites.empty());
  CHECK(device.counters().smem_wavefronts == 0);
  CHECK(device.counters().ldmatrix == 1);
}
