// One small kernel per GPU primitive. The same text runs on a GPU and on the emulator, on small integers, so that both
// must give the same bits. cases.hpp has the inputs, the launch shapes and the layout of what each kernel writes.
//
// Kernels read `in` and write `out` through plain pointers: a wrong st_global must not spoil the verdict on ldmatrix.
// Where data has to pass through shared memory first, it goes by the b32 accesses, which have cases of their own.
#pragma once
#include "common/gpu.cuh"

namespace {

// A permutation of the 32 lanes that is no power-of-two stride, so that a swapped or shifted lane shows.
__device__ __forceinline__ uint32_t scatter(uint32_t lane) {
  return lane * 5 % 32;
}

// An f32 and its bits.
union FloatBits {
  uint32_t bits;
  float value;
};

// A lane's four words.
__device__ __forceinline__ void write_v4(const uint4& value, uint32_t* out) {
  out[4 * threadIdx.x] = value.x;
  out[4 * threadIdx.x + 1] = value.y;
  out[4 * threadIdx.x + 2] = value.z;
  out[4 * threadIdx.x + 3] = value.w;
}

// ---- shared memory ----------------------------------------------------------------------------------------------

// Every thread of two warps reports where its shared memory begins, modulo the alignment that is promised.
__global__ void smem_base_case(const uint32_t*, uint32_t* out) {
  out[threadIdx.x] = smem_base() % 1024;
}

// A name is for reports only: the memory behaves as before.
__global__ void smem_name_case(const uint32_t* in, uint32_t* out) {
  const uint32_t own = smem_base() + 4 * threadIdx.x;
  smem_name(smem_base(), 128, "named");
  st_shared_b32(own, in[threadIdx.x]);
  out[threadIdx.x] = ld_shared_b32(own);
}

__global__ void ld_shared_b32_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  st_shared_b32(smem_base() + 4 * lane, in[lane]);
  __syncwarp();
  out[lane] = ld_shared_b32(smem_base() + 4 * scatter(lane));
}

__global__ void ld_shared_v2_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  for (uint32_t word = lane; word < 64; word += 32) st_shared_b32(smem_base() + 4 * word, in[word]);
  __syncwarp();
  const uint2 value = ld_shared_v2(smem_base() + 8 * scatter(lane));
  out[2 * lane] = value.x;
  out[2 * lane + 1] = value.y;
}

__global__ void ld_shared_v4_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  for (uint32_t word = lane; word < 128; word += 32) st_shared_b32(smem_base() + 4 * word, in[word]);
  __syncwarp();
  const uint4 value = ld_shared_v4(smem_base() + 16 * scatter(lane));
  write_v4(value, out);
}

__global__ void st_shared_b32_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  st_shared_b32(smem_base() + 4 * scatter(lane), in[lane]);
  __syncwarp();
  out[lane] = ld_shared_b32(smem_base() + 4 * lane);
}

__global__ void st_shared_v2_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  st_shared_v2(smem_base() + 8 * scatter(lane), uint2{in[2 * lane], in[2 * lane + 1]});
  __syncwarp();
  for (uint32_t word = lane; word < 64; word += 32) out[word] = ld_shared_b32(smem_base() + 4 * word);
}

__global__ void st_shared_v4_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  st_shared_v4(smem_base() + 16 * scatter(lane),
               uint4{in[4 * lane], in[4 * lane + 1], in[4 * lane + 2], in[4 * lane + 3]});
  __syncwarp();
  for (uint32_t word = lane; word < 128; word += 32) out[word] = ld_shared_b32(smem_base() + 4 * word);
}

// ---- global memory ----------------------------------------------------------------------------------------------

__global__ void ld_global_f16_case(const uint32_t* in, uint32_t* out) {
  const f16* halves = reinterpret_cast<const f16*>(in);
  out[threadIdx.x] = ld_global_f16(halves + scatter(threadIdx.x)).bits;
}

__global__ void ld_global_bf16_case(const uint32_t* in, uint32_t* out) {
  const bf16* elements = reinterpret_cast<const bf16*>(in);
  out[threadIdx.x] = ld_global_bf16(elements + scatter(threadIdx.x)).bits;
}

__global__ void ld_global_b32_case(const uint32_t* in, uint32_t* out) {
  out[threadIdx.x] = ld_global_b32(in + scatter(threadIdx.x));
}

__global__ void ld_global_f32_case(const uint32_t* in, uint32_t* out) {
  FloatBits loaded;
  loaded.value = ld_global_f32(reinterpret_cast<const float*>(in) + scatter(threadIdx.x));
  out[threadIdx.x] = loaded.bits;
}

__global__ void ld_global_s32_case(const uint32_t* in, uint32_t* out) {
  const int32_t* indices = reinterpret_cast<const int32_t*>(in);
  out[threadIdx.x] =
      static_cast<uint32_t>(ld_global_s32(indices + scatter(threadIdx.x)) / 2);  // towards 0, with a sign
}

__global__ void ld_global_v4_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  const uint4 value = ld_global_v4(in + 4 * scatter(lane));
  write_v4(value, out);
}

__global__ void st_global_f16_case(const uint32_t* in, uint32_t* out) {
  f16* halves = reinterpret_cast<f16*>(out);
  st_global_f16(halves + scatter(threadIdx.x), f16{static_cast<uint16_t>(in[threadIdx.x])});
}

__global__ void st_global_bf16_case(const uint32_t* in, uint32_t* out) {
  bf16* elements = reinterpret_cast<bf16*>(out);
  st_global_bf16(elements + scatter(threadIdx.x), bf16{static_cast<uint16_t>(in[threadIdx.x])});
}

__global__ void st_global_b32_case(const uint32_t* in, uint32_t* out) {
  st_global_b32(out + scatter(threadIdx.x), in[threadIdx.x]);
}

__global__ void st_global_f32_case(const uint32_t* in, uint32_t* out) {
  FloatBits stored;
  stored.bits = in[threadIdx.x];
  st_global_f32(reinterpret_cast<float*>(out) + scatter(threadIdx.x), stored.value);
}

__global__ void st_global_v4_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  st_global_v4(out + 4 * scatter(lane), uint4{in[4 * lane], in[4 * lane + 1], in[4 * lane + 2], in[4 * lane + 3]});
}

// Four warps add to the same 32 words, in any order, and each reads a word of all sums. The last word is subnormal, as is
// what is added to it.
__global__ void red_global_add_f32_case(const uint32_t* in, uint32_t* out) {
  const uint32_t thread = threadIdx.x;
  float* sums = reinterpret_cast<float*>(out);
  if (thread < 32) st_global_f32(sums + thread, 0.5f);
  if (thread == 0) st_global_f32(sums + 160, 0x1p-127f);
  __syncthreads();  // safe to add: the words hold 0.5
  if (thread == 0) red_global_add_f32(sums + 160, 0x1p-127f);
  red_global_add_f32(sums + scatter(thread % 32), static_cast<float>(in[thread]));
  __syncthreads();  // safe to read: every thread has added
  FloatBits sum;
  sum.value = ld_global_f32(sums + (thread + 1) % 32);
  out[32 + thread] = sum.bits;
}

// Four warps draw numbers, and their first lanes read a word and add to it in turn, each when those with lower numbers have.
__global__ void in_turn_case(const uint32_t* in, uint32_t* out) {
  uint32_t *const numbers = out, *const turn = out + 1, *const sum = out + 2;
  if (threadIdx.x < 8) st_global_b32(out + threadIdx.x, 0);
  __syncthreads();  // safe to add: the words hold 0
  if (threadIdx.x % 32 == 0) {
    const uint32_t number = atom_global_add_u32(numbers, 1);
    ld_acquire_wait_u32(turn, number);  // safe to add: those before have
    st_global_b32(out + 4 + number, atom_global_add_u32(sum, in[number]));
    red_release_add_u32(turn, 1);
  }
}

// 128 threads count in seven steps, from a word above the limit on, which is as good as the limit.
__global__ void atom_global_inc_u32_case(const uint32_t*, uint32_t* out) {
  if (threadIdx.x < 8) st_global_b32(out + threadIdx.x, 0);
  __syncthreads();  // safe to add: the words hold 0
  const uint32_t found = atom_global_inc_u32(out + 8, 6);
  atom_global_add_u32(out + (found < 7 ? found : 7), 1);
}

