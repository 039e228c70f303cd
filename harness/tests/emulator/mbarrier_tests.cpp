// mbarriers: phases, what they order, what lands behind them, and what a kernel can do wrong with them.
#include <algorithm>

#include "harness/tests/emulator/emulator_test.hpp"

using namespace emulator_test;

namespace {

constexpr uint32_t NAN_PATTERN = 0xffffffff;

__device__ uint32_t slot(uint32_t i) {
  return smem_base() + i * 4;
}

__device__ uint32_t barrier_at(uint32_t i) {
  return smem_base() + 4096 + i * 8;
}

constexpr uint32_t SMEM_BYTES = 4096 + 64;

__device__ void initialise(uint32_t barriers, uint32_t count) {
  smem_name(barrier_at(0), 64, "full");
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < barriers; ++i) mbarrier_init(barrier_at(i), count);
  }
  __syncthreads();
}

// ---- phases ---------------------------------------------------------------------------------------------------------

// A new barrier lets parity 1 through. One thread counts the phases, by arriving as often as it must.
__global__ void phases(uint32_t* out) {
  mbarrier_init(barrier_at(0), 3);
  mbarrier_wait_parity(barrier_at(0), 1);
  for (uint32_t phase = 0; phase < 5; ++phase) {
    for (uint32_t i = 0; i < 3; ++i) mbarrier_arrive(barrier_at(0));
    mbarrier_wait_parity(barrier_at(0), phase % 2);
    st_global_b32(out, phase + 1);
  }
  mbarrier_arrive(barrier_at(0));
  mbarrier_arrive(barrier_at(0));
  mbarrier_wait_parity(barrier_at(0), 1);  // 2 of 3: phase 5 is the current one
}

// Every thread stores, then reads what a thread of the other warp has stored, in a round per phase.
template <bool ARRIVE, bool WAIT>
__global__ void exchange(uint32_t* out) {
  initialise(2, 64);
  const uint32_t full = barrier_at(0), empty = barrier_at(1);
  for (uint32_t round = 0; round < 4; ++round) {
    if (ARRIVE) mbarrier_wait_parity(empty, (round + 1) % 2);
    st_shared_b32(slot(threadIdx.x), 100 * round + threadIdx.x);  // @store
    mbarrier_arrive(full);
    if (WAIT) mbarrier_wait_parity(full, round % 2);
    st_global_b32(out + 64 * round + threadIdx.x, ld_shared_b32(slot((threadIdx.x + 37) % 64)));  // @load
    if (ARRIVE) mbarrier_arrive(empty);
  }
}

// Only one lane waits; the others of its warp learn of it by __syncwarp.
template <bool BARRIER>
__global__ void elected_wait() {
  initialise(1, 32);
  if (threadIdx.x >= 32) {
    st_shared_b32(slot(threadIdx.x - 32), 1);  // @by warp 1
    mbarrier_arrive(barrier_at(0));
    return;
  }
  if (threadIdx.x == 0) mbarrier_wait_parity(barrier_at(0), 0);
  if (BARRIER) __syncwarp();
  ld_shared_b32(slot(threadIdx.x));  // @by warp 0
}

// Arriving does not order the lanes of a warp.
__global__ void arrive_without_wait() {
  initialise(1, 32);
  st_shared_b32(slot(threadIdx.x), 1);
  mbarrier_arrive(barrier_at(0));
  if (threadIdx.x == 30) ld_shared_b32(slot(3));  // @no wait
  mbarrier_wait_parity(barrier_at(0), 0);
}

// ---- copies -----------------------------------------------------------------------------------------------------------

// Warp 1 copies, warp 0 reads, without commit and wait_group.
template <bool WAIT>
__global__ void one_tile(const uint4* in, uint32_t* out) {
  initialise(1, 32);
  smem_name(smem_base(), 512, "K");
  const uint32_t lane = threadIdx.x % 32;
  if (threadIdx.x >= 32) {
    cp_async_16(smem_base() + lane * 16, in + lane);  // @tile copy
    cp_async_mbarrier_arrive_noinc(barrier_at(0));
    return;
  }
  if (WAIT) mbarrier_wait_parity(barrier_at(0), 0);
  uint32_t matrices[4];
  ldmatrix_x4(matrices, smem_base() + lane * 16);  // @tile read
  st_global_b32(out + lane, matrices[0]);
  if (!WAIT) mbarrier_wait_parity(barrier_at(0), 0);
}

