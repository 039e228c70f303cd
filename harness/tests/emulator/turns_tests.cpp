// Words that blocks wait for, and sums that have an order: who may wait for whom, and what hands a sum over.
#include <algorithm>
#include <bit>
#include <numeric>
#include <vector>

#include "harness/tests/emulator/emulator_test.hpp"

using namespace emulator_test;

namespace {

constexpr uint32_t BLOCKS = 6, WORDS = 64, BYTES = WORDS * 4, SMEM_BYTES = 2 * BYTES;

struct Memory {
  alignas(16) float sums[WORDS] = {};
  uint32_t turn = 0, numbers = 0;
};

template <class... Args>
Device run_on(Memory& memory, Options options, void (*kernel)(Args...), uint32_t threads, uint32_t blocks,
              Args... args) {
  memory = {};
  Device device(options);
  device.register_buffer(memory.sums, sizeof memory.sums, "sums", emulator::Access::read_write);
  device.register_buffer(&memory.turn, 4, "turn", emulator::Access::read_write);
  device.register_buffer(&memory.numbers, 4, "numbers", emulator::Access::read_write);
  launch(device, kernel, dim3(blocks), dim3(threads), SMEM_BYTES, args...);
  return device;
}

__device__ void fill(float value) {
  for (uint32_t word = threadIdx.x; word < WORDS; word += blockDim.x)
    st_shared_b32(smem_base() + 4 * word, __float_as_uint(value));
  fence_proxy_async_shared();
  __syncthreads();
}
__device__ uint32_t drawn(uint32_t* numbers) {
  if (threadIdx.x == 0) st_shared_b32(smem_base() + BYTES, atom_global_add_u32(numbers, 1));
  __syncthreads();
  return ld_shared_b32(smem_base() + BYTES);
}
// What block i adds: of such numbers the sum depends on the order.
__device__ float share(uint32_t i) {
  return i % 3 == 0 ? 3.0f : i % 3 == 1 ? 0x1p24f : -0x1p24f;
}

enum class How {
  right,
  read_alone,       // the next one is told when shared memory has been read
  too_early,        // before anything has been waited for
  relaxed,          // without a release
  no_turn,          // nobody waits
  by_another,       // a thread of another warp passes the turn on, after a barrier
  by_another_early  // before it
};
template <How HOW>
__global__ void adds_in_turn(Memory* memory) {
  const uint32_t number = drawn(&memory->numbers);
  fill(share(number));
  constexpr bool ANOTHER = HOW == How::by_another || HOW == How::by_another_early;
  if (threadIdx.x == 0) {
    if (HOW != How::no_turn) ld_acquire_wait_u32(&memory->turn, number);  // @waits
    cp_reduce_async_bulk_add_f32(memory->sums, smem_base(), BYTES);       // @adds
    cp_async_bulk_commit();
    if (HOW == How::too_early) red_release_add_u32(&memory->turn, 1);
    if (HOW == How::read_alone) cp_async_bulk_wait_read<0>();
    if (HOW != How::read_alone) cp_async_bulk_wait<0>();
    if (HOW == How::relaxed) atom_global_add_u32(&memory->turn, 1);
    if (HOW != How::relaxed && HOW != How::too_early && !ANOTHER) red_release_add_u32(&memory->turn, 1);
  }
  if (HOW == How::by_another) __syncthreads();
  if (ANOTHER && threadIdx.x == 32) red_release_add_u32(&memory->turn, 1);
}
// Whoever is here first adds first, but tidily.
__global__ void adds_in_order_of_arrival(Memory* memory) {
  fill(share(blockIdx.x));
  const uint32_t turn = drawn(&memory->numbers);
  if (threadIdx.x == 0) {
    ld_acquire_wait_u32(&memory->turn, turn);
    cp_reduce_async_bulk_add_f32(memory->sums, smem_base(), BYTES);
    cp_async_bulk_commit();
    cp_async_bulk_wait<0>();
    red_release_add_u32(&memory->turn, 1);
  }
}
// Turns in the order of block numbers, which says nothing about who begins first; or the other way round.
template <bool DOWN>
__global__ void waits_for_blocks(Memory* memory) {
  const uint32_t turn = DOWN ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  if (threadIdx.x == 0) {
    ld_acquire_wait_u32(&memory->turn, turn);  // @waits for a block
    red_global_add_f32(memory->sums, share(turn));
    red_release_add_u32(&memory->turn, 1);
  }
}
__global__ void writes_the_turn(Memory* memory) {
  if (blockIdx.x == 0) st_global_b32(&memory->turn, 1);  // @turn written
  if (blockIdx.x == 1) red_release_add_u32(&memory->turn, 1);
}

enum class Within { barrier, nothing, one_thread };
template <Within HOW>
__global__ void adds_within_a_block(Memory* memory) {
  if (threadIdx.x == 0) red_global_add_f32(memory->sums, 1.0f);
  if (HOW == Within::barrier) __syncthreads();
  if (threadIdx.x == (HOW == Within::one_thread ? 0 : 32)) red_global_add_f32(memory->sums, 2.0f);
}
template <bool WAITS>
__global__ void adds_twice(Memory* memory) {
  fill(2.0f);
  if (threadIdx.x != 0) return;
  for (int time = 0; time < 2; ++time) {
    cp_reduce_async_bulk_add_f32(memory->sums + 16 * time, smem_base(), BYTES - 64);  // @adds again
    cp_async_bulk_commit();
    if (WAITS) cp_async_bulk_wait<0>();
  }
  cp_async_bulk_wait<0>();
}

std::vector<Options> all_orders() {
  std::vector<Options> all;
  for (const uint64_t order : {0, 1, 2, 3}) {
    for (const int threads : {1, 2, 3, 8}) {
      all.push_back({.threads = threads, .schedule = order, .cluster_order = order, .ordered_sums = true});
    }
  }
  return all;
}

}  // namespace

