// What is counted of work that runs beside other work, or that waits for it.
#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "harness/tests/emulator/emulator_test.hpp"

using namespace emulator_test;

namespace {

__device__ void multiply(int times) {
  const uint32_t a[4] = {};
  float c[4] = {};
  for (int i = 0; i < times; ++i) mma_m16n8k16(c, a, 0, 0);
  for (int i = 0; i < times; ++i) ex2_approx(1.0f);
}

// ---- fragments and votes ------------------------------------------------------------------------------------------------

// Two loads of four registers, of which the second is multiplied after a product on the first.
template <bool AHEAD>
__global__ void fragments() {
  const uint32_t lane = threadIdx.x, second = smem_base() + 512 + lane * 16;
  for (uint32_t word = lane; word < 256; word += 32) st_shared_b32(smem_base() + word * 4, 0x3c003c00 + word);
  __syncwarp();
  const uint32_t a[4] = {};
  float c[4] = {};
  uint32_t now[4], next[4];
  ldmatrix_x4(now, smem_base() + lane * 16);
  if (AHEAD) ldmatrix_x4(next, second);
  mma_m16n8k16(c, a, now[0], now[2]);
  mma_m16n8k16(c, a, now[1], now[3]);
  if (!AHEAD) ldmatrix_x4(next, second);
  for (int i = 0; i < 4; ++i) now[i] = next[i];
  mma_m16n8k16(c, a, now[0], now[1]);
  mma_m16n8k16(c, a, now[2], now[3]);
}

__global__ void votes() {
  const uint32_t a[4] = {};
  float c[4] = {};
  for (int tile = 0; tile < 2; ++tile) {
    mma_m16n8k16(c, a, 0, 0);
    vote_any(false);
    ex2_approx(1.0f);
    vote_any(true);
  }
}

// ---- products under copies --------------------------------------------------------------------------------------------

// Two products before copies are asked for, three until they are waited for, and one behind; and as many exponentials.
template <class Ask, class Wait>
__device__ void ask_multiply_wait(const Ask& ask, const Wait& wait) {
  multiply(2);
  ask();
  multiply(3);
  wait();
  multiply(1);
}

__global__ void by_groups(const uint4* in) {
  ask_multiply_wait(
      [&] {
        cp_async_16(smem_base() + threadIdx.x * 16, in + threadIdx.x);
        cp_async_commit();
      },
      [] { cp_async_wait<0>(); });
}

enum class Waits { who_asks, another_warp };

// Both warps multiply; copies by all lanes of warp 0, or one by the copy engine.
template <bool BULK, Waits WHO>
__global__ void by_mbarrier(const uint4* in) {
  const uint32_t full = smem_base() + 1024;
  if (threadIdx.x == 0) {
    mbarrier_init(full, BULK ? 1 : 32);
    fence_mbarrier_init();
  }
  __syncthreads();
  ask_multiply_wait(
      [&] {
        if (BULK && threadIdx.x == 0) {
          mbarrier_arrive_expect_tx(full, 512);
          cp_async_bulk(smem_base(), in, 512, full);
        }
        if (!BULK && threadIdx.x < 32) {
          cp_async_16(smem_base() + threadIdx.x * 16, in + threadIdx.x);
          cp_async_mbarrier_arrive_noinc(full);
        }
        __syncwarp();
      },
      [&] {
        if ((threadIdx.x < 32) == (WHO == Waits::who_asks)) mbarrier_wait_parity(full, 0);
        __syncwarp();
      });
}

// Both warps arrive, by all their lanes or by one, and wait for each other.
template <bool ALL_LANES, bool AT_ONCE>
__global__ void by_arrivals() {
  const uint32_t empty = smem_base();
  if (threadIdx.x == 0) mbarrier_init(empty, ALL_LANES ? 64 : 2);
  __syncthreads();
  for (uint32_t tile = 0; tile < 3; ++tile) {
    multiply(1);
    if (ALL_LANES || threadIdx.x % 32 == 0) mbarrier_arrive(empty);
    if (AT_ONCE) mbarrier_wait_parity(empty, tile % 2);
    multiply(1);
    mbarrier_wait_parity(empty, tile % 2);
    mbarrier_wait_parity(empty, tile % 2);  // over already: no wait
    __syncwarp();
  }
}

__global__ void outwards(uint4* out) {
  st_shared_v4(smem_base() + threadIdx.x * 16, uint4{});
  fence_proxy_async_shared();
  __syncwarp();
  ask_multiply_wait(
      [&] {
        if (threadIdx.x == 0) {
          for (int half = 0; half < 2; ++half) cp_async_bulk_store(out + half * 16, smem_base() + half * 256, 256);
          cp_async_bulk_commit();
        }
        __syncwarp();
      },
      [] {
        if (threadIdx.x == 0) {
          cp_async_bulk_wait_read<0>();
          cp_async_bulk_wait<0>();  // of the same copies: they are counted once
        }
        __syncwarp();
      });
}

// ---- exponentials under stores, and products under loads ---------------------------------------------------------------

__global__ void exponentials_beside(uint4* out) {
  st_shared_v4(smem_base() + threadIdx.x * 16, uint4{});
  fence_proxy_async_shared();
  __syncwarp();
  ex2_approx(0);
  if (threadIdx.x == 0) {
    for (int half = 0; half < 2; ++half) cp_async_bulk_store(out + half * 16, smem_base() + half * 256, 256);
    cp_async_bulk_commit();
  }
  for (int i = 0; i < 3; ++i) ex2_approx(0);
  if (threadIdx.x == 0) cp_async_bulk_wait_read<0>();
  ex2_approx(0);
  __syncwarp();
}

enum class Releases { early, late, never };

// Another warp loads twice into one place. The warpgroup says that it has read it when one of three products is over, or all, or it
// waits for one load alone.
template <Releases WHEN>
__global__ void loads(const uint4* in) {
  const uint32_t to = smem_base() + 8192, full = to + 512, empty = full + 8;
  const bool multiplies = threadIdx.x < 128;
  for (uint32_t i = threadIdx.x; multiplies && i < 64 * 32; i += 128) st_shared_b32(smem_base() + 4 * i, 0x3c003c00);
  fence_proxy_async_shared();
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init(empty, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (!multiplies) {
    for (uint32_t phase = 0; threadIdx.x == 128 && phase < (WHEN == Releases::never ? 1u : 2u); ++phase) {
      mbarrier_wait_parity(empty, phase ^ 1);
      mbarrier_arrive_expect_tx(full, 512);
      cp_async_bulk(to, in, 512, full);
    }
    return;
  }
  const uint64_t ones = wgmma_descriptor(smem_base());
  float O[8][4] = {};
  const auto multiply = [&](int times) {
    wgmma_fence(O);
    for (int i = 0; i < times; ++i) wgmma_ss(O, ones, ones);
    wgmma_commit();
    wgmma_wait<0>(O);
  };
  const auto release = [&](Releases when) {
    if (WHEN == when && threadIdx.x == 0) mbarrier_arrive(empty);
    __syncwarp();
  };
  mbarrier_wait_parity(full, 0);
  __syncwarp();
  multiply(1);
  release(Releases::early);
  multiply(2);
  release(Releases::late);
  if (WHEN != Releases::never) mbarrier_wait_parity(full, 1);
  __syncwarp();
}

// ---- sectors, blocks ---------------------------------------------------------------------------------------

template <int STRIDE>  // of 16 bytes from lane to lane
__global__ void reads(const uint4* in) {
  ld_global_v4(in + threadIdx.x * STRIDE);
  if (threadIdx.x % 2 == 0) ld_global_b32(in);
}

__global__ void unequal_blocks() {
  multiply(2 + int(blockIdx.x == 1));
}

// ---- work of threads beside products -----------------------------------------------------------------------------------

// Two products; packing, an exchange and a hand-over twice, before the wait for one of them and after it, and once more at the end.
__global__ void works_beside() {
  for (uint32_t i = threadIdx.x; i < 64 * 32; i += 128) st_shared_b32(smem_base() + 4 * i, 0x3c003c00);
  fence_proxy_async_shared();
  __syncthreads();
  const uint64_t ones = wgmma_descriptor(smem_base());
  float O[8][4] = {}, S[8][4];
  const auto work = [] {
    pack_f16x2(1, 2);
    shfl_xor(1, 1);
    fence_proxy_async_shared();
  };
  wgmma_fence(S);
  wgmma_ss(S, ones, ones, false);
  wgmma_commit();
  wgmma_fence(O);
  wgmma_ss(O, ones, ones);
  wgmma_commit();
  work();
  wgmma_wait<1>(S);
  work();
  wgmma_wait<0>(O);
  work();
}

// ---- corrections at rest ----------------------------------------------------------------------------------------------

enum class Corrects { nothing, at_rest, under_another, to_zeros, what_is_overwritten, one_nan_to_another };

template <Corrects WHAT>
__global__ void two_accumulators() {
  for (uint32_t i = threadIdx.x; i < 64 * 32; i += 128) st_shared_b32(smem_base() + 4 * i, 0x3c003c00);
  fence_proxy_async_shared();
  __syncthreads();
  const uint64_t ones = wgmma_descriptor(smem_base());
  constexpr bool OF_NAN = WHAT == Corrects::one_nan_to_another;
  float O[8][4] = {}, S[8][4];
  const auto scale = [&](float factor) {
    for (auto& four : O) std::ranges::for_each(four, [&](float& element) { element *= factor; });
  };
  if (OF_NAN) scale(NAN);
  wgmma_fence(O);
  wgmma_ss(O, ones, ones);
  wgmma_commit();
  wgmma_wait<0>(O);
  if (OF_NAN) std::ranges::fill(O[0], std::bit_cast<float>(0xffc00003));
  if (WHAT == Corrects::at_rest || WHAT == Corrects::what_is_overwritten) scale(0.5f);
  if (WHAT == Corrects::to_zeros) scale(0);
  wgmma_fence(S);
  wgmma_ss(S, ones, ones, false);
  wgmma_commit();
  if (WHAT == Corrects::under_another) scale(0.5f);
  wgmma_fence(O);
  wgmma_ss(O, ones, ones, WHAT != Corrects::what_is_overwritten);
  wgmma_commit();
  wgmma_wait<0>(S, O);
}

template <Corrects WHAT>
uint64_t at_rest() {
  const Device device = run(two_accumulators<WHAT>, 128, 64 * 128);
  check_silent(device);
  return device.counters().corrections_at_rest;
}

}  // namespace

TEST_CASE("products between a thread's request of a copy and its own wait are counted, for each copy",
          "[emulator][device]") {
  std::vector<uint4> memory(32);
  const auto counted = [&](auto* kernel, uint32_t threads) {
    const Device device = run(kernel, threads, 2048, memory.data());
    check_silent(device);
    return device.counters().products_under_copies;
  };
  CHECK(counted(by_groups, 32) == 32 * 3);
  CHECK(counted(by_mbarrier<false, Waits::who_asks>, 64) == 32 * 3);
  CHECK(counted(by_mbarrier<false, Waits::another_warp>, 64) == 0);
  CHECK(counted(by_mbarrier<true, Waits::who_asks>, 64) == 3);
  CHECK(counted(by_mbarrier<true, Waits::another_warp>, 64) == 0);
  CHECK(counted(outwards, 32) == 2 * 3);
}

TEST_CASE(
    "exponentials between a thread's request of a copy to shared memory and its own wait are counted, for each copy",
    "[emulator][device]") {
  std::vector<uint4> memory(32);
  const auto counted = [&](auto* kernel, uint32_t threads) {
    return run(kernel, threads, 2048, memory.data()).counters().exponentials_under_copies;
  };
  CHECK(counted(by_groups, 32) == 32 * 3);
  CHECK(counted(by_mbarrier<false, Waits::who_asks>, 64) == 32 * 3);
  CHECK(counted(by_mbarrier<false, Waits::another_warp>, 64) == 0);
  CHECK(counted(by_mbarrier<true, Waits::who_asks>, 64) == 3);
  CHECK(counted(outwards, 32) == 0);
}

TEST_CASE("arrivals at an mbarrier are counted that a thread awaits with no product in between", "[emulator][device]") {
  const auto counted = [&](auto* kernel) {
    const Device device = run(kernel, 64, 64);
    check_silent(device);
    return device.counters().arrivals_awaited_at_once;
  };
  CHECK(counted(by_arrivals<true, true>) == 64 * 3);
  CHECK(counted(by_arrivals<false, true>) == 2 * 3);
  CHECK(counted(by_arrivals<true, false>) == 0);
  CHECK(counted(by_arrivals<false, false>) == 0);
}

TEST_CASE("products between a fragment's load and its use are counted, whichever registers it is in",
          "[emulator][device]") {
  CHECK(run(fragments<true>, 32, 1024).counters().fragments_ahead == 2);
  CHECK(run(fragments<false>, 32, 1024).counters().fragments_ahead == 0);
}

TEST_CASE("votes are counted that come before any exponential since the last product", "[emulator][device]") {
  CHECK(run(votes, 32, 0).counters().votes_on_scores == 2);
}

TEST_CASE("loads are counted for which the thread waits that asked for them", "[emulator][device]") {
  std::vector<uint4> memory(32);
  const auto counted = [&](auto* kernel) {
    const Device device = run(kernel, 64, 2048, memory.data());
    check_silent(device);
    return device.counters().loads_awaited_by_asker;
  };
  CHECK(counted(by_mbarrier<true, Waits::who_asks>) == 1);
  CHECK(counted(by_mbarrier<true, Waits::another_warp>) == 0);
  CHECK(counted(by_mbarrier<false, Waits::who_asks>) == 0);  // a thread's own copies
}

TEST_CASE("exponentials that a thread computes before it waits for its stores are counted, for each store",
          "[emulator][device]") {
  std::vector<uint4> memory(32);
  const Device device = run(exponentials_beside, 32, 2048, memory.data());
  check_silent(device);
  CHECK(device.counters().exponentials_under_stores == 2 * 3);
}

TEST_CASE("products are counted that nobody knows to be over who asks for what they run under", "[emulator][device]") {
  std::vector<uint4> memory(32);
  const auto counted = [&](auto* kernel) {
    const Device device = run(kernel, 160, 8192 + 1024, memory.data());
    check_silent(device);
    return device.counters().wgmma_under_loads;
  };
  CHECK(counted(loads<Releases::never>) == 0);  // the first one is waited for before any product
  CHECK(counted(loads<Releases::early>) == 2);
  CHECK(counted(loads<Releases::late>) == 0);
}

TEST_CASE("sectors of global memory are counted request by request, of each kernel's first block",
          "[emulator][device]") {
  std::vector<uint4> memory(32 * 4 + 2);
  void* begin = memory.data();
  size_t space = memory.size() * sizeof(uint4);
  const auto* const in = static_cast<const uint4*>(std::align(32, 32 * 4 * sizeof(uint4), begin, space));
  CHECK(run(reads<1>, 32, 16, in).counters().gmem_sectors == 32 / 2 + 1);
  CHECK(run(reads<4>, 32, 16, in).counters().gmem_sectors == 32 + 1);
  Device two({.threads = 1});
  for (int times = 0; times < 2; ++times) launch(two, reads<1>, dim3(2), dim3(32), 16, in);
  CHECK(two.counters().gmem_sectors == 32 / 2 + 1);
  launch(two, reads<4>, dim3(2), dim3(32), 16, in);
  CHECK(two.counters().gmem_sectors == 32 / 2 + 1 + 32 + 1);
}

TEST_CASE("the products of the block with most of them are counted, whoever runs it", "[emulator][device]") {
  for (const int threads : {1, 3}) {
    Device device({.threads = threads});
    launch(device, unequal_blocks, dim3(3), dim3(64), 16);
    CHECK(device.counters().mma == 2 * 7);
    CHECK(device.counters().products_of_busiest_block == 2 * 3);
  }
}

TEST_CASE("blocks begin in the order of their numbers, and the SM that has most to do is counted",
          "[emulator][device]") {
  for (const int threads : {1, 3}) {
    const auto counted = [&](uint32_t multiprocessors, int launches = 1) {
      Device device({.threads = threads, .multiprocessors = multiprocessors});
      for (int i = 0; i < launches; ++i)
        launch(device, unequal_blocks, dim3(4), dim3(64), 16);  // 2, 3, 2 and 2, of two warps
      return device.counters().products_of_busiest_sm;
    };
    CHECK(counted(1) == 2 * 9);
    CHECK(counted(2) == 2 * 5);
    CHECK(counted(3) == 2 * 4);
    CHECK(counted(4) == 2 * 3);
    CHECK(counted(3, 2) == 2 * (4 + 4));  // one launch after the other
  }
}

TEST_CASE("accumulators that are corrected while nothing runs are counted, for each thread", "[emulator][device]") {
  CHECK(at_rest<Corrects::nothing>() == 0);
  CHECK(at_rest<Corrects::at_rest>() == 128);
  CHECK(at_rest<Corrects::under_another>() == 0);
  CHECK(at_rest<Corrects::to_zeros>() == 0);
  CHECK(at_rest<Corrects::what_is_overwritten>() == 0);
  CHECK(at_rest<Corrects::one_nan_to_another>() == 0);  // which of two NaN a product of both is, a compiler chooses
}

TEST_CASE("products are counted that a warp starts behind exponentials", "[emulator][device]") {
  CHECK(run(votes, 32, 0).counters().products_after_exponentials == 1);  // the second tile's
}

TEST_CASE("what threads do beside products of their warpgroup is counted", "[emulator][device]") {
  const Device device = run(works_beside, 128, 64 * 128);
  check_silent(device);
  CHECK(device.counters().packs_beside_products == 2 * 128);
  CHECK(device.counters().shuffles_beside_products == 2 * 4);
  CHECK(device.counters().wgmma_under_fences == (2 + 1) * 128);
}

TEST_CASE("threads that ask the copy engine for stores are counted once each", "[emulator][device]") {
  std::vector<uint4> memory(32);
  CHECK(run(outwards, 32, 2048, memory.data()).counters().storing_threads == 1);
}
