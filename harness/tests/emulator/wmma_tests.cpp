// WMMA: counts against the instructions that ptxas makes of it, and what goes wrong. Products are conformance cases.
#include <cmath>

#include "harness/tests/emulator/emulator_test.hpp"

using namespace emulator_test;

namespace {

constexpr uint32_t LD = 32, F32_BYTES = 16 * LD * 4;

__device__ void clear_shared(uint32_t bytes) {
  for (uint32_t i = threadIdx.x; i < bytes / 4; i += 32) st_shared_b32(smem_base() + i * 4, 0);
  __syncwarp();
}

__device__ void read_accumulator(float* out, const WmmaAccumulator& fragment) {
  wmma_store_d(smem_base(), fragment, 16);
  __syncwarp();
  for (uint32_t i = threadIdx.x; i < 256; i += 32) out[i] = std::bit_cast<float>(ld_shared_b32(smem_base() + 4 * i));
}

// A fragment that was never loaded: 0 the accumulator, 1 A, 2 B.
template <int FORGOTTEN>
__global__ void forgotten_load(float* out) {
  clear_shared(F32_BYTES);
  WmmaA a;
  WmmaBRow b;
  WmmaAccumulator c;
  if (FORGOTTEN != 0) wmma_fill(c, 1.0f);
  if (FORGOTTEN != 1) wmma_load_a(a, smem_base(), LD);
  if (FORGOTTEN != 2) wmma_load_b_row(b, smem_base(), LD);
  wmma_mma(c, a, b);
  __syncwarp();  // the store goes to where A and B came from
  read_accumulator(out, c);
}

}  // namespace

TEST_CASE("a fragment that was not loaded is NaN", "[emulator][wmma]") {
  for (auto* const kernel : {forgotten_load<0>, forgotten_load<1>, forgotten_load<2>}) {
    float out[256] = {};
    check_silent(run(kernel, 32, F32_BYTES, out));
    for (const float element : out) CHECK(std::isnan(element));
  }
}

// ---- counts ---------------------------------------------------------------------------------------------------------

namespace {

__global__ void count_halves(uint32_t ld) {
  WmmaA a;
  WmmaBRow b_row;
  WmmaBCol b_col;
  wmma_load_a(a, smem_base(), ld);
  wmma_load_b_row(b_row, smem_base(), ld);
  wmma_load_b_col(b_col, smem_base(), ld);
}
__global__ void count_floats(uint32_t ld) {
  WmmaAccumulator c;
  wmma_load_c(c, smem_base(), ld);
  wmma_store_d(smem_base(), c, ld);
}

// Wavefronts of each request for a leading dimension; `requests` of them per site.
void check_wavefronts(void (*kernel)(uint32_t), uint32_t ld, size_t sites, uint64_t requests, uint64_t ideal,
                      uint64_t wavefronts) {
  INFO("leading dimension " << ld);
  Device device({.threads = 1, .check = false});
  launch(device, kernel, dim3(1), dim3(32), 16 * 160 * 4, ld);
  check_silent(device);
  REQUIRE(device.counters().sites.size() == sites);
  for (const emulator::SiteCounts& site : device.counters().sites) {
    INFO(site.instruction);
    CHECK(site.requests == requests);
    CHECK(site.ideal == ideal);
    CHECK(site.wavefronts == wavefronts);
  }
}

}  // namespace

TEST_CASE("a load of f16 costs what its ldmatrix.x4 costs", "[emulator][wmma]") {
  check_wavefronts(count_halves, 128, 3, 1, 4, 32);  // rows of 256 B: all 8 of a quadrant in one place
  check_wavefronts(count_halves, 64, 3, 1, 4, 32);   // of 128 B
  check_wavefronts(count_halves, 32, 3, 1, 4, 16);   // of 64 B: two places
  check_wavefronts(count_halves, 16, 3, 1, 4, 8);    // of 32 B: four
  check_wavefronts(count_halves, 144, 3, 1, 4, 8);   // of 256 + 32 B: four, as good as aligned rows can be
}

TEST_CASE("f32 is loaded and stored in four requests of 8 bytes per lane", "[emulator][wmma]") {
  check_wavefronts(count_floats, 128, 2, 4, 8, 32);  // 4 rows of 32 B a half-warp, all in one place
  check_wavefronts(count_floats, 16, 2, 4, 8, 16);   // two places
  check_wavefronts(count_floats, 40, 2, 4, 8, 8);    // rows of 128 + 32 B fill the 32 banks
  check_wavefronts(count_floats, 136, 2, 4, 8, 8);
}

// ---- races ----------------------------------------------------------------------------------------------------------

namespace {

// Every lane reads elements, in one of the layouts that it may believe to be the fragment's.
template <bool BARRIER>
__global__ void read_after_store(uint32_t lane_bytes) {
  WmmaAccumulator c;
  wmma_fill(c, 1.0f);
  wmma_store_d(smem_base(), c, 16);  // @store
  if (BARRIER) __syncwarp();
  ld_shared_b32(smem_base() + threadIdx.x * lane_bytes);  // @read
}
template <bool BARRIER>
__global__ void load_after_write() {
  for (uint32_t i = 0; i < 4; ++i) st_shared_b32(smem_base() + threadIdx.x * 16 + i * 4, 0);  // @write
  if (BARRIER) __syncwarp();
  WmmaA a;
  wmma_load_a(a, smem_base(), 16);  // @load
}
template <bool BARRIER>
__global__ void write_after_load() {
  clear_shared(1024);
  WmmaAccumulator c;
  wmma_load_c(c, smem_base(), 16);  // @load c
  if (BARRIER) __syncwarp();
  st_shared_b32(smem_base() + threadIdx.x * 32, 0);  // @write again
}
__global__ void accumulate_in_place() {
  clear_shared(1024);
  WmmaAccumulator c;
  for (int i = 0; i < 3; ++i) {
    wmma_load_c(c, smem_base(), 16);
    wmma_store_d(smem_base(), c, 16);
  }
}
// Two warps store to one place.
__global__ void two_stores() {
  WmmaAccumulator c;
  wmma_fill(c, 1.0f);
  wmma_store_d(smem_base(), c, 16);
}
__global__ void load_unwritten() {
  WmmaBCol b;
  wmma_load_b_col(b, smem_base(), 16);  // @unwritten
}

}  // namespace

