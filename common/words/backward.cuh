// The parts of a backward kernel for models.
#pragma once

namespace {

constexpr size_t TOGETHER_BYTES = 32 << 20;  // of 50 MiB that an H100 has, and an H200
constexpr float LOG2E = 1.44269504088896341f;
// A sequence: which one; where its rows begin among all of Q and of K, and how many it has; its first tile in the workspace; how
// many heads of keys take turns; and how many blocks the sequences before it in the list have.
struct Sequence {
  int number, q_begin, n_q, k_begin, n_k, first_tile, together, before;
};
struct Place {  // coordinates of a box, beside that of its columns
  int y, z, w;
};

template <int ROWS>
__host__ __device__ __forceinline__ int tiles_of(int n) {
  return (n + ROWS - 1) / ROWS;
}

// A side of a window: how many rows there are at most, where it has no end or one further away.
__host__ __device__ __forceinline__ int side(int of_window, int rows) {
  return of_window < 0 || of_window > rows ? rows : of_window;
}
// Which queries see a key: those from `first_of` on, up to `last_of`. Query i is the one of key i + n_k - n_q.
struct Seen {
  int n_q, n_k;
  int before, behind;  // the query of a key: so many queries before it see the key, and so many behind it

  __device__ __forceinline__ Seen(const ModelGradientParams& p, int n_q, int n_k)
      : n_q(n_q), n_k(n_k), before(p.causal ? 0 : side(p.right, n_q)), behind(side(p.left, n_k)) {}
  __device__ __forceinline__ int first_of(int key) const { return key + n_q - n_k - before; }
  __device__ __forceinline__ int last_of(int key) const { return key + n_q - n_k + behind; }
  // Tiles of BR queries in which some see some of the BC keys from `key` on: from `first_tile` on, behind the last one.
  template <class C>
  __device__ __forceinline__ int first_tile(int key) const {
    return max(first_of(key), 0) / C::BR;
  }
  template <class C>
  __device__ __forceinline__ int end_tile(int key) const {
    return max(tiles_of<C::BR>(min(last_of(min(key + C::BC, n_k) - 1) + 1, n_q)), first_tile<C>(key));
  }
};
// Tiles of queries of all sequences, or of keys: where lengths are not known, as many as there may be.
template <int ROWS>
int all_tiles(const int* cu_seqlens, int batch, int n, int total) {
  return cu_seqlens != nullptr ? total / ROWS + batch : batch * tiles_of<ROWS>(n);
}
__device__ __forceinline__ int begin_of(const int* cu_seqlens, int sequence, int n) {
  return cu_seqlens != nullptr ? ld_global_s32(cu_seqlens + sequence) : sequence * n;
}
// A sequence's first tile in the workspace. Among rows one behind the other, n rows pass n / BR multiples of BR, rounded down or
// up; with one tile more each has as many as it needs, and nobody adds up lengths.
template <class C>
__device__ __forceinline__ int first_tile_of(const ModelGradientParams& p, int sequence) {
  return p.cu_seqlens_q != nullptr ? ld_global_s32(p.cu_seqlens_q + sequence) / C::BR + sequence
                                   : sequence * tiles_of<C::BR>(p.n_q);
}
// Of `count`, which begin in rising order, the last one that begins at `value` or before.
template <class Begin>
__device__ __forceinline__ int last_of(int count, int value, Begin begin) {
  int found = 0;
  for (int behind = count; behind - found > 1;) {
    const int middle = (found + behind) / 2;
    (begin(middle) <= value ? found : behind) = middle;
  }
  return found;
}
__device__ __forceinline__ Sequence* list_of(const ModelGradientParams& p) {
  return static_cast<Sequence*>(p.workspace);
}
// The sum of dQ of a tile and head, and behind it -LSE and -D.
template <class C>
__device__ __forceinline__ float* dQ_sum_of(const ModelGradientParams& p, int tile, int head) {
  return reinterpret_cast<float*>(list_of(p) + p.batch) + (size_t(tile) * p.heads + head) * C::BR * (HEAD_DIM + 2);
}
template <class C>
__device__ __forceinline__ float* rows_of(const ModelGradientParams& p, int tile, int head) {
  return dQ_sum_of<C>(p, tile, head) + C::BR * HEAD_DIM;
}
__device__ __forceinline__ int64_t offset_of(const ModelGradientParams::Strides& strides, int sequence, int head, int row) {
  return sequence * strides.batch + head * strides.head + row * strides.row;
}

// A tile of the workspace: whose it is, its first row in that sequence, or among the rows of all where they lie one behind the other,
// and how many rows there are from there on.
template <class C>
struct Tile {
  int sequence, row, rows;

