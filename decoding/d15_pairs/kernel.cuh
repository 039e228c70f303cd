// d15_pairs. Two blocks that share keys are a cluster, for which every card has room, and join in shared memory,
// whichever tile they have: 16 rows for each warp, or 64 for each warpgroup.
// Before:  in d14_cluster eight blocks are a cluster, and not everywhere has a GPC room for two of them; of more than
//          16 rows it has two tiles.
// Tile:    16x16 for each of 8 warps, or where there are more rows 64x64 for each of 2 warpgroups; a block on an SM.
//          Shared: 209 KiB (as d12_warpgroups).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90a.
// Shapes:  as d06_pages.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding.cuh"

namespace {

// 41_rows spells out no_keys, d02_split the join, d04_warps what a block does with 16 rows and d12_warpgroups with 64,
// d05_dependent how they start, d06_pages where the keys stand, and d14_cluster how blocks join.
using decoding::HEAD_DIM;

template <class T, int CLUSTER_>
struct Config : decoding::WarpTile<T, 16, 16, 8, 3, 1> {
  struct Wide : decoding::WarpgroupTile<T, 64, 64, 2, 3> {
    static constexpr int CLUSTER = CLUSTER_;
  };
  static constexpr int CLUSTER = CLUSTER_;  // blocks, at most
  static constexpr uint32_t SMEM_BYTES = Wide::SMEM_BYTES;
};

// What the blocks of a cluster have found stands where keys stood, behind what the warps of this one have found: of
// each row that this block joins, one of each block. O in f32, maximum and sum.
constexpr uint32_t FOUND_AT = 128 * 1024, FOUND_BYTES = HEAD_DIM * 4 + 16;

// How the keys of a head are shared out: among so many blocks, of which so many are a cluster. That is all of them, or
// one: a launch of clusters begins later, which only a launch less is worth.
struct Shares {
  int count, cluster;

