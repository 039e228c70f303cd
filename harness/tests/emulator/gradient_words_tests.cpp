// The parts of a gradient kernel (common/words/backward*.cuh): whose line the emulator's reports name. What they compute is held by
// the rungs that say them.
#include "common/words/backward_mma.cuh"
#include "common/words/backward_models.cuh"
#include "harness/tests/emulator/emulator_test.hpp"

#include <algorithm>

using namespace emulator_test;

namespace {

// One warp stores, and another one reads what it has not been told of.
__global__ void stored_and_read_at_once(uint32_t* out) {
  const float dQ[1][4] = {{1, 2, 3, 4}};
  const uint32_t at = smem_base() + threadIdx.x % 32 * 16;
  if (threadIdx.x < 32)
    backward::store_lanes(at, dQ);  // @stored
  else
    st_global_b32(out + threadIdx.x % 32, ld_shared_b32(at));  // @read
}

// What lanes have stored goes to the copy engine without being handed over.
__global__ void staged_without_a_fence(float* out) {
  const float dQ[1][4] = {{1, 2, 3, 4}};
  backward::store_lanes(smem_base() + threadIdx.x * 16, dQ);  // @staged
  __syncwarp();
  if (threadIdx.x == 0) {
    cp_reduce_async_bulk_add_f32(out, smem_base(), 512);  // @added
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();
  }
}

}  // namespace

TEST_CASE("a report names the line of the kernel that says a part of a gradient's", "[emulator][words]") {
  std::vector<uint32_t> numbers(32);
  const Device race = run(stored_and_read_at_once, 64, 512, numbers.data());
  REQUIRE_FALSE(race.reports().empty());
  std::vector<emulator::SourceLine> where = race.reports()[0].where;
  std::ranges::sort(where, {}, [](const auto& line) { return line.line; });
  CHECK(where == std::vector{MARKED("stored"), MARKED("read")});

  alignas(16) static float sum[128];
  const Device unfenced = run(staged_without_a_fence, 32, 512, sum);
  REQUIRE_FALSE(unfenced.reports().empty());
  CHECK(unfenced.reports()[0].kind == ReportKind::missing_proxy_fence);
  CHECK(std::ranges::count(unfenced.reports()[0].where, MARKED("staged")) == 1);
}
