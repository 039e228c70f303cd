#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const ladder::backward::Products<C, HEAD_DIM> products(shape);
  ladder::Counts counts = products.counts();
  counts.wgmma_under_fences = products.tiles * C::WARPS * 32 * 2 * (C::BR / 16);  // dV, under dS; dK, under dQ
  // K, V; dK, dV; Q, dO, LSE and D; dQ twice
  counts.bulk_copies = (2 + 2 * C::WARPS) * products.blocks + 5 * products.tiles;
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::plain(std::move(rest), ladder::backward::sum_bytes<HEAD_DIM + 2>);
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "70_store",
    .previous = "69_behind",
    .role = ladder::Role::branch,
    .idea = "dK and dV leave through shared memory, and the copy engine writes them.",
    .limit =
        "At a block's end 69_behind writes dK and dV from registers, 4 bytes a lane, and nothing multiplies meanwhile.",
    .prediction = "1.03 to 1.07 times 69, dense at n = 1024. A block's 512 instructions that write eight half sectors "
                  "each take 8 clocks of a path that all warps share, or 15 as 64's reductions did: 4000 to 8000 "
                  "clocks, where a block's 16 tiles take 58000. Through shared memory it is 1500. At n = 4096 a block "
                  "has four times as many tiles: 1.01 to 1.02, and causal twice that.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
