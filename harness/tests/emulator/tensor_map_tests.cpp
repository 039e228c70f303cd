// Bulk tensor copies: what they bring, when it is there and for whom, and what a kernel or its host can do wrong.
#include <algorithm>
#include <numeric>

#include "harness/tests/emulator/emulator_test.hpp"

using namespace emulator_test;

namespace {

constexpr uint32_t NAN_PATTERN = 0xffffffff;
constexpr int ROWS = 48;  // of a matrix of 128 columns; element (row, column) is row * 128 + column
constexpr uint32_t BOX_ROWS = 16, BLOCK = BOX_ROWS * 128, BOX_BYTES = 2 * BLOCK;  // each half of the columns is a block
constexpr uint32_t STAGES = 2, SMEM_BYTES = STAGES * BOX_BYTES + 1024;

// The halves of the columns are the third dimension.
struct Matrix {
  Matrix() { std::iota(&elements[0][0], &elements[0][0] + ROWS * 128, uint16_t{0}); }
  TensorMap map(Device& device, uint32_t box_rows = BOX_ROWS) const {
    return tensor_map_3d(device, reinterpret_cast<const f16*>(elements), {64, ROWS, 2}, {256, 128}, {64, box_rows, 2});
  }
  alignas(16) uint16_t elements[ROWS][128];
  uint32_t out[BOX_BYTES / 4] = {};
};

// Launches `kernel` on one block, with a map of `matrix` before its other arguments.
template <class... Params, class... Args>
Device run_on(const Matrix& matrix, void (*kernel)(TensorMap, Params...), uint32_t threads, Args... args) {
  Device device({.threads = 1});
  device.register_buffer(matrix.elements, sizeof matrix.elements, "K", emulator::Access::read_only);
  device.register_buffer(matrix.out, sizeof matrix.out, "out", emulator::Access::read_write);
  launch(device, kernel, dim3(1), dim3(threads), SMEM_BYTES, matrix.map(device), args...);
  return device;
}

__device__ uint32_t stage(uint32_t i) {
  return smem_base() + i * BOX_BYTES;
}
__device__ uint32_t barrier_at(uint32_t i) {
  return smem_base() + STAGES * BOX_BYTES + i * 8;
}

__device__ void initialise(uint32_t barriers, uint32_t count) {
  smem_name(smem_base(), STAGES * BOX_BYTES, "K");
  smem_name(barrier_at(0), 64, "full");
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < barriers; ++i) mbarrier_init(barrier_at(i), count);
    fence_mbarrier_init();
  }
  __syncthreads();
}

// ---- what a copy brings ---------------------------------------------------------------------------------------------

// One box, word by word.
__global__ void one_box(const __grid_constant__ TensorMap map, uint32_t* out, int x, int y, int z) {
  initialise(1, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(barrier_at(0), BOX_BYTES);
    cp_async_bulk_tensor_3d(stage(0), map, x, y, z, barrier_at(0));  // @box
  }
  mbarrier_wait_parity(barrier_at(0), 0);
  for (uint32_t word = threadIdx.x; word < BOX_BYTES / 4; word += blockDim.x)
    st_global_b32(out + word, ld_shared_b32(stage(0) + word * 4));
}

// Element (x, y, z) of the tensor, or 0 outside.
uint32_t element(const Matrix& matrix, int x, int y, int z) {
  const bool inside = x >= 0 && x < 64 && y >= 0 && y < ROWS && z >= 0 && z < 2;
  return inside ? matrix.elements[y][z * 64 + x] : 0;
}

void check_box(const Matrix& matrix, int x, int y, int z) {
  for (uint32_t byte = 0; byte < BOX_BYTES; byte += 4) {
    const uint32_t row = byte / 128, chunk = byte % 128 / 16 ^ row % 8, column = chunk * 8 + byte % 16 / 2;
    const auto wanted = [&](uint32_t i) {
      return element(matrix, x + static_cast<int>(column + i), y + static_cast<int>(row % BOX_ROWS),
                     z + static_cast<int>(row / BOX_ROWS));
    };
    INFO("byte " << byte);
    REQUIRE(matrix.out[byte / 4] == (wanted(0) | wanted(1) << 16));
  }
}

// ---- when it is there, and for whom ---------------------------------------------------------------------------------

