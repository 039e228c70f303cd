// The Device: sums over launches, several threads, and the trace.
#include <chrono>
#include <thread>

#include "harness/tests/emulator/emulator_test.hpp"

using namespace emulator_test;

namespace {

// Every thread writes where it is.
__global__ void positions(uint32_t* out) {
  const uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const uint32_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const uint32_t threads = blockDim.x * blockDim.y * blockDim.z;
  st_global_b32(out + block * threads + thread, threadIdx.x | threadIdx.y << 4 | threadIdx.z << 8 | blockIdx.x << 12 |
                                                    blockIdx.y << 16 | blockIdx.z << 20);
}

// Some of everything, and a race that blocks 2 and 5 have.
__global__ void some_of_everything(const uint4* in, float* out) {
  smem_name(smem_base(), 1024, "tile");
  cp_async_16(smem_base() + threadIdx.x * 16, in + threadIdx.x);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  uint32_t a[4];
  ldmatrix_x4(a, smem_base() + threadIdx.x % 16 * 64 + threadIdx.x / 16 % 2 * 16);
  float c[4] = {};
  mma_m16n8k16(c, a, a[0], a[1]);
  c[0] = ex2_approx(shfl_xor(c[0], 1));
  if (blockIdx.x % 3 != 2) __syncthreads();
  st_shared_b32(smem_base() + threadIdx.x % 32 * 4 + threadIdx.x / 32 * 512, 0);
  st_global_f32(out + blockIdx.x * blockDim.x + threadIdx.x, c[0]);
}

// Blocks from 7 on fail, block 7 later than the others if there are several workers.
__global__ void fails_late() {
  if (blockIdx.x == 7) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    st_shared_b32(smem_base() + 64, 1);  // @block 7
  }
  if (blockIdx.x > 7) st_shared_b32(smem_base() + 2, 1);
}

__global__ void reads_unwritten() {
  if (blockIdx.x == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ld_shared_b32(smem_base() + threadIdx.x * 4);
}

__global__ void traced(const uint4* in, uint32_t* out) {
  smem_name(smem_base(), 512, "A");
  smem_name(smem_base() + 512, 512, "B");
  cp_async_16(smem_base() + threadIdx.x * 16, in + threadIdx.x);  // @trace copy
  cp_async_commit();
  const uint4 value = ld_global_v4(in + threadIdx.x);
  st_shared_v4(smem_base() + 512 + threadIdx.x * 16, value);
  cp_async_wait<0>();
  __syncthreads();
  uint32_t a[4];
  ldmatrix_x4(a, smem_base() + 512 + threadIdx.x * 16);
  float c[4] = {};
  mma_m16n8k16(c, a, a[0], a[1]);
  st_global_b32(out + blockIdx.x * 32 + threadIdx.x, a[0]);
}

}  // namespace

TEST_CASE("threads and blocks know where they are", "[emulator][device]") {
  const dim3 grid(3, 2, 2), block(4, 3, 5);
  std::vector<uint32_t> out(3 * 2 * 2 * 4 * 3 * 5, ~0u);
  Device device({.threads = 2});
  launch(device, positions, grid, block, 0, out.data());
  check_silent(device);
  for (uint32_t i = 0; i < out.size(); ++i) {
    const uint32_t t = i % 60, b = i / 60;
    REQUIRE(out[i] == (t % 4 | t / 4 % 3 << 4 | t / 12 << 8 | b % 3 << 12 | b / 3 % 2 << 16 | b / 6 << 20));
  }
}

TEST_CASE("counts and reports do not depend on the number of threads", "[emulator][device]") {
  std::vector<uint4> in(64);
  std::vector<float> out(64 * 17);
  Device reference({.threads = 1});
  launch(reference, some_of_everything, dim3(17), dim3(64), 1024, in.data(), out.data());
  const emulator::Counters& expected = reference.counters();
  CHECK(expected.mma == 17 * 2);
  CHECK(expected.ldmatrix == 17 * 2);
  CHECK(expected.shuffles == 17 * 2);
  CHECK(expected.exponentials == 17 * 64);
  CHECK(expected.cp_async == 17 * 64);
  CHECK(expected.barriers == 17 + 12);
  CHECK(expected.gmem_bytes_read == 17 * 64 * 16);
  CHECK(expected.gmem_bytes_written == 17 * 64 * 4);
  CHECK(expected.gmem_accesses == 17 * 64);  // a copy is none
  CHECK(expected.conflicts == expected.smem_wavefronts - expected.smem_wavefronts_ideal);
  CHECK(expected.conflicts > 0);
  CHECK(expected.sites.size() == 2);
  REQUIRE_FALSE(reference.reports().empty());
  CHECK_THAT(reference.reports().front().message, Contains("block (2, 0, 0)"));

  for (const int threads : {2, 3, 8, 0}) {
    Device device({.threads = threads});
    launch(device, some_of_everything, dim3(17), dim3(64), 1024, in.data(), out.data());
    const emulator::Counters& counters = device.counters();
    CHECK(counters.mma == expected.mma);
    CHECK(counters.barriers == expected.barriers);
    CHECK(counters.exponentials == expected.exponentials);
    CHECK(counters.gmem_bytes_read == expected.gmem_bytes_read);
    CHECK(counters.gmem_bytes_written == expected.gmem_bytes_written);
    CHECK(counters.smem_wavefronts == expected.smem_wavefronts);
    CHECK(counters.smem_wavefronts_ideal == expected.smem_wavefronts_ideal);
    REQUIRE(counters.sites.size() == expected.sites.size());
    for (size_t i = 0; i < counters.sites.size(); ++i) {
      CHECK(counters.sites[i].line == expected.sites[i].line);
      CHECK(counters.sites[i].wavefronts == expected.sites[i].wavefronts);
    }
    REQUIRE(device.reports().size() == reference.reports().size());
    for (size_t i = 0; i < device.reports().size(); ++i) {
      CHECK(device.reports()[i].message == reference.reports()[i].message);
      CHECK(device.reports()[i].times == reference.reports()[i].times);
    }
  }
}

