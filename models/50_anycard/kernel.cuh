// 50_anycard: all that models ask for, with mma.sync and cp.async alone, for every GPU from sm_80 on.
// Before:  48 needs a Hopper card. 09 runs on every one, and solves a problem that no model has.
//          The kernel is told anew, in 09's loop.
// Tile:    128x64, 4 warps, M_TILES = 2.  Shared: 64 KiB (Q 32, K 16, V 16), or half of that where d <= 64.
//          Where d > 128: 64x64, M_TILES = 1, 96 KiB, which every card from sm_80 on has.
//          Needs rows that begin at multiples of 16 B, d <= 256, heads % kv_heads == 0.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] of that type, in any strides.
//          LSE: [batch, heads, n_q] f32. Or Q, O: [total_q, heads, d]; K, V: [total_k, kv_heads, d];
//          LSE: [heads, total_q]; with cu_seqlens, [batch + 1] each.
//          alibi_slopes, sinks: [heads] f32, or null.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr float LOG2E = 1.44269504088896341f;
constexpr float RESCALE_ABOVE = 8.0f;       // log2 units: no weight exceeds 2^8
constexpr float NO_KEY = -0x1.fffffep127f;  // a row's maximum before its first key; in log2 units, as all maxima
// A maximum beyond HUGE_SCORE is rounded by as much as a weight may be off. Scores of such a row are taken from its
// largest one before they are scaled, and its maximum is LOSES: so low that each tile loses the bet and is looked at.
constexpr float HUGE_SCORE = 0x1p24f, LOSES = -RESCALE_ABOVE - 1;

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <class Element_, int HEAD_DIM_, int BR_, int BC_, int WARPS_>
struct Config {
  using Element = Element_;
  static constexpr int HEAD_DIM = HEAD_DIM_, BR = BR_, BC = BC_, WARPS = WARPS_, THREADS = WARPS * 32;
  static constexpr int ROW_BYTES = HEAD_DIM * 2, ROW_CHUNKS = ROW_BYTES / 16;  // 16 B = 8 elements: a row of ldmatrix
  static constexpr int ROWS_PER_PASS = THREADS / ROW_CHUNKS;                   // of a copy by all threads, a chunk each
  static constexpr uint32_t SMEM_BYTES = (BR + 2 * BC) * ROW_BYTES;
  static_assert(ROW_BYTES % 128 == 0, "eight chunks of a row are all 32 banks");
  static_assert(ROWS_PER_PASS % 4 == 0, "a pass begins where the swizzle does, or in its middle");
  static_assert(BR % ROWS_PER_PASS == 0 && BC % ROWS_PER_PASS == 0, "a tile is copied in whole passes");

  // Byte offset of a chunk within a tile. XOR with the row puts the same chunk of eight consecutive rows in eight
  // different bank groups. It is its own inverse: writers and readers agree.
  __device__ __forceinline__ static uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
    return row * ROW_BYTES + (chunk ^ (row % 8)) * 16;
  }
};

// What becomes of a score before the softmax: O = softmax(scale * function(Q K^T)) V. `distance`: how far a key lies
// before the query's own, negative behind it. `slope`: the head's of p.alibi_slopes, over scale. A reader's own
// function is one `if` more.
template <bool CAPPED, bool SLOPED>
struct Score {
  static constexpr bool CHANGES = CAPPED || SLOPED;  // or else it costs nothing
  float scale, inner;

  __device__ __forceinline__ explicit Score(const ScoreParams& p)
      : scale(CAPPED ? p.softcap : p.softmax_scale), inner(CAPPED ? p.softmax_scale / p.softcap : 1) {}
  __device__ __forceinline__ float operator()(float score, float distance, float slope) const {
    if (CAPPED) score = tanh_approx(score * inner);  // softcap * tanh(score / softcap), but for the factor
    if (SLOPED) score -= slope * fabsf(distance);    // ALiBi
    return score;
  }
};

// A sequence, and which of its keys a query sees: query i is the one of key i + n_k - n_q, and sees a window around
// that.
struct Sequence {
  int index;  // its place in a batch; 0 where sequences lie one behind the other, at these rows:
  int64_t q_begin, k_begin;
  int n_q, n_k, left, right;

