#include <algorithm>
#include <vector>

#include "harness/stage.hpp"
#include "kernel.cuh"

namespace {

bool is_varlen(const ladder::Spec& spec) {
  return spec.lens_q.count > 0;
}
int total_of(const ladder::Spec& spec, const ladder::Lengths& lengths, int n) {
  return is_varlen(spec) ? lengths.before(lengths.count) : spec.batch * n;
}

template <class C>
int q_tiles_of(const ladder::Spec& spec) {
  return is_varlen(spec) ? total_of(spec, spec.lens_q, spec.n) / C::BR + spec.batch
                         : spec.batch * tiles_of<C::BR>(spec.n);
}

// How often the kernel's search for the last one that begins at `value` or before looks.
template <class Begin>
uint64_t looks(int count, int value, Begin begin) {
  uint64_t looks = 0;
  for (int found = 0, behind = count; behind - found > 1; ++looks) {
    const int middle = (found + behind) / 2;
    (begin(middle) <= value ? found : behind) = middle;
  }
  return looks;
}

// wgmma is counted per warpgroup, 64 keys, and tile of BR queries, a pair.
template <class C>
ladder::Counts predict(const ladder::Shape& spec) {
  constexpr int BR = C::BR, BC = C::BC;
  constexpr uint64_t QUERY_SLICES = BR / 16, KEY_SLICES = BC / 16;
  const bool varlen = is_varlen(spec);
  const uint64_t heads = spec.heads, kv_heads = spec.key_heads(), batch = spec.batch, group = heads / kv_heads;
  // Of a head: rows, those of used tiles, tiles of queries that blocks walk over, rows of these, blocks, those that walk, warps
  // that store.
  uint64_t rows = 0, keys = 0, padded = 0, tiles = 0, copied_rows = 0, blocks = 0, walks = 0, warps = 0, most = 0;
  struct Of {
    int walk, blocks, number, before;
  };
  std::vector<Of> list;
  for (int s = 0; s < spec.batch; ++s) {
    const int n_q = varlen ? spec.lens_q.of[s] : spec.n, n_k = varlen ? spec.lens_k.of[s] : spec.keys();
    const int q_tiles = tiles_of<BR>(n_q), k_tiles = tiles_of<BC>(n_k),
              before = spec.causal ? 0 : side(spec.right, n_q), behind = side(spec.left, n_k);
    rows += n_q, keys += n_k, padded += q_tiles * BR, blocks += k_tiles, warps += tiles_of<16>(n_k);
    const auto first = [&](int key) { return ladder::max(key + n_q - n_k - before, 0) / BR; };
    const auto walk = [&](int key) {  // in tiles, from the first one on
      const int end = ladder::min(ladder::min(key + BC, n_k) + n_q - n_k + behind, n_q);
      return ladder::max(tiles_of<BR>(end) - first(key), 0);
    };
    for (int key = 0; key < n_k; key += BC) {
      tiles += walk(key), walks += walk(key) > 0;
      if (walk(key) > 0) copied_rows += ladder::min(n_q, (first(key) + walk(key)) * BR) - first(key) * BR;
      most = ladder::max<uint64_t>(most, group * walk(key));
    }
    list.push_back({walk(0), int(kv_heads) * k_tiles, s, 0});
  }
  std::ranges::stable_sort(list, [](const Of& a, const Of& b) { return a.walk > b.walk; });
  for (size_t place = 1; place < list.size(); ++place)
    list[place].before = list[place - 1].before + list[place - 1].blocks;
  const int grid_q = q_tiles_of<C>(spec);
  const uint64_t grid_k = keys == 0 ? 0 : kv_heads * (varlen ? keys / BC + batch : blocks);
  // Lengths: of the plan, and of every thread that looks for its tile's sequence, before and after; and the list of its keys'.
  uint64_t lengths = varlen ? batch * (11 + 4 * batch) + batch * (batch - 1) : 0, entries = 0;
  for (int tile = 0; varlen && tile < grid_q; ++tile) {
    const auto begin = [&](int s) { return spec.lens_q.before(s) / BR + s; };
    lengths += 2 * heads * ROW_THREADS * (3 + looks(spec.batch, tile, begin));
  }
  for (uint64_t block = 0; block < grid_k; ++block)
    entries += C::THREADS * looks(spec.batch, int(block), [&](int place) { return list[place].before; });
  const uint64_t pairs = 2 * heads * tiles, sum_bytes = HEAD_DIM * 4;
  return {.wgmma = pairs * (2 * D_SLICES + 2 * QUERY_SLICES + KEY_SLICES),  // S, dP; dV, dK; dQ
          .wgmma_left_running = pairs * (D_SLICES + 2 * QUERY_SLICES),      // dP; dV; dK
          .shuffles = heads * padded / 4 * 3,
          .exponentials = heads * tiles * BR * BC,
          .corrections_at_rest = (heads * tiles - kv_heads * walks) * C::WARPS * 32,  // S, which begins with -LSE
          .barriers = 2 * kv_heads * blocks + heads * tiles,
          // Panels of K, V; of Q, dO, and LSE and D; dQ twice; panels of a warp's dK and dV.
          .bulk_copies = 2 * kv_heads * blocks + 5 * heads * tiles + 2 * kv_heads * warps,
          .gmem_accesses = lengths + entries + 2 * C::THREADS * grid_k + 2 * batch         // of the list
                           + heads * padded * (2 * ROW_CHUNKS + 3 + sum_bytes / 16)        // deltas and zeros
                           + heads * (padded * (sum_bytes / 16) + rows * 2 * ROW_CHUNKS),  // dQ
          .gmem_bytes_read = (lengths + entries) * 4 + C::THREADS * grid_k * sizeof(Sequence) +
                             heads * padded * (2 * ROW_BYTES + 4) +
                             (kv_heads * keys + heads * copied_rows) * 2 * ROW_BYTES +
                             heads * (tiles * C::ROWS_BYTES + padded * sum_bytes + rows * ROW_CHUNKS * 4),
          .gmem_bytes_written = batch * sizeof(Sequence) + heads * padded * (8 + sum_bytes) +
                                (heads * rows + 2 * kv_heads * keys) * ROW_BYTES,
          .gmem_bytes_reduced = heads * tiles * BR * sum_bytes,
          .unused_smem_bytes = most == 1                 ? C::STAGE_BYTES + C::dS_BYTES  // a second stage, a second dS
                               : most == 0 && grid_k > 0 ? 2 * (C::STAGE_BYTES + C::dS_BYTES + C::dQ_BYTES)
                                                         : 0,
          .idle_blocks = 2 * heads * (grid_q - padded / BR) + grid_k - (grid_k > 0 ? kv_heads * blocks : 0)};
}

// dP begins with -D, which may be 0 in all queries of a tile.
template <class C>
ladder::Counts most_of_data(const ladder::Shape& shape) {
  return {.corrections_at_rest = predict<C>(shape).corrections_at_rest};
}

template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {  // the list; the sum of dQ, LSE and D
  return spec.batch * sizeof(Sequence) +
         uint64_t(q_tiles_of<C>(spec)) * spec.heads * C::BR * (HEAD_DIM + 2) * sizeof(float);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL | ladder::TAILS | ladder::CROSS | ladder::STRIDES | ladder::GROUPED |
                              ladder::WINDOW | ladder::VARLEN,
                  .min_d = HEAD_DIM,
                  .max_d = HEAD_DIM,
                  .q = ladder::Element::bf16,
                  .kv = ladder::Element::bf16,
                  .o = ladder::Element::bf16,
                  .formula = "backward"};
  rest.workspace_bytes = workspace_bytes<C>;
  rest.most_of_data = most_of_data<C>;
  return ladder::make_variant<C>(run<C>, gradients<C, false>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "83_d64",
    .previous = "82_nearby",
    .role = ladder::Role::variant,
    .idea = "Heads of 64 columns: 128 queries a tile in place of 64, and each warpgroup makes dQ of half of them.",
    .limit =
        "82_nearby takes d = 128 alone. With 64 columns its tile of 64 queries would hold half the work, between as "
        "many barriers and waits, and with as many exponentials.",
    .prediction =
        "In turns, bf16, n = 4096, batch 4, 16 heads: 0.97 to 1.10 times FlashAttention-3's gradients dense, 0.95 to "
        "1.08 causal. In TFLOPS 0.68 to 0.80 of what 82 reaches at d = 128: a tile has as many exponentials for half "
        "the products, and as many numbers of P and dS pass the registers.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 194 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
