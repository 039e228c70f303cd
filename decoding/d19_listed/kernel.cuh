// d19_listed: softcaps, ALiBi and sinks for sequences of unlike lengths, whose steps stand in one list. A row's sink is
// added by who has the first of its steps.
// Before:  d08_seamless knows of no function of a score; d16_functions does, and cuts each sequence into as many shares
//          as the longest.
// Tile:    16x16 for each of 8 warps; a block on an SM. Shared: 193 KiB (a warp 24: K, V 3 x 4 each; 1 of maxima and
//          sums). Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90.
// Shapes:  as d06_pages; alibi_slopes, sinks: [heads] f32, or null. The workspace as d07_list.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding.cuh"
#include "common/words/decoding_scores.cuh"

namespace {

// 41_rows spells out no_keys, d02_split the join of a row, d04_warps what is done with a tile of keys, d06_pages where
// these stand, d07_list the list and who joins, d08_seamless how a block goes through it, and d16_functions the scores.
using decoding::HEAD_DIM;
using decoding::ListTile;
using decoding::Rows;

template <class T, int BC, int WARPS, int STAGES>
struct Config : decoding::SeamlessTile<T, 16, BC, WARPS, STAGES> {};

template <class C, bool IN_PAGES>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) flash_attention(CacheScoreParams p) {
  static_assert(C::BC == 16);
  griddepcontrol_launch_dependents();  // safe: who joins waits until this launch is over
  const decoding::List<C> list(p);
  const int steps = list.before(p.batch), blocks = min(int(gridDim.x), steps), block = blockIdx.x;
  if (block >= blocks) return;
  const int begin = decoding::begin_of(block, blocks, steps), end = decoding::begin_of(block + 1, blocks, steps);
  const auto end_of = [&](const ListTile& tile, int) { return min(tile.end, end); };

  // LOAD     A block goes through its part of the list as d08 spells out, and so are
  // QK       the products.
  // SOFTMAX  Before it the scores become what the model makes of them,
  const auto function_of = [&](const ListTile& tile, const Rows& rows) {
    return decoding::ModelFunction::of<C>(p, rows, tile.n_k);
  };
  // PV       and then come the sums with V.
  // STORE    The sink comes in where the tile's first step is.
  const auto leave = [&](const ListTile& tile, int from, int to, const Rows& rows, int row, float(&O)[4],
                         decoding::Joined found LADDER_SITE_PARAMETER) {
    const int head = rows.head(row);
    if (p.sinks != nullptr && from == tile.first)
      decoding::add_sink(ld_global_f32(p.sinks + head LADDER_SITE), O, found);
    if (from == tile.first && to == tile.end) {
      decoding::store_row<typename C::Element>(p, tile.sequence, head, rows.query(row), O, found LADDER_SITE);
    } else {
      decoding::store_part(decoding::part_of<C>(p, block, from == begin, row), O, found LADDER_SITE);
    }
  };
  decoding::attend_list<C, IN_PAGES>(p, list, ListTile::of(list, begin), begin, end, end_of, leave, function_of);
}

// LAUNCH  As in d07. The pointers of `p` belong to the device and are multiples of 16 B, as are strides.
template <class C>
void run(Device& device, const CacheScoreParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  const int blocks = min(int(multiprocessors(device)), decoding::MOST_SHARES);
  launch(device, p.block_table != nullptr ? flash_attention<C, true> : flash_attention<C, false>, dim3(blocks),
         dim3(C::THREADS), C::SMEM_BYTES, p);
  decoding::start_join_list<C>(device, p, blocks);
}

}  // namespace
