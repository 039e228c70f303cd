// The race detector: every way in which two accesses can lack a barrier, and the same kernel with it.
#include "harness/tests/emulator/emulator_test.hpp"

using namespace emulator_test;

namespace {

__device__ uint32_t slot(uint32_t i) {
  return smem_base() + i * 4;
}

// Threads 0-31 do the first access, threads 32-63 the second, of the same words.
template <bool BARRIER>
__global__ void read_after_write() {
  smem_name(smem_base(), 128, "A");
  if (threadIdx.x < 32) st_shared_b32(slot(threadIdx.x), 1);  // @raw write
  if (BARRIER) __syncthreads();
  if (threadIdx.x >= 32) ld_shared_b32(slot(threadIdx.x - 32));  // @raw read
}

// Warp 1 reads and warp 0 writes: the last warp to come to a barrier is the first to go on here.
template <bool BARRIER>
__global__ void write_after_read() {
  smem_name(smem_base(), 128, "A");
  if (threadIdx.x < 32) st_shared_b32(slot(threadIdx.x), 1);
  __syncthreads();
  if (threadIdx.x >= 32) ld_shared_b32(slot(threadIdx.x - 32));  // @war read
  if (BARRIER) __syncthreads();
  if (threadIdx.x < 32) st_shared_b32(slot(threadIdx.x), 2);  // @war write
}

template <bool BARRIER>
__global__ void write_after_write() {
  smem_name(smem_base(), 128, "A");
  if (threadIdx.x < 32) st_shared_b32(slot(threadIdx.x), 1);  // @waw first
  if (BARRIER) __syncthreads();
  if (threadIdx.x >= 32) st_shared_b32(slot(threadIdx.x - 32), 2);  // @waw second
}

// __syncwarp orders lanes, not warps.
__global__ void syncwarp_between_warps() {
  if (threadIdx.x < 32) st_shared_b32(slot(threadIdx.x), 1);
  __syncwarp();
  if (threadIdx.x >= 32) ld_shared_b32(slot(threadIdx.x - 32));
}

// The same within a warp, where __syncwarp suffices: lane 0 first, lane 1 second.
template <bool BARRIER>
__global__ void read_after_write_in_warp() {
  if (threadIdx.x == 0) st_shared_b32(slot(0), 1);
  if (BARRIER) __syncwarp();
  if (threadIdx.x == 1) ld_shared_b32(slot(0));
}

template <bool BARRIER>
__global__ void write_after_read_in_warp() {
  if (threadIdx.x == 2) st_shared_b32(slot(0), 1);
  __syncwarp();
  if (threadIdx.x < 2) ld_shared_b32(slot(0));  // @warp read
  if (BARRIER) __syncwarp();
  if (threadIdx.x == 1) st_shared_b32(slot(0), 2);  // @warp write
}

template <bool BARRIER>
__global__ void write_after_write_in_warp() {
  if (threadIdx.x == 0) st_shared_b32(slot(0), 1);
  if (BARRIER) __syncwarp();
  if (threadIdx.x == 1) st_shared_b32(slot(0), 2);
}

template <bool BARRIER>
__global__ void matrix_read_after_write() {
  smem_name(smem_base(), 512, "tile");
  st_shared_v4(smem_base() + threadIdx.x * 16, {});  // @matrix write
  if (BARRIER) __syncwarp();
  uint32_t matrices[4];
  ldmatrix_x4(matrices, smem_base() + threadIdx.x * 16);  // @matrix read
}

// Warp 0 produces, warp 1 consumes and hands the buffer back. LEFT_OUT is the handshake that is missing.
template <int LEFT_OUT>
__global__ void named_barriers() {
  constexpr uint32_t FULL = 1, EMPTY = 2;
  for (uint32_t round = 0; round < 3; ++round) {
    if (threadIdx.x < 32) {
      if (round > 0 && LEFT_OUT != EMPTY) named_barrier_sync(EMPTY, 64);
      st_shared_b32(slot(threadIdx.x), round);  // @produce
      if (LEFT_OUT != FULL) named_barrier_sync(FULL, 64);
    } else {
      if (LEFT_OUT != FULL) named_barrier_sync(FULL, 64);
      ld_shared_b32(slot(threadIdx.x - 32));  // @consume
      if (round < 2 && LEFT_OUT != EMPTY) named_barrier_arrive(EMPTY, 64);
    }
  }
}

// Arriving does not order the arriver after the others.
__global__ void read_after_arrive() {
  if (threadIdx.x < 32) st_shared_b32(slot(threadIdx.x), 1);
  if (threadIdx.x < 32) named_barrier_sync(1, 64);
  if (threadIdx.x >= 32) {
    named_barrier_arrive(1, 64);
    ld_shared_b32(slot(threadIdx.x - 32));
  }
}

__global__ void own_data() {
  st_shared_b32(slot(threadIdx.x), 1);
  ld_shared_b32(slot(threadIdx.x));
  st_shared_b32(slot(threadIdx.x), 2);
}

__global__ void unwritten() {
  smem_name(smem_base() + 128, 128, "B");
  if (threadIdx.x != 5) st_shared_b32(slot(threadIdx.x), 1);
  __syncthreads();
  const uint32_t value = ld_shared_b32(slot(threadIdx.x == 9 ? 37 : threadIdx.x == 5 ? 5 : 0));  // @unwritten
  if ((threadIdx.x == 5 || threadIdx.x == 9) && value != 0xffffffff) st_shared_b32(0, 0);        // out of bounds: fails
}

void check_race(const Device& device, ReportKind kind, const emulator::SourceLine& here,
                const emulator::SourceLine& there) {
  const Report& report = only_report(device);
  CHECK(report.kind == kind);
  CHECK(report.where == std::vector{here, there});
  CHECK_FALSE(device.failed());
}

}  // namespace