// Warp 0 copies and waits. Warp 1 waits for a copy of its own, which lands later, and must not see what warp 0 has copied.
__global__ void without_wait(const uint4* in, uint32_t* out) {
  initialise(2, 32);
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, address = smem_base() + lane * 16;
  cp_async_16(address + 512 * warp, in + lane);  // @landed copy
  cp_async_mbarrier_arrive_noinc(barrier_at(warp));
  mbarrier_wait_parity(barrier_at(warp), 0);
  st_global_b32(out + 64 * warp + lane, ld_shared_b32(address));  // @landed read
  uint32_t matrices[4];
  ldmatrix_x4(matrices, address);  // @landed matrix
  st_global_b32(out + 64 * warp + 32 + lane, matrices[0]);
}

// Two stages, 64 threads; every warp copies its half of a stage and reads the other's. LEFT_OUT is a barrier's wait that
// is missing.
enum class LeftOut { nothing, full, empty };
template <LeftOut LEFT_OUT>
__global__ void ring(const uint4* in, uint32_t* out) {
  constexpr uint32_t STAGES = 2, TILES = 7, STAGE_BYTES = 64 * 16;
  initialise(2 * STAGES, 64);
  smem_name(smem_base(), STAGES * STAGE_BYTES, "ring");
  const uint32_t thread = threadIdx.x;
  const auto full = [](uint32_t tile) { return barrier_at(tile % STAGES); };
  const auto empty = [](uint32_t tile) { return barrier_at(STAGES + tile % STAGES); };
  const auto request = [&](uint32_t tile) {
    if (LEFT_OUT != LeftOut::empty) mbarrier_wait_parity(empty(tile), (tile / STAGES + 1) % 2);
    cp_async_16(smem_base() + tile % STAGES * STAGE_BYTES + thread * 16, in + tile * 64 + thread);  // @ring copy
    cp_async_mbarrier_arrive_noinc(full(tile));
  };
  request(0);
  for (uint32_t tile = 0; tile < TILES; ++tile) {
    if (tile + 1 < TILES) request(tile + 1);
    if (LEFT_OUT != LeftOut::full) mbarrier_wait_parity(full(tile), tile / STAGES % 2);
    const uint32_t partner = (thread + 37) % 64;
    st_global_b32(out + tile * 64 + thread,
                  ld_shared_b32(smem_base() + tile % STAGES * STAGE_BYTES + partner * 16));  // @ring read
    mbarrier_arrive(empty(tile));
  }
}

// Copies that have landed in a wait, and one that has not, before the same arrival.
__global__ void mixed_waits(const uint4* in, uint32_t* out) {
  initialise(1, 1);
  if (threadIdx.x == 0) {
    cp_async_16(smem_base(), in);
    cp_async_commit();
    cp_async_16(smem_base() + 16, in + 1);
    cp_async_commit();
    cp_async_wait<1>();
    st_global_b32(out, ld_shared_b32(smem_base()));
    cp_async_mbarrier_arrive_noinc(barrier_at(0));
    cp_async_wait<0>();
    st_global_b32(out + 1, ld_shared_b32(smem_base() + 16));
  }
  if (threadIdx.x >= 32) {
    mbarrier_wait_parity(barrier_at(0), 0);
    st_global_b32(out + 2, ld_shared_b32(smem_base()));
    st_global_b32(out + 3, ld_shared_b32(smem_base() + 16));
  }
}

// The asynchronous arrival is the copies', not the thread's: its own store needs an mbarrier_arrive.
template <bool ARRIVE>
__global__ void store_and_copy(const uint4* in) {
  initialise(1, ARRIVE ? 2 : 1);
  if (threadIdx.x == 0) {
    st_shared_b32(slot(100), 1);  // @own store
    cp_async_16(smem_base(), in);
    cp_async_mbarrier_arrive_noinc(barrier_at(0));
    if (ARRIVE) mbarrier_arrive(barrier_at(0));
  } else if (threadIdx.x == 32) {
    mbarrier_wait_parity(barrier_at(0), 0);
    ld_shared_b32(slot(0));
    ld_shared_b32(slot(100));  // @load of store
  }
}