// One warp waits for the first copy. The other reads it without a wait, or, and then it is the one that has asked for it,
// has waited for the second one, which lands later.
template <bool ANOTHER>
__global__ void without_wait(const __grid_constant__ TensorMap map, uint32_t* out) {
  initialise(2, 1);
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < 2; ++i) {
      mbarrier_arrive_expect_tx(barrier_at(i), BOX_BYTES);
      cp_async_bulk_tensor_3d(stage(i), map, 0, 16, 0, barrier_at(i));  // @unseen copy
    }
  }
  __syncthreads();
  const uint32_t lane = threadIdx.x % 32;
  if (threadIdx.x / 32 == ANOTHER) {
    mbarrier_wait_parity(barrier_at(0), 0);
    st_global_b32(out + lane, ld_shared_b32(stage(0)));
    if (!ANOTHER) mbarrier_wait_parity(barrier_at(1), 0);
  } else {
    if (ANOTHER) mbarrier_wait_parity(barrier_at(1), 0);
    st_global_b32(out + 32 + lane, ld_shared_b32(stage(0)));  // @unseen read
  }
}

// The destination held data before.
__global__ void reuses(const __grid_constant__ TensorMap map, uint32_t* out) {
  initialise(1, 1);
  st_shared_b32(stage(0), 7);
  mbarrier_arrive_expect_tx(barrier_at(0), BOX_BYTES);
  cp_async_bulk_tensor_3d(stage(0), map, 0, 16, 0, barrier_at(0));
  st_global_b32(out, ld_shared_b32(stage(0)));
  mbarrier_wait_parity(barrier_at(0), 0);
  st_global_b32(out + 1, ld_shared_b32(stage(0)));
}

// All threads read, then arrive at `empty`; thread 0 requests. LEFT_OUT is a wait that is missing.
enum class LeftOut { nothing, full, empty };
template <LeftOut LEFT_OUT>
__global__ void ring(const __grid_constant__ TensorMap map, uint32_t* out) {
  constexpr uint32_t TILES = 6;
  initialise(2 * STAGES, 1);
  const uint32_t full = barrier_at(0), empty = barrier_at(8);
  smem_name(empty, 64, "empty");
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < STAGES; ++i) mbarrier_init(empty + i * 8, 64);
  }
  __syncthreads();
  const auto request = [&](uint32_t tile) {
    if (threadIdx.x != 0) return;
    const uint32_t here = tile % STAGES;
    if (LEFT_OUT != LeftOut::empty) mbarrier_wait_parity(empty + here * 8, (tile / STAGES + 1) % 2);
    mbarrier_arrive_expect_tx(full + here * 8, BOX_BYTES);
    cp_async_bulk_tensor_3d(stage(here), map, 0, static_cast<int>(tile * 8), 0, full + here * 8);  // @ring copy
  };
  request(0);
  for (uint32_t tile = 0; tile < TILES; ++tile) {
    const uint32_t here = tile % STAGES;
    if (tile + 1 < TILES) request(tile + 1);
    if (LEFT_OUT != LeftOut::full) mbarrier_wait_parity(full + here * 8, tile / STAGES % 2);
    st_global_b32(out + tile * 64 + threadIdx.x, ld_shared_b32(stage(here) + threadIdx.x * 64));  // @ring read
    mbarrier_arrive(empty + here * 8);
  }
}

// The phase needs two copies and two arrivals, of which one expects nothing.
__global__ void two_copies(const __grid_constant__ TensorMap map, uint32_t* out) {
  initialise(1, 2);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(barrier_at(0), 2 * BOX_BYTES);
    for (uint32_t i = 0; i < 2; ++i) cp_async_bulk_tensor_3d(stage(i), map, 0, 0, 0, barrier_at(0));
  }
  if (threadIdx.x == 32) {
    st_shared_b32(barrier_at(20), 7);
    mbarrier_arrive(barrier_at(0));
  }
  mbarrier_wait_parity(barrier_at(0), 0);
  if (threadIdx.x == 1) {
    st_global_b32(out, ld_shared_b32(stage(1)));
    st_global_b32(out + 1, ld_shared_b32(barrier_at(20)));
  }
}

// ---- misuse ---------------------------------------------------------------------------------------------------------