// Each of six blocks leaves 64 words, and the last one adds them up. The counter is above its limit at first.
__global__ void last_block_case(const uint32_t* in, uint32_t* out) {
  const uint32_t thread = threadIdx.x, own = blockIdx.x * 64 + thread;
  uint32_t *const counter = out, *const shares = out + 64, *const sums = shares + gridDim.x * 64;
  st_global_b32(shares + own, in[own]);
  __syncthreads();  // safe to tell of the block's words: every thread has stored
  if (thread == 0) {
    fence_acq_rel_gpu();  // hands on what the block has stored,
    const uint32_t before = atom_global_inc_u32(counter, gridDim.x - 1);
    fence_acq_rel_gpu();  // and knows what those before have
    st_shared_b32(smem_base(), before == gridDim.x - 2);
  }
  __syncthreads();  // safe to read what thread 0 knows
  if (ld_shared_b32(smem_base()) == 0) return;
  uint32_t sum = 0;
  for (uint32_t block = 0; block < gridDim.x; ++block) sum += ld_global_b32(shares + block * 64 + thread);
  st_global_b32(sums + thread, sum);
}

// A load with each of the two policies.
template <bool FIRST>
__global__ void ld_global_v4_policy_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  const uint4 value =
      ld_global_v4(in + 4 * scatter(lane), FIRST ? createpolicy_evict_first() : createpolicy_evict_last());
  write_v4(value, out);
}

// ---- asynchronous copies ----------------------------------------------------------------------------------------

// 16 bytes per lane, scattered.
__global__ void cp_async_16_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  cp_async_16(smem_base() + 16 * scatter(lane), in + 4 * lane);
  cp_async_commit();
  cp_async_wait<0>();
  __syncwarp();  // a lane reads what others have copied
  for (uint32_t word = lane; word < 128; word += 32) out[word] = ld_shared_b32(smem_base() + 4 * word);
}

// Of lane l's 16 bytes the first 5l mod 17, and zeros.
__global__ void cp_async_16_zero_fill_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  for (uint32_t word = lane; word < 128; word += 32) st_shared_b32(smem_base() + 4 * word, 0xdeadbeef);
  __syncwarp();  // safe to copy over what the lanes have stored
  cp_async_16(smem_base() + 16 * scatter(lane), in + 4 * lane, lane * 5 % 17);
  cp_async_commit();
  cp_async_wait<0>();
  __syncwarp();  // a lane reads what others have copied
  for (uint32_t word = lane; word < 128; word += 32) out[word] = ld_shared_b32(smem_base() + 4 * word);
}

// 4 bytes per lane, scattered; of odd lanes none, and zeros.
__global__ void cp_async_4_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  st_shared_b32(smem_base() + 4 * lane, 0xdeadbeef);
  __syncwarp();  // safe to copy over what the lanes have stored
  cp_async_4(smem_base() + 4 * scatter(lane), in + lane, lane % 2 == 0 ? 4 : 0);
  cp_async_commit();
  cp_async_wait<0>();
  __syncwarp();  // a lane reads what others have copied
  out[lane] = ld_shared_b32(smem_base() + 4 * lane);
}

// Two copies in one group and an empty group behind it: waiting for all but one group completes both copies.
__global__ void cp_async_commit_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x, own = smem_base() + 32 * lane;
  cp_async_16(own, in + 8 * lane);
  cp_async_16(own + 16, in + 8 * lane + 4);
  cp_async_commit();
  cp_async_commit();
  cp_async_wait<1>();
  for (uint32_t word = 0; word < 8; ++word) out[8 * lane + word] = ld_shared_b32(own + 4 * word);
}

// Three groups of one copy each; each wait lets the lane read one group more.
__global__ void cp_async_wait_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x, own = smem_base() + 48 * lane;
  for (uint32_t group = 0; group < 3; ++group) {
    cp_async_16(own + 16 * group, in + 12 * lane + 4 * group);
    cp_async_commit();
  }
  cp_async_wait<2>();
  for (uint32_t word = 0; word < 4; ++word) out[12 * lane + word] = ld_shared_b32(own + 4 * word);
  cp_async_wait<1>();
  for (uint32_t word = 4; word < 8; ++word) out[12 * lane + word] = ld_shared_b32(own + 4 * word);
  cp_async_wait<0>();
  for (uint32_t word = 8; word < 12; ++word) out[12 * lane + word] = ld_shared_b32(own + 4 * word);
}

// ---- barriers and launch ----------------------------------------------------------------------------------------

// Four warps; each thread reads what the thread 37 places on has stored, first one way, then the other way round.
__global__ void syncthreads_case(const uint32_t* in, uint32_t* out) {
  const uint32_t thread = threadIdx.x, threads = blockDim.x, partner = (thread + 37) % threads;
  st_shared_b32(smem_base() + 4 * thread, in[thread]);
  __syncthreads();  // safe to read the partner's word: every thread has stored
  out[thread] = ld_shared_b32(smem_base() + 4 * partner);
  __syncthreads();  // safe to overwrite: every thread has read
  st_shared_b32(smem_base() + 4 * partner, in[threads + thread]);
  __syncthreads();  // safe to read again: every thread has stored
  out[threads + thread] = ld_shared_b32(smem_base() + 4 * thread);
}

// The same within one warp.
__global__ void syncwarp_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x, partner = (lane + 13) % 32;
  st_shared_b32(smem_base() + 4 * lane, in[lane]);
  __syncwarp();  // safe to read the partner's word: every lane has stored
  out[lane] = ld_shared_b32(smem_base() + 4 * partner);
  __syncwarp();  // safe to overwrite: every lane has read
  st_shared_b32(smem_base() + 4 * partner, in[32 + lane]);
  __syncwarp();  // safe to read again: every lane has stored
  out[32 + lane] = ld_shared_b32(smem_base() + 4 * lane);
}

// Two pairs of warps, each pair with a barrier of its own, exchange words as above.
__global__ void named_barrier_sync_case(const uint32_t* in, uint32_t* out) {
  const uint32_t thread = threadIdx.x, pair = thread / 64, partner = pair * 64 + (thread + 37) % 64;
  st_shared_b32(smem_base() + 4 * thread, in[thread]);
  named_barrier_sync(1 + pair, 64);  // safe to read the partner's word: this pair of warps has stored
  out[thread] = ld_shared_b32(smem_base() + 4 * partner);
}

// Warp 0 fills a buffer and goes on; warp 1 waits for it, empties it, and lets warp 0 fill it again.
__global__ void named_barrier_arrive_case(const uint32_t* in, uint32_t* out) {
  constexpr uint32_t FULL = 1, EMPTY = 2;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t own = smem_base() + 4 * lane, partner = smem_base() + 4 * ((lane + 13) % 32);
  for (uint32_t round = 0; round < 3; ++round) {
    if (warp == 0) {
      if (round > 0) named_barrier_sync(EMPTY, 64);  // safe to overwrite: warp 1 has read
      st_shared_b32(own, in[32 * round + lane]);
      named_barrier_arrive(FULL, 64);
    } else {
      named_barrier_sync(FULL, 64);  // safe to read: warp 0 has stored
      out[32 * round + lane] = ld_shared_b32(partner);
      if (round < 2) named_barrier_arrive(EMPTY, 64);
    }
  }
}

// Three barriers of different counts, each completed by as many threads.
__global__ void mbarrier_init_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x, barriers = smem_base() + 128;
  const uint32_t counts[] = {1, 20, 32};
  for (uint32_t i = 0; i < 3; ++i) {
    if (lane == i) mbarrier_init(barriers + 8 * i, counts[i]);
  }
  __syncthreads();  // safe to use the barriers
  for (uint32_t i = 0; i < 3; ++i) {
    if (lane < counts[i]) st_shared_b32(smem_base() + 4 * lane, in[32 * i + lane]);
    if (lane < counts[i]) mbarrier_arrive(barriers + 8 * i);
    mbarrier_wait_parity(barriers + 8 * i, 0);  // safe to read: the first counts[i] lanes have stored
    out[32 * i + lane] = ld_shared_b32(smem_base() + 4 * (lane % counts[i]));
    __syncthreads();  // safe to store again: every lane has read
  }
}

