// Reductions into global memory, bulk copies of bytes in a row, and copies that fill up with zeros: what they do, what they
// are ordered with, and what a kernel can do wrong.
#include <algorithm>
#include <numeric>

#include "harness/tests/emulator/emulator_test.hpp"

using namespace emulator_test;

namespace {

constexpr uint32_t WORDS = 64, BYTES = WORDS * 4, SMEM_BYTES = 2 * BYTES + 64;

struct Memory {
  Memory() { std::iota(in, in + WORDS, 1.0f); }
  alignas(16) float in[WORDS];
  alignas(16) float out[2 * WORDS] = {};
};

template <class... Args>
Device run_on(Memory& memory, void (*kernel)(Args...), uint32_t threads, uint32_t blocks, Args... args) {
  Device device({.threads = 1});
  device.register_buffer(memory.in, sizeof memory.in, "in", emulator::Access::read_only);
  device.register_buffer(memory.out, sizeof memory.out, "out", emulator::Access::read_write);
  launch(device, kernel, dim3(blocks), dim3(threads), SMEM_BYTES, args...);
  return device;
}

void check_report(const Device& device, ReportKind kind, std::initializer_list<const char*> marks,
                  const std::string& words) {
  const Report& report = only_report(device);
  CHECK(report.kind == kind);
  std::vector<emulator::SourceLine> where;
  for (const char* mark : marks) where.push_back(emulator_test::marked(__FILE__, mark));
  CHECK(report.where == where);
  CHECK_THAT(report.message, Contains(words));
}

// ---- red --------------------------------------------------------------------------------------------------------------

// Two warps add to one word that thread 0 has set, and thread 63 reads it.
enum class Sums { ordered, set_late, read_early, read_by_itself };
template <Sums HOW>
__global__ void sums_in_block(float* out) {
  if (threadIdx.x == 0) st_global_f32(out, 100.0f);  // @set
  if (HOW != Sums::set_late) __syncthreads();
  red_global_add_f32(out, 1.0f);  // @add
  if (HOW == Sums::ordered) __syncthreads();
  if (HOW != Sums::set_late && threadIdx.x == 63) st_global_f32(out + 1, ld_global_f32(out));  // @get
}
__global__ void sets_another_word(float* out) {
  st_global_f32(out + 1 + threadIdx.x, 1.0f);
  red_global_add_f32(out, 1.0f);
}

// Every block adds; the last one reads, or writes.
enum class Beside { nothing, read, write };
template <Beside WHAT>
__global__ void sums_of_blocks(float* out) {
  if (blockIdx.x < 3) red_global_add_f32(out + threadIdx.x, 1.0f);                               // @block adds
  if (WHAT == Beside::read && blockIdx.x == 3) st_global_f32(out + 40, ld_global_f32(out + 7));  // @block reads
  if (WHAT == Beside::write && blockIdx.x == 3) st_global_f32(out + 7, 0.0f);                    // @block writes
}

// ---- cp.reduce.async.bulk ---------------------------------------------------------------------------------------------

__device__ void fill(float value) {
  for (uint32_t word = threadIdx.x; word < WORDS; word += blockDim.x)
    st_shared_b32(smem_base() + 4 * word, __float_as_uint(value));
  fence_proxy_async_shared();
  __syncthreads();
}

// All words are set, a tile is added, and thread READER reads a word; then all sums become 1 more.
enum class Bulk { right, no_wait, wait_for_reading, no_barrier, no_fence, fence_of_shared };
template <Bulk HOW>
__global__ void adds_a_tile(float* out) {
  for (uint32_t word = threadIdx.x; word < WORDS; word += blockDim.x) st_global_f32(out + word, 100.0f);  // @tile set
  if (HOW != Bulk::no_fence && HOW != Bulk::fence_of_shared) fence_proxy_async();
  fill(2.0f);
  if (threadIdx.x == 0) {
    cp_reduce_async_bulk_add_f32(out, smem_base(), BYTES);  // @tile add
    cp_async_bulk_commit();
    if (HOW == Bulk::wait_for_reading) cp_async_bulk_wait_read<0>();
    if (HOW != Bulk::wait_for_reading && HOW != Bulk::no_wait) cp_async_bulk_wait<0>();
    if (HOW != Bulk::no_barrier) st_global_f32(out + WORDS, ld_global_f32(out + 5));  // @tile get
    if (HOW == Bulk::no_wait) cp_async_bulk_wait_read<0>();
  }
  if (HOW == Bulk::no_barrier && threadIdx.x == 33) st_global_f32(out + WORDS, ld_global_f32(out + 5));  // @get beside
}

// The tile is filled again for a second reduction when it has been read; or too early.
template <bool WAIT>
__global__ void adds_two_tiles(float* out) {
  for (uint32_t tile = 0; tile < 2; ++tile) {
    fill(tile == 0 ? 2.0f : 40.0f);  // the second time over what the engine reads
    if (threadIdx.x == 0) {
      cp_reduce_async_bulk_add_f32(out + 4 * tile, smem_base(), BYTES);
      cp_async_bulk_commit();
      if (WAIT || tile > 0) cp_async_bulk_wait_read<0>();
    }
    __syncthreads();
  }
}
__global__ void ends_without_wait(float* out) {
  fill(2.0f);
  if (threadIdx.x == 0) cp_reduce_async_bulk_add_f32(out, smem_base(), BYTES);  // @left behind
}
__global__ void adds_bytes(float* out, uint32_t first_byte, uint32_t bytes) {
  fill(2.0f);
  if (threadIdx.x != 0) return;
  cp_reduce_async_bulk_add_f32(out + first_byte / 4, smem_base(), bytes);  // @adds bytes
  cp_async_bulk_commit();
  cp_async_bulk_wait_read<0>();
}

// ---- bulk copies in a row ---------------------------------------------------------------------------------------------

__device__ uint32_t barrier() {
  return smem_base() + 2 * BYTES;
}
__device__ void initialise() {
  if (threadIdx.x == 0) {
    mbarrier_init(barrier(), 1);
    fence_mbarrier_init();
  }
  __syncthreads();
}
template <bool WAIT>
__global__ void copies_there_and_back(const float* in, float* out) {
  initialise();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(barrier(), BYTES);
    cp_async_bulk(smem_base(), in, BYTES, barrier());  // @copied
  }
  __syncthreads();  // the copy has been asked for
  if (WAIT) mbarrier_wait_parity(barrier(), 0);
  st_global_f32(out + threadIdx.x, __uint_as_float(ld_shared_b32(smem_base() + 4 * threadIdx.x)));  // @copy read
  if (!WAIT) mbarrier_wait_parity(barrier(), 0);
  if (threadIdx.x == 0) {
    cp_async_bulk_store(out + WORDS, smem_base(), BYTES);
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();
  }
}
// What threads have stored in global memory is brought back.
template <bool FENCE>
__global__ void copies_what_is_stored(float* out) {
  initialise();
  st_global_f32(out + threadIdx.x, 3.0f);  // @stored
  if (FENCE) fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(barrier(), BYTES);
    cp_async_bulk(smem_base(), out, BYTES, barrier());  // @brought back
  }
  mbarrier_wait_parity(barrier(), 0);
}

