// Clusters: blocks that run at the same time on SMs of one GPC and reach each other's shared memory. sm_90 and newer. A
// block must not end while another one may still reach its shared memory: a cluster_sync at the end of the kernel.
// Source: PTX ISA, "Cluster of Cooperative Thread Arrays"; CUDA Programming Guide, "Thread Block Clusters".
#pragma once
#include <cstdint>
#include "common/architecture.cuh"
#include "common/ptx/tensor_map.cuh"

inline namespace ptx {

// This block's number within its cluster, from 0.
__device__ __forceinline__ uint32_t cluster_rank() {
  needs_sm<90>();
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Waits until all threads of all blocks of the cluster have come here, or have ended. What they have written before is
// visible to all of them, what they have read may be overwritten. Whole warps take part (.aligned).
// Source: PTX ISA, "barrier.cluster".
__device__ __forceinline__ void cluster_sync() {
  needs_sm<90>();
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// One arrival at the mbarrier that lies in block `rank` where `address` is in this one, without waiting. Unlike
// mbarrier_arrive it says nothing about this thread's stores: without a scope it releases to its own block only (.cta
// is the default). .release.cluster would say it, by three fences more (MEMBAR, ERRBAR, CGAERRBAR). It is enough for
// "these bytes have been read", by products that this thread has waited for, and CUTLASS's ClusterBarrier arrives so
// too.
// Source: PTX ISA, "mapa", "mbarrier.arrive".
__device__ __forceinline__ void mbarrier_arrive_remote(uint32_t address, uint32_t rank) {
  needs_sm<90>();
  asm volatile(
      "{\n"
      "  .reg .b32 remote;\n"
      "  mapa.shared::cluster.u32 remote, %0, %1;\n"
      "  mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(address),
      "r"(rank)
      : "memory");
}

// Where in the memory of all blocks of the cluster that lies which is `address` in this block, of block `rank`. Only the two stores below
// take such an address. Source: PTX ISA, "mapa".
__device__ __forceinline__ uint32_t mapa(uint32_t address, uint32_t rank) {
  needs_sm<90>();
  uint32_t mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

// Into another block's shared memory. That block sees it behind a cluster_sync. Source: PTX ISA, "st", .shared::cluster.
__device__ __forceinline__ void st_shared_cluster_b32(uint32_t mapped, uint32_t value) {
  needs_sm<90>();
  asm volatile("st.shared::cluster.b32 [%0], %1;" ::"r"(mapped), "r"(value) : "memory");
}

// The same without waiting: its 4 bytes count at an mbarrier of the same block, which must expect them, and whoever waits there sees
// them. Source: PTX ISA, "st.async".
__device__ __forceinline__ void st_async_b32(uint32_t mapped, uint32_t value, uint32_t mapped_mbarrier) {
  needs_sm<90>();
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(mapped), "r"(value),
               "r"(mapped_mbarrier)
               : "memory");
}

// cp_async_bulk_tensor_4d into several blocks of the cluster at once: bit r of `ranks` is block r. In each the box
// lands at the same address, and its bytes at the mbarrier of the same address, which must expect them. They may land
// before it does so, but not before that phase has begun: whoever asks has to know that all of these blocks are done
// with the phase before.
__device__ __forceinline__ void cp_async_bulk_tensor_4d_multicast(uint32_t shared_address, const TensorMap& map, int x,
                                                                  int y, int z, int w, uint32_t mbarrier,
                                                                  uint16_t ranks) {
  needs_sm_90a();
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%2, %3, %4, %5}], [%6], %7;" ::"r"(shared_address),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(mbarrier), "h"(ranks)
      : "memory");
}

}  // namespace ptx
