// Parts of the kernels of decoding/: what d01_packed and d02_split spell out, and later rungs say. T is the element, C
// the rung's Config. Members that execute instructions take the kernel's line along for the emulator, as words do;
// `join` is a kernel, which has lines of its own.
#pragma once
#include "common/gpu.cuh"
#include "common/words/forward.cuh"

namespace decoding {
namespace {

using forward::LOG2E, forward::Softmax;
using Seen = forward::Window;  // without a window its sides are as long as the rows

constexpr int PANEL_ROW_BYTES = 128;  // 64 columns, the most that the engine swizzles

// d01_packed, and with shares d02_split. The rows of a head of keys: query 0 of all heads of its group, then query 1
// ... A block has BR of them.
struct Rows {
  int group, first_head, first, end;  // of this block; of all

  template <class C>
  __device__ __forceinline__ static Rows of_block(const ModelParams& p, int shares) {
    const int group = p.heads / p.kv_heads;
    return {group, int(blockIdx.y) * group, int(blockIdx.x) / shares * C::BR, p.n_q * group};
  }
  __device__ __forceinline__ int query(int row) const { return min(first + row, end - 1) / group; }
  __device__ __forceinline__ int head(int row) const { return first_head + (first + row) % group; }
  __device__ __forceinline__ bool has(int row) const { return first + row < end; }
};

// d01_packed. Q, BR rows of D columns, 16 B a lane, swizzled as the copy engine does: chunk c of row r of a panel
// stands at c ^ r % 8. Rows and columns that are nobody's are zeros. By the warps that multiply, who wait for each
// other.
template <class C, int D>
__device__ __forceinline__ void load_rows(const ModelParams& p, const Rows& rows, int sequence,
                                          uint32_t smem_Q LADDER_SITE_PARAMETER) {
  using T = typename C::Element;
  constexpr int ROW_CHUNKS = D / 8;
  const T* const Q = static_cast<const T*>(p.Q) + sequence * p.Q_strides.batch;
#pragma unroll
  for (int i = 0; i < C::BR * ROW_CHUNKS / (C::WARPS * 32); ++i) {
    const int row = (i * C::WARPS * 32 + threadIdx.x) / ROW_CHUNKS, chunk = threadIdx.x % ROW_CHUNKS;
    uint4 eight = {0, 0, 0, 0};
    if (rows.has(row) && chunk * 8 < p.d)
      eight = ld_global_v4(Q + rows.head(row) * p.Q_strides.head + rows.query(row) * p.Q_strides.row +
                           chunk * 8 LADDER_SITE);
    const uint32_t panel = smem_Q + chunk / 8 * C::BR * PANEL_ROW_BYTES;
    st_shared_v4(panel + row * PANEL_ROW_BYTES + ((chunk % 8) ^ (row % 8)) * 16, eight LADDER_SITE);
  }
  fence_proxy_async_shared(LADDER_SITE_ALONE);       // products will find what this lane has stored
  named_barrier_sync(1, C::WARPS * 32 LADDER_SITE);  // safe to read Q: all have stored their part of it
}

// d01_packed. Which keys of a tile that begins with `first_key` a lane's two rows do not see.
template <int TILES>
__device__ __forceinline__ void hide_unseen(float (&S)[TILES][4], const Seen& seen, const int (&query)[2],
                                            int first_key) {
  const int lane = threadIdx.x % 32;
  const int from[2] = {seen.first_of(query[0]) - first_key, seen.first_of(query[1]) - first_key};
  const int to[2] = {seen.end_of(query[0]) - first_key, seen.end_of(query[1]) - first_key};
#pragma unroll
  for (int key_tile = 0; key_tile < TILES; ++key_tile) {
    for (int i = 0; i < 4; ++i) {
      const int key = key_tile * 8 + FragmentC::col(lane, i);
      if (key < from[i / 2] || key >= to[i / 2]) S[key_tile][i] = -INFINITY;
    }
  }
}

// A row of O or LSE, as its number among all.
__device__ __forceinline__ int64_t row_number(const ModelParams& p, int sequence, int head, int query) {
  return (int64_t(sequence) * p.heads + head) * p.n_q + query;
}

// d02_split. What a share knows of a row of O, number `row` of all.
template <int D>
struct Part {
  float *O, *max, *sum;

