// What a kernel can do wrong besides races: each fault gives its report, with the right lines and threads.
#include <limits>
#include <stdexcept>

#include "harness/tests/emulator/emulator_test.hpp"

using namespace emulator_test;

namespace {

// ---- shared addresses ---------------------------------------------------------------------------------------------

__global__ void store_past_end() {
  st_shared_v4(smem_base() + 4096 - 512 + threadIdx.x * 16, {});  // @past end
}
__global__ void store_before_begin() {
  st_shared_b32(smem_base() - 4, 0);
}
__global__ void store_misaligned() {
  st_shared_v2(smem_base() + 4, {});  // @misaligned
}
__global__ void matrix_past_end() {
  uint32_t matrices[4];
  st_shared_v4(smem_base() + threadIdx.x * 16, {});
  __syncwarp();
  ldmatrix_x4(matrices, smem_base() + threadIdx.x * 16 + (threadIdx.x == 7 ? 4096 : 0));  // @matrix past end
}
__global__ void copy_misaligned(const uint4* source) {
  cp_async_16(smem_base() + 8, source);
}
__global__ void matrix_x2_ignores_upper_lanes() {
  uint32_t matrices[2];
  st_shared_v4(smem_base() + threadIdx.x * 16, {});
  __syncwarp();
  ldmatrix_x2_trans(matrices, threadIdx.x < 16 ? smem_base() + threadIdx.x * 16 : 0);
}

}  // namespace

TEST_CASE("bad shared addresses end the launch", "[emulator][misuse]") {
  SECTION("past the end") {
    const Device device = run(store_past_end, 64, 4096);
    check_only(device, ReportKind::shared_out_of_bounds, {MARKED("past end")},
               Contains("thread 32 (warp 1) at offset 4096"));
    CHECK(device.failed());
  }
  SECTION("before the beginning") {
    const Device device = run(store_before_begin, 1, 4096);
    check_only(device, ReportKind::shared_out_of_bounds, {}, Contains("at offset -4"));
  }
  SECTION("without any shared memory") {
    check_only(run(store_misaligned, 1, 0), ReportKind::shared_misaligned);
    check_only(run(store_past_end, 1, 0), ReportKind::shared_out_of_bounds);
  }
  SECTION("misaligned") {
    check_only(run(store_misaligned, 1, 4096), ReportKind::shared_misaligned, {MARKED("misaligned")});
    const uint4 source{};
    check_only(run(copy_misaligned, 1, 4096, &source), ReportKind::shared_misaligned);
  }
  SECTION("one row of a matrix") {
    check_only(run(matrix_past_end, 32, 4096), ReportKind::shared_out_of_bounds, {MARKED("matrix past end")},
               Contains("thread 7 (warp 0)"));
  }
  SECTION("ldmatrix.x2 looks at 16 addresses only") {
    check_silent(run(matrix_x2_ignores_upper_lanes, 32, 512));
  }
}

// ---- global addresses ---------------------------------------------------------------------------------------------

namespace {

__global__ void copy_words(const uint32_t* from, uint32_t* to, uint32_t shift) {
  st_global_b32(to + threadIdx.x, ld_global_b32(from + threadIdx.x + shift));  // @copy words
}
__global__ void load_unaligned(const char* from) {
  ld_global_v4(from + 8);  // @load unaligned
}
__global__ void load_across_end(const uint4* from) {
  ld_global_v4(from);
}
__global__ void copy_async_past_end(const uint4* from, uint32_t* to) {
  cp_async_16(smem_base(), from + 2);  // @async past end
  cp_async_commit();
  cp_async_wait<0>();
  st_global_b32(to, ld_shared_b32(smem_base()));
}

struct Buffers {
  alignas(16) uint32_t in[32] = {};
  uint32_t gap[64] = {};
  alignas(16) uint32_t out[32] = {};

