#include "harness/problem/lists.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <span>

#include "harness/stages/blocks.hpp"

namespace ladder {
namespace {

using Stencil = std::vector<uint32_t>;  // of 128 queries and 64 keys
constexpr int STENCIL_KEYS = 64, WORDS = Blocks::QUERIES * STENCIL_KEYS / 32;

BlockLists make(const Spec& spec) {
  const int64_t tiles = blocks::Tile::count(spec), most = blocks::Tile::of_keys(spec);
  BlockLists made;
  made.stencils.assign(WORDS, 0);
  made.stencils.insert(made.stencils.end(), WORDS, ~0u);
  std::map<Stencil, int> known;  // of all of a block's keys, and the number of the first one
  const auto stencil_of = [&](const blocks::Tile& tile, int64_t k_block) {
    Stencil bits(static_cast<size_t>(spec.blocks.keys / STENCIL_KEYS * WORDS));
    for (int64_t row = 0; row < tile.rows; ++row) {
      for (int64_t key = 0; key < spec.blocks.keys; ++key) {
        const int64_t word = (key / STENCIL_KEYS * Blocks::QUERIES + row) * 2 + key % STENCIL_KEYS / 32;
        if (tile.sees(row, k_block * spec.blocks.keys + key)) bits[static_cast<size_t>(word)] |= 1u << (key % 32);
      }
    }
    const auto [at, is_new] = known.try_emplace(bits, static_cast<int>(made.stencils.size() / WORDS));
    if (is_new) made.stencils.insert(made.stencils.end(), bits.begin(), bits.end());
    return at->second;
  };
  for (int sequence = 0; sequence < spec.batch; ++sequence) {
    for (int64_t q_block = 0; q_block < tiles; ++q_block) {
      const blocks::Tile tile(spec, sequence, q_block);
      std::vector<int> list;
      int count = 0, whole = 0;
      for (const auto wanted : {blocks::Kind::whole, blocks::Kind::part}) {
        for (int64_t i = 0; i < most; ++i) {
          const int64_t k_block = sequence % 3 < 2 ? i : most - 1 - i;  // any order is one: here from the last on
          if (tile.kind(k_block) != wanted) continue;
          list.insert(list.end(),
                      {static_cast<int>(k_block), wanted == blocks::Kind::part ? stencil_of(tile, k_block) : 1});
          ++count;
        }
        if (wanted == blocks::Kind::whole) whole = count;
      }
      list.resize(static_cast<size_t>(2 * most), -1);  // nobody may follow what stands behind the last one
      made.lists.insert(made.lists.end(), list.begin(), list.end());
      made.counts.insert(made.counts.end(), {count, whole});
    }
    std::vector<int> order(static_cast<size_t>(tiles));
    std::iota(order.begin(), order.end(), 0);
    const std::span counts = std::span(made.counts).last(static_cast<size_t>(2 * tiles));
    std::ranges::stable_sort(order, std::greater(), [&](int tile) { return counts[static_cast<size_t>(2 * tile)]; });
    made.order.insert(made.order.end(), order.begin(), order.end());
  }
  return made;
}

}  // namespace

std::shared_ptr<const BlockLists> block_lists(const Spec& spec) {
  const Spec of{.batch = spec.batch,
                .n = spec.n,
                .n_k = spec.n_k,
                .causal = spec.causal,
                .left = spec.left,
                .right = spec.right,
                .intervals = spec.intervals,
                .blocks = spec.blocks};
  static std::mutex mutex;
  static std::vector<std::pair<Spec, std::shared_ptr<const BlockLists>>> kept;
  const std::lock_guard lock(mutex);
  for (const auto& [one, lists] : kept) {
    if (one == of) return lists;
  }
  constexpr size_t MOST = 8;
  if (kept.size() == MOST) kept.erase(kept.begin());
  return kept.emplace_back(of, std::make_shared<const BlockLists>(make(of))).second;
}

}  // namespace ladder