// ---- zeros ------------------------------------------------------------------------------------------------------------

__global__ void fills_up(const float* in, float* out, uint32_t bytes) {
  cp_async_16(smem_base(), bytes == 0 ? nullptr : in + WORDS - bytes / 4 / 4 * 4, bytes);  // @fills up
  cp_async_commit();
  cp_async_wait<0>();
  for (uint32_t word = 0; word < 4; ++word)
    st_global_f32(out + word, __uint_as_float(ld_shared_b32(smem_base() + 4 * word)));
}
__global__ void reaches_over_the_end(const float* in, float* out) {
  cp_async_16(smem_base(), in + WORDS - 4, 8);  // two of four are asked for
  cp_async_16(smem_base() + 16, in + WORDS, 0);
  cp_async_commit();
  cp_async_wait<0>();
  for (uint32_t word = 0; word < 8; ++word)
    st_global_f32(out + word, __uint_as_float(ld_shared_b32(smem_base() + 4 * word)));
}

}  // namespace

TEST_CASE("reductions meet in any order, a plain access beside them is a race", "[emulator][reduction]") {
  Memory memory;
  SECTION("in order") {
    const Device device = run_on(memory, sums_in_block<Sums::ordered>, 64, 1, memory.out);
    check_silent(device);
    CHECK(memory.out[1] == 164.0f);
    CHECK(device.counters().gmem_bytes_reduced == 64 * 4);
    CHECK(device.counters().gmem_bytes_written == 8);
  }
  SECTION("nobody waits for the word to be set") {
    check_report(run_on(memory, sums_in_block<Sums::set_late>, 64, 1, memory.out), ReportKind::race_write_after_write,
                 {"add", "set"}, "adds to out+0, written by st.global.f32 at ");
  }
  SECTION("nobody waits for the sum") {
    const Device device = run_on(memory, sums_in_block<Sums::read_early>, 64, 1, memory.out);
    check_report(device, ReportKind::race_write_after_read, {"add", "get"},
                 "adds to out+0, read by ld.global.f32 at ");  // the threads that run later have yet to add
  }
  SECTION("another word") {
    check_silent(run_on(memory, sets_another_word, 32, 1, memory.out));
  }
}

