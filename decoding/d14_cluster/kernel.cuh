// d14_cluster. Blocks that share a sequence's keys are a cluster: each puts what it has found into the shared memory of
// the block that joins the row. Up to eight shares need no second launch, and no workspace.
// Before:  in d06_pages what the shares have found goes through the memory of the card to a second launch, which waits
//          until the last block is over.
// Tile:    16x16 for each of 8 warps, or 32x16 where there are more rows; a block on an SM.
//          Shared: 212 KiB (a warp 24: K, V 3 x 4 each; 20 of what shares have found).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90.
// Shapes:  as d06_pages.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding.cuh"

namespace {

// 41_rows spells out no_keys, d02_split the join, d04_warps all that a block does, d05_dependent how they start, and
// d06_pages where the keys stand.
using decoding::HEAD_DIM;

template <class T, int BR, int BC, int WARPS, int STAGES, int CLUSTER_>
struct Config : decoding::WarpTile<T, BR, BC, WARPS, STAGES, 1> {
  using Base = decoding::WarpTile<T, BR, BC, WARPS, STAGES, 1>;
  using Wide = Config<T, 32, BC, WARPS, STAGES, CLUSTER_>;
  static constexpr int CLUSTER = CLUSTER_;  // blocks, at most
  // A row of O in f32, maximum and sum; of each row that this block joins, of 32 at most, one of each block.
  static constexpr uint32_t FOUND_BYTES = HEAD_DIM * 4 + 16, PARTS = 32 + CLUSTER - 1, PARTS_AT = Base::SMEM_BYTES;
  static constexpr uint32_t SMEM_BYTES = PARTS_AT + PARTS * FOUND_BYTES;
};

// How the keys of a head are shared out: among so many blocks, of which so many are a cluster.
struct Shares {
  int count, cluster;

  template <class C>
  static Shares of(int64_t blocks, int n_k, int multiprocessors) {
    const int most = decoding::shares_of<C>(blocks, n_k, multiprocessors), cluster = min(most, C::CLUSTER);
    return {most / cluster * cluster, cluster};
  }
  __host__ __device__ __forceinline__ int parts() const { return count / cluster; }
};

template <class C, class Keys>
__device__ __forceinline__ void attend_to_share(const CacheParams& p, const Keys& keys, const Shares& shares) {
  using T = typename C::Element;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int rank = cluster_rank(), cluster = shares.cluster;
  const auto rows = decoding::Rows::of_block<C>(p, shares.count);
  const int sequence = blockIdx.z, number = blockIdx.x % shares.count;
  const decoding::Steps steps = decoding::steps_of<C>(rows, decoding::Seen(p, p.n_q, keys.n_k));
  const int begin = steps.first + number * steps.count / shares.count;
  const int end = steps.first + (number + 1) * steps.count / shares.count;
  // Row r is joined by block r % cluster: it is its row r / cluster.
  const auto part_of = [&](int of_block, int of_rows) {
    return smem_base() + C::PARTS_AT + (of_rows * cluster + of_block) * C::FOUND_BYTES;
  };
  smem_name(smem_base() + C::PARTS_AT, C::PARTS * C::FOUND_BYTES, "parts", C::FOUND_BYTES);

  // LOAD     Each warp has tiles of its own, as d04 spells out, and so are
  // QK       the scores,
  // SOFTMAX  the weights,
  // PV       their sums with V.
  cluster_sync();  // safe to store in another block: it has begun
  decoding::attend_to<typename C::Base>(
      p, {rows, sequence, int(blockIdx.y), begin, end}, keys,
      [&](int row, const float(&O)[4], const decoding::Joined& found LADDER_SITE_PARAMETER) {
        const uint32_t part = mapa(part_of(rank, row / cluster), row % cluster);
        for (int i = 0; i < 4; ++i) st_shared_cluster_b32(part + lane * 16 + i * 4, __float_as_uint(O[i]) LADDER_SITE);
        if (lane == 0) {
          st_shared_cluster_b32(part + HEAD_DIM * 4, __float_as_uint(found.max) LADDER_SITE);
          st_shared_cluster_b32(part + HEAD_DIM * 4 + 4, __float_as_uint(found.sum) LADDER_SITE);
        }
      });
  __syncwarp();    // the cluster's barrier takes whole warps
  cluster_sync();  // safe to read what the other blocks have found

  // STORE  A warp joins a row, a lane four columns; of more shares than a cluster has, to the workspace.
  for (int of_rows = warp; of_rows * cluster + rank < C::BR; of_rows += C::WARPS) {
    const int row = of_rows * cluster + rank;
    if (!rows.has(row)) break;
    decoding::Joined all;
    float O[4] = {};
    for (int of_block = 0; of_block < cluster; ++of_block) {
      const uint4 four = ld_shared_v4(part_of(of_block, of_rows) + lane * 16);
      const uint2 numbers = ld_shared_v2(part_of(of_block, of_rows) + HEAD_DIM * 4);
      const decoding::Factors by = all.add(__uint_as_float(numbers.x), __uint_as_float(numbers.y));
      const uint32_t its[4] = {four.x, four.y, four.z, four.w};
      for (int i = 0; i < 4; ++i) O[i] = O[i] * by.mine + __uint_as_float(its[i]) * by.its;
    }
    const int head = rows.head(row), query = rows.query(row);
    if (shares.parts() > 1) {
      const int64_t at = decoding::row_number(p, sequence, head, query);
      decoding::store_part(decoding::Part<HEAD_DIM>(p, number / cluster, shares.parts(), at), O, all);
    } else {
      decoding::store_row<T>(p, sequence, head, query, O, all);
    }
  }
}

template <class C, bool IN_PAGES>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) flash_attention(CacheParams p, Shares shares) {
  static_assert(C::BC == 16);
  griddepcontrol_launch_dependents();  // safe: who joins waits until this launch is over
  const int n_k = decoding::keys_of(p, blockIdx.z);
  if constexpr (IN_PAGES) {
    attend_to_share<C>(p, decoding::Pages(p, blockIdx.z, n_k), shares);
  } else {
    attend_to_share<C>(p, decoding::InOnePiece{n_k}, shares);
  }
}

// LAUNCH  As in d06, and a second launch only for more shares than a cluster has. The pointers of `p` belong to the
//         device and are multiples of 16 B, as are strides.
template <class C>
void start(Device& device, const CacheParams& p) {
  const int tiles = (decoding::rows_per_kv_head(p) + C::BR - 1) / C::BR;
  const auto shares = Shares::of<C>(int64_t(tiles) * p.kv_heads * p.batch, p.n_k, multiprocessors(device));
  launch_clusters(device, p.block_table != nullptr ? flash_attention<C, true> : flash_attention<C, false>,
                  dim3(tiles * shares.count, p.kv_heads, p.batch), dim3(C::THREADS), shares.cluster, C::SMEM_BYTES, p,
                  shares);
  if (shares.parts() > 1)
    decoding::start_join_early<typename C::Element, HEAD_DIM, decoding::JOIN_WARPS>(device, p, shares.parts());
}

template <class C>
void run(Device& device, const CacheParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  decoding::rows_per_kv_head(p) <= C::BR ? start<C>(device, p) : start<typename C::Wide>(device, p);
}

}  // namespace