  __device__ __forceinline__ Sequence(const ScoreParams& p, int of_batch)
      : index(of_batch), q_begin(0), k_begin(0), n_q(p.n_q), n_k(p.n_k) {
    if (p.cu_seqlens_q != nullptr) {
      index = 0;
      q_begin = ld_global_s32(p.cu_seqlens_q + of_batch), n_q = ld_global_s32(p.cu_seqlens_q + of_batch + 1) - q_begin;
      k_begin = ld_global_s32(p.cu_seqlens_k + of_batch), n_k = ld_global_s32(p.cu_seqlens_k + of_batch + 1) - k_begin;
    }
    left = p.left < 0 ? n_k : min(p.left, n_k);  // as many as there are, where it has no such side
    right = p.causal ? 0 : p.right < 0 ? n_q : min(p.right, n_q);
  }
  __device__ __forceinline__ int first_of(int query) const { return max(query + n_k - n_q - left, 0); }
  __device__ __forceinline__ int end_of(int query) const { return min(query + 1 + n_k - n_q + right, n_k); }
};

// Starts to copy a tile of ROWS rows. Both addresses are those of this thread's chunk in the first pass, and `stride`
// is that of rows, in elements. The tensor has `rows` of them, of d elements; what lies behind is nobody's, and becomes
// zeros: a weight of 0 times a NaN would be one.
template <class C, int ROWS>
__device__ __forceinline__ void load_tile(uint32_t thread_tile, const typename C::Element* thread_source,
                                          int64_t stride, int rows, int d) {
  const int thread_row = threadIdx.x / C::ROW_CHUNKS;
  const bool is_column = int(threadIdx.x % C::ROW_CHUNKS * 8) < d;
#pragma unroll
  for (int first_row = 0; first_row < ROWS; first_row += C::ROWS_PER_PASS)
    cp_async_16((thread_tile ^ (first_row % 8 * 16)) + first_row * C::ROW_BYTES, thread_source + first_row * stride,
                is_column && first_row + thread_row < rows ? 16 : 0);
}

