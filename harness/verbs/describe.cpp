#include "harness/verbs/verbs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>

#include "harness/base/table.hpp"
#include "harness/problem/element.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/verbs/json.hpp"

namespace ladder {
namespace {

// The first heading of a part's README.
std::string title_of(std::string_view part) {
  std::ifstream readme(std::filesystem::path(LADDER_SOURCE_DIR) / part / "README.md");
  for (std::string line; std::getline(readme, line);) {
    if (line.starts_with("# ")) return line.substr(2);
  }
  return "";
}

std::vector<std::string_view> problems_of(const Variant& variant) {
  std::vector<std::string_view> takes = names_of(variant.accepts.features);
  takes.insert(takes.begin(), "dense");
  return takes;
}

Json json_of_variant(const Variant& variant) {
  return {{"label", variant.label},
          {"config", variant.config},
          {"br", variant.tile.br},
          {"bc", variant.tile.bc},
          {"warps", variant.tile.warps},
          {"m_tiles", variant.tile.br > 0 ? variant.tile.m_tiles() : 0},
          {"smem_bytes", variant.smem_bytes},
          {"smem_bytes_per_key", variant.smem_bytes_per_key},
          {"min_d", variant.accepts.min_d},
          {"max_d", variant.accepts.max_d},
          {"dtype", to_string(variant.accepts.q)},
          {"formula", variant.accepts.formula.text},
          {"problems", Json::array(problems_of(variant))},
          {"writes_lse", variant.writes_lse},
          {"needs_workspace", variant.workspace_bytes != nullptr},
          {"largest_score", variant.largest_score},
          {"conflict_ways", variant.conflict_ways}};
}

Json json_of_rung(const Rung& rung, size_t order) {
  const auto resources_json = [](const ResourceBound& bound) -> Json {
    return {
        {"sm", bound.sm}, {"registers", bound.registers}, {"spill_bytes", bound.spill_bytes}, {"reason", bound.reason}};
  };
  return {{"stage", rung.name},
          {"number", rung.number()},
          {"word", rung.word()},
          {"directory", rung.directory},
          {"part", rung.part()},
          {"part_title", title_of(rung.part())},
          {"order", order},
          {"previous", rung.previous},
          {"idea", rung.idea},
          {"limit", rung.limit},
          {"prediction", rung.prediction},
          {"min_sm", rung.min_sm},
          {"needs", rung.needs},
          {"resources", Json::array(rung.resources, resources_json)},
          {"variants", Json::array(rung.variants, json_of_variant)}};
}

}  // namespace

Result<ExitCode> describe_verb(const Options& options) {
  Json document = Json::array();
  Table table({"<part", "<stage", "<starts from", "<tile", "<takes", "?needs sm", "?<what for"});
  for (const Rung& rung : rungs()) {
    const Variant& variant = rung.variants.front();
    document.push_back(json_of_rung(rung, document.size()));
    table.add({rung.part(), rung.name, rung.previous, variant.label,
               fmt::format("{}", fmt::join(problems_of(variant), ", ")), std::to_string(rung.min_sm), rung.needs});
  }
  if (auto status = write_document(options.json, document); !status) return passed_on(status);
  std::FILE* out = table_stream(options);
  fmt::print(out, "{}", table.text(out));
  return ExitCode::done;
}

}  // namespace ladder
