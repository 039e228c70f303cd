#include "harness/stage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

namespace ladder {
namespace {

struct Registry {
  std::vector<Stage> stages;
  bool ordered = true;
};

Registry& registry() {
  static Registry only;
  return only;
}

// All builds describe a variant in the same words, so equal labels are the same variant.
void join(Stage& known, Stage& added) {
  for (Variant& variant : added.variants) {
    const auto same = std::ranges::find(known.variants, variant.label, &Variant::label);
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

// The tree of stages, in which each one hangs below its previous.
class Tree {
 public:
  explicit Tree(std::vector<Stage> stages) : stages_(std::move(stages)) {
    std::ranges::sort(stages_, {}, &Stage::name);
    for (Stage& stage : stages_) {
      const bool known = std::ranges::find(stages_, stage.previous, &Stage::name) != stages_.end();
      below_[known ? stage.previous : std::string_view()].push_back(&stage);
    }
  }

  // Depth first, the deepest branch last. Stages in a circle hang below nothing, and come behind all others.
  std::vector<Stage> in_order() {
    append_below({});
    for (Stage& stage : stages_) {
      if (!stage.name.empty()) append(stage);
    }
    return std::move(ordered_);
  }

 private:
  size_t depth(const Stage& stage) const {
    size_t deepest = 0;
    if (const auto below = below_.find(stage.name); below != below_.end()) {
      for (const Stage* next : below->second) deepest = std::max(deepest, depth(*next));
    }
    return deepest + 1;
  }

  void append_below(std::string_view name) {
    const auto below = below_.find(name);
    if (below == below_.end()) return;
    std::ranges::stable_sort(below->second, {}, [&](const Stage* stage) { return depth(*stage); });
    for (Stage* stage : below->second) {
      const std::string_view its_name = stage->name;
      append(*stage);
      append_below(its_name);
    }
  }

  void append(Stage& stage) {
    ordered_.push_back(std::move(stage));
    stage.name = {};
  }

  std::vector<Stage> stages_, ordered_;
  std::map<std::string_view, std::vector<Stage*>> below_;
};

std::string label_of(const Tile& tile) {
  return fmt::format("{}x{}, {} warp{}", tile.br, tile.bc, tile.warps, tile.warps == 1 ? "" : "s");
}

Variant complete(Variant rest, Tile tile, uint32_t smem_bytes, std::function<Counts(const Shape&)> predict) {
  if (rest.label.empty()) rest.label = label_of(tile);
  rest.tile = tile;
  rest.smem_bytes = smem_bytes;
  rest.predict = std::move(predict);
  return rest;
}

}  // namespace

void convert(const Arguments& arguments, AttentionParams& params) {
  const Shape& shape = arguments.shape;
  params = {.Q = static_cast<const f16*>(arguments.at("Q")),
            .K = static_cast<const f16*>(arguments.at("K")),
            .V = static_cast<const f16*>(arguments.at("V")),
            .O = static_cast<f16*>(arguments.at("O")),
            .LSE = static_cast<float*>(arguments.at("LSE")),
            .workspace = arguments.workspace,
            .batch_heads = static_cast<int>(shape.batch_heads()),
            .n = shape.n,
            .d = shape.d,
            .softmax_scale = shape.scale(),
            .causal = shape.causal};
}

const std::vector<Stage>& stages() {
  Registry& known = registry();
  if (!known.ordered) known.stages = Tree(std::move(known.stages)).in_order();
  known.ordered = true;
  return known.stages;
}

const Stage* previous_of(const Stage& stage) {
  const auto found = std::ranges::find(stages(), stage.previous, &Stage::name);
  return found == stages().end() ? nullptr : &*found;
}

void forget_variants(const Stage& stage) {
  const auto known = std::ranges::find(registry().stages, stage.name, &Stage::name);
  if (known != registry().stages.end()) known->variants.clear();
}

Registration::Registration(Stage stage, std::string_view file) {
  Registry& known = registry();
  const auto same = std::ranges::find(known.stages, stage.name, &Stage::name);
  if (same != known.stages.end()) {
    join(*same, stage);
    return;
  }
  const auto directory = std::filesystem::path(file).parent_path();
  stage.directory = std::filesystem::relative(directory, LADDER_SOURCE_DIR).generic_string();
  if (stage.directory.starts_with("..")) stage.directory = stage.name;  // a changed copy, compiled elsewhere
  known.stages.push_back(std::move(stage));
  known.ordered = false;
}

Variant make_variant(Tile tile, uint32_t smem_bytes, EmulatedLaunch run, const void*,
                     std::function<Counts(const Shape&)> predict, Variant rest, Unset unset) {
  Variant variant = complete(std::move(rest), tile, smem_bytes, std::move(predict));
  (unset == Unset::pattern ? variant.on_emulator : variant.on_emulator_zeroed) = run;
  return variant;
}

Variant make_variant(Tile tile, uint32_t smem_bytes, GpuLaunch run, const void* kernel,
                     std::function<Counts(const Shape&)> predict, Variant rest) {
  Variant variant = complete(std::move(rest), tile, smem_bytes, std::move(predict));
  variant.on_gpu = run;
  variant.gpu_kernel = kernel;
  return variant;
}

}  // namespace ladder