TEST_CASE("reductions of several blocks", "[emulator][reduction]") {
  Memory memory;
  SECTION("add up") {
    const Device device = run_on(memory, sums_of_blocks<Beside::nothing>, 32, 4, memory.out);
    check_silent(device);
    CHECK(memory.out[7] == 3.0f);
    CHECK(device.counters().idle_blocks == 1);
  }
  SECTION("that another one reads") {
    check_report(run_on(memory, sums_of_blocks<Beside::read>, 32, 4, memory.out), ReportKind::race_between_blocks,
                 {"block reads", "block adds"}, "reads out+28, added to by red.global.add.f32 at ");
  }
  SECTION("that another one writes") {
    check_report(run_on(memory, sums_of_blocks<Beside::write>, 32, 4, memory.out), ReportKind::race_between_blocks,
                 {"block writes", "block adds"}, "writes out+28, added to by red.global.add.f32 at ");
  }
}

TEST_CASE("a bulk reduction has landed after the wait for all of it, not for its reading", "[emulator][reduction]") {
  Memory memory;
  SECTION("after the wait") {
    const Device device = run_on(memory, adds_a_tile<Bulk::right>, 64, 1, memory.out);
    check_silent(device);
    CHECK(memory.out[5] == 102.0f);
    CHECK(memory.out[WORDS] == 102.0f);
    CHECK(device.counters().gmem_bytes_reduced == BYTES);
    CHECK(device.counters().bulk_copies == 1);
  }
  SECTION("after that for its reading, or none, the sum is the old one") {
    for (const auto kernel : {adds_a_tile<Bulk::wait_for_reading>, adds_a_tile<Bulk::no_wait>}) {
      check_report(run_on(memory, kernel, 64, 1, memory.out), ReportKind::in_flight_read, {"tile get", "tile add"},
                   "reads out+20, added to by cp.reduce.async.bulk.add.f32 at ");
      CHECK(memory.out[WORDS] == 100.0f);
      CHECK(memory.out[5] == 102.0f);  // the end of the kernel completes it
    }
  }
  SECTION("for those who have not waited there is a barrier") {
    check_report(run_on(memory, adds_a_tile<Bulk::no_barrier>, 64, 1, memory.out), ReportKind::race_write_after_read,
                 {"tile add", "get beside"}, "adds to out+20, read by ld.global.f32 at ");
  }
  SECTION("and a proxy fence before, of global memory") {
    for (const auto kernel : {adds_a_tile<Bulk::no_fence>, adds_a_tile<Bulk::fence_of_shared>}) {
      check_report(run_on(memory, kernel, 64, 1, memory.out), ReportKind::missing_proxy_fence, {"tile add", "tile set"},
                   "by the copy engine adds to out+0, written by st.global.f32 at ");
    }
  }
}