  __device__ __forceinline__ Tile(const ModelGradientParams& p, int tile) {
    sequence = last_of(p.batch, tile, [&](int other) { return first_tile_of<C>(p, other); });
    const int begin = begin_of(p.cu_seqlens_q, sequence, p.n_q);
    row = (tile - first_tile_of<C>(p, sequence)) * C::BR;
    rows = begin_of(p.cu_seqlens_q, sequence + 1, p.n_q) - begin - row;
    if (p.cu_seqlens_q != nullptr) row += begin;
  }
};

// PLAN  The list: sequences with the longest walks first. A thread looks for a sequence's place among all. Under a mask the longest
//       walks of several heads begin together, of so many that what they walk over, Q, dO and the sum of dQ of one head of queries
//       each, 8 B an element, stays in the L2 cache.
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) plan(ModelGradientParams p) {
  const auto length_of = [](const int* cu_seqlens, int s, int n) {
    return begin_of(cu_seqlens, s + 1, n) - begin_of(cu_seqlens, s, n);
  };
  const auto n_q_of = [&](int s) { return length_of(p.cu_seqlens_q, s, p.n_q); };
  const auto n_k_of = [&](int s) { return length_of(p.cu_seqlens_k, s, p.n_k); };
  const auto walk_of = [&](int s) {  // in tiles, of its first keys
    const Seen seen(p, n_q_of(s), n_k_of(s));
    return seen.end_tile<C>(0) - seen.first_tile<C>(0);
  };
  for (int s = threadIdx.x; s < p.batch; s += ROW_THREADS) {
    const int walk = walk_of(s), n_q = n_q_of(s);
    int place = 0, before = 0, together = 1;
    for (int other = 0; other < p.batch; ++other) {
      const int of_other = walk_of(other);
      if (of_other > walk || (of_other == walk && other < s))
        ++place, before += p.kv_heads * tiles_of<C::BC>(n_k_of(other));
    }
    while (p.causal && p.left < 0 && p.kv_heads % (2 * together) == 0 &&
           2 * together * size_t(n_q) * HEAD_DIM * 8 <= TOGETHER_BYTES)
      together *= 2;
    Sequence* const entry = list_of(p) + place;
    st_global_v4(entry, {uint32_t(s), uint32_t(begin_of(p.cu_seqlens_q, s, p.n_q)), uint32_t(n_q),
                         uint32_t(begin_of(p.cu_seqlens_k, s, p.n_k))});
    st_global_v4(&entry->n_k,
                 {uint32_t(n_k_of(s)), uint32_t(first_tile_of<C>(p, s)), uint32_t(together), uint32_t(before)});
  }
}

// -LSE in units of Q K^T, -D[query] = -dot(dO[query], O[query]), eight lanes a row, and zeros for the sum of dQ. Queries past the end,
// and those that see no key, get -infinity and 0: all their weights are 0, and so is dS.   Grid (tiles of queries, heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) deltas(ModelGradientParams p) {
  const int head = blockIdx.y;
  const Tile<C> tile(p, blockIdx.x);
  if (tile.rows <= 0) return;  // a tile that no sequence has
  float* const sum_of_dQ = dQ_sum_of<C>(p, blockIdx.x, head);
  for (int tile_row = threadIdx.x / 8; tile_row < C::BR; tile_row += ROW_THREADS / 8) {
    const int query = tile.row + min(tile_row, tile.rows - 1);
    const int64_t from = offset_of(p.O_strides, tile.sequence, head, query);
    float sum = 0.0f;
    for (int chunk = threadIdx.x % 8; chunk < ROW_CHUNKS; chunk += 8) {
      const uint4 O = ld_global_v4(p.O + from + chunk * 8), dO = ld_global_v4(p.dO + from + chunk * 8);
      const uint32_t O_pairs[4] = {O.x, O.y, O.z, O.w}, dO_pairs[4] = {dO.x, dO.y, dO.z, dO.w};
      for (int i = 0; i < 8; ++i)
        sum += to_float(bf16{static_cast<uint16_t>(O_pairs[i / 2] >> (i % 2 * 16))}) *
               to_float(bf16{static_cast<uint16_t>(dO_pairs[i / 2] >> (i % 2 * 16))});
    }
    sum += shfl_xor(sum, 1);
    sum += shfl_xor(sum, 2);
    sum += shfl_xor(sum, 4);
    if (threadIdx.x % 8 == 0) {
      // Of 16 queries a lane of a fragment has the columns c, c + 1, c + 8 and c + 9: they lie side by side.
      float* const place = rows_of<C>(p, blockIdx.x, head) + tile_row / 16 * 16 + tile_row % 8 / 2 * 4 +
                           tile_row % 16 / 8 * 2 + tile_row % 2;
      const float LSE = ld_global_f32(p.LSE + offset_of(p.LSE_strides, tile.sequence, head, query));
      const bool sees = tile_row < tile.rows && LSE != -INFINITY;
      st_global_f32(place, sees ? -LSE / p.softmax_scale : -INFINITY);
      st_global_f32(place + C::BR, sees ? -sum : 0.0f);
    }
    for (int column = threadIdx.x % 8 * 4; column < HEAD_DIM; column += 32)
      st_global_v4(sum_of_dQ + tile_row * HEAD_DIM + column, {0, 0, 0, 0});
  }
}

