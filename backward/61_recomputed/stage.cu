#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

// Nothing of n x n is written: D, and the gradients.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const uint64_t heads = shape.batch_heads(), n_q = shape.n, n_k = shape.keys();
  return {.gmem_bytes_written = heads * (n_q * 4 + (n_q + 2 * n_k) * HEAD_DIM * 2)};
}

uint64_t workspace_bytes(const ladder::Shape& shape) {
  return uint64_t(shape.batch_heads()) * shape.n * sizeof(float);  // D
}

template <class C>
ladder::Variant variant(ladder::Label label) {
  return ladder::make_variant(
      {.warps = C::WARPS}, 0, run<C>, reinterpret_cast<const void*>(key_gradients<C>), predict<C>,
      {.label = label,
       .config = ladder::type_name<C>(),
       .recorded = true,
       .accepts = {.features = ladder::CAUSAL | ladder::TAILS | ladder::CROSS, .formula = "backward"},
       .workspace_bytes = workspace_bytes});
}

const ladder::Registration registration({
    .name = "61_recomputed",
    .previous = "60_stored",
    .role = ladder::Role::line,
    .more_lines =
        {ladder::MoreLines::rebuilt,
         "Nothing of n x n in memory: five kernels become two walks, which have few lines in common with them."},
    .idea = "The weights again from LSE, and nothing of n x n in memory: one walk over queries for dK and dV, one over "
            "keys for dQ.",
    .limit = "60_stored keeps P and dS: 8 n^2 bytes a head. At batch 16, heads 16, n = 8192 that is 128 GiB.",
    .prediction =
        "15 to 20 TFLOPS on an H200, seven products where 60 has five: a lane has 16 columns of a row in registers, as "
        "in p04_ownrow, which has 16.1. Two loops of about 120 and 100 instructions take four pairs of 1280 "
        "operations: 23 operations an instruction where p04 has 19, and more registers, so fewer warps.",
    .min_sm = 75,
    .needs = "nothing special",
    .resources = {{.sm = 80, .registers = 128, .spill_bytes = 0}, {.sm = 90, .registers = 128, .spill_bytes = 0}},
    .variants = {variant<Config<4>>("16 rows, 4 warps")},
});

}  // namespace