// Two blocks fit on an SM, and saying so lets the compiler use all 255 registers of a thread.
template <class C, class Function>
__global__ void __launch_bounds__(C::THREADS, 2) flash_attention(ScoreParams p) {
  using Element = typename C::Element;
  constexpr int HEAD_DIM = C::HEAD_DIM, ROW_BYTES = C::ROW_BYTES, ROW_CHUNKS = C::ROW_CHUNKS;
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  constexpr int M_TILES = BR / (16 * WARPS);                      // 16-row groups of queries per warp
  constexpr int QK_N_TILES = BC / 8, QK_K_TILES = HEAD_DIM / 16;  // S[16 x BC] = Q[16 x d] K^T[d x BC]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;  // O[16 x d] += P[16 x BC] V[BC x d]
  static_assert(BR == 16 * WARPS * M_TILES, "each warp owns whole 16-row groups");
  static_assert(BC % 16 == 0, "K is read 16 keys at a time");

  // Blocks start by their numbers, a head's last queries first: under a mask they see the most keys.
  const int head = blockIdx.y, first_query = (gridDim.x - 1 - blockIdx.x) * BR;
  const Sequence sequence(p, blockIdx.z);
  if (first_query >= sequence.n_q) return;  // the grid is for the longest one
  const int last_query = min(first_query + BR, sequence.n_q) - 1;
  // Tiles of keys that some of the queries see, and those that all do.
  const int begin = sequence.first_of(first_query) / BC, end = (max(sequence.end_of(last_query), 0) + BC - 1) / BC;
  const int whole_begin = (sequence.first_of(last_query) + BC - 1) / BC;
  const int whole_end = max(sequence.end_of(first_query), 0) / BC;

  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int thread_row = threadIdx.x / ROW_CHUNKS, thread_column = threadIdx.x % ROW_CHUNKS * 8;
  // This thread's chunk of a row; copies go on from there in passes.
  const auto chunk_of = [&](const void* tensor, const ForwardParams::Strides& strides, int of_head, int64_t row) {
    return static_cast<const Element*>(tensor) + sequence.index * strides.batch + of_head * strides.head +
           (row + thread_row) * strides.row + thread_column;
  };
  const int kv_head = head / (p.heads / p.kv_heads);
  const Element* K = chunk_of(p.K, p.K_strides, kv_head, sequence.k_begin + begin * BC);
  const Element* V = chunk_of(p.V, p.V_strides, kv_head, sequence.k_begin + begin * BC);
  const uint32_t smem_Q = smem_base(), smem_K = smem_Q + BR * ROW_BYTES, smem_V = smem_K + BC * ROW_BYTES;
  smem_name(smem_Q, BR * ROW_BYTES, "Q", ROW_BYTES);
  smem_name(smem_K, BC * ROW_BYTES, "K", ROW_BYTES);
  smem_name(smem_V, BC * ROW_BYTES, "V", ROW_BYTES);
  const uint32_t thread_chunk = C::chunk_offset(thread_row, threadIdx.x % ROW_CHUNKS);
  // Where this lane's first ldmatrix of a tile points. It is chunk 0 or 1 of its row before the swizzle, so moving on
  // by an even number of chunks is an XOR.
  const uint32_t lane_Q = smem_Q + warp * M_TILES * 16 * ROW_BYTES + C::chunk_offset(lane % 16, lane / 16);
  const uint32_t lane_K = smem_K + C::chunk_offset(lane % 8 + (lane / 16) * 8, (lane / 8) % 2);
  const uint32_t lane_V = smem_V + C::chunk_offset(lane % 16, lane / 16);
  const int lane_query = first_query + warp * M_TILES * 16 + FragmentC::row(lane, 0);  // its first; others 8, 16, 24 on

  const Function function(p);
  const float scale_log2 = function.scale * LOG2E;  // exp(s * scale) = 2^(s * scale_log2)
  const float slope =
      Function::CHANGES && p.alibi_slopes != nullptr ? ld_global_f32(p.alibi_slopes + head) / function.scale : 0;
  // A sink is a score that is there before all others, and belongs to no key. One of a row's four lanes counts its
  // weight, 1.
  const float sink = p.sinks == nullptr ? NO_KEY : fmaxf(ld_global_f32(p.sinks + head) * LOG2E, NO_KEY);
  volatile float above[M_TILES][2] = {};  // a huge row's largest score, in units of S. In memory: registers are scarce
  float O_frag[M_TILES][PV_N_TILES][4] = {};  // FragmentC: registers 0, 1 belong to one row, 2, 3 to the row 8 below
  float row_max[M_TILES][2], row_sum[M_TILES][2];  // [group][lane_row]: a lane has a share of two rows per group
  for (int group = 0; group < M_TILES; ++group) {
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      row_max[group][lane_row] = sink;
      row_sum[group][lane_row] = lane % 4 == 0 && sink > NO_KEY;
    }
  }

  if (begin < end) {
    load_tile<C, BR>(smem_Q + thread_chunk, chunk_of(p.Q, p.Q_strides, head, sequence.q_begin + first_query),
                     p.Q_strides.row, sequence.n_q - first_query, p.d);
    load_tile<C, BC>(smem_K + thread_chunk, K, p.K_strides.row, sequence.n_k - begin * BC, p.d);
    cp_async_commit();
  }

  for (int tile = begin; tile < end; ++tile) {
    // LOAD  K[tile] was requested one iteration ago; V[tile] is requested now and needed only after the softmax.
    cp_async_wait<0>();  // this thread's part of K[tile] (and of Q) has landed
    __syncthreads();     // safe to read K: everybody's part has landed; safe to overwrite V: every warp has finished PV
    load_tile<C, BC>(smem_V + thread_chunk, V, p.V_strides.row, sequence.n_k - tile * BC, p.d);
    cp_async_commit();
    V += BC * p.V_strides.row;

    // QK  Lane l addresses row l % 16, chunk l / 16 of a 16x16 block of Q: four 8x8 matrices, rows 0-7 and 8-15, then
    //     the next 8 columns. Of K it addresses row l % 8 + (l / 16) * 8, chunk (l / 8) % 2: the same four matrices,
    //     but first both column halves of keys 0-7 (registers 0 and 1, one B fragment), then those of keys 8-15.
    float S_frag[M_TILES][QK_N_TILES][4] = {};
#pragma unroll
    for (int d_slice = 0; d_slice < QK_K_TILES; ++d_slice) {
      uint32_t Q_frag[M_TILES][4];
      for (int group = 0; group < M_TILES; ++group)
        ldmatrix_x4(Q_frag[group], (lane_Q ^ (d_slice * 32)) + group * 16 * ROW_BYTES);
      for (int key_tile = 0; key_tile < QK_N_TILES; key_tile += 2) {
        uint32_t K_frag[4];
        ldmatrix_x4(K_frag, (lane_K ^ (d_slice * 32)) + key_tile * 8 * ROW_BYTES);
        for (int group = 0; group < M_TILES; ++group) {
          mma<Element>(S_frag[group][key_tile], Q_frag[group], K_frag[0], K_frag[1]);
          mma<Element>(S_frag[group][key_tile + 1], Q_frag[group], K_frag[2], K_frag[3]);
        }
      }
    }

    // First the function, then the mask: a cap would make a score of minus infinity.
    const auto for_scores =
        [&](auto change) {  // of (score, group, lane_row, key), the key counted from the lane's first
#pragma unroll
          for (int group = 0; group < M_TILES; ++group) {
            for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
              for (int i = 0; i < 4; ++i)
                change(S_frag[group][key_tile][i], group, i / 2, key_tile * 8 + FragmentC::col(0, i));
            }
          }
        };
    const int lane_key = tile * BC + FragmentC::col(lane, 0);
    if constexpr (Function::CHANGES) {
      const int distance = lane_query + sequence.n_k - sequence.n_q - lane_key;
      for_scores([&](float& score, int group, int lane_row, int key) {
        score = function(score, float(distance + group * 16 + lane_row * 8 - key), slope);
      });
    }
    if (tile < whole_begin || tile >= whole_end) {
      for_scores([&](float& score, int group, int lane_row, int key) {
        const int query = min(lane_query + group * 16 + lane_row * 8, last_query);  // behind it nobody looks
        if (lane_key + key < sequence.first_of(query) || lane_key + key >= sequence.end_of(query)) score = -INFINITY;
      });
    }

    // SOFTMAX  Has a score outgrown its row's maximum? Only then is it looked for, by two exchanges between the four
    //          lanes that share a row. Positive floats are ordered as their bits are, and negative ones are below 0: an
    //          integer maximum, and newer cards have one of three operands. A row before its first key says yes.
    bool rescale = false;
