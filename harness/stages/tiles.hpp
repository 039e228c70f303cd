// For the predictions of rungs from 40 on: which tiles of queries and of keys meet, at any lengths, under a mask, in a window. Without the
// standard library, as stage_words.hpp.
#pragma once
#include "harness/stages/blocks.hpp"
#include "harness/stages/stage_words.hpp"

namespace ladder {

// Tiles, or groups of them, that hold so many.
constexpr int64_t tiles_of(int64_t count, int64_t tile) {
  return (count + tile - 1) / tile;
}

// Tiles of queries of all sequences, of a head, where those of several lengths are told by a bound.
inline uint64_t q_tiles_of(const Spec& spec, int64_t br) {
  return spec.lens_q.count > 0 ? spec.lens_q.before(spec.lens_q.count) / br + spec.batch
                               : spec.batch * tiles_of(spec.n, br);
}

// Tiles of queries walk over the tiles of keys that some of their queries see, at least over `fewest`.
struct Forward {
  uint64_t queries = 0;    // tiles of queries, of all heads
  uint64_t tiles = 0;      // of keys, in all of their walks
  uint64_t beginning = 0;  // of these: where some query may see its first key
  uint64_t leaving = 0;    // tiles of queries whose walk ends before that of their group
  uint64_t blocks = 0;     // where blocks stay on their multiprocessors

  // `together` blocks take a group of as many tiles of queries of a head, of which the last may lie outside. A share is a group, or
  // `in_twos` the longest of a head and its shortest, and `evenly` those that are left of two heads.
  Forward(const Launched& spec, int64_t br, int64_t bc, int64_t together = 1, bool in_twos = false, int64_t fewest = 1,
          bool evenly = false) {
    if (spec.keys() == 0 && spec.lens_q.count == 0) return;
    for (int s = 0; s < spec.batch; ++s) {
      const int64_t n_q = queries_of(spec, s), n_k = keys_of(spec, s), right = spec.causal ? 0 : spec.right;
      const auto last_of = [&](int64_t tile) { return min((tile + 1) * br, n_q) - 1; };
      const auto before = [&](int64_t query) {
        return spec.left < 0 ? 0 : max<int64_t>(query + n_k - n_q - spec.left, 0) / bc;
      };
      const auto up_to = [&](int64_t tile) {
        return tiles_of(max(right < 0 ? n_k : min(last_of(tile) + 1 + n_k - n_q + right, n_k), fewest), bc);
      };
      const int64_t in_groups = tiles_of(tiles_of(n_q, br), together) * together;
      for (int64_t tile = 0; tile < in_groups; ++tile) {
        const int64_t from = before(min(tile * br, n_q - 1)), to = up_to(tile);
        tiles += spec.heads * (to - from);
        beginning += spec.heads * (min(before(last_of(tile)), to - 1) - from + 1);
        leaving += spec.heads * (to < up_to(tile / together * together + together - 1));
      }
      queries += spec.heads * in_groups;
    }
    const int64_t groups = tiles_of(tiles_of(spec.n, br), together);  // of the longest
    const int64_t heads = spec.batch_heads();
    const int64_t shares = !in_twos ? heads * groups
                           : evenly ? tiles_of(heads * groups, 2)
                                    : heads * tiles_of(groups, 2);
    blocks = together * min<int64_t>(shares, spec.multiprocessors / together);
  }
};

// The same of strips of 64 queries, each of which ends where its own queries see no more. `in_group` of them share what is copied; a strip
// goes over one tile at least, and over all that its group does but for `fewer`. Those behind the end go as far as the last one, or see
// nothing.
struct Strips {
  uint64_t count = 0;  // of all heads
  uint64_t tiles = 0;  // of keys, in all of their walks
  uint64_t early = 0;  // strips that end before their group

  Strips(const Spec& spec, int64_t in_group, int64_t bc, int64_t fewer, bool sees_behind) {
    const int64_t n_q = spec.n, n_k = spec.keys(), right = spec.causal ? 0 : spec.right;
    const auto tiles_before = [&](int64_t query) {
      return tiles_of(max<int64_t>(right < 0 ? n_k : min(min(query, n_q) + n_k - n_q + right, n_k), 1), bc);
    };
    for (int64_t first = 0; n_k > 0 && first < n_q; first += in_group * 64) {
      const int64_t begin = spec.left < 0 ? 0 : max<int64_t>(first + n_k - n_q - spec.left, 0) / bc;
      const int64_t end = tiles_before(first + in_group * 64), least = max(begin + 1, end - fewer);
      for (int64_t query = first; query < first + in_group * 64; query += 64) {
        const int64_t own = max(query < n_q || sees_behind ? tiles_before(query + 64) : 0, least);
        count += spec.batch_heads(), tiles += spec.batch_heads() * (own - begin);
        early += own < end ? spec.batch_heads() : 0;
      }
    }
  }
};

// The same of blocks that work alone, where each query has an interval of keys: from the tile of the least first key of a tile of
// queries to that of the greatest last one, and over one tile where no query sees a key.
struct ByIntervals {
  uint64_t queries = 0;  // tiles of queries, of all heads
  uint64_t tiles = 0;    // of keys, in all of their walks