// Warp 0 fills a buffer and goes on; warp 1 waits for it, empties it, and lets warp 0 fill it again.
__global__ void mbarrier_arrive_case(const uint32_t* in, uint32_t* out) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, full = smem_base() + 128, empty = full + 8;
  const uint32_t own = smem_base() + 4 * lane, partner = smem_base() + 4 * ((lane + 13) % 32);
  if (threadIdx.x == 0) mbarrier_init(full, 32);
  if (threadIdx.x == 0) mbarrier_init(empty, 32);
  __syncthreads();  // safe to use the barriers
  for (uint32_t round = 0; round < 5; ++round) {
    if (warp == 0) {
      mbarrier_wait_parity(empty, (round + 1) % 2);  // safe to overwrite: warp 1 has read; nothing to wait for at first
      st_shared_b32(own, in[32 * round + lane]);
      mbarrier_arrive(full);
    } else {
      mbarrier_wait_parity(full, round % 2);  // safe to read: warp 0 has stored
      out[32 * round + lane] = ld_shared_b32(partner);
      mbarrier_arrive(empty);
    }
  }
}

// One place, three barriers of 1, 20 and 32 arrivals, one after the other. In between it holds a word.
__global__ void mbarrier_inval_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x, barrier = smem_base() + 128;
  const uint32_t counts[] = {1, 20, 32};
  for (uint32_t i = 0; i < 3; ++i) {
    if (lane == i) mbarrier_init(barrier, counts[i]);
    __syncthreads();  // safe to use the barrier
    if (lane < counts[i]) st_shared_b32(smem_base() + 4 * lane, in[32 * i + lane]);
    if (lane < counts[i]) mbarrier_arrive(barrier);
    mbarrier_wait_parity(barrier, 0);  // safe to read: the first counts[i] lanes have stored
    const uint32_t read = ld_shared_b32(smem_base() + 4 * (lane % counts[i]));
    __syncthreads();  // safe to end the barrier: nobody uses it any more
    if (lane == 31 - i) {
      mbarrier_inval(barrier);
      st_shared_b32(barrier, 0);
    }
    __syncthreads();  // safe to read the word, and to store again
    out[32 * i + lane] = read + ld_shared_b32(barrier);
    __syncthreads();  // safe to make it a barrier again: every lane has read the word
  }
}

// Warp 0 copies two chunks a lane and arrives behind each; warp 1 reads one as soon as it is there, then the other. The
// second barrier's copies are those of the first as well.
__global__ void cp_async_mbarrier_arrive_noinc_case(const uint32_t* in, uint32_t* out) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, barriers = smem_base() + 1024;
  if (threadIdx.x < 2) mbarrier_init(barriers + 8 * threadIdx.x, 32);
  __syncthreads();  // safe to use the barriers
  for (uint32_t half = 0; half < 2; ++half) {
    const uint32_t data = smem_base() + 512 * half, barrier = barriers + 8 * half;
    if (warp == 0) {
      cp_async_16(data + 16 * scatter(lane), in + 128 * half + 4 * lane);
      cp_async_mbarrier_arrive_noinc(barrier);
    } else {
      mbarrier_wait_parity(barrier, 0);  // safe to read: all lanes' copies have landed
      for (uint32_t word = lane; word < 128; word += 32) out[128 * half + word] = ld_shared_b32(data + 4 * word);
    }
  }
  if (warp == 0) mbarrier_wait_parity(barriers + 8, 0);  // no copy is in flight at the end
}

// Four phases of one barrier: each wait lets through what its phase has brought. A new barrier lets parity 1 through.
__global__ void mbarrier_wait_parity_case(const uint32_t* in, uint32_t* out) {
  const uint32_t thread = threadIdx.x, barrier = smem_base() + 1024;
  if (thread == 0) mbarrier_init(barrier, 64);
  __syncthreads();                   // safe to use the barrier
  mbarrier_wait_parity(barrier, 1);  // "the phase before the first" is over
  for (uint32_t phase = 0; phase < 4; ++phase) {
    st_shared_b32(smem_base() + 256 * phase + 4 * thread, in[64 * phase + thread]);
    mbarrier_arrive(barrier);
    mbarrier_wait_parity(barrier, phase % 2);  // safe to read: both warps have stored
    out[64 * phase + thread] = ld_shared_b32(smem_base() + 256 * phase + 4 * ((thread + 37) % 64));
  }
}

// Which thread of which block am I, as one decimal number per thread: grid 3 x 2, block 32.
__global__ void launch_case(const uint32_t*, uint32_t* out) {
  const uint32_t block = blockIdx.y * gridDim.x + blockIdx.x;
  out[block * blockDim.x + threadIdx.x] =
      ((blockIdx.y * 10 + blockIdx.x) * 100 + threadIdx.x) * 10000 + gridDim.y * 1000 + gridDim.x * 100 + blockDim.x;
}

// The first of two launches lets the second one begin, and then stores what that one waits for and reads.
__global__ void before_dependents_case(const uint32_t* in, uint32_t* out) {
  griddepcontrol_launch_dependents();
  const uint32_t own = blockIdx.x * blockDim.x + threadIdx.x;
  st_global_b32(out + own, in[own]);
}
__global__ void dependent_case(uint32_t* out) {
  griddepcontrol_wait();  // safe to read: the first launch is over
  const uint32_t threads = gridDim.x * blockDim.x, own = blockIdx.x * blockDim.x + threadIdx.x;
  st_global_b32(out + threads + own, ld_global_b32(out + (own + 37) % threads));
}

// ---- bulk copies ------------------------------------------------------------------------------------------------
// The tensor is a matrix of MAP_ROWS x 128 halves, its columns in two halves: 64 x MAP_ROWS x 2. A box of 12 rows, so
// that the second half begins in the middle of the swizzle.

constexpr uint32_t MAP_ROWS = 20, BOX_ROWS = 12, BOX_BYTES = 2 * BOX_ROWS * 128, BOX_ROOM = 4096;

// A box inside the tensor, then three that hang over its edges: right and below, left and above, behind.
__global__ void cp_async_bulk_tensor_3d_case(const __grid_constant__ TensorMap map, uint32_t* out) {
  const uint32_t barrier = smem_base() + 4 * BOX_ROOM;
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(barrier, 4 * BOX_BYTES);
    cp_async_bulk_tensor_3d(smem_base(), map, 0, 3, 0, barrier);
    cp_async_bulk_tensor_3d(smem_base() + BOX_ROOM, map, 24, 13, 0, barrier);
    cp_async_bulk_tensor_3d(smem_base() + 2 * BOX_ROOM, map, -8, -5, 0, barrier);
    cp_async_bulk_tensor_3d(smem_base() + 3 * BOX_ROOM, map, 0, 4, 1, barrier);
  }
  __syncthreads();                   // safe to use the barrier
  mbarrier_wait_parity(barrier, 0);  // safe to read: all four boxes have landed
  for (uint32_t box = 0; box < 4; ++box) {
    for (uint32_t i = threadIdx.x; i < BOX_BYTES / 4; i += blockDim.x)
      out[box * BOX_BYTES / 4 + i] = ld_shared_b32(smem_base() + box * BOX_ROOM + 4 * i);
  }
}

// Three phases of a box and two arrivals each: the one expects the box, the other is a plain one.
__global__ void mbarrier_arrive_expect_tx_case(const __grid_constant__ TensorMap map, uint32_t* out) {
  const uint32_t thread = threadIdx.x, stored = smem_base() + BOX_ROOM, barrier = stored + 8;
  if (thread == 0) {
    mbarrier_init(barrier, 2);
    fence_mbarrier_init();
  }
  __syncthreads();  // safe to use the barrier
  for (uint32_t phase = 0; phase < 3; ++phase) {
    if (thread == 0) {
      mbarrier_arrive_expect_tx(barrier, BOX_BYTES);
      cp_async_bulk_tensor_3d(smem_base(), map, 0, static_cast<int>(4 * phase), 0, barrier);
    }
    if (thread == 32) {
      st_shared_b32(stored, phase);
      mbarrier_arrive(barrier);
    }
    mbarrier_wait_parity(barrier, phase % 2);  // safe to read: the box has landed, thread 32 has stored
    out[64 * phase + thread] = thread == 0 ? ld_shared_b32(stored) : ld_shared_b32(smem_base() + 48 * thread);
    __syncthreads();  // safe to overwrite: every thread has read
  }
}

