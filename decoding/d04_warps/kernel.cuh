// d04_warps: each warp reads keys of its own, by cp.async, and multiplies them by mma.sync. It waits for nobody.
// Before:  in d02_split four warps multiply 64 rows together, of which a group of four heads fills four, and one thread
//          asks the copy engine for halves of rows.
// Tile:    16x16 for each of 4 warps, or 32x16 where there are more rows; two blocks on an SM.
//          Shared: 96 KiB (a warp 24: K, V 3 x 4 each).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] of that type, in any strides.
//          LSE: [batch, heads, n_q] f32. The workspace as in d02_split.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding.cuh"

namespace {

// 41_rows spells out no_keys, 43_window the softmax; d01_packed the rows and what they see, d02_split the join.
using decoding::Rows, decoding::Seen, decoding::hide_unseen, decoding::Joined, decoding::Factors;
using decoding::start_join, forward::LOG2E, forward::Softmax;

constexpr int HEAD_DIM = 128, ROW_BYTES = HEAD_DIM * 2, ROW_CHUNKS = ROW_BYTES / 16;  // 16 B = 8 elements
using Part = decoding::Part<HEAD_DIM>;

template <class T, int BR_, int BC_, int WARPS_, int STAGES_>
struct Config {
  using Element = T;
  using Wide = Config<T, 32, BC_, WARPS_, STAGES_>;  // for more rows than 16
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, STAGES = STAGES_, THREADS = WARPS * 32, PER_SM = 2;
  static constexpr int STEP = WARPS * BC;  // keys that a block's warps take at a time, a tile each
  static constexpr uint32_t TILE_BYTES = BC * ROW_BYTES, STAGE_BYTES = 2 * TILE_BYTES;  // K; and V behind it
  static constexpr uint32_t SMEM_BYTES = WARPS * STAGES * STAGE_BYTES;
  // At its end a warp leaves there what it has found: rows of O in f32, which 32 B more keep in different banks, and
  // the rows' maxima and sums.
  static constexpr uint32_t PART_ROW_BYTES = HEAD_DIM * 4 + 32, PART_BYTES = BR * (PART_ROW_BYTES + 8);
  static_assert(WARPS * PART_BYTES <= SMEM_BYTES && BR % 16 == 0 && BC % 16 == 0);
};

// Byte offset of a chunk within a tile, as in 02_swizzle.
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * ROW_BYTES + (chunk ^ (row % 8)) * 16;
}

