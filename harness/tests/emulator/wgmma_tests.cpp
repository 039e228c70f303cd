// wgmma: what is in flight and until when, and what a kernel can do wrong with it. Right results: conformance_tests.cpp.
#include <algorithm>
#include <string>

#include "harness/tests/emulator/emulator_test.hpp"

using namespace emulator_test;

namespace {

constexpr uint32_t TILE_BYTES = 64 * 128, SMEM_BYTES = 3 * TILE_BYTES + 64;

__device__ uint32_t tile(uint32_t i) {
  return smem_base() + i * TILE_BYTES;
}

// Ones, so that a product of k = 16 is 16 everywhere.
__device__ void store_ones(uint32_t address) {
  for (uint32_t i = threadIdx.x; i < TILE_BYTES / 4; i += blockDim.x) st_shared_b32(address + 4 * i, 0x3c003c00);
}

enum class Fault {
  none,
  no_wait,           // the accumulators are read before it
  no_commit,         // so that the wait waits for nothing
  wait_for_another,  // the last group may stay in flight, which is that of the accumulators
  accumulator_written,
  accumulator_scaled,  // as a correction of O would
  a_written,
  a_written_before,  // behind the fence
  no_fence,
  second_without_fence,
  fence_in_flight,
  no_proxy_fence,
  store_under_product,
  unwritten,
  no_barrier,
  no_swizzle,
  half_a_warpgroup,
  wrong_lanes,
};

template <Fault FAULT>
__global__ void product(uint32_t* out) {
  smem_name(tile(0), TILE_BYTES, "A");
  smem_name(tile(1), TILE_BYTES, "B");
  store_ones(tile(0));
  if (FAULT != Fault::unwritten) store_ones(tile(1));  // @store
  if (FAULT != Fault::no_proxy_fence) fence_proxy_async_shared();
  if (FAULT != Fault::no_barrier) __syncthreads();
  uint64_t a = wgmma_descriptor(tile(0)), b = wgmma_descriptor(tile(1));
  if (FAULT == Fault::no_swizzle) a &= ~(uint64_t{3} << 62);
  if (FAULT == Fault::wrong_lanes && threadIdx.x == 70) b = wgmma_advance(b, 32);
  if (FAULT == Fault::half_a_warpgroup && threadIdx.x >= 64) return;

  float d[8][4] = {}, other[8][4];
  uint32_t registers[4] = {0x3c003c00, 0x3c003c00, 0x3c003c00, 0x3c003c00};
  if (FAULT != Fault::no_fence) wgmma_fence(d, other, registers);  // @fence
  if (FAULT == Fault::a_written_before) registers[2] = threadIdx.x;
  wgmma_rs(d, registers, b);  // @rs
  wgmma_ss(d, a, b);          // @ss
  if (FAULT != Fault::no_commit) wgmma_commit();
  if (FAULT == Fault::wait_for_another) {
    wgmma_wait<1>();
  } else if (FAULT == Fault::accumulator_written && threadIdx.x == 5) {
    d[3][1] = 2;
  } else if (FAULT == Fault::accumulator_scaled && threadIdx.x == 5) {
    d[3][1] *= 0.5f;
  } else if (FAULT == Fault::a_written && threadIdx.x == 5) {
    registers[1] = 7;
  } else if (FAULT == Fault::fence_in_flight) {
    wgmma_fence(other, d);  // @second fence
  } else if (FAULT == Fault::store_under_product && threadIdx.x == 40) {
    st_shared_b32(tile(1), 0);  // @overwrite
  }
  if (FAULT != Fault::no_wait && FAULT != Fault::wait_for_another) wgmma_wait<0>();  // @wait
  if (FAULT == Fault::second_without_fence) {
    wgmma_ss(d, a, b);  // @unfenced
    wgmma_commit();
    wgmma_wait<0>(d);
  }
  if (threadIdx.x == 5) {
    for (uint32_t i = 0; i < 32; ++i) st_global_b32(out + i, __float_as_uint(d[i / 4][i % 4]));
  }
}

struct Output {
  uint32_t words[32] = {};
};

template <Fault FAULT>
Device run_product(Output& out) {
  Device device({.threads = 1});
  launch(device, product<FAULT>, dim3(1), dim3(128), SMEM_BYTES, out.words);
  return device;
}

template <Fault FAULT>
Report report_of() {
  Output out;
  const Device device = run_product<FAULT>(out);
  for (const Report& report : device.reports()) UNSCOPED_INFO(report.message);
  REQUIRE_FALSE(device.reports().empty());
  return device.reports().front();
}

bool all_are(const Output& out, uint32_t bits) {
  return std::all_of(std::begin(out.words), std::end(out.words), [=](uint32_t word) { return word == bits; });
}

}  // namespace

