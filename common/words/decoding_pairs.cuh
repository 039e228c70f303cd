// How two blocks that share keys are a cluster and join, parts of kernels of decoding/: what d15_pairs spells out, and
// later rungs say.
#pragma once
#include "common/words/decoding.cuh"

namespace decoding {
namespace {

// d15_pairs. 16 rows for each warp, or 64 for each warpgroup.
template <class T, int CLUSTER_>
struct PairTile : WarpTile<T, 16, 16, 8, 3, 1> {
  struct Wide : WarpgroupTile<T, 64, 64, 2, 3> {
    static constexpr int CLUSTER = CLUSTER_;
  };
  static constexpr int CLUSTER = CLUSTER_;  // blocks, at most
  static constexpr uint32_t SMEM_BYTES = Wide::SMEM_BYTES;
};
// What the blocks of a cluster have found stands where keys stood, behind what the warps of this one have found: of
// each row that this block joins, one of each block. O in f32, maximum and sum.
constexpr uint32_t FOUND_AT = 128 * 1024, FOUND_BYTES = HEAD_DIM * 4 + 16;

// d15_pairs. How the keys of a head are shared out: among so many blocks, of which so many are a cluster. That is all
// of them, or one: a launch of clusters begins later, which only a launch less is worth.
struct PairShares {
  int count, cluster;

  template <class C>
  static PairShares of(int64_t blocks, int n_k, int multiprocessors) {
    const int count = shares_of<C>(blocks, n_k, multiprocessors);
    return {count, count <= C::CLUSTER ? count : 1};
  }
  __host__ __device__ __forceinline__ bool are_joined() const { return count == cluster; }
};

// d15_pairs. All that a block of a grid (tiles of rows * shares, kv_heads, batch) does: attention of its rows over its
// share's keys, of which each row is joined by one block of the cluster, to O and LSE, or of more shares to the
// workspace. d16_functions: function_of(rows) says what becomes of scores, and change(rows, number of the share, row,
// O, found) may change what a block has found, before it is joined.
template <class C, class Keys, class FunctionOf, class Change>
__device__ __forceinline__ void attend_in_pairs(const CacheParams& p, const Keys& keys, const PairShares& shares,
                                                const FunctionOf& function_of,
                                                const Change& change LADDER_SITE_PARAMETER) {
  using T = typename C::Element;
  static_assert(FOUND_AT + (C::BR + C::CLUSTER - 1) * FOUND_BYTES <= C::WARPS * 24 * 1024);
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int rank = cluster_rank(), cluster = shares.cluster;
  const Rows rows = Rows::of_block<C>(p, shares.count);
  const int sequence = blockIdx.z, number = blockIdx.x % shares.count;
  const Steps steps = steps_of<C>(rows, Seen(p, p.n_q, keys.n_k));
  const int begin = steps.first + number * steps.count / shares.count;
  const int end = steps.first + (number + 1) * steps.count / shares.count;
  const auto store = [&](int row, const float(&O)[4], const Joined& found LADDER_SITE_PARAMETER) {
    const int head = rows.head(row), query = rows.query(row);
    if (shares.are_joined()) {
      store_row<T>(p, sequence, head, query, O, found LADDER_SITE);
    } else {
      const int64_t at = row_number(p, sequence, head, query);
      store_part(Part<HEAD_DIM>(p, number, shares.count, at), O, found LADDER_SITE);
    }
  };
  // Row r is joined by block r % cluster: it is its row r / cluster.
  const auto found_by = [&](int of_block, int of_rows) {
    return smem_base() + FOUND_AT + (of_rows * cluster + of_block) * FOUND_BYTES;
  };
  const auto leave = [&](int row, float(&O)[4], Joined found LADDER_SITE_PARAMETER) {
    change(rows, number, row, O, found LADDER_SITE);
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

  const auto function = function_of(rows);
  const Share share = {rows, sequence, int(blockIdx.y), begin, end};
  if constexpr (C::BR == 64) {
    attend_by_warpgroups<C>(p, share, keys, leave, meet, function LADDER_SITE);
  } else {
    attend_to<C>(p, share, keys, leave, meet, function LADDER_SITE);
  }
  if (cluster == 1) return;
  meet(LADDER_SITE_ALONE);  // safe to read what the other blocks have found

  // STORE  A warp joins a row, a lane four columns.
  for (int of_rows = warp; of_rows * cluster + rank < C::BR; of_rows += C::WARPS) {
    const int row = of_rows * cluster + rank;
    if (!rows.has(row)) break;
    Joined all;
    float O[4] = {};
    for (int of_block = 0; of_block < cluster; ++of_block) {
      const uint4 four = ld_shared_v4(found_by(of_block, of_rows) + lane * 16 LADDER_SITE);
      const uint2 numbers = ld_shared_v2(found_by(of_block, of_rows) + HEAD_DIM * 4 LADDER_SITE);
      const Factors by = all.add(__uint_as_float(numbers.x), __uint_as_float(numbers.y));
      const uint32_t its[4] = {four.x, four.y, four.z, four.w};
      for (int i = 0; i < 4; ++i) O[i] = O[i] * by.mine + __uint_as_float(its[i]) * by.its;
    }
    store(row, O, all LADDER_SITE);
  }
}

}  // namespace
}  // namespace decoding
