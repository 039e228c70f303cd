// d23_neighbours. A row of four bits is 64 bytes, and beside it stands the next head's. Two warps, one of each head,
// fetch both for the same keys: so what a warp asks for are pieces of 128 bytes.
// Before:  d22_smallest asks for 64 B at a time, the other half of which another SM wants at another time.
// Tile:    8x32 for each of 8 warps, two of which share what they fetch; two blocks on an SM. Of an odd number of heads
//          of keys 8x32 alone; 16x32 where there are more rows, and one block.
//          Shared: 102 KiB (a warp 12.75: K, V and their scales 3 x 4.25).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] of 4 bits, the even column lower,
//          or with a table [pages, kv_heads, page_size, d], in any strides; their scales the same without d: f32, none
//          below 0. LSE: [batch, heads, n_q] f32. The workspace as in d02_split.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding_bits.cuh"

namespace {

// 41_rows spells out no_keys, d02_split the join, d04_warps a share, the way through it and its end, d06_pages where
// keys stand, d17_nibbles and d22_smallest how four bits lie in shared memory and what becomes of them, d21_columns the
// end.
namespace bits = decoding::bits;
using bits::ROW_CHUNKS, bits::SCALES_BYTES;
using decoding::HEAD_DIM;
using decoding::Rows;
using decoding::Seen;

// HEADS warps are a team: each has a head, and all the same keys.
template <class T, int BR_, int BC_, int WARPS_, int STAGES_, int HEADS_>
struct Config {
  using Element = T;                                      // of Q and O
  using Wide = Config<T, 16, BC_, WARPS_, STAGES_, 1>;    // for more rows than 8
  using Alone = Config<T, BR_, BC_, WARPS_, STAGES_, 1>;  // for an odd number of heads of keys
  static constexpr int HEADS = HEADS_, TEAMS = WARPS_ / HEADS;
  static constexpr uint32_t ROW_BYTES = HEADS * ROW_CHUNKS * 16;
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, STAGES = STAGES_, THREADS = WARPS * 32;
  static constexpr int PER_SM = 16 / BR;
  static constexpr int STEP = TEAMS * BC;  // keys that a block's teams take at a time, a tile each
  static constexpr uint32_t TILE_BYTES = BC * ROW_BYTES;
  static constexpr uint32_t STAGE_BYTES = 2 * TILE_BYTES + HEADS * BC * SCALES_BYTES;  // K; V, and heads' scales
  // At its end a warp leaves there what it has found: rows of O in f32, which 16 B more keep in different banks, and
  // the rows' maxima and sums.
  static constexpr uint32_t PART_ROW_BYTES = HEAD_DIM * 4 + 16, PART_BYTES = BR * (PART_ROW_BYTES + 8);
  static constexpr uint32_t SMEM_BYTES = TEAMS * STAGES * STAGE_BYTES;
  static_assert(WARPS * PART_BYTES <= SMEM_BYTES && (BR == 8 || BR == 16) && BC % 16 == 0 && BC <= 32);
  static_assert(HEADS == 1 || HEADS == 2);

  // Byte offset of a chunk within a tile: two rows of a head are a pass over the banks, in which two heads' stand
  // apart.
  __device__ __forceinline__ static uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
    return row * ROW_BYTES + (chunk ^ (row / 2 % 4) ^ (HEADS == 2 ? row % 2 * 4 : 0)) * 16;
  }
};

