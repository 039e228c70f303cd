#include "harness/stages/rung.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <ranges>
#include <utility>

namespace ladder {
namespace {

// A variant's start in another build than the one whose words stand.
struct OtherHalf {
  std::string rung, label;
  Build build;
  KernelStart start;
  const void* kernel;
};

struct Registry {
  std::vector<Rung> rungs;
  std::vector<OtherHalf> waiting;  // for their rung's words: static objects are made in any order
  bool ordered = true;
};

Registry& registry() {
  static Registry only;
  return only;
}

// All builds describe a variant in the same words, so equal labels are the same variant.
bool join(const OtherHalf& half) {
  for (Rung& rung : registry().rungs) {
    if (rung.name != half.rung) continue;
    const auto variant = std::ranges::find(rung.variants, half.label, &Variant::label);
    if (variant == rung.variants.end()) continue;
    if (half.build == Build::zero) {
      variant->on_emulator_zeroed = EmulatedLaunch(half.start);
    } else if (half.build == Build::fused) {
      variant->on_emulator_fused = EmulatedLaunch(half.start);
    } else {
      variant->on_gpu = GpuLaunch(half.start);
      variant->gpu_kernel = half.kernel;
    }
    return true;
  }
  return false;
}

Word formula_of(const Rung& rung) {
  return rung.variants.empty() ? Accepts{}.formula : rung.variants.front().accepts.formula;
}

// The tree of rungs, in which each one hangs below its previous, depth first, the deepest branch last, and behind it whatever
// answers another problem than the rung it starts from. Rungs in a circle hang below nothing, and come behind all others.
std::vector<Rung> in_order(std::vector<Rung> rungs) {
  std::ranges::sort(rungs, {}, &Rung::name);
  std::map<std::string_view, std::vector<const Rung*>> below;
  for (const Rung& rung : rungs) {
    const bool known = std::ranges::find(rungs, rung.previous, &Rung::name) != rungs.end();
    below[known ? rung.previous : std::string_view()].push_back(&rung);
  }
  const std::function<size_t(const Rung*)> depth = [&](const Rung* rung) {
    size_t deepest = 0;
    for (const Rung* next : below[rung->name]) deepest = std::max(deepest, depth(next));
    return deepest + 1;
  };
  std::vector<Rung> ordered;
  const std::function<void(std::string_view, Word)> append_below = [&](std::string_view name, Word formula) {
    std::vector<const Rung*>& next = below[name];
    std::ranges::stable_sort(next, {},
                             [&](const Rung* rung) { return std::pair(formula_of(*rung) != formula, depth(rung)); });
    for (const Rung* rung : next) {
      ordered.push_back(*rung);
      append_below(rung->name, formula_of(*rung));
    }
  };
  append_below({}, Accepts{}.formula);
  std::ranges::copy_if(rungs, std::back_inserter(ordered), [&](const Rung& rung) {
    return std::ranges::find(ordered, rung.name, &Rung::name) == ordered.end();
  });
  return ordered;
}

// Where the build found it; a rung of a test's is nowhere.
std::string directory_of(std::string_view rung) {
  for (const auto part : std::views::split(std::string_view(LADDER_STAGE_DIRECTORIES), ',')) {
    const std::string_view directory(part.begin(), part.end());
    if (directory.substr(directory.rfind('/') + 1) == rung) return std::string(directory);
  }
  return std::string(rung);
}

// Its own, or one of its tile.
std::string label_of(const told::Variant& variant) {
  const auto& [br, bc, warps] = variant.tile;
  return *variant.label ? variant.label : fmt::format("{}x{}, {} warp{}", br, bc, warps, warps == 1 ? "" : "s");
}

// "Config<64, 128, 4>" of what type_name gives, without the namespaces around it.
std::string type_in(std::string_view signature) {
  const size_t begin = signature.find("Type = ");
  if (begin == std::string_view::npos) return {};
  const std::string_view type = signature.substr(begin + 7, signature.find_first_of(";]", begin) - begin - 7);
  const size_t scope = type.substr(0, type.find('<')).rfind("::");
  return std::string(type.substr(scope == std::string_view::npos ? 0 : scope + 2));
}

std::function<Counts(const Launched&)> function_of(const told::Predict& predict) {
  if (!predict) return {};
  return predict;
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
  params = {.Q = arguments.at("Q"),
            .K = arguments.at("K"),
            .V = arguments.at("V"),
            .O = arguments.at("O"),
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
            .causal = spec.causal,
            .d = spec.d};
}

void convert(const Arguments& arguments, ModelParams& params) {
  const Spec& spec = arguments.spec;
  convert(arguments, static_cast<ForwardParams&>(params));
  // Of a window that ends beyond all keys the same is seen, and in no kernel a sum with its end leaves an int.
  params.left = min(spec.left, spec.keys());
  params.right = spec.causal ? 0 : min(spec.right, spec.n);
  params.cu_seqlens_q = static_cast<const int*>(arguments.at("cu_seqlens_q"));
  params.cu_seqlens_k = static_cast<const int*>(arguments.at("cu_seqlens_k"));
  params.workspace = arguments.workspace;
}

void convert(const Arguments& arguments, CacheParams& params) {
  const Spec& spec = arguments.spec;
  convert(arguments, static_cast<ModelParams&>(params));
  params.cache_seqlens = static_cast<const int*>(arguments.at("cache_seqlens"));
  params.block_table = static_cast<const int*>(arguments.at("block_table"));
  params.page_size = max(spec.page, 1);
  params.most_pages = (spec.keys() + params.page_size - 1) / params.page_size;
}

void convert(const Arguments& arguments, ByteParams& params) {
  convert(arguments, static_cast<CacheParams&>(params));
  params.K_scales = static_cast<const float*>(arguments.at("K_scales"));
  params.V_scales = static_cast<const float*>(arguments.at("V_scales"));
  const int64_t(&strides)[3] = arguments.find("K_scales")->strides;
  params.scale_strides = {strides[0], strides[1]};
}

void convert(const Arguments& arguments, TokenScaleParams& params) {
  convert(arguments, static_cast<CacheParams&>(params));
  params.K_scales = static_cast<const float*>(arguments.at("K_scales"));
  params.V_scales = static_cast<const float*>(arguments.at("V_scales"));
  const int64_t(&strides)[3] = arguments.find("K_scales")->strides;
  params.scale_strides = {strides[0], strides[1], strides[2]};
}

void convert(const Arguments& arguments, ByteInputParams& params) {
  convert(arguments, static_cast<ModelParams&>(params));
  const auto scales = [&](const char* name) {
    const Arguments::Tensor* const of = arguments.find(name);
    return ByteInputParams::Scales{static_cast<const float*>(of->data), of->strides[0], of->strides[1]};
  };
  params.Q_scales = scales("Q_scales"), params.K_scales = scales("K_scales"), params.V_scales = scales("V_scales");
}

void convert(const Arguments& arguments, RowScaleParams& params) {
  convert(arguments, static_cast<ModelParams&>(params));
  const auto scales = [&](const char* name) {
    const Arguments::Tensor* const of = arguments.find(name);
    return RowScaleParams::Scales{static_cast<const float*>(of->data), of->strides[0], of->strides[1]};
  };
  params.Q_scales = scales("Q_scales"), params.K_scales = scales("K_scales");
}

namespace {

void convert_functions(const Arguments& arguments, auto& params) {
  params.softcap = arguments.spec.softcap;
  params.alibi_slopes = static_cast<const float*>(arguments.at("slopes"));
  params.sinks = static_cast<const float*>(arguments.at("sinks"));
}

}  // namespace

void convert(const Arguments& arguments, ScoreParams& params) {
  convert(arguments, static_cast<ModelParams&>(params));
  convert_functions(arguments, params);
}

void convert(const Arguments& arguments, CacheScoreParams& params) {
  convert(arguments, static_cast<CacheParams&>(params));
  convert_functions(arguments, params);
}

void convert(const Arguments& arguments, IntervalParams& params) {
  convert(arguments, static_cast<ScoreParams&>(params));
  params.first = static_cast<const int*>(arguments.at("first"));
  params.end = static_cast<const int*>(arguments.at("end"));
}

void convert(const Arguments& arguments, BlockParams& params) {
  const Spec& spec = arguments.spec;
  convert(arguments, static_cast<ScoreParams&>(params));
  const Arguments::Tensor* const lists = arguments.find("lists");
  params.lists = static_cast<const int*>(arguments.at("lists"));
  params.counts = static_cast<const int*>(arguments.at("counts"));
  params.order = static_cast<const int*>(arguments.at("order"));
  params.stencils = static_cast<const uint32_t*>(arguments.at("stencils"));
  params.block_keys = spec.blocks.keys;
  if (lists == nullptr) return;
  const auto& [sequences, heads, tiles] = lists->strides;
  params.most_blocks = static_cast<int>(tiles / 2);
  params.of_sequence = static_cast<int>(sequences / tiles);
  params.of_head = static_cast<int>(heads / tiles);
}

void convert(const Arguments& arguments, GradientParams& params) {
  const Spec& spec = arguments.spec;
  params = {.Q = static_cast<const f16*>(arguments.at("Q")),
            .K = static_cast<const f16*>(arguments.at("K")),
            .V = static_cast<const f16*>(arguments.at("V")),
            .O = static_cast<const f16*>(arguments.at("O")),
            .dO = static_cast<const f16*>(arguments.at("dO")),
            .LSE = static_cast<const float*>(arguments.at("LSE")),
            .dQ = static_cast<f16*>(arguments.at("dQ")),
            .dK = static_cast<f16*>(arguments.at("dK")),
            .dV = static_cast<f16*>(arguments.at("dV")),
            .workspace = arguments.workspace,
            .batch_heads = static_cast<int>(spec.batch_heads()),
            .n_q = spec.n,
            .n_k = spec.keys(),
            .d = spec.d,
            .softmax_scale = spec.scale(),
            .causal = spec.causal};
}

void convert(const Arguments& arguments, ModelGradientParams& params) {
  const Spec& spec = arguments.spec;
  const bool varlen = spec.lens_q.count > 0;  // all sequences one behind the other: none is a step of the batch away
  const auto strides = [&](const char* name) {
    const int64_t(&of)[3] = arguments.find(name)->strides;
    return ModelGradientParams::Strides{varlen ? 0 : of[0], of[1], of[2]};
  };
  const auto total = [&](const Lengths& lengths, int n) {
    return varlen ? lengths.before(lengths.count) : spec.batch * n;
  };
  params = {.Q = arguments.at("Q"),
            .K = arguments.at("K"),
            .V = arguments.at("V"),
            .O = arguments.at("O"),
            .dO = arguments.at("dO"),
            .LSE = static_cast<const float*>(arguments.at("LSE")),
            .dQ = arguments.at("dQ"),
            .dK = arguments.at("dK"),
            .dV = arguments.at("dV"),
            .Q_strides = strides("Q"),
            .K_strides = strides("K"),
            .V_strides = strides("V"),
            .O_strides = strides("O"),
            .LSE_strides = strides("LSE"),
            .cu_seqlens_q = static_cast<const int*>(arguments.at("cu_seqlens_q")),
            .cu_seqlens_k = static_cast<const int*>(arguments.at("cu_seqlens_k")),
            .workspace = arguments.workspace,
            .batch = spec.batch,
            .heads = spec.heads,
            .kv_heads = spec.key_heads(),
            .n_q = spec.n,
            .n_k = spec.keys(),
            .total_q = static_cast<int>(total(spec.lens_q, spec.n)),
            .total_k = static_cast<int>(total(spec.lens_k, spec.keys())),
            .softmax_scale = spec.scale(),
            .causal = spec.causal,
            .left = spec.left,
            .right = spec.right,
            .d = spec.d};
}

void convert(const Arguments& arguments, ScoreGradientParams& params) {
  convert(arguments, static_cast<ModelGradientParams&>(params));
  params.softcap = arguments.spec.softcap;
  params.alibi_slopes = static_cast<const float*>(arguments.at("slopes"));
  params.sinks = static_cast<const float*>(arguments.at("sinks"));
  params.dsinks = static_cast<float*>(arguments.at("dsinks"));
}

namespace {

// Every weight of a gradient is 2 to the power of what LSE leaves of a score, and f32 has LSE to one part in 2^24: beyond 2^17 weights may
// be off by one part in 2^8 for that alone. So a rung of the backward pass need not say it. 60_stored tells it.
float largest_score_of(const told::Variant& variant) {
  return variant.largest_score == 0 && variant.accepts.formula == Word("backward") ? 0x1p17f : variant.largest_score;
}

}  // namespace

std::string_view chapter_of_largest_score(const Variant& variant) {
  return variant.accepts.formula == Word("backward") ? "60_stored" : "05_exp2f";
}

told::Registration::Registration(const told::Rung& rung, Build build) {
  Registry& known = registry();
  if (build != Build::pattern) {
    for (const told::Variant& variant : rung.variants) {
      known.waiting.push_back({rung.name, label_of(variant), build, variant.launch, variant.kernel});
    }
    std::erase_if(known.waiting, join);
    return;
  }
  ladder::Rung added{.name = rung.name,
                     .previous = rung.previous,
                     .role = rung.role,
                     .untried = rung.untried,
                     .more_lines = rung.more_lines,
                     .idea = rung.idea,
                     .limit = rung.limit,
                     .prediction = rung.prediction,
                     .min_sm = rung.min_sm,
                     .max_sm = rung.max_sm,
                     .needs = rung.needs,
                     .resources = rung.resources};
  for (const told::Variant& variant : rung.variants) {
    added.variants.push_back({.label = label_of(variant),
                              .config = type_in(variant.config),
                              .tile = variant.tile,
                              .smem_bytes = variant.smem_bytes,
                              .smem_bytes_per_key = variant.smem_bytes_per_key,
                              .on_emulator = EmulatedLaunch(variant.launch),
                              .conflict_ways = variant.conflict_ways,
                              .predict = function_of(variant.predict),
                              .per_rescale = variant.per_rescale,
                              .per_look = variant.per_look,
                              .most_per_rescale = variant.most_per_rescale,
                              .most_of_data = function_of(variant.most_of_data),
                              .recorded = variant.recorded,
                              .accepts = variant.accepts,
                              .writes_lse = variant.writes_lse,
                              .workspace_bytes = variant.workspace_bytes,
                              .stores_scores = variant.stores_scores,
                              .from_first_key = variant.from_first_key,
                              .few_rows = variant.few_rows,
                              .few_tiles = variant.few_tiles,
                              .few_keys = variant.few_keys,
                              .dense_tiles = variant.dense_tiles,
                              .several = variant.several,
                              .same_bits = variant.same_bits,
                              .largest_score = largest_score_of(variant),
                              .keys_of_one_sign = variant.keys_of_one_sign,
                              .keys_of_rising_weights = variant.keys_of_rising_weights});
  }
  ladder::Registration(std::move(added));
}

const std::vector<Rung>& rungs() {
  Registry& known = registry();
  if (!known.ordered) known.rungs = in_order(std::move(known.rungs));
  known.ordered = true;
  return known.rungs;
}

const Rung* previous_of(const Rung& rung) {
  const auto found = std::ranges::find(rungs(), rung.previous, &Rung::name);
  return found == rungs().end() ? nullptr : &*found;
}

const Rung& of_line(const Rung& rung) {
  const Rung* found = &rung;
  for (size_t steps = 0; steps < rungs().size() && found->role != Role::line; ++steps) {  // none may be, in a circle
    if (const Rung* before = previous_of(*found)) found = before;
  }
  return *found;
}

std::vector<const Rung*> by_line() {
  std::vector<const Rung*> ordered;
  for (const Rung& rung : rungs()) ordered.push_back(&rung);
  std::ranges::stable_sort(ordered, {}, [](const Rung* rung) {
    const Rung& above = of_line(*rung);
    return std::pair(&above - rungs().data(), rung != &above);
  });
  return ordered;
}

std::string_view to_string(Role role) {
  constexpr std::string_view WORDS[] = {"line", "branch", "variant", "port", "lost"};
  return WORDS[role.value];
}

void forget_variants(const Rung& rung) {
  const auto known = std::ranges::find(registry().rungs, rung.name, &Rung::name);
  if (known != registry().rungs.end()) known->variants.clear();
}

Registration::Registration(Rung rung) {
  Registry& known = registry();
  const auto same = std::ranges::find(known.rungs, rung.name, &Rung::name);
  if (same != known.rungs.end()) {
    std::ranges::move(rung.variants, std::back_inserter(same->variants));
  } else {
    rung.directory = directory_of(rung.name);
    known.rungs.push_back(std::move(rung));
    known.ordered = false;
  }
  std::erase_if(known.waiting, join);
}

}  // namespace ladder
