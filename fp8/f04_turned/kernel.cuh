// f04_turned: V is turned in the kernel, on its way, by warps of the warpgroup that copies.
// Before:  f03_ahead turns V in a launch before, which reads and writes all of it.
// Tile:    128x128, 8 warps: two warpgroups of 64 queries, a third that copies and turns.  Shared: 224 KiB and 288 B.
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, BR == BC == 128, sm_90a.
// Shapes:  Q: [batch, heads, n_q, d] e4m3; K, V: [batch, kv_heads, n_k, d] e4m3; O: as Q, f16 or bf16; in any strides.
//          Their scales: [batch, heads] and [batch, kv_heads] f32. LSE: [batch, heads, n_q] f32.
#pragma once
#include "common/gpu.cuh"
#include "common/words/bytes.cuh"

namespace {

// f01_e4m3 spells these out.
using bytes::byte_map, bytes::copy_tiles, bytes::HEAD_DIM, bytes::ROW_BYTES, bytes::SLICE;
// 44_told spells these out, 45_varlen and 46_alone what starts a kernel.
using forward::blocks_for, forward::CONSUMER_REGISTERS, forward::end_together, forward::NoMask;
using forward::PRODUCER_REGISTERS, forward::Queries, forward::rows_map, forward::Schedule, forward::Work;

constexpr int TURNERS = 2;  // warps that turn V, by turns: each has a place for a tile as it comes

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes. O, of 16
// bits, has a place of its own.
template <class T, int BR, int BC, int WARPS, int STAGES, int BLOCKS = 2>
struct Config : forward::Tile<T, BR, BC, WARPS, STAGES, BLOCKS> {
  static constexpr uint32_t O_BYTES = BR * HEAD_DIM * 2;
  static constexpr uint32_t RAW_BYTES = BC * ROW_BYTES;
  static constexpr uint32_t SMEM_BYTES = (2 * BR + (2 * STAGES + TURNERS) * BC) * ROW_BYTES + O_BYTES +
                                         (4 * STAGES + 4 + 2 * TURNERS) * 8 + 2 * Work::BYTES;  // and mbarriers, Works
  using Alone = Config<T, BR, BC, WARPS, STAGES, 1>;
};

// Beside K, V, Q and O: V as it comes, a ring of its own.
template <class C>
struct Smem : forward::Smem<C, ROW_BYTES, 2, C::O_BYTES + TURNERS * C::RAW_BYTES + 2 * TURNERS * 8> {
  using Base = forward::Smem<C, ROW_BYTES, 2, C::O_BYTES + TURNERS * C::RAW_BYTES + 2 * TURNERS * 8>;
  uint32_t tiles_raw = Base::more + C::O_BYTES, barriers_raw = tiles_raw + TURNERS * C::RAW_BYTES;
  Ring<TURNERS, C::RAW_BYTES> raw{barriers_raw, tiles_raw};