// In its first phase; in the second what is right.
__global__ void expects(const __grid_constant__ TensorMap map, uint32_t bytes) {
  initialise(1, 1);
  for (uint32_t phase = 0; phase < 2; ++phase) {
    if (threadIdx.x == 0) {
      mbarrier_arrive_expect_tx(barrier_at(0), phase == 0 ? bytes : BOX_BYTES);  // @expect
      cp_async_bulk_tensor_3d(stage(0), map, 0, 0, 0, barrier_at(0));            // @expected
    }
    mbarrier_wait_parity(barrier_at(0), phase);  // @expecting wait
    __syncwarp();
  }
}
__global__ void expects_nothing(const __grid_constant__ TensorMap map) {
  initialise(1, 1);
  if (threadIdx.x == 0) cp_async_bulk_tensor_3d(stage(0), map, 0, 0, 0, barrier_at(0));
  mbarrier_wait_parity(barrier_at(0), 0);
}
// The second copy is none of the phase's.
__global__ void expects_one_of_two(const __grid_constant__ TensorMap map) {
  initialise(1, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(barrier_at(0), BOX_BYTES);
    for (uint32_t i = 0; i < 2; ++i) cp_async_bulk_tensor_3d(stage(i), map, 0, 0, 0, barrier_at(0));  // @two
  }
  mbarrier_wait_parity(barrier_at(0), 0);
  ld_shared_b32(stage(0));
  ld_shared_b32(stage(1));  // @read of second
}
__global__ void arrives_again(const __grid_constant__ TensorMap map) {
  initialise(1, 1);
  mbarrier_arrive_expect_tx(barrier_at(0), BOX_BYTES);
  mbarrier_arrive(barrier_at(0));  // @again
  cp_async_bulk_tensor_3d(stage(0), map, 0, 0, 0, barrier_at(0));
  mbarrier_wait_parity(barrier_at(0), 0);
}
__global__ void no_fence(const __grid_constant__ TensorMap map) {
  mbarrier_init(barrier_at(0), 1);
  mbarrier_arrive_expect_tx(barrier_at(0), BOX_BYTES);
  cp_async_bulk_tensor_3d(stage(0), map, 0, 0, 0, barrier_at(0));  // @no fence
  mbarrier_wait_parity(barrier_at(0), 0);
}
// The fence is for what its thread has initialised.
__global__ void fence_of_another(const __grid_constant__ TensorMap map) {
  if (threadIdx.x == 0) mbarrier_init(barrier_at(0), 1);
  __syncthreads();
  if (threadIdx.x != 1) return;
  fence_mbarrier_init();
  mbarrier_arrive_expect_tx(barrier_at(0), BOX_BYTES);
  cp_async_bulk_tensor_3d(stage(0), map, 0, 0, 0, barrier_at(0));  // @fence of another
  mbarrier_wait_parity(barrier_at(0), 0);
}
__global__ void nobody_waits(const __grid_constant__ TensorMap map) {
  initialise(1, 1);
  mbarrier_arrive_expect_tx(barrier_at(0), BOX_BYTES);
  cp_async_bulk_tensor_3d(stage(0), map, 0, 0, 0, barrier_at(0));  // @left behind
}
__global__ void copies_to(const __grid_constant__ TensorMap map, uint32_t offset, uint32_t barrier) {
  initialise(1, 1);
  cp_async_bulk_tensor_3d(smem_base() + offset, map, 0, 0, 0, barrier_at(barrier));  // @copy to
}
__global__ void overwrites(const __grid_constant__ TensorMap map) {
  initialise(1, 1);
  mbarrier_arrive_expect_tx(barrier_at(0), BOX_BYTES);
  cp_async_bulk_tensor_3d(stage(0), map, 0, 0, 0, barrier_at(0));  // @overwritten
  st_shared_b32(stage(0) + 4, 1);                                  // @overwrite
  mbarrier_wait_parity(barrier_at(0), 0);
}

// Among others.
const Report& reported(const Device& device, ReportKind kind) {
  for (const Report& report : device.reports()) UNSCOPED_INFO(report.message);
  const auto found = std::find_if(device.reports().begin(), device.reports().end(),
                                  [&](const Report& report) { return report.kind == kind; });
  REQUIRE(found != device.reports().end());
  return *found;
}

}  // namespace

TEST_CASE("a bulk copy brings a swizzled box, and zeros for what is outside the tensor", "[emulator][tensor_map]") {
  const Matrix matrix;
  uint32_t* const out = const_cast<uint32_t*>(matrix.out);
  struct Place {
    int x, y, z;
    uint64_t rows, columns, halves;  // inside
  };
  for (const auto& [x, y, z, rows, columns, halves] :
       {Place{0, 0, 0, 16, 64, 2}, Place{0, 19, 0, 16, 64, 2}, Place{0, ROWS - 5, 0, 5, 64, 2},
        Place{0, -3, 0, 13, 64, 2}, Place{40, 8, 0, 16, 24, 2}, Place{-8, 8, 0, 16, 56, 2}, Place{0, 8, 1, 16, 64, 1},
        Place{0, 8, -1, 16, 64, 1}, Place{0, ROWS, 0, 0, 64, 2}, Place{64, 0, 0, 16, 0, 2}}) {
    INFO("box at " << x << ", " << y << ", " << z);
    const Device device = run_on(matrix, one_box, 64, out, x, y, z);
    check_silent(device);
    check_box(matrix, x, y, z);
    CHECK(device.counters().bulk_copies == 1);
    CHECK(device.counters().gmem_bytes_read == rows * columns * halves * 2);
    CHECK(device.counters().smem_wavefronts == BOX_BYTES / 128);  // of the reads
  }
}

