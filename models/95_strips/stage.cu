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
    .name = "95_strips",
    .previous = "56_twins",
    .role = ladder::Role::lost,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "What a warpgroup is told is its own, and every place that asks for it says whose it wants."},
    .idea = "Under a mask a pair of tiles of queries is four strips: one block takes the outer two, the other the "
            "inner two.",
    .limit = "Heads with keys of their own have no twins: one block of a pair waits for a tile of keys, and both "
             "warpgroups of a block end a tile of queries at the same time.",
    .prediction =
        "In turns, on an H200, over 56 in bf16, causal, 16 heads of both and 16384 tokens in all: 1.09 at n = "
        "512, 1.06 at 1024, 1.04 at 2048, 1.02 at 4096, within 2 %; beside FlashAttention-3 1.01 at 1024, "
        "within 2 %. A pair is half a tile of keys shorter, of three at 512 and five at 1024: by 56's count, "
        "2085 clocks a tile and 4000 a seam, 1.11 and 1.08. That the warpgroups end apart hides some 700 "
        "clocks of a seam, and a clock that falls takes half of it all. Dense, and with twins, 56's rate, "
        "within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"}),
                 variant<Config<bf16, 128, 128, 8, 2, 96>>({.label = "d <= 96"}),
                 variant<Config<f16, 128, 128, 8, 2, 96>>({.label = "f16, d <= 96"})},
});

}  // namespace