  __device__ __forceinline__ void name() const {
    Base::name();
    smem_name(Base::more, C::O_BYTES, "O", 128);
    smem_name(tiles_raw, TURNERS * C::RAW_BYTES, "V as it comes", 128);
    smem_name(barriers_raw, 2 * TURNERS * 8, "its barriers");
  }
  __device__ __forceinline__ void init() const {
    raw.init(C::BLOCKS);
    Base::init();
  }
};

// ---- what brings tiles ---------------------------------------------------------------------------------------------

// LOAD  A tile of queries, and the tiles of keys that its pair sees. A block brings its rows of a tile of K or V to
//       both; the other brings its own here. Alone it brings all of them. One thread's.
template <class C>
__device__ __forceinline__ void load(const ByteInputParams& p, const Smem<C>& smem, const Queries& queries,
                                     const TensorMap& Q_map, const TensorMap& K_map, const TensorMap& V_map) {
  constexpr int PART = 128 / C::BLOCKS;
  const int head = queries.head % p.heads, kv_head = head / (p.heads / p.kv_heads), sequence = queries.head / p.heads;
  smem.Q.expect(queries.round);
  cp_async_bulk_tensor_4d(smem.Q.tiles + smem.Q.at(queries.round), Q_map, 0, queries.q_tile * C::BR, head, sequence,
                          smem.Q.full_of(queries.round));
  const int part = cluster_rank() * PART, last = queries.first + queries.kv_tiles - 1;
  const auto request = [&](const TensorMap& map, const auto& ring, int tile) {
    ring.claim(tile);
    cp_async_bulk_tensor_4d_multicast(ring.tiles + ring.at(tile) + part * ROW_BYTES, map, 0,
                                      queries.in_K(tile) * C::BC + part, kv_head, sequence, ring.full_of(tile),
                                      (1 << C::BLOCKS) - 1);
  };
  for (int tile = queries.first; tile <= last + 1; ++tile) {  // K is asked for a tile ahead of V, as it is read
    if (tile <= last) request(K_map, smem.K, tile);
    if (tile > queries.first) request(V_map, smem.raw, tile - 1);
  }
}

// TURN  A product of bytes sums along rows, of both factors: V's columns must be rows. ldmatrix transposes 8x8 elements
//       of 16 bits, which are two columns of a key: lane 4u + c gets columns 2u and 2u + 1 of keys 2c and 2c + 1, and
//       in the next register of keys 8 + 2c and 9 + 2c. The four bytes of one column are what a register of P wants
//       beside each other. So two permutations make a row's four bytes of each of two columns, and stmatrix writes
//       rows of 16 keys. Lanes from 16 on write the other 16 keys first: rows 8 apart would lie in the same banks.
template <class C, class Mask>
__device__ __forceinline__ void turn(const ByteInputParams& p, const Smem<C>& smem, int turner) {
  const int lane = threadIdx.x % 32, matrix = lane / 8, row = lane % 8;
  const bool is_upper = lane >= 16;
  const uint32_t from = (matrix * 8 + row) * ROW_BYTES, column = 2 * row + matrix % 2;
  const uint32_t to = column * C::BC, keys_16 = (row / 4) ^ (matrix / 2) ^ (column % 8);  // where it writes: V's keys
  Schedule<C, Mask> walk(p);
  while (const auto queries = walk.next()) {
    for (int tile = queries.first; tile < queries.first + queries.kv_tiles; ++tile) {
      if (tile % TURNERS != turner) continue;
      smem.V.wait_empty(tile);
      smem.raw.wait_full(tile);
      const uint32_t raw = smem.raw.tiles + smem.raw.at(tile) + from, V = smem.V.tiles + smem.V.at(tile) + to;
#pragma unroll
      for (int keys = 0; keys < C::BC; keys += 32) {
        for (int columns = 0; columns < HEAD_DIM; columns += 16) {
          uint32_t of_keys[4];  // 0-7, 8-15, 16-23 and 24-31
          ldmatrix_x4_trans(of_keys, raw + keys * ROW_BYTES + ((columns / 16) ^ row) * 16);
          uint32_t rows[2][2];  // [16 keys][column 2u, 2u + 1]
          for (int i = 0; i < 2; ++i) {
            rows[i][0] = prmt_b32(of_keys[2 * i], of_keys[2 * i + 1], 0x6420);
            rows[i][1] = prmt_b32(of_keys[2 * i], of_keys[2 * i + 1], 0x7531);
          }
          stmatrix_x4(V + columns * C::BC + ((keys / 16) ^ keys_16) * 16,
                      {is_upper ? rows[1][0] : rows[0][0], is_upper ? rows[1][1] : rows[0][1],
                       is_upper ? rows[0][0] : rows[1][0], is_upper ? rows[0][1] : rows[1][1]});
        }
      }
      fence_proxy_async_shared();  // the tensor cores will find what this lane has stored
      __syncwarp();                // safe to tell: all lanes have stored, and read
      if (lane < C::BLOCKS) mbarrier_arrive_remote(smem.raw.empty_of(tile), lane);
      if (lane == 0) mbarrier_arrive(smem.V.full_of(tile));
    }
  }
}

// ---- the kernel ----------------------------------------------------------------------------------------------------

template <class C, class Mask>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_attention(ByteInputParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, BLOCKS = C::BLOCKS;
  static_assert(BR == 16 * WARPS && WARPS % 4 == 0, "each warp owns 16 rows, and four warps multiply together");
  static_assert(Mask::IS_WINDOW == (BLOCKS == 1), "in a window blocks work alone");
  static_assert(BR == BC && BC == HEAD_DIM, "of a pair one block needs one tile of keys more; all tiles are squares");

  const Smem<C> smem;
  smem.name();
  if (threadIdx.x == 0) smem.init();
  cluster_sync();  // safe to use the barriers, those of the other block, too

  if (const int producer = threadIdx.x / 32 - WARPS; producer >= 0) {
    setmaxnreg_dec<PRODUCER_REGISTERS<false>>();
    if (threadIdx.x == WARPS * 32) {
      copy_tiles<C, Mask>(p, smem, [&](const auto& queries) { load<C>(p, smem, queries, Q_map, K_map, V_map); });
    } else if (producer > 0 && producer <= TURNERS) {
      turn<C, Mask>(p, smem, producer - 1);
    }
    __syncwarp();  // the cluster's barrier takes whole warps
    end_together<BLOCKS>();
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS<false>>();  // waits until the producer has given its registers back
  // This warpgroup has read the tile. A thread tells a block; of V, which each block turns for itself, both its own.
  const auto release = [&](const auto& ring, int tile) {
    if (threadIdx.x % 128 < BLOCKS)
      mbarrier_arrive_remote(ring.empty_of(tile), &ring == &smem.V ? cluster_rank() : threadIdx.x % 128);
  };
  // QK       What a warpgroup does f03_ahead spells out: scores of half a tile,
  // SOFTMAX  their weights, beside the next scores,
  // PV       their sums with V, which is turned by then,
  // STORE    and O.
  bytes::attend<C, Mask>(p, smem, O_map, release);
  end_together<BLOCKS>();
}

// LAUNCH  As many blocks as run at the same time, one per SM, in pairs, or fewer where there is less to do. The
//         pointers of `p` belong to the device and are multiples of 16 B, as are strides. A map tells the copy engine
//         where rows end: what it asks for behind is zeros, and what it stores there is dropped.
template <class C, class Mask>
void start(Device& device, const ByteInputParams& p) {
  launch_clusters(device, flash_attention<C, Mask>, dim3(blocks_for<C, Mask>(device, p)), dim3(C::THREADS), C::BLOCKS,
                  C::SMEM_BYTES, p, byte_map(device, p, p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
                  byte_map(device, p, p.K, p.K_strides, p.kv_heads, p.n_k, C::BC / C::BLOCKS),
                  byte_map(device, p, p.V, p.V_strides, p.kv_heads, p.n_k, C::BC / C::BLOCKS),
                  rows_map<typename C::Element>(device, p.O, p.O_strides, p.d, p.n_q, p.heads, p.batch, 16));
}

template <class C>
void run(Device& device, const ByteInputParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  forward::start_masked<C>(p, [&]<class Tile, class Mask>() { start<Tile, Mask>(device, p); });
}

}  // namespace