TEST_CASE("races between warps", "[emulator][race]") {
  SECTION("read after write") {
    const Device device = run(read_after_write<false>, 64, 128);
    check_race(device, ReportKind::race_read_after_write, MARKED("raw read"), MARKED("raw write"));
    const Report& report = device.reports().front();
    // Warp 1 runs after warp 0, so it is warp 1 that sees data too early; one report for 32 reads.
    CHECK_THAT(report.message, Contains("thread 32 (warp 1) reads A+0, written by"));
    CHECK_THAT(report.message, Contains("by thread 0 (warp 0)"));
    CHECK_THAT(report.message, Contains("block (0, 0, 0)"));
    CHECK(report.times == 32);
    CHECK(device.repeats() == 31);
    check_silent(run(read_after_write<true>, 64, 128));
  }
  SECTION("write after read") {
    const Device device = run(write_after_read<false>, 64, 128);
    check_race(device, ReportKind::race_write_after_read, MARKED("war write"), MARKED("war read"));
    check_silent(run(write_after_read<true>, 64, 128));
  }
  SECTION("write after write") {
    const Device device = run(write_after_write<false>, 64, 128);
    check_race(device, ReportKind::race_write_after_write, MARKED("waw second"), MARKED("waw first"));
    check_silent(run(write_after_write<true>, 64, 128));
  }
  SECTION("__syncwarp does not help") {
    check_only(run(syncwarp_between_warps, 64, 128), ReportKind::race_read_after_write);
  }
}

TEST_CASE("races between lanes of a warp", "[emulator][race]") {
  SECTION("read after write") {
    check_only(run(read_after_write_in_warp<false>, 32, 128), ReportKind::race_read_after_write);
    check_silent(run(read_after_write_in_warp<true>, 32, 128));
  }
  SECTION("write after read, although the writer was the last to read") {
    const Device device = run(write_after_read_in_warp<false>, 32, 128);
    check_race(device, ReportKind::race_write_after_read, MARKED("warp write"), MARKED("warp read"));
    CHECK_THAT(device.reports().front().message, Contains("by thread 1 (warp 0) writes shared+0"));
    CHECK_THAT(device.reports().front().message, Contains("by warp 0,"));
    check_silent(run(write_after_read_in_warp<true>, 32, 128));
  }
  SECTION("write after write") {
    check_only(run(write_after_write_in_warp<false>, 32, 128), ReportKind::race_write_after_write);
    check_silent(run(write_after_write_in_warp<true>, 32, 128));
  }
  SECTION("ldmatrix reads on behalf of all lanes") {
    const Device device = run(matrix_read_after_write<false>, 32, 512);
    check_race(device, ReportKind::race_read_after_write, MARKED("matrix read"), MARKED("matrix write"));
    CHECK_THAT(device.reports().front().message, Contains("reads tile+0"));
    check_silent(run(matrix_read_after_write<true>, 32, 512));
  }
  SECTION("a thread's own data needs no barrier") {
    check_silent(run(own_data, 64, 256));
  }
}

