#include "harness/problem/shapes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "harness/base/nearest.hpp"
#include "harness/problem/element.hpp"

namespace ladder {
namespace {

constexpr size_t MOST_SMEM = 227 * 1024;  // per block, of any GPU so far (sm_90), and of the emulator

// What a problem may ask for, by what of it that is seen, what is to be said of a variant that has it not, and what one pays that has
// it where nobody asks: nothing, something, something but where it is made for few rows, or something but in gradients.
enum class Unasked { free, costs, costs_many, costs_forward };
struct FeatureRow {
  Feature feature;
  std::string_view name, lacking;
  bool (*asked)(const Spec&);
  Unasked unasked = Unasked::free;
};
constexpr FeatureRow FEATURES[] = {
    {CAUSAL, "causal", "has no causal mask", [](const Spec& spec) { return spec.causal; }},
    {TAILS, "tails", "", [](const Spec&) { return false; }},
    {CROSS, "cross", "needs as many keys as queries", [](const Spec& spec) { return spec.keys() != spec.n; }},
    {GROUPED, "grouped", "needs as many heads of keys as of queries",
     [](const Spec& spec) { return spec.key_heads() != spec.heads; }},
    {WINDOW, "window", "has no window", [](const Spec& spec) { return spec.left >= 0 || spec.right >= 0; },
     Unasked::costs_forward},
    {SOFTCAP, "softcap", "has no softcap", [](const Spec& spec) { return spec.softcap > 0; }, Unasked::costs},
    {ALIBI, "alibi", "has no ALiBi", [](const Spec& spec) { return spec.alibi; }, Unasked::costs},
    {SINK, "sink", "has no sink", [](const Spec& spec) { return spec.sink; }},
    {STRIDES, "strides", "needs tensors [batch, heads, n, d] in one piece",
     [](const Spec& spec) { return spec.layout != Layout::bhnd || spec.pad > 0; }},
    {VARLEN, "varlen", "needs sequences of one length",
     [](const Spec& spec) { return spec.lens_q.count > 0 || (spec.lens_k.count > 0 && !spec.has_cache()); }},
    {CACHE, "cache", "takes no cache of which sequences use different parts",
     [](const Spec& spec) { return spec.has_cache(); }, Unasked::costs_many},
    {PAGES, "pages", "takes no keys in pages", [](const Spec& spec) { return spec.page > 0; }, Unasked::costs_many},
    {INTERVALS, "intervals", "has no intervals of keys", [](const Spec& spec) { return bool(spec.intervals); },
     Unasked::costs},
    {BLOCKS, "blocks", "has no lists of blocks", [](const Spec& spec) { return bool(spec.blocks); }},
};
// Behind each row, of the tensor with the smallest elements.
size_t pad_bytes(const Spec& spec) {
  return std::min({bytes_of(spec.q_type, spec.pad), bytes_of(spec.kv_type, spec.pad), bytes_of(spec.o_type, spec.pad)});
}

std::string elements_of(Element q, Element kv, Element o) {
  return q == kv && kv == o ? std::string(to_string(q))
                            : fmt::format("{}, {} and {}", to_string(q), to_string(kv), to_string(o));
}

// All that the variant has not, but for tails, in words that follow its name.
std::vector<std::string> lacking(const Variant& variant, const Spec& spec) {
  const Accepts& accepts = variant.accepts;
  std::vector<std::string> reasons;
  if (spec.formula != accepts.formula)
    reasons.push_back(fmt::format("solves {} and not {}", accepts.formula.text, spec.formula.text));
  for (const FeatureRow& row : FEATURES) {
    if (row.asked(spec) && !variant.takes(row.feature)) reasons.emplace_back(row.lacking);
  }
  if (spec.q_type != accepts.q || spec.kv_type != accepts.kv || spec.o_type != accepts.o) {
    reasons.push_back(fmt::format("takes Q, K and V, and O in {}, not in {}",
                                  elements_of(accepts.q, accepts.kv, accepts.o),
                                  elements_of(spec.q_type, spec.kv_type, spec.o_type)));
  }
  Spec accepted = spec;
  accepted.scales = accepts.scales;
  if (spec.has_scales() && spec.kv_type == accepts.kv && spec.scales_per() != accepted.scales_per()) {
    constexpr std::string_view OF[] = {"", "head", "key", "column"};
    reasons.push_back(fmt::format("takes a scale of each {} of K and V, not of each {}",
                                  OF[size_t(accepted.scales_per())], OF[size_t(spec.scales_per())]));
  }
  if (spec.d < accepts.min_d || spec.d > accepts.max_d || spec.d % accepts.d_step != 0) {
    std::string able = std::to_string(accepts.max_d);
    if (accepts.min_d < accepts.max_d) able = fmt::format("{} to {}", accepts.min_d, accepts.max_d);
    if (accepts.d_step > 1) able += fmt::format(", a multiple of {}", accepts.d_step);
    reasons.push_back(fmt::format("needs a head dimension of {} (d={} is not)", able, spec.d));
  }
  if (pad_bytes(spec) % accepts.row_bytes != 0) {
    reasons.push_back(fmt::format("needs {} bytes or a multiple behind each row (pad={} are {})", accepts.row_bytes,
                                  spec.pad, pad_bytes(spec)));
  }
  return reasons;
}

// Of queries and of keys, in how many of which a variant without tails takes them.
struct Steps {
  int queries, keys;
};
Steps steps_of(const Variant& variant, const Spec& spec) {
  const int br = std::max(1, variant.tile.br), bc = std::max(1, variant.tile.bc);
  return spec.keys() == spec.n ? Steps{std::lcm(br, bc), std::lcm(br, bc)} : Steps{br, bc};
}

bool whole_tiles(const Variant& variant, const Spec& spec) {
  const Steps steps = steps_of(variant, spec);
  return variant.takes(TAILS) || (spec.n % steps.queries == 0 && spec.keys() % steps.keys == 0);
}

// "needs N to be a multiple of 128 (its KV tile); N=1000 is not. Nearest: 896, 1024"
std::string of_whole_tiles(const Variant& variant, const Spec& spec) {
  const int br = std::max(1, variant.tile.br), bc = std::max(1, variant.tile.bc);
  const Steps steps = steps_of(variant, spec);
  const bool square = spec.keys() == spec.n, of_queries = spec.n % steps.queries != 0;
  const int n = of_queries ? spec.n : spec.keys(), step = of_queries ? steps.queries : steps.keys;
  const std::string_view name = square ? "N" : of_queries ? "nq" : "nk";
  const std::string tile = !square      ? of_queries ? "its query tile" : "its KV tile"
                           : step == bc ? "its KV tile"
                           : step == br ? "its query tile"
                                        : fmt::format("its tiles are {} queries and {} keys", br, bc);
  const int64_t below = n / step * int64_t{step};
  std::vector<int64_t> nearest;
  for (const int64_t each : {below, below + step}) {
    if (each > 0 && each <= std::numeric_limits<int>::max()) nearest.push_back(each);
  }
  return fmt::format("needs {} to be a multiple of {} ({}); {}={} is not. Nearest: {}", name, step, tile, name, n,
                     fmt::join(nearest, ", "));
}

}  // namespace

Status fits_shared_memory(const Rung& rung, const Variant& variant, int n, size_t available, const std::string& who) {
  const uint64_t needed = variant.smem_at(n);
  if (needed <= available) return {};
  std::string what, largest;
  if (variant.smem_bytes_per_key > 0) {
    const uint64_t room = available > variant.smem_bytes ? available - variant.smem_bytes : 0;
    what = fmt::format(" for a row of {} scores", n);
    largest = fmt::format(" Largest N here: {}.", room / variant.smem_bytes_per_key);
  }
  return failure(ExitCode::cannot_run_here,
                 "{} ({}) needs {:.1f} KiB of shared memory per block{}; {} has {} "
                 "KiB.{}",
                 rung.name, variant.label, needed / 1024.0, what, who, available / 1024, largest);
}

Spec fitted(const Accepts& accepts, Spec spec) {
  spec.formula = accepts.formula;
  spec.q_type = accepts.q, spec.kv_type = accepts.kv, spec.o_type = accepts.o;
  spec.scales = accepts.scales;
  spec.d = accepts.d_step > 1 ? accepts.max_d : std::clamp(spec.d, accepts.min_d, accepts.max_d);
  return spec;
}

uint32_t needs(const Spec& spec) {
  uint32_t features = 0;
  for (const FeatureRow& row : FEATURES) {
    if (row.asked(spec)) features |= row.feature;
  }
  return features;
}

int unasked(const Variant& variant, const Spec& spec) {
  return static_cast<int>(std::ranges::count_if(FEATURES, [&](const FeatureRow& row) {
    return variant.takes(row.feature) && !row.asked(spec) &&
           (row.unasked == Unasked::costs || (row.unasked == Unasked::costs_many && variant.few_rows == 0) ||
            (row.unasked == Unasked::costs_forward && variant.accepts.formula != "backward"));
  }));
}

std::vector<std::string_view> names_of(uint32_t features) {
  std::vector<std::string_view> names;
  for (const FeatureRow& row : FEATURES) {
    if (features & row.feature) names.push_back(row.name);
  }
  return names;
}

bool takes(const Variant& variant, const Spec& spec) {
  return whole_tiles(variant, spec) && variant.smem_at(spec.keys()) <= MOST_SMEM && lacking(variant, spec).empty();
}

Status supports(const Rung& rung, const Variant& variant, const Spec& spec) {
  std::vector<std::string> reasons = lacking(variant, spec);
  const bool lacks_nothing = reasons.empty();
  if (!whole_tiles(variant, spec)) reasons.push_back(of_whole_tiles(variant, spec));
  if (reasons.empty())
    return fits_shared_memory(rung, variant, spec.keys(), MOST_SMEM, "the largest GPU, emulated here,");
  const auto at = std::ranges::find(rungs(), rung.name, &Rung::name) - rungs().begin();
  std::vector<std::pair<ptrdiff_t, std::string_view>> near;  // how far away in the ladder, and who
  for (size_t i = 0; i < rungs().size(); ++i) {
    const Rung& other = rungs()[i];
    const auto solves = [&](const Variant& each) { return lacking(each, spec).empty(); };
    if (std::ranges::any_of(other.variants, solves))
      near.emplace_back(std::abs(static_cast<ptrdiff_t>(i) - at), other.name);
  }
  std::ranges::stable_sort(near, {}, &std::pair<ptrdiff_t, std::string_view>::first);
  std::vector<std::string_view> able;
  for (const auto& [distance, name] : near) able.push_back(name);
  const std::string last = reasons.back();
  reasons.pop_back();
  return usage("{} {}{}{}.{}", rung.name, fmt::join(reasons, ", "), reasons.empty() ? "" : ", and ", last,
               lacks_nothing  ? ""
               : able.empty() ? "\n  No stage does all of that."
                              : fmt::format("\n  Stages that can: {}", few(able)));
}

}  // namespace ladder