TEST_CASE("a bulk copy has landed for those who have waited at its mbarrier", "[emulator][tensor_map]") {
  Matrix matrix;
  SECTION("not for one that has not") {
    const Device device = run_on(matrix, without_wait<false>, 64, matrix.out);
    const Report report = check_only(device, ReportKind::in_flight_read);
    CHECK(report.times == 32);
    CHECK(report.where == std::vector{MARKED("unseen read"), MARKED("unseen copy")});
    CHECK_THAT(report.message, Contains("(warp 1) reads K+0 before the wait of cp.async.bulk.tensor.3d") &&
                                   Contains("by the copy engine"));
  }
  SECTION("nor for one that has waited for another copy") {
    const Device device = run_on(matrix, without_wait<true>, 64, matrix.out);
    check_only(device, ReportKind::in_flight_read);
    CHECK(device.reports()[0].times == 32);
  }
  CHECK(matrix.out[0] == (matrix.elements[16][0] | uint32_t{matrix.elements[16][1]} << 16));
  CHECK(matrix.out[32] == NAN_PATTERN);
}

TEST_CASE("where a bulk copy is in flight there is NaN, whatever was there before", "[emulator][tensor_map]") {
  Matrix matrix;
  Device device({.threads = 1, .check = false});
  launch(device, reuses, dim3(1), dim3(1), SMEM_BYTES, matrix.map(device), matrix.out);
  CHECK(matrix.out[0] == NAN_PATTERN);
  CHECK(matrix.out[1] == (matrix.elements[16][0] | uint32_t{matrix.elements[16][1]} << 16));
}

TEST_CASE("a phase needs its arrivals and its bytes", "[emulator][tensor_map]") {
  Matrix matrix;
  check_silent(run_on(matrix, two_copies, 64, matrix.out));
  CHECK(matrix.out[0] == (0 | 1 << 16));
  CHECK(matrix.out[1] == 7);
}

TEST_CASE("a ring of bulk copies needs both of its waits", "[emulator][tensor_map]") {
  Matrix matrix;
  SECTION("with both") {
    const Device device = run_on(matrix, ring<LeftOut::nothing>, 64, matrix.out);
    check_silent(device);
    CHECK(device.counters().bulk_copies == 6);
    CHECK(matrix.out[5 * 64] == (40 * 128 | (40 * 128 + 1) << 16));
  }
  SECTION("without the wait for full, data is NaN") {
    const Device device = run_on(matrix, ring<LeftOut::full>, 64, matrix.out);
    CHECK(reported(device, ReportKind::in_flight_read).where == std::vector{MARKED("ring read"), MARKED("ring copy")});
    CHECK(matrix.out[0] == NAN_PATTERN);
  }
  SECTION("without the wait for empty, a stage is overwritten under its readers") {
    const Device device = run_on(matrix, ring<LeftOut::empty>, 64, matrix.out);
    CHECK(reported(device, ReportKind::race_write_after_read).where ==
          std::vector{MARKED("ring copy"), MARKED("ring read")});
  }
  SECTION("without checks the data lands all the same") {
    Device device({.threads = 1, .check = false});
    launch(device, ring<LeftOut::nothing>, dim3(2), dim3(64), SMEM_BYTES, matrix.map(device), matrix.out);
    check_silent(device);
    CHECK(matrix.out[5 * 64] == (40 * 128 | (40 * 128 + 1) << 16));
  }
}

