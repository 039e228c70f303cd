// Bulk tensor copies: one thread asks for a whole box of a tensor, and the copy engine (TMA) brings it. sm_90 and
// newer.
// Source: PTX ISA, "Data Movement and Conversion Instructions: cp.async.bulk.tensor", "Tensors" and "Swizzling Modes";
// CUDA Driver API, "Tensor Map Object Management".
#pragma once
#include <cuda.h>
#include <cstdint>
#include <type_traits>
#include "common/architecture.cuh"
#include "common/attention.hpp"
#include "common/ptx/launch.cuh"
#include "common/ptx/memory.cuh"

inline namespace ptx {

// Where a tensor lies, how it is shaped, and the box that a copy takes from it. Made on the host, and a kernel
// parameter: `const __grid_constant__ TensorMap map`.
using TensorMap = CUtensorMap;

// Asked of the runtime, once, so that nothing links the driver's library, which a machine without a GPU does not have.
// Null if the driver is too old for tensor maps.
inline auto tensor_map_encoder() {
  static const auto encoder = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult how;
#if CUDART_VERSION >= 12050
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &how);
#else
    cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &how);
#endif
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  return encoder;
}

// Describes a tensor of f16, bf16 or e4m3 in global memory, which must stay there as long as the map is used. Fastest dimension
// first: `extent` in elements, `stride_bytes` from one element to the next of each dimension but the first (whose
// stride is the element's), `box` in elements. `base` is aligned to 16 bytes, strides are multiples of 16, a box has at most 256
// elements a side, and box[0] is 64, of e4m3 128: its rows are 128 bytes, the span of the swizzle (cp_async_bulk_tensor_3d). Errors
// are recorded in `device`.
template <class Element, int RANK>
TensorMap tensor_map(Device& device, const Element* base, const uint64_t (&extent)[RANK],
                     const uint64_t (&stride_bytes)[RANK - 1], const uint32_t (&box)[RANK]) {
  constexpr bool IS_F16 = std::is_same_v<Element, f16>, IS_BF16 = std::is_same_v<Element, bf16>;
  static_assert(IS_F16 || IS_BF16 || std::is_same_v<Element, e4m3>);
  constexpr auto TYPE = IS_F16    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                        : IS_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                  : CU_TENSOR_MAP_DATA_TYPE_UINT8;
  TensorMap map = {};
  if (device.error != cudaSuccess) return map;
  const auto encode = tensor_map_encoder();
  if (encode == nullptr) {
    device.error = cudaErrorCallRequiresNewerDriver;
    return map;
  }
  uint32_t element_strides[RANK];
  for (uint32_t& stride : element_strides) stride = 1;
  const CUresult result = encode(&map, TYPE, RANK, const_cast<Element*>(base), extent, stride_bytes, box,
                                 element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) device.error = cudaErrorInvalidValue;
  return map;
}
template <class Element>
TensorMap tensor_map_3d(Device& device, const Element* base, const uint64_t (&extent)[3],
                        const uint64_t (&stride_bytes)[2], const uint32_t (&box)[3]) {
  return tensor_map(device, base, extent, stride_bytes, box);
}
template <class Element>
TensorMap tensor_map_4d(Device& device, const Element* base, const uint64_t (&extent)[4],
                        const uint64_t (&stride_bytes)[3], const uint32_t (&box)[4]) {
  return tensor_map(device, base, extent, stride_bytes, box);
}

// The same of e4m3, or of any bytes: box[0] is 128. The copy engine asks of elements how long they are alone.
inline TensorMap tensor_map_4d_e4m3(Device& device, const e4m3* base, const uint64_t (&extent)[4],
                                    const uint64_t (&stride_bytes)[3], const uint32_t (&box)[4]) {
  TensorMap map = {};
  if (device.error != cudaSuccess) return map;
  const uint32_t element_strides[4] = {1, 1, 1, 1};
  const auto encode = tensor_map_encoder();
  if (encode == nullptr) {
    device.error = cudaErrorCallRequiresNewerDriver;
  } else if (encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, const_cast<e4m3*>(base), extent, stride_bytes, box,
                    element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                    CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
    device.error = cudaErrorInvalidValue;
  }
  return map;
}

