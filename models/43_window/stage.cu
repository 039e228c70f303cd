#include "harness/stage.hpp"
#include "harness/walk.hpp"
#include "kernel.cuh"

namespace {

// wgmma is counted per warpgroup, 64 queries, and tile of BC keys, a pair; shuffles per warp and tile of queries.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const uint64_t rows = uint64_t(spec.batch_heads()) * spec.n;
  if (spec.keys() == 0)
    return {.gmem_accesses = rows * (HEAD_DIM + 1), .gmem_bytes_written = rows * (ROW_BYTES + sizeof(float))};
  constexpr int64_t BR = C::BR, BC = C::BC;
  constexpr uint64_t WARPS = C::WARPS;
  const int64_t n_q = spec.n, n_k = spec.keys(), heads = spec.batch_heads();
  const bool is_window = spec.left >= 0 || spec.right > 0, in_twos = spec.causal && !is_window;
  const int64_t q_tiles = (n_q + BR - 1) / BR, pairs = (q_tiles + 1) / 2;
  const auto before = [&](int64_t q_tile) {  // tiles that its first query does not see
    const int64_t query = ladder::min(q_tile * BR, n_q - 1);
    return spec.left >= 0 ? ladder::max<int64_t>(query + n_k - n_q - spec.left, 0) / BC : 0;
  };
  const auto up_to = [&](int64_t q_tile) {  // of the last query of a tile; of one that sees none, the first, masked
    const int64_t last = ladder::min((q_tile + 1) * BR, n_q), right = spec.causal ? 0 : spec.right;
    return (right < 0 ? n_k + BC - 1 : ladder::min(ladder::max<int64_t>(last + n_k - n_q + right, 1), n_k) + BC - 1) /
           BC;
  };
  const auto tiles_of_pair = [&](int64_t pair) { return up_to(2 * pair + 1) - before(2 * pair); };
  // A block computes with the tiles of keys that it sees, and copies half of what its pair needs.
  uint64_t tiles = 0, copied = 0, copied_rows = 0;
  for (int64_t q_tile = 0; q_tile < 2 * pairs; ++q_tile) {
    tiles += heads * (up_to(q_tile) - before(q_tile));
    copied += heads * tiles_of_pair(q_tile / 2);
    copied_rows += heads * (ladder::min(up_to(q_tile | 1) * BC, n_k) - before(q_tile & ~1) * BC);
  }
  const uint64_t shares = heads * (in_twos ? (pairs + 1) / 2 : pairs);  // two pairs or one
  const uint64_t clusters = ladder::min<uint64_t>(shares, spec.multiprocessors / 2), blocks = 2 * clusters;
  uint64_t unwritten = INT64_MAX,
           idle = 0;     // bytes of the block that leaves fewest; second blocks whose tiles all lie outside
  uint64_t busiest = 0;  // tiles of the block that computes most
  for (uint64_t cluster = 0; cluster < clusters; ++cluster) {
    uint64_t rounds = 0, kv_tiles = 0, own[2] = {};
    bool works = false;
    for (uint64_t share = cluster; share < shares; share += clusters) {
      const int64_t per_head = shares / heads, low = share % per_head, high = pairs - 1 - low;
      for (const uint64_t pair : {low, high}) {
        ++rounds;
        kv_tiles += tiles_of_pair(pair);
        for (int64_t rank = 0; rank < 2; ++rank) own[rank] += up_to(2 * pair + rank) - before(2 * pair + rank);
        works |= 2 * pair + 1 < uint64_t(q_tiles);
        if (!in_twos || high == low) break;
      }
    }
    idle += !works;
    busiest = ladder::max(busiest, ladder::max(own[0], own[1]));
    unwritten = ladder::min<uint64_t>(
        unwritten,
        ((rounds < 2 ? BR : 0) + 2 * BC * (C::STAGES - ladder::min<uint64_t>(C::STAGES, kv_tiles))) * ROW_BYTES);
  }
  const uint64_t q_warps = heads * 2 * pairs * WARPS;
  const ladder::Walk walk{.tiles = uint64_t(spec.keys() + BC - 1) / BC,
                          .stages = C::STAGES,
                          .qk = HEAD_DIM / 16,
                          .pv = BC / 16,
                          .late_queries = true};
  return {
      .wgmma = tiles * WARPS / 4 * (HEAD_DIM / 16 + BC / 16),           // QK by slices of d, PV by slices of keys
      .wgmma_left_running = (tiles * WARPS - q_warps) / 4 * (BC / 16),  // PV, but of the last tile
      .wgmma_beside_exponentials = (tiles * WARPS - q_warps) / 4 * (BC / 16),  // all of them
      .wgmma_under_loads = spec.causal || is_window ? 0 : 2 * WARPS / 4 * under_loads(walk, shares, clusters),
      .products_of_busiest_block = busiest * WARPS / 4 * (walk.qk + walk.pv),
      .shuffles = q_warps * 2 * 2 * 2,             // two rows, two exchanges: the maxima of the first tile, the sums
      .votes = tiles * WARPS,                      // whether anything has to be rescaled
      .votes_on_scores = is_window ? 0 : q_warps,  // in the first tile, and where a warp is careful
      .yes_votes = q_warps,                        // in the first tile
      .exponentials = (tiles * WARPS * BC + q_warps * 4) * 16,  // weights; the corrections of the first tile
      .exponentials_under_stores = (q_warps - blocks * WARPS) * 2 * (BC / 2 + 2),  // those of the next first tile
      .barriers = 2 * blocks + q_warps / 4,                                   // of the cluster, and one of a warpgroup
      .bulk_copies = 4 * uint64_t(heads) * pairs + 2 * copied + 2 * q_warps,  // panels of Q, of K and V, of a warp's O
      .gmem_accesses = rows,                                                  // the log-sum-exps
      .gmem_bytes_read = (rows + copied_rows) * ROW_BYTES,
      .gmem_bytes_written = rows * (ROW_BYTES + sizeof(float)),
      .multicast_bytes = copied * 2 * BC * ROW_BYTES,
      .unused_smem_bytes = unwritten,  // the second Q, and stages
      .idle_blocks = idle};
}