TEST_CASE("a product is there behind its wait, and counted") {
  Output out;
  const Device device = run_product<Fault::none>(out);
  check_silent(device);
  CHECK(all_are(out, __float_as_uint(32)));
  CHECK(device.counters().wgmma == 2);
  CHECK(device.counters().wgmma_flops == 2 * 2 * 64 * 64 * 16);
  CHECK(device.counters().wgmma_left_running == 0);
}

TEST_CASE("accumulators are NaN until a wait covers them") {
  Output out;
  SECTION("no wait") {
    const Device device = run_product<Fault::no_wait>(out);
    check_only(device, ReportKind::exit_in_flight);
    CHECK(only_report(device).where.front() == MARKED("ss"));
  }
  SECTION("no commit") {
    run_product<Fault::no_commit>(out);
  }
  SECTION("a wait for others") {
    run_product<Fault::wait_for_another>(out);
  }
  for (const uint32_t word : out.words) CHECK(std::isnan(__uint_as_float(word)));
}

TEST_CASE("registers in flight must not change") {
  const Report accumulator = report_of<Fault::accumulator_written>();
  CHECK(accumulator.kind == ReportKind::registers_in_flight);
  CHECK(accumulator.where == std::vector{MARKED("ss"), MARKED("wait")});
  CHECK(accumulator.message.find("its accumulators have been written in flight") != std::string::npos);
  const Report scaled = report_of<Fault::accumulator_scaled>();
  CHECK(scaled.kind == ReportKind::registers_in_flight);
  CHECK(scaled.where == std::vector{MARKED("ss"), MARKED("wait")});
  const Report operand = report_of<Fault::a_written>();
  CHECK(operand.kind == ReportKind::registers_in_flight);
  CHECK(operand.where == std::vector{MARKED("rs"), MARKED("wait")});
  const Report named = report_of<Fault::fence_in_flight>();
  CHECK(named.kind == ReportKind::registers_in_flight);
  CHECK(named.where == std::vector{MARKED("second fence"), MARKED("ss")});
}

TEST_CASE("a fence hands registers over") {
  const Report none = report_of<Fault::no_fence>();
  CHECK(none.kind == ReportKind::missing_wgmma_fence);
  CHECK(none.where.front() == MARKED("rs"));
  const Report written = report_of<Fault::a_written_before>();
  CHECK(written.kind == ReportKind::missing_wgmma_fence);
  CHECK(written.message.find("A registers since they were written") != std::string::npos);
  const Report second = report_of<Fault::second_without_fence>();
  CHECK(second.kind == ReportKind::missing_wgmma_fence);
  CHECK(second.where.front() == MARKED("unfenced"));
}

TEST_CASE("tensor cores find what a proxy fence has told them of") {
  const Report report = report_of<Fault::no_proxy_fence>();
  CHECK(report.kind == ReportKind::missing_proxy_fence);
  CHECK(report.message.find("has told the tensor cores") != std::string::npos);
}

TEST_CASE("shared memory is read until the wait") {
  Output out;
  const Device device = run_product<Fault::store_under_product>(out);
  const Report report = check_only(device, ReportKind::race_write_after_read, {MARKED("overwrite"), MARKED("ss")});
  CHECK(report.message.find("read by wgmma.ss") != std::string::npos);
  CHECK(report.message.find("warpgroup 0") != std::string::npos);
}