TEST_CASE("bytes that a phase expects are those that land", "[emulator][tensor_map]") {
  const Matrix matrix;
  check_silent(run_on(matrix, expects, 32, BOX_BYTES));
  SECTION("fewer") {
    const Device device = run_on(matrix, expects, 32, BOX_BYTES + 16);
    check_only(device, ReportKind::deadlock, {MARKED("expecting wait")},
               Contains("mbarrier full+0: 0 of 1 arrivals and 16 bytes of phase 0 (parity 0) are "
                        "pending, threads 0-31 wait for it"));
  }
  SECTION("more") {
    const Device device = run_on(matrix, expects, 32, BOX_BYTES - 16);
    const Report report = check_only(device, ReportKind::barrier_misuse, {MARKED("expected")},
                                     Contains("on full+0: 16 bytes more have landed in phase 0 than were expected"));
    CHECK(report.times == 1);
  }
  SECTION("another copy's") {
    const Device device = run_on(matrix, expects_one_of_two, 32);
    REQUIRE(device.reports().size() == 2);
    CHECK(device.reports()[0].kind == ReportKind::in_flight_read);
    CHECK(device.reports()[0].where == std::vector{MARKED("read of second"), MARKED("two")});
    CHECK(device.reports()[1].kind == ReportKind::exit_in_flight);
  }
  SECTION("none expected") {
    const Device device = run_on(matrix, expects_nothing, 32);
    check_only(device, ReportKind::deadlock);
    CHECK_THAT(device.reports()[0].message,
               Contains("1 of 1 arrivals of phase 0") && Contains("4096 bytes have landed that nobody has expected"));
  }
  SECTION("too many to count") {
    const Device device = run_on(matrix, expects, 1, 1u << 20);
    const Report& report = reported(device, ReportKind::barrier_misuse);
    CHECK(report.where == std::vector{MARKED("expect")});
    CHECK_THAT(report.message, Contains("1048576 bytes in a phase; it can expect 1048575"));
  }
  SECTION("an arrival too many while they are awaited") {
    const Device device = run_on(matrix, arrives_again, 1);
    check_only(device, ReportKind::barrier_misuse, {MARKED("again")},
               Contains("all 1 arrivals of phase 0 have come, it only waits for 4096 bytes"));
  }
}

TEST_CASE("misuse of bulk copies", "[emulator][tensor_map]") {
  const Matrix matrix;
  const auto refused = [&](const Device& device, ReportKind kind, const std::string& mark, const std::string& words) {
    const Report& report = only_report(device);
    CHECK(report.kind == kind);
    CHECK(report.where == std::vector{emulator_test::marked(__FILE__, mark)});
    CHECK_THAT(report.message, Contains(words));
  };
  SECTION("the copy engine does not know the mbarrier") {
    refused(run_on(matrix, no_fence, 1), ReportKind::barrier_misuse, "no fence",
            "no fence_mbarrier_init by thread 0 (warp 0)");
    refused(run_on(matrix, fence_of_another, 32), ReportKind::barrier_misuse, "fence of another",
            "no fence_mbarrier_init by thread 0 (warp 0)");
  }
  SECTION("nobody waits") {
    refused(run_on(matrix, nobody_waits, 1), ReportKind::exit_in_flight, "left behind",
            "before anybody has waited at full+0 for cp.async.bulk.tensor.3d");
  }
  SECTION("addresses") {
    refused(run_on(matrix, copies_to, 1, 128u, 0u), ReportKind::shared_misaligned, "copy to",
            "offset 128 is not aligned to 1024 bytes");
    refused(run_on(matrix, one_box, 1, const_cast<uint32_t*>(matrix.out), 12, 0, 0), ReportKind::global_misaligned,
            "box", "begins at x = 12; a row must begin at a multiple of 8 halves");
    refused(run_on(matrix, copies_to, 1, 6 * 1024u, 0u), ReportKind::shared_out_of_bounds, "copy to",
            "offset 6144 for 4096 bytes; the block has 9216 bytes");
    refused(run_on(matrix, copies_to, 1, 0u, 2u), ReportKind::barrier_misuse, "copy to",
            "nobody has initialised an mbarrier there");
    const Device device = run_on(matrix, copies_to, 1, STAGES * BOX_BYTES - BOX_BYTES + 1024, 0u);
    CHECK(reported(device, ReportKind::barrier_misuse).where[0] == MARKED("copy to"));  // over the mbarrier
  }
  SECTION("a write over data in flight") {
    check_only(run_on(matrix, overwrites, 1), ReportKind::in_flight_overwrite,
               {MARKED("overwrite"), MARKED("overwritten")});
  }
  SECTION("a tensor that is larger than its buffer") {
    Device device({.threads = 1});
    device.register_buffer(matrix.elements, 8 * 256, "K", emulator::Access::read_only);
    uint32_t* const out = const_cast<uint32_t*>(matrix.out);
    device.register_buffer(out, sizeof matrix.out, "out", emulator::Access::read_write);
    launch(device, one_box, dim3(1), dim3(32), SMEM_BYTES, matrix.map(device), out, 0, 0, 0);
    refused(device, ReportKind::global_out_of_bounds, "box", "of 128 bytes at K+2048 (K has 2048 bytes)");
    CHECK(matrix.out[0] == NAN_PATTERN);
  }
  SECTION("a map that begins before its buffer: no box may begin outside of it") {
    for (const int y : {8, int{ROWS} - 5, int{ROWS}, -16}) {
      Device device({.threads = 1});
      device.register_buffer(matrix.elements[8], sizeof matrix.elements - 8 * 256, "K", emulator::Access::read_only);
      uint32_t* const out = const_cast<uint32_t*>(matrix.out);
      device.register_buffer(out, sizeof matrix.out, "out", emulator::Access::read_write);
      launch(device, one_box, dim3(1), dim3(32), SMEM_BYTES, matrix.map(device), out, 0, y, 0);
      if (y >= 0 && y < int{ROWS}) {
        check_silent(device);
      } else {
        refused(device, ReportKind::global_out_of_bounds, "box", "of 16 bytes");
      }
    }
  }
}