// The same tensor as two heads of ROWS_4D rows. A box that ends in the next head, where zeros must be.
constexpr uint32_t ROWS_4D = MAP_ROWS / 2, BOX_ROWS_4D = 8, BOX_BYTES_4D = 2 * BOX_ROWS_4D * 128;

template <bool POLICY, int X = 8>  // 16 bytes
__global__ void cp_async_bulk_tensor_4d_case(const __grid_constant__ TensorMap map, uint32_t* out) {
  const uint32_t barrier = smem_base() + 2 * BOX_BYTES_4D;
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(barrier, 2 * BOX_BYTES_4D);
    if (!POLICY) cp_async_bulk_tensor_4d(smem_base(), map, 0, 1, 0, 1, barrier);
    if (POLICY) cp_async_bulk_tensor_4d(smem_base(), map, 0, 1, 0, 1, barrier, createpolicy_evict_last());
    cp_async_bulk_tensor_4d(smem_base() + BOX_BYTES_4D, map, X, 5, 0, 0, barrier);
  }
  __syncthreads();                   // safe to use the barrier
  mbarrier_wait_parity(barrier, 0);  // safe to read: both boxes have landed
  for (uint32_t i = threadIdx.x; i < 2 * BOX_BYTES_4D / 4; i += blockDim.x) out[i] = ld_shared_b32(smem_base() + 4 * i);
}

// Stores boxes of pairs first + 2i, first + 2i + 1, as they are counted in shared memory. The map is one of `out`.
__device__ __forceinline__ void fill_box(uint32_t address, uint32_t first) {
  for (uint32_t i = threadIdx.x; i < BOX_BYTES_4D / 4; i += blockDim.x)
    st_shared_b32(address + 4 * i, (first + 2 * i) | (first + 2 * i + 1) << 16);
  fence_proxy_async_shared();  // the copy engine will find what this thread has stored
  __syncthreads();             // safe to copy: every thread has stored
}
__global__ void cp_async_bulk_tensor_store_4d_case(const __grid_constant__ TensorMap map, uint32_t*) {
  fill_box(smem_base(), 1);
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_store_4d(map, 0, 5, 0, 1, smem_base());  // its last rows are outside
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();
  }
}
// Two groups from two boxes; of the first the wait says that its box may be filled again, for a third.
__global__ void cp_async_bulk_wait_read_case(const __grid_constant__ TensorMap map, uint32_t*) {
  fill_box(smem_base(), 1);
  fill_box(smem_base() + BOX_BYTES_4D, 0x1001);
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_store_4d(map, 0, 0, 0, 0, smem_base());
    cp_async_bulk_commit();
    cp_async_bulk_tensor_store_4d(map, 0, 8, 0, 0, smem_base() + BOX_BYTES_4D);
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<1>();
  }
  __syncthreads();  // safe to fill: the box has been read
  fill_box(smem_base(), 0x2001);
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_store_4d(map, 0, 0, 0, 1, smem_base());
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();
  }
}
// What has been waited for can be read, and then written over.
__global__ void cp_async_bulk_wait_case(const __grid_constant__ TensorMap map, uint32_t* out) {
  fill_box(smem_base(), 1);
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_store_4d(map, 0, 0, 0, 0, smem_base());
    cp_async_bulk_commit();
    cp_async_bulk_wait<0>();
    for (uint32_t i = 0; i < 32; ++i) st_global_b32(out + i, ld_global_b32(out + i) + 0x10001);
  }
}

// The first half of 128 words behind the second half, which is two copies of 64 and 192 bytes. in -> shared memory.
template <bool POLICY>
__global__ void cp_async_bulk_case(const uint32_t* in, uint32_t* out) {
  const uint32_t barrier = smem_base() + 512;
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(barrier, 512);
    if (!POLICY) cp_async_bulk(smem_base() + 256, in, 256, barrier);
    if (POLICY) cp_async_bulk(smem_base() + 256, in, 256, barrier, createpolicy_evict_first());
    cp_async_bulk(smem_base(), in + 64, 64, barrier);
    cp_async_bulk(smem_base() + 64, in + 80, 192, barrier);
  }
  __syncthreads();                   // safe to use the barrier
  mbarrier_wait_parity(barrier, 0);  // safe to read: all three have landed
  for (uint32_t word = threadIdx.x; word < 128; word += blockDim.x) out[word] = ld_shared_b32(smem_base() + 4 * word);
}

// Stores 128 words of `in` for the copy engine.
__device__ __forceinline__ void fill_words(const uint32_t* in) {
  for (uint32_t word = threadIdx.x; word < 128; word += blockDim.x) st_shared_b32(smem_base() + 4 * word, in[word]);
  fence_proxy_async_shared();  // the copy engine will find what this thread has stored
  __syncthreads();             // safe to copy: every thread has stored
}
// The same ways back, and 64 bytes that nobody writes.
__global__ void cp_async_bulk_store_case(const uint32_t* in, uint32_t* out) {
  fill_words(in);
  if (threadIdx.x == 0) {
    cp_async_bulk_store(out + 80, smem_base(), 256);
    cp_async_bulk_store(out, smem_base() + 256, 64);
    cp_async_bulk_store(out + 16, smem_base() + 320, 192);
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();
  }
}
// Adds 128 floats to 0.5 each. When they have been read other floats take their place, and the first 64 of them are added
// to the last 64 sums; when all have landed every thread makes one of them 1 more. Behind them are four subnormal ones, to
// which as many are added.
__global__ void cp_reduce_async_bulk_add_f32_case(const uint32_t* in, uint32_t* out) {
  float* sums = reinterpret_cast<float*>(out);
  for (uint32_t i = threadIdx.x; i < 132; i += blockDim.x) st_global_f32(sums + i, i < 128 ? 0.5f : 0x1p-127f);
  if (threadIdx.x < 4) st_shared_b32(smem_base() + 512 + 4 * threadIdx.x, 1u << 22);  // 2^-127
  fence_proxy_async();                                                                // of global memory too
  fill_words(in);
  if (threadIdx.x == 0) {
    cp_reduce_async_bulk_add_f32(sums, smem_base(), 528);
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();
  }
  __syncthreads();  // safe to fill: the floats have been read
  fill_words(in + 128);
  if (threadIdx.x == 0) {
    cp_reduce_async_bulk_add_f32(sums + 64, smem_base(), 256);
    cp_async_bulk_commit();
    cp_async_bulk_wait<0>();
  }
  __syncthreads();  // safe to read and to write: the sums are there
  st_global_f32(sums + 2 * threadIdx.x, ld_global_f32(sums + 2 * threadIdx.x) + 1.0f);
}

// Each of two blocks brings a box to both.
__global__ void cp_async_bulk_tensor_4d_multicast_case(const __grid_constant__ TensorMap map, uint32_t* out) {
  const uint32_t barrier = smem_base() + 2 * BOX_BYTES_4D, rank = cluster_rank();
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(barrier, 2 * BOX_BYTES_4D);
  }
  cluster_sync();  // safe to copy: the barriers of both blocks are there
  if (threadIdx.x == 0) {
    const int head = static_cast<int>(rank);
    cp_async_bulk_tensor_4d_multicast(smem_base() + rank * BOX_BYTES_4D, map, 0, 1, 0, head, barrier, 3);
  }
  mbarrier_wait_parity(barrier, 0);  // safe to read: both boxes have landed
  for (uint32_t i = threadIdx.x; i < 2 * BOX_BYTES_4D / 4; i += blockDim.x)
    out[rank * 2 * BOX_BYTES_4D / 4 + i] = ld_shared_b32(smem_base() + 4 * i);
  cluster_sync();  // safe to end: nobody copies to this block any more
}