  Device device() const {
    Device device({.threads = 1});
    device.register_buffer(in, sizeof in, "in", emulator::Access::read_only);
    device.register_buffer(out, sizeof out, "out", emulator::Access::read_write);
    return device;
  }
};

}  // namespace

TEST_CASE("global accesses are held to the registered buffers", "[emulator][misuse]") {
  Buffers buffers;
  for (uint32_t i = 0; i < 32; ++i) buffers.in[i] = i;
  Device device = buffers.device();

  SECTION("right") {
    launch(device, copy_words, dim3(1), dim3(32), 0, buffers.in, buffers.out, 0);
    check_silent(device);
    CHECK(buffers.out[31] == 31);
    CHECK(device.counters().gmem_bytes_read == 128);
    CHECK(device.counters().gmem_bytes_written == 128);
  }
  SECTION("past the end: reported, read as NaN, and the launch goes on") {
    launch(device, copy_words, dim3(1), dim3(32), 0, buffers.in, buffers.out, 2);
    const Report report = check_only(device, ReportKind::global_out_of_bounds, {MARKED("copy words")});
    CHECK(report.times == 2);
    CHECK_THAT(report.message,
               Contains("ld.global.b32") && Contains("thread 30 (warp 0)") && Contains("in+128 (in has 128 bytes)"));
    CHECK_FALSE(device.failed());
    CHECK(buffers.out[29] == 31);
    CHECK(buffers.out[30] == 0xffffffff);
  }
  SECTION("below every buffer") {
    launch(device, copy_words, dim3(1), dim3(32), 0, reinterpret_cast<uint32_t*>(4096), buffers.out, 0);
    check_only(device, ReportKind::global_out_of_bounds, {}, Contains("below every buffer"));
  }
  SECTION("a write past the end does not happen") {
    launch(device, copy_words, dim3(1), dim3(1), 0, buffers.in, buffers.gap, 0);
    check_only(device, ReportKind::global_out_of_bounds);
    CHECK(buffers.gap[0] == 0);
  }
  SECTION("a write to a read-only buffer does not happen") {
    launch(device, copy_words, dim3(1), dim3(1), 0, buffers.in, buffers.in + 4, 1);
    check_only(device, ReportKind::global_read_only);
    CHECK(buffers.in[4] == 4);
  }
  SECTION("misaligned") {
    launch(device, load_unaligned, dim3(1), dim3(1), 0, reinterpret_cast<const char*>(buffers.in));
    check_only(device, ReportKind::global_misaligned, {MARKED("load unaligned")});
  }
  SECTION("an access that begins inside and ends outside") {
    device.register_buffer(buffers.in, 24, "in", emulator::Access::read_only);
    launch(device, load_across_end, dim3(1), dim3(1), 0, reinterpret_cast<const uint4*>(buffers.in) + 1);
    check_only(device, ReportKind::global_out_of_bounds, {}, Contains("in+16 (in has 24 bytes)"));
  }
  SECTION("cp.async past the end brings NaN") {
    const uint4* from = reinterpret_cast<const uint4*>(buffers.in + 24);
    launch(device, copy_async_past_end, dim3(1), dim3(1), 16, from, buffers.out);
    check_only(device, ReportKind::global_out_of_bounds, {MARKED("async past end")});
    CHECK(buffers.out[0] == 0xffffffff);
  }
  SECTION("registering an address again replaces its entry") {
    device.register_buffer(buffers.in, sizeof buffers.in, "in", emulator::Access::read_write);
    CHECK(device.buffers().size() == 2);
    launch(device, copy_words, dim3(1), dim3(1), 0, buffers.in, buffers.in + 4, 1);
    check_silent(device);
  }
}

TEST_CASE("without registered buffers global accesses are not checked", "[emulator][misuse]") {
  Buffers buffers;
  check_silent(run(copy_words, 32, 0, buffers.in, buffers.gap, 0));
}

// ---- warps and blocks that do not meet ------------------------------------------------------------------------------