// Where a box of so many rows lies in its map (LAUNCH says what maps those are), from a row of n on, which the sequence has.
template <int ROWS, bool VARLEN>
__device__ __forceinline__ Place place_of(int row, int n, int begin, int head, int sequence) {
  if (!VARLEN) return {row, head, sequence};
  const int valid = min(n - row, ROWS);
  return {ROWS - valid, begin + row + valid, head};
}

// The accumulators of 16 queries by 16 keys begin with a number of each query: two C fragments, of whose columns a lane has two each.
__device__ __forceinline__ void begin_with(float (&left)[4], float (&right)[4], uint4 of_queries) {
  for (int i = 0; i < 4; ++i) {
    left[i] = __uint_as_float(i % 2 == 0 ? of_queries.x : of_queries.y);
    right[i] = __uint_as_float(i % 2 == 0 ? of_queries.z : of_queries.w);
  }
}


// Rows of a warp, as bf16, to shared memory: rows of ROW_BYTES.
// Stores 16 rows of a warp in shared memory, swizzled as the engine swizzles. Lane l addresses row l % 16, chunk l / 16 of four
// 8x8 matrices: rows 0-7 and 8-15, then the next 8 columns, which are two C fragments side by side.
__device__ __forceinline__ void stage_rows(uint32_t smem_rows, const float (&C_frag)[COLUMN_TILES][4], float factor) {
  const uint32_t lane = threadIdx.x % 32, lane_row = smem_rows + lane % 16 * ROW_BYTES;
#pragma unroll
  for (int column_tile = 0; column_tile < COLUMN_TILES; column_tile += 2) {
    uint32_t matrices[4];
    for (int i = 0; i < 4; ++i) {
      const float* const two = &C_frag[column_tile + i / 2][2 * (i % 2)];
      matrices[i] = pack_bf16x2(two[0] * factor, two[1] * factor);
    }
    const uint32_t chunk = column_tile + lane / 16;
    stmatrix_x4(lane_row + (chunk ^ (lane % 8)) * 16, matrices);
  }
}

// How far slices of 16 columns, each an instruction's share, go on: 32 B each, four in a row. dS has rows of 128 keys, as two
// panels of 64, one after the other.
template <int ROWS = 0>
__device__ __forceinline__ uint32_t slices_on(uint32_t slices) {
  return (slices % 4) * 32 + (slices / 4) * ROWS * ROW_BYTES;
}


// Issues products, one for every 16 of the dimension summed over.
template <int ROWS, int K_SLICES, int N_TILES>
__device__ __forceinline__ void issue_columns(float (&D)[N_TILES][4], const uint32_t (&A)[K_SLICES][4], uint64_t B) {
#pragma unroll
  for (int slice = 0; slice < K_SLICES; ++slice)
    wgmma_rs_bf16(D, A[slice], wgmma_advance(B, (slice % 4) * 32 + (slice / 4) * ROWS * 128));
}
template <int K_SLICES, int N_TILES>
__device__ __forceinline__ void issue_rows(float (&D)[N_TILES][4], const uint32_t (&A)[K_SLICES][4], uint64_t B) {
#pragma unroll
  for (int slice = 0; slice < K_SLICES; ++slice)
    wgmma_rs_bf16<true>(D, A[slice], wgmma_advance(B, slice * 16 * 128));
}
// Two C fragments side by side hold exactly the elements of one A fragment: S, or its product with another, as bf16.
template <int TILES, class Of>
__device__ __forceinline__ void pack_weights(uint32_t (&P)[TILES / 2][4], const float (&S)[TILES][4], Of of) {
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
    for (int lane_row = 0; lane_row < 2; ++lane_row)
      P[tile / 2][tile % 2 * 2 + lane_row] = pack_bf16x2(of(tile, 2 * lane_row), of(tile, 2 * lane_row + 1));
  }
}
// All lanes have stored to shared memory what the other side, the copy engine or wgmma, will read.
__device__ __forceinline__ void hand_over(uint32_t barrier) {
  fence_proxy_async_shared();  // it will find what this lane has stored
  __syncwarp();                // safe to hand over: all lanes have stored
  if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
  __syncwarp();  // products take whole warps
}
// The accumulators begin with a number of each query.
template <int TILES>
__device__ __forceinline__ void begin_with(float (&frag)[TILES][4], uint32_t numbers) {
#pragma unroll
  for (int slice = 0; slice < TILES / 2; ++slice)
    begin_with(frag[2 * slice], frag[2 * slice + 1], ld_shared_v4(numbers + (slice * 16 + threadIdx.x % 32 % 4 * 4) * 4));
}

}  // namespace