// Two threads with a barrier and a box each.
__global__ void fence_mbarrier_init_case(const __grid_constant__ TensorMap map, uint32_t* out) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t barriers = smem_base() + 2 * BOX_ROOM, own = barriers + 8 * warp, other = barriers + 8 * (1 - warp);
  if (lane == 0) {
    mbarrier_init(own, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(own, BOX_BYTES);
    cp_async_bulk_tensor_3d(smem_base() + warp * BOX_ROOM, map, 0, static_cast<int>(8 * warp), 0, own);
  }
  __syncthreads();                 // safe to use the other warp's barrier
  mbarrier_wait_parity(other, 0);  // safe to read: its box has landed
  for (uint32_t i = lane; i < 128; i += 32)
    out[128 * warp + i] = ld_shared_b32(smem_base() + (1 - warp) * BOX_ROOM + 4 * i);
}

// Two warps store words all over the room, and the copy engine brings a box over them. The fence stands with those who
// store, or with the one who asks for the box.
template <bool SHARED, bool WRITERS>
__device__ __forceinline__ void box_over_stores(const TensorMap& map, uint32_t* out) {
  const uint32_t barrier = smem_base() + BOX_ROOM;
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
  }
  for (uint32_t i = threadIdx.x; i < BOX_ROOM / 4; i += blockDim.x) st_shared_b32(smem_base() + 4 * i, i);
  if (WRITERS) SHARED ? fence_proxy_async_shared() : fence_proxy_async();
  __syncthreads();  // safe to overwrite: every thread has stored
  if (threadIdx.x == 0) {
    if (!WRITERS) SHARED ? fence_proxy_async_shared() : fence_proxy_async();
    mbarrier_arrive_expect_tx(barrier, BOX_BYTES);
    cp_async_bulk_tensor_3d(smem_base(), map, 0, 8, 0, barrier);
  }
  mbarrier_wait_parity(barrier, 0);  // safe to read: the box has landed
  for (uint32_t i = threadIdx.x; i < BOX_BYTES / 4; i += blockDim.x) out[i] = ld_shared_b32(smem_base() + 4 * i);
}
__global__ void fence_proxy_async_shared_case(const __grid_constant__ TensorMap map, uint32_t* out) {
  box_over_stores<true, true>(map, out);
}
__global__ void fence_proxy_async_case(const __grid_constant__ TensorMap map, uint32_t* out) {
  box_over_stores<false, false>(map, out);
}

// ---- warp -------------------------------------------------------------------------------------------------------

__global__ void shfl_xor_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  const float own = static_cast<float>(in[lane]);
  const int masks[] = {1, 2, 4, 8, 16, 31};
  for (uint32_t i = 0; i < 6; ++i) out[i * 32 + lane] = static_cast<uint32_t>(shfl_xor(own, masks[i]));
}

__global__ void shfl_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  const int from[] = {0, 31, int(lane * 7 + 3), int(lane) - 5};  // one for all, and each its own; modulo 32
  for (uint32_t i = 0; i < 4; ++i) out[i * 32 + lane] = shfl(in[lane], from[i]);
}

__global__ void vote_any_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  for (uint32_t i = 0; i < 3; ++i) out[i * 32 + lane] = vote_any(in[i * 32 + lane] != 0);
}

// ---- tensor cores -----------------------------------------------------------------------------------------------

// Stores the row (16 bytes at in + 4 * lane) that this lane addresses, at a scattered place; returns its address.
__device__ __forceinline__ uint32_t store_matrix_row(const uint32_t* in) {
  const uint32_t lane = threadIdx.x, row_address = smem_base() + 16 * scatter(lane);
  for (uint32_t word = 0; word < 4; ++word) st_shared_b32(row_address + 4 * word, in[4 * lane + word]);
  __syncwarp();  // safe to load matrices: every lane has stored its row
  return row_address;
}