namespace {

__global__ void half_a_warp() {
  uint32_t matrices[4];
  st_shared_v4(smem_base() + threadIdx.x * 16, {});
  if (threadIdx.x % 32 < 16) {
    ldmatrix_x4(matrices, smem_base());  // @half ldmatrix
  } else {
    __syncthreads();  // @half barrier
  }
}

__global__ void two_instructions() {
  uint32_t matrices[4];
  if (threadIdx.x == 37) {
    ldmatrix_x4(matrices, smem_base());  // @plain
  } else {
    ldmatrix_x4_trans(matrices, smem_base());  // @transposed
  }
}

// One line, one instruction, two calls: only the column tells them apart.
__global__ void two_calls_on_a_line() {
  // clang-format off
  threadIdx.x < 5 ? shfl_xor(1.0f, 1) : shfl_xor(1.0f, 1);  // @one line
  // clang-format on
}

__global__ void two_barriers_on_a_line() {
  // clang-format off
  if (threadIdx.x < 32) __syncthreads(); else __syncthreads();  // @one line of barriers
  // clang-format on
}

__global__ void two_barriers() {
  if (threadIdx.x < 32) {
    __syncthreads();  // @first barrier
  } else {
    __syncthreads();  // @second barrier
  }
}

__global__ void one_turn_fewer() {
  for (uint32_t i = threadIdx.x == 5 ? 1 : 0; i < 3; ++i) __syncthreads();  // @barrier of a loop
  __syncthreads();                                                          // @after the loop
}

__global__ void early_exit(uint32_t ends) {
  if (threadIdx.x == ends) return;
  shfl_xor(1.0f, 1);  // @shuffle after the exit
}

__global__ void ended_threads_do_not_count() {
  if (threadIdx.x >= 40) return;
  __syncwarp();
  if (threadIdx.x >= 36) return;
  __syncwarp();
  __syncthreads();
}

__global__ void exit_completes_syncwarp() {
  if (threadIdx.x == 31) return;  // comes last, when the others wait already
  __syncwarp();
}

__global__ void named_barrier_without_partner() {
  if (threadIdx.x < 32) named_barrier_sync(3, 64);  // @lonely
}

__global__ void one_barrier_for_two_pairs() {
  named_barrier_sync(1, 64);  // @of either pair
}

__global__ void one_barrier_in_turn() {
  if (threadIdx.x < 64) {
    named_barrier_sync(1, 64);
    named_barrier_arrive(2, 128);
  } else {
    named_barrier_sync(2, 128);
    named_barrier_sync(1, 64);
  }
}

__global__ void bad_named_barriers() {
  named_barrier_sync(16, 32);  // @barrier 16
  named_barrier_sync(1, 33);   // @33 threads
  named_barrier_sync(1, 96);   // @96 threads
}

// Barrier 0 is that of __syncthreads, too: one group's turn by turn, or two that meet.
__global__ void barrier_0_in_turn() {
  __syncthreads();
  for (int i = 0; i < 2; ++i) {
    if (threadIdx.x < 64) named_barrier_sync(0, 64);
  }
  named_barrier_sync(1, 128);
  __syncthreads();
}
__global__ void barrier_0_by_two() {
  if (threadIdx.x < 64) named_barrier_sync(0, 64);
  __syncthreads();  // @may come into the other's
}

__global__ void two_counts() {
  if (threadIdx.x < 32) named_barrier_sync(1, 64);   // @expects 64
  if (threadIdx.x >= 32) named_barrier_sync(1, 32);  // @expects 32
}

[[gnu::noinline, maybe_unused]] void fill_stack() {
  volatile char bytes[132 * 1024];
  for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = 1;
}
[[maybe_unused]] __global__ void overflows() {
  if (threadIdx.x == 1) fill_stack();  // into the stack of thread 0, which has ended
}

__global__ void throws() {
  if (threadIdx.x == 33) throw std::runtime_error("no exceptions on a GPU");
  __syncthreads();
}

}  // namespace