TEST_CASE("tiles must be written, and be known to be") {
  const Report unwritten = report_of<Fault::unwritten>();
  CHECK(unwritten.kind == ReportKind::uninitialised_read);
  CHECK(unwritten.buffer == "B");
  const Report race = report_of<Fault::no_barrier>();
  CHECK(race.kind == ReportKind::race_read_after_write);
}

TEST_CASE("a warpgroup multiplies together") {
  CHECK(report_of<Fault::no_swizzle>().kind == ReportKind::bad_descriptor);
  CHECK(report_of<Fault::half_a_warpgroup>().kind == ReportKind::incomplete_warp);
  const Report lanes = report_of<Fault::wrong_lanes>();
  CHECK(lanes.kind == ReportKind::divergent_collective);
  CHECK(lanes.message.find("thread 70") != std::string::npos);
}

// ---- products left running ----------------------------------------------------------------------------------------------

namespace {

// A group of one product, then one of two; or the two in no group.
enum class Work { none, exponential, other };
template <int PENDING, bool COMMITTED, Work WORK>
__global__ void two_groups(uint32_t) {
  store_ones(tile(0));
  fence_proxy_async_shared();
  __syncthreads();
  const uint64_t ones = wgmma_descriptor(tile(0));
  float first[8][4] = {}, second[8][4] = {};
  wgmma_fence(first, second);
  wgmma_ss(first, ones, ones);
  wgmma_commit();
  for (int i = 0; i < 2; ++i) wgmma_ss(second, ones, ones);
  if (COMMITTED) wgmma_commit();
  wgmma_wait<PENDING>();
  wgmma_wait<PENDING>();  // which are still the same
  if (WORK == Work::exponential) ex2_approx(0);
  if (WORK == Work::other) __syncwarp();
  if (!COMMITTED) wgmma_commit();
  wgmma_wait<0>(first, second);
}

template <int PENDING, bool COMMITTED = true, Work WORK = Work::exponential>
uint64_t left_running(uint32_t threads) {
  const Device device = run(two_groups<PENDING, COMMITTED, WORK>, threads, SMEM_BYTES, 0u);
  check_silent(device);
  const uint64_t running = device.counters().wgmma_left_running;
  CHECK(device.counters().wgmma == 3 * threads / 128);
  CHECK(device.counters().wgmma_beside_exponentials == (WORK == Work::exponential ? running : 0));
  return running;
}

}  // namespace

TEST_CASE(
    "products that a wait leaves running are counted, once for their warpgroup, unless the next wait follows at once") {
  CHECK(left_running<0>(128) == 0);
  CHECK(left_running<1, true, Work::none>(128) == 0);
  CHECK(left_running<1, true, Work::other>(128) == 2);
  CHECK(left_running<1>(128) == 2);
  CHECK(left_running<2>(128) == 3);
  CHECK(left_running<0, false>(128) == 2);
  CHECK(left_running<1>(256) == 2 * 2);
}

// ---- a ring of one stage ------------------------------------------------------------------------------------------------

namespace {

// Warp 4 brings a tile, warpgroup 0 multiplies it, and thread 0 lets go of it: before its wait, or behind.
template <bool EARLY>
__global__ void ring(const __grid_constant__ TensorMap map, uint32_t* out) {
  const uint32_t full = smem_base() + TILE_BYTES, empty = full + 8;
  smem_name(tile(0), TILE_BYTES, "K");
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init(empty, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= 128) {
    if (threadIdx.x > 128) return;
    for (uint32_t i = 0; i < 3; ++i) {
      mbarrier_wait_parity(empty, (i + 1) % 2);
      mbarrier_arrive_expect_tx(full, TILE_BYTES);
      cp_async_bulk_tensor_3d(tile(0), map, 0, 0, 0, full);  // @early copy
    }
    return;
  }
  float d[8][4] = {};
  const uint64_t K = wgmma_descriptor(tile(0));
  for (uint32_t i = 0; i < 3; ++i) {
    mbarrier_wait_parity(full, i % 2);  // @full wait
    wgmma_fence(d);
    wgmma_ss(d, K, K);  // @under copy
    wgmma_commit();
    if (EARLY && threadIdx.x == 0) mbarrier_arrive(empty);
    wgmma_wait<0>(d);
    if (!EARLY && threadIdx.x == 0) mbarrier_arrive(empty);
  }
  if (threadIdx.x == 0) st_global_b32(out, __float_as_uint(d[0][0]));
}

template <bool EARLY>
Device run_ring(uint32_t& out) {
  static f16 matrix[64 * 64];
  std::fill(std::begin(matrix), std::end(matrix), to_f16(1));
  Device device({.threads = 1});
  const TensorMap map = tensor_map_3d(device, matrix, {64, 64, 1}, {128, 8192}, {64, 64, 1});
  launch(device, ring<EARLY>, dim3(1), dim3(160), TILE_BYTES + 16, map, &out);
  return device;
}

}  // namespace

