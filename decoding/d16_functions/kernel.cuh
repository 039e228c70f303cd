// d16_functions. What models do to a score before the softmax, they do where they write, too: a softcap, ALiBi, and a
// sink, which only the first share adds.
// Before:  in d15_pairs a score is Q K^T * scale, so such a model is read by a kernel for many queries.
// Tile:    as d15_pairs.
// Shapes:  as d06_pages; alibi_slopes, sinks: [heads] f32, or null.
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

// As 48_scores has it: O = softmax(scale * function(Q K^T)) V. A lane's two rows may be of two heads, so it has two
// slopes.
struct Scores {
  float scale, inner, slope[2];
  int from_key;  // of a query's own key to its number
  bool are_capped, are_sloped;

  template <class C>
  __device__ __forceinline__ static Scores of(const CacheScoreParams& p, const decoding::Rows& rows, int n_k) {
    const bool are_capped = p.softcap > 0, are_sloped = p.alibi_slopes != nullptr;
    Scores scores = {are_capped ? p.softcap : p.softmax_scale,
                     are_capped ? p.softmax_scale / p.softcap : 1,
                     {0, 0},
                     n_k - p.n_q,
                     are_capped,
                     are_sloped};
    const int first = C::BR == 64 ? threadIdx.x % 128 / 32 * 16 : 0;
    for (int half = 0; half < 2; ++half) {
      const int row = first + FragmentC::row(threadIdx.x % 32, 2 * half);
      if (are_sloped && rows.has(row))
        scores.slope[half] = ld_global_f32(p.alibi_slopes + rows.head(row)) / scores.scale;
    }
    return scores;
  }
  template <int TILES>
  __device__ __forceinline__ void change(float (&S)[TILES][4], const int (&query)[2], int first_key) const {
    if (!are_capped && !are_sloped) return;
#pragma unroll
    for (int key_tile = 0; key_tile < TILES; ++key_tile) {
      for (int i = 0; i < 4; ++i) {
        float& score = S[key_tile][i];
        if (are_capped) score = tanh_approx(score * inner);  // softcap * tanh(score / softcap), but for the factor
        const int key = first_key + key_tile * 8 + FragmentC::col(threadIdx.x % 32, i);
        if (are_sloped) score -= slope[i / 2] * fabsf(float(query[i / 2] + from_key - key));  // ALiBi
      }
    }
  }
};

// A row's sink is one more score, of a key whose V is 0; or of none, if it is -infinity.
__device__ __forceinline__ void add_sink(float sink, float (&O)[4], decoding::Joined& found) {
  const decoding::Factors by = found.add(fmaxf(sink * decoding::LOG2E, forward::NO_KEY), sink != -INFINITY);
  for (float& each : O) each *= by.mine;
}

template <class C, class Keys>
__device__ __forceinline__ void attend_to_share(const CacheScoreParams& p, const Keys& keys, const Shares& shares) {
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
  const auto leave = [&](int row, float(&O)[4], decoding::Joined found LADDER_SITE_PARAMETER) {
    if (p.sinks != nullptr && number == 0) add_sink(ld_global_f32(p.sinks + rows.head(row) LADDER_SITE), O, found);
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
  const auto scores = Scores::of<C>(p, rows, keys.n_k);
  const decoding::Share share = {rows, sequence, int(blockIdx.y), begin, end};
  if constexpr (C::BR == 64) {
    decoding::attend_by_warpgroups<C>(p, share, keys, leave, meet, scores);
  } else {
    decoding::attend_to<C>(p, share, keys, leave, meet, scores);
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
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) flash_attention(CacheScoreParams p, Shares shares) {
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
void start(Device& device, const CacheScoreParams& p) {
  const int tiles = (decoding::rows_of(p) + C::BR - 1) / C::BR;
  const auto shares = Shares::of<C>(int64_t(tiles) * p.kv_heads * p.batch, p.n_k, multiprocessors(device));
  launch_clusters(device, p.block_table != nullptr ? flash_attention<C, true> : flash_attention<C, false>,
                  dim3(tiles * shares.count, p.kv_heads, p.batch), dim3(C::THREADS), shares.cluster, C::SMEM_BYTES, p,
                  shares);
  if (!shares.are_joined())
    decoding::start_join_early<typename C::Element, HEAD_DIM, decoding::JOIN_WARPS>(device, p, shares.count);
}

template <class C>
void run(Device& device, const CacheScoreParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  decoding::rows_of(p) <= C::BR ? start<C>(device, p) : start<typename C::Wide>(device, p);
}

}  // namespace
