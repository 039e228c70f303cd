#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const ladder::backward::Products<C, HEAD_DIM> products(shape);
  // Tiles that are copied for blocks; what a block does not compute with it passes by.
  uint64_t copied = 0;
  const int64_t side = shape.n / C::BC;
  for (int64_t first = 0; first < side; first += C::BLOCKS)
    copied += uint64_t(shape.batch_heads()) * C::BLOCKS * C::BC / C::BR * (shape.causal ? side - first : side);
  ladder::Counts counts = products.counts(
      products.pairs * (C::BR / 16 + C::BC / 16) + (products.pairs - 2 * products.blocks) * D_SLICES, 0);  // dV, dQ; S
  counts.multicast_bytes = copied * C::BLOCKS * C::Q_BYTES;
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::plain(std::move(rest), ladder::backward::sum_bytes<HEAD_DIM + 2>);
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "67_pair",
    .previous = "66_ahead",
    .role = ladder::Role::lost,
    .more_lines = {ladder::MoreLines::is_new, "Clusters: copies into both blocks, and barriers that count two."},
    .idea = "Two blocks with neighbouring keys walk over the same queries, and each brings half of a tile to both.",
    .limit = "Every block of 66_ahead copies all queries for itself, beside the dQ that goes back to the same L2.",
    .prediction = "1.01 to 1.06 times 66, dense at n = 4096. A tile takes 16 KiB from L2 for each block in place of "
                  "32, and 32 KiB go there as before. In hopper/30_cluster the same brought 4 to 5 %, most of it by "
                  "power. Causal at n = 1024 it loses: the second block of a pair passes two tiles of 16, 12, 8 or 4.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
