// Words of several instructions, and parts: whose line the emulator's reports name. What they compute is held by the rungs that say them.
#include <algorithm>

#include "common/words/forward.cuh"
#include "harness/tests/emulator/emulator_test.hpp"

using namespace emulator_test;

namespace {

using Tiles = Ring<2, 128>;

// A part waits for a tile that nobody sends, and asks for a word where no shared memory is.
__global__ void lets_nothing_pass() {
  const Tiles ring{smem_base()};
  if (threadIdx.x == 0) ring.init(1);
  __syncthreads();
  forward::let_pass<true, 1>(ring, ring, 0, 1, [](const auto&, int) {});  // @pass
}
__global__ void asks_outside(int* out) {
  const forward::Work work{smem_base() + 64};
  out[threadIdx.x] = work[forward::Work::END];  // @word
  out[threadIdx.x] += work.query();             // @query
}

__global__ void nothing_comes() {
  const Tiles ring{smem_base()};
  if (threadIdx.x == 0) ring.init(1);
  __syncthreads();
  ring.wait_full(0);  // @hang
}

}  // namespace

TEST_CASE("a report names the line of the kernel that says the word", "[emulator][words]") {
  const Device device = run(nothing_comes, 32, 64);
  check_only(device, ReportKind::deadlock, {MARKED("hang")});
}

TEST_CASE("so it does of a part, and of a word that a part asks for", "[emulator][words]") {
  const Device waiting = run(lets_nothing_pass, 32, 64);
  CHECK(only_report(waiting).where == std::vector{MARKED("pass")});
  std::vector<int> out(32);
  const Device asking = run(asks_outside, 32, 64, out.data());
  std::vector<emulator::SourceLine> places;
  for (const Report& report : asking.reports()) places.push_back(report.where[0]);
  CHECK(std::find(places.begin(), places.end(), MARKED("word")) != places.end());
}