TEST_CASE("a stage is let go of behind the wait, by one thread for its warpgroup") {
  uint32_t out = 0;
  const Device device = run_ring<false>(out);
  check_silent(device);
  CHECK(out == __float_as_uint(48));
  CHECK(device.counters().bulk_bytes == 3 * TILE_BYTES);
  CHECK(device.counters().multicast_bytes == 0);
  const Device early = run_ring<true>(out);
  REQUIRE(early.reports().size() == 2);
  CHECK(early.reports()[0].kind == ReportKind::race_write_after_read);
  CHECK(early.reports()[0].where == std::vector{MARKED("early copy"), MARKED("under copy")});
  // Nor need the other warps have seen the tile come.
  CHECK(early.reports()[1].kind == ReportKind::barrier_misuse);
  CHECK(early.reports()[1].where == std::vector{MARKED("early copy"), MARKED("full wait")});
}

// ---- setmaxnreg ---------------------------------------------------------------------------------------------------------

namespace {

template <int FEWER, int MORE>
__global__ void registers() {
  if (threadIdx.x < 128) {
    setmaxnreg_dec<FEWER>();  // @dec
  } else {
    setmaxnreg_inc<MORE>();  // @inc
  }
}

template <int FEWER, int MORE>
Device run_registers() {
  return run(registers<FEWER, MORE>, 384, 0);
}

}  // namespace

TEST_CASE("warpgroups share the block's registers") {
  check_silent(run_registers<24, 240>());  // 3 x 168 are 504
  check_silent(run_registers<40, 232>());
  CHECK(run_registers<24, 240>().counters().idle_registers == 0);
  CHECK(run_registers<24, 232>().counters().idle_registers == 128 * (3 * 168 - 24 - 2 * 232));
  const Device greedy = run_registers<40, 240>();
  check_only(greedy, ReportKind::deadlock);
  CHECK(only_report(greedy).message.find("waits for 240 registers per thread and has 168") != std::string::npos);
  const Device wrong_way = run_registers<240, 240>();
  CHECK(wrong_way.reports().front().kind == ReportKind::register_budget);
  CHECK(wrong_way.reports().front().where.front() == MARKED("dec"));
}

// ---- bulk stores --------------------------------------------------------------------------------------------------------

namespace {

// A matrix of e4m3, 64 rows of 128, times itself transposed.
__global__ void squares_of_bytes(const __grid_constant__ TensorMap map, float* out) {
  const uint32_t barrier = tile(1);
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(barrier, 64 * 128);
    cp_async_bulk_tensor_4d(tile(0), map, 0, 0, 0, 0, barrier);
  }
  mbarrier_wait_parity(barrier, 0);
  float d[8][4] = {};
  wgmma_fence(d);
  for (uint32_t slice = 0; slice < 4; ++slice) {
    const uint64_t rows = wgmma_advance(wgmma_descriptor(tile(0)), slice * 32);
    wgmma_ss_e4m3(d, rows, rows);
  }
  wgmma_commit();
  wgmma_wait<0>(d);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  for (int i = 0; i < 32; ++i) {
    const int row = warp * 16 + FragmentC::row(lane, i % 4), column = i / 4 * 8 + FragmentC::col(lane, i % 4);
    st_global_f32(out + row * 64 + column, d[i / 4][i % 4]);
  }
}

}  // namespace