  __device__ __forceinline__ Part(const ModelParams& p, int64_t number, int64_t all) {
    float* const parts = static_cast<float*>(p.workspace);
    O = parts + number * D;
    max = parts + all * D + number * 2, sum = max + 1;
  }
  __device__ __forceinline__ Part(const ModelParams& p, int share, int shares, int64_t row)
      : Part(p, share * (int64_t(p.batch) * p.heads * p.n_q) + row, shares * (int64_t(p.batch) * p.heads * p.n_q)) {}
};

// d01_packed, and of several shares d02_split. What a share has found, to O and LSE, or to the workspace. A lane has
// two columns of eight. A row that sees no key is 0, whatever V holds; a share's sum and its O are 0 then.
template <class C, class Found, int TILES>
__device__ __forceinline__ void store_rows(const ModelParams& p, const Rows& rows, int sequence, int share, int shares,
                                           const int (&lane_row)[2], const int (&query)[2], const Found& softmax,
                                           const float (&O_frag)[TILES][4] LADDER_SITE_PARAMETER) {
  using T = typename C::Element;
  const uint32_t lane = threadIdx.x % 32;
  for (int half = 0; half < 2; ++half) {
    const float sum = quad_sum(softmax.sum[half] LADDER_SITE);
    if (!rows.has(lane_row[half])) continue;
    const int head = rows.head(lane_row[half]);
    const int64_t row = (int64_t(sequence) * p.heads + head) * p.n_q + query[half];
    if (shares > 1) {
      const Part<TILES * 8> part(p, share, shares, row);
#pragma unroll
      for (int column_tile = 0; column_tile < TILES; ++column_tile) {
        const float* const two = &O_frag[column_tile][2 * half];
        for (int i = 0; i < 2; ++i)
          st_global_f32(part.O + column_tile * 8 + FragmentC::col(lane, i), sum != 0 ? two[i] : 0 LADDER_SITE);
      }
      if (lane % 4 == 0)
        st_global_f32(part.max, softmax.largest(half) LADDER_SITE), st_global_f32(part.sum, sum LADDER_SITE);
      continue;
    }
    const float by = 1.0f / sum;
    T* const O_row =
        static_cast<T*>(p.O) + sequence * p.O_strides.batch + head * p.O_strides.head + query[half] * p.O_strides.row;
#pragma unroll
    for (int column_tile = 0; column_tile < TILES; ++column_tile) {
      const float* const two = &O_frag[column_tile][2 * half];
      if (column_tile * 8 < p.d)
        st_global_b32(O_row + column_tile * 8 + FragmentC::col(lane, 0),
                      sum != 0 ? pack<T>(two[0] * by, two[1] * by) : 0 LADDER_SITE);
    }
    if (p.LSE != nullptr && lane % 4 == 0)
      st_global_f32(p.LSE + row, sum != 0 ? softmax.largest(half) / LOG2E + logf(sum) : -INFINITY LADDER_SITE);
  }
}

// d02_split, and with more warps and EARLY d05_dependent. JOIN  A row of O from what the shares know of it: weights
// that are relative to a share's maximum become relative to the largest. Each warp takes a share of every WARPS, a lane
// four columns; then a thread takes a column of what the warps have. Grid (n_q, heads, batch). EARLY: it may begin
// before the shares have ended.
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
template <class T, int D, int WARPS, class PartOf>
__device__ __forceinline__ void join_row(const ModelParams& p, int sequence, int head, int query, int shares,
                                         const PartOf& part_of) {
  constexpr int FLOATS = D + 2;
  static_assert(D == 4 * 32 && WARPS * 32 >= D);
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, smem = smem_base();
  smem_name(smem, WARPS * FLOATS * 4, "parts", FLOATS * 4);
  Joined all;
  float O[4] = {};
#pragma unroll 4
  for (int share = warp; share < shares; share += WARPS) {
    const Part<D> part = part_of(share);
    const float its_max = ld_global_f32(part.max), its_sum = ld_global_f32(part.sum);
    const uint4 four = ld_global_v4(part.O + lane * 4);
    const Factors by = all.add(its_max, its_sum);
    const uint32_t its[4] = {four.x, four.y, four.z, four.w};
    for (int i = 0; i < 4; ++i) O[i] = O[i] * by.mine + __uint_as_float(its[i]) * by.its;
  }
  const uint32_t warp_part = smem + warp * FLOATS * 4;
  for (int i = 0; i < 4; ++i) st_shared_b32(warp_part + (lane * 4 + i) * 4, __float_as_uint(O[i]));
  if (lane == 0) st_shared_b32(warp_part + D * 4, __float_as_uint(all.max));
  if (lane == 0) st_shared_b32(warp_part + D * 4 + 4, __float_as_uint(all.sum));
  __syncthreads();  // safe to read what the other warps have

  if (WARPS * 32 > D && threadIdx.x >= D) return;
  const auto number = [&](int w, int i) { return __uint_as_float(ld_shared_b32(smem + (w * FLOATS + i) * 4)); };
  Joined whole;
  float column = 0;
  for (int w = 0; w < WARPS; ++w) {
    const Factors by = whole.add(number(w, D), number(w, D + 1));
    column = column * by.mine + number(w, threadIdx.x) * by.its;
  }
  const ForwardParams::Strides& strides = p.O_strides;
  T* const O_row = static_cast<T*>(p.O) + sequence * strides.batch + head * strides.head + query * strides.row;
  if (int(threadIdx.x) < p.d) st_global_rounded(O_row + threadIdx.x, whole.sum != 0 ? column / whole.sum : 0.0f);
  if (p.LSE != nullptr && threadIdx.x == 0)
    st_global_f32(p.LSE + row_number(p, sequence, head, query),
                  whole.sum != 0 ? whole.max / LOG2E + logf(whole.sum) : -INFINITY);
}
template <class T, int D, int WARPS, bool EARLY>
__global__ void __launch_bounds__(WARPS * 32) join(ModelParams p, int shares) {
  if constexpr (EARLY) griddepcontrol_wait();  // safe to read what the shares have written: they are over
  const int sequence = blockIdx.z, head = blockIdx.y, query = blockIdx.x;
  const int64_t row = row_number(p, sequence, head, query);
  join_row<T, D, WARPS>(p, sequence, head, query, shares, [&](int share) { return Part<D>(p, share, shares, row); });
}

template <class T, int D, int WARPS = 4>
void start_join(Device& device, const ModelParams& p, int shares) {
  launch(device, join<T, D, WARPS, false>, dim3(p.n_q, p.heads, p.batch), dim3(WARPS * 32), WARPS * (D + 2) * 4, p,
         shares);
}
template <class T, int D, int WARPS>
void start_join_early(Device& device, const ModelParams& p, int shares) {
  launch_dependent(device, join<T, D, WARPS, true>, dim3(p.n_q, p.heads, p.batch), dim3(WARPS * 32),
                   WARPS * (D + 2) * 4, p, shares);
}

// ---- warps that read keys of their own ------------------------------------------------------------------------------

constexpr int HEAD_DIM = 128, ROW_BYTES = HEAD_DIM * 2, ROW_CHUNKS = ROW_BYTES / 16;  // 16 B = 8 elements

// d04_warps. A warp's tile, and the block's shared memory.
template <class T, int BR_, int BC_, int WARPS_, int STAGES_, int PER_SM_>
struct WarpTile {
  using Element = T;
  using Wide = WarpTile<T, 32, BC_, WARPS_, STAGES_, PER_SM_>;  // for more rows than 16
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, STAGES = STAGES_, THREADS = WARPS * 32, PER_SM = PER_SM_;
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

// d04_warps. Where the keys of a block's sequence stand: behind each other.
struct Row {
  int key, of_tile;  // its number, and in the tile that `look_up` was told of last
};
struct InOnePiece {
  int n_k;

