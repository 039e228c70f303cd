#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

// Under a mask blocks work alone, and otherwise in pairs. A turn is a barrier of a warpgroup for each tile of keys but
// the first, and a block's last one is nobody's.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const ladder::Forward walks(spec, C::BR, C::BC, spec.causal ? 1 : C::BLOCKS, spec.causal, 1, true);
  ladder::Counts counts = ladder::models::products<C>(C::COLUMNS, walks, spec.causal ? 1 : 2);
  counts.barriers += (walks.tiles - walks.queries) * C::WARPS / 4 + walks.blocks;
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<typename C::Element>(std::move(rest), ladder::MODELS | ladder::SINK, C::COLUMNS,
                                                      C::COLUMNS < HEAD_DIM ? 8 : 104);
  rest.dense_tiles = C::COLUMNS < HEAD_DIM ? 0 : 1024;  // of 2048 m07 is faster, of 512 slower; of 96 columns, too
  rest.few_keys = 4096;                                 // of 16384 a pair of blocks that brings them once is faster
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "m08_inturns",
    .previous = "m07_wary",
    .role = ladder::Role::branch,
    .idea = "The two warpgroups start their products by turns, and O is scaled outside of a turn.",
    .limit = "In m07_wary an exponential takes a careful warp 16 clocks where it could take 8, by samples of its "
             "instructions on peaky inputs: both warpgroups make theirs at the same time, and share the "
             "special-function units. A tile's softmax takes 1480 clocks, and the products that could hide it 1024.",
    .prediction = "In turns, on an H200, bf16, 16 heads, over m07: on peaky inputs, causal, 1.10 at n = 8192 and 1.06 "
                  "at n = 1024, dense 1.03 at 8192, within 4 %: by turns exponentials take half as long, and a tile's "
                  "softmax 1000 clocks. On normal inputs 0.99, causal, at n = 1024 and 8192, within 1.5 %: there the "
                  "warpgroups find their turns by themselves, and a barrier is two instructions. Over FlashAttention-3 "
                  "on peaky inputs 1.01, 0.96 and 1.01, within 4 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"}),
                 variant<Config<bf16, 128, 128, 8, 2, 96>>({.label = "d <= 96"}),
                 variant<Config<f16, 128, 128, 8, 2, 96>>({.label = "f16, d <= 96"})},
});

}  // namespace
