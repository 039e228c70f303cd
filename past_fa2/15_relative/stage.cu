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
          .shuffles = groups * 2 * 2 * 2,  // two rows, two exchanges: the maxima of the first tile, the sums at the end
          .barriers = blocks,
          .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = blocks * BR * ROW_BYTES};
}

template <int BR, int BC, int WARPS, int PLACES>
ladder::Variant variant(std::string label) {
  ladder::Variant variant = ladder::make_variant(
      std::move(label), {BR, BC, WARPS}, SMEM_BYTES<BR, BC, PLACES>, run<BR, BC, WARPS, PLACES>,
      reinterpret_cast<const void*>(flash_attention<BR, BC, WARPS, PLACES>), 1.0, predict<BR, BC, WARPS, PLACES>);
  variant.shuffles_per_rescale = BR / (16 * WARPS) * 2 * 2;  // a warp's groups, rows and exchanges
  return variant;
}

const ladder::Registration registration({
    .name = "15_relative",
    .previous = "14_ring",
    .idea = "The products begin at minus the old maximum, so scores come out relative to it; a look tells whether one "
            "has outgrown it.",
    .limit = "Between the products each warp finds and exchanges the maxima of its rows, though hardly ever is one of "
             "them new.",
    .prediction = "+5 %: 64 maxima of two, 16 exchanges and the corrections between the two products become 32 maxima "
                  "of three and a vote. Where large scores keep coming, nothing: then all of 14 is done, and the look "
                  "as well.",
    .min_sm = 90,
    .needs = "mma.m16n8k16, TMA, mbarrier, 160 KiB of shared memory",
    .uncounted = {"64", "16", "32"},
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 8, .reason = "O and S alone are 192 registers"}},
    .variants = {variant<256, 64, 8, 3>("256x64, 8 warps"), variant<128, 64, 4, 2>("128x64, 4 warps")},
});

}  // namespace