// A warp may make the weights of one tile twice for each of its tiles of queries. O is corrected at rest before the last product alone.
template <class C>
ladder::Counts most_of_data(const ladder::Launched& spec) {
  const uint64_t q_warps = spec.batch_heads() * (((spec.n + C::BR - 1) / C::BR + 1) / 2) * 2 * C::WARPS;
  return {.exponentials = q_warps * 16 * C::BC, .corrections_at_rest = q_warps * 32};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {
      .features = ladder::CAUSAL | ladder::TAILS | ladder::CROSS | ladder::STRIDES | ladder::GROUPED | ladder::WINDOW,
      .q = ladder::Element::bf16,
      .kv = ladder::Element::bf16,
      .o = ladder::Element::bf16};
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.per_rescale = {.shuffles = 2 * 2, .exponentials = 2 * 32};
  rest.most_of_data = most_of_data<C>;
  rest.largest_score = 0x1p14f;  // beyond it a maximum that came by a sum has lost too much
  return ladder::make_variant<C>(run<C>, flash_attention<C, Mask::none>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "43_window",
    .previous = "42_grouped",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "Windows, and with them rows of a tile that see none of its keys: every maximum is taken anew, "
                   "beside the bounds of each walk."},
    .idea = "A query sees so many keys before its own and so many behind it, and tiles outside of that are neither "
            "copied nor computed.",
    .limit = "A query of a long text sees all keys before it. Models let every other layer see the last few thousand "
             "alone.",
    .prediction =
        "In turns, over FlashAttention-3 in bf16, 16 heads, causal, n = 32768: 1.15 with a window of 256, 1.12 with "
        "1024, 1.08 with 4096. In a window of 256 a tile of queries computes three tiles of keys where two are seen, "
        "and what a tile of queries costs beside its products, the first QK and softmax and the last PV, lies beside "
        "three steps and no more: 320 TFLOPS of what is seen. Without a window the rate is 42's, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 8,
                   .reason = "In a window a consumer's schedule is more than its registers hold."}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
