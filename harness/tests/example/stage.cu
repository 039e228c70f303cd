#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

struct Params {
  ClassifyParams kernel;
  int batch_heads;
};

void convert(const ladder::Arguments& arguments, Params& params) {
  const ladder::Spec& spec = arguments.spec;
  params = {{static_cast<const bf16*>(arguments.at("X")),
             static_cast<const bf16*>(arguments.at("W")),
             static_cast<bf16*>(arguments.at("Y")),
             static_cast<float*>(arguments.at("L")),
             spec.heads,
             spec.n,
             spec.d,
             {},
             {}},
            int(spec.batch_heads())};
  for (int i = 0; i < 3; ++i) {
    params.kernel.X_strides[i] = arguments.find("X")->strides[i];
    params.kernel.Y_strides[i] = arguments.find("Y")->strides[i];
  }
}

template <bool WRONG>
void start(Device& device, const Params& params) {
  run<WRONG>(device, params.kernel, params.batch_heads);
}

ladder::Counts predict(const ladder::Spec& spec) {
  const uint64_t rows = spec.batch_heads() * spec.n;
  return {.exponentials = rows * CLASSES,
          .gmem_accesses = rows * (spec.d * (1 + CLASSES) + 2 * CLASSES),
          .gmem_bytes_read = rows * spec.d * 2 * (1 + CLASSES),
          .gmem_bytes_written = rows * CLASSES * (2 + 4)};
}

template <bool WRONG>
ladder::Variant variant() {
  return ladder::make_variant({}, 0, start<WRONG>, reinterpret_cast<const void*>(classify<WRONG>), predict,
                              {.label = WRONG ? "one class too high" : "a thread a row",
                               .accepts = {.features = ladder::STRIDES,
                                           .min_d = 1,
                                           .max_d = 256,
                                           .q = ladder::Element::bf16,
                                           .kv = ladder::Element::bf16,
                                           .o = ladder::Element::bf16,
                                           .formula = "classify"}});
}

const ladder::Registration right({.name = "90_classify",
                                  .role = ladder::Role::line,
                                  .idea = "A thread a row.",
                                  .limit = "Nothing comes before it.",
                                  .prediction = "None.",
                                  .min_sm = 75,
                                  .needs = "nothing special",
                                  .variants = {variant<false>()}});
const ladder::Registration wrong(
    {.name = "91_wrong",
     .previous = "90_classify",
     .role = ladder::Role::lost,
     .idea = "One class of every second head is one per cent too high, and a gap is written.",
     .limit = "It was right.",
     .prediction = "None.",
     .min_sm = 75,
     .needs = "nothing special",
     .variants = {variant<true>()}});

}  // namespace
