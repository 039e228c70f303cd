#include "harness/stage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ranges>

namespace ladder {
namespace {

struct OnGpu {
  std::string rung, label;
  GpuLaunch run;
  const void* kernel;
};

struct Registry {
  std::vector<Rung> rungs;
  std::vector<OnGpu> on_gpu;  // until the rungs are asked for: static objects are made in any order
  bool ordered = true;
};

Registry& registry() {
  static Registry only;
  return only;
}

// All builds describe a variant in the same words, so equal labels are the same variant.
void join(Rung& known, Rung& added) {
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

// The tree of rungs, in which each one hangs below its previous.
class Tree {
 public:
  explicit Tree(std::vector<Rung> rungs) : rungs_(std::move(rungs)) {
    std::ranges::sort(rungs_, {}, &Rung::name);
    for (Rung& rung : rungs_) {
      const bool known = std::ranges::find(rungs_, rung.previous, &Rung::name) != rungs_.end();
      below_[known ? rung.previous : std::string_view()].push_back(&rung);
    }
  }

  // Depth first, the deepest branch last. Rungs in a circle hang below nothing, and come behind all others.
  std::vector<Rung> in_order() {
    append_below({});
    for (Rung& rung : rungs_) {
      if (!rung.name.empty()) append(rung);
    }
    return std::move(ordered_);
  }

 private:
  size_t depth(const Rung& rung) const {
    size_t deepest = 0;
    if (const auto below = below_.find(rung.name); below != below_.end()) {
      for (const Rung* next : below->second) deepest = std::max(deepest, depth(*next));
    }
    return deepest + 1;
  }

  void append_below(std::string_view name) {
    const auto below = below_.find(name);
    if (below == below_.end()) return;
    std::ranges::stable_sort(below->second, {}, [&](const Rung* rung) { return depth(*rung); });
    for (Rung* rung : below->second) {
      const std::string_view its_name = rung->name;
      append(*rung);
      append_below(its_name);
    }
  }

  void append(Rung& rung) {
    ordered_.push_back(std::move(rung));
    rung.name = {};
  }

  std::vector<Rung> rungs_, ordered_;
  std::map<std::string_view, std::vector<Rung*>> below_;
};

// Where the build found it; a rung of a test's is nowhere.
std::string directory_of(std::string_view rung) {
  for (const auto part : std::views::split(std::string_view(LADDER_STAGE_DIRECTORIES), ',')) {
    const std::string_view directory(part.begin(), part.end());
    if (directory.substr(directory.rfind('/') + 1) == rung) return std::string(directory);
  }
  return std::string(rung);
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

void convert(const Arguments& arguments, ForwardParams& params) {
  const Spec& spec = arguments.spec;
  const auto strides = [&](const char* name) {
    const int64_t(&of)[3] = arguments.find(name)->strides;
    return ForwardParams::Strides{of[0], of[1], of[2]};
  };
  params = {.Q = static_cast<const bf16*>(arguments.at("Q")),
            .K = static_cast<const bf16*>(arguments.at("K")),
            .V = static_cast<const bf16*>(arguments.at("V")),
            .O = static_cast<bf16*>(arguments.at("O")),
            .LSE = static_cast<float*>(arguments.at("LSE")),
            .Q_strides = strides("Q"),
            .K_strides = strides("K"),
            .V_strides = strides("V"),
            .O_strides = strides("O"),
            .batch = spec.batch,
            .heads = spec.heads,
            .kv_heads = spec.key_heads(),
            .n_q = spec.n,
            .n_k = spec.keys(),
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

void register_on_gpu(const char* rung, const char* label, const Tile& tile, const GpuStart& run, const void* kernel) {
  registry().on_gpu.push_back({rung, *label ? label : label_of(tile), run, kernel});
}

const std::vector<Rung>& rungs() {
  Registry& known = registry();
  for (const OnGpu& half : known.on_gpu) {
    for (Rung& rung : known.rungs) {
      if (rung.name != half.rung) continue;
      const auto variant = std::ranges::find(rung.variants, half.label, &Variant::label);
      if (variant == rung.variants.end()) continue;
      variant->on_gpu = half.run;
      variant->gpu_kernel = half.kernel;
    }
  }
  known.on_gpu.clear();
  if (!known.ordered) known.rungs = Tree(std::move(known.rungs)).in_order();
  known.ordered = true;
  return known.rungs;
}

const Rung* previous_of(const Rung& rung) {
  const auto found = std::ranges::find(rungs(), rung.previous, &Rung::name);
  return found == rungs().end() ? nullptr : &*found;
}

void forget_variants(const Rung& rung) {
  const auto known = std::ranges::find(registry().rungs, rung.name, &Rung::name);
  if (known != registry().rungs.end()) known->variants.clear();
}

Registration::Registration(Rung rung) {
  Registry& known = registry();
  const auto same = std::ranges::find(known.rungs, rung.name, &Rung::name);
  if (same != known.rungs.end()) {
    join(*same, rung);
    return;
  }
  rung.directory = directory_of(rung.name);
  known.rungs.push_back(std::move(rung));
  known.ordered = false;
}

Variant make_variant(Tile tile, uint32_t smem_bytes, EmulatedLaunch run, const void*,
                     std::function<Counts(const Shape&)> predict, Variant rest, Unset unset) {
  Variant variant = complete(std::move(rest), tile, smem_bytes, std::move(predict));
  (unset == Unset::pattern ? variant.on_emulator : variant.on_emulator_zeroed) = run;
  return variant;
}

}  // namespace ladder