TEST_CASE("lanes of a warp that do not meet", "[emulator][misuse]") {
  SECTION("half in ldmatrix, half in a barrier: who waits where") {
    const Device device = run(half_a_warp, 64, 1024);
    const Report report =
        check_only(device, ReportKind::deadlock, {}, StartsWith("deadlock, no thread of block (0, 0, 0) can go on:"));
    CHECK_THAT(report.message, Contains("ldmatrix.x4 at emulator/misuse_tests.cpp:" +
                                        std::to_string(MARKED("half ldmatrix").line) + ": threads 0-15, 32-47"));
    CHECK_THAT(report.message, Contains("__syncthreads at emulator/misuse_tests.cpp:" +
                                        std::to_string(MARKED("half barrier").line) + ": threads 16-31, 48-63"));
    CHECK(device.failed());
  }
  SECTION("two different instructions") {
    Device device({.threads = 1, .check = false});
    launch(device, two_instructions, dim3(1), dim3(64), 1024);
    check_only(
        device, ReportKind::divergent_collective, {MARKED("plain"), MARKED("transposed")},
        Contains("thread 37 (warp 1) has reached ldmatrix.x4 at") && Contains("(32-36) wait in ldmatrix.x4.trans at"));
    CHECK(device.failed());
  }
  SECTION("two calls on one line") {
    check_only(run(two_calls_on_a_line, 32, 0), ReportKind::divergent_collective,
               {MARKED("one line"), MARKED("one line")}, Contains("thread 5 (warp 0)") && Contains("(0-4)"));
  }
  SECTION("a lane has ended before") {
    check_only(run(early_exit, 32, 0, 0), ReportKind::incomplete_warp, {MARKED("shuffle after the exit")},
               Contains("shfl.bfly") && Contains("needs all 32 threads of warp 0, but threads 0 have ended"));
  }
  SECTION("a lane ends while others wait for it") {
    check_only(run(early_exit, 32, 0, 3), ReportKind::incomplete_warp, {MARKED("shuffle after the exit")});
  }
  SECTION("a block with half a warp") {
    check_only(run(early_exit, 48, 0, 99), ReportKind::incomplete_warp);
  }
  SECTION("__syncwarp and __syncthreads do without ended threads") {
    check_silent(run(ended_threads_do_not_count, 64, 0));
    check_silent(run(exit_completes_syncwarp, 32, 0));
    check_silent(run(exit_completes_syncwarp, 20, 0));
  }
}

// ---- .aligned ---------------------------------------------------------------------------------------------------------

namespace {

enum class Aligned { mma, ldmatrix, stmatrix, named_barrier };

template <Aligned INSTRUCTION>
void aligned(emulator::CallSite site = emulator::CallSite::current()) {
  const uint32_t own = smem_base() + threadIdx.x * 16;
  float accumulators[4] = {};
  uint32_t registers[4] = {};
  if (INSTRUCTION == Aligned::mma) mma_m16n8k16(accumulators, registers, 0, 0, site);
  if (INSTRUCTION == Aligned::ldmatrix) ldmatrix_x4(registers, own, site);
  if (INSTRUCTION == Aligned::stmatrix) stmatrix_x4(own, registers, site);
  if (INSTRUCTION == Aligned::named_barrier) named_barrier_sync(1, 32, site);
}

template <Aligned INSTRUCTION>
__global__ void parts_of_a_warp(bool all) {
  if (threadIdx.x < 16) {
    aligned<INSTRUCTION>();  // @lower half
  } else if (all) {
    aligned<INSTRUCTION>();  // @upper half
  }
}

// The branch is over when the warp comes to the instruction, for which all lanes wait (.sync).
template <Aligned INSTRUCTION>
__global__ void one_lane_before() {
  const uint32_t barrier = smem_base() + 512;
  st_shared_v4(smem_base() + threadIdx.x * 16, {});
  __syncwarp();
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    mbarrier_arrive(barrier);
    mbarrier_wait_parity(barrier, 0);
  }
  aligned<INSTRUCTION>();
}

