// cp.async: data lands at the wait for its group, never earlier.
#include "harness/tests/emulator/emulator_test.hpp"

using namespace emulator_test;

namespace {

constexpr uint32_t NAN_PATTERN = 0xffffffff;

// One thread copies four chunks in three groups (the middle one of two chunks) and looks at them after each wait.
// Output: [wait][chunk], the first word of each chunk.
__global__ void three_groups(const uint4* in, uint32_t* out) {
  const uint32_t base = smem_base();
  const auto look = [&](uint32_t wait) {
    for (uint32_t chunk = 0; chunk < 4; ++chunk)
      st_global_b32(out + wait * 4 + chunk, ld_shared_b32(base + chunk * 16));
  };
  cp_async_16(base, in);
  cp_async_commit();
  cp_async_16(base + 16, in + 1);
  cp_async_16(base + 32, in + 2);
  cp_async_commit();
  cp_async_16(base + 48, in + 3);
  cp_async_commit();
  cp_async_wait<3>();
  look(0);
  cp_async_wait<2>();
  look(1);
  cp_async_wait<1>();
  look(2);
  cp_async_wait<0>();
  look(3);
}

// A copy that was not committed belongs to no group, so that no wait covers it. Empty groups count.
__global__ void uncommitted(const uint4* in, uint32_t* out) {
  cp_async_16(smem_base(), in);
  cp_async_commit();
  cp_async_commit();
  cp_async_wait<1>();
  st_global_b32(out, ld_shared_b32(smem_base()));
  cp_async_16(smem_base() + 16, in + 1);  // @uncommitted copy
  cp_async_wait<0>();
  st_global_b32(out + 1, ld_shared_b32(smem_base() + 16));  // @uncommitted read
  cp_async_commit();
  cp_async_wait<0>();
  st_global_b32(out + 2, ld_shared_b32(smem_base() + 16));
}

// The tile of 32 threads, read by all of them.
template <bool WAIT, bool BARRIER>
__global__ void tile(const uint4* in, uint32_t* out) {
  smem_name(smem_base(), 512, "K");
  cp_async_16(smem_base() + threadIdx.x * 16, in + threadIdx.x);  // @tile copy
  cp_async_commit();
  if (WAIT) cp_async_wait<0>();
  if (BARRIER) __syncthreads();
  uint32_t matrices[4];
  ldmatrix_x4(matrices, smem_base() + threadIdx.x * 16);  // @tile read
  st_global_b32(out + threadIdx.x, matrices[0]);
  cp_async_wait<0>();
}

// The destination held data before.
__global__ void reuses(const uint4* in, uint32_t* out) {
  st_shared_v4(smem_base(), {7, 7, 7, 7});
  cp_async_16(smem_base(), in);
  cp_async_commit();
  st_global_b32(out, ld_shared_b32(smem_base()));
  cp_async_wait<0>();
  st_global_b32(out + 1, ld_shared_b32(smem_base()));
}

__global__ void leaves_early(const uint4* in) {
  if (threadIdx.x == 2) cp_async_16(smem_base(), in);  // @left
  cp_async_commit();
}

__global__ void overwrites(const uint4* in) {
  cp_async_16(smem_base(), in);  // @in flight
  cp_async_commit();
  st_shared_b32(smem_base() + 4, 1);  // @overwrite
  cp_async_wait<0>();
}

// The next tile is requested while another warp may still read the last one.
template <bool BARRIER>
__global__ void refill(const uint4* in) {
  st_shared_v4(smem_base() + threadIdx.x % 32 * 16 + threadIdx.x / 32 * 512, {});
  __syncthreads();
  if (threadIdx.x >= 32) ld_shared_b32(smem_base() + (threadIdx.x - 32) * 16);  // @last read
  if (BARRIER) __syncthreads();
  if (threadIdx.x < 32) cp_async_16(smem_base() + threadIdx.x * 16, in + threadIdx.x);  // @refill
  cp_async_commit();
  cp_async_wait<0>();
}

struct Source {
  Source() {
    for (uint32_t i = 0; i < 32; ++i) chunks[i] = {i + 1, i + 101, i + 201, i + 301};
  }
  uint4 chunks[32];
  uint32_t out[32] = {};
};

}  // namespace

