// Parts of the kernels of decoding/: what d01_packed and d02_split spell out, and later rungs say. T is the element, C
// the rung's Config. Members that execute instructions take the kernel's line along for the emulator, as words do;
// `join` is a kernel, which has lines of its own.
#pragma once
#include <type_traits>

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
  fence_proxy_async_shared(LADDER_SITE_ALONE);  // products will find what this lane has stored
  named_barrier_sync(1,
                     C::WARPS * 32 LADDER_SITE);  // safe to read Q: all have stored their part of it
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

// d02_split. A row of O or LSE, as its number among all.
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
__device__ __forceinline__ void store_share(const ModelParams& p, const Rows& rows, int sequence, int share, int shares,
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

// d01_packed. Shared memory of a block of 64 rows, whose keys the copy engine brings: Q, and rings of K and V.
template <class C, int D>
struct PanelSmem {
  static constexpr uint32_t ROW_BYTES = D * 2, TILE_BYTES = C::BC * ROW_BYTES, Q_BYTES = C::BR * ROW_BYTES;
  uint32_t Q = smem_base(), K_tiles = Q + Q_BYTES, V_tiles = K_tiles + C::STAGES * TILE_BYTES;
  uint32_t barriers = V_tiles + C::STAGES * TILE_BYTES;
  Ring<C::STAGES, TILE_BYTES> K{barriers, K_tiles}, V{K.end, V_tiles};

  __device__ __forceinline__ void name_and_init(LADDER_SITE_ONLY_PARAMETER) const {
    smem_name(Q, Q_BYTES, "Q", PANEL_ROW_BYTES);
    smem_name(K_tiles, C::STAGES * TILE_BYTES, "K", PANEL_ROW_BYTES);
    smem_name(V_tiles, C::STAGES * TILE_BYTES, "V", PANEL_ROW_BYTES);
    smem_name(barriers, 4 * C::STAGES * 8, "barriers");
    if (threadIdx.x == 0) {
      K.init(1 LADDER_SITE);
      V.init(1 LADDER_SITE);
      fence_mbarrier_init(LADDER_SITE_ALONE);  // safe to name them to the copy engine, which knows them now
    }
    __syncthreads(LADDER_SITE_ALONE);  // safe to use the barriers
  }
};

// d01_packed. LOAD  One thread asks for tiles of K and V as stages are empty.
template <class C, int D, class Smem>
__device__ __forceinline__ void load_tiles(const Smem& smem, int begin, int end, const TensorMap& K_map,
                                           const TensorMap& V_map, int kv_head, int sequence LADDER_SITE_PARAMETER) {
  const auto request = [&](const TensorMap& map, const auto& ring, int tile) {
    ring.claim(tile - begin LADDER_SITE);
    for (int panel = 0; panel < D / 64; ++panel)
      cp_async_bulk_tensor_4d(ring.tiles + ring.at(tile - begin) + panel * C::BC * PANEL_ROW_BYTES, map, panel * 64,
                              tile * C::BC, kv_head, sequence, ring.full_of(tile - begin) LADDER_SITE);
  };
  for (int tile = begin; tile < end; ++tile) {
    request(K_map, smem.K, tile);
    request(V_map, smem.V, tile);
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
// d10_along. The same of any number of sides, from the largest of all their maxima.
__device__ __forceinline__ float weight_of(float max, float largest) {
  const float apart = largest - max;
  return apart > 0x1p-23f * fabsf(largest) ? ex2_approx(-apart) : 1;
}
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
  if constexpr (EARLY)
    griddepcontrol_wait();  // safe to read what the shares have written: they
                            // are over
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

constexpr int HEAD_DIM = 128, ROW_BYTES = HEAD_DIM * 2,
              ROW_CHUNKS = ROW_BYTES / 16;  // 16 B = 8 elements

// d04_warps. A warp's tile, and the block's shared memory.
template <class T, int BR_, int BC_, int WARPS_, int STAGES_, int PER_SM_>
struct WarpTile {
  using Element = T;
  using Wide = WarpTile<T, 32, BC_, WARPS_, STAGES_, PER_SM_>;  // for more rows than 16
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, STAGES = STAGES_, THREADS = WARPS * 32, PER_SM = PER_SM_;
  static constexpr int STEP = WARPS * BC;  // keys that a block's warps take at a time, a tile each
  static constexpr uint32_t TILE_BYTES = BC * ROW_BYTES,
                            STAGE_BYTES = 2 * TILE_BYTES;  // K; and V behind it
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
struct TileKey {
  int key,
      of_tile;  // its number, and in the tile that `look_up` was told of last
};
struct InOnePiece {
  int n_k;

  __device__ __forceinline__ int64_t begin(const ForwardParams::Strides& strides, int sequence) const {
    return sequence * strides.batch;
  }
  __device__ __forceinline__ void look_up(int) const {}
  __device__ __forceinline__ int64_t offset(const ForwardParams::Strides& strides,
                                            TileKey row LADDER_SITE_PARAMETER) const {
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
  __device__ __forceinline__ int64_t offset(const ForwardParams::Strides& strides,
                                            TileKey key LADDER_SITE_PARAMETER) const {
    return int(shfl(page, key.of_tile LADDER_SITE)) * strides.batch +
           int(shfl(row, key.of_tile LADDER_SITE)) * strides.row;
  }
};
template <bool IN_PAGES>
using KeysOfCache = std::conditional_t<IN_PAGES, Pages, InOnePiece>;
// d06_pages. How many keys a sequence has: no less than none, and no more than there is room for, whatever the lengths
// say.
__device__ __forceinline__ int keys_of(const CacheParams& p, int sequence LADDER_SITE_PARAMETER) {
  if (p.cache_seqlens == nullptr) return p.n_k;
  return max(min(ld_global_s32(p.cache_seqlens + sequence LADDER_SITE), p.n_k), 0);
}

// d04_warps. Some of the steps in which a tile of rows sees a key.
struct Share {
  Rows rows;
  int sequence, kv_head, begin, end;
};
// d04_warps. Those in which some row of a tile sees a key, at least one.
struct Steps {
  int first, count;
};
template <class C>
__device__ __forceinline__ Steps steps_of(const Rows& rows, const Seen& seen) {
  const int first = seen.first_of(rows.query(0)) / C::STEP;
  return {first, max((seen.end_of(rows.query(C::BR - 1)) + C::STEP - 1) / C::STEP - first, 1)};
}

struct AllRows {
  __device__ __forceinline__ static constexpr bool has(int) { return true; }
};

// What becomes of scores before the softmax: nothing, until d16_functions.
struct NoFunction {
  float scale = 1;

  template <int TILES>
  __device__ __forceinline__ void change(float (&)[TILES][4], const int (&)[2], int) const {}
};

// d04_warps. What a warp has in registers: Q, and what it has found about these rows among its keys.
template <class C>
struct WarpRows {
  using T = typename C::Element;
  static constexpr int M_TILES = C::BR / 16, QK_N_TILES = C::BC / 8, QK_K_TILES = HEAD_DIM / 16;
  static constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = C::BC / 16;
  uint32_t Q_frag[M_TILES][QK_K_TILES][4];
  int row_of[M_TILES][2],
      query_of[M_TILES][2];  // [group][half]: a lane has two rows of 16, 8 apart
  Softmax<T, C::BC> softmax[M_TILES];
  float O_frag[M_TILES][PV_N_TILES][4];  // FragmentC: registers 0, 1 are of a row, 2, 3 of 8 below

  // LOAD  Q goes to registers. Two FragmentC side by side are a FragmentA.
  __device__ __forceinline__ void load_Q(const ModelParams& p, const Rows& rows, int sequence LADDER_SITE_PARAMETER) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int group = 0; group < M_TILES; ++group) {
      for (int half = 0; half < 2; ++half) {
        const int row = group * 16 + FragmentC::row(lane, 2 * half), query = rows.query(row);
        row_of[group][half] = row, query_of[group][half] = query;
        const T* const Q = static_cast<const T*>(p.Q) + sequence * p.Q_strides.batch +
                           rows.head(row) * p.Q_strides.head + query * p.Q_strides.row + FragmentC::col(lane, 0);
        for (int eight = 0; eight < HEAD_DIM / 8; ++eight)
          Q_frag[group][eight / 2][eight % 2 * 2 + half] =
              rows.has(row) && eight * 8 < p.d ? ld_global_b32(Q + eight * 8 LADDER_SITE) : 0;
      }
    }
  }
  // d10_along. And from shared memory, where they are swizzled as a tile of keys.
  template <class Rows>
  __device__ __forceinline__ void read_Q(const Rows& rows, uint32_t smem_Q LADDER_SITE_PARAMETER) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int group = 0; group < M_TILES; ++group) {
      for (int half = 0; half < 2; ++half) {
        row_of[group][half] = group * 16 + FragmentC::row(lane, 2 * half);
        query_of[group][half] = rows.query(row_of[group][half]);
      }
      for (int d_slice = 0; d_slice < QK_K_TILES; ++d_slice)
        ldmatrix_x4(Q_frag[group][d_slice],
                    smem_Q + chunk_offset(group * 16 + lane % 16, d_slice * 2 + lane / 16) LADDER_SITE);
    }
  }
  __device__ __forceinline__ void begin(const ModelParams& p) {
    begin(p.softmax_scale);
  }
  __device__ __forceinline__ void begin(float scale) {
#pragma unroll
    for (int group = 0; group < M_TILES; ++group) {
      softmax[group] = {};
      softmax[group].scale_log2 = scale * LOG2E;
      softmax[group].begin();
      for (auto& tile : O_frag[group]) {
        for (float& each : tile) each = 0;
      }
    }
  }
  // A tile of keys that begins with `first_key`, whose K and V are at `smem_K` and behind it.
  __device__ __forceinline__ void multiply(uint32_t smem_K, const Seen& seen, int first_key, bool is_first,
                                           bool is_masked LADDER_SITE_PARAMETER) {
    multiply(
        smem_K, seen, first_key, is_first, is_masked, NoFunction {} LADDER_SITE);
  }
  template <class Function>
  __device__ __forceinline__ void multiply(uint32_t smem_K, const Seen& seen, int first_key, bool is_first,
                                           bool is_masked, const Function& function LADDER_SITE_PARAMETER) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t lane_K = smem_K + chunk_offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    const uint32_t lane_V = smem_K + C::TILE_BYTES + chunk_offset(lane % 16, lane / 16);

    // QK
    float S_frag[M_TILES][QK_N_TILES][4] = {};
#pragma unroll
    for (int d_slice = 0; d_slice < QK_K_TILES; ++d_slice) {
      for (int key_tile = 0; key_tile < QK_N_TILES; key_tile += 2) {
        uint32_t K_frag[4];
        ldmatrix_x4(K_frag, (lane_K ^ (d_slice * 32)) + key_tile * 8 * ROW_BYTES LADDER_SITE);
        for (int group = 0; group < M_TILES; ++group) {
          mma<T>(S_frag[group][key_tile], Q_frag[group][d_slice], K_frag[0], K_frag[1] LADDER_SITE);
          mma<T>(S_frag[group][key_tile + 1], Q_frag[group][d_slice], K_frag[2], K_frag[3] LADDER_SITE);
        }
      }
    }

    // SOFTMAX  In a masked tile a row may meet its first key.
    uint32_t P_frag[M_TILES][PV_K_TILES][4];
#pragma unroll
    for (int group = 0; group < M_TILES; ++group) {
      function.change(S_frag[group], query_of[group], first_key);
      if (is_masked) hide_unseen(S_frag[group], seen, query_of[group], first_key);
      softmax[group].weigh(S_frag[group], P_frag[group], is_first, is_masked LADDER_SITE);
      if (softmax[group].rescale) scale_rows(O_frag[group], softmax[group].correction);
    }

    // PV
#pragma unroll
    for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice) {
      for (int column_tile = 0; column_tile < PV_N_TILES; column_tile += 2) {
        uint32_t V_frag[4];
        ldmatrix_x4_trans(V_frag, (lane_V ^ (column_tile * 16)) + key_slice * 16 * ROW_BYTES LADDER_SITE);
        for (int group = 0; group < M_TILES; ++group) {
          mma<T>(O_frag[group][column_tile], P_frag[group][key_slice], V_frag[0], V_frag[1] LADDER_SITE);
          mma<T>(O_frag[group][column_tile + 1], P_frag[group][key_slice], V_frag[2], V_frag[3] LADDER_SITE);
        }
      }
    }
  }
  // d08_seamless. What it has found about 16 rows, to where part_of(row, chunk) says; d11_thrift: about those that
  // `rows` has. A row that sees no key is 0, whatever V holds.
  template <class Rows, class PartOf>
  __device__ __forceinline__ void store_found(int group, const Rows& rows,
                                              const PartOf& part_of LADDER_SITE_PARAMETER) {
    const uint32_t lane = threadIdx.x % 32;
    for (int half = 0; half < 2; ++half) {
      if (!rows.has(group * 16 + half * 8)) continue;
      const float sum = quad_sum(softmax[group].sum[half] LADDER_SITE);
      const int row = FragmentC::row(lane, 2 * half);
      if (!rows.has(group * 16 + row)) continue;
      for (int column_tile = 0; column_tile < PV_N_TILES; ++column_tile) {
        const float* const two = &O_frag[group][column_tile][2 * half];
        const uint2 found = {__float_as_uint(two[0]), __float_as_uint(two[1])};
        st_shared_v2(part_of(row, column_tile * 2 + lane % 4 / 2).four + lane % 2 * 8,
                     sum != 0 ? found : uint2{0, 0} LADDER_SITE);
      }
      if (lane % 4 == 0)
        st_shared_v2(part_of(row, 0).numbers,
                     {__float_as_uint(softmax[group].largest(half)), __float_as_uint(sum)} LADDER_SITE);
    }
  }
  template <class PartOf>
  __device__ __forceinline__ void store_found(int group, const PartOf& part_of LADDER_SITE_PARAMETER) {
    store_found(group, AllRows{}, part_of LADDER_SITE);
  }
};
// d04_warps. Of a tile of rows: from `from` on a warp has met a key that every row sees, and all rows see all keys, up
// to `up_to`.
struct Whole {
  int from, up_to;

