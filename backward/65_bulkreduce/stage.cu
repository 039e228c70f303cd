#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const ladder::backward::Products<C, HEAD_DIM> products(shape);
  ladder::Counts counts = products.counts(products.pairs * (D_SLICES + C::BR / 16 + C::BC / 16),  // dP; dV; dQ
                                          products.blocks + products.tiles);
  counts.bulk_copies = 2 * products.blocks + 5 * products.tiles;  // K, V; Q, dO, LSE and D; dQ twice
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::plain(std::move(rest), ladder::backward::sum_bytes<HEAD_DIM + 2>);
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "65_bulkreduce",
    .previous = "64_warpgroups",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::retold, "Besides its idea, parts that it says and 64 spells out."},
    .idea = "dQ goes through shared memory in the order of the registers, and a warp has the copy engine add it to the "
            "sum, 16 KiB at a time.",
    .limit = "Each lane of 64_warpgroups adds its 32 elements of dQ by itself, by instructions that touch eight half "
             "sectors.",
    .prediction =
        "1.2 to 1.5 times 64, dense at n = 4096. 256 instructions of a tile, of eight clocks each in a path that the "
        "warpgroups share, become 64 stores of 16 bytes a lane and two requests, and nobody who multiplies waits for "
        "the sums. At n = 1024 1.1 to 1.4: there a fifth of the time goes into the kernels before and behind.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