__global__ void nobody_waits(const uint4* in) {
  initialise(1, 32);
  cp_async_16(smem_base() + threadIdx.x * 16, in + threadIdx.x);  // @left behind
  cp_async_mbarrier_arrive_noinc(barrier_at(0));
}

// ---- misuse -----------------------------------------------------------------------------------------------------------

__global__ void hang() {
  initialise(2, 64);
  if (threadIdx.x < 5) mbarrier_arrive(barrier_at(1));
  mbarrier_wait_parity(barrier_at(1), 0);  // @hang
}
__global__ void bad_count(uint32_t count) {
  mbarrier_init(barrier_at(0), count);  // @bad count
}
__global__ void all_initialise() {
  mbarrier_init(barrier_at(0), 1);  // @again
}
__global__ void uninitialised() {
  mbarrier_arrive(barrier_at(0));          // @uninitialised arrive
  mbarrier_wait_parity(barrier_at(0), 0);  // @uninitialised wait
}
__global__ void bad_parity() {
  mbarrier_init(barrier_at(0), 1);
  mbarrier_wait_parity(barrier_at(0), 2);
}
__global__ void misaligned() {
  mbarrier_init(barrier_at(0) + 4, 1);
}
__global__ void no_syncthreads() {
  if (threadIdx.x == 0) mbarrier_init(barrier_at(0), 2);      // @init
  if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier_at(0));  // @early arrive
}
template <bool STORE>
__global__ void touches() {
  initialise(1, 32);
  if (STORE) st_shared_b32(barrier_at(0) + 4, 1);  // @touching store
  if (!STORE) ld_shared_b32(barrier_at(0));        // @touching load
}
// Thread 64 runs first and waits for phase 0; the 64 threads before it complete two phases of 32.
__global__ void overrun() {
  initialise(1, 32);
  if (threadIdx.x == 64) mbarrier_wait_parity(barrier_at(0), 0);
  if (threadIdx.x < 64) mbarrier_arrive(barrier_at(0));  // @too many
}

// Among others.
void check_reported(const Device& device, ReportKind kind, const std::vector<emulator::SourceLine>& where) {
  for (const Report& report : device.reports()) UNSCOPED_INFO(report.message);
  CHECK(std::any_of(device.reports().begin(), device.reports().end(),
                    [&](const Report& report) { return report.kind == kind && report.where == where; }));
}

struct Source {
  Source() {
    for (uint32_t i = 0; i < 64 * 7; ++i) chunks[i] = {i + 1, i + 1001, i + 2001, i + 3001};
  }
  uint4 chunks[64 * 7];
  uint32_t out[64 * 7] = {};
};

}  // namespace

TEST_CASE("an mbarrier counts arrivals, phase after phase", "[emulator][mbarrier]") {
  uint32_t done = 0;
  const Device device = run(phases, 1, SMEM_BYTES, &done);
  CHECK(done == 5);
  check_only(device, ReportKind::deadlock, {},
             Contains("1 of 3 arrivals of phase 5 (parity 1) are pending, threads 0 wait for it"));
  CHECK(device.counters().barriers == 0);
}

TEST_CASE("an mbarrier orders what was before its arrivals before what comes after its wait", "[emulator][mbarrier]") {
  std::vector<uint32_t> out(256);
  SECTION("with both waits") {
    check_silent(run(exchange<true, true>, 64, SMEM_BYTES, out.data()));
    for (uint32_t round = 0; round < 4; ++round) {
      for (uint32_t t = 0; t < 64; ++t) REQUIRE(out[64 * round + t] == 100 * round + (t + 37) % 64);
    }
  }
  SECTION("read before the stores are known") {
    const Device device = run(exchange<true, false>, 64, SMEM_BYTES, out.data());
    REQUIRE_FALSE(device.reports().empty());
    CHECK(device.reports()[0].where[0] == MARKED("load"));
  }
  SECTION("written again before the reads are known") {
    const Device device = run(exchange<false, true>, 64, SMEM_BYTES, out.data());
    check_reported(device, ReportKind::race_write_after_read, {MARKED("store"), MARKED("load")});
  }
}