// LOAD  Four lanes copy a row of a head, and four those of the next one, of a tensor whose strides are in bytes: of a
//       team's rows each warp some. What is behind the last key, or d, is zeros.
template <class C, class Keys>
__device__ __forceinline__ void load_tile(uint32_t tile, const uint8_t* from, const ForwardParams::Strides& strides,
                                          const Keys& keys, int first_key, int d) {
  constexpr int CHUNKS = C::HEADS * ROW_CHUNKS, ROWS = C::BC / C::HEADS;
  const uint32_t lane = threadIdx.x % 32, lane_row = lane / CHUNKS, lane_chunk = lane % CHUNKS;
  const int end = int(lane % ROW_CHUNKS * 32) < d ? keys.n_k : 0;
#pragma unroll
  for (int row = 0; row < ROWS; row += 32 / CHUNKS) {
    const int of_tile = threadIdx.x / 32 % C::HEADS * ROWS + row + lane_row;
    cp_async_16(tile + C::chunk_offset(of_tile, lane_chunk),
                from + keys.offset(strides, {first_key + of_tile, of_tile}), first_key + of_tile < end ? 16 : 0);
  }
}
template <class C, class Keys>
__device__ __forceinline__ void attend(const TokenScaleParams& p, Keys keys, int shares) {
  constexpr int BC = C::BC, HEADS = C::HEADS, TEAMS = C::TEAMS;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, team = warp / HEADS, of_team = warp % HEADS;
  const uint32_t smem_K = smem_base() + team * C::STAGES * C::STAGE_BYTES, smem_V = smem_K + C::TILE_BYTES;
  smem_name(smem_base(), C::SMEM_BYTES, "K and V", C::ROW_BYTES);
  const Rows rows = Rows::of_block<C>(p, shares);
  const Seen seen(p, p.n_q, keys.n_k);
  auto share = decoding::BlockShare::of<C>(rows, seen, shares);
  share.kv_head = blockIdx.y * HEADS + of_team, share.rows.first_head = share.kv_head * rows.group;
  const auto whole = decoding::Whole::of<C>(rows, seen);
  const int sequence = share.sequence;

  // LOAD  As in d04, but of the team's heads.
  const ForwardParams::Strides K_strides = bits::in_bytes(p.K_strides), V_strides = bits::in_bytes(p.V_strides);
  const auto source = [&](const void* tensor, const ForwardParams::Strides& strides) {
    return static_cast<const uint8_t*>(tensor) + keys.begin(strides, sequence) +
           (blockIdx.y * HEADS + lane / ROW_CHUNKS % HEADS) * strides.head + lane % ROW_CHUNKS * 16;
  };
  const uint8_t *const K = source(p.K, K_strides), *const V = source(p.V, V_strides);
  const int64_t scales = keys.begin(p.scale_strides, sequence) + share.kv_head * p.scale_strides.head;
  const auto load = [&](uint32_t stage, int first_key) {
    load_tile<C>(smem_K + stage, K, K_strides, keys, first_key, p.d);
    load_tile<C>(smem_V + stage, V, V_strides, keys, first_key, p.d);
    bits::load_scales<C>(smem_V + C::TILE_BYTES + of_team * BC * SCALES_BYTES + stage, p, scales, keys, first_key);
  };
  bits::SmallestRows<C> mine;
  const auto begin = [&] { mine.load_Q(p, share.rows, sequence); };
  // Whom a team waits for: its lanes, and the other warp's.
  const auto are_there = [&] { HEADS == 1 ? __syncwarp() : named_barrier_sync(1 + team, HEADS * 32); };
  // QK       A tile is multiplied as in d22, by each warp for its own head:
  // SOFTMAX  scores, weights
  // PV       and what they make of V.
  const auto multiply = [&](uint32_t stage, int first_key, bool) {
    mine.multiply(smem_K + stage, seen, first_key, whole.template cuts<C>(first_key));
  };
  decoding::walk_share<C>(share, team, keys, load, begin, multiply, are_there);

  // STORE  As in d04, by the warps of a head. Of 32 columns of a row a lane has four that stand side by side.
  __syncthreads();  // safe to overwrite K and V: all warps have read their last ones
  bits::store_columns<C>(mine, warp, lane);
  __syncthreads();  // safe to read what the other warps have found
  decoding::leave_rows<C, TEAMS>(p, share, team, [&](int of_teams) { return of_teams * HEADS + of_team; });
}

template <class C, bool IN_PAGES>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) flash_attention(TokenScaleParams p, int shares) {
  griddepcontrol_launch_dependents();  // safe: who joins waits until this launch is over
  const int n_k = decoding::keys_of(p, blockIdx.z);
  if constexpr (IN_PAGES) {
    attend<C>(p, decoding::LanePages(p, blockIdx.z, n_k), shares);
  } else {
    attend<C>(p, decoding::InOnePiece{n_k}, shares);
  }
}

// LAUNCH  As in d06, but of C::HEADS heads of keys a block.
template <class C>
void start(Device& device, const TokenScaleParams& p) {
  decoding::start_shares<C, C::HEADS>(device, p, [&](dim3 grid, int shares) {
    launch(device, p.block_table != nullptr ? flash_attention<C, true> : flash_attention<C, false>, grid,
           dim3(C::THREADS), C::SMEM_BYTES, p, shares);
  });
}

template <class C>
void run(Device& device, const TokenScaleParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  if (decoding::rows_per_kv_head(p) > C::BR) return start<typename C::Wide>(device, p);
  p.kv_heads % C::HEADS == 0 ? start<C>(device, p) : start<typename C::Alone>(device, p);
}

}  // namespace