__global__ void ldmatrix_x4_case(const uint32_t* in, uint32_t* out) {
  uint32_t matrices[4];
  ldmatrix_x4(matrices, store_matrix_row(in));
  for (uint32_t i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = matrices[i];
}

// Lanes 16..31 pass a row of the wrong matrix: their addresses must not matter.
__global__ void ldmatrix_x2_trans_case(const uint32_t* in, uint32_t* out) {
  uint32_t matrices[2];
  ldmatrix_x2_trans(matrices, store_matrix_row(in));
  for (uint32_t i = 0; i < 2; ++i) out[2 * threadIdx.x + i] = matrices[i];
}

__global__ void ldmatrix_x4_trans_case(const uint32_t* in, uint32_t* out) {
  uint32_t matrices[4];
  ldmatrix_x4_trans(matrices, store_matrix_row(in));
  for (uint32_t i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = matrices[i];
}

// D = A B + C on whole matrices, one word per element: in = A[16 x 16], B[16 x 8] (f16 or bf16 bits), C[16 x 8]
// (integers). With a C of its own, out = D and what is in C afterwards.
template <bool OWN_C, bool BF16 = false>
__global__ void mma_m16n8k16_case(const uint32_t* in, uint32_t* out) {
  const int lane = static_cast<int>(threadIdx.x);
  const uint32_t *A = in, *B = A + 16 * 16, *C = B + 16 * 8;
  uint32_t a[4] = {}, b[2] = {};
  float c[4];
  for (int i = 0; i < FragmentA::ELEMENTS; ++i) {
    a[i / 2] |= A[FragmentA::row(lane, i) * FragmentA::COLS + FragmentA::col(lane, i)] << (16 * (i % 2));
  }
  for (int i = 0; i < FragmentB::ELEMENTS; ++i) {
    b[i / 2] |= B[FragmentB::row(lane, i) * FragmentB::COLS + FragmentB::col(lane, i)] << (16 * (i % 2));
  }
  for (int i = 0; i < FragmentC::ELEMENTS; ++i) {
    const uint32_t integer = C[FragmentC::row(lane, i) * FragmentC::COLS + FragmentC::col(lane, i)];
    c[i] = static_cast<float>(static_cast<int32_t>(integer));
  }
  float d[4] = {};
  if constexpr (BF16) {
    if (OWN_C) mma_m16n8k16_bf16(d, a, b[0], b[1], c);
    if (!OWN_C) mma_m16n8k16_bf16(c, a, b[0], b[1]);
  } else {
    if (OWN_C) mma_m16n8k16(d, a, b[0], b[1], c);
    if (!OWN_C) mma_m16n8k16(c, a, b[0], b[1]);
  }
  for (int i = 0; i < FragmentC::ELEMENTS; ++i) {
    const int element = FragmentC::row(lane, i) * FragmentC::COLS + FragmentC::col(lane, i);
    out[element] = static_cast<uint32_t>(static_cast<int32_t>(OWN_C ? d[i] : c[i]));
    if (OWN_C) out[16 * 8 + element] = static_cast<uint32_t>(static_cast<int32_t>(c[i]));
  }
}

template <bool TRANSPOSED>
__global__ void stmatrix_x4_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  uint32_t matrices[4];
  for (uint32_t i = 0; i < 4; ++i) matrices[i] = in[4 * lane + i];
  if (!TRANSPOSED) stmatrix_x4(smem_base() + 16 * scatter(lane), matrices);
  if (TRANSPOSED) stmatrix_x4_trans(smem_base() + 16 * scatter(lane), matrices);
  __syncwarp();  // safe to read: the warp has stored
  for (uint32_t word = lane; word < 128; word += 32) out[word] = ld_shared_b32(smem_base() + 4 * word);
}

// Which lane it is, nobody may say; that it is one, and the same one again, is all.
__global__ void elect_sync_case(const uint32_t*, uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  const bool first = elect_sync(), second = elect_sync();
  float elected = first ? 1.0f : 0.0f;
  for (int mask = 1; mask < 32; mask *= 2) elected += shfl_xor(elected, mask);
  out[lane] = static_cast<uint32_t>(elected);
  out[32 + lane] = first == second;
}

// ---- wgmma ------------------------------------------------------------------------------------------------------
// A[64 x 64] and B[64 x N] are small integers, stored as the copy engine would: in panels of 64 columns, swizzled. A
// product is four instructions, 16 of k each.

constexpr uint32_t WGMMA_K = 64, WGMMA_A_BYTES = 64 * WGMMA_K * 2, WGMMA_MAX_N = 256;
constexpr uint32_t WGMMA_SMEM = WGMMA_A_BYTES + WGMMA_MAX_N * WGMMA_K * 2;

__device__ __forceinline__ uint32_t swizzled(uint32_t row, uint32_t column) {  // in a panel, of a pair of halves
  return row * 128 + ((column / 8) ^ (row % 8)) * 16 + (column % 8) * 2;
}
__device__ __forceinline__ uint32_t wgmma_B() {
  return smem_base() + WGMMA_A_BYTES;
}
// in: A, row by row, two halves to a word, or four bytes, then B's columns (K-major) or its rows (MN-major), rows of 64 or of N
// halves.
template <int N, bool TRANS_B>
__device__ __forceinline__ void store_operands(const uint32_t* in) {
  for (uint32_t i = threadIdx.x; i < 64 * WGMMA_K / 2; i += blockDim.x)
    st_shared_b32(smem_base() + swizzled(i / 32, i % 32 * 2), in[i]);
  const uint32_t* const b = in + 64 * WGMMA_K / 2;
  for (uint32_t i = threadIdx.x; i < N * WGMMA_K / 2; i += blockDim.x) {
    const uint32_t row = TRANS_B ? i / (N / 2) : i / 32, column = (TRANS_B ? i % (N / 2) : i % 32) * 2;
    st_shared_b32(wgmma_B() + column / 64 * WGMMA_K * 128 + swizzled(row, column % 64), b[i]);
  }
  fence_proxy_async_shared();  // the tensor cores will find what this thread has stored
  __syncthreads();             // safe to multiply: every thread has stored
}

template <class A, class B>
inline constexpr bool is_same = false;
template <class A>
inline constexpr bool is_same<A, A> = true;

template <int N, bool TRANS_B, class Element, class Sum>
__device__ __forceinline__ void multiply_operands(Sum (&d)[N / 8][4]) {
  const uint64_t a = wgmma_descriptor(smem_base());
  const uint64_t b = wgmma_descriptor(wgmma_B(), TRANS_B ? WGMMA_K * 128 : 16);
#pragma unroll
  for (uint32_t slice = 0; slice < 4; ++slice) {
    const uint64_t a_slice = wgmma_advance(a, slice * 32), b_slice = wgmma_advance(b, slice * (TRANS_B ? 2048 : 32));
    if constexpr (is_same<Element, f16>) wgmma_ss<TRANS_B>(d, a_slice, b_slice, slice > 0);
    if constexpr (is_same<Element, bf16>) wgmma_ss_bf16<TRANS_B>(d, a_slice, b_slice, slice > 0);
    if constexpr (is_same<Element, e4m3>) wgmma_ss_e4m3(d, a_slice, b_slice, slice > 0);
    if constexpr (is_same<Element, int8_t>) wgmma_ss_s8(d, a_slice, b_slice, slice > 0);
  }
}

// D as integers, row by row.
template <int N, class Sum>
__device__ __forceinline__ void write_product(const Sum (&d)[N / 8][4], uint32_t* out) {
  const uint32_t warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll
  for (uint32_t i = 0; i < N / 2; ++i) {
    const uint32_t row = warp * 16 + static_cast<uint32_t>(FragmentC::row(static_cast<int>(lane), i % 4));
    const uint32_t column = i / 4 * 8 + static_cast<uint32_t>(FragmentC::col(static_cast<int>(lane), i % 4));
    out[row * N + column] = static_cast<uint32_t>(static_cast<int32_t>(d[i / 4][i % 4]));
  }
}
// Of a wide D the sum of a thread's elements in each of its two rows, times their columns: 256 words.
template <int N, class Sum>
__device__ __forceinline__ void write_sums(const Sum (&d)[N / 8][4], uint32_t* out) {
  uint32_t sums[2] = {};
#pragma unroll
  for (uint32_t i = 0; i < N / 2; ++i) {
    const uint32_t column =
        i / 4 * 8 + static_cast<uint32_t>(FragmentC::col(static_cast<int>(threadIdx.x % 32), i % 4));
    sums[i / 2 % 2] += static_cast<uint32_t>(static_cast<int32_t>(d[i / 4][i % 4])) * (column + 1);
  }
  out[2 * threadIdx.x] = sums[0];
  out[2 * threadIdx.x + 1] = sums[1];
}

template <int N, bool TRANS_B, class Element = f16, class Sum = float>
__global__ void wgmma_ss_case(const uint32_t* in, uint32_t* out) {
  store_operands<N, TRANS_B>(in);
  Sum d[N / 8][4];
  wgmma_fence(d);
  multiply_operands<N, TRANS_B, Element>(d);
  wgmma_commit();
  wgmma_wait<0>(d);
  if constexpr (N == 64) {
    write_product<N>(d, out);
  } else {
    write_sums<N>(d, out);
  }
}

// A by ldmatrix from where the others read it.
template <int N, bool TRANS_B, class Element = f16>
__global__ void wgmma_rs_case(const uint32_t* in, uint32_t* out) {
  store_operands<N, TRANS_B>(in);
  const uint32_t row = threadIdx.x / 32 * 16 + threadIdx.x % 16, chunk = threadIdx.x % 32 / 16;
  uint32_t a[4][4];
#pragma unroll
  for (uint32_t slice = 0; slice < 4; ++slice)
    ldmatrix_x4(a[slice], smem_base() + swizzled(row, (2 * slice + chunk) * 8));
  float d[N / 8][4];
  const uint64_t b = wgmma_descriptor(wgmma_B(), TRANS_B ? WGMMA_K * 128 : 16);
  wgmma_fence(d, a);
#pragma unroll
  for (uint32_t slice = 0; slice < 4; ++slice) {
    const uint64_t b_slice = wgmma_advance(b, slice * (TRANS_B ? 2048 : 32));
    if constexpr (is_same<Element, f16>) wgmma_rs<TRANS_B>(d, a[slice], b_slice, slice > 0);
    if constexpr (is_same<Element, bf16>) wgmma_rs_bf16<TRANS_B>(d, a[slice], b_slice, slice > 0);
    if constexpr (is_same<Element, e4m3>) wgmma_rs_e4m3(d, a[slice], b_slice, slice > 0);
  }
  wgmma_commit();
  wgmma_wait<0>(d, a);
  if constexpr (N == 64) {
    write_product<N>(d, out);
  } else {
    write_sums<N>(d, out);
  }
}

__global__ void wgmma_descriptor_case(const uint32_t* in, uint32_t* out) {
  const uint64_t descriptor = wgmma_descriptor(in[2 * threadIdx.x], in[2 * threadIdx.x + 1]);
  out[2 * threadIdx.x] = static_cast<uint32_t>(descriptor);
  out[2 * threadIdx.x + 1] = static_cast<uint32_t>(descriptor >> 32);
}

__global__ void wgmma_advance_case(const uint32_t* in, uint32_t* out) {
  const uint64_t descriptor = wgmma_advance(wgmma_descriptor(in[2 * threadIdx.x], 8192), in[2 * threadIdx.x + 1]);
  out[2 * threadIdx.x] = static_cast<uint32_t>(descriptor);
  out[2 * threadIdx.x + 1] = static_cast<uint32_t>(descriptor >> 32);
}

// The accumulators are a thread's own twice: they begin with its number, and are doubled between two products on top of
// them.
__global__ void wgmma_fence_case(const uint32_t* in, uint32_t* out) {
  store_operands<64, false>(in);
  const uint64_t a = wgmma_descriptor(smem_base()), b = wgmma_descriptor(wgmma_B());
  float d[8][4];
  for (auto& tile : d) {
    for (float& element : tile) element = static_cast<float>(threadIdx.x);
  }
  for (uint32_t time = 0; time < 2; ++time) {
    wgmma_fence(d);
    wgmma_ss(d, wgmma_advance(a, time * 32), wgmma_advance(b, time * 32));
    wgmma_commit();
    wgmma_wait<0>(d);
    if (time > 0) break;
    for (auto& tile : d) {
      for (float& element : tile) element *= 2.0f;
    }
  }
  write_product<64>(d, out);
}

// Three groups, of one slice of k, of two and of none: which of them two waits cover.
template <bool ALL>
__device__ __forceinline__ void groups_case(const uint32_t* in, uint32_t* out) {
  store_operands<64, false>(in);
  const uint64_t a = wgmma_descriptor(smem_base()), b = wgmma_descriptor(wgmma_B());
  float one[8][4], two[8][4];
  wgmma_fence(one, two);
  wgmma_ss(one, a, b, false);
  wgmma_commit();
  wgmma_ss(two, wgmma_advance(a, 32), wgmma_advance(b, 32), false);
  wgmma_ss(two, wgmma_advance(a, 64), wgmma_advance(b, 64));
  wgmma_commit();
  if (ALL) {
    wgmma_commit();
    wgmma_wait<1>(one, two);
  } else {
    wgmma_wait<1>(one);
  }
  write_product<64>(one, out);
  wgmma_wait<0>(two);
  write_product<64>(two, out + 64 * 64);
}
__global__ void wgmma_commit_case(const uint32_t* in, uint32_t* out) {
  groups_case<true>(in, out);
}
__global__ void wgmma_wait_case(const uint32_t* in, uint32_t* out) {
  groups_case<false>(in, out);
}

// Three warpgroups: the first gives registers away, the others take them.
template <int FEWER, int MORE>
__global__ void __launch_bounds__(384, 1) setmaxnreg_case(const uint32_t* in, uint32_t* out) {
  if (threadIdx.x < 128) {
    setmaxnreg_dec<FEWER>();
    out[threadIdx.x] = in[threadIdx.x];
  } else {
    setmaxnreg_inc<MORE>();
    out[threadIdx.x] = in[threadIdx.x] + 1;
  }
}

// ---- clusters ---------------------------------------------------------------------------------------------------

__global__ void cluster_rank_case(const uint32_t*, uint32_t* out) {
  out[blockIdx.x * 32 + threadIdx.x] = 100 * cluster_rank() + threadIdx.x;
}

__global__ void launch_clusters_case(const uint32_t*, uint32_t* out) {
  const uint32_t block = blockIdx.y * gridDim.x + blockIdx.x;
  out[block * 32 + threadIdx.x] =
      ((blockIdx.y * 10 + blockIdx.x) * 10 + cluster_rank()) * 1000 + gridDim.x * 100 + threadIdx.x;
}

// Lane l of block r stores into block r + DISTANCE.
template <uint32_t DISTANCE>
__global__ void st_shared_cluster_b32_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x, rank = cluster_rank(), there = smem_base() + 4 * scatter(lane);
  cluster_sync();  // safe to store: every block has begun
  st_shared_cluster_b32(mapa(there, (rank + DISTANCE) % 4), in[32 * rank + lane]);
  cluster_sync();  // safe to read: every block has stored
  out[32 * rank + lane] = ld_shared_b32(smem_base() + 4 * lane);
}

