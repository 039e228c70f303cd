// d03_two: two blocks on an SM. While one begins, ends or waits, the other reads.
// Before:  in d02_split a block has an SM to itself, and while it begins and ends nobody reads there.
// Tile:    64x64, 4 warps and one that copies, two blocks on an SM.  Shared: 112 KiB and 96 B (Q 16; K, V 3 x 16 each).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90a.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] of that type, in any strides.
//          LSE: [batch, heads, n_q] f32. The workspace as in d02_split.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding.cuh"

namespace {

// 41_rows spells out rows_map and no_keys, 43_window the softmax; d01_packed the rows, what they see, how they and
// their keys are loaded, d02_split what a share stores, and the join.
using decoding::Rows, decoding::Seen, decoding::load_rows, decoding::hide_unseen, decoding::store_share;
using decoding::start_join, forward::LOG2E, forward::rows_map, forward::Softmax;

constexpr int HEAD_DIM = 128, ROW_BYTES = HEAD_DIM * 2;
constexpr int PANEL_ROW_BYTES = ROW_BYTES / 2;

template <class T, int BR, int BC, int WARPS, int STAGES>
struct Config : forward::Tile<T, BR, BC, WARPS, STAGES, 1> {
  static_assert(BR == 16 * WARPS && WARPS == 4, "each warp owns 16 rows, and four warps multiply together");
  static constexpr int THREADS = WARPS * 32 + 32, PER_SM = 2;
  static constexpr uint32_t SMEM_BYTES = (BR + 2 * STAGES * BC) * ROW_BYTES + 4 * STAGES * 8;  // and mbarriers
};

template <class C>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM)
    flash_attention(ModelParams p, int shares, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map) {
  using T = typename C::Element;
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  constexpr int QK_N_TILES = BC / 8, PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const decoding::PanelSmem<C, HEAD_DIM> smem;
  smem.name_and_init();
  const auto &K = smem.K, &V = smem.V;
  // Tiles of keys that some row of the block sees, at least one, and those that all see: by the first of them every row
  // has met a key. Of the former this share's.
  const Rows rows = Rows::of_block<C>(p, shares);
  const Seen seen(p);
  const int sequence = blockIdx.z, first_query = rows.query(0), last_query = rows.query(BR - 1);
  const int first_tile = seen.first_of(first_query) / BC, share = blockIdx.x % shares;
  const int tiles = max((seen.end_of(last_query) + BC - 1) / BC - first_tile, 1);
  const int begin = first_tile + share * tiles / shares, end = first_tile + (share + 1) * tiles / shares;
  const int whole_begin = seen.first_of(last_query) / BC + 1, whole_end = seen.end_of(first_query) / BC;

  // LOAD  One thread asks for tiles of K and V as stages are empty.
  if (warp >= WARPS) {
    if (lane == 0) decoding::load_tiles<C, HEAD_DIM>(smem, begin, end, K_map, V_map, blockIdx.y, sequence);
    return;
  }

  load_rows<C, HEAD_DIM>(p, rows, sequence, smem.Q);
  const uint64_t Q_rows = wgmma_descriptor(smem.Q), K_tiles = wgmma_descriptor(smem.K_tiles),
                 V_tiles = wgmma_descriptor(smem.V_tiles, BC * PANEL_ROW_BYTES);
  Softmax<T, BC> softmax = {};
  softmax.scale_log2 = p.softmax_scale * LOG2E;
  softmax.begin();
  float O_frag[PV_N_TILES][4], S_frag[QK_N_TILES][4];  // FragmentC: registers 0, 1 are of a row, 2, 3 of 8 below
  uint32_t P_frag[PV_K_TILES][4];
  const int lane_row[2] = {int(warp) * 16 + FragmentC::row(lane, 0), int(warp) * 16 + FragmentC::row(lane, 2)};
  const int query[2] = {rows.query(lane_row[0]), rows.query(lane_row[1])};

  for (int tile = begin; tile < end; ++tile) {
    // QK
    K.wait_full(tile - begin);
    wgmma_fence(S_frag);
    issue_QK<T, HEAD_DIM, BR, BC>(S_frag, Q_rows, wgmma_advance(K_tiles, K.at(tile - begin)));
    wgmma_commit();
    wgmma_wait<0>(S_frag);  // safe to read S: QK is done
    if (threadIdx.x == 0) mbarrier_arrive(K.empty_of(tile - begin));

    // SOFTMAX  In a masked tile a row may meet its first key.
    const bool is_masked = tile < whole_begin || tile >= whole_end;
    if (is_masked) hide_unseen(S_frag, seen, query, tile * BC);
    softmax.weigh(S_frag, P_frag, tile == begin, is_masked);
    if (softmax.rescale) scale_rows(O_frag, softmax.correction);

    // PV
    V.wait_full(tile - begin);
    wgmma_fence(O_frag, P_frag);
    issue_PV<T>(O_frag, P_frag, wgmma_advance(V_tiles, V.at(tile - begin)), tile > begin);
    wgmma_commit();
    wgmma_wait<0>(O_frag, P_frag);  // safe to touch O and P: PV is done
    if (threadIdx.x == 0) mbarrier_arrive(V.empty_of(tile - begin));
  }

  // STORE
  store_share<C>(p, rows, sequence, share, shares, lane_row, query, softmax, O_frag);
}

// How many shares: as many as fill the card once, with all blocks that an SM takes, and no more than there are tiles of
// keys, than the workspace was made for, and than a join reads in no time.
constexpr int MOST_BLOCKS = 320, MOST_SHARES = 64;
template <class C>
int shares_of(int64_t blocks, int n_k, int multiprocessors) {
  const int tiles = (n_k + C::BC - 1) / C::BC, places = min(C::PER_SM * multiprocessors, MOST_BLOCKS);
  return blocks > places ? 1 : max(min(min(places / int(blocks), MOST_SHARES), tiles), 1);
}

// LAUNCH  The blocks of a tile of BR rows of a head of keys, one behind the other, and if they are several the join.
//         The pointers of `p` belong to the device and are multiples of 16 B, as are strides.
template <class C>
void run(Device& device, const ModelParams& p) {
  using T = typename C::Element;
  if (p.n_k == 0) return forward::start_no_keys<T, HEAD_DIM>(device, p);
  const auto map = [&](const void* tensor, const ForwardParams::Strides& strides) {
    return rows_map<T>(device, tensor, strides, p.d, p.n_k, p.kv_heads, p.batch, C::BC);
  };
  const int tiles_of_rows = (p.n_q * (p.heads / p.kv_heads) + C::BR - 1) / C::BR;
  const int shares = shares_of<C>(tiles_of_rows * p.kv_heads * p.batch, p.n_k, multiprocessors(device));
  launch(device, flash_attention<C>, dim3(tiles_of_rows * shares, p.kv_heads, p.batch), dim3(C::THREADS), C::SMEM_BYTES,
         p, shares, map(p.K, p.K_strides), map(p.V, p.V_strides));
  if (shares > 1) start_join<T, HEAD_DIM>(device, p, shares);
}

}  // namespace