  template <class C, class Rows>
  __device__ __forceinline__ static Whole of(const Rows& rows, const Seen& seen) {
    return {seen.first_of(rows.query(C::BR - 1)) + C::STEP, seen.end_of(rows.query(0))};
  }
  // A tile of BC keys that begins with this one has one that some row does not see, or may be a row's first.
  template <class C>
  __device__ __forceinline__ bool cuts(int first_key) const {
    return first_key < from || first_key + C::BC > up_to;
  }
};
// d04_warps. LOAD  Half a warp copies a row of a tile. What is behind the last key, or behind d, is zeros.
template <class C, class Keys>
__device__ __forceinline__ void load_tile(uint32_t tile, const typename C::Element* from,
                                          const ForwardParams::Strides& strides, const Keys& keys, int first_key,
                                          int d LADDER_SITE_PARAMETER) {
  const uint32_t lane = threadIdx.x % 32, lane_row = lane / ROW_CHUNKS;
  const uint32_t lane_chunk = tile + chunk_offset(lane_row, lane % ROW_CHUNKS);
#pragma unroll
  for (int row = 0; row < C::BC; row += 2) {
    const int of_tile = row + lane_row, key = first_key + of_tile;
    cp_async_16((lane_chunk ^ (row % 8 * 16)) + row * ROW_BYTES,
                from + keys.offset(strides, {key, of_tile} LADDER_SITE),
                key < keys.n_k && int(lane % ROW_CHUNKS * 8) < d ? 16 : 0 LADDER_SITE);
  }
}
// d04_warps. A lane's first chunk of a sequence's K or V.
template <class T, class Keys>
__device__ __forceinline__ const T* lane_source(const void* tensor, const ForwardParams::Strides& strides,
                                                const Keys& keys, int sequence, int kv_head) {
  return static_cast<const T*>(tensor) + keys.begin(strides, sequence) + kv_head * strides.head +
         threadIdx.x % ROW_CHUNKS * 8;
}