#pragma unroll
    for (int group = 0; group < M_TILES; ++group) {
      for (int lane_row = 0; lane_row < 2; ++lane_row) {
        int largest = 0;
        for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
          const float low = S_frag[group][key_tile][2 * lane_row], high = S_frag[group][key_tile][2 * lane_row + 1];
          largest = max3_s32(largest, __float_as_int(low), __float_as_int(high));
        }
        rescale |= __int_as_float(largest) * scale_log2 > row_max[group][lane_row] + RESCALE_ABOVE;
      }
    }
    if (vote_any(rescale)) {  // by the whole warp or not at all: an exchange needs its lanes together
#pragma unroll
      for (int group = 0; group < M_TILES; ++group) {
        for (int lane_row = 0; lane_row < 2; ++lane_row) {
          float tile_max = -INFINITY;
          for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
            const float low = S_frag[group][key_tile][2 * lane_row], high = S_frag[group][key_tile][2 * lane_row + 1];
            tile_max = fmaxf(tile_max, fmaxf(low, high));
          }
          tile_max = quad_max(tile_max);

          float new_max = fmaxf(row_max[group][lane_row], tile_max * scale_log2);
          float growth = new_max - row_max[group][lane_row], shift = 0;
          const float before = above[group][lane_row];
          if (before != 0 || (growth > 0 && fabsf(new_max) > HUGE_SCORE)) {
            shift = before != 0 ? fmaxf(before, tile_max) : tile_max;
            growth = (shift - before) * scale_log2 - (row_max[group][lane_row] - LOSES);
            above[group][lane_row] = shift;
            new_max = LOSES;
          }
          for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
            S_frag[group][key_tile][2 * lane_row] -= shift;
            S_frag[group][key_tile][2 * lane_row + 1] -= shift;
          }
          row_max[group][lane_row] = new_max;
          const float correction = ex2_approx(-growth);  // 1 where nothing has grown
          row_sum[group][lane_row] *= correction;
          for (int column_tile = 0; column_tile < PV_N_TILES; ++column_tile) {
            O_frag[group][column_tile][2 * lane_row] *= correction;
            O_frag[group][column_tile][2 * lane_row + 1] *= correction;
          }
        }
      }
    }

    // LOAD  V[tile] is needed now; K[tile + 1] is requested and arrives while PV runs.
    cp_async_wait<0>();  // this thread's part of V[tile] has landed
    __syncthreads();     // safe to read V: everybody's part has landed; safe to overwrite K: every warp has finished QK
    K += BC * p.K_strides.row;
    if (tile + 1 < end)
      load_tile<C, BC>(smem_K + thread_chunk, K, p.K_strides.row, sequence.n_k - (tile + 1) * BC, p.d);
    cp_async_commit();

    // PV  16 keys at a time, their weights first. Two C fragments side by side hold exactly the elements of one A
    //     fragment: P needs no exchange, only rounding. V's rows are the k dimension of B, so ldmatrix transposes each
    //     8x8 matrix on its way into the registers. Transposed, matrices 0 and 1 are the fragment of columns 0-7, 2 and
    //     3 of 8-15.
    for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice) {
      uint32_t P_frag[M_TILES][4];
      for (int group = 0; group < M_TILES; ++group) {
        for (int reg = 0; reg < 4; ++reg) {  // registers 0 and 1: keys 0-7 of the two rows; 2 and 3: keys 8-15
          const int key_tile = 2 * key_slice + reg / 2, lane_row = reg % 2;
          const float low = ex2_approx(S_frag[group][key_tile][2 * lane_row] * scale_log2 - row_max[group][lane_row]);
          const float high =
              ex2_approx(S_frag[group][key_tile][2 * lane_row + 1] * scale_log2 - row_max[group][lane_row]);
          row_sum[group][lane_row] += low + high;
          P_frag[group][reg] = pack<Element>(low, high);
        }
      }
#pragma unroll
      for (int column_tile = 0; column_tile < PV_N_TILES; column_tile += 2) {
        uint32_t V_frag[4];
        ldmatrix_x4_trans(V_frag, (lane_V ^ (column_tile * 16)) + key_slice * 16 * ROW_BYTES);
        for (int group = 0; group < M_TILES; ++group) {
          mma<Element>(O_frag[group][column_tile], P_frag[group], V_frag[0], V_frag[1]);
          mma<Element>(O_frag[group][column_tile + 1], P_frag[group], V_frag[2], V_frag[3]);
        }
      }
    }
  }

  // STORE  Two exchanges complete a row's sum. Q is not needed any more, and each warp writes its rows of O over its
  //        rows of Q, swizzled like them. Then the lanes of a row write it, 16 B each.
  __syncwarp();  // safe to overwrite Q: all lanes have read it for the last time
  int64_t LSE_row = (int64_t(sequence.index) * p.heads + head) * p.n_q;
  if (p.cu_seqlens_q != nullptr) LSE_row = int64_t(head) * ld_global_s32(p.cu_seqlens_q + p.batch) + sequence.q_begin;