template <class C>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) flash_attention(ModelParams p, int shares) {
  using T = typename C::Element;
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, STAGES = C::STAGES, STEP = C::STEP;
  constexpr int M_TILES = BR / 16, QK_N_TILES = BC / 8, QK_K_TILES = HEAD_DIM / 16;
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t smem_K = smem_base() + warp * STAGES * C::STAGE_BYTES, smem_V = smem_K + C::TILE_BYTES;
  smem_name(smem_base(), C::SMEM_BYTES, "K and V", ROW_BYTES);

  // Steps in which some row of the block sees a key, at least one, and of those this share's.
  const Rows rows = Rows::of_block<C>(p, shares);
  const Seen seen(p);
  const int sequence = blockIdx.z, first_query = rows.query(0), last_query = rows.query(BR - 1);
  const int first_step = seen.first_of(first_query) / STEP, share = blockIdx.x % shares;
  const int steps = max((seen.end_of(last_query) + STEP - 1) / STEP - first_step, 1);
  const int begin = first_step + share * steps / shares, end = first_step + (share + 1) * steps / shares;
  // From here on the warp has met a key that every row sees, and all see all keys, up to there.
  const int whole_from = seen.first_of(last_query) + STEP, whole_up_to = seen.end_of(first_query);

  // LOAD  Half a warp copies a row. What is behind the last key, or behind d, is zeros.
  const int lane_row = lane / ROW_CHUNKS, lane_column = lane % ROW_CHUNKS * 8;
  const auto source = [&](const void* tensor, const ForwardParams::Strides& strides) {
    return static_cast<const T*>(tensor) + sequence * strides.batch + blockIdx.y * strides.head + lane_column;
  };
  const T *const K = source(p.K, p.K_strides), *const V = source(p.V, p.V_strides);
  const auto load_tile = [&](uint32_t tile, const T* from, int64_t stride, int first_key) {
    const uint32_t lane_chunk = tile + chunk_offset(lane_row, lane % ROW_CHUNKS);
#pragma unroll
    for (int row = 0; row < BC; row += 2) {
      const int key = first_key + row + lane_row;
      cp_async_16((lane_chunk ^ (row % 8 * 16)) + row * ROW_BYTES, from + key * stride,
                  key < p.n_k && lane_column < p.d ? 16 : 0);
    }
  };
  const auto load = [&](int step) {
    if (step < end) {
      const uint32_t stage = (step - begin) % STAGES * C::STAGE_BYTES;
      const int first_key = step * STEP + warp * BC;
      load_tile(smem_K + stage, K, p.K_strides.row, first_key);
      load_tile(smem_V + stage, V, p.V_strides.row, first_key);
    }
    cp_async_commit();
  };
  for (int step = begin; step < begin + STAGES - 1; ++step) load(step);

  // LOAD  Q goes to registers. Two FragmentC side by side are a FragmentA.
  uint32_t Q_frag[M_TILES][QK_K_TILES][4];
  int row_of[M_TILES][2], query_of[M_TILES][2];  // [group][half]: a lane has two rows of 16, 8 apart
#pragma unroll
  for (int group = 0; group < M_TILES; ++group) {
    for (int half = 0; half < 2; ++half) {
      const int row = group * 16 + FragmentC::row(lane, 2 * half), query = rows.query(row);
      row_of[group][half] = row, query_of[group][half] = query;
      const T* const Q = static_cast<const T*>(p.Q) + sequence * p.Q_strides.batch + rows.head(row) * p.Q_strides.head +
                         query * p.Q_strides.row + FragmentC::col(lane, 0);
      for (int eight = 0; eight < HEAD_DIM / 8; ++eight)
        Q_frag[group][eight / 2][eight % 2 * 2 + half] =
            rows.has(row) && eight * 8 < p.d ? ld_global_b32(Q + eight * 8) : 0;
    }
  }

  Softmax<T, BC> softmax[M_TILES] = {};
  for (auto& each : softmax) {
    each.scale_log2 = p.softmax_scale * LOG2E;
    each.begin();
  }
  float O_frag[M_TILES][PV_N_TILES][4] = {};  // FragmentC: registers 0, 1 are of a row, 2, 3 of 8 below
  const uint32_t lane_K = smem_K + chunk_offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  const uint32_t lane_V = smem_V + chunk_offset(lane % 16, lane / 16);

  for (int step = begin; step < end; ++step) {
    cp_async_wait<STAGES - 2>();  // this lane's part of the tile has landed
    __syncwarp();                 // safe to read it: all lanes' parts have; safe to overwrite the one before
    load(step + STAGES - 1);
    const uint32_t stage = (step - begin) % STAGES * C::STAGE_BYTES;
    const int first_key = step * STEP + warp * BC;

    // QK
    float S_frag[M_TILES][QK_N_TILES][4] = {};
#pragma unroll
    for (int d_slice = 0; d_slice < QK_K_TILES; ++d_slice) {
      for (int key_tile = 0; key_tile < QK_N_TILES; key_tile += 2) {
        uint32_t K_frag[4];
        ldmatrix_x4(K_frag, ((lane_K + stage) ^ (d_slice * 32)) + key_tile * 8 * ROW_BYTES);
        for (int group = 0; group < M_TILES; ++group) {
          mma<T>(S_frag[group][key_tile], Q_frag[group][d_slice], K_frag[0], K_frag[1]);
          mma<T>(S_frag[group][key_tile + 1], Q_frag[group][d_slice], K_frag[2], K_frag[3]);
        }
      }
    }

    // SOFTMAX  In a masked tile a row may meet its first key.
    const bool is_masked = first_key < whole_from || first_key + BC > whole_up_to;
    uint32_t P_frag[M_TILES][PV_K_TILES][4];
#pragma unroll
    for (int group = 0; group < M_TILES; ++group) {
      if (is_masked) hide_unseen(S_frag[group], seen, query_of[group], first_key);
      softmax[group].weigh(S_frag[group], P_frag[group], step == begin, is_masked);
      if (softmax[group].rescale) scale_rows(O_frag[group], softmax[group].correction);
    }

    // PV
#pragma unroll
    for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice) {
      for (int column_tile = 0; column_tile < PV_N_TILES; column_tile += 2) {
        uint32_t V_frag[4];
        ldmatrix_x4_trans(V_frag, ((lane_V + stage) ^ (column_tile * 16)) + key_slice * 16 * ROW_BYTES);
        for (int group = 0; group < M_TILES; ++group) {
          mma<T>(O_frag[group][column_tile], P_frag[group][key_slice], V_frag[0], V_frag[1]);
          mma<T>(O_frag[group][column_tile + 1], P_frag[group][key_slice], V_frag[2], V_frag[3]);
        }
      }
    }
  }

  // STORE  Each warp has rows of O for keys of its own: they are joined as shares are, a warp four rows from here on, a
  //        lane four columns. A row that sees no key is 0, whatever V holds.
  const auto part_of = [&](int of_warp) { return smem_base() + of_warp * C::PART_BYTES; };
  const auto numbers_of = [&](int of_warp, int row) { return part_of(of_warp) + BR * C::PART_ROW_BYTES + row * 8; };
  __syncthreads();  // safe to overwrite K and V: all warps have read their last ones
