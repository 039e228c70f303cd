// Words of several instructions: what they do, and whose line reports name.
#include <algorithm>

#include "harness/tests/emulator/emulator_test.hpp"

using namespace emulator_test;

namespace {

__global__ void over_quads(float* out) {
  const float value = static_cast<float>(threadIdx.x * 7 % 32);
  st_global_f32(out + threadIdx.x, quad_max(value));
  st_global_f32(out + 32 + threadIdx.x, quad_sum(value));
}

// A warp brings tiles of 128 B that another one reads: more of them than there are stages.
constexpr int STAGES = 2, TILES = 5;
using Tiles = Ring<STAGES, 128>;
template <bool WAITS>
__global__ void through_a_ring(const uint4* in, uint32_t* out) {
  const Tiles ring{smem_base() + STAGES * 128, smem_base()};
  if (threadIdx.x == 0) {
    ring.init(32);
    fence_mbarrier_init();
  }
  __syncthreads();
  for (int tile = 0; tile < TILES; ++tile) {
    if (threadIdx.x == 32) {
      ring.claim(tile);
      cp_async_bulk(ring.tiles + ring.at(tile), in + 8 * tile, 128, ring.full_of(tile));
    }
    if (threadIdx.x < 32) {
      if (WAITS) ring.wait_full(tile);
      st_global_b32(out + 32 * tile + threadIdx.x,
                    ld_shared_b32(ring.tiles + ring.at(tile) + threadIdx.x * 4));  // @read
      mbarrier_arrive(ring.empty_of(tile));
    }
  }
}

__global__ void nothing_comes() {
  const Tiles ring{smem_base()};
  if (threadIdx.x == 0) ring.init(1);
  __syncthreads();
  ring.wait_full(0);  // @hang
}

}  // namespace

TEST_CASE("a quad's four lanes have its largest number and its sum", "[emulator][words]") {
  std::vector<float> out(64);
  check_silent(run(over_quads, 32, 0, out.data()));
  for (int lane = 0; lane < 32; ++lane) {
    float largest = 0, sum = 0;
    for (int other = lane / 4 * 4; other < lane / 4 * 4 + 4; ++other) {
      largest = std::max(largest, float(other * 7 % 32));
      sum += float(other * 7 % 32);
    }
    CHECK(out[lane] == largest);
    CHECK(out[32 + lane] == sum);
  }
}

TEST_CASE("tiles go through a ring's stages in turn", "[emulator][words]") {
  std::vector<uint4> in(8 * TILES);
  for (uint32_t i = 0; i < in.size(); ++i) in[i] = {4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3};
  std::vector<uint32_t> out(32 * TILES);
  const uint32_t smem_bytes = STAGES * (128 + 16);
  check_silent(run(through_a_ring<true>, 64, smem_bytes, in.data(), out.data()));
  for (uint32_t i = 0; i < out.size(); ++i) REQUIRE(out[i] == i);
  const Device device = run(through_a_ring<false>, 64, smem_bytes, in.data(), out.data());
  REQUIRE_FALSE(device.reports().empty());
  CHECK(device.reports()[0].where[0] == MARKED("read"));
}

TEST_CASE("a report names the line of the kernel that says the word", "[emulator][words]") {
  const Device device = run(nothing_comes, 32, 64);
  const Report& report = only_report(device);
  CHECK(report.kind == ReportKind::deadlock);
  CHECK(report.where == std::vector{MARKED("hang")});
}
