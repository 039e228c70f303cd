#include "harness/verbs/verbs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

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
          {"d_step", variant.accepts.d_step},
          {"dtype", to_string(variant.accepts.q)},
          {"formula", variant.accepts.formula.text},
          {"problems", Json::array(problems_of(variant))},
          {"writes_lse", variant.writes_lse},
          {"needs_workspace", variant.workspace_bytes != nullptr},
          {"largest_score", variant.largest_score},
          {"conflict_ways", variant.conflict_ways}};
}

// Why a rung changes more lines than others do: "new", "port", "rebuilt", "retold" or "other", and the reason; empty where it does not.
Json json_of(const MoreLines& more) {
  constexpr std::string_view WHY[] = {"", "new", "port", "rebuilt", "retold", "other"};
  return {{"why", WHY[more.why]}, {"reason", more.reason}};
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
          {"role", to_string(rung.role)},
          {"line", of_line(rung).name},
          {"more_lines", json_of(rung.more_lines)},
          {"idea", rung.idea},
          {"limit", rung.limit},
          {"prediction", rung.prediction},
          {"min_sm", rung.min_sm},
          {"needs", rung.needs},
          {"resources", Json::array(rung.resources, resources_json)},
          {"variants", Json::array(rung.variants, json_of_variant)}};
}

// Its name, set in where it hangs under another.
std::string indented(const Rung& rung) {
  return fmt::format("{}{}", rung.role == Role::line ? "" : "  ", rung.name);
}

}  // namespace

Result<ExitCode> describe_verb(const Options& options) {
  Json document = Json::array();
  for (const Rung& rung : rungs()) document.push_back(json_of_rung(rung, document.size()));
  Table table({"<part", "<stage", "<role", "<starts from", "<tile", "<takes", "?needs sm", "?<what for"});
  for (const Rung* rung : by_line()) {
    const Variant& variant = rung->variants.front();
    table.add({rung->part(), indented(*rung), to_string(rung->role), rung->previous, variant.label,
               fmt::format("{}", fmt::join(problems_of(variant), ", ")), std::to_string(rung->min_sm), rung->needs});
  }
  if (auto status = write_document(options.json, document); !status) return passed_on(status);
  std::FILE* out = table_stream(options);
  fmt::print(out, "{}", table.text(out));
  return ExitCode::done;
}

Result<ExitCode> list_verb(const Options& options) {
  std::vector<const Rung*> line, listed = by_line();
  std::ranges::copy_if(listed, std::back_inserter(line), [](const Rung* rung) { return rung->role == Role::line; });
  const auto next_of = [&](const Rung& rung) -> const Rung* {
    const auto at = std::ranges::find(line, &of_line(rung));
    return at == line.end() || at + 1 == line.end() ? nullptr : at[1];
  };
  const auto start_from = [](const Rung& rung) {
    std::vector<const Rung*> found;
    for (const Rung& other : rungs()) {
      if (other.previous == rung.name) found.push_back(&other);
    }
    return found;
  };
  const auto name = [](const Rung* rung) { return rung ? rung->name : std::string_view(); };
  if (options.rungs_named) listed = options.rungs;
  Json document = Json::array();
  for (const Rung* rung : listed) {
    document.push_back({{"stage", rung->name},
                        {"role", to_string(rung->role)},
                        {"line", of_line(*rung).name},
                        {"previous", rung->previous},
                        {"start_from_it", Json::array(start_from(*rung), name)},
                        {"next_of_the_line", name(next_of(*rung))}});
  }
  if (auto status = write_document(options.json, document); !status) return passed_on(status);
  std::FILE* out = table_stream(options);
  if (!options.rungs_named) {
    Table table({"<stage", "<role", "~idea"});
    for (const Rung* rung : listed) table.add({indented(*rung), to_string(rung->role), rung->idea});
    fmt::print(out, "{}{} rungs, {} of them the line; under each of these what starts from it, or from that.\n",
               table.text(out), listed.size(), line.size());
    return ExitCode::done;
  }
  Table table({"<", "<stage", "<role", "~idea"});
  const auto add = [&](std::string_view what, const Rung* rung) {
    if (rung) table.add({what, rung->name, to_string(rung->role), rung->idea});
  };
  for (const Rung* rung : listed) {
    if (rung != listed.front()) table.add({"", "", "", ""});
    add("this", rung);
    add("starts from", previous_of(*rung));
    if (const Rung& above = of_line(*rung); above.name != rung->name && above.name != rung->previous) {
      add("hangs under", &above);
    }
    for (const Rung* other : start_from(*rung)) add("starts from this", other);
    add("next of the line", next_of(*rung));
  }
  fmt::print(out, "{}", table.text(out));
  return ExitCode::done;
}

}  // namespace ladder