template <Aligned INSTRUCTION>
void check_aligned() {
  check_only(run(parts_of_a_warp<INSTRUCTION>, 32, 512, true), ReportKind::divergent_collective,
             {MARKED("upper half"), MARKED("lower half")});
  check_only(run(parts_of_a_warp<INSTRUCTION>, 32, 512, false), ReportKind::incomplete_warp);
  for (uint64_t schedule = 0; schedule < 8; ++schedule) {
    Device device({.threads = 1, .schedule = schedule});
    launch(device, one_lane_before<INSTRUCTION>, dim3(1), dim3(32), 520);
    check_silent(device);
  }
}

}  // namespace

TEST_CASE("all lanes of a warp execute one aligned instruction, after branches that some have taken too",
          "[emulator][misuse]") {
  check_aligned<Aligned::mma>();
  check_aligned<Aligned::ldmatrix>();
  check_aligned<Aligned::stmatrix>();
  check_aligned<Aligned::named_barrier>();
}

TEST_CASE("warps of a block that do not meet", "[emulator][misuse]") {
  SECTION("two __syncthreads()") {
    check_only(run(two_barriers, 64, 0), ReportKind::divergent_barrier,
               {MARKED("second barrier"), MARKED("first barrier")}, Contains("thread 32 (warp 1)"));
  }
  SECTION("a thread that has left the loop before the others") {
    check_only(run(one_turn_fewer, 64, 0), ReportKind::divergent_barrier,
               {MARKED("after the loop"), MARKED("barrier of a loop")}, Contains("thread 5 (warp 0)"));
  }
  SECTION("on one line") {
    const Report report = check_only(run(two_barriers_on_a_line, 64, 0), ReportKind::divergent_barrier);
    const emulator::SourceLine line = MARKED("one line of barriers");
    CHECK(report.where == std::vector{line, line});
  }
  SECTION("a named barrier for which too few come") {
    const Device device = run(named_barrier_without_partner, 64, 0);
    check_only(device, ReportKind::deadlock, {MARKED("lonely")},
               Contains("bar.sync at") && Contains("threads 0-31") &&
                   Contains("barrier 3: 32 of 64 threads have come") && Contains("ended: threads 32-63"));
  }
  SECTION("named barriers that do not exist or cannot fill") {
    const Device device = run(bad_named_barriers, 64, 0);
    const char* const marks[] = {"barrier 16", "33 threads", "96 threads"};
    REQUIRE(device.reports().size() == std::size(marks));
    for (size_t i = 0; i < std::size(marks); ++i) {
      CHECK(device.reports()[i].kind == ReportKind::barrier_misuse);
      CHECK(device.reports()[i].where == std::vector{MARKED(marks[i])});
    }
  }
  SECTION("barrier 0, once its last use is over, and before") {
    CHECK(run(barrier_0_in_turn, 128, 0).reports().empty());
    for (const uint64_t schedule : {0, 1, 2}) {
      Device device({.threads = 1, .schedule = schedule});
      launch(device, barrier_0_by_two, dim3(1), dim3(128), 0);
      REQUIRE(!device.reports().empty());
      CHECK(device.reports().front().kind == ReportKind::barrier_misuse);
    }
  }
  SECTION("one named barrier with two counts") {
    check_only(run(two_counts, 64, 0), ReportKind::barrier_misuse, {},
               Contains("expects 32 threads") && Contains("expects 64"));
  }
  SECTION("one named barrier for two pairs of warps") {
    check_only(run(one_barrier_for_two_pairs, 128, 0), ReportKind::barrier_misuse, {MARKED("of either pair")},
               Contains("the last use of barrier 1"));
  }
  SECTION("the same, where the second pair has heard from the first") {
    check_silent(run(one_barrier_in_turn, 128, 0));
  }
}