#pragma unroll
  for (int group = 0; group < M_TILES; ++group) {
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      row_sum[group][lane_row] = quad_sum(row_sum[group][lane_row]);
      const int row = group * 16 + lane_row * 8, query = lane_query + row;
      const bool has_keys = sequence.first_of(query) < sequence.end_of(query);  // or else O is 0, whatever V holds
      const float normalise = 1.0f / row_sum[group][lane_row];
      const uint32_t O_row = smem_Q + C::chunk_offset(query - first_query, 0) + lane % 4 * 4;
      for (int column_tile = 0; column_tile < PV_N_TILES; ++column_tile) {
        const float low = O_frag[group][column_tile][2 * lane_row] * normalise;
        const float high = O_frag[group][column_tile][2 * lane_row + 1] * normalise;
        st_shared_b32(O_row ^ (column_tile * 16), has_keys ? pack<Element>(low, high) : 0);
      }
      if (p.LSE != nullptr && lane % 4 == 0 && query < sequence.n_q)  // log(0) is -infinity
        st_global_f32(p.LSE + LSE_row + query, above[group][lane_row] * function.scale +
                                                   row_max[group][lane_row] / LOG2E + logf(row_sum[group][lane_row]));
    }
  }
  __syncwarp();  // safe to read O: all lanes have stored their part of the warp's rows
  Element* const O =
      static_cast<Element*>(p.O) + sequence.index * p.O_strides.batch + head * p.O_strides.head + lane % ROW_CHUNKS * 8;
#pragma unroll
  for (int first_row = 0; first_row < M_TILES * 16; first_row += 32 / ROW_CHUNKS) {
    const int row = warp * M_TILES * 16 + first_row + lane / ROW_CHUNKS, query = first_query + row;
    if (query < sequence.n_q && int(lane % ROW_CHUNKS * 8) < p.d)
      st_global_v4(O + (sequence.q_begin + query) * p.O_strides.row,
                   ld_shared_v4(smem_Q + C::chunk_offset(row, lane % ROW_CHUNKS)));
  }
}

// LAUNCH  One block per BR queries of a head. The pointers of `p` belong to the device and are multiples of 16 B, as
//         are strides.
template <class C, class Function>
void start(Device& device, const ScoreParams& p) {
  launch(device, flash_attention<C, Function>, dim3((p.n_q + C::BR - 1) / C::BR, p.heads, p.batch), dim3(C::THREADS),
         C::SMEM_BYTES, p);
}

template <class C>
void run(Device& device, const ScoreParams& p) {
  if (p.softcap > 0) {
    p.alibi_slopes ? start<C, Score<true, true>>(device, p) : start<C, Score<true, false>>(device, p);
  } else {
    p.alibi_slopes ? start<C, Score<false, true>>(device, p) : start<C, Score<false, false>>(device, p);
  }
}

}  // namespace