TEST_CASE("the first block that fails is the one reported", "[emulator][device]") {
  for (const int threads : {1, 2, 8}) {
    Device device({.threads = threads});
    launch(device, fails_late, dim3(40), dim3(1), 64);
    CHECK_THAT(only_report(device).message, Contains("block (7, 0, 0)"));
    CHECK(only_report(device).where == std::vector{MARKED("block 7")});
    CHECK(device.failed());
  }
}

TEST_CASE("a fault of several blocks is told for the first", "[emulator][device]") {
  for (const int threads : {1, 2, 8}) {
    Device device({.threads = threads});
    launch(device, reads_unwritten, dim3(16), dim3(1), 64);
    CHECK_THAT(only_report(device).message, Contains("block (0, 0, 0)"));
    CHECK(only_report(device).times == 16);
  }
}

TEST_CASE("a device sums over its launches", "[emulator][device]") {
  std::vector<uint4> in(64);
  std::vector<float> out(64 * 3);
  Device device({.threads = 2});
  for (int i = 0; i < 2; ++i) launch(device, some_of_everything, dim3(3), dim3(64), 1024, in.data(), out.data());
  CHECK(device.counters().mma == 2 * 3 * 2);
  CHECK(device.counters().sites.size() == 2);
  // The races of block 2 are the same in both launches: two reports, and the rest are repeats.
  REQUIRE(device.reports().size() == 2);
  CHECK(device.reports()[0].times + device.reports()[1].times == device.repeats() + 2);
}

// Lanes take different parts: copies that start high and wrap, a store by a quarter of the lanes, one by lane 9 alone.
__global__ void traced_unevenly(const uint4* in) {
  smem_name(smem_base(), 1024, "A");
  const uint32_t lane = threadIdx.x % 32;
  for (int i = 0; i < 2; ++i) cp_async_16(smem_base() + (lane + 5) % 32 * 16 + i * 512, in + i * 32 + lane);
  cp_async_commit();
  cp_async_wait<0>();
  if (lane >= 24) st_shared_b32(smem_base() + lane * 16, 1);
  if (lane == 9) st_shared_v4(smem_base() + 512, {});
  if (lane == 9 || lane < 2) st_shared_b32(smem_base() + 1024 + lane * 4, 1);
  shfl_xor(0.0f, 1);
  named_barrier_sync(3, 64);
}

std::string text(const emulator::TraceEvent& event) {
  std::string text = std::string(event.instruction) + " " + std::to_string(event.bytes);
  for (const emulator::Extent& extent : {event.shared, event.global}) {
    if (extent.buffer.empty()) continue;
    text +=
        " " + extent.buffer + "+" + std::to_string(extent.offset) + ".." + std::to_string(extent.offset + extent.bytes);
  }
  return text;
}

TEST_CASE("the trace tells what all lanes of an instruction touch together", "[emulator][device]") {
  std::vector<uint4> in(64);
  Device device({.threads = 1, .check = false, .trace = true});
  device.register_buffer(in.data(), in.size() * 16, "in", emulator::Access::read_only);
  launch(device, traced_unevenly, dim3(1), dim3(64), 2048, in.data());
  CHECK_FALSE(device.failed());
  for (const int warp : {0, 1}) {
    std::string told;
    for (const emulator::TraceEvent& event : device.trace()) {
      if (event.warp == warp) told += text(event) + "\n";
    }
    CHECK(told ==
          "cp.async.16 512 A+0..512 in+0..512\n"
          "cp.async.16 512 A+512..1024 in+512..1024\n"
          "cp.async.commit_group 0\n"
          "cp.async.wait_group 0\n"
          "st.shared.b32 12 shared+1024..1064\n"
          "st.shared.v4.b32 16 A+512..528\n"
          "st.shared.b32 32 A+384..500\n"
          "shfl.bfly 0\n"
          "bar.sync 0\n");
  }
  CHECK(device.trace().back().operand == 3);
  CHECK(device.trace().back().threads == 64);
}