TEST_CASE("a wait is the thread's that waits", "[emulator][mbarrier]") {
  const Device device = run(elected_wait<false>, 64, SMEM_BYTES);
  const Report report =
      check_only(device, ReportKind::race_read_after_write, {MARKED("by warp 0"), MARKED("by warp 1")});
  CHECK(report.times == 31);
  check_silent(run(elected_wait<true>, 64, SMEM_BYTES));
}

TEST_CASE("an arrival does not order the lanes of its warp", "[emulator][mbarrier]") {
  const Report report = check_only(run(arrive_without_wait, 32, SMEM_BYTES), ReportKind::race_read_after_write);
  CHECK(report.where[0] == MARKED("no wait"));
}

TEST_CASE("copies land behind an mbarrier", "[emulator][mbarrier]") {
  Source source;
  SECTION("for a warp that waits") {
    const Device device = run(one_tile<true>, 64, SMEM_BYTES, source.chunks, source.out);
    check_silent(device);
    CHECK(source.out[0] == 1);
    CHECK(source.out[4] == 2);
    CHECK(device.counters().barriers == 1);  // the __syncthreads
  }
  SECTION("not for one that does not") {
    const Device device = run(one_tile<false>, 64, SMEM_BYTES, source.chunks, source.out);
    check_only(device, ReportKind::in_flight_read, {MARKED("tile read"), MARKED("tile copy")},
               Contains("reads K+0 before the wait of") && Contains("by thread 32 (warp 1)"));
    CHECK(source.out[0] == NAN_PATTERN);
  }
  SECTION("nor when others have waited") {
    const Device device = run(without_wait, 64, SMEM_BYTES, source.chunks, source.out);
    CHECK(source.out[1] == 2);
    CHECK(source.out[36] == 2);
    CHECK(source.out[64] == NAN_PATTERN);
    CHECK(source.out[96] == NAN_PATTERN);
    REQUIRE(device.reports().size() == 2);
    CHECK(device.reports()[0].kind == ReportKind::in_flight_read);
    CHECK(device.reports()[0].where == std::vector{MARKED("landed read"), MARKED("landed copy")});
    CHECK(device.reports()[1].kind == ReportKind::in_flight_read);
    CHECK(device.reports()[1].where == std::vector{MARKED("landed matrix"), MARKED("landed copy")});
  }
  SECTION("those of before as well") {
    check_silent(run(mixed_waits, 64, SMEM_BYTES, source.chunks, source.out));
    CHECK(std::vector(source.out, source.out + 4) == std::vector<uint32_t>{1, 2, 1, 2});
  }
  SECTION("but not what the thread has stored") {
    check_only(run(store_and_copy<false>, 64, SMEM_BYTES, source.chunks), ReportKind::race_read_after_write,
               {MARKED("load of store"), MARKED("own store")});
    check_silent(run(store_and_copy<true>, 64, SMEM_BYTES, source.chunks));
  }
  SECTION("somebody must wait for them") {
    check_only(run(nobody_waits, 32, SMEM_BYTES, source.chunks), ReportKind::exit_in_flight, {MARKED("left behind")},
               Contains("before anybody has waited at full+0 for cp.async.16"));
  }
}

