// harness/stage.hpp as nvcc sees it: the same words, of which all but the way to start a kernel are dropped.
#pragma once
#include <initializer_list>

#include "harness/stage_words.hpp"

namespace ladder {
inline namespace gpu_half {  // its types are others than those of the same names in the other half

using Label = const char*;
using Predict = Counts (*)(const Shape&);

struct Variant {
  Label label = "", config = "";
  Tile tile = {};
  uint32_t smem_bytes = 0, smem_bytes_per_key = 0;
  GpuStart on_gpu = {};
  const void* gpu_kernel = nullptr;
  double conflict_ways = 0;
  uint64_t shuffles_per_rescale = 0;
  Accepts accepts = {};
  bool writes_lse = false;
  uint64_t (*workspace_bytes)(const Shape&) = nullptr;
  bool stores_scores = false;
};

struct Rung {
  const char *name, *previous = "", *idea = "", *limit = "", *prediction = "";
  int min_sm = 80, max_sm = 0;
  const char* needs = "";
  std::initializer_list<ResourceBound> resources = {};
  std::initializer_list<Variant> variants = {};
};

struct Registration {
  explicit Registration(const Rung& rung) {
    for (const Variant& variant : rung.variants) {
      register_on_gpu(rung.name, variant.label, variant.tile, variant.on_gpu, variant.gpu_kernel);
    }
  }
};

template <class Params>
Variant make_variant(Tile tile, uint32_t, void (*run)(gpu::Device&, const Params&), const void* kernel, Predict,
                     Variant rest = {}) {
  rest.tile = tile;
  rest.on_gpu = GpuStart(run);
  rest.gpu_kernel = kernel;
  return rest;
}

template <class Config, class Params, class... Args>
Variant make_variant(void (*run)(gpu::Device&, const Params&), void (*kernel)(Args...), Predict predict,
                     Variant rest = {}) {
  return make_variant({Config::BR, Config::BC, Config::WARPS}, Config::SMEM_BYTES, run,
                      reinterpret_cast<const void*>(kernel), predict, rest);
}

template <class>
Label type_name() {
  return "";
}

}  // namespace gpu_half
}  // namespace ladder
