#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

// Products are a strip's and a tile of keys. Of one head a pair has four strips, and of each of two heads the same two.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const bool has_twins = spec.causal && spec.heads / spec.key_heads() % 2 == 0;
  const ladder::Forward pairs(spec, C::BR, C::BC, has_twins ? 1 : 2, spec.causal && !has_twins);
  const ladder::Strips strips(spec, has_twins ? 2 : 4, C::BC, 1, true);
  const uint64_t blocks = has_twins ? ladder::min<uint64_t>(pairs.queries, spec.multiprocessors / 2 * 2) : pairs.blocks;
  return {.wgmma = strips.tiles * (C::COLUMNS / 16 + C::BC / 16),
          .wgmma_left_running = (strips.tiles - strips.count) * (C::BC / 16),
          .yes_votes = ladder::NONE,
          .barriers = 2 * blocks + strips.count};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<typename C::Element>(std::move(rest), ladder::MODELS | ladder::SINK, C::COLUMNS,
                                                      C::COLUMNS < HEAD_DIM ? 8 : 104);
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "98_alternate",
    .previous = "95_strips",
    .role = ladder::Role::lost,
    .idea = "A block's two warpgroups have the longer of its strips by turns.",
    .limit =
        "In each pair of blocks it is the second warpgroup that walks over a tile of keys more, always, and the first "
        "one runs ahead of it by two stages at most.",
    .prediction =
        "In turns, on an H200, over 95 in bf16, causal, 16 heads of both and 16384 tokens in all: 1.05 at n = "
        "512, 1.035 at 1024, 1.02 at 2048, 1.01 at 4096, within 2 %. By 56's count, 2085 clocks a tile of keys "
        "and 5150 a seam, half a tile less is 1.10, 1.07, 1.04 and 1.02; and half of that is left, for who is "
        "ahead waits at the ring. Dense, and with twins, 95's rate, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"}),
                 variant<Config<bf16, 128, 128, 8, 2, 96>>({.label = "d <= 96"}),
                 variant<Config<f16, 128, 128, 8, 2, 96>>({.label = "f16, d <= 96"})},
});

}  // namespace
