#include <algorithm>

#include "harness/stage.hpp"
#include "harness/walk.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  constexpr int64_t BR = C::BR, BC = C::BC, M_TILES = BR / 16 / C::WARPS, WARP_ROWS = 16 * M_TILES;
  constexpr uint64_t WARPS = C::WARPS, D = C::HEAD_DIM;
  constexpr uint64_t PRODUCTS = M_TILES * (BC / 8) * (D / 16);  // QK of a warp and a tile of keys, and PV as many
  const uint64_t heads = spec.heads;
  const bool is_varlen = spec.lens_q.count > 0;
  uint64_t rows = 0, q_rows = 0, key_rows = 0;   // of O; of Q and of K, as often as they are copied
  uint64_t blocks = 0, idle = 0, with_keys = 0;  // blocks that have queries, that have none, that see a key
  uint64_t tiles = 0, rescales = 0;              // of keys, of all blocks; rescales of a warp, the fewest
  ladder::BusiestSm sm(spec.multiprocessors);
  for (int s = 0; s < spec.batch; ++s) {
    const int64_t n_q = is_varlen ? spec.lens_q.of[s] : spec.n, n_k = is_varlen ? spec.lens_k.of[s] : spec.keys();
    const int64_t left = spec.left < 0 ? n_k : spec.left;
    const int64_t right = spec.causal ? 0 : spec.right < 0 ? n_q : spec.right;
    const auto first_of = [&](int64_t query) { return std::max<int64_t>(query + n_k - n_q - left, 0); };
    const auto end_of = [&](int64_t query) { return std::clamp<int64_t>(query + 1 + n_k - n_q + right, 0, n_k); };
    const auto tiles_of = [&](int64_t query) {
      return uint64_t((end_of(std::min(query + BR, n_q) - 1) + BC - 1) / BC - first_of(query) / BC);
    };
    for (int64_t query = 0; query < (spec.n + BR - 1) / BR * BR; query += BR) {
      if (query >= n_q) {
        idle += heads;
        continue;
      }
      const int64_t begin = first_of(query) / BC, last = std::min(query + BR, n_q) - 1;
      const int64_t end = (end_of(last) + BC - 1) / BC;
      blocks += heads;
      with_keys += heads * (begin < end);
      rows += heads * (last + 1 - query);
      q_rows += begin < end ? heads * (last + 1 - query) : 0;
      tiles += heads * tiles_of(query);
      key_rows += heads * (std::min(end * BC, n_k) - begin * BC);
      // A warp rescales until each of its rows has seen a key.
      for (int64_t first = query; first < query + BR; first += WARP_ROWS) {
        const int64_t upper = std::min(first, last), lower = std::min(first + WARP_ROWS - 1, last);
        const int64_t met = first_of(upper) < end_of(upper) ? first_of(lower) / BC + 1 : end;
        if (!spec.sink) rescales += heads * (std::clamp(met, begin, end) - begin);
      }
    }
    for (uint64_t head = 0; head < heads; ++head) {  // a head's last queries begin first
      for (int64_t query = (n_q + BR - 1) / BR * BR - BR; query >= 0; query -= BR)
        sm.block(tiles_of(query) * WARPS * 2 * PRODUCTS);
    }
  }
  const uint64_t warp_tiles = tiles * WARPS, warps = blocks * WARPS;
  // A thread reads its sequence's ends, and how many rows there are of all; its head's slope and its sink.
  const uint64_t numbers = (is_varlen ? (5 * blocks + 4 * idle) : 0) + blocks * (spec.alibi + spec.sink);
  return {.mma = warp_tiles * 2 * PRODUCTS,
          .products_of_busiest_sm = sm.most,
          .ldmatrix = warp_tiles * (M_TILES + 2 * BC / 16) * (D / 16),  // K and V are read once per warp
          // QK of a tile runs under its V, PV under the next K.
          .products_under_copies = (2 * tiles - with_keys) * BC * C::ROW_CHUNKS * PRODUCTS,
          .shuffles = (warps + rescales) * M_TILES * 2 * 2,  // two rows, two exchanges: a sum at the end, a maximum
          .votes = warp_tiles,                               // whether anything has to be rescaled
          .yes_votes = rescales,
          .exponentials = warp_tiles * WARP_ROWS * BC * (spec.softcap > 0 ? 2 : 1) + rescales * M_TILES * 2 * 32,
          .integer_maxima = warp_tiles * M_TILES * 32 * 2 * (BC / 8),  // all scores, two at a time
          .products_after_exponentials = warp_tiles * (BC / 16),       // a slice of PV behind its weights
          .barriers = tiles * 2,
          .gmem_accesses = rows * (C::ROW_CHUNKS + 1) + numbers * C::THREADS,  // of O and LSE
          .gmem_bytes_read = (q_rows + 2 * key_rows) * C::ROW_BYTES + numbers * C::THREADS * 4,
          .gmem_bytes_written = rows * (C::ROW_BYTES + sizeof(float)),
          .unused_smem_bytes = with_keys > 0 ? 0 : uint64_t(2 * BC + (blocks > 0 ? 0 : BR)) * C::ROW_BYTES,
          .idle_blocks = idle};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  constexpr uint64_t M_TILES = C::BR / 16 / C::WARPS;
  rest.accepts = {.features = ladder::CAUSAL | ladder::TAILS | ladder::CROSS | ladder::STRIDES | ladder::GROUPED |
                              ladder::WINDOW | ladder::VARLEN | ladder::SOFTCAP | ladder::ALIBI | ladder::SINK,
                  .min_d = C::HEAD_DIM,
                  .max_d = C::HEAD_DIM,
                  .q = ladder::Element::bf16,
                  .kv = ladder::Element::bf16,
                  .o = ladder::Element::bf16};
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.per_rescale = {.shuffles = M_TILES * 2 * 2, .exponentials = M_TILES * 2 * 32};
  rest.conflict_ways = 1.0;
  rest.largest_score = 0x1p24f;  // 05_exp2f says why
  return ladder::make_variant<C>(run<C>, flash_attention<C, Score<false, false>>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "o50_anycard",
    .previous = "50_anycard",
    .role = ladder::Role::port,
    .more_lines = {ladder::MoreLines::port,
                   "What 40 to 48 found, for mma.sync and cp.async: told anew, from 09 and not from a text for wgmma."},
    .idea = "All that models ask for, of one kernel with mma.sync and cp.async alone, for every GPU from sm_80 on.",
    .limit =
        "48 needs a Hopper card: wgmma, clusters, a copy engine. 09, of past_fa2, runs on every one since the A100, "
        "and solves a problem that no model has.",
    .prediction =
        "In turns, over FlashAttention-2 in PyTorch, in bf16, 4 x 16 heads, n = 4096: 1.14 dense and 1.22 causal, "
        "within 4 %. Dense "
        "it is 09, which is 1.15 times FlashAttention-2 in f16, with 11's addresses for it and strides, lengths and a "
        "test for masks against it; causal the longest blocks start first, and FlashAttention-2's do not. A window of "
        "1024 at "
        "n = 32768 has 0.85 of the causal rate at n = 16384: of the 18 tiles that a block walks through, 16 are what "
        "it "
        "asked for. Ten sequences of 37 to 8192 tokens have 0.93 of the dense rate at n = 4096.",
    .min_sm = 80,
    .needs = "mma.m16n8k16 in bf16, cp.async, 64 KiB of shared memory",
    .resources = {{.sm = 80, .registers = 255, .spill_bytes = 8, .reason = "O and S alone are 192 registers"},
                  {.sm = 90, .registers = 255, .spill_bytes = 24, .reason = "as above; most with a softcap or slopes"}},
    .variants = {variant<Config<128, 128, 64, 4>>(), variant<Config<64, 128, 64, 4>>({.label = "d = 64"})},
});

}  // namespace
