// The only header a kernel includes, but for those of words/, whose parts some say from 42 on. It brings the GPU's
// instructions as plain functions, one instruction each: for nvcc as inline PTX, for any other C++20 compiler as the
// emulator's twins of the same names and signatures.
//
// What a kernel may rely on, on both machines:
//   keywords   __global__ __device__ __forceinline__ __launch_bounds__ __grid_constant__ #pragma unroll
//   built-ins  threadIdx blockIdx blockDim gridDim __syncthreads() __syncwarp()
//   barriers   named_barrier_sync  named_barrier_arrive
//   mbarriers  mbarrier_init  mbarrier_inval  mbarrier_arrive  cp_async_mbarrier_arrive_noinc  mbarrier_wait_parity
//   memory     smem_base  smem_name  ld/st_shared_{b32,v2,v4}  ld/st_global_{f16,bf16,f32,b32,v4}  ld_global_s32
//              red_global_add_f32  atom_global_{add,inc}_u32  fence_acq_rel_gpu  red_release_add_u32  ld_acquire_wait_u32
//              createpolicy_evict_{first,last}, for ld_global_v4 and copies
//   copies     cp_async_16  cp_async_4  cp_async_commit  cp_async_wait
//   TMA        cp_async_bulk  cp_async_bulk_store  cp_reduce_async_bulk_add_f32
//              cp_async_bulk_tensor_{3d,4d}, from a TensorMap  mbarrier_arrive_expect_tx  fence_mbarrier_init
//              fence_proxy_async  fence_proxy_async_shared
//              cp_async_bulk_tensor_store_4d  cp_async_bulk_commit  cp_async_bulk_wait_read  cp_async_bulk_wait
//   clusters   cluster_rank  cluster_sync  mbarrier_arrive_remote  cp_async_bulk_tensor_4d_multicast
//              mapa  st_shared_cluster_b32  st_async_b32
//   tensor     ldmatrix_x4  ldmatrix_x2_trans  ldmatrix_x4_trans  stmatrix_x4  stmatrix_x4_trans  mma_m16n8k16{,_bf16}
//   wgmma      wgmma_descriptor  wgmma_advance  wgmma_fence  wgmma_{ss,rs}{,_bf16,_e4m3}  wgmma_ss_s8  wgmma_commit
//              wgmma_wait  setmaxnreg_dec  setmaxnreg_inc
//   wmma       wmma_fill  wmma_load_{a,b_row,b_col,c}  wmma_store_d  wmma_mma, on WmmaA WmmaB{Row,Col} WmmaAccumulator
//   numbers    pack_{f16,bf16,e4m3,e5m2}x2  unpack_{e4m3,e5m2}x2  sub_{f16,bf16}x2  prmt_b32  lop3_b32  to_float  to_f16  to_bf16  {ex2,lg2,rcp,tanh}_approx  saturate  max_nan  max3_s32  fmaxf  logf
//              __float_as_{uint,int}  __{uint,int}_as_float
//   lanes      shfl  shfl_xor  vote_any  elect_sync
//   words      quad_max  quad_sum  lane_max  mask_diagonal  scale_rows  scale_scores  exp2_weights{,_of}
//              store_scaled{,_part}  issue_QK  issue_PV  Ring: each is several instructions (words/warp.cuh)
//              pack  mma  st_global_rounded: one, of either element
//   launches   griddepcontrol_launch_dependents  griddepcontrol_wait
//   host side  launch  launch_clusters  launch_dependent  multiprocessors  tensor_map_{3d,4d,4d_e4m3}
//
// Shared memory is a 32-bit address, touched only through these functions, so that the emulator sees every access.
#pragma once
#include "common/attention.hpp"
#include "common/fragments.hpp"
#ifdef __CUDACC__
#include "common/ptx/barrier.cuh"
#include "common/ptx/cluster.cuh"
#include "common/ptx/convert.cuh"
#include "common/ptx/cp_async.cuh"
#include "common/ptx/cp_async_bulk.cuh"
#include "common/ptx/launch.cuh"
#include "common/ptx/mbarrier.cuh"
#include "common/ptx/memory.cuh"
#include "common/ptx/tensor_core.cuh"
#include "common/ptx/tensor_map.cuh"
#include "common/ptx/warp.cuh"
#include "common/ptx/wgmma.cuh"
#include "common/ptx/wmma.cuh"
#else
#include "common/emulator/gpu.hpp"
#endif
#include "common/words/warp.cuh"