// The same in two phases, as late as an mbarrier says that the words have come.
__global__ void st_async_b32_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x, rank = cluster_rank(), next = (rank + 1) % 4, barrier = smem_base() + 128;
  if (lane == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
  }
  cluster_sync();  // safe to store: all barriers are there
  for (uint32_t phase = 0; phase < 2; ++phase) {
    const uint32_t word = 64 * rank + 32 * phase + lane;
    if (lane == 0) mbarrier_arrive_expect_tx(barrier, 128);
    st_async_b32(mapa(smem_base() + 4 * scatter(lane), next), in[word], mapa(barrier, next));
    mbarrier_wait_parity(barrier, phase);  // safe to read: the lanes of the block before have stored
    out[word] = ld_shared_b32(smem_base() + 4 * lane);
    __syncwarp();
    cluster_sync();  // safe to store again, or to end: every block has read
  }
}

// Block r's lane l arrives at the barrier of block r + DISTANCE, which two phases of 32 arrivals must let through.
template <uint32_t DISTANCE>
__global__ void mbarrier_arrive_remote_case(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x, rank = cluster_rank(), barrier = smem_base();
  if (lane == 0) {
    mbarrier_init(barrier, 32);
    fence_mbarrier_init();
  }
  cluster_sync();  // safe to arrive: all barriers are there
  for (uint32_t phase = 0; phase < 2; ++phase) {
    mbarrier_arrive_remote(barrier, (rank + DISTANCE) % 4);
    mbarrier_wait_parity(barrier, phase);  // the lanes of block r - DISTANCE have arrived
    out[64 * rank + 32 * phase + lane] = in[64 * rank + 32 * phase + lane];
    cluster_sync();  // safe to arrive again, or to end: every block has seen this phase
  }
}

// ---- wmma -------------------------------------------------------------------------------------------------------
// Nobody may say which lane holds what of a fragment. So a loaded operand is multiplied by the identity, and every
// result goes back through shared memory. Leading dimensions are wider than the matrix, so that a mixed-up one shows.

constexpr uint32_t F16_LD = 48, F16_BYTES = 16 * F16_LD * 2;  // of a matrix in shared memory
constexpr uint32_t F32_LD = 24, F32_BYTES = 16 * F32_LD * 4;

// Stores a matrix of 16 rows, `row_words` 32-bit words each, into shared memory. `word` gives word (row, column).
template <class Word>
__device__ __forceinline__ void store_matrix(uint32_t address, uint32_t row_words, uint32_t row_bytes, Word word) {
  for (uint32_t i = threadIdx.x; i < 16 * row_words; i += 32)
    st_shared_b32(address + i / row_words * row_bytes + i % row_words * 4, word(i / row_words, i % row_words));
  __syncwarp();  // safe to load the matrix: every lane has stored its words
}
__device__ __forceinline__ void store_f16_matrix(uint32_t address, const uint32_t* in) {
  store_matrix(address, 8, F16_LD * 2, [&](uint32_t row, uint32_t pair) { return in[row * 8 + pair]; });
}
__device__ __forceinline__ void store_identity(uint32_t address) {
  store_matrix(address, 8, F16_LD * 2, [](uint32_t row, uint32_t pair) {
    return row / 2 == pair ? 0x3c00u << (16 * (row % 2)) : 0u;  // 1.0 in the lower or the upper half
  });
}
__device__ __forceinline__ void store_f32_matrix(uint32_t address, const uint32_t* in) {
  store_matrix(address, 16, F32_LD * 4, [&](uint32_t row, uint32_t column) { return in[row * 16 + column]; });
}

// The fragment's elements as integers, row by row.
__device__ __forceinline__ void write_accumulator(uint32_t address, const WmmaAccumulator& fragment, uint32_t* out) {
  wmma_store_d(address, fragment, F32_LD);
  __syncwarp();  // safe to read: the whole matrix is stored
  for (uint32_t i = threadIdx.x; i < 256; i += 32) {
    FloatBits element;
    element.bits = ld_shared_b32(address + i / 16 * F32_LD * 4 + i % 16 * 4);
    out[i] = static_cast<uint32_t>(static_cast<int32_t>(element.value));
  }
}

__global__ void wmma_fill_case(const uint32_t* in, uint32_t* out) {
  WmmaAccumulator fragment;
  wmma_fill(fragment, static_cast<float>(in[0]));
  write_accumulator(smem_base(), fragment, out);
}

// A times the identity, or the identity times B.
template <bool OF_A, class B>
__global__ void wmma_load_case(const uint32_t* in, uint32_t* out) {
  const uint32_t smem_A = smem_base(), smem_B = smem_A + F16_BYTES, smem_C = smem_B + F16_BYTES;
  store_f16_matrix(OF_A ? smem_A : smem_B, in);
  store_identity(OF_A ? smem_B : smem_A);
  WmmaA a;
  B b;
  WmmaAccumulator c;
  wmma_load_a(a, smem_A, F16_LD);
  if constexpr (is_same<B, WmmaBRow>) wmma_load_b_row(b, smem_B, F16_LD);
  if constexpr (is_same<B, WmmaBCol>) wmma_load_b_col(b, smem_B, F16_LD);
  wmma_fill(c, 0.0f);
  wmma_mma(c, a, b);
  write_accumulator(smem_C, c, out);
}