TEST_CASE("a kernel's exception ends the launch as a report", "[emulator][misuse]") {
  check_only(run(throws, 64, 0), ReportKind::kernel_exception, {},
             Contains("thread 33 (warp 1)") && Contains("no exceptions on a GPU"));
}

#ifndef __SANITIZE_ADDRESS__  // which ends the program itself
TEST_CASE("a thread that uses too much stack ends the launch", "[emulator][misuse]") {
  check_only(run(overflows, 2, 0), ReportKind::stack_overflow, {}, Contains("thread 1 (warp 0)"));
}
#endif

TEST_CASE("bad launches are reports", "[emulator][misuse]") {
  const auto refused = [](dim3 grid, dim3 block, uint32_t smem_bytes) {
    Device device({.threads = 1});
    launch(device, store_before_begin, grid, block, smem_bytes);
    CHECK(device.failed());
    check_only(device, ReportKind::bad_launch);
    return device.reports().front().message;
  };
  CHECK_THAT(refused(dim3(1), dim3(0), 0), Contains("0 x 1 x 1 threads"));
  CHECK_THAT(refused(dim3(1), dim3(1025), 0), Contains("1025 x 1 x 1 threads"));
  CHECK_THAT(refused(dim3(1), dim3(32, 64), 0), Contains("32 x 64 x 1 threads"));
  CHECK_THAT(refused(dim3(1), dim3(65536, 65536), 0), Contains("65536 x 65536"));
  CHECK_THAT(refused(dim3(1), dim3(1, 1, 65), 0), Contains("65 threads"));
  CHECK_THAT(refused(dim3(0), dim3(32), 0), Contains("empty grid"));
  CHECK_THAT(refused(dim3(1, 65536), dim3(32), 0), Contains("65536"));
  CHECK_THAT(refused(dim3(1), dim3(32), 227 * 1024 + 1), Contains("232449 bytes of shared memory"));
}

TEST_CASE("after a failure a device waits for its reset", "[emulator][misuse]") {
  Buffers buffers;
  buffers.in[0] = 1;
  Device device({.threads = 1});
  launch(device, store_before_begin, dim3(1), dim3(1), 0);
  REQUIRE(device.failed());
  launch(device, copy_words, dim3(1), dim3(1), 0, buffers.in, buffers.out, 0);
  CHECK(buffers.out[0] == 0);
  device.reset();
  CHECK_FALSE(device.failed());
  CHECK(device.reports().empty());
  launch(device, copy_words, dim3(1), dim3(1), 0, buffers.in, buffers.out, 0);
  CHECK(buffers.out[0] == 1);
  CHECK(device.counters().gmem_bytes_read == 4);
}

TEST_CASE("only the first reports are kept, but all are counted", "[emulator][misuse]") {
  Device device({.threads = 1, .max_reports = 2});
  launch(device, bad_named_barriers, dim3(1), dim3(64), 0);
  CHECK(device.reports().size() == 2);
  CHECK(device.repeats() == 3 * 2 - 2);
}

TEST_CASE("kinds have stable names", "[emulator][misuse]") {
  CHECK(emulator::to_string(ReportKind::uninitialised_read) == "uninitialised-read");
  CHECK(emulator::to_string(ReportKind::deadlock) == "deadlock");
  CHECK(emulator::to_string(ReportKind::bad_launch) == "bad-launch");
  CHECK_FALSE(emulator::is_fatal(ReportKind::global_read_only));
  CHECK(emulator::is_fatal(ReportKind::shared_out_of_bounds));
  CHECK(emulator::to_string({"/a/b/93_longer/kernel.cuh", 70}) == "93_longer/kernel.cuh:70");
  CHECK(emulator::to_string({"kernel.cuh", 7}) == "kernel.cuh:7");
}

// ---- lanes that meet in __syncwarp, and the shared memory of a GPU ------------------------------------------------------------