TEST_CASE("a lane needs a __syncwarp between its own accesses and those of the warp", "[emulator][wmma]") {
  for (const uint32_t lane_bytes : {4, 32}) {
    const Device device = run(read_after_store<false>, 32, 1024, lane_bytes);
    check_only(device, ReportKind::race_read_after_write);
    CHECK(only_report(device).where == std::vector{MARKED("read"), MARKED("store")});
    CHECK_THAT(only_report(device).message, Contains("wmma.store.d") && Contains("by warp 0"));
    CHECK(only_report(device).times == 32);
    check_silent(run(read_after_store<true>, 32, 1024, lane_bytes));
  }
  const Device loaded = run(load_after_write<false>, 32, 512);
  CHECK(only_report(loaded).where == std::vector{MARKED("load"), MARKED("write")});
  CHECK_THAT(only_report(loaded).message, Contains("wmma.load.a") && Contains("by warp 0 reads shared+0, written by"));
  check_silent(run(load_after_write<true>, 32, 512));
  const Device device = run(write_after_load<false>, 32, 1024);
  check_only(device, ReportKind::race_write_after_read);
  CHECK(only_report(device).where == std::vector{MARKED("write again"), MARKED("load c")});
  check_silent(run(write_after_load<true>, 32, 1024));
}

TEST_CASE("a warp may store what it has loaded, two warps may not store to one place", "[emulator][wmma]") {
  check_silent(run(accumulate_in_place, 32, 1024));
  check_silent(run(two_stores, 32, 1024));
  check_only(run(two_stores, 64, 1024), ReportKind::race_write_after_write);
  check_only(run(load_unwritten, 32, 512), ReportKind::uninitialised_read);
}

// ---- misuse ---------------------------------------------------------------------------------------------------------

namespace {

__global__ void load_at(uint32_t offset, uint32_t ld) {
  WmmaA a;
  wmma_load_a(a, smem_base() + offset, ld);  // @load a
}
__global__ void store_at(uint32_t offset, uint32_t ld) {
  WmmaAccumulator d;
  wmma_fill(d, 0.0f);
  wmma_store_d(smem_base() + offset, d, ld);  // @store d
}
__global__ void lanes_disagree(uint32_t address_step, uint32_t ld_step) {
  WmmaAccumulator d;
  wmma_fill(d, 0.0f);
  const uint32_t odd_one = threadIdx.x == 40 ? 1 : 0;
  wmma_store_d(smem_base() + odd_one * address_step, d, 16 + odd_one * ld_step);  // @disagree
}
__global__ void half_a_warp_multiplies() {
  WmmaA a;
  WmmaBRow b;
  WmmaAccumulator c;
  if (threadIdx.x < 16) {
    wmma_mma(c, a, b);  // @half multiply
  } else {
    __syncthreads();
  }
}
__global__ void two_loads() {
  WmmaBRow row;
  WmmaBCol col;
  if (threadIdx.x == 9) {
    wmma_load_b_row(row, smem_base(), 16);
  } else {
    wmma_load_b_col(col, smem_base(), 16);
  }
}

void check_refused(const Device& device, ReportKind kind, const std::string& mark, const std::string& words) {
  CHECK(only_report(device).kind == kind);
  CHECK(only_report(device).where == std::vector{MARKED(mark)});
  CHECK_THAT(only_report(device).message, Contains(words));
  CHECK(device.failed());
}

}  // namespace

TEST_CASE("wmma accesses out of line or out of bounds end the launch", "[emulator][wmma]") {
  check_refused(run(load_at, 32, 1024, 16, 16), ReportKind::shared_misaligned, "load a", "not aligned to 32 bytes");
  check_refused(run(load_at, 32, 1024, 0, 24), ReportKind::shared_misaligned, "load a",
                "wmma.load.a at emulator/wmma_tests.cpp:");
  check_refused(run(load_at, 32, 1024, 0, 24), ReportKind::shared_misaligned, "load a",
                "24 elements, which are 48 bytes; it must be a multiple of 16");
  check_refused(run(store_at, 32, 2048, 0, 20), ReportKind::shared_misaligned, "store d", "it must be a multiple of 8");
  check_refused(run(store_at, 32, 1024, 0, 24), ReportKind::shared_out_of_bounds, "store d",
                "by warp 0 at offset 1056");
  check_silent(run(store_at, 32, 15 * 96 + 64, 0, 24));  // what is behind the last row is not touched
}

TEST_CASE("lanes that disagree or do not meet end the launch", "[emulator][wmma]") {
  check_refused(
      run(lanes_disagree, 64, 2048, 32, 0), ReportKind::divergent_collective, "disagree",
      "offset 32, leading dimension 16 in thread 40 (warp 1), but offset 0, leading dimension 16 in thread 32");
  check_refused(run(lanes_disagree, 64, 2048, 0, 8), ReportKind::divergent_collective, "disagree",
                "leading dimension 24 in thread 40");
  check_only(run(half_a_warp_multiplies, 32, 0), ReportKind::deadlock);
  check_only(run(two_loads, 32, 1024), ReportKind::divergent_collective);
}