__global__ void wmma_load_c_case(const uint32_t* in, uint32_t* out) {
  store_f32_matrix(smem_base(), in);
  WmmaAccumulator c;
  wmma_load_c(c, smem_base(), F32_LD);
  write_accumulator(smem_base() + F32_BYTES, c, out);
}

// From 16 columns to 24: the words between the rows must keep what they held.
__global__ void wmma_store_d_case(const uint32_t* in, uint32_t* out) {
  const uint32_t smem_C = smem_base(), smem_D = smem_C + F32_BYTES;
  store_f32_matrix(smem_C, in);
  store_matrix(smem_D, F32_LD, F32_LD * 4, [](uint32_t, uint32_t) { return 0xdeadbeefu; });
  WmmaAccumulator c;
  wmma_load_c(c, smem_C, F32_LD);
  wmma_store_d(smem_D, c, F32_LD);
  __syncwarp();  // safe to read: the whole matrix is stored
  for (uint32_t i = threadIdx.x; i < 16 * F32_LD; i += 32) out[i] = ld_shared_b32(smem_D + 4 * i);
}

// D = A B + C, with B row by row and then the same words column by column. in = A, B (f16 pairs), C (f32 bits).
__global__ void wmma_mma_case(const uint32_t* in, uint32_t* out) {
  const uint32_t smem_A = smem_base(), smem_B = smem_A + F16_BYTES, smem_C = smem_B + F16_BYTES;
  store_f16_matrix(smem_A, in);
  store_f16_matrix(smem_B, in + 128);
  store_f32_matrix(smem_C, in + 256);
  WmmaA a;
  WmmaBRow b_row;
  WmmaBCol b_col;
  WmmaAccumulator c, d;
  wmma_load_a(a, smem_A, F16_LD);
  wmma_load_b_row(b_row, smem_B, F16_LD);
  wmma_load_b_col(b_col, smem_B, F16_LD);
  wmma_load_c(c, smem_C, F32_LD);
  wmma_load_c(d, smem_C, F32_LD);
  wmma_mma(c, a, b_row);
  wmma_mma(d, a, b_col);
  write_accumulator(smem_C, c, out);
  __syncwarp();  // safe to overwrite: every lane has read the first result
  write_accumulator(smem_C, d, out + 256);
}

// ---- numbers ----------------------------------------------------------------------------------------------------
// Each thread converts one value and writes argument and result side by side, so that the fixture can be read.

enum class To { f16, bf16, e4m3, e5m2, exp2, log2, inverse, tanh, saturated };

template <To TO>
__device__ __forceinline__ uint32_t converted(float low, float high) {
  if constexpr (TO == To::f16) return pack_f16x2(low, high);
  if constexpr (TO == To::bf16) return pack_bf16x2(low, high);
  if constexpr (TO == To::e4m3) return pack_e4m3x2(low, high);
  if constexpr (TO == To::e5m2) return pack_e5m2x2(low, high);
}
template <To TO>
__device__ __forceinline__ uint32_t converted(float value) {
  FloatBits result;
  if constexpr (TO == To::f16) result.bits = to_f16(value).bits;
  if constexpr (TO == To::bf16) result.bits = to_bf16(value).bits;
  if constexpr (TO == To::exp2) result.value = ex2_approx(value);
  if constexpr (TO == To::log2) result.value = lg2_approx(value);
  if constexpr (TO == To::inverse) result.value = rcp_approx(value);
  if constexpr (TO == To::tanh) result.value = tanh_approx(value);
  if constexpr (TO == To::saturated) result.value = saturate(value);
  return result.bits;
}

template <To TO>
__global__ void pack_case(const uint32_t* in, uint32_t* out) {
  const uint32_t thread = threadIdx.x;
  FloatBits low, high;
  out[3 * thread] = low.bits = in[2 * thread];
  out[3 * thread + 1] = high.bits = in[2 * thread + 1];
  out[3 * thread + 2] = converted<TO>(low.value, high.value);
}

template <To TO>
__global__ void f32_to_case(const uint32_t* in, uint32_t* out) {
  const uint32_t thread = threadIdx.x;
  FloatBits argument;
  out[2 * thread] = argument.bits = in[thread];
  out[2 * thread + 1] = converted<TO>(argument.value);
}

template <class Element>
__global__ void to_float_case(const uint32_t* in, uint32_t* out) {
  const uint32_t thread = threadIdx.x;
  FloatBits result;
  result.value = to_float(Element{static_cast<uint16_t>(in[thread])});
  out[2 * thread] = in[thread];
  out[2 * thread + 1] = result.bits;
}

// What C++ says of two f32, and no PTX of ours does: on a GPU it is nvcc's code, on the emulator the host compiler's.
__global__ void f32_arithmetic_case(const uint32_t* in, uint32_t* out) {
  const uint32_t* const own = in + 2 * threadIdx.x;
  uint32_t* const to = out + 7 * threadIdx.x;
  FloatBits a, b, result;
  to[0] = a.bits = own[0];
  to[1] = b.bits = own[1];
  result.value = fmaxf(a.value, b.value), to[2] = result.bits;
  result.value = fminf(a.value, b.value), to[3] = result.bits;
  result.value = a.value + b.value, to[4] = result.bits;
  result.value = a.value * b.value, to[5] = result.bits;
  result.value = a.value / b.value, to[6] = result.bits;
}

template <bool E4M3>
__global__ void unpack_8_bits_case(const uint32_t* in, uint32_t* out) {
  const uint32_t thread = threadIdx.x;
  const auto packed = static_cast<uint16_t>(in[thread]);
  out[2 * thread] = packed;
  out[2 * thread + 1] = E4M3 ? unpack_e4m3x2(packed) : unpack_e5m2x2(packed);
}

__global__ void sub_f16x2_case(const uint32_t* in, uint32_t* out) {
  const uint32_t* const own = in + 2 * threadIdx.x;
  for (uint32_t i = 0; i < 2; ++i) out[3 * threadIdx.x + i] = own[i];
  out[3 * threadIdx.x + 2] = sub_f16x2(own[0], own[1]);
}

__global__ void sub_bf16x2_case(const uint32_t* in, uint32_t* out) {
  const uint32_t* const own = in + 2 * threadIdx.x;
  for (uint32_t i = 0; i < 2; ++i) out[3 * threadIdx.x + i] = own[i];
  out[3 * threadIdx.x + 2] = sub_bf16x2(own[0], own[1]);
}

__global__ void prmt_b32_case(const uint32_t* in, uint32_t* out) {
  const uint32_t* const own = in + 3 * threadIdx.x;
  for (uint32_t i = 0; i < 3; ++i) out[4 * threadIdx.x + i] = own[i];
  out[4 * threadIdx.x + 3] = prmt_b32(own[0], own[1], own[2]);
}

// a, b and c alone, their parity, their majority, and where none of them is.
__global__ void lop3_b32_case(const uint32_t* in, uint32_t* out) {
  const uint32_t a = in[0], b = in[1], c = in[2];
  out[0] = lop3_b32<0xF0>(a, b, c);
  out[1] = lop3_b32<0xCC>(a, b, c);
  out[2] = lop3_b32<0xAA>(a, b, c);
  out[3] = lop3_b32<0x96>(a, b, c);
  out[4] = lop3_b32<0xE8>(a, b, c);
  out[5] = lop3_b32<0x01>(a, b, c);
}

__global__ void max_nan_case(const uint32_t* in, uint32_t* out) {
  FloatBits a, b, result;
  out[3 * threadIdx.x] = a.bits = in[2 * threadIdx.x];
  out[3 * threadIdx.x + 1] = b.bits = in[2 * threadIdx.x + 1];
  result.value = max_nan(a.value, b.value);
  out[3 * threadIdx.x + 2] = result.bits;
}

__global__ void max3_s32_case(const uint32_t* in, uint32_t* out) {
  const uint32_t *own = in + 3 * threadIdx.x, thread = threadIdx.x;
  for (uint32_t i = 0; i < 3; ++i) out[4 * thread + i] = own[i];
  const int a = static_cast<int>(own[0]), b = static_cast<int>(own[1]), c = static_cast<int>(own[2]);
  out[4 * thread + 3] = static_cast<uint32_t>(max3_s32(a, b, c));
}

}  // namespace