TEST_CASE("a ring of two stages needs both of its waits", "[emulator][mbarrier]") {
  Source source;
  SECTION("with both") {
    check_silent(run(ring<LeftOut::nothing>, 64, SMEM_BYTES, source.chunks, source.out));
    for (uint32_t tile = 0; tile < 7; ++tile) {
      for (uint32_t t = 0; t < 64; ++t) REQUIRE(source.out[tile * 64 + t] == tile * 64 + (t + 37) % 64 + 1);
    }
  }
  SECTION("without the wait for full, data is NaN") {
    const Device device = run(ring<LeftOut::full>, 64, SMEM_BYTES, source.chunks, source.out);
    check_reported(device, ReportKind::in_flight_read, {MARKED("ring read"), MARKED("ring copy")});
    CHECK(source.out[0] == NAN_PATTERN);
  }
  SECTION("without the wait for empty, a stage is overwritten under its readers") {
    const Device device = run(ring<LeftOut::empty>, 64, SMEM_BYTES, source.chunks, source.out);
    check_reported(device, ReportKind::race_write_after_read, {MARKED("ring copy"), MARKED("ring read")});
  }
  SECTION("without checks the data lands all the same") {
    Device device({.threads = 1, .check = false});
    launch(device, ring<LeftOut::nothing>, dim3(2), dim3(64), SMEM_BYTES, source.chunks, source.out);
    check_silent(device);
    CHECK(source.out[64 * 6] == 64 * 6 + 38);
  }
}

TEST_CASE("a deadlock names the mbarrier and what it lacks", "[emulator][mbarrier]") {
  const Device device = run(hang, 64, SMEM_BYTES);
  const Report report = check_only(device, ReportKind::deadlock, {MARKED("hang")},
                                   Contains("mbarrier.try_wait.parity at") && Contains(": threads 0-63\n"));
  CHECK_THAT(report.message, Contains("mbarrier full+8: 59 of 64 arrivals of phase 0 (parity 0) are pending, threads "
                                      "0-63 wait for it"));
}

TEST_CASE("misuse of mbarriers", "[emulator][mbarrier]") {
  const auto misuse = [](const Device& device) { return check_only(device, ReportKind::barrier_misuse); };
  SECTION("counts") {
    for (const uint32_t count : {0u, 1u << 20}) {
      const Device device = run(bad_count, 1, SMEM_BYTES, count);
      CHECK(misuse(device).where == std::vector{MARKED("bad count")});
      CHECK_THAT(device.reports()[0].message, Contains("must be 1 to 1048575"));
    }
    check_silent(run(bad_count, 1, SMEM_BYTES, (1u << 20) - 1));
  }
  SECTION("initialised twice") {
    const Device device = run(all_initialise, 2, SMEM_BYTES);
    CHECK(misuse(device).where == std::vector{MARKED("again")});
    CHECK_THAT(device.reports()[0].message, Contains("thread 1 (warp 0) on shared+4096: there is an mbarrier already"));
  }
  SECTION("never initialised") {
    const Device device = run(uninitialised, 1, SMEM_BYTES);
    REQUIRE(device.reports().size() == 2);
    CHECK(device.reports()[0].kind == ReportKind::barrier_misuse);
    CHECK(device.reports()[0].where == std::vector{MARKED("uninitialised arrive")});
    CHECK(device.reports()[1].where == std::vector{MARKED("uninitialised wait")});
    CHECK_FALSE(device.failed());
  }
  SECTION("parity") {
    CHECK_THAT(misuse(run(bad_parity, 1, SMEM_BYTES)).message, Contains("a parity of 2"));
  }
  SECTION("alignment") {
    check_only(run(misaligned, 1, SMEM_BYTES), ReportKind::shared_misaligned);
  }
  SECTION("used before its initialisation is known") {
    check_only(run(no_syncthreads, 64, SMEM_BYTES), ReportKind::race_read_after_write,
               {MARKED("early arrive"), MARKED("init")});
  }
  SECTION("touched by ordinary accesses") {
    const Device store = run(touches<true>, 1, SMEM_BYTES);
    CHECK(misuse(store).where[0] == MARKED("touching store"));
    CHECK_THAT(store.reports()[0].message, Contains("touches full+4, which is that of mbarrier.init"));
    CHECK(misuse(run(touches<false>, 1, SMEM_BYTES)).where[0] == MARKED("touching load"));
  }
  SECTION("more arrivals than a phase has") {
    const Device device = run(overrun, 96, SMEM_BYTES);
    CHECK(misuse(device).where == std::vector{MARKED("too many")});
    CHECK_THAT(device.reports()[0].message,
               Contains("completes phase 1 while 1 threads that wait for phase 0 have yet to see it"));
  }
}