  ByIntervals(const Spec& spec, int64_t br, int64_t bc) {
    const int64_t n_q = spec.n, n_k = spec.keys();
    if (n_k == 0) return;
    for (int s = 0; s < spec.batch; ++s) {
      for (int64_t begin = 0; begin < n_q; begin += br) {
        int64_t least = n_k - 1, greatest = 0;
        for (int64_t query = begin; query < min(begin + br, n_q); ++query) {
          const auto [first, end] = seen_otherwise(spec, s, query);
          if (first >= end) continue;
          least = min<int64_t>(least, first), greatest = max<int64_t>(greatest, end);
        }
        queries += spec.heads;
        tiles += spec.heads * (max(tiles_of(greatest, bc), least / bc + 1) - least / bc);
      }
    }
  }
};

// The same where each tile of queries has a list of blocks of keys, by tiles of two times 64 of them.
struct ByLists {
  uint64_t queries = 0;
  uint64_t tiles = 0;
  uint64_t in_part = 0;  // of these: some query of the tile does not see all of it

  explicit ByLists(const Spec& spec) {
    if (!spec.blocks || spec.keys() == 0) return;
    for (int s = 0; s < spec.batch; ++s) {
      for (int64_t q_block = 0; q_block < blocks::Tile::count(spec); ++q_block) {
        const blocks::Tile tile(spec, s, q_block);
        int64_t keys = 0, whole = 0;
        for (int64_t k_block = 0; k_block < tile.of_keys(spec); ++k_block) {
          const blocks::Kind kind = tile.kind(k_block);
          keys += kind == blocks::Kind::none ? 0 : spec.blocks.keys;
          whole += kind == blocks::Kind::whole ? spec.blocks.keys : 0;
        }
        const int64_t of_keys = max<int64_t>(tiles_of(keys, 128), 1);
        queries += spec.heads;
        tiles += spec.heads * of_keys;
        in_part += spec.heads * (of_keys - whole / 128);
      }
    }
  }
};

// Tiles of `br` queries, from the first to the last whose least first key and greatest end let it see some of the keys from `key` on.
inline int64_t walk_by_intervals(const Spec& spec, int sequence, int64_t key, int64_t br, int64_t bc) {
  int64_t first = 0, behind = 0;
  for (int64_t tile = 0; tile * br < spec.n; ++tile) {
    int64_t from = spec.keys(), to = 0;
    for (int64_t query = tile * br; query < min<int64_t>((tile + 1) * br, spec.n); ++query) {
      const Interval of = seen_otherwise(spec, sequence, query);
      if (of.first < of.end) from = min<int64_t>(from, of.first), to = max<int64_t>(to, of.end);
    }
    if (from >= key + bc || to <= key) continue;
    first = behind == 0 ? tile : first, behind = tile + 1;
  }
  return behind - first;
}

// Those with a block of 128 queries that has some of these keys in its list.
inline int64_t walk_by_lists(const Spec& spec, int sequence, int64_t key, int64_t br, int64_t bc) {
  int64_t walk = 0;
  for (int64_t q_block = 0; q_block < blocks::Tile::count(spec); ++q_block) {
    const blocks::Tile tile(spec, sequence, q_block);
    bool met = false;
    for (int64_t at = key; at < min<int64_t>(key + bc, spec.keys()); at += 64)
      met |= tile.kind(at / spec.blocks.keys) != blocks::Kind::none;
    walk += met ? tiles_of(tile.rows, br) : 0;
  }
  return walk;
}

// A block has a tile of keys, and walks over the tiles of queries that see some of them, of each head that shares these keys.
struct Backward {
  uint64_t blocks = 0;   // of all heads of keys
  uint64_t walking = 0;  // of these: seen by some query
  uint64_t tiles = 0;    // of queries, in all walks

  Backward(const Spec& spec, int64_t br, int64_t bc) {
    for (int s = 0; s < spec.batch; ++s) {
      const int64_t n_q = queries_of(spec, s), n_k = keys_of(spec, s), ahead = n_q - n_k;
      const int64_t right = spec.causal ? 0 : spec.right < 0 ? n_q : spec.right, left = spec.left < 0 ? n_k : spec.left;
      for (int64_t key = 0; key < n_k; key += bc) {
        const int64_t first = max<int64_t>(key + ahead - right, 0) / br;
        const int64_t end = min(min(key + bc, n_k) + ahead + left, n_q);
        const int64_t walk = max<int64_t>(tiles_of(end, br) - first, 0);
        blocks += spec.key_heads();
        walking += walk > 0 ? spec.key_heads() : 0;
        tiles += spec.heads * walk;
      }
    }
  }
};

}  // namespace ladder