TEST_CASE("sums in turn have the same bits in every order of blocks", "[emulator][turns]") {
  Memory memory;
  float in_turn = 0;
  for (uint32_t i = 0; i < BLOCKS; ++i) in_turn += share(i);
  for (const Options& options : all_orders()) {
    for (const auto kernel : {adds_in_turn<How::right>, adds_in_turn<How::by_another>}) {
      check_silent(run_on(memory, options, kernel, 64, BLOCKS, &memory));
      for (const float sum : memory.sums) CHECK(sum == in_turn);
      CHECK(memory.turn == BLOCKS);
    }
  }
  Device device = run_on(memory, {.threads = 1}, adds_in_turn<How::right>, 64, BLOCKS, &memory);
  CHECK(device.counters().gmem_accesses == 3 * BLOCKS);  // a number, a wait, a turn
  CHECK(device.counters().gmem_bytes_reduced == BLOCKS * (BYTES + 8));
}

TEST_CASE("in the order of arrival another order of blocks gives another sum", "[emulator][turns]") {
  Memory memory;
  std::vector<float> sums;
  for (const uint64_t order : {0, 1, 2, 3, 4}) {
    check_silent(run_on(memory, {.threads = 1, .cluster_order = order, .ordered_sums = true}, adds_in_order_of_arrival,
                        64, BLOCKS, &memory));
    sums.push_back(memory.sums[0]);
  }
  CHECK(std::ranges::adjacent_find(sums, std::not_equal_to()) != sums.end());
}

TEST_CASE("a sum that is handed on too early, or not at all", "[emulator][turns]") {
  Memory memory;
  for (const auto kernel : {adds_in_turn<How::read_alone>, adds_in_turn<How::too_early>, adds_in_turn<How::relaxed>,
                            adds_in_turn<How::no_turn>, adds_in_turn<How::by_another_early>}) {
    const Device device = run_on(memory, {.threads = 1, .ordered_sums = true}, kernel, 64, BLOCKS, &memory);
    const Report report = check_only(device, ReportKind::unordered_sums, {MARKED("adds"), MARKED("adds")});
    CHECK(report.buffer == "sums");
    CHECK(report.times == BLOCKS - 1);
    // Nobody has asked for an order.
    check_silent(run_on(memory, {.threads = 1}, kernel, 64, BLOCKS, &memory));
  }
}

TEST_CASE("sums within a block", "[emulator][turns]") {
  Memory memory;
  const Options options{.threads = 1, .ordered_sums = true};
  check_silent(run_on(memory, options, adds_within_a_block<Within::barrier>, 64, 1, &memory));
  check_silent(run_on(memory, options, adds_within_a_block<Within::one_thread>, 64, 1, &memory));
  CHECK(only_report(run_on(memory, options, adds_within_a_block<Within::nothing>, 64, 1, &memory)).kind ==
        ReportKind::unordered_sums);
  check_silent(run_on(memory, options, adds_twice<true>, 64, 1, &memory));
  const Device device = run_on(memory, options, adds_twice<false>, 64, 1, &memory);
  check_only(device, ReportKind::unordered_sums);
  CHECK(only_report(device).where.front() == MARKED("adds again"));
}

TEST_CASE("a block waits for those that have begun, and for no others", "[emulator][turns]") {
  Memory memory;
  SECTION("in the order of their numbers as long as they begin in that order") {
    check_silent(run_on(memory, {.threads = 1, .ordered_sums = true}, waits_for_blocks<false>, 32, 4, &memory));
    bool is_stuck = false;
    for (const uint64_t order : {1, 2, 3, 4}) {
      const Device device =
          run_on(memory, {.threads = 1, .cluster_order = order}, waits_for_blocks<false>, 32, 4, &memory);
      is_stuck |= device.failed() && only_report(device).kind == ReportKind::deadlock;
    }
    CHECK(is_stuck);
  }
  SECTION("the other way round not with room for one, but with room for all") {
    const Device device = run_on(memory, {.threads = 1}, waits_for_blocks<true>, 32, 4, &memory);
    check_only(device, ReportKind::deadlock);
    CHECK(only_report(device).where == std::vector{MARKED("waits for a block")});
    CHECK_THAT(only_report(device).message, Contains("ld.acquire.gpu.global.u32"));
    check_silent(run_on(memory, {.threads = 4}, waits_for_blocks<true>, 32, 4, &memory));
    CHECK(memory.turn == 4);
    CHECK(run_on(memory, {.threads = 3}, waits_for_blocks<true>, 32, 8, &memory).failed());
  }
}

TEST_CASE("a plain write of a word that another block adds to is a race", "[emulator][turns]") {
  Memory memory;
  const Device device = run_on(memory, {.threads = 1}, writes_the_turn, 32, 2, &memory);
  check_only(device, ReportKind::race_between_blocks);
  CHECK(only_report(device).where.front() == MARKED("turn written"));
}
