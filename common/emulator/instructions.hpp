// The GPU's instructions for a plain C++20 compiler: the same names and parameters as common/ptx/*.cuh, where each is
// described, plus a trailing call site. Here only what differs from the hardware is said.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <tuple>
#include "common/attention.hpp"
#include "common/emulator/call_site.hpp"
#include "common/emulator/cmath.hpp"
#include "common/emulator/half.hpp"

// Kernels do not need emulator.hpp: its strings alone would take as long to compile as a short one.
namespace emulator {
class Device;
}

inline namespace emulated {

using emulator::CallSite;
using emulator::Device;

struct uint3 {
  uint32_t x, y, z;
};
struct dim3 {
  uint32_t x, y, z;
  constexpr dim3(uint32_t x = 1, uint32_t y = 1, uint32_t z = 1) : x(x), y(y), z(z) {}
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};

const uint3& thread_index();
const uint3& block_index();
const dim3& block_shape();
const dim3& grid_shape();

// ---- synchronisation ----------------------------------------------------------------------------------------------
void __syncthreads(CallSite site = CallSite::current());
void __syncwarp(CallSite site = CallSite::current());
void named_barrier_sync(uint32_t id, uint32_t threads, CallSite site = CallSite::current());
void named_barrier_arrive(uint32_t id, uint32_t threads, CallSite site = CallSite::current());

// ---- clusters -----------------------------------------------------------------------------------------------------
uint32_t cluster_rank();
void cluster_sync(CallSite site = CallSite::current());
// The block's number stands above its address.
uint32_t mapa(uint32_t address, uint32_t rank);
void st_shared_cluster_b32(uint32_t mapped, uint32_t value, CallSite site = CallSite::current());
// It lands as late as it can.
void st_async_b32(uint32_t mapped, uint32_t value, uint32_t mapped_mbarrier, CallSite site = CallSite::current());
void mbarrier_arrive_remote(uint32_t address, uint32_t rank, CallSite site = CallSite::current());

// ---- shared memory ------------------------------------------------------------------------------------------------
// A block's shared memory is NaN until written. A bad address ends the launch.
uint32_t smem_base();
// Names a region for reports and counts: "K+512" instead of "shared+16896", and "K row 2, chunk 0 (K+512)" if it has
// rows. `name` must outlive the launch.
void smem_name(uint32_t address, uint32_t bytes, const char* name, uint32_t row_bytes = 0);
uint32_t ld_shared_b32(uint32_t address, CallSite site = CallSite::current());
uint2 ld_shared_v2(uint32_t address, CallSite site = CallSite::current());
uint4 ld_shared_v4(uint32_t address, CallSite site = CallSite::current());
void st_shared_b32(uint32_t address, uint32_t value, CallSite site = CallSite::current());
void st_shared_v2(uint32_t address, uint2 value, CallSite site = CallSite::current());
void st_shared_v4(uint32_t address, uint4 value, CallSite site = CallSite::current());

// ---- global memory ------------------------------------------------------------------------------------------------
f16 ld_global_f16(const f16* address, CallSite site = CallSite::current());
bf16 ld_global_bf16(const bf16* address, CallSite site = CallSite::current());
float ld_global_f32(const float* address, CallSite site = CallSite::current());
int32_t ld_global_s32(const int32_t* address, CallSite site = CallSite::current());
uint32_t ld_global_b32(const void* address, CallSite site = CallSite::current());
uint4 ld_global_v4(const void* address, CallSite site = CallSite::current());
struct CachePolicy {
  uint64_t bits;
};
inline CachePolicy createpolicy_evict_first() {
  return {1};
}
inline CachePolicy createpolicy_evict_last() {
  return {2};
}
inline uint4 ld_global_v4(const void* address, CachePolicy, CallSite site = CallSite::current()) {
  return ld_global_v4(address, site);
}
void st_global_f16(f16* address, f16 value, CallSite site = CallSite::current());
void st_global_bf16(bf16* address, bf16 value, CallSite site = CallSite::current());
void st_global_f32(float* address, float value, CallSite site = CallSite::current());
void st_global_b32(void* address, uint32_t value, CallSite site = CallSite::current());
void st_global_v4(void* address, uint4 value, CallSite site = CallSite::current());

// Reductions of all threads and blocks reach memory in the order of their execution here, on the hardware in any.
void red_global_add_f32(float* address, float value, CallSite site = CallSite::current());

// Whoever waits lets the other threads of its cluster go first, and then other clusters (turns.hpp).
uint32_t atom_global_add_u32(uint32_t* address, uint32_t value, CallSite site = CallSite::current());
uint32_t atom_global_inc_u32(uint32_t* address, uint32_t limit, CallSite site = CallSite::current());
void fence_acq_rel_gpu(CallSite site = CallSite::current());
void red_release_add_u32(uint32_t* address, uint32_t value, CallSite site = CallSite::current());
void ld_acquire_wait_u32(const uint32_t* address, uint32_t value, CallSite site = CallSite::current());

// ---- cp.async -----------------------------------------------------------------------------------------------------
// The destination turns into NaN here; the data lands in this thread's cp_async_wait, never earlier.
void cp_async_16(uint32_t shared_address, const void* global_address, CallSite site = CallSite::current());
void cp_async_16(uint32_t shared_address, const void* global_address, uint32_t bytes,
                 CallSite site = CallSite::current());
void cp_async_4(uint32_t shared_address, const void* global_address, uint32_t bytes,
                CallSite site = CallSite::current());
void cp_async_commit(CallSite site = CallSite::current());
void cp_async_wait_pending(int pending, CallSite site);
template <int PENDING>
void cp_async_wait(CallSite site = CallSite::current()) {
  static_assert(PENDING >= 0);
  cp_async_wait_pending(PENDING, site);
}

// ---- mbarriers ----------------------------------------------------------------------------------------------------
// Copies behind a cp_async_mbarrier_arrive_noinc land as late as they can: when no thread can go on without them, or in
// this thread's cp_async_wait. A thread that has not waited still reads NaN where they have landed.
void mbarrier_init(uint32_t address, uint32_t count, CallSite site = CallSite::current());
void mbarrier_inval(uint32_t address, CallSite site = CallSite::current());
void mbarrier_arrive(uint32_t address, CallSite site = CallSite::current());
void cp_async_mbarrier_arrive_noinc(uint32_t address, CallSite site = CallSite::current());
void mbarrier_wait_parity(uint32_t address, uint32_t parity, CallSite site = CallSite::current());

// ---- warp instructions: all 32 lanes meet here
// -----------------------------------------------------------------------
void ldmatrix_x4(uint32_t (&matrices)[4], uint32_t row_address, CallSite site = CallSite::current());
void ldmatrix_x2_trans(uint32_t (&matrices)[2], uint32_t row_address, CallSite site = CallSite::current());
void ldmatrix_x4_trans(uint32_t (&matrices)[4], uint32_t row_address, CallSite site = CallSite::current());
void stmatrix_x4(uint32_t row_address, const uint32_t (&matrices)[4], CallSite site = CallSite::current());
void stmatrix_x4_trans(uint32_t row_address, const uint32_t (&matrices)[4], CallSite site = CallSite::current());
// Products are exact and summed in f32 in the order of k; the hardware's order and rounding of sums differ.
void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, CallSite site = CallSite::current());
void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const float (&c)[4],
                  CallSite site = CallSite::current());