TEST_CASE("named barriers order their warps", "[emulator][race]") {
  check_silent(run(named_barriers<0>, 64, 128));
  SECTION("without the full barrier") {
    const Device device = run(named_barriers<1>, 64, 128);
    bool found = false;
    for (const Report& report : device.reports())
      found |= report.kind == ReportKind::race_read_after_write &&
               report.where == std::vector{MARKED("consume"), MARKED("produce")};
    CHECK(found);
  }
  SECTION("without the empty barrier") {
    const Device device = run(named_barriers<2>, 64, 128);
    bool found = false;
    for (const Report& report : device.reports())
      found |= report.kind == ReportKind::race_write_after_read &&
               report.where == std::vector{MARKED("produce"), MARKED("consume")};
    CHECK(found);
  }
  SECTION("arriving is not waiting") {
    check_only(run(read_after_arrive, 64, 128), ReportKind::race_read_after_write);
  }
}

TEST_CASE("unwritten shared memory is NaN and its reads are reported", "[emulator][race]") {
  const Device device = run(unwritten, 32, 256);
  for (const Report& report : device.reports()) UNSCOPED_INFO(report.message);
  REQUIRE(device.reports().size() == 2);  // one for each region
  for (const Report& report : device.reports()) {
    CHECK(report.kind == ReportKind::uninitialised_read);
    CHECK(report.where == std::vector{MARKED("unwritten")});
  }
  CHECK_THAT(device.reports()[0].message, Contains("thread 5 (warp 0) reads shared+20"));
  CHECK_THAT(device.reports()[1].message, Contains("thread 9 (warp 0) reads B+20"));
}

TEST_CASE("a race is found in every block, and told once", "[emulator][race]") {
  for (const int threads : {1, 2}) {
    Device device({.threads = threads});
    launch(device, read_after_write<false>, dim3(5, 2), dim3(64), 128);
    CHECK(only_report(device).times == 10 * 32);
    CHECK_THAT(device.reports().front().message, Contains("block (0, 0, 0)"));
  }
}

TEST_CASE("checks can be switched off", "[emulator][race]") {
  Device device({.threads = 1, .check = false});
  launch(device, read_after_write<false>, dim3(1), dim3(64), 128);
  check_silent(device);
}

// ---- the words and the order of reports ------------------------------------------------------------------------------

namespace {

// Row 4, chunk 4 of rows of 256 bytes: lane 1 reads it from lane 0, warp 1 from warp 0.
template <bool OTHER_WARP_TOO>
__global__ void read_in_a_tile() {
  smem_name(smem_base(), 4096, "K", 256);
  if (threadIdx.x == 0) st_shared_b32(smem_base() + 1092, 1);                                        // @tile write
  if (threadIdx.x == 1 || (OTHER_WARP_TOO && threadIdx.x == 40)) ld_shared_b32(smem_base() + 1092);  // @tile read
}

// In this order: a race within a warp, one between warps, a read of what nobody has written, one of what is in flight, a
// named barrier that does not exist, and one that ends the launch.
__global__ void everything_is_wrong(const uint4* in) {
  if (threadIdx.x < 2) st_shared_b32(slot(0), 1);        // @within
  if (threadIdx.x % 32 == 2) st_shared_b32(slot(1), 1);  // @between
  if (threadIdx.x == 3) ld_shared_b32(slot(2));          // @uninitialised
  if (threadIdx.x == 4) {
    cp_async_16(slot(4), in);
    ld_shared_b32(slot(4));  // @in flight
    cp_async_commit();
    cp_async_wait<0>();
  }
  __syncthreads();
  named_barrier_sync(16, 64);                            // @no such barrier
  if (threadIdx.x == 0) st_shared_b32(slot(100000), 0);  // @end
}

}  // namespace

TEST_CASE("a region with rows is told by row and chunk", "[emulator][race]") {
  CHECK_THAT(only_report(run(read_in_a_tile<false>, 64, 4096)).message,
             Contains("reads K row 4, chunk 4 (K+1092), written by"));
}

TEST_CASE("of a race within a warp and between warps the latter is told", "[emulator][race]") {
  CHECK(only_report(run(read_in_a_tile<false>, 64, 4096)).within_warp);
  const Device device = run(read_in_a_tile<true>, 64, 4096);
  const Report& report = only_report(device);
  CHECK_FALSE(report.within_warp);
  CHECK(report.times == 2);
  CHECK_THAT(report.message, Contains("by thread 40 (warp 1) reads"));
}

TEST_CASE("reports come with the cause first", "[emulator][race]") {
  const uint4 in[1] = {};
  const Device device = run(everything_is_wrong, 64, 4096, in);
  std::vector<emulator::SourceLine> where;
  for (const Report& report : device.reports()) where.push_back(report.where[0]);
  CHECK(where == std::vector{MARKED("in flight"), MARKED("uninitialised"), MARKED("between"), MARKED("within"),
                             MARKED("no such barrier"), MARKED("end")});
}
