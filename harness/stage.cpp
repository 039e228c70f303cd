#include "harness/stage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ranges>

namespace ladder {
namespace {

struct OnGpu {
  std::string stage, label;
  GpuLaunch run;
  const void* kernel;
};

struct Registry {
  std::vector<Stage> stages;
  std::vector<OnGpu> on_gpu;  // until the stages are asked for: static objects are made in any order
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

// Where the build found it; a stage of a test's is nowhere.
std::string directory_of(std::string_view stage) {
  for (const auto part : std::views::split(std::string_view(LADDER_STAGE_DIRECTORIES), ',')) {
    const std::string_view directory(part.begin(), part.end());
    if (directory.substr(directory.rfind('/') + 1) == stage) return std::string(directory);
  }
  return std::string(stage);
}

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
  const Spec& spec = arguments.spec;
  params = {.Q = static_cast<const f16*>(arguments.at("Q")),
            .K = static_cast<const f16*>(arguments.at("K")),
            .V = static_cast<const f16*>(arguments.at("V")),
            .O = static_cast<f16*>(arguments.at("O")),
            .LSE = static_cast<float*>(arguments.at("LSE")),
            .workspace = arguments.workspace,
            .batch_heads = static_cast<int>(spec.batch_heads()),
            .n = spec.n,
            .d = spec.d,
            .softmax_scale = spec.scale(),
            .causal = spec.causal};
}

template <>
Start<gpu::Device>::Start(const GpuStart& half)
    : bind_([half](const Arguments& arguments) {
        struct Params {
          alignas(std::max_align_t) std::byte bytes[GpuStart::PARAMS_BYTES] = {};
        } params;
        half.bind(arguments, params.bytes);
        return [half, params](gpu::Device& device) { half.start(half.run, device, params.bytes); };
      }) {}

void register_on_gpu(const char* stage, const char* label, const Tile& tile, const GpuStart& run, const void* kernel) {
  registry().on_gpu.push_back({stage, *label ? label : label_of(tile), run, kernel});
}

const std::vector<Stage>& stages() {
  Registry& known = registry();
  for (const OnGpu& half : known.on_gpu) {
    for (Stage& stage : known.stages) {
      if (stage.name != half.stage) continue;
      const auto variant = std::ranges::find(stage.variants, half.label, &Variant::label);
      if (variant == stage.variants.end()) continue;
      variant->on_gpu = half.run;
      variant->gpu_kernel = half.kernel;
    }
  }
  known.on_gpu.clear();
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

Registration::Registration(Stage stage) {
  Registry& known = registry();
  const auto same = std::ranges::find(known.stages, stage.name, &Stage::name);
  if (same != known.stages.end()) {
    join(*same, stage);
    return;
  }
  stage.directory = directory_of(stage.name);
  known.stages.push_back(std::move(stage));
  known.ordered = false;
}

Variant make_variant(Tile tile, uint32_t smem_bytes, EmulatedLaunch run, const void*,
                     std::function<Counts(const Shape&)> predict, Variant rest, Unset unset) {
  Variant variant = complete(std::move(rest), tile, smem_bytes, std::move(predict));
  (unset == Unset::pattern ? variant.on_emulator : variant.on_emulator_zeroed) = run;
  return variant;
}

}  // namespace ladder
