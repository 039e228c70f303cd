#include "harness/devices/trace.hpp"

#include <fmt/format.h>

#include <fstream>
#include <map>

#include "harness/base/json.hpp"

namespace ladder {
namespace {

Json site(const emulator::TraceEvent& event) {
  const std::string place = emulator::to_string({event.file, event.line});  // "03_kvpipe/kernel.cuh:70"
  Json json{{"launch", event.launch},
            {"instruction", event.instruction},
            {"file", place.substr(0, place.rfind(':'))},
            {"line", event.line}};
  if (event.bytes != 0) json.set("bytes", event.bytes);
  if (!event.shared.buffer.empty())
    json.set("shared", {{"buffer", event.shared.buffer}, {"bytes", event.shared.bytes}});
  if (!event.global.buffer.empty())
    json.set("global", {{"buffer", event.global.buffer}, {"bytes", event.global.bytes}});
  if (event.operand != 0) json.set("operand", event.operand);
  if (event.threads != 0) json.set("threads", event.threads);
  return json;
}

std::vector<std::string> source_lines(std::string_view file) {
  std::vector<std::string> lines;
  std::ifstream source(std::string(LADDER_SOURCE_DIR) + "/" + std::string(file));
  for (std::string line; std::getline(source, line);) lines.push_back(Json(line).dump());
  return lines;
}

}  // namespace

std::string trace_document(const Rung& rung, const Variant& variant, const Shape& shape, const EmulatorRun& run) {
  std::vector<std::string> buffers, regions, sites, events;
  for (const auto& [name, bytes] : run.buffers) buffers.push_back(Json{{"buffer", name}, {"bytes", bytes}}.dump());
  for (const emulator::TraceRegion& region : run.trace_regions) {
    regions.push_back(
        Json{{"launch", region.launch}, {"buffer", region.name}, {"offset", region.offset}, {"bytes", region.bytes}}
            .dump());
  }
  std::map<std::string, size_t> known;
  for (const emulator::TraceEvent& event : run.trace) {
    const auto [entry, is_new] = known.try_emplace(site(event).dump(), sites.size());
    if (is_new) sites.push_back(entry->first);
    std::string text = fmt::format("[{},{}", entry->second, event.warp);
    if (!event.shared.buffer.empty()) text += fmt::format(",{}", event.shared.offset);
    if (!event.global.buffer.empty()) text += fmt::format(",{}", event.global.offset);
    events.push_back(text + "]");
  }
  const Json head{{"format", TRACE_FORMAT},
                  {"stage", rung.name},
                  {"variant", variant.label},
                  {"batch", shape.batch},
                  {"heads", shape.heads},
                  {"n", shape.n},
                  {"d", shape.d},
                  {"causal", shape.causal},
                  {"tile", {{"br", variant.tile.br}, {"bc", variant.tile.bc}, {"warps", variant.tile.warps}}}};
  std::string text = head.dump();
  text.pop_back();  // the brace, to go on
  text += fmt::format(",\n\"global\": {},\n\"shared\": {},\n\"sites\": {},\n\"events\": {}", by_lines(buffers),
                      by_lines(regions), by_lines(sites), by_lines(events, 16));
  if (const auto lines = source_lines(fmt::format("{}/kernel.cuh", rung.directory)); !lines.empty()) {
    text += fmt::format(",\n\"source\": {}", by_lines(lines));
  }
  return text + "\n}\n";
}

}  // namespace ladder