namespace {

// Two branches with a __syncwarp each, which are one barrier: lane l reads what lane 31 - l has stored.
template <bool BOTH>
__global__ void syncwarp_in_branches(uint32_t* out) {
  const uint32_t lane = threadIdx.x, own = smem_base() + lane * 4;
  st_shared_b32(own, lane);  // @in both branches
  if (lane < 16) {
    __syncwarp();
  } else if (BOTH) {
    __syncwarp();
  }
  st_global_b32(out + lane, ld_shared_b32(smem_base() + (31 - lane) * 4));
}

__global__ void does_nothing() {}

__global__ void elects(uint32_t* out) {
  if (elect_sync()) st_global_b32(out, threadIdx.x);  // @elects
}

}  // namespace

TEST_CASE("__syncwarp is a barrier of lanes, whatever its line", "[emulator][misuse]") {
  std::vector<uint32_t> out(32);
  check_silent(run(syncwarp_in_branches<true>, 32, 128, out.data()));
  CHECK(out[3] == 28);
  CHECK_FALSE(run(syncwarp_in_branches<false>, 32, 128, out.data()).reports().empty());
}

TEST_CASE("what nobody writes of a block's shared memory is counted to the last byte", "[emulator][misuse]") {
  for (const uint32_t bytes : {0u, 1u, 4u, 7u, 4096u}) {
    Device device({.threads = 1});
    launch(device, does_nothing, dim3(2), dim3(32), bytes);
    CHECK(device.counters().unused_smem_bytes == bytes);
  }
}

TEST_CASE("a block has no more shared memory than the GPU that it is for", "[emulator][misuse]") {
  const auto launched = [](uint32_t limit, uint32_t bytes) {
    Device device({.threads = 1, .smem_limit = limit});
    launch(device, does_nothing, dim3(1), dim3(32), bytes);
    return device;
  };
  const uint32_t a100 = emulator::max_shared_memory(80);
  check_silent(launched(a100, a100));
  const Device device = launched(a100, a100 + 1);
  check_only(device, ReportKind::bad_launch);
  CHECK_THAT(device.reports()[0].message, Contains("166913 bytes of shared memory; a block can have 166912"));
  const std::pair<int, uint32_t> kib[] = {{75, 64}, {80, 163}, {86, 99},   {87, 163},
                                          {89, 99}, {90, 227}, {100, 227}, {120, 99}};
  for (const auto& [sm, wanted] : kib) CHECK(emulator::max_shared_memory(sm) == wanted * 1024);
}

TEST_CASE("instructions that came after the GPU that a kernel is for are reported", "[emulator][misuse]") {
  const auto launched = [](int sm) {
    uint32_t lane = 0;
    Device device({.threads = 1, .sm = sm});
    device.register_buffer(&lane, sizeof lane, "out", emulator::Access::read_write);
    launch(device, elects, dim3(1), dim3(32), 0, &lane);
    return device;
  };
  check_silent(launched(0));
  check_silent(launched(90));
  const Device device = launched(80);
  check_only(device, ReportKind::newer_instruction, {MARKED("elects")},
             Contains("elect.sync") && Contains("needs sm_90"));
}

TEST_CASE("another lane is elected when the threads run in another order", "[emulator][misuse]") {
  std::vector<uint32_t> lanes(2);
  for (const uint64_t schedule : {0, 7}) {
    Device device({.threads = 1, .schedule = schedule});
    device.register_buffer(lanes.data(), 8, "out", emulator::Access::read_write);
    launch(device, elects, dim3(1), dim3(32), 0, lanes.data() + (schedule > 0));
  }
  CHECK(lanes[0] < 32);
  CHECK(lanes[1] < 32);
  CHECK(lanes[0] != lanes[1]);
}

// ---- what C++ leaves open, and a GPU does otherwise ----------------------------------------------------------------------