TEST_CASE("a box of e4m3 has rows of 128, of which a product takes 32 at a time") {
  constexpr uint8_t NUMBERS[] = {0xc4, 0xc0, 0xb8, 0, 0x38, 0x40, 0x44};  // -3 to 3
  const auto number = [](size_t row, size_t column) { return (row * 3 + column * column) % 7; };
  std::array<e4m3, 64 * 128> matrix;
  std::array<float, 64 * 64> out{};
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i].bits = NUMBERS[number(i / 128, i % 128)];
  Device device({.threads = 1});
  device.register_buffer(matrix.data(), sizeof matrix, "matrix", emulator::Access::read_only);
  device.register_buffer(out.data(), sizeof out, "out", emulator::Access::read_write);
  const TensorMap map = tensor_map_4d_e4m3(device, matrix.data(), {128, 64, 1, 1}, {128, 8192, 8192}, {128, 64, 1, 1});
  launch(device, squares_of_bytes, dim3(1), dim3(128), SMEM_BYTES, map, out.data());
  check_silent(device);
  CHECK(device.counters().wgmma_flops == uint64_t{2} * 64 * 64 * 128);
  for (size_t i = 0; i < out.size(); ++i) {
    int sum = 0;
    for (size_t k = 0; k < 128; ++k)
      sum += (static_cast<int>(number(i / 64, k)) - 3) * (static_cast<int>(number(i % 64, k)) - 3);
    REQUIRE(out[i] == static_cast<float>(sum));
  }
}

namespace {

enum class StoreFault { none, no_fence, overwritten, no_wait };

template <StoreFault FAULT>
__global__ void store(const __grid_constant__ TensorMap map) {
  smem_name(tile(0), TILE_BYTES, "O");
  store_ones(tile(0));
  if (FAULT != StoreFault::no_fence) fence_proxy_async_shared();
  __syncthreads();
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_store_4d(map, 0, 0, 0, 0, tile(0));  // @bulk store
    cp_async_bulk_commit();
    if (FAULT == StoreFault::overwritten) st_shared_b32(tile(0), 0);  // @too early
    if (FAULT != StoreFault::no_wait) cp_async_bulk_wait_read<0>();
    if (FAULT == StoreFault::none) st_shared_b32(tile(0), 0);
  }
}

template <StoreFault FAULT>
Device run_store(f16 (&matrix)[64 * 64]) {
  Device device({.threads = 1});
  device.register_buffer(matrix, sizeof matrix, "O", emulator::Access::read_write);
  const TensorMap map = tensor_map_4d(device, matrix, {64, 64, 1, 1}, {128, 8192, 8192}, {64, 64, 1, 1});
  launch(device, store<FAULT>, dim3(1), dim3(64), SMEM_BYTES, map);
  return device;
}

}  // namespace

TEST_CASE("a bulk store reads what it has been told of, until a wait") {
  f16 matrix[64 * 64] = {};
  const Device device = run_store<StoreFault::none>(matrix);
  check_silent(device);
  CHECK(matrix[64 * 64 - 1].bits == 0x3c00);
  CHECK(device.counters().gmem_bytes_written == sizeof matrix);
  check_only(run_store<StoreFault::no_fence>(matrix), ReportKind::missing_proxy_fence);
  const Device overwritten = run_store<StoreFault::overwritten>(matrix);
  check_only(overwritten, ReportKind::race_write_after_read);
  CHECK(only_report(overwritten).where == std::vector{MARKED("too early"), MARKED("bulk store")});
  const Device unawaited = run_store<StoreFault::no_wait>(matrix);
  check_only(unawaited, ReportKind::exit_in_flight);
  CHECK(only_report(unawaited).where.front() == MARKED("bulk store"));
}

// ---- clusters -----------------------------------------------------------------------------------------------------------

