// d02_split: the keys of a tile of rows are shared out among as many blocks as the card has room for, and a second
// launch joins what they found.
// Before:  in d01_packed a head of keys has one block. Of 8 heads 8 SMs read memory, and 124 do nothing.
// Tile:    64x128, 4 warps and one thread that copies.  Shared: 208 KiB and 96 B (Q 16; K, V 3 x 32 each).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90a.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] of that type, in any strides.
//          LSE: [batch, heads, n_q] f32.
//          In the workspace for each share and each row of O: O before it is divided, HEAD_DIM f32; behind all of these
//          its maximum in log2 units and the sum of its weights.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding.cuh"

namespace {

// 41_rows spells out rows_map and no_keys, 43_window the softmax; d01_packed the rows, what they see, how they and
// their keys are loaded.
using decoding::Rows, decoding::Seen, decoding::load_rows, decoding::hide_unseen;
using forward::LOG2E, forward::rows_map, forward::Softmax;

constexpr int HEAD_DIM = 128, ROW_BYTES = HEAD_DIM * 2;
constexpr int PANEL_ROW_BYTES = ROW_BYTES / 2;

template <class T, int BR, int BC, int WARPS, int STAGES>
struct Config : forward::Tile<T, BR, BC, WARPS, STAGES, 1> {
  static_assert(BR == 16 * WARPS && WARPS == 4, "each warp owns 16 rows, and four warps multiply together");
  static constexpr uint32_t SMEM_BYTES = (BR + 2 * STAGES * BC) * ROW_BYTES + 4 * STAGES * 8;  // and mbarriers
};

// What a share knows of a row of O, number `row` of all.
struct Part {
  float *O, *max, *sum;