namespace {

__global__ void index_of_lane(uint32_t* result) {
  uint32_t registers[4] = {};
  registers[threadIdx.x % 8] = 1;  // @index
  st_global_b32(result + threadIdx.x, registers[0] + registers[3]);
}
__global__ void shift_by_lane(uint32_t* result, int more) {
  st_global_b32(result + threadIdx.x, 0xccccccccu >> (threadIdx.x + more));  // @shift
}
__global__ void share_of_lanes(uint32_t* result, uint32_t more) {
  st_global_b32(result + threadIdx.x, 96 / (threadIdx.x + more));  // @share
}
__global__ void made_unsigned(uint32_t* result, float value) {
  st_global_b32(result + threadIdx.x,
                static_cast<uint32_t>(value - static_cast<float>(threadIdx.x)));  // @made unsigned
}
__global__ void made_int(int* result, double value) {
  st_global_b32(result + threadIdx.x, static_cast<uint32_t>(static_cast<int>(value)));  // @made int
}

}  // namespace

TEST_CASE("what C++ leaves open ends the launch, for a GPU does not do what a CPU does", "[emulator][misuse]") {
  std::vector<uint32_t> result(32);
  Device device;
  const auto report_of = [&](auto kernel, auto*... arguments) -> Report {
    device.reset();
    launch(device, kernel, dim3(1), dim3(32), 0, *arguments...);
    return only_report(device);
  };
  uint32_t* at = result.data();
  SECTION("an index beyond an array") {
    const Report report = report_of(index_of_lane, &at);
    CHECK(report.kind == ReportKind::array_bounds);
    CHECK(report.where == std::vector{MARKED("index")});
    CHECK_THAT(report.message, Contains("index 4 of an array") && Contains("thread 4 (warp 0)"));
  }
  SECTION("a shift by as many bits as there are") {
    int more = 0;
    launch(device, shift_by_lane, dim3(1), dim3(32), 0, at, more);
    check_silent(device);
    CHECK(result[4] == 0x0cccccccu);
    more = 2;
    const Report report = report_of(shift_by_lane, &at, &more);
    CHECK(report.kind == ReportKind::undefined_arithmetic);
    CHECK(report.where == std::vector{MARKED("shift")});
    CHECK_THAT(report.message, Contains("a shift of 'unsigned int' by 32 bits") && Contains("thread 30 (warp 0)"));
  }
  SECTION("a division by zero") {
    uint32_t more = 1;
    launch(device, share_of_lanes, dim3(1), dim3(32), 0, at, more);
    check_silent(device);
    CHECK(result[2] == 32);
    more = 0u - 3;
    const Report report = report_of(share_of_lanes, &at, &more);
    CHECK(report.kind == ReportKind::undefined_arithmetic);
    CHECK(report.where == std::vector{MARKED("share")});
    CHECK_THAT(report.message, Contains("a division of 'unsigned int' by zero") && Contains("thread 3 (warp 0)"));
  }
  SECTION("a number below zero made unsigned") {
    float value = 31.5f;
    launch(device, made_unsigned, dim3(1), dim3(32), 0, at, value);
    check_silent(device);
    CHECK(result[31] == 0);
    value = 7.0f;
    const Report report = report_of(made_unsigned, &at, &value);
    CHECK(report.kind == ReportKind::undefined_arithmetic);
    CHECK(report.where == std::vector{MARKED("made unsigned")});
    CHECK_THAT(report.message, Contains("-1 made 'unsigned int'") && Contains("thread 8 (warp 0)"));
  }
  SECTION("NaN and what is too large, made a whole number") {
    auto* signed_at = reinterpret_cast<int*>(at);
    for (double value : {std::numeric_limits<double>::quiet_NaN(), 3e9}) {
      const Report report = report_of(made_int, &signed_at, &value);
      CHECK(report.kind == ReportKind::undefined_arithmetic);
      CHECK_THAT(report.message, Contains("made 'int'"));
    }
  }
}