// d04_warps. What the warps have found about a row, joined as shares are: a lane's four columns of O, of which
// part_of(warp) says where in shared memory they stand, and where the row's maximum and sum.
struct WarpPart {
  uint32_t four, numbers;
};
template <int WARPS, class PartOf>
__device__ __forceinline__ Joined join_warps(float (&O)[4], const PartOf& part_of LADDER_SITE_PARAMETER) {
  Joined all;
  for (int of_warp = 0; of_warp < WARPS; ++of_warp) {
    const WarpPart part = part_of(of_warp);
    const uint2 numbers = ld_shared_v2(part.numbers LADDER_SITE);
    const uint4 four = ld_shared_v4(part.four LADDER_SITE);
    const Factors by = all.add(__uint_as_float(numbers.x), __uint_as_float(numbers.y));
    const uint32_t its[4] = {four.x, four.y, four.z, four.w};
    for (int i = 0; i < 4; ++i) O[i] = O[i] * by.mine + __uint_as_float(its[i]) * by.its;
  }
  return all;
}

// d04_warps. Attention of the rows over a share's keys. At its end, when all are done, and those are the block's warps
// or whom else a rung says, for each of the rows and by one warp, leave(row, a lane's four columns of O that nobody has
// divided by the sum, maximum and sum).
struct WarpsAreDone {
  __device__ __forceinline__ void operator()(LADDER_SITE_ONLY_PARAMETER) const { __syncthreads(LADDER_SITE_ALONE); }
};
template <class C, class Keys, class Leave, class AreDone, class Function>
__device__ __forceinline__ void attend_to(const ModelParams& p, const Share& share, Keys keys, const Leave& leave,
                                          const AreDone& are_done, const Function& function LADDER_SITE_PARAMETER) {
  using T = typename C::Element;
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, STAGES = C::STAGES, STEP = C::STEP;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t smem_K = smem_base() + warp * STAGES * C::STAGE_BYTES, smem_V = smem_K + C::TILE_BYTES;
  smem_name(smem_base(), C::SMEM_BYTES, "K and V", ROW_BYTES);

  const Rows& rows = share.rows;
  const Seen seen(p, p.n_q, keys.n_k);
  const int sequence = share.sequence, begin = share.begin, end = share.end;
  const Whole whole = Whole::of<C>(rows, seen);

  const T *const K = lane_source<T>(p.K, p.K_strides, keys, sequence, share.kv_head), *const V = lane_source<T>(
                                                                                          p.V, p.V_strides, keys,
                                                                                          sequence, share.kv_head);
  const auto load = [&](int step) {
    if (step < end) {
      const uint32_t stage = (step - begin) % STAGES * C::STAGE_BYTES;
      const int first_key = step * STEP + warp * BC;
      load_tile<C>(smem_K + stage, K, p.K_strides, keys, first_key, p.d LADDER_SITE);
      load_tile<C>(smem_V + stage, V, p.V_strides, keys, first_key, p.d LADDER_SITE);
      keys.look_up(first_key + STEP);
    }
    cp_async_commit(LADDER_SITE_ALONE);
  };
  keys.look_up(begin * STEP + warp * BC);
  for (int step = begin; step < begin + STAGES - 1; ++step) load(step);

  WarpRows<C> mine;
  mine.load_Q(p, rows, sequence LADDER_SITE);
  mine.begin(function.scale);
  for (int step = begin; step < end; ++step) {
    cp_async_wait<STAGES - 2>(LADDER_SITE_ALONE);  // this lane's part of the tile has landed
    __syncwarp(LADDER_SITE_ALONE);                 // safe to read it: all lanes' parts have;
                                                   // safe to overwrite the one before
    load(step + STAGES - 1);
    const int first_key = step * STEP + warp * BC;
    mine.multiply(smem_K + (step - begin) % STAGES * C::STAGE_BYTES, seen, first_key, step == begin,
                  whole.template cuts<C>(first_key), function LADDER_SITE);
  }

  // STORE  Each warp has rows of O for keys of its own: they are joined as shares are, a warp four rows from here on, a
  //        lane four columns. A row that sees no key is 0, whatever V holds.
  const auto part_of = [&](int of_warp) { return smem_base() + of_warp * C::PART_BYTES; };
  const auto numbers_of = [&](int of_warp, int row) { return part_of(of_warp) + BR * C::PART_ROW_BYTES + row * 8; };
  are_done(LADDER_SITE_ALONE);  // safe to overwrite K and V: all have read their last ones
#pragma unroll
  for (int group = 0; group < WarpRows<C>::M_TILES; ++group) {
    for (int half = 0; half < 2; ++half) {
      const float sum = quad_sum(mine.softmax[group].sum[half] LADDER_SITE);
      const int row = mine.row_of[group][half];
      for (int column_tile = 0; column_tile < WarpRows<C>::PV_N_TILES; ++column_tile) {
        const float* const two = &mine.O_frag[group][column_tile][2 * half];
        const uint2 found = {__float_as_uint(two[0]), __float_as_uint(two[1])};
        st_shared_v2(part_of(warp) + row * C::PART_ROW_BYTES + (column_tile * 8 + FragmentC::col(lane, 0)) * 4,
                     sum != 0 ? found : uint2{0, 0} LADDER_SITE);
      }
      if (lane % 4 == 0)
        st_shared_v2(numbers_of(warp, row),
                     {__float_as_uint(mine.softmax[group].largest(half)), __float_as_uint(sum)} LADDER_SITE);
    }
  }
  __syncthreads(LADDER_SITE_ALONE);  // safe to read what the other warps have found
  for (int row = warp; row < BR && rows.has(row); row += WARPS) {
    const auto found_by = [&](int of_warp) {
      return WarpPart{part_of(of_warp) + row * C::PART_ROW_BYTES + lane * 16, numbers_of(of_warp, row)};
    };
    float O[4] = {};
    const Joined all = join_warps<WARPS>(O, found_by LADDER_SITE);
    leave(row, O, all LADDER_SITE);
  }
}