TEST_CASE("a tensor map that the driver would refuse", "[emulator][tensor_map]") {
  const Matrix matrix;
  const f16* const base = reinterpret_cast<const f16*>(matrix.elements);
  const auto refused = [&](const f16* at, const uint64_t(&extent)[3], const uint64_t(&stride)[2],
                           const uint32_t(&box)[3], const std::string& words) {
    Device device({.threads = 1});
    tensor_map_3d(device, at, extent, stride, box);
    CHECK(device.failed());
    check_only(device, ReportKind::bad_launch, {}, StartsWith("bad tensor map: ") && Contains(words));
  };
  refused(base + 4, {64, 8, 2}, {256, 128}, {64, 8, 2}, "aligned to 16 bytes");
  refused(nullptr, {64, 8, 2}, {256, 128}, {64, 8, 2}, "aligned to 16 bytes");
  refused(base, {64, 0, 2}, {256, 128}, {64, 8, 2}, "dimension 1 has 0 elements");
  refused(base, {64, 8, (uint64_t{1} << 32) + 1}, {256, 128}, {64, 8, 2}, "dimension 2 has 4294967297 elements");
  refused(base, {64, 8, 2}, {256, 120}, {64, 8, 2}, "the stride of dimension 2 is 120 bytes");
  refused(base, {64, 8, 2}, {uint64_t{1} << 40, 128}, {64, 8, 2}, "the stride of dimension 1 is 1099511627776 bytes");
  refused(base, {64, 8, 2}, {256, 128}, {64, 257, 2}, "257 elements in dimension 1; it must have 1 to 256");
  refused(base, {64, 8, 2}, {256, 128}, {64, 8, 0}, "0 elements in dimension 2");
  refused(base, {64, 8, 2}, {256, 128}, {72, 8, 2}, "rows of 144 bytes; the swizzle is one of rows of 128");

  SECTION("ends what follows") {
    Device device({.threads = 1});
    tensor_map_3d(device, base, {64, 8, 0}, {256, 128}, {64, 8, 2});
    const TensorMap map = tensor_map_3d(device, base, {64, 0, 2}, {256, 128}, {64, 8, 2});
    launch(device, nobody_waits, dim3(1), dim3(1), SMEM_BYTES, map);
    CHECK(device.reports().size() == 1);
    CHECK(device.counters().bulk_copies == 0);
  }
  SECTION("or was never made") {
    Device device({.threads = 1});
    launch(device, nobody_waits, dim3(1), dim3(1), SMEM_BYTES, TensorMap{});
    CHECK(device.failed());
    CHECK_THAT(only_report(device).message, Contains("was never made by tensor_map_3d"));
  }
}

TEST_CASE("bulk copies are in the trace", "[emulator][tensor_map]") {
  Matrix matrix;
  Device device({.threads = 1, .trace = true});
  device.register_buffer(matrix.elements, sizeof matrix.elements, "K", emulator::Access::read_only);
  device.register_buffer(matrix.out, sizeof matrix.out, "out", emulator::Access::read_write);
  launch(device, one_box, dim3(1), dim3(32), SMEM_BYTES, matrix.map(device), matrix.out, 0, 16, 0);
  std::vector<std::string> seen;
  for (const emulator::TraceEvent& event : device.trace()) {
    if (event.instruction.find("wait") == std::string_view::npos) seen.emplace_back(event.instruction);
    if (event.instruction == "mbarrier.arrive.expect_tx") CHECK(event.operand == BOX_BYTES);
    if (event.instruction != "cp.async.bulk.tensor.3d") continue;
    CHECK(event.bytes == BOX_BYTES);
    CHECK(event.shared == emulator::Extent{"K", 0, BOX_BYTES});
    CHECK(event.global == emulator::Extent{"K", 16 * 256, BOX_BYTES});
  }
  seen.resize(5);
  CHECK(seen == std::vector<std::string>{"mbarrier.init", "fence.mbarrier_init", "__syncthreads",
                                         "mbarrier.arrive.expect_tx", "cp.async.bulk.tensor.3d"});
}

