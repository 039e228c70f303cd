// Stores into the shared memory of another block of the cluster, and launches that begin before the one before them is over.
#include <vector>

#include "harness/tests/emulator/emulator_test.hpp"

using namespace emulator_test;

namespace {

enum class Store { right, no_barrier, nobody };
template <Store HOW>
__global__ void stores_in_the_next_block(uint32_t* out) {
  const uint32_t there = smem_base() + 4 * threadIdx.x, next = HOW == Store::nobody ? 2 : 1 - cluster_rank();
  cluster_sync();
  st_shared_cluster_b32(mapa(there, next), threadIdx.x);  // @stores there
  if (HOW != Store::no_barrier) cluster_sync();
  st_global_b32(out + blockIdx.x * 32 + threadIdx.x,
                ld_shared_b32(smem_base() + 4 * (31 - threadIdx.x)));  // @reads here
  cluster_sync();
}

enum class Async { right, not_awaited, too_few_bytes, another_block };
template <Async HOW>
__global__ void stores_without_waiting(uint32_t* out) {
  const uint32_t barrier = smem_base() + 128, next = 1 - cluster_rank();
  if (threadIdx.x == 0) mbarrier_init(barrier, 1);
  if (threadIdx.x == 0) fence_mbarrier_init();
  cluster_sync();
  if (threadIdx.x == 0) mbarrier_arrive_expect_tx(barrier, HOW == Async::too_few_bytes ? 124 : 128);
  const uint32_t its = mapa(barrier, HOW == Async::another_block ? cluster_rank() : next);
  st_async_b32(mapa(smem_base() + 4 * threadIdx.x, next), threadIdx.x, its);  // @stores in flight
  if (HOW != Async::not_awaited) mbarrier_wait_parity(barrier, 0);
  const uint32_t read = ld_shared_b32(smem_base() + 4 * (31 - threadIdx.x));  // @reads in flight
  if (HOW == Async::not_awaited) mbarrier_wait_parity(barrier, 0);
  st_global_b32(out + blockIdx.x * 32 + threadIdx.x, read);
  __syncwarp();
  cluster_sync();
}

struct Cluster {
  uint32_t out[64] = {};
  Device run(void (*kernel)(uint32_t*)) {
    Device device({.threads = 1});
    launch_clusters(device, kernel, dim3(2), dim3(32), 2, 136, out);
    return device;
  }
};

__global__ void leaves(uint32_t* words) {
  griddepcontrol_launch_dependents();
  st_global_b32(words + blockIdx.x * 64 + threadIdx.x, threadIdx.x);  // @leaves
}
enum class Wait { each, one, none, late };
template <Wait HOW, bool WRITES>
__global__ void finds(uint32_t* words) {
  if (HOW == Wait::each || (HOW == Wait::one && threadIdx.x == 0)) griddepcontrol_wait();
  if (HOW == Wait::one) __syncthreads();
  uint32_t* const own = words + blockIdx.x * 64 + threadIdx.x;
  if (WRITES) st_global_b32(own, 1);                          // @writes over
  if (!WRITES) st_global_b32(own + 128, ld_global_b32(own));  // @finds
  if (HOW == Wait::late) griddepcontrol_wait();
}
Device after(void (*second)(uint32_t*), bool is_dependent, uint32_t blocks) {
  static uint32_t words[256];
  Device device({.threads = 1});
  device.register_buffer(words, sizeof words, "words", emulator::Access::read_write);
  launch(device, leaves, dim3(blocks), dim3(64), 0, words);
  if (is_dependent) launch_dependent(device, second, dim3(blocks), dim3(64), 0, words);
  if (!is_dependent) launch(device, second, dim3(blocks), dim3(64), 0, words);
  return device;
}

}  // namespace

TEST_CASE("a store into another block's shared memory is there behind a barrier of the cluster",
          "[emulator][cluster]") {
  Cluster cluster;
  check_silent(cluster.run(stores_in_the_next_block<Store::right>));
  for (uint32_t i = 0; i < 64; ++i) CHECK(cluster.out[i] == 31 - i % 32);
  const Device early = cluster.run(stores_in_the_next_block<Store::no_barrier>);
  bool is_told = false;
  for (const Report& report : early.reports()) {
    for (const auto& where : report.where) is_told |= where == MARKED("stores there") || where == MARKED("reads here");
    CHECK((report.kind == ReportKind::race_read_after_write || report.kind == ReportKind::race_write_after_read ||
           report.kind == ReportKind::uninitialised_read));
  }
  CHECK(is_told);
  const Device nobody = cluster.run(stores_in_the_next_block<Store::nobody>);
  REQUIRE_FALSE(nobody.reports().empty());
  bool is_misuse = false;
  for (const Report& report : nobody.reports()) is_misuse |= report.kind == ReportKind::cluster_misuse;
  CHECK(is_misuse);
}

TEST_CASE("a store that nobody waits for lands with its mbarrier", "[emulator][cluster]") {
  Cluster cluster;
  check_silent(cluster.run(stores_without_waiting<Async::right>));
  for (uint32_t i = 0; i < 64; ++i) CHECK(cluster.out[i] == 31 - i % 32);
  const Device early = cluster.run(stores_without_waiting<Async::not_awaited>);
  REQUIRE_FALSE(early.reports().empty());
  CHECK(early.reports().front().kind == ReportKind::in_flight_read);
  CHECK(early.reports().front().where == std::vector{MARKED("reads in flight"), MARKED("stores in flight")});
  const Device short_of = cluster.run(stores_without_waiting<Async::too_few_bytes>);
  REQUIRE_FALSE(short_of.reports().empty());
  const Device apart = cluster.run(stores_without_waiting<Async::another_block>);
  REQUIRE_FALSE(apart.reports().empty());
  CHECK(apart.reports().front().kind == ReportKind::cluster_misuse);
}

TEST_CASE("a dependent launch waits for the one before", "[emulator][turns]") {
  for (const uint32_t blocks : {1, 2}) {
    for (const bool is_dependent : {false, true}) {
      check_silent(after(finds<Wait::each, false>, is_dependent, blocks));
      check_silent(after(finds<Wait::one, false>, is_dependent, blocks));
      check_silent(after(finds<Wait::each, true>, is_dependent, blocks));
    }
    check_silent(after(finds<Wait::none, false>, false, blocks));
    for (const auto kernel : {finds<Wait::none, false>, finds<Wait::late, false>}) {
      const Device device = after(kernel, true, blocks);
      check_only(device, ReportKind::race_between_blocks);
      CHECK(only_report(device).where == std::vector{MARKED("finds"), MARKED("leaves")});
    }
    CHECK(only_report(after(finds<Wait::none, true>, true, blocks)).where ==
          std::vector{MARKED("writes over"), MARKED("leaves")});
  }
}