#pragma unroll
  for (int group = 0; group < M_TILES; ++group) {
    for (int half = 0; half < 2; ++half) {
      const float sum = quad_sum(softmax[group].sum[half]);
      const int row = row_of[group][half];
      for (int column_tile = 0; column_tile < PV_N_TILES; ++column_tile) {
        const float* const two = &O_frag[group][column_tile][2 * half];
        const uint2 found = {__float_as_uint(two[0]), __float_as_uint(two[1])};
        st_shared_v2(part_of(warp) + row * C::PART_ROW_BYTES + (column_tile * 8 + FragmentC::col(lane, 0)) * 4,
                     sum != 0 ? found : uint2{0, 0});
      }
      if (lane % 4 == 0)
        st_shared_v2(numbers_of(warp, row), {__float_as_uint(softmax[group].largest(half)), __float_as_uint(sum)});
    }
  }
  __syncthreads();  // safe to read what the other warps have found
  for (int row = warp; row < BR && rows.has(row); row += WARPS) {
    Joined all;
    float O[4] = {};
    for (int of_warp = 0; of_warp < WARPS; ++of_warp) {
      const uint2 numbers = ld_shared_v2(numbers_of(of_warp, row));
      const uint4 four = ld_shared_v4(part_of(of_warp) + row * C::PART_ROW_BYTES + lane * 16);
      const Factors by = all.add(__uint_as_float(numbers.x), __uint_as_float(numbers.y));
      const uint32_t its[4] = {four.x, four.y, four.z, four.w};
      for (int i = 0; i < 4; ++i) O[i] = O[i] * by.mine + __uint_as_float(its[i]) * by.its;
    }
    const int head = rows.head(row), query = rows.query(row);
    const int64_t number = (int64_t(sequence) * p.heads + head) * p.n_q + query;
    if (shares > 1) {
      const Part part(p, share, shares, number);
      st_global_v4(part.O + lane * 4,
                   {__float_as_uint(O[0]), __float_as_uint(O[1]), __float_as_uint(O[2]), __float_as_uint(O[3])});
      if (lane == 0) st_global_f32(part.max, all.max), st_global_f32(part.sum, all.sum);
      continue;
    }
    const float by = all.sum != 0 ? 1.0f / all.sum : 0;
    T* const O_row = static_cast<T*>(p.O) + sequence * p.O_strides.batch + head * p.O_strides.head +
                     query * p.O_strides.row + lane * 4;
    if (int(lane * 4) < p.d) {
      st_global_b32(O_row, pack<T>(O[0] * by, O[1] * by));
      st_global_b32(O_row + 2, pack<T>(O[2] * by, O[3] * by));
    }
    if (p.LSE != nullptr && lane == 0)
      st_global_f32(p.LSE + number, all.sum != 0 ? all.max / LOG2E + logf(all.sum) : -INFINITY);
  }
}

// How many shares: as many as fill the card once, with all blocks that an SM takes, and no more than there are steps,
// than the workspace was made for, and than a join reads in no time.
constexpr int MOST_BLOCKS = 320, MOST_SHARES = 64;
template <class C>
int shares_of(int64_t blocks, int n_k, int multiprocessors) {
  const int steps = (n_k + C::STEP - 1) / C::STEP, places = min(C::PER_SM * multiprocessors, MOST_BLOCKS);
  return blocks > places ? 1 : max(min(min(places / int(blocks), MOST_SHARES), steps), 1);
}

// LAUNCH  The blocks of a tile of BR rows of a head of keys, one behind the other, and if they are several the join.
//         The pointers of `p` belong to the device and are multiples of 16 B, as are strides.
template <class C>
void start(Device& device, const ModelParams& p, int rows) {
  const int tiles = (rows + C::BR - 1) / C::BR;
  const int shares = shares_of<C>(int64_t(tiles) * p.kv_heads * p.batch, p.n_k, multiprocessors(device));
  launch(device, flash_attention<C>, dim3(tiles * shares, p.kv_heads, p.batch), dim3(C::THREADS), C::SMEM_BYTES, p,
         shares);
  if (shares > 1) start_join<typename C::Element, HEAD_DIM>(device, p, shares);
}

template <class C>
void run(Device& device, const ModelParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  const int rows = p.n_q * (p.heads / p.kv_heads);
  rows <= C::BR ? start<C>(device, p, rows) : start<typename C::Wide>(device, p, rows);
}

}  // namespace