template <class C, class Keys, class Leave>
__device__ __forceinline__ void attend_to(const ModelParams& p, const Share& share, const Keys& keys,
                                          const Leave& leave LADDER_SITE_PARAMETER) {
  attend_to<C>(p, share, keys, leave, WarpsAreDone{}, NoFunction{p.softmax_scale} LADDER_SITE);
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

// d04_warps. A block's share, one of so many of its rows, in a grid (tiles of rows * shares, kv_heads, batch).
struct BlockShare : Share {
  int number, count;

  template <class C>
  __device__ __forceinline__ static BlockShare of(const Rows& rows, const Seen& seen, int shares) {
    const int sequence = blockIdx.z, number = blockIdx.x % shares;
    const Steps steps = steps_of<C>(rows, seen);
    const int begin = steps.first + number * steps.count / shares;
    const int end = steps.first + (number + 1) * steps.count / shares;
    return {{rows, sequence, int(blockIdx.y), begin, end}, number, shares};
  }
  // What has been found about a row goes to O and LSE, or of several shares to the workspace.
  template <class T>
  __device__ __forceinline__ void leave(const ModelParams& p, int row, const float (&O)[4],
                                        const Joined& all LADDER_SITE_PARAMETER) const {
    const int head = rows.head(row), query = rows.query(row);
    if (count > 1) {
      store_part(Part<HEAD_DIM>(p, number, count, row_number(p, sequence, head, query)), O, all LADDER_SITE);
    } else {
      store_row<T>(p, sequence, head, query, O, all LADDER_SITE);
    }
  }
};

// d04_warps. All that a block does: attention of its rows over its share's keys.
template <class C, class Keys>
__device__ __forceinline__ void attend(const ModelParams& p, Keys keys, int shares LADDER_SITE_PARAMETER) {
  const Rows rows = Rows::of_block<C>(p, shares);
  const BlockShare share = BlockShare::of<C>(rows, Seen(p, p.n_q, keys.n_k), shares);
  const auto leave = [&](int row, const float(&O)[4], const Joined& all LADDER_SITE_PARAMETER) {
    share.leave<typename C::Element>(p, row, O, all LADDER_SITE);
  };
  attend_to<C>(p, share, keys, leave LADDER_SITE);
}

// d04_warps. Its pieces, for rungs whose warps have other tiles. A warp's way through a share: while it multiplies a
// tile of keys, STAGES - 1 others are on their way. load(stage, first_key) asks for a tile, `stage` bytes behind the
// warp's first one; begin() is what it does when it has asked for the first ones; multiply(stage, first_key, is_first),
// when one has landed and are_there() has waited for who else has copied it: the warp's lanes, or whom a rung says.
struct LanesAreThere {
  __device__ __forceinline__ void operator()(LADDER_SITE_ONLY_PARAMETER) const { __syncwarp(LADDER_SITE_ALONE); }
};
template <class C, class Keys, class Load, class Begin, class Multiply, class AreThere>
__device__ __forceinline__ void walk_share(const Share& share, uint32_t warp, Keys& keys, const Load& load,
                                           const Begin& begin_with, const Multiply& multiply,
                                           const AreThere& are_there LADDER_SITE_PARAMETER) {
  constexpr int BC = C::BC, STAGES = C::STAGES, STEP = C::STEP;
  const int begin = share.begin, end = share.end;
  const auto ask = [&](int step) {
    if (step < end) {
      const uint32_t stage = (step - begin) % STAGES * C::STAGE_BYTES;
      const int first_key = step * STEP + warp * BC;
      load(stage, first_key);
      keys.look_up(first_key + STEP);
    }
    cp_async_commit(LADDER_SITE_ALONE);
  };
  keys.look_up(begin * STEP + warp * BC);
  for (int step = begin; step < begin + STAGES - 1; ++step) ask(step);

  begin_with();
  for (int step = begin; step < end; ++step) {
    cp_async_wait<STAGES - 2>(LADDER_SITE_ALONE);  // this lane's part of the tile has landed
    are_there();  // safe to read it: all lanes' parts have; safe to overwrite the one before
    ask(step + STAGES - 1);
    const int first_key = step * STEP + warp * BC;
    multiply((step - begin) % STAGES * C::STAGE_BYTES, first_key, step == begin);
  }
}
template <class C, class Keys, class Load, class Begin, class Multiply>
__device__ __forceinline__ void walk_share(const Share& share, uint32_t warp, Keys& keys, const Load& load,
                                           const Begin& begin_with, const Multiply& multiply LADDER_SITE_PARAMETER) {
  walk_share<C>(
      share, warp, keys, load, begin_with, multiply, LanesAreThere {} LADDER_SITE);
}
// d04_warps. Where a warp leaves what it has found about a row: of O from the chunk of 16 B on.
template <class C>
__device__ __forceinline__ WarpPart part_at(int of_warp, int row, uint32_t chunk = 0) {
  const uint32_t part = smem_base() + of_warp * C::PART_BYTES;
  return {part + row * C::PART_ROW_BYTES + chunk * 16, part + C::BR * C::PART_ROW_BYTES + row * 8};
}
// d04_warps. And who joins it: of rows `first`, `first` + WARPS ..., what WARPS warps have found, number i of which is
// warp warp_of(i) of the block.
template <class C, int WARPS, class WarpOf>
__device__ __forceinline__ void leave_rows(const ModelParams& p, const BlockShare& share, int first,
                                           const WarpOf& warp_of LADDER_SITE_PARAMETER) {
  for (int row = first; row < C::BR && share.rows.has(row); row += WARPS) {
    float O[4] = {};
    const auto found_by = [&](int i) { return part_at<C>(warp_of(i), row, threadIdx.x % 32); };
    const Joined all = join_warps<WARPS>(O, found_by LADDER_SITE);
    share.template leave<typename C::Element>(p, row, O, all LADDER_SITE);
  }
}
template <class C>
__device__ __forceinline__ void leave_rows(const ModelParams& p, const BlockShare& share LADDER_SITE_PARAMETER) {
  leave_rows<C, C::WARPS>(p, share, threadIdx.x / 32, [](int of_warp) { return of_warp; } LADDER_SITE);
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
inline int rows_per_kv_head(const ModelParams& p) {
  return p.n_q * (p.heads / p.kv_heads);
}
// d06_pages. LAUNCH  As many shares of each sequence as if it were the longest, of HEADS heads of keys a block, which
// start(grid, shares) launches; and then their join.
template <class C, int HEADS = 1, class Start>
void start_shares(Device& device, const ModelParams& p, const Start& start) {
  const int tiles = (rows_per_kv_head(p) + C::BR - 1) / C::BR, heads = p.kv_heads / HEADS;
  const int shares = shares_of<C>(int64_t(tiles) * heads * p.batch, p.n_k, multiprocessors(device));
  start(dim3(tiles * shares, heads, p.batch), shares);
  if (shares > 1) start_join_early<typename C::Element, HEAD_DIM, JOIN_WARPS>(device, p, shares);
}

// ---- warpgroups that read keys of their own -------------------------------------------------------------------------

// d12_warpgroups. A warpgroup's tile, and the block's shared memory.
template <class T, int BR_, int BC_, int WARPGROUPS_, int STAGES_>
struct WarpgroupTile {
  using Element = T;
  static constexpr int BR = BR_, BC = BC_, WARPGROUPS = WARPGROUPS_, STAGES = STAGES_, PER_SM = 1;
  static constexpr int THREADS = WARPGROUPS * 128, WARPS = THREADS / 32;
  static constexpr int STEP = WARPGROUPS * BC;  // keys that a block takes at a time, a tile each warpgroup
  static constexpr uint32_t TILE_BYTES = BC * ROW_BYTES, STAGE_BYTES = 2 * TILE_BYTES;  // K; and V behind it
  static constexpr uint32_t Q_AT = WARPGROUPS * STAGES * STAGE_BYTES, Q_BYTES = BR * ROW_BYTES;
  // What a warpgroup has found about its rows takes its first stage: rows of 512 B. Maxima and sums are behind Q.
  static constexpr uint32_t PART_ROW_BYTES = HEAD_DIM * 4, NUMBERS_AT = Q_AT + Q_BYTES, NUMBERS_BYTES = BR * 8;
  static constexpr uint32_t SMEM_BYTES = NUMBERS_AT + WARPGROUPS * NUMBERS_BYTES;
  static_assert(BR == 64 && BC == 64 && BR * PART_ROW_BYTES == STAGE_BYTES);
};

// Byte offset of a chunk within a tile of 64 rows: in one of two panels of 64 columns, swizzled as in 20_wgmma.
__device__ __forceinline__ uint32_t chunk_in_panels(uint32_t row, uint32_t chunk) {
  return (chunk / 8 * 64 + row) * PANEL_ROW_BYTES + (chunk % 8 ^ row % 8) * 16;
}

// LOAD  Half a warp copies a row, all 256 B of it: 64 rows of Q by the block, of a tile by its warpgroup, 16 a warp.
template <class C>
__device__ __forceinline__ void load_panels_Q(const ModelParams& p, const Rows& rows,
                                              int sequence LADDER_SITE_PARAMETER) {
  const int chunk = threadIdx.x % ROW_CHUNKS;
  const auto* const Q = static_cast<const typename C::Element*>(p.Q) + sequence * p.Q_strides.batch + chunk * 8;
#pragma unroll
  for (int first = 0; first < C::BR; first += C::THREADS / ROW_CHUNKS) {
    const int row = first + threadIdx.x / ROW_CHUNKS;
    cp_async_16(smem_base() + C::Q_AT + chunk_in_panels(row, chunk),
                Q + rows.head(row) * p.Q_strides.head + rows.query(row) * p.Q_strides.row,
                rows.has(row) && chunk * 8 < p.d ? 16 : 0 LADDER_SITE);
  }
}
template <class C, class Keys>
__device__ __forceinline__ void load_panels(uint32_t tile, const typename C::Element* from,
                                            const ForwardParams::Strides& strides, const Keys& keys, int first_key,
                                            int d LADDER_SITE_PARAMETER) {
  const int chunk = threadIdx.x % ROW_CHUNKS, of_warp = threadIdx.x % 128 / 32 * 16;
#pragma unroll
  for (int first = 0; first < 16; first += 2) {
    const int row = first + threadIdx.x % 32 / ROW_CHUNKS, key = first_key + of_warp + row;
    cp_async_16(tile + chunk_in_panels(of_warp + row, chunk), from + keys.offset(strides, {key, row} LADDER_SITE),
                key < keys.n_k && chunk * 8 < d ? 16 : 0 LADDER_SITE);
  }
}

// d12_warpgroups. As attend_to, of more rows than 16.
template <class C, class Keys, class Leave, class AreDone, class Function>
__device__ __forceinline__ void attend_by_warpgroups(const ModelParams& p, const Share& share, Keys keys,
                                                     const Leave& leave, const AreDone& are_done,
                                                     const Function& function LADDER_SITE_PARAMETER) {
  using T = typename C::Element;
  constexpr int BR = C::BR, BC = C::BC, STAGES = C::STAGES, STEP = C::STEP;
  const uint32_t warpgroup = threadIdx.x / 128, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t smem_K = smem_base() + warpgroup * STAGES * C::STAGE_BYTES;
  smem_name(smem_base(), C::Q_AT, "K and V", PANEL_ROW_BYTES);
  smem_name(smem_base() + C::Q_AT, C::Q_BYTES, "Q", PANEL_ROW_BYTES);

  const Rows& rows = share.rows;
  const Seen seen(p, p.n_q, keys.n_k);
  const int sequence = share.sequence, begin = share.begin, end = share.end;
  const Whole whole = Whole::of<C>(rows, seen);

  const T* const K = lane_source<T>(p.K, p.K_strides, keys, sequence, share.kv_head);
  const T* const V = lane_source<T>(p.V, p.V_strides, keys, sequence, share.kv_head);
  const auto stage_of = [&](int step) { return smem_K + (step - begin) % STAGES * C::STAGE_BYTES; };
  const auto first_key_of = [&](int step) { return step * STEP + int(warpgroup) * BC; };
  const auto load = [&](int step) {
    if (step < end) {
      load_panels<C>(stage_of(step), K, p.K_strides, keys, first_key_of(step), p.d LADDER_SITE);
      load_panels<C>(stage_of(step) + C::TILE_BYTES, V, p.V_strides, keys, first_key_of(step), p.d LADDER_SITE);
      keys.look_up(first_key_of(step + 1) + warp % 4 * 16);
    }
    cp_async_commit(LADDER_SITE_ALONE);
  };
  keys.look_up(first_key_of(begin) + warp % 4 * 16);
  load_panels_Q<C>(p, rows, sequence LADDER_SITE);
  for (int step = begin; step < begin + STAGES - 1; ++step) load(step);
  cp_async_wait<STAGES - 2>(LADDER_SITE_ALONE);
  fence_proxy_async_shared(LADDER_SITE_ALONE);
  __syncthreads(LADDER_SITE_ALONE);  // safe to multiply Q: all threads' parts of it have landed

  // A lane has two rows of its warp's 16, 8 apart.
  const int lane_row[2] = {int(warp % 4 * 16) + FragmentC::row(lane, 0), int(warp % 4 * 16) + FragmentC::row(lane, 2)};
  const int query[2] = {rows.query(lane_row[0]), rows.query(lane_row[1])};
  Softmax<T, BC> softmax = {};
  softmax.scale_log2 = function.scale * LOG2E;
  softmax.begin();
  const uint64_t Q_rows = wgmma_descriptor(smem_base() + C::Q_AT);
  float O_frag[HEAD_DIM / 8][4] = {}, S_frag[BC / 8][4];
  uint32_t P_frag[BC / 16][4];
  for (int step = begin; step < end; ++step) {
    cp_async_wait<STAGES - 2>(LADDER_SITE_ALONE);        // this thread's part of the tile has landed
    fence_proxy_async_shared(LADDER_SITE_ALONE);         // products will find it
    named_barrier_sync(1 + warpgroup, 128 LADDER_SITE);  // safe to read it, and to overwrite the one before
    load(step + STAGES - 1);
    wgmma_fence(S_frag);
    issue_QK<T, HEAD_DIM, BR, BC>(S_frag, Q_rows, wgmma_descriptor(stage_of(step)), false LADDER_SITE);
    wgmma_commit(LADDER_SITE_ALONE);
    wgmma_wait<0>(S_frag);
    const int first_key = first_key_of(step);
    const bool is_masked = whole.template cuts<C>(first_key);
    function.change(S_frag, query, first_key);
    if (is_masked) hide_unseen(S_frag, seen, query, first_key);
    softmax.weigh(S_frag, P_frag, step == begin, is_masked LADDER_SITE);
    if (softmax.rescale) scale_rows(O_frag, softmax.correction);
    wgmma_fence(O_frag, P_frag);
    issue_PV<T>(O_frag, P_frag, wgmma_descriptor(stage_of(step) + C::TILE_BYTES, BC * PANEL_ROW_BYTES),
                true LADDER_SITE);
    wgmma_commit(LADDER_SITE_ALONE);
    wgmma_wait<0>(O_frag, P_frag);
  }

  const auto part_of = [&](int of_warpgroup, int row, uint32_t chunk) {
    return WarpPart{
        smem_base() + of_warpgroup * STAGES * C::STAGE_BYTES + row * C::PART_ROW_BYTES + (chunk ^ row % 4 * 2) * 16,
        smem_base() + C::NUMBERS_AT + of_warpgroup * C::NUMBERS_BYTES + row * 8};
  };
  are_done(LADDER_SITE_ALONE);  // safe to overwrite K and V: all have multiplied their last ones
  for (int half = 0; half < 2; ++half) {
    const float sum = quad_sum(softmax.sum[half] LADDER_SITE);
    for (int column_tile = 0; column_tile < HEAD_DIM / 8; ++column_tile) {
      const float* const two = &O_frag[column_tile][2 * half];
      const uint2 found = {__float_as_uint(two[0]), __float_as_uint(two[1])};
      st_shared_v2(part_of(warpgroup, lane_row[half], column_tile * 2 + lane % 4 / 2).four + lane % 2 * 8,
                   sum != 0 ? found : uint2{0, 0} LADDER_SITE);
    }
    if (lane % 4 == 0)
      st_shared_v2(part_of(warpgroup, lane_row[half], 0).numbers,
                   {__float_as_uint(softmax.largest(half)), __float_as_uint(sum)} LADDER_SITE);
  }
  __syncthreads(LADDER_SITE_ALONE);  // safe to read what the other warpgroups have found
  for (int row = warp; row < BR && rows.has(row); row += C::WARPS) {
    float O[4] = {};
    const Joined all =
        join_warps<C::WARPGROUPS>(O, [&](int of_warpgroup) { return part_of(of_warpgroup, row, lane); } LADDER_SITE);
    leave(row, O, all LADDER_SITE);
  }
}

// ---- a list of all steps --------------------------------------------------------------------------------------------

// d07_list. The list: of each sequence, of each head of keys, of each tile of rows, the steps in which it meets keys. A
// whole warp asks.
template <class C>
struct List {
  const CacheParams& p;
  int tiles, row_tiles;  // of rows; of rows of all heads of keys

  __device__ __forceinline__ List(const CacheParams& p)
      : p(p), tiles((p.n_q * (p.heads / p.kv_heads) + C::BR - 1) / C::BR), row_tiles(tiles * p.kv_heads) {}
  __device__ __forceinline__ Rows rows_of_tile(int row_tile) const {
    const int group = p.heads / p.kv_heads;
    return {group, row_tile / tiles * group, row_tile % tiles * C::BR, p.n_q * group};
  }
  // Of each tile of a sequence, from the first query's first key to the last query's last.
  __device__ __forceinline__ Steps steps_of(int sequence LADDER_SITE_PARAMETER) const {
    const Seen seen(p, p.n_q, keys_of(p, sequence LADDER_SITE));
    const int first = seen.first_of(0) / C::STEP;
    return {first, max((seen.end_of(p.n_q - 1) + C::STEP - 1) / C::STEP - first, 1)};
  }
  // All steps of the sequences before this one.
  __device__ __forceinline__ int before(int sequence LADDER_SITE_PARAMETER) const {
    int sum = 0;
    for (int s = threadIdx.x % 32; s < sequence; s += 32) sum += row_tiles * steps_of(s LADDER_SITE).count;
    for (int mask = 16; mask > 0; mask /= 2) sum += int(shfl(sum, threadIdx.x % 32 ^ mask LADDER_SITE));
    return sum;
  }
  // The sequence that has a step, and all steps before it. Of 32 sequences at a time a lane knows where its own ends.
  __device__ __forceinline__ int sequence_of(int step, int& before LADDER_SITE_PARAMETER) const {
    const int lane = threadIdx.x % 32;
    before = 0;
    if (p.batch == 1) return 0;
    for (int first = 0;; first += 32) {
      int end = first + lane < p.batch ? row_tiles * steps_of(first + lane LADDER_SITE).count : 0;
      for (int from = 1; from < 32; from *= 2) {
        const int sum = int(shfl(end, lane - from LADDER_SITE));
        if (lane >= from) end += sum;
      }
      const int all = int(shfl(end, 31 LADDER_SITE));
      if (step >= before + all) {
        before += all;
        continue;
      }
      int number = 0;
      for (int half = 16; half > 0; half /= 2) {
        if (step >= before + int(shfl(end, number + half - 1 LADDER_SITE))) number += half;
      }
      if (number > 0) before += int(shfl(end, number - 1 LADDER_SITE));
      return first + number;
    }
  }
};

// d07_list. Who has which part of the list: block b from here on, up to where b + 1 begins.
__device__ __forceinline__ int begin_of(int block, int blocks, int steps) {
  return int(int64_t(block) * steps / blocks);
}
// d07_list. And back.
__device__ __forceinline__ int block_of(int step, int blocks, int steps) {
  return int((int64_t(step + 1) * blocks - 1) / steps);
}
// d07_list. What a block leaves of a tile that it does not have alone: of the one that it begins with, or of the last.
template <class C>
__device__ __forceinline__ Part<HEAD_DIM> part_of(const CacheParams& p, int block, bool is_first, int row) {
  return {p, (block * 2 + !is_first) * C::BR + row, int64_t(MOST_SHARES) * 2 * C::BR};
}

// d07_list. JOIN  A row of O that several blocks have parts of. Grid (rows of a tile, blocks of the launch before): a
// block has one tile at most that it begins and others go on with, its last one. Row `blockIdx.x` of that is joined
// here.
template <class C>
__global__ void __launch_bounds__(JOIN_WARPS * 32) join_list(CacheParams p) {
  const List<C> list(p);
  const int steps = list.before(p.batch), blocks = min(int(gridDim.y), steps), block = blockIdx.y;
  if (block + 1 >= blocks) return;
  const int end = begin_of(block + 1, blocks, steps);
  int before;
  const int sequence = list.sequence_of(end - 1, before), count = list.steps_of(sequence).count;
  const int row_tile = (end - 1 - before) / count, first = before + row_tile * count, last = first + count - 1;
  const Rows rows = list.rows_of_tile(row_tile);
  const bool goes_on = last >= end && block_of(first, blocks, steps) == block;
  if (!goes_on || !rows.has(blockIdx.x)) return;
  const bool is_first = begin_of(block, blocks, steps) == first;  // of this block's
  griddepcontrol_wait();                                          // safe to read what the blocks have written: they are
                                                                  // over
  join_row<typename C::Element, HEAD_DIM, JOIN_WARPS>(
      p, sequence, rows.head(blockIdx.x), rows.query(blockIdx.x), block_of(last, blocks, steps) - block + 1,
      [&](int share) { return part_of<C>(p, block + share, share > 0 || is_first, blockIdx.x); });
}
template <class C>
void start_join_list(Device& device, const CacheParams& p, int blocks) {
  launch_dependent(device, join_list<C>, dim3(min(rows_per_kv_head(p), C::BR), blocks), dim3(JOIN_WARPS * 32),
                   JOIN_WARPS * (HEAD_DIM + 2) * 4, p);
}

// d08_seamless.
template <class T, int BR, int BC, int WARPS, int STAGES>
struct SeamlessTile : WarpTile<T, BR, BC, WARPS, STAGES, 1> {
  using Base = WarpTile<T, BR, BC, WARPS, STAGES, 1>;
  using Wide = SeamlessTile<T, 32, BC, WARPS, STAGES>;
  // What a warp has found about 16 rows takes the stage of the tile that it had last: rows of 512 B. Maxima and sums
  // are behind all stages.
  static constexpr uint32_t PART_ROW_BYTES = HEAD_DIM * 4, NUMBERS_BYTES = 16 * 8;
  static constexpr uint32_t SMEM_BYTES = Base::SMEM_BYTES + WARPS * NUMBERS_BYTES;
  static_assert(16 * PART_ROW_BYTES == Base::STAGE_BYTES);
};

// d08_seamless. A tile of rows of a head of keys, and where in the list its steps are.
struct ListTile {
  int sequence, row_tile, n_k;
  int first, end;  // step of the list; behind the last one
  int first_key;   // of its first step

  template <class C>
  __device__ __forceinline__ static ListTile at(const List<C>& list, int sequence, int row_tile,
                                                int first LADDER_SITE_PARAMETER) {
    const Steps steps = list.steps_of(sequence LADDER_SITE);
    return {
        sequence, row_tile, keys_of(list.p, sequence LADDER_SITE), first, first + steps.count, steps.first * C::STEP};
  }
  template <class C>
  __device__ __forceinline__ static ListTile of(const List<C>& list, int step LADDER_SITE_PARAMETER) {
    int before;
    const int sequence = list.sequence_of(step, before LADDER_SITE), count = list.steps_of(sequence LADDER_SITE).count;
    const int row_tile = (step - before) / count;
    return at(list, sequence, row_tile, before + row_tile * count LADDER_SITE);
  }
  template <class C>
  __device__ __forceinline__ ListTile next(const List<C>& list LADDER_SITE_PARAMETER) const {
    if (row_tile + 1 == list.row_tiles) return at(list, sequence + 1, 0, end LADDER_SITE);
    return {sequence, row_tile + 1, n_k, end, 2 * end - first, first_key};
  }
  template <class C>
  __device__ __forceinline__ int key(int step) const {  // the first of this warp
    return first_key + (step - first) * C::STEP + int(threadIdx.x / 32) * C::BC;
  }
};

// d08_seamless. All that a block does in the list, from step `begin` on to before `end`: attention of each piece, the
// first of which begins at `begin`, and the next one where end_of(tile, step) says that it ends. Then, for each of its
// rows and by one warp, leave(tile, from which step, to which, rows, row, O, found) as attend_to's. d19_listed:
// function_of(tile, rows) says what becomes of scores.
template <class C, bool IN_PAGES, class EndOf, class Leave, class FunctionOf>
__device__ __forceinline__ void attend_list(const CacheParams& p, const List<C>& list, ListTile here, int begin,
                                            int end, const EndOf& end_of, const Leave& leave,
                                            const FunctionOf& function_of LADDER_SITE_PARAMETER) {
  using T = typename C::Element;
  using Keys = KeysOfCache<IN_PAGES>;
  constexpr int WARPS = C::WARPS, STAGES = C::STAGES;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto stage_of = [&](int of_warp, int step) {
    return smem_base() + (of_warp * STAGES + (step - begin) % STAGES) * C::STAGE_BYTES;
  };
  smem_name(smem_base(), C::Base::SMEM_BYTES, "K and V", ROW_BYTES);

  // LOAD  The tile of keys that is asked for next belongs to `ahead`, which may be some heads further than what is
  //       multiplied.
  ListTile ahead = here;
  int asked = begin;
  const auto keys_in = [&](const ListTile& tile) {
    if constexpr (IN_PAGES) {
      return Keys(p, tile.sequence, tile.n_k);
    } else {
      return Keys{tile.n_k};
    }
  };
  Keys keys = keys_in(ahead);
  const auto load = [&] {
    if (asked < end) {
      const int first_key = ahead.template key<C>(asked), kv_head = ahead.row_tile / list.tiles;
      const uint32_t smem_K = stage_of(warp, asked);
      load_tile<C>(smem_K, lane_source<T>(p.K, p.K_strides, keys, ahead.sequence, kv_head), p.K_strides, keys,
                   first_key, p.d LADDER_SITE);
      load_tile<C>(smem_K + C::TILE_BYTES, lane_source<T>(p.V, p.V_strides, keys, ahead.sequence, kv_head), p.V_strides,
                   keys, first_key, p.d LADDER_SITE);
      if (++asked == ahead.end && asked < end) ahead = ahead.next(list LADDER_SITE), keys = keys_in(ahead);
      keys.look_up(ahead.template key<C>(asked));
    }
    cp_async_commit(LADDER_SITE_ALONE);
  };
  keys.look_up(ahead.template key<C>(begin));
  for (int stage = 0; stage < STAGES - 1; ++stage) load();

  WarpRows<C> mine;
  mine.load_Q(p, list.rows_of_tile(here.row_tile), here.sequence LADDER_SITE);
  for (int step = begin; step < end;) {
    const Rows rows = list.rows_of_tile(here.row_tile);
    const Seen seen(p, p.n_q, here.n_k);
    const Whole whole = Whole::of<C>(rows, seen);
    const int from = step, to = end_of(here, step);
    const auto function = function_of(here, rows);
    mine.begin(function.scale);
    for (; step < to; ++step) {
      cp_async_wait<STAGES - 2>(LADDER_SITE_ALONE);  // this lane's part of the tile has landed
      __syncwarp(LADDER_SITE_ALONE);                 // safe to read it: all lanes' parts have;
                                                     // safe to overwrite the one before
      load();
      const int first_key = here.template key<C>(step);
      mine.multiply(stage_of(warp, step), seen, first_key, step == from, whole.template cuts<C>(first_key),
                    function LADDER_SITE);
    }

    // STORE  Two tiles of keys are on their way, of this head or of the next one. The third stage is free.
    const ListTile then = to == here.end && to < end ? here.next(list LADDER_SITE) : here;
    const auto part_of = [&](int of_warp, int row, uint32_t chunk) {
      return WarpPart{stage_of(of_warp, to - 1) + row * C::PART_ROW_BYTES + (chunk ^ (row % 4 * 2)) * 16,
                      smem_base() + C::Base::SMEM_BYTES + of_warp * C::NUMBERS_BYTES + row * 8};
    };
    __syncwarp(LADDER_SITE_ALONE);  // safe to overwrite the last tile: all lanes
                                    // have multiplied it
#pragma unroll
    for (int group = 0; group < C::BR / 16; ++group) {
      mine.store_found(group, [&](int row, uint32_t chunk) { return part_of(warp, row, chunk); } LADDER_SITE);
      if (group == C::BR / 16 - 1) mine.load_Q(p, list.rows_of_tile(then.row_tile), then.sequence LADDER_SITE);
      __syncthreads(LADDER_SITE_ALONE);  // safe to read what the other warps have found
      for (int of_group = warp; of_group < 16 && rows.has(group * 16 + of_group); of_group += WARPS) {
        const int row = group * 16 + of_group;
        float O[4] = {};
        const Joined all =
            join_warps<WARPS>(O, [&](int of_warp) { return part_of(of_warp, of_group, lane); } LADDER_SITE);
        leave(here, from, to, rows, row, O, all LADDER_SITE);
      }
      __syncthreads(LADDER_SITE_ALONE);  // safe to overwrite it
    }
    here = then;
  }
}

template <class C, bool IN_PAGES, class EndOf, class Leave>
__device__ __forceinline__ void attend_list(const CacheParams& p, const List<C>& list, const ListTile& here, int begin,
                                            int end, const EndOf& end_of, const Leave& leave LADDER_SITE_PARAMETER) {
  attend_list<C, IN_PAGES>(p, list, here, begin, end, end_of, leave,
                           [&](const ListTile&, const Rows&) { return NoFunction{p.softmax_scale}; } LADDER_SITE);
}

// ---- shares of a length of their own --------------------------------------------------------------------------------

// d09_own. How long a share is, how many a tile of rows has, and how many one of up to so many keys may have.
constexpr int USUAL_SHARES = 16, LONGEST_SHARE = 4;
__host__ __device__ __forceinline__ int length_of_shares(int steps) {
  return min(max((steps + USUAL_SHARES - 1) / USUAL_SHARES, 1), LONGEST_SHARE);
}
__host__ __device__ __forceinline__ int shares_of(int steps) {
  return (steps + length_of_shares(steps) - 1) / length_of_shares(steps);
}
template <class C>
int most_shares(int n_k) {
  const int steps = (n_k + C::STEP - 1) / C::STEP;
  return max(min(steps, USUAL_SHARES), shares_of(steps));
}
__device__ __forceinline__ int end_of_share(const ListTile& tile, int begin) {
  return min(begin + length_of_shares(tile.end - tile.first), tile.end);
}

// d09_own. What a block has of the list: the shares that begin in its equal part of all steps.
struct BlockRange {
  ListTile tile;  // of the first step
  int begin, end;
};
template <class C>
__device__ __forceinline__ BlockRange range_of_block(const List<C>& list, int steps, int block,
                                                     int blocks LADDER_SITE_PARAMETER) {
  // As begin_of: but a division in 64 bits, before anything is asked for, is long.
  const uint32_t of_each = uint32_t(steps) / blocks, rest = uint32_t(steps) % blocks;
  const auto equal = [&](uint32_t number) { return int(number * of_each + number * rest / blocks); };
  const auto share_from = [&](const ListTile& tile, int step) {
    const int length = length_of_shares(tile.end - tile.first);
    return min(tile.first + (step - tile.first + length - 1) / length * length, tile.end);
  };
  const int from = equal(block), to = equal(block + 1);
  if (from == to) return {{}, 0, 0};
  ListTile tile = ListTile::of(list, from LADDER_SITE);
  const int begin = share_from(tile, from);
  const ListTile last = to <= tile.end || to == steps ? tile : ListTile::of(list, to LADDER_SITE);
  const int end = to == steps ? steps : share_from(last, to);
  if (begin == tile.end && begin < end) tile = tile.next(list LADDER_SITE);
  return {tile, begin, end};
}

// d09_own. A share's part of a row, or if there is no other one the row.
template <class T>
__device__ __forceinline__ void leave_share(const CacheParams& p, const ListTile& tile, int from, int most, int head,
                                            int query, const float (&O)[4], const Joined& found LADDER_SITE_PARAMETER) {
  const int steps = tile.end - tile.first;
  if (shares_of(steps) == 1) {
    store_row<T>(p, tile.sequence, head, query, O, found LADDER_SITE);
  } else {
    const int share = (from - tile.first) / length_of_shares(steps);
    store_part(Part<HEAD_DIM>(p, share, most, row_number(p, tile.sequence, head, query)), O, found LADDER_SITE);
  }
}

// d09_own. JOIN  A row of O from its shares. Grid (n_q, heads, batch).
constexpr int SHARE_WARPS = 8;
template <class C>
__global__ void __launch_bounds__(SHARE_WARPS * 32) join_shares(CacheParams p, int most) {
  const int sequence = blockIdx.z, head = blockIdx.y, query = blockIdx.x;
  const int shares = shares_of(List<C>(p).steps_of(sequence).count);
  if (shares == 1) return;
  griddepcontrol_wait();  // safe to read what the blocks have written: they are over
  join_row<typename C::Element, HEAD_DIM, SHARE_WARPS>(p, sequence, head, query, shares, [&](int share) {
    return Part<HEAD_DIM>(p, share, most, row_number(p, sequence, head, query));
  });
}
template <class C>
void start_join_shares(Device& device, const CacheParams& p) {
  const int most = most_shares<C>(p.n_k);
  if (most > 1)
    launch_dependent(device, join_shares<C>, dim3(p.n_q, p.heads, p.batch), dim3(SHARE_WARPS * 32),
                     SHARE_WARPS * (HEAD_DIM + 2) * 4, p, most);
}
// d09_own. A block for each SM, if there are as many steps; but no more than range_of_block can count.
constexpr int MOST_BLOCKS = 1024;
template <class C>
int blocks_of(Device& device, const CacheParams& p) {
  const int64_t tiles = (rows_per_kv_head(p) + C::BR - 1) / C::BR * int64_t(p.kv_heads) * p.batch;
  return min(int64_t(min(int(multiprocessors(device)), MOST_BLOCKS)), tiles * ((p.n_k + C::STEP - 1) / C::STEP));
}

}  // namespace
}  // namespace decoding
