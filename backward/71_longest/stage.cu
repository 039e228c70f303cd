#include "harness/stages/backward.hpp"
#include "harness/stages/walk.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Launched& shape) {
  constexpr uint64_t EACH = 2 * D_SLICES + 2 * C::BR / 16 + C::BC / 16;
  const ladder::backward::Products<C, HEAD_DIM> products(shape);
  // Under a mask the heads whose longest walks begin together, then those of the next heads.
  const uint64_t heads = shape.batch_heads(), side = shape.n / C::BC;
  uint64_t together = 1;
  while (shape.causal && heads % (2 * together) == 0 && 2 * together * shape.n * HEAD_DIM * 8 <= TOGETHER_BYTES)
    together *= 2;
  ladder::BusiestSm sm(shape.multiprocessors);
  for (uint64_t block = 0; block < products.blocks; ++block) {
    const uint64_t key_tile = block / together % side;
    sm.block(2 * (shape.causal ? side - key_tile : side) * C::BC / C::BR * EACH);
  }
  ladder::Counts counts = products.counts();
  counts.products_of_busiest_sm = sm.most;
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::plain(std::move(rest), ladder::backward::sum_bytes<HEAD_DIM + 2>);
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "71_longest",
    .previous = "70_store",
    .role = ladder::Role::branch,
    .idea = "Under a mask the longest walks begin first, those of several heads at a time.",
    .limit = "In 70_store the blocks of a head come in a row, so the last heads' longest blocks begin when most SMs "
             "have little left to do.",
    .prediction = "1.03 to 1.06 times 70, causal at n = 4096, batch 4. Counted by a list of 132 SMs, of which the one "
                  "with least to do takes the next block: by heads the last SM ends after 580 tiles' time, with eight "
                  "heads' blocks by length after 544, and 543 is the mean. The kernels before and behind, a tenth of "
                  "the time, stay. At n = 1024 1.02 to 1.05; dense no change.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