void mma_m16n8k16_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                       CallSite site = CallSite::current());
void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const float (&c)[4],
                       CallSite site = CallSite::current());
uint32_t shfl(uint32_t value, int from, CallSite site = CallSite::current());
float shfl_xor(float value, int lane_mask, CallSite site = CallSite::current());
bool vote_any(bool predicate, CallSite site = CallSite::current());
// Here it is lane 0.
bool elect_sync(CallSite site = CallSite::current());

// ---- numbers ------------------------------------------------------------------------------------------------------
void count_pack();
void count_integer_maximum();
inline uint32_t pack_f16x2(float low, float high) {
  count_pack();
  return emulator::float_to_half(low) | static_cast<uint32_t>(emulator::float_to_half(high)) << 16;
}
[[gnu::always_inline]] inline float to_float(f16 value) {  // without a tensor core half of what a kernel does
  return emulator::half_to_float(value.bits);
}
inline f16 to_f16(float value) {
  return {emulator::float_to_half(value)};
}
inline uint32_t pack_bf16x2(float low, float high) {
  count_pack();
  return emulator::float_to_bfloat(low) | static_cast<uint32_t>(emulator::float_to_bfloat(high)) << 16;
}
inline float to_float(bf16 value) {
  return emulator::bfloat_to_float(value.bits);
}
inline bf16 to_bf16(float value) {
  return {emulator::float_to_bfloat(value)};
}
uint16_t pack_e4m3x2(float low, float high);
uint16_t pack_e5m2x2(float low, float high);
uint32_t unpack_e4m3x2(uint16_t packed);
uint32_t unpack_e5m2x2(uint16_t packed);
uint32_t sub_f16x2(uint32_t a, uint32_t b);
uint32_t sub_bf16x2(uint32_t a, uint32_t b);
uint32_t prmt_b32(uint32_t low, uint32_t high, uint32_t selector);
template <int TABLE>
uint32_t lop3_b32(uint32_t a, uint32_t b, uint32_t c) {
  static_assert(0 <= TABLE && TABLE <= 0xff);
  uint32_t bits = 0;
  for (int i = 0; i < 8; ++i) {
    if (TABLE >> i & 1) bits |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  }
  return bits;
}
inline uint32_t __float_as_uint(float value) {
  return std::bit_cast<uint32_t>(value);
}
inline float __uint_as_float(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline int __float_as_int(float value) {
  return std::bit_cast<int>(value);
}
inline float __int_as_float(int bits) {
  return std::bit_cast<float>(bits);
}
inline int min(int a, int b) {
  return b < a ? b : a;
}
inline int max(int a, int b) {
  return a < b ? b : a;
}
inline int max3_s32(int a, int b, int c) {
  count_integer_maximum();
  return std::max({a, b, c});
}
inline float saturate(float x) {
  return x > 0 ? std::min(x, 1.0f) : 0;  // NaN is not above 0
}
inline float max_nan(float a, float b) {
  return std::isnan(a) ? a : std::isnan(b) ? b : std::max(a, b);
}
// Correctly rounded to within 1 ulp, where the hardware has 2.
float ex2_approx(float x);
float tanh_approx(float x);
// Correctly rounded.
float lg2_approx(float x);
float rcp_approx(float x);

// ---- launches -----------------------------------------------------------------------------------------------------
void griddepcontrol_launch_dependents(CallSite site = CallSite::current());
void griddepcontrol_wait(CallSite site = CallSite::current());

// ---- host side ----------------------------------------------------------------------------------------------------
uint32_t multiprocessors(const Device& device);

// Runs body(call) once per CUDA thread of the grid. `kernel` is the function that the call is of.
void run_grid(Device& device, dim3 grid, dim3 block, uint32_t cluster, uint32_t smem_bytes, void (*body)(const void*),
              const void* call, const void* kernel, bool is_dependent = false);

// The blocks of a cluster run side by side. A bad configuration, like any fatal fault, is a report in the Device and
// makes it failed().
template <class... Params, class... Args>
void launch_as(Device& device, void (*kernel)(Params...), dim3 grid, dim3 block, uint32_t cluster, uint32_t smem_bytes,
               bool is_dependent, Args... args) {
  struct Call {
    void (*kernel)(Params...);
    std::tuple<Params...> params;
  };
  const Call call{kernel, {static_cast<Params>(args)...}};
  run_grid(
      device, grid, block, cluster, smem_bytes,
      [](const void* opaque) {
        const Call& call = *static_cast<const Call*>(opaque);
        std::apply(call.kernel, call.params);
      },
      &call, reinterpret_cast<const void*>(kernel), is_dependent);
}
template <class... Params, class... Args>
void launch_clusters(Device& device, void (*kernel)(Params...), dim3 grid, dim3 block, uint32_t cluster,
                     uint32_t smem_bytes, Args... args) {
  launch_as(device, kernel, grid, block, cluster, smem_bytes, false, args...);
}
template <class... Params, class... Args>
void launch(Device& device, void (*kernel)(Params...), dim3 grid, dim3 block, uint32_t smem_bytes, Args... args) {
  launch_clusters(device, kernel, grid, block, 1, smem_bytes, args...);
}

// It runs when the launch before is over; whoever touches what that one has written, or writes what it has read, must have waited for it.
template <class... Params, class... Args>
void launch_dependent(Device& device, void (*kernel)(Params...), dim3 grid, dim3 block, uint32_t smem_bytes,
                      Args... args) {
  launch_as(device, kernel, grid, block, 1, smem_bytes, true, args...);
}

}  // namespace emulated