  __device__ __forceinline__ int64_t begin(const ForwardParams::Strides& strides, int sequence) const {
    return sequence * strides.batch;
  }
  __device__ __forceinline__ void look_up(int) const {}
  __device__ __forceinline__ int64_t offset(const ForwardParams::Strides& strides,
                                            Row row LADDER_SITE_PARAMETER) const {
    return row.key * strides.row;
  }
};

// d06_pages. Where the keys of a sequence stand in pages. While a tile is on its way a lane knows of one key of the
// next one in which page it is, and which row there; so the table is asked a step ahead, and never behind the last key.
struct Pages {
  const int* table;  // of this sequence
  int n_k, size;
  int page, row;  // of key `lane % 16` of the tile

  __device__ __forceinline__ Pages(const CacheParams& p, int sequence, int n_k)
      : table(p.block_table + int64_t(sequence) * p.most_pages), n_k(n_k), size(p.page_size) {}
  __device__ __forceinline__ int64_t begin(const ForwardParams::Strides&, int) const { return 0; }
  __device__ __forceinline__ void look_up(int first_key LADDER_SITE_PARAMETER) {
    const int key = first_key + threadIdx.x % 16, number = key / size;
    row = key - number * size;
    page = key < n_k ? ld_global_s32(table + number LADDER_SITE) : 0;
  }
  __device__ __forceinline__ int64_t offset(const ForwardParams::Strides& strides, Row of LADDER_SITE_PARAMETER) const {
    return int(shfl(page, of.of_tile LADDER_SITE)) * strides.batch +
           int(shfl(row, of.of_tile LADDER_SITE)) * strides.row;
  }
};
__device__ __forceinline__ int keys_of(const CacheParams& p, int sequence LADDER_SITE_PARAMETER) {
  return p.cache_seqlens != nullptr ? ld_global_s32(p.cache_seqlens + sequence LADDER_SITE) : p.n_k;
}

// d04_warps. Some of the steps in which a tile of rows sees a key.
struct Share {
  Rows rows;
  int sequence, kv_head, begin, end;
};
// Those in which some row of a tile sees a key, at least one.
struct Steps {
  int first, count;
};
template <class C>
__device__ __forceinline__ Steps steps_of(const Rows& rows, const Seen& seen) {
  const int first = seen.first_of(rows.query(0)) / C::STEP;
  return {first, max((seen.end_of(rows.query(C::BR - 1)) + C::STEP - 1) / C::STEP - first, 1)};
}

// d04_warps. Attention of the rows over a share's keys. At its end, for each of the rows and by one warp,
// leave(row, a lane's four columns of O that nobody has divided by the sum, maximum and sum).
template <class C, class Keys, class Leave>
__device__ __forceinline__ void attend_to(const ModelParams& p, const Share& share, Keys keys,
                                          const Leave& leave LADDER_SITE_PARAMETER) {
  using T = typename C::Element;
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, STAGES = C::STAGES, STEP = C::STEP;
  constexpr int M_TILES = BR / 16, QK_N_TILES = BC / 8, QK_K_TILES = HEAD_DIM / 16;
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t smem_K = smem_base() + warp * STAGES * C::STAGE_BYTES, smem_V = smem_K + C::TILE_BYTES;
  smem_name(smem_base(), C::SMEM_BYTES, "K and V", ROW_BYTES);

  const Rows& rows = share.rows;
  const Seen seen(p, p.n_q, keys.n_k);
  const int sequence = share.sequence, begin = share.begin, end = share.end;
  const int first_query = rows.query(0), last_query = rows.query(BR - 1);
  // From here on the warp has met a key that every row sees, and all see all keys, up to there.
  const int whole_from = seen.first_of(last_query) + STEP, whole_up_to = seen.end_of(first_query);

  // LOAD  Half a warp copies a row. What is behind the last key, or behind d, is zeros.
  const int lane_row = lane / ROW_CHUNKS, lane_column = lane % ROW_CHUNKS * 8;
  const auto source = [&](const void* tensor, const ForwardParams::Strides& strides) {
    return static_cast<const T*>(tensor) + keys.begin(strides, sequence) + share.kv_head * strides.head + lane_column;
  };
  const T *const K = source(p.K, p.K_strides), *const V = source(p.V, p.V_strides);
  const auto load_tile = [&](uint32_t tile, const T* from, const ForwardParams::Strides& strides, int first_key) {
    const uint32_t lane_chunk = tile + chunk_offset(lane_row, lane % ROW_CHUNKS);
#pragma unroll
    for (int row = 0; row < BC; row += 2) {
      const int key = first_key + row + lane_row;
      cp_async_16((lane_chunk ^ (row % 8 * 16)) + row * ROW_BYTES,
                  from + keys.offset(strides, {key, row + lane_row} LADDER_SITE),
                  key < keys.n_k && lane_column < p.d ? 16 : 0 LADDER_SITE);
    }
  };
  const auto load = [&](int step) {
    if (step < end) {
      const uint32_t stage = (step - begin) % STAGES * C::STAGE_BYTES;
      const int first_key = step * STEP + warp * BC;
      load_tile(smem_K + stage, K, p.K_strides, first_key);
      load_tile(smem_V + stage, V, p.V_strides, first_key);
      keys.look_up(first_key + STEP);
    }
    cp_async_commit(LADDER_SITE_ALONE);
  };
  keys.look_up(begin * STEP + warp * BC);
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
            rows.has(row) && eight * 8 < p.d ? ld_global_b32(Q + eight * 8 LADDER_SITE) : 0;
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
    cp_async_wait<STAGES - 2>(LADDER_SITE_ALONE);  // this lane's part of the tile has landed
    __syncwarp(LADDER_SITE_ALONE);  // safe to read it: all lanes' parts have; safe to overwrite the one before
    load(step + STAGES - 1);
    const uint32_t stage = (step - begin) % STAGES * C::STAGE_BYTES;
    const int first_key = step * STEP + warp * BC;

    // QK
    float S_frag[M_TILES][QK_N_TILES][4] = {};
#pragma unroll
    for (int d_slice = 0; d_slice < QK_K_TILES; ++d_slice) {
      for (int key_tile = 0; key_tile < QK_N_TILES; key_tile += 2) {
        uint32_t K_frag[4];
        ldmatrix_x4(K_frag, ((lane_K + stage) ^ (d_slice * 32)) + key_tile * 8 * ROW_BYTES LADDER_SITE);
        for (int group = 0; group < M_TILES; ++group) {
          mma<T>(S_frag[group][key_tile], Q_frag[group][d_slice], K_frag[0], K_frag[1] LADDER_SITE);
          mma<T>(S_frag[group][key_tile + 1], Q_frag[group][d_slice], K_frag[2], K_frag[3] LADDER_SITE);
        }
      }
    }

    // SOFTMAX  In a masked tile a row may meet its first key.
    const bool is_masked = first_key < whole_from || first_key + BC > whole_up_to;
    uint32_t P_frag[M_TILES][PV_K_TILES][4];
#pragma unroll
    for (int group = 0; group < M_TILES; ++group) {
      if (is_masked) hide_unseen(S_frag[group], seen, query_of[group], first_key);
      softmax[group].weigh(S_frag[group], P_frag[group], step == begin, is_masked LADDER_SITE);
      if (softmax[group].rescale) scale_rows(O_frag[group], softmax[group].correction);
    }

    // PV
#pragma unroll
    for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice) {
      for (int column_tile = 0; column_tile < PV_N_TILES; column_tile += 2) {
        uint32_t V_frag[4];
        ldmatrix_x4_trans(V_frag, ((lane_V + stage) ^ (column_tile * 16)) + key_slice * 16 * ROW_BYTES LADDER_SITE);
        for (int group = 0; group < M_TILES; ++group) {
          mma<T>(O_frag[group][column_tile], P_frag[group][key_slice], V_frag[0], V_frag[1] LADDER_SITE);
          mma<T>(O_frag[group][column_tile + 1], P_frag[group][key_slice], V_frag[2], V_frag[3] LADDER_SITE);
        }
      }
    }
  }

