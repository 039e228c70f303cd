#include "harness/stage.hpp"
#include "kernel.cuh"

namespace {

// All rows of all heads as [panel][row][column of the panel]; one copy takes ROWS rows of both panels.
template <int ROWS>
TensorMap tile_map(Device& device, const f16* tensor, const AttentionParams& p) {
  const uint64_t rows = uint64_t(p.batch_heads) * p.n;
  return tensor_map_3d(device, tensor, {PANEL_COLS, rows, PANELS}, {ROW_BYTES, PANEL_ROW_BYTES},
                       {PANEL_COLS, ROWS, PANELS});
}

template <int BR, int BC, int WARPS, int PLACES>
void run(Device& device, const AttentionParams& p) {
  launch(device, flash_attention<BR, BC, WARPS, PLACES>, dim3(p.n / BR, p.batch_heads), dim3(WARPS * 32),
         SMEM_BYTES<BR, BC, PLACES>, p, tile_map<BR>(device, p.Q, p), tile_map<BC>(device, p.K, p),
         tile_map<BC>(device, p.V, p));
}

// Warp instructions are counted per 16-row group of queries and tile of BC keys, a pair.
template <int BR, int BC, int WARPS, int PLACES>
ladder::Counts predict(const ladder::Shape& shape) {
  const uint64_t groups = shape.batch_heads() * shape.n / 16, pairs = groups * (shape.n / BC);
  const uint64_t blocks = shape.batch_heads() * shape.n / BR, tiles = blocks * (shape.n / BC);
  const uint64_t warp_tiles = tiles * WARPS;  // K and V are read once per warp, whatever its M_TILES
  const uint64_t load_Q = HEAD_DIM / 16, load_K = (BC / 16) * (HEAD_DIM / 16), load_V = (BC / 16) * (HEAD_DIM / 16);
  return {.mma = pairs * 2 * (BC / 8) * (HEAD_DIM / 16),
          .ldmatrix = pairs * load_Q + warp_tiles * (load_K + load_V),
          .shuffles = pairs * 2 * 2 + groups * 2 * 2,  // two rows, two exchanges: a maximum per tile, a sum at the end
          .barriers = blocks,
          .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = blocks * BR * ROW_BYTES};
}

template <int BR, int BC, int WARPS, int PLACES>
ladder::Variant variant(std::string label) {
  return ladder::make_variant(std::move(label), {BR, BC, WARPS}, SMEM_BYTES<BR, BC, PLACES>, run<BR, BC, WARPS, PLACES>,
                              reinterpret_cast<const void*>(flash_attention<BR, BC, WARPS, PLACES>), 1.0,
                              predict<BR, BC, WARPS, PLACES>);
}

const ladder::Registration registration({
    .name = "14_ring",
    .previous = "13_tma",
    .idea = "Three places for K and V, and the loop unrolled once around them: in the code every place is a constant.",
    .limit = "A tile is requested when the one before it has been read by all: who is late lets the others wait.",
    .prediction = "+1 %: nobody waits for the slowest warp of the tile before, and addresses and parities need no "
                  "arithmetic. More at short n, where the first tiles are asked for together.",
    .min_sm = 90,
    .needs = "mma.m16n8k16, TMA, mbarrier, 160 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 20, .reason = "O and S alone are 192 registers"}},
    .variants = {variant<256, 64, 8, 3>("256x64, 8 warps"), variant<256, 64, 8, 4>("256x64, 8 warps, 4 places"),
                 variant<256, 64, 8, 2>("256x64, 8 warps, 2 places"), variant<128, 64, 4, 2>("128x64, 4 warps")},
});

}  // namespace