TEST_CASE("the trace tells each warp's instructions in order", "[emulator][device]") {
  std::vector<uint4> in(32);
  std::vector<uint32_t> out(128);
  Device device({.threads = 2, .trace = true});
  device.register_buffer(in.data(), in.size() * 16, "in", emulator::Access::read_only);
  device.register_buffer(out.data(), out.size() * 4, "out", emulator::Access::read_write);
  launch(device, traced, dim3(4), dim3(32), 1024, in.data(), out.data());
  check_silent(device);
  std::string told;
  for (const emulator::TraceEvent& event : device.trace()) told += text(event) + "\n";
  CHECK(told ==
        "cp.async.16 512 A+0..512 in+0..512\n"
        "cp.async.commit_group 0\n"
        "ld.global.v4.b32 512 in+0..512\n"
        "st.shared.v4.b32 512 B+0..512\n"
        "cp.async.wait_group 0\n"
        "__syncthreads 0\n"
        "ldmatrix.x4 512 B+0..512\n"
        "mma.m16n8k16 0\n"
        "st.global.b32 128 out+0..128\n");
  REQUIRE(device.trace_regions().size() == 2);
  CHECK(device.trace_regions()[1].name == "B");
  CHECK(device.trace_regions()[1].offset == 512);
  CHECK(device.trace_regions()[1].bytes == 512);
  CHECK(device.trace().front().line == MARKED("trace copy").line);
  CHECK(device.trace().back().sequence == device.trace().size() - 1);
  launch(device, traced, dim3(4), dim3(32), 1024, in.data(), out.data());
  CHECK(device.trace().size() == 18);
  CHECK(device.trace().back().launch == 1);
  CHECK(device.trace().back().sequence == 8);
}

TEST_CASE("there is no trace unless asked for", "[emulator][device]") {
  std::vector<uint4> in(32);
  std::vector<uint32_t> out(32);
  CHECK(run(traced, 32, 1024, in.data(), out.data()).trace().empty());
}

// ---- races between blocks ------------------------------------------------------------------------------------------------

namespace {

// Each block writes two halves and reads one; WRITE and READ say how far away from its own.
constexpr int NOTHING = 99;
template <int WRITE, int READ>
__global__ void neighbours(f16* out) {
  const int own = static_cast<int>(blockIdx.x) * 2 + 8;
  st_global_f16(out + own, {1});                         // @own
  st_global_f16(out + own + 1 + WRITE, {1});             // @away
  if (READ != NOTHING) ld_global_f16(out + own + READ);  // @read
}

__global__ void copies_from_others(const uint4* in, uint32_t* out) {
  cp_async_16(smem_base(), in);  // @copied
  cp_async_commit();
  cp_async_wait<0>();
  st_global_b32(out + 4 * blockIdx.x, 0);  // @written
}

Device on_blocks(void (*kernel)(f16*), int threads, uint32_t blocks = 16) {
  std::vector<f16> out(64);
  Device device({.threads = threads});
  device.register_buffer(out.data(), out.size() * 2, "O", emulator::Access::read_write);
  launch(device, kernel, dim3(blocks), dim3(1), 0, out.data());
  return device;
}

}  // namespace

TEST_CASE("blocks of a launch have no order", "[emulator][device]") {
  SECTION("each at its own half words") {
    check_silent(on_blocks(neighbours<0, 0>, 2));
    check_silent(on_blocks(neighbours<3, 2>, 1, 1));  // a block alone
  }
  for (const int threads : {1, 4}) {
    SECTION("two write one, on " + std::to_string(threads) + " threads") {
      const Device device = on_blocks(neighbours<1, NOTHING>, threads);
      const Report report = check_only(device, ReportKind::race_between_blocks);
      CHECK(report.buffer == "O");
      CHECK(report.where == std::vector{MARKED("own"), MARKED("away")});
      CHECK(report.times == 15);
      CHECK_THAT(report.message, StartsWith("race between blocks") && Contains("by block (1, 0, 0) writes O+20") &&
                                     Contains("by block (0, 0, 0)"));
    }
    SECTION("one reads what another writes, on " + std::to_string(threads) + " threads") {
      const Device device = on_blocks(neighbours<0, -1>, threads);
      check_only(device, ReportKind::race_between_blocks, {MARKED("read"), MARKED("away")},
                 Contains("by block (1, 0, 0) reads O+18, written by st.global.b16"));
    }
  }
  SECTION("by an asynchronous copy") {
    alignas(16) uint32_t out[16] = {};
    Device device({.threads = 1});
    device.register_buffer(out, sizeof out, "O", emulator::Access::read_write);
    launch(device, copies_from_others, dim3(4), dim3(1), 16, reinterpret_cast<const uint4*>(out), out);
    CHECK(only_report(device).where == std::vector{MARKED("copied"), MARKED("written")});
  }
  SECTION("but two launches have one") {
    std::vector<f16> out(64);
    Device device({.threads = 1});
    device.register_buffer(out.data(), out.size() * 2, "O", emulator::Access::read_write);
    for (int i = 0; i < 2; ++i) launch(device, neighbours<0, 0>, dim3(16), dim3(1), 0, out.data());
    launch(device, neighbours<0, 0>, dim3(15), dim3(1), 0, out.data() + 2);
    check_silent(device);
  }
}
