// The emulator's twins of common/ptx/tensor_map.cuh.
#pragma once
#include <array>
#include <cstdint>
#include "common/element.hpp"
#include "common/emulator/instructions.hpp"

inline namespace emulated {

// How often a tensor map has been copied in device code. The hardware copies a parameter once, and follows the address
// of that copy alone.
struct DeviceCopies {
  int count = 0;
  DeviceCopies() = default;
  DeviceCopies(const DeviceCopies& other);
  DeviceCopies& operator=(const DeviceCopies& other);
};

struct TensorMap {
  const void* base = nullptr;  // null: nothing was encoded
  ladder::Element element = ladder::Element::f16;
  uint32_t rank = 3;
  std::array<uint64_t, 4> extent = {1, 1, 1, 1};
  std::array<uint64_t, 4> stride_bytes = {};  // that of dimension 0 is the element's
  std::array<uint32_t, 4> box = {1, 1, 1, 1};
  DeviceCopies copies = {};

  uint32_t element_bytes() const { return element == ladder::Element::e4m3 ? 1 : 2; }
  uint32_t box_bytes() const { return box[0] * box[1] * box[2] * box[3] * element_bytes(); }
};

// What the driver would refuse is a bad-launch report.
TensorMap checked_map(Device& device, const TensorMap& map);
template <class T>
TensorMap tensor_map_3d(Device& device, const T* base, const uint64_t (&extent)[3], const uint64_t (&stride_bytes)[2],
                        const uint32_t (&box)[3]) {
  return checked_map(device, {.base = base,
                              .element = ladder::element_of<T>,
                              .rank = 3,
                              .extent = {extent[0], extent[1], extent[2], 1},
                              .stride_bytes = {sizeof(T), stride_bytes[0], stride_bytes[1]},
                              .box = {box[0], box[1], box[2], 1}});
}
template <class T>
TensorMap tensor_map_4d(Device& device, const T* base, const uint64_t (&extent)[4], const uint64_t (&stride_bytes)[3],
                        const uint32_t (&box)[4]) {
  return checked_map(device, {.base = base,
                              .element = ladder::element_of<T>,
                              .rank = 4,
                              .extent = {extent[0], extent[1], extent[2], extent[3]},
                              .stride_bytes = {sizeof(T), stride_bytes[0], stride_bytes[1], stride_bytes[2]},
                              .box = {box[0], box[1], box[2], box[3]}});
}
inline TensorMap tensor_map_4d_e4m3(Device& device, const e4m3* base, const uint64_t (&extent)[4],
                                    const uint64_t (&stride_bytes)[3], const uint32_t (&box)[4]) {
  return tensor_map_4d(device, base, extent, stride_bytes, box);
}

// A copy lands as late as it can: when no thread can go on without it. Its destination is NaN until then, and
// afterwards for threads that have not waited at its mbarrier.
void cp_async_bulk_tensor_3d(uint32_t shared_address, const TensorMap& map, int x, int y, int z, uint32_t mbarrier,
                             CallSite site = CallSite::current());
void cp_async_bulk_tensor_4d(uint32_t shared_address, const TensorMap& map, int x, int y, int z, int w,
                             uint32_t mbarrier, CallSite site = CallSite::current());
inline void cp_async_bulk_tensor_4d(uint32_t shared_address, const TensorMap& map, int x, int y, int z, int w,
                                    uint32_t mbarrier, CachePolicy, CallSite site = CallSite::current()) {
  cp_async_bulk_tensor_4d(shared_address, map, x, y, z, w, mbarrier, site);
}
void cp_async_bulk_tensor_4d_multicast(uint32_t shared_address, const TensorMap& map, int x, int y, int z, int w,
                                       uint32_t mbarrier, uint16_t ranks, CallSite site = CallSite::current());
// What it stores appears in global memory as late as it can: in cp_async_bulk_wait, or when the thread ends.
void cp_async_bulk_tensor_store_4d(const TensorMap& map, int x, int y, int z, int w, uint32_t shared_address,
                                   CallSite site = CallSite::current());
void cp_async_bulk_commit(CallSite site = CallSite::current());
void cp_async_bulk_wait_pending(uint32_t pending, bool read_only, CallSite site);
template <int PENDING>
void cp_async_bulk_wait_read(CallSite site = CallSite::current()) {
  cp_async_bulk_wait_pending(PENDING, true, site);
}
template <int PENDING>
void cp_async_bulk_wait(CallSite site = CallSite::current()) {
  cp_async_bulk_wait_pending(PENDING, false, site);
}
void mbarrier_arrive_expect_tx(uint32_t address, uint32_t bytes, CallSite site = CallSite::current());
// The hardware tells nobody that one of these is missing: a copy may work, bring or meet old data, or wait for ever.
// Here it is reported.
void fence_mbarrier_init(CallSite site = CallSite::current());
void fence_proxy_async_shared(CallSite site = CallSite::current());
void fence_proxy_async(CallSite site = CallSite::current());

}  // namespace emulated