  template <class C>
  static Shares of(int64_t blocks, int n_k, int multiprocessors) {
    const int count = decoding::shares_of<C>(blocks, n_k, multiprocessors);
    return {count, count <= C::CLUSTER ? count : 1};
  }
  __host__ __device__ __forceinline__ bool are_joined() const { return count == cluster; }
};

template <class C, class Keys>
__device__ __forceinline__ void attend_to_share(const CacheParams& p, const Keys& keys, const Shares& shares) {
  using T = typename C::Element;
  static_assert(FOUND_AT + (C::BR + C::CLUSTER - 1) * FOUND_BYTES <= C::WARPS * 24 * 1024);
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int rank = cluster_rank(), cluster = shares.cluster;
  const auto rows = decoding::Rows::of_block<C>(p, shares.count);
  const int sequence = blockIdx.z, number = blockIdx.x % shares.count;
  const decoding::Steps steps = decoding::steps_of<C>(rows, decoding::Seen(p, p.n_q, keys.n_k));
  const int begin = steps.first + number * steps.count / shares.count;
  const int end = steps.first + (number + 1) * steps.count / shares.count;
  const auto store = [&](int row, const float(&O)[4], const decoding::Joined& found LADDER_SITE_PARAMETER) {
    const int head = rows.head(row), query = rows.query(row);
    if (shares.are_joined()) {
      decoding::store_row<T>(p, sequence, head, query, O, found LADDER_SITE);
    } else {
      const int64_t at = decoding::row_number(p, sequence, head, query);
      decoding::store_part(decoding::Part<HEAD_DIM>(p, number, shares.count, at), O, found LADDER_SITE);
    }
  };
  // Row r is joined by block r % cluster: it is its row r / cluster.
  const auto found_by = [&](int of_block, int of_rows) {
    return smem_base() + FOUND_AT + (of_rows * cluster + of_block) * FOUND_BYTES;
  };
  const auto leave = [&](int row, const float(&O)[4], const decoding::Joined& found LADDER_SITE_PARAMETER) {
    if (cluster == 1) return store(row, O, found LADDER_SITE);
    const uint32_t there = mapa(found_by(rank, row / cluster), row % cluster);
    for (int i = 0; i < 4; ++i) st_shared_cluster_b32(there + lane * 16 + i * 4, __float_as_uint(O[i]) LADDER_SITE);
    if (lane == 0) {
      st_shared_cluster_b32(there + HEAD_DIM * 4, __float_as_uint(found.max) LADDER_SITE);
      st_shared_cluster_b32(there + HEAD_DIM * 4 + 4, __float_as_uint(found.sum) LADDER_SITE);
    }
  };
  const auto meet = [&](LADDER_SITE_ONLY_PARAMETER) {
    if (cluster == 1) return __syncthreads(LADDER_SITE_ALONE);
    __syncwarp(LADDER_SITE_ALONE);  // the cluster's barrier takes whole warps
    cluster_sync(LADDER_SITE_ALONE);
  };

  // LOAD     Each warp, or warpgroup, has tiles of its own, as d04 and d12 spell out, and so are
  // QK       the scores,
  // SOFTMAX  the weights,
  // PV       their sums with V. Before keys are overwritten all blocks of the cluster are done, and not only this one.
  const decoding::Share share = {rows, sequence, int(blockIdx.y), begin, end};
  if constexpr (C::BR == 64) {
    decoding::attend_by_warpgroups<C>(p, share, keys, leave, meet, decoding::NoFunction{p.softmax_scale});
  } else {
    decoding::attend_to<C>(p, share, keys, leave, meet, decoding::NoFunction{p.softmax_scale});
  }
  if (cluster == 1) return;
  meet();  // safe to read what the other blocks have found

  // STORE  A warp joins a row, a lane four columns.
  for (int of_rows = warp; of_rows * cluster + rank < C::BR; of_rows += C::WARPS) {
    const int row = of_rows * cluster + rank;
    if (!rows.has(row)) break;
    decoding::Joined all;
    float O[4] = {};
    for (int of_block = 0; of_block < cluster; ++of_block) {
      const uint4 four = ld_shared_v4(found_by(of_block, of_rows) + lane * 16);
      const uint2 numbers = ld_shared_v2(found_by(of_block, of_rows) + HEAD_DIM * 4);
      const decoding::Factors by = all.add(__uint_as_float(numbers.x), __uint_as_float(numbers.y));
      const uint32_t its[4] = {four.x, four.y, four.z, four.w};
      for (int i = 0; i < 4; ++i) O[i] = O[i] * by.mine + __uint_as_float(its[i]) * by.its;
    }
    store(row, O, all);
  }
}

template <class C, bool IN_PAGES>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) flash_attention(CacheParams p, Shares shares) {
  griddepcontrol_launch_dependents();  // safe: who joins waits until this launch is over
  const int n_k = decoding::keys_of(p, blockIdx.z);
  if constexpr (IN_PAGES) {
    attend_to_share<C>(p, decoding::Pages(p, blockIdx.z, n_k), shares);
  } else {
    attend_to_share<C>(p, decoding::InOnePiece{n_k}, shares);
  }
}

// LAUNCH  As in d14. The pointers of `p` belong to the device and are multiples of 16 B, as are strides.
template <class C>
void start(Device& device, const CacheParams& p) {
  const int tiles = (decoding::rows_per_kv_head(p) + C::BR - 1) / C::BR;
  const auto shares = Shares::of<C>(int64_t(tiles) * p.kv_heads * p.batch, p.n_k, multiprocessors(device));
  launch_clusters(device, p.block_table != nullptr ? flash_attention<C, true> : flash_attention<C, false>,
                  dim3(tiles * shares.count, p.kv_heads, p.batch), dim3(C::THREADS), shares.cluster, C::SMEM_BYTES, p,
                  shares);
  if (!shares.are_joined())
    decoding::start_join_early<typename C::Element, HEAD_DIM, decoding::JOIN_WARPS>(device, p, shares.count);
}

template <class C>
void run(Device& device, const CacheParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  decoding::rows_per_kv_head(p) <= C::BR ? start<C>(device, p) : start<typename C::Wide>(device, p);
}

}  // namespace