// One arrival at an mbarrier, without waiting, as mbarrier_arrive; and the phase completes only when `bytes` (at most
// 2^20 - 1 in a phase) have landed as well.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t address, uint32_t bytes) {
  needs_sm<90>();
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes) : "memory");
}

// The mbarriers that this thread has initialised become known to the copy engine. Needed before the first copy.
__device__ __forceinline__ void fence_mbarrier_init() {
  needs_sm<90>();
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// The copy engine, and wgmma, reach memory on a way of their own, the async proxy. What this thread has stored before,
// or knows to be stored because it has waited for it, they will find there. Needed between stores and a bulk copy over
// or from the same bytes, or a wgmma that reads them, by the thread that has stored (then a barrier follows) or by the
// one that asks (then a barrier comes before). For shared memory alone, and for all.
// Source: PTX ISA, "Parallel Synchronization and Communication Instructions: membar, fence", .proxy.async.
__device__ __forceinline__ void fence_proxy_async_shared() {
  needs_sm<90>();
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void fence_proxy_async() {
  needs_sm<90>();
  asm volatile("fence.proxy.async;" ::: "memory");
}

// Starts to copy the box whose first element is (x, y, z) to `shared_address`, a multiple of 1024. x is a multiple of 8
// (16 bytes): at another an H200 stops with an illegal instruction. For each z, for each y, there are 128 bytes; what
// lies outside the tensor is zeros. Swizzled: the 16-byte chunk c of a row of the box lies in place c XOR (row % 8) of
// its 128 bytes. All bytes of the box count at the mbarrier, zeros too.
__device__ __forceinline__ void cp_async_bulk_tensor_3d(uint32_t shared_address, const TensorMap& map, int x, int y,
                                                        int z, uint32_t mbarrier) {
  needs_sm<90>();
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];" ::"r"(shared_address),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(mbarrier)
      : "memory");
}

// The same of a map of four dimensions.
__device__ __forceinline__ void cp_async_bulk_tensor_4d(uint32_t shared_address, const TensorMap& map, int x, int y,
                                                        int z, int w, uint32_t mbarrier) {
  needs_sm<90>();
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(shared_address),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(mbarrier)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_4d(uint32_t shared_address, const TensorMap& map, int x, int y,
                                                        int z, int w, uint32_t mbarrier, CachePolicy policy) {
  needs_sm<90>();
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, "
      "%3, %4, %5}], [%6], %7;" ::"r"(shared_address),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(mbarrier), "l"(policy.bits)
      : "memory");
}

// The other way: starts to copy a box from `shared_address`, laid out as above, to the tensor; what lies outside stays
// as it is. Threads that have stored the bytes fence (fence_proxy_async_shared), then this thread waits for them, then
// asks.
__device__ __forceinline__ void cp_async_bulk_tensor_store_4d(const TensorMap& map, int x, int y, int z, int w,
                                                              uint32_t shared_address) {
  needs_sm<90>();
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(&map),
               "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address)
               : "memory");
}

// Closes a group of all bulk stores that this thread has started since the last commit.
__device__ __forceinline__ void cp_async_bulk_commit() {
  needs_sm<90>();
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until of all but the PENDING youngest groups of this thread the bytes have been read: their shared memory may
// be overwritten, by this thread and by who waits for it, and the block may end. The end of the kernel completes the
// rest.
template <int PENDING>
__device__ __forceinline__ void cp_async_bulk_wait_read() {
  needs_sm<90>();
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// The same until they have been written, which this thread then sees.
template <int PENDING>
__device__ __forceinline__ void cp_async_bulk_wait() {
  needs_sm<90>();
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(PENDING) : "memory");
}

}  // namespace ptx