  __device__ __forceinline__ Part(const ModelParams& p, int share, int shares, int64_t row) {
    const int64_t rows = int64_t(p.batch) * p.heads * p.n_q, number = share * rows + row;
    float* const parts = static_cast<float*>(p.workspace);
    O = parts + number * HEAD_DIM;
    max = parts + shares * rows * HEAD_DIM + number * 2, sum = max + 1;
  }
};

template <class C>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_attention(ModelParams p, int shares, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map) {
  using T = typename C::Element;
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  constexpr int QK_N_TILES = BC / 8, PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const decoding::PanelSmem<C, HEAD_DIM> smem;
  smem.name_and_init();
  const auto &K = smem.K, &V = smem.V;
  // Tiles of keys that some row of the block sees, at least one, and those that all see: by the first of
  // them every row has met a key. Of the former this share's.
  const Rows rows = Rows::of_block<C>(p, shares);
  const Seen seen(p);
  const int sequence = blockIdx.z, first_query = rows.query(0), last_query = rows.query(BR - 1);
  const int first_tile = seen.first_of(first_query) / BC, share = blockIdx.x % shares;
  const int tiles = max((seen.end_of(last_query) + BC - 1) / BC - first_tile, 1);
  const int begin = first_tile + share * tiles / shares, end = first_tile + (share + 1) * tiles / shares;
  const int whole_begin = seen.first_of(last_query) / BC + 1, whole_end = seen.end_of(first_query) / BC;

  // LOAD  One thread asks for tiles of K and V as stages are empty.
  if (warp >= WARPS) {
    if (threadIdx.x == WARPS * 32)
      decoding::load_tiles<C, HEAD_DIM>(smem, begin, end, K_map, V_map, blockIdx.y, sequence);
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
    const bool is_masked = tile < whole_begin || tile >= whole_end;
    if (is_masked) hide_unseen(S_frag, seen, query, tile * BC);

    // SOFTMAX  In a masked tile a row may meet its first key.
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

  // STORE  A lane has two columns of eight. A row that sees no key is 0, whatever V holds; a share's sum and its O are
  //        0 then.
  for (int half = 0; half < 2; ++half) {
    const float sum = quad_sum(softmax.sum[half]);
    if (!rows.has(lane_row[half])) continue;
    const int head = rows.head(lane_row[half]);
    const int64_t row = (int64_t(sequence) * p.heads + head) * p.n_q + query[half];
    if (shares > 1) {
      const Part part(p, share, shares, row);
#pragma unroll
      for (int column_tile = 0; column_tile < PV_N_TILES; ++column_tile) {
        const float* const two = &O_frag[column_tile][2 * half];
        for (int i = 0; i < 2; ++i)
          st_global_f32(part.O + column_tile * 8 + FragmentC::col(lane, i), sum != 0 ? two[i] : 0);
      }
      if (lane % 4 == 0) st_global_f32(part.max, softmax.largest(half)), st_global_f32(part.sum, sum);
      continue;
    }
    const float by = 1.0f / sum;
    T* const O_row =
        static_cast<T*>(p.O) + sequence * p.O_strides.batch + head * p.O_strides.head + query[half] * p.O_strides.row;
#pragma unroll
    for (int column_tile = 0; column_tile < PV_N_TILES; ++column_tile) {
      const float* const two = &O_frag[column_tile][2 * half];
      if (column_tile * 8 < p.d)
        st_global_b32(O_row + column_tile * 8 + FragmentC::col(lane, 0),
                      sum != 0 ? pack<T>(two[0] * by, two[1] * by) : 0);
    }
    if (p.LSE != nullptr && lane % 4 == 0)
      st_global_f32(p.LSE + row, sum != 0 ? softmax.largest(half) / LOG2E + logf(sum) : -INFINITY);
  }
}

// JOIN  A row of O from what the shares know of it: weights that are relative to a share's maximum become relative to
//       the largest. Each warp takes every fourth share, a lane four columns; then a thread takes a column of the four.
//       Grid (n_q, heads, batch).
constexpr int JOIN_WARPS = 4, JOIN_FLOATS = HEAD_DIM + 2;
struct Factors {
  float mine, its;
};
struct Joined {
  float max = forward::NO_KEY, sum = 0;

  // What both sides have to be multiplied by, before their O is added. Maxima of one score that two shares have met may
  // be a rounding apart, which is 8 where the score is 10^8: they count as one.
  __device__ __forceinline__ Factors add(float other_max, float other_sum) {
    const float largest = fmaxf(max, other_max), apart = fabsf(max - other_max);
    const float lower = apart > 0x1p-23f * fabsf(largest) ? ex2_approx(-apart) : 1;
    const Factors by = max < other_max ? Factors{lower, 1} : Factors{1, lower};
    max = largest, sum = sum * by.mine + other_sum * by.its;
    return by;
  }
};
template <class T>
__global__ void __launch_bounds__(JOIN_WARPS * 32) join(ModelParams p, int shares) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, smem = smem_base();
  smem_name(smem, JOIN_WARPS * JOIN_FLOATS * 4, "parts", JOIN_FLOATS * 4);
  const int64_t row = (int64_t(blockIdx.z) * p.heads + blockIdx.y) * p.n_q + blockIdx.x;
  Joined all;
  float O[4] = {};
#pragma unroll 4
  for (int share = warp; share < shares; share += JOIN_WARPS) {
    const Part part(p, share, shares, row);
    const float its_max = ld_global_f32(part.max), its_sum = ld_global_f32(part.sum);
    const uint4 four = ld_global_v4(part.O + lane * 4);
    const Factors by = all.add(its_max, its_sum);
    const uint32_t its[4] = {four.x, four.y, four.z, four.w};
    for (int i = 0; i < 4; ++i) O[i] = O[i] * by.mine + __uint_as_float(its[i]) * by.its;
  }
  const uint32_t warp_part = smem + warp * JOIN_FLOATS * 4;
  for (int i = 0; i < 4; ++i) st_shared_b32(warp_part + (lane * 4 + i) * 4, __float_as_uint(O[i]));
  if (lane == 0) st_shared_b32(warp_part + HEAD_DIM * 4, __float_as_uint(all.max));
  if (lane == 0) st_shared_b32(warp_part + HEAD_DIM * 4 + 4, __float_as_uint(all.sum));
  __syncthreads();  // safe to read what the other warps have

  const auto number = [&](int w, int i) { return __uint_as_float(ld_shared_b32(smem + (w * JOIN_FLOATS + i) * 4)); };
  Joined four;
  float column = 0;
  for (int w = 0; w < JOIN_WARPS; ++w) {
    const Factors by = four.add(number(w, HEAD_DIM), number(w, HEAD_DIM + 1));
    column = column * by.mine + number(w, threadIdx.x) * by.its;
  }
  const ForwardParams::Strides& strides = p.O_strides;
  T* const O_row =
      static_cast<T*>(p.O) + blockIdx.z * strides.batch + blockIdx.y * strides.head + blockIdx.x * strides.row;
  if (int(threadIdx.x) < p.d) st_global_rounded(O_row + threadIdx.x, four.sum != 0 ? column / four.sum : 0.0f);
  if (p.LSE != nullptr && threadIdx.x == 0)
    st_global_f32(p.LSE + row, four.sum != 0 ? four.max / LOG2E + logf(four.sum) : -INFINITY);
}

// How many shares: as many as fill the card once, and no more than there are tiles of keys, nor than the workspace was
// made for.
constexpr int MOST_BLOCKS = 160;
template <class C>
int shares_of(int64_t blocks, int n_k, int multiprocessors) {
  const int tiles = (n_k + C::BC - 1) / C::BC, places = min(multiprocessors, MOST_BLOCKS);
  return blocks > places ? 1 : max(min(places / int(blocks), tiles), 1);
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
  if (shares > 1)
    launch(device, join<T>, dim3(p.n_q, p.heads, p.batch), dim3(JOIN_WARPS * 32), JOIN_WARPS * JOIN_FLOATS * 4, p,
           shares);
}

}  // namespace