namespace {

enum class ClusterFault { none, no_sync_at_end, early_release, unknown_rank };

// Each of two blocks brings half a tile to both, twice. The second time it waits until both have read.
template <ClusterFault FAULT>
__global__ void exchange(const __grid_constant__ TensorMap map, uint32_t* out) {
  const uint32_t full = smem_base() + TILE_BYTES, empty = full + 8, last = full + 16, rank = cluster_rank();
  smem_name(tile(0), TILE_BYTES, "K");
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init(empty, 64);
    mbarrier_init(last, 32);
    fence_mbarrier_init();
  }
  cluster_sync();
  uint32_t sum = 0;
  for (uint32_t i = 0; i < 2; ++i) {
    if (threadIdx.x == 0) {
      mbarrier_arrive_expect_tx(full, TILE_BYTES);
      if (i > 0) mbarrier_wait_parity(empty, 0);
      cp_async_bulk_tensor_4d_multicast(tile(0) + rank * TILE_BYTES / 2, map, 0, static_cast<int>(32 * rank), 0, 0,
                                        full, FAULT == ClusterFault::unknown_rank ? 7 : 3);  // @multicast
    }
    mbarrier_wait_parity(full, i);
    if (i == 0 && FAULT == ClusterFault::early_release) {
      mbarrier_arrive(empty);
      mbarrier_arrive_remote(empty, 1 - rank);
    }
    sum += ld_shared_b32(tile(0) + (1 - rank) * TILE_BYTES / 2 + threadIdx.x * 4);  // @peer read
    if (i == 0 && FAULT != ClusterFault::early_release) {
      mbarrier_arrive(empty);
      mbarrier_arrive_remote(empty, 1 - rank);
    }
  }
  st_global_b32(out + 32 * rank + threadIdx.x, sum);
  if (FAULT != ClusterFault::no_sync_at_end) cluster_sync();
  if (FAULT != ClusterFault::no_sync_at_end) return;
  if (rank == 1) {
    mbarrier_arrive_remote(last, 0);
  } else {
    mbarrier_wait_parity(last, 0);
    mbarrier_arrive_remote(empty, 1);  // @gone
  }
}

template <ClusterFault FAULT>
Device run_exchange() {
  static f16 matrix[64 * 64];
  static uint32_t out[64];
  std::fill(std::begin(matrix), std::end(matrix), to_f16(1));
  Device device({.threads = 1});
  const TensorMap map = tensor_map_4d(device, matrix, {64, 64, 1, 1}, {128, 8192, 8192}, {64, 32, 1, 1});
  launch_clusters(device, exchange<FAULT>, dim3(2), dim3(32), 2, TILE_BYTES + 24, map, out);
  for (const uint32_t word : out) CHECK((FAULT != ClusterFault::none || word == 0x78007800));
  return device;
}

enum class Awaited { mbarrier, bulk_read, bulk_store, cp_async };

// Lane 0 waits, or all of its warp does, every other lane for nothing; the second warp does not.
template <Awaited WHAT, bool ALONE, bool TOGETHER>
__global__ void waits_apart(const __grid_constant__ TensorMap map, const f16* matrix) {
  const uint32_t lane = threadIdx.x, box = smem_base() + lane * 1024, barrier = smem_base() + 32 * 1024 + lane * 8;
  if (ALONE ? lane == 0 : lane < 32) {
    if (WHAT == Awaited::mbarrier) {
      mbarrier_init(barrier, 1);
      mbarrier_arrive(barrier);
      mbarrier_wait_parity(barrier, 0);
    } else if (WHAT == Awaited::cp_async) {
      if (lane % 2 == 0) cp_async_16(box, matrix + lane * 8);
      if (lane % 2 == 0) cp_async_commit();
      cp_async_wait<0>();
    } else {
      for (uint32_t word = 0; word < 32; ++word) st_shared_b32(box + 4 * word, 0);
      fence_proxy_async_shared();
      if (lane % 2 == 0) {
        cp_async_bulk_tensor_store_4d(map, 0, static_cast<int>(lane), 0, 0, box);
        cp_async_bulk_commit();
      }
      if (WHAT == Awaited::bulk_read) cp_async_bulk_wait_read<0>();
      if (WHAT == Awaited::bulk_store) cp_async_bulk_wait<0>();
    }
  }
  if (TOGETHER) __syncwarp();
  cluster_sync();  // @whole warps
}

