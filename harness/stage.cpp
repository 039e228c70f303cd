#include "harness/stage.hpp"

#include <algorithm>

namespace ladder {
namespace {

std::vector<Stage>& registry() {
  static std::vector<Stage> all;
  return all;
}

// All builds describe a variant in the same words, so equal labels are the same variant.
void join(Stage& known, Stage& added) {
  for (Variant& variant : added.variants) {
    const auto same = std::find_if(known.variants.begin(), known.variants.end(),
                                   [&](const Variant& other) { return other.label == variant.label; });
    if (same == known.variants.end()) {
      known.variants.push_back(std::move(variant));
      continue;
    }
    if (variant.on_emulator) same->on_emulator = variant.on_emulator;
    if (variant.on_emulator_zeroed) same->on_emulator_zeroed = variant.on_emulator_zeroed;
    if (variant.on_gpu) same->on_gpu = variant.on_gpu;
    if (variant.gpu_kernel) same->gpu_kernel = variant.gpu_kernel;
  }
}

}  // namespace

const std::vector<Stage>& stages() {
  return registry();
}

const Stage* previous_of(const Stage& stage) {
  const auto& all = registry();
  const auto place = std::find_if(all.begin(), all.end(), [&](const Stage& other) { return other.name == stage.name; });
  return place == all.begin() || place == all.end() ? nullptr : &place[-1];
}

Registration::Registration(Stage stage) {
  auto& all = registry();
  const auto place = std::lower_bound(all.begin(), all.end(), stage.name,
                                      [](const Stage& other, std::string_view name) { return other.name < name; });
  if (place != all.end() && place->name == stage.name) {
    join(*place, stage);
  } else {
    all.insert(place, std::move(stage));
  }
}

Variant make_variant(std::string label, Tile tile, uint32_t smem_bytes, EmulatedLaunch on_emulator, const void*,
                     double conflict_ways, std::function<Counts(const Shape&)> predict, Unset unset) {
  return {.label = std::move(label),
          .tile = tile,
          .smem_bytes = smem_bytes,
          .on_emulator = unset == Unset::pattern ? on_emulator : nullptr,
          .on_emulator_zeroed = unset == Unset::zero ? on_emulator : nullptr,
          .conflict_ways = conflict_ways,
          .predict = std::move(predict)};
}

Variant make_variant(std::string label, Tile tile, uint32_t smem_bytes,
                     void (*on_gpu)(gpu::Device&, const AttentionParams&), const void* kernel, double conflict_ways,
                     std::function<Counts(const Shape&)> predict) {
  return {.label = std::move(label),
          .tile = tile,
          .smem_bytes = smem_bytes,
          .on_gpu = on_gpu,
          .gpu_kernel = kernel,
          .conflict_ways = conflict_ways,
          .predict = std::move(predict)};
}

}  // namespace ladder