// ---- proxy fences -----------------------------------------------------------------------------------------------------

namespace {

enum class Fence { nowhere, by_writers, by_issuer, before_the_stores, of_one_warp };

// All threads store, and a box comes over what they have stored.
template <Fence FENCE>
__global__ void box_over_stores(const __grid_constant__ TensorMap map) {
  initialise(1, 1);
  if (FENCE == Fence::before_the_stores) fence_proxy_async_shared();
  st_shared_b32(stage(0) + threadIdx.x * 4, 1);  // @stored
  if (FENCE == Fence::by_writers || (FENCE == Fence::of_one_warp && threadIdx.x < 32)) fence_proxy_async_shared();
  __syncthreads();
  if (threadIdx.x == 0) {
    if (FENCE == Fence::by_issuer) fence_proxy_async();
    mbarrier_arrive_expect_tx(barrier_at(0), BOX_BYTES);
    cp_async_bulk_tensor_3d(stage(0), map, 0, 0, 0, barrier_at(0));  // @over stores
  }
  mbarrier_wait_parity(barrier_at(0), 0);
}

// The fence is told on at an mbarrier: thread 32 stores and fences, thread 0 waits for it and asks for the box.
template <bool FENCE>
__global__ void fence_through_mbarrier(const __grid_constant__ TensorMap map) {
  initialise(2, 1);
  if (threadIdx.x == 32) {
    st_shared_b32(stage(0), 1);
    if (FENCE) fence_proxy_async_shared();
    mbarrier_arrive(barrier_at(1));
  }
  if (threadIdx.x == 0) {
    mbarrier_wait_parity(barrier_at(1), 0);
    mbarrier_arrive_expect_tx(barrier_at(0), BOX_BYTES);
    cp_async_bulk_tensor_3d(stage(0), map, 0, 0, 0, barrier_at(0));
  }
  mbarrier_wait_parity(barrier_at(0), 0);
}

// A box over a box, and one over what has only been read, need no fence.
__global__ void box_over_box(const __grid_constant__ TensorMap map, uint32_t* out) {
  initialise(1, 1);
  for (uint32_t i = 0; i < 2; ++i) {
    if (threadIdx.x == 0) {
      mbarrier_arrive_expect_tx(barrier_at(0), BOX_BYTES);
      cp_async_bulk_tensor_3d(stage(0), map, 0, 0, 0, barrier_at(0));
    }
    mbarrier_wait_parity(barrier_at(0), i);
    st_global_b32(out + threadIdx.x, ld_shared_b32(stage(0) + threadIdx.x * 4));
    __syncthreads();
  }
}

// Threads store to global memory what the copy engine then reads: row 16 of the matrix.
enum class Global { right, by_issuer, no_fence, shared_fence, no_barrier };
template <Global HOW>
__global__ void box_of_stores(const __grid_constant__ TensorMap map, uint32_t* matrix) {
  initialise(1, 1);
  st_global_b32(matrix + 16 * 64 + threadIdx.x, 7);  // @stored globally
  if (HOW == Global::right || HOW == Global::no_barrier) fence_proxy_async();
  if (HOW == Global::shared_fence) fence_proxy_async_shared();
  if (HOW != Global::no_barrier) __syncthreads();
  if (threadIdx.x == 0) {
    if (HOW == Global::by_issuer) fence_proxy_async();
    mbarrier_arrive_expect_tx(barrier_at(0), BOX_BYTES);
    cp_async_bulk_tensor_3d(stage(0), map, 0, 16, 0, barrier_at(0));  // @box of stores
  }
  mbarrier_wait_parity(barrier_at(0), 0);
  st_global_b32(matrix + threadIdx.x, ld_shared_b32(stage(0) + threadIdx.x % 32 * 4));
}

Device run_on_writable(Matrix& matrix, void (*kernel)(TensorMap, uint32_t*)) {
  Device device({.threads = 1});
  device.register_buffer(matrix.elements, sizeof matrix.elements, "K", emulator::Access::read_write);
  launch(device, kernel, dim3(1), dim3(64), SMEM_BYTES, matrix.map(device),
         reinterpret_cast<uint32_t*>(matrix.elements));
  return device;
}

// ---- copies of a tensor map -----------------------------------------------------------------------------------------------

__device__ void ask(const TensorMap& map) {
  mbarrier_arrive_expect_tx(barrier_at(0), BOX_BYTES);
  cp_async_bulk_tensor_3d(stage(0), map, 0, 0, 0, barrier_at(0));  // @asked
}
__device__ void ask_by_value(TensorMap map) {
  ask(map);
}

enum class Handed { by_reference, by_value, local, assigned };
template <Handed HANDED>
__global__ void hands_its_map_on(const __grid_constant__ TensorMap map) {
  initialise(1, 1);
  if (threadIdx.x == 0) {
    if (HANDED == Handed::by_reference) ask(map);
    if (HANDED == Handed::by_value) ask_by_value(map);
    if (HANDED == Handed::local) {
      const TensorMap local = map;
      ask(local);
    }
    if (HANDED == Handed::assigned) {
      TensorMap local;
      local = map;
      ask(local);
    }
  }
  mbarrier_wait_parity(barrier_at(0), 0);
}

}  // namespace