TEST_CASE("a bulk reduction reads shared memory until a wait says that it has", "[emulator][reduction]") {
  Memory memory;
  SECTION("and then it may be filled again") {
    check_silent(run_on(memory, adds_two_tiles<true>, 64, 1, memory.out));
    CHECK(memory.out[0] == 2.0f);
    CHECK(memory.out[4] == 42.0f);
  }
  SECTION("not before") {
    const Device device = run_on(memory, adds_two_tiles<false>, 64, 1, memory.out);
    CHECK(only_report(device).kind == ReportKind::race_write_after_read);
  }
  SECTION("nor may the block end") {
    check_report(run_on(memory, ends_without_wait, 64, 1, memory.out), ReportKind::exit_in_flight, {"left behind"},
                 "before it has waited for its cp.reduce.async.bulk.add.f32");
  }
}

TEST_CASE("misuse of bulk reductions", "[emulator][reduction]") {
  Memory memory;
  check_report(run_on(memory, adds_bytes, 64, 1, memory.out, 0u, 20u), ReportKind::global_misaligned, {"adds bytes"},
               "of 20 bytes; they must be a multiple of 16");
  check_report(run_on(memory, adds_bytes, 64, 1, memory.out, 4u, 32u), ReportKind::global_misaligned, {"adds bytes"},
               "at out+4 (out has 512 bytes) is not aligned to 16 bytes");
  check_report(run_on(memory, adds_bytes, 64, 1, memory.out, 272u, 256u), ReportKind::global_out_of_bounds,
               {"adds bytes"}, "of 256 bytes at out+272");
  check_report(run_on(memory, adds_bytes, 64, 1, memory.in, 0u, 32u), ReportKind::global_read_only, {"adds bytes"},
               "at in+0");
}

TEST_CASE("bulk copies of bytes in a row", "[emulator][reduction]") {
  Memory memory;
  const float* const in = memory.in;
  SECTION("there and back") {
    const Device device = run_on(memory, copies_there_and_back<true>, WORDS, 1, in, memory.out);
    check_silent(device);
    CHECK(std::equal(in, in + WORDS, memory.out));
    CHECK(std::equal(in, in + WORDS, memory.out + WORDS));
    CHECK(device.counters().bulk_copies == 2);
    CHECK(device.counters().gmem_bytes_read == BYTES);
    CHECK(device.counters().gmem_bytes_written == 2 * BYTES);
  }
  SECTION("read before they have landed") {
    const Device device = run_on(memory, copies_there_and_back<false>, WORDS, 1, in, memory.out);
    check_report(device, ReportKind::in_flight_read, {"copy read", "copied"}, "before the wait of cp.async.bulk at ");
  }
  SECTION("of what threads have stored") {
    check_silent(run_on(memory, copies_what_is_stored<true>, WORDS, 1, memory.out));
    check_report(run_on(memory, copies_what_is_stored<false>, WORDS, 1, memory.out), ReportKind::missing_proxy_fence,
                 {"brought back", "stored"}, "by the copy engine reads out+0, written by st.global.f32 at ");
  }
}

TEST_CASE("cp.async of fewer than 16 bytes fills up with zeros", "[emulator][reduction]") {
  Memory memory;
  const float* const in = memory.in;
  SECTION("from nowhere") {
    std::fill_n(memory.out, 4, 7.0f);
    const Device device = run_on(memory, fills_up, 1, 1, in, memory.out, 0u);
    check_silent(device);
    CHECK(std::all_of(memory.out, memory.out + 4, [](float word) { return word == 0.0f; }));
    CHECK(device.counters().gmem_bytes_read == 0);
  }
  SECTION("reads no byte behind those that it takes") {
    check_silent(run_on(memory, reaches_over_the_end, 1, 1, in, memory.out));
    CHECK(memory.out[1] == in[WORDS - 3]);
    CHECK(memory.out[2] == 0.0f);
    CHECK(memory.out[4] == 0.0f);
  }
  SECTION("more than 16") {
    CHECK(only_report(run_on(memory, fills_up, 1, 1, in, memory.out, 17u)).kind == ReportKind::global_out_of_bounds);
  }
}