TEST_CASE("mbarriers are in the trace", "[emulator][mbarrier]") {
  Source source;
  Device device({.threads = 1, .trace = true});
  launch(device, one_tile<true>, dim3(1), dim3(64), SMEM_BYTES, source.chunks, source.out);
  std::vector<std::string> seen;
  for (const emulator::TraceEvent& event : device.trace()) {
    if (event.instruction.find("mbarrier") == std::string_view::npos) continue;
    CHECK(event.shared.buffer == "full");
    CHECK(event.shared.offset == 0);
    CHECK(event.shared.bytes == 8);
    seen.push_back(std::to_string(event.warp) + " " + std::string(event.instruction) + " " +
                   std::to_string(event.operand));
  }
  CHECK(seen == std::vector<std::string>{"0 mbarrier.init 32", "1 cp.async.mbarrier.arrive.noinc 0",
                                         "0 mbarrier.try_wait.parity 0"});
}

// ---- what one thread's arrival vouches for ----------------------------------------------------------------------------

namespace {

// Lane 5 arrives for its warp, which has stored; warp 1 waits and reads.
template <bool BARRIER>
__global__ void elected_arrival(uint32_t* out) {
  initialise(1, 1);
  const uint32_t lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    st_shared_b32(slot(lane), lane);  // @elected store
    if (BARRIER) __syncwarp();
    if (lane == 5) mbarrier_arrive(barrier_at(0));
    return;
  }
  mbarrier_wait_parity(barrier_at(0), 0);
  st_global_b32(out + lane, ld_shared_b32(slot(lane)));  // @elected read
}

// The same with matrices, which the warp reads as one: lane 5 says that they may be overwritten.
template <bool BARRIER>
__global__ void elected_release() {
  initialise(1, 1);
  const uint32_t lane = threadIdx.x % 32;
  st_shared_v4(smem_base() + threadIdx.x % 32 * 16 + threadIdx.x / 32 * 512, {});
  __syncthreads();
  if (threadIdx.x < 32) {
    uint32_t matrices[4];
    ldmatrix_x4(matrices, smem_base() + lane * 16);  // @elected matrix
    if (BARRIER) __syncwarp();
    if (lane == 5) mbarrier_arrive(barrier_at(0));
    return;
  }
  mbarrier_wait_parity(barrier_at(0), 0);
  st_shared_b32(slot(lane), 0);  // @elected overwrite
}

// A thread's arrival does not cover what it does afterwards, though other lanes arrive later than that.
template <bool EARLY>
__global__ void arrives_and_reads() {
  initialise(1, 32);
  const uint32_t lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    st_shared_b32(slot(lane), lane);
    if (EARLY) mbarrier_arrive(barrier_at(0));
    ld_shared_b32(slot(lane));  // @late read
    if (!EARLY) mbarrier_arrive(barrier_at(0));
    return;
  }
  mbarrier_wait_parity(barrier_at(0), 0);
  st_shared_b32(slot(lane), 0);  // @after the wait
}

// All lanes read the same word, then each arrives; before, thread 0 has arrived more often than the others.
__global__ void broadcast_and_arrive() {
  initialise(2, 32);
  if (threadIdx.x == 0) {
    st_shared_b32(slot(0), 1);
    for (int i = 0; i < 32; ++i) mbarrier_arrive(barrier_at(1));
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    ld_shared_b32(slot(0));
    mbarrier_arrive(barrier_at(0));
    return;
  }
  mbarrier_wait_parity(barrier_at(0), 0);
  if (threadIdx.x == 32) st_shared_b32(slot(0), 0);
}

// ---- the end of an mbarrier ---------------------------------------------------------------------------------------------

// Two mbarriers at the same place, with a word in between. LEFT_OUT is a barrier that is missing.
enum class Without { nothing, barrier_before_end, barrier_after_end, end };
template <Without LEFT_OUT>
__global__ void two_lives() {
  for (uint32_t life = 0; life < 2; ++life) {
    initialise(1, 64);
    mbarrier_arrive(barrier_at(0));
    mbarrier_wait_parity(barrier_at(0), 0);  // @use
    if (LEFT_OUT != Without::barrier_before_end) __syncthreads();
    if (threadIdx.x == 40 && LEFT_OUT != Without::end) mbarrier_inval(barrier_at(0));  // @end
    if (LEFT_OUT != Without::barrier_after_end) __syncthreads();
    if (threadIdx.x == 3 && LEFT_OUT != Without::end) st_shared_b32(barrier_at(0), 7);  // @word
    __syncthreads();
  }
}