TEST_CASE("a box over what threads have stored needs a proxy fence", "[emulator][tensor_map]") {
  const Matrix matrix;
  SECTION("by those who have stored, or by the one who asks") {
    check_silent(run_on(matrix, box_over_stores<Fence::by_writers>, 64));
    check_silent(run_on(matrix, box_over_stores<Fence::by_issuer>, 64));
    check_silent(run_on(matrix, fence_through_mbarrier<true>, 64));
    Matrix other;
    check_silent(run_on(other, box_over_box, 64, other.out));
  }
  SECTION("missing") {
    const Device device = run_on(matrix, box_over_stores<Fence::nowhere>, 64);
    check_only(device, ReportKind::missing_proxy_fence, {MARKED("over stores"), MARKED("stored")},
               StartsWith("missing proxy fence: cp.async.bulk.tensor.3d at ") &&
                   Contains("by the copy engine overwrites K+0, written by st.shared.b32 at ") &&
                   Contains("by thread 0 (warp 0), and no fence_proxy_async"));
    check_only(run_on(matrix, fence_through_mbarrier<false>, 64), ReportKind::missing_proxy_fence);
  }
  SECTION("too early") {
    CHECK(only_report(run_on(matrix, box_over_stores<Fence::before_the_stores>, 64)).kind ==
          ReportKind::missing_proxy_fence);
  }
  SECTION("by some of those who have stored") {
    const Device device = run_on(matrix, box_over_stores<Fence::of_one_warp>, 64);
    check_only(device, ReportKind::missing_proxy_fence);
    CHECK_THAT(device.reports()[0].message, Contains("K+128, written by") && Contains("by thread 32 (warp 1)"));
  }
}

TEST_CASE("a box of what threads have stored in global memory needs a proxy fence", "[emulator][tensor_map]") {
  Matrix matrix;
  SECTION("by those who have stored, or by the one who asks") {
    check_silent(run_on_writable(matrix, box_of_stores<Global::right>));
    CHECK(matrix.elements[0][0] == 7);
    check_silent(run_on_writable(matrix, box_of_stores<Global::by_issuer>));
  }
  SECTION("missing, or one of shared memory alone") {
    for (const auto kernel : {box_of_stores<Global::no_fence>, box_of_stores<Global::shared_fence>}) {
      const Device device = run_on_writable(matrix, kernel);
      const Report report = check_only(device, ReportKind::missing_proxy_fence);
      CHECK(report.buffer == "K");
      CHECK(report.where == std::vector{MARKED("box of stores"), MARKED("stored globally")});
      CHECK_THAT(report.message, Contains("by the copy engine reads K+4096, written by st.global.b32 at"));
    }
  }
  SECTION("and a barrier") {
    CHECK(only_report(run_on_writable(matrix, box_of_stores<Global::no_barrier>)).kind ==
          ReportKind::race_read_after_write);
  }
}

TEST_CASE("the copy engine takes a kernel's parameter, not a copy of it", "[emulator][tensor_map]") {
  const Matrix matrix;
  check_silent(run_on(matrix, hands_its_map_on<Handed::by_reference>, 32));
  for (const auto kernel :
       {hands_its_map_on<Handed::by_value>, hands_its_map_on<Handed::local>, hands_its_map_on<Handed::assigned>}) {
    const Device device = run_on(matrix, kernel, 32);
    check_only(device, ReportKind::bad_launch, {MARKED("asked")},
               Contains("its tensor map is a copy that the kernel has made"));
  }
}
