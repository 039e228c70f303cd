// The emulator's twins of common/ptx/cp_async_bulk.cuh.
#pragma once
#include <cstdint>
#include "common/emulator/instructions.hpp"

inline namespace emulated {

// As a box of a tensor (tensor_map.hpp): it lands as late as it can, and what leaves shared memory is in global memory
// after cp_async_bulk_wait, or when the thread ends.
void cp_async_bulk(uint32_t shared_address, const void* global_address, uint32_t bytes, uint32_t mbarrier,
                   CallSite site = CallSite::current());
inline void cp_async_bulk(uint32_t shared_address, const void* global_address, uint32_t bytes, uint32_t mbarrier,
                          CachePolicy, CallSite site = CallSite::current()) {
  cp_async_bulk(shared_address, global_address, bytes, mbarrier, site);
}
void cp_async_bulk_store(void* global_address, uint32_t shared_address, uint32_t bytes,
                         CallSite site = CallSite::current());
void cp_reduce_async_bulk_add_f32(float* global_address, uint32_t shared_address, uint32_t bytes,
                                  CallSite site = CallSite::current());

}  // namespace emulated