TEST_CASE("wait_group lands all but the youngest groups", "[emulator][async]") {
  Source source;
  Device device({.threads = 1, .check = false});
  launch(device, three_groups, dim3(1), dim3(1), 64, source.chunks, source.out);
  const std::vector<uint32_t> seen(source.out, source.out + 16);
  CHECK(seen == std::vector<uint32_t>{NAN_PATTERN, NAN_PATTERN, NAN_PATTERN, NAN_PATTERN,  //
                                      1, NAN_PATTERN, NAN_PATTERN, NAN_PATTERN,            //
                                      1, 2, 3, NAN_PATTERN,                                //
                                      1, 2, 3, 4});
  CHECK(device.counters().cp_async == 4);
  CHECK(device.counters().gmem_bytes_read == 64);
  // The same with checks: each copy is reported, as often as it was looked at too early.
  const Device checked = run(three_groups, 1, 64, source.chunks, source.out);
  REQUIRE(checked.reports().size() == 4);
  const uint64_t early[] = {1, 2, 2, 3};
  for (size_t i = 0; i < 4; ++i) {
    CHECK(checked.reports()[i].kind == ReportKind::in_flight_read);
    CHECK(checked.reports()[i].times == early[i]);
  }
}

TEST_CASE("a copy without commit is in no group", "[emulator][async]") {
  Source source;
  const Device device = run(uncommitted, 1, 32, source.chunks, source.out);
  CHECK(source.out[0] == 1);
  CHECK(source.out[1] == NAN_PATTERN);
  CHECK(source.out[2] == 2);
  check_only(device, ReportKind::in_flight_read, {MARKED("uncommitted read"), MARKED("uncommitted copy")});
}

TEST_CASE("reading a tile needs the wait and the barrier", "[emulator][async]") {
  Source source;
  SECTION("with both") {
    check_silent(run(tile<true, true>, 32, 512, source.chunks, source.out));
    CHECK(source.out[0] == 1);
    CHECK(source.out[4] == 2);
  }
  SECTION("without the wait the data is NaN") {
    const Device device = run(tile<false, true>, 32, 512, source.chunks, source.out);
    check_only(device, ReportKind::in_flight_read, {MARKED("tile read"), MARKED("tile copy")},
               Contains("ldmatrix.x4 at") && Contains("reads K+0 before the wait of") && Contains("cp.async.16 at") &&
                   Contains("by thread 0 (warp 0)"));
    CHECK(source.out[0] == NAN_PATTERN);
    CHECK(source.out[31] == NAN_PATTERN);
  }
  SECTION("without the barrier") {
    const Device device = run(tile<true, false>, 32, 512, source.chunks, source.out);
    check_only(device, ReportKind::race_read_after_write, {MARKED("tile read"), MARKED("tile copy")});
  }
}

TEST_CASE("data in flight is NaN, whatever was there before", "[emulator][async]") {
  Source source;
  check_only(run(reuses, 1, 16, source.chunks, source.out), ReportKind::in_flight_read);
  CHECK(source.out[0] == NAN_PATTERN);
  CHECK(source.out[1] == 1);
}

TEST_CASE("a thread must wait for its copies before it ends", "[emulator][async]") {
  Source source;
  const Device device = run(leaves_early, 32, 512, source.chunks);
  const Report report = check_only(device, ReportKind::exit_in_flight, {MARKED("left")});
  CHECK(report.times == 1);
  CHECK_THAT(report.message, Contains("thread 2 (warp 0)"));
}

TEST_CASE("data in flight must not be overwritten", "[emulator][async]") {
  Source source;
  check_only(run(overwrites, 1, 16, source.chunks), ReportKind::in_flight_overwrite,
             {MARKED("overwrite"), MARKED("in flight")});
}

TEST_CASE("a copy races with reads that no barrier orders before it", "[emulator][async]") {
  Source source;
  check_only(run(refill<false>, 64, 1024, source.chunks), ReportKind::race_write_after_read,
             {MARKED("refill"), MARKED("last read")});
  check_silent(run(refill<true>, 64, 1024, source.chunks));
}