__global__ void use_after_end() {
  mbarrier_init(barrier_at(0), 1);
  mbarrier_inval(barrier_at(0));
  mbarrier_arrive(barrier_at(0));  // @after the end
  mbarrier_inval(barrier_at(0));   // @second end
}

__global__ void end_with_copies(const uint4* in) {
  mbarrier_init(barrier_at(0), 1);
  cp_async_16(smem_base(), in);
  cp_async_mbarrier_arrive_noinc(barrier_at(0));
  mbarrier_inval(barrier_at(0));  // @end before landing
  mbarrier_wait_parity(barrier_at(0), 0);
}

}  // namespace

TEST_CASE("an elected lane arrives for itself alone", "[emulator][mbarrier]") {
  std::vector<uint32_t> out(32);
  SECTION("stores") {
    const Device device = run(elected_arrival<false>, 64, SMEM_BYTES, out.data());
    const Report report =
        check_only(device, ReportKind::race_read_after_write, {MARKED("elected read"), MARKED("elected store")});
    CHECK(report.times == 31);
    check_silent(run(elected_arrival<true>, 64, SMEM_BYTES, out.data()));
    CHECK(out[31] == 31);
  }
  SECTION("matrices") {
    const Device device = run(elected_release<false>, 64, SMEM_BYTES);
    check_only(device, ReportKind::race_write_after_read, {MARKED("elected overwrite"), MARKED("elected matrix")});
    check_silent(run(elected_release<true>, 64, SMEM_BYTES));
  }
}

TEST_CASE("an arrival covers what was before it, and nothing later", "[emulator][mbarrier]") {
  const Device device = run(arrives_and_reads<true>, 64, SMEM_BYTES);
  const Report report =
      check_only(device, ReportKind::race_write_after_read, {MARKED("after the wait"), MARKED("late read")});
  CHECK(report.times == 32);
  check_silent(run(arrives_and_reads<false>, 64, SMEM_BYTES));
  check_silent(run(broadcast_and_arrive, 64, SMEM_BYTES));
}

TEST_CASE("an mbarrier that has been ended is memory again, and may be another one", "[emulator][mbarrier]") {
  SECTION("twice at one place") {
    check_silent(run(two_lives<Without::nothing>, 64, SMEM_BYTES));
  }
  SECTION("ended while others may use it") {
    check_reported(run(two_lives<Without::barrier_before_end>, 64, SMEM_BYTES), ReportKind::race_write_after_read,
                   {MARKED("end"), MARKED("use")});
  }
  SECTION("written before its end is known") {
    check_reported(run(two_lives<Without::barrier_after_end>, 64, SMEM_BYTES), ReportKind::race_write_after_write,
                   {MARKED("word"), MARKED("end")});
  }
  SECTION("initialised again without an end") {
    const Device device = run(two_lives<Without::end>, 64, SMEM_BYTES);
    REQUIRE_FALSE(device.reports().empty());
    CHECK(device.reports()[0].kind == ReportKind::barrier_misuse);
    CHECK_THAT(device.reports()[0].message, Contains("there is an mbarrier already"));
  }
  SECTION("used after its end") {
    const Device device = run(use_after_end, 1, SMEM_BYTES);
    REQUIRE(device.reports().size() == 2);
    CHECK(device.reports()[0].where == std::vector{MARKED("after the end")});
    CHECK(device.reports()[1].where == std::vector{MARKED("second end")});
  }
  SECTION("while a copy is to land there") {
    const Source source;
    const Device device = run(end_with_copies, 1, SMEM_BYTES, source.chunks);
    check_only(device, ReportKind::barrier_misuse, {MARKED("end before landing")},
               Contains("0 threads wait and 1 copies are to land"));
  }
}