  // STORE  Each warp has rows of O for keys of its own: they are joined as shares are, a warp four rows from here on, a
  //        lane four columns. A row that sees no key is 0, whatever V holds.
  const auto part_of = [&](int of_warp) { return smem_base() + of_warp * C::PART_BYTES; };
  const auto numbers_of = [&](int of_warp, int row) { return part_of(of_warp) + BR * C::PART_ROW_BYTES + row * 8; };
  __syncthreads(LADDER_SITE_ALONE);  // safe to overwrite K and V: all warps have read their last ones
#pragma unroll
  for (int group = 0; group < M_TILES; ++group) {
    for (int half = 0; half < 2; ++half) {
      const float sum = quad_sum(softmax[group].sum[half] LADDER_SITE);
      const int row = row_of[group][half];
      for (int column_tile = 0; column_tile < PV_N_TILES; ++column_tile) {
        const float* const two = &O_frag[group][column_tile][2 * half];
        const uint2 found = {__float_as_uint(two[0]), __float_as_uint(two[1])};
        st_shared_v2(part_of(warp) + row * C::PART_ROW_BYTES + (column_tile * 8 + FragmentC::col(lane, 0)) * 4,
                     sum != 0 ? found : uint2{0, 0} LADDER_SITE);
      }
      if (lane % 4 == 0)
        st_shared_v2(numbers_of(warp, row),
                     {__float_as_uint(softmax[group].largest(half)), __float_as_uint(sum)} LADDER_SITE);
    }
  }
  __syncthreads(LADDER_SITE_ALONE);  // safe to read what the other warps have found
  for (int row = warp; row < BR && rows.has(row); row += WARPS) {
    Joined all;
    float O[4] = {};
    for (int of_warp = 0; of_warp < WARPS; ++of_warp) {
      const uint2 numbers = ld_shared_v2(numbers_of(of_warp, row) LADDER_SITE);
      const uint4 four = ld_shared_v4(part_of(of_warp) + row * C::PART_ROW_BYTES + lane * 16 LADDER_SITE);
      const Factors by = all.add(__uint_as_float(numbers.x), __uint_as_float(numbers.y));
      const uint32_t its[4] = {four.x, four.y, four.z, four.w};
      for (int i = 0; i < 4; ++i) O[i] = O[i] * by.mine + __uint_as_float(its[i]) * by.its;
    }
    leave(row, O, all LADDER_SITE);
  }
}

// d04_warps. What a warp leaves of a row: a part, which will be joined; or if there is no other one, O and LSE.
template <int D>
__device__ __forceinline__ void store_part(const Part<D>& part, const float (&O)[4],
                                           const Joined& all LADDER_SITE_PARAMETER) {
  const uint32_t lane = threadIdx.x % 32;
  st_global_v4(part.O + lane * 4, {__float_as_uint(O[0]), __float_as_uint(O[1]), __float_as_uint(O[2]),
                                   __float_as_uint(O[3])} LADDER_SITE);
  if (lane == 0) st_global_f32(part.max, all.max LADDER_SITE), st_global_f32(part.sum, all.sum LADDER_SITE);
}
template <class T>
__device__ __forceinline__ void store_row(const ModelParams& p, int sequence, int head, int query, const float (&O)[4],
                                          const Joined& all LADDER_SITE_PARAMETER) {
  const uint32_t lane = threadIdx.x % 32;
  const float by = all.sum != 0 ? 1.0f / all.sum : 0;
  T* const O_row = static_cast<T*>(p.O) + sequence * p.O_strides.batch + head * p.O_strides.head +
                   query * p.O_strides.row + lane * 4;
  if (int(lane * 4) < p.d) {
    st_global_b32(O_row, pack<T>(O[0] * by, O[1] * by) LADDER_SITE);
    st_global_b32(O_row + 2, pack<T>(O[2] * by, O[3] * by) LADDER_SITE);
  }
  if (p.LSE != nullptr && lane == 0)
    st_global_f32(p.LSE + row_number(p, sequence, head, query),
                  all.sum != 0 ? all.max / LOG2E + logf(all.sum) : -INFINITY LADDER_SITE);
}

// d04_warps. All that a block of a grid (tiles of rows * shares, kv_heads, batch) does: attention of its rows over its
// share's keys, to O and LSE, or of several shares to the workspace.
template <class C, class Keys>
__device__ __forceinline__ void attend(const ModelParams& p, Keys keys, int shares LADDER_SITE_PARAMETER) {
  const Rows rows = Rows::of_block<C>(p, shares);
  const int sequence = blockIdx.z, number = blockIdx.x % shares;
  const Steps steps = steps_of<C>(rows, Seen(p, p.n_q, keys.n_k));
  const int begin = steps.first + number * steps.count / shares;
  const int end = steps.first + (number + 1) * steps.count / shares;
  const auto leave = [&](int row, const float(&O)[4], const Joined& all LADDER_SITE_PARAMETER) {
    const int head = rows.head(row), query = rows.query(row);
    if (shares > 1) {
      store_part(Part<HEAD_DIM>(p, number, shares, row_number(p, sequence, head, query)), O, all LADDER_SITE);
    } else {
      store_row<typename C::Element>(p, sequence, head, query, O, all LADDER_SITE);
    }
  };
  attend_to<C>(p, {rows, sequence, int(blockIdx.y), begin, end}, keys, leave LADDER_SITE);
}

// d04_warps. How many shares: as many as fill the card once, with all blocks that an SM takes, and no more than there
// are steps, nor than `most`.
template <class C>
int shares_of(int64_t blocks, int n_k, int multiprocessors, int most) {
  const int steps = (n_k + C::STEP - 1) / C::STEP, places = C::PER_SM * multiprocessors;
  return blocks > places ? 1 : max(min(min(places / int(blocks), most), steps), 1);
}

// d05_dependent. How many shares there are, and by how many warps a row of theirs is joined.
constexpr int MOST_SHARES = 160, JOIN_WARPS = 16;
template <class C>
int shares_of(int64_t blocks, int n_k, int multiprocessors) {
  return shares_of<C>(blocks, n_k, min(multiprocessors, MOST_SHARES), MOST_SHARES);
}
inline int rows_of(const ModelParams& p) {
  return p.n_q * (p.heads / p.kv_heads);
}

}  // namespace
}  // namespace decoding