// In two branches, that lanes of a warp part at or whole warps.
__global__ void two_cluster_barriers(uint32_t first_of_second) {
  if (threadIdx.x < first_of_second) {
    cluster_sync();  // @first of two
  } else {
    cluster_sync();  // @second of two
  }
}

__global__ void waits_for_peer(uint32_t) {
  if (cluster_rank() == 1) return;
  if (threadIdx.x == 0) mbarrier_init(smem_base(), 1);
  __syncwarp();
  mbarrier_wait_parity(smem_base(), 0);
}

template <Awaited WHAT, bool ALONE, bool TOGETHER>
Device run_waits_apart() {
  alignas(16) static f16 matrix[64 * 64];
  Device device({.threads = 1});
  const TensorMap map = tensor_map_4d(device, matrix, {64, 64, 1, 1}, {128, 8192, 8192}, {64, 1, 1, 1});
  launch_clusters(device, waits_apart<WHAT, ALONE, TOGETHER>, dim3(2), dim3(64), 2, 33 * 1024, map, matrix);
  return device;
}

template <Awaited WHAT>
void check_waits_apart() {
  INFO(static_cast<int>(WHAT));
  check_silent(run_waits_apart<WHAT, true, true>());
  check_silent(run_waits_apart<WHAT, false, false>());
  const Device apart = run_waits_apart<WHAT, true, false>();
  check_only(apart, ReportKind::barrier_misuse, {MARKED("whole warps")},
             Contains("1 of its lanes have waited at an mbarrier or for a copy since"));
}

}  // namespace

TEST_CASE("the blocks of a cluster bring tiles to one another") {
  const Device device = run_exchange<ClusterFault::none>();
  check_silent(device);
  CHECK(device.counters().bulk_copies == 4);
  CHECK(device.counters().gmem_bytes_read == 2 * TILE_BYTES);
  CHECK(device.counters().bulk_bytes == 4 * TILE_BYTES);
  CHECK(device.counters().multicast_bytes == 4 * TILE_BYTES);
  CHECK(device.counters().barriers == 4);  // two, of two blocks
}

TEST_CASE("a tile that the other block still reads must not be overwritten") {
  const Device device = run_exchange<ClusterFault::early_release>();
  REQUIRE_FALSE(device.reports().empty());
  const Report& report = device.reports().front();
  CHECK(report.kind == ReportKind::race_write_after_read);
  CHECK(report.message.find("of the block of rank") != std::string::npos);
}

TEST_CASE("the barrier of a cluster takes whole warps") {
  check_waits_apart<Awaited::mbarrier>();
  check_waits_apart<Awaited::bulk_read>();
  check_waits_apart<Awaited::bulk_store>();
  check_waits_apart<Awaited::cp_async>();

  const auto run_cluster = [](auto kernel, uint32_t parameter = 0) {
    Device device({.threads = 1});
    launch_clusters(device, kernel, dim3(2), dim3(64), 2, 8, parameter);
    return device;
  };
  check_silent(run_cluster(two_cluster_barriers, 32));
  const Device parted = run_cluster(two_cluster_barriers, 40);
  check_only(parted, ReportKind::divergent_collective);
  CHECK(only_report(parted).where == std::vector{MARKED("second of two"), MARKED("first of two")});
  CHECK_THAT(only_report(parted).message, Contains("thread 40 (warp 1)") && Contains("while thread 32 of its warp"));
}

TEST_CASE("a block of a cluster must be there") {
  const Device gone = run_exchange<ClusterFault::no_sync_at_end>();
  check_only(gone, ReportKind::cluster_misuse);
  CHECK(only_report(gone).where.front() == MARKED("gone"));
  CHECK(run_exchange<ClusterFault::unknown_rank>().reports().front().kind == ReportKind::cluster_misuse);
  Device device({.threads = 1});
  launch_clusters(device, waits_for_peer, dim3(2), dim3(32), 2, 8, 0u);
  check_only(device, ReportKind::deadlock);
  Device odd({.threads = 1});
  launch_clusters(odd, waits_for_peer, dim3(3), dim3(32), 2, 8, 0u);
  check_only(odd, ReportKind::bad_launch);
}
