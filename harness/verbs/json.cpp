#include "harness/verbs/json.hpp"

#include <cmath>

#include "harness/base/files.hpp"
#include "harness/problem/spec.hpp"

namespace ladder {
namespace {

Json to_json(const emulator::Counters& counters) {
  Json json = ladder::to_json(static_cast<const Counts&>(counters));
  json.set("smem_wavefronts_ideal", counters.smem_wavefronts_ideal);
  json.set("smem_conflict_ways", counters.ways());
  json.set("ldmatrix_conflict_ways", ldmatrix_ways(counters));
  json.set("bulk_bytes", counters.bulk_bytes);
  json.set("blocks", counters.blocks);
  return json;
}

Json to_json(const OutputError& error) {
  return {{"output", error.output},
          {"max_err", error.max_err},
          {"tolerance", error.tolerance},
          {"rms_err", error.rms_err},
          {"rms_tolerance", error.rms_tolerance}};
}

Json to_json(const Failure& failure) {
  Json json{{"kind", to_string(failure.kind)}, {"message", failure.message}};
  if (!failure.detail.empty()) json.set("detail", failure.detail);
  return json;
}

}  // namespace

Json to_json(const Counts& counts) {
  Json json;
  for (const emulator::Count& count : emulator::COUNTS) json.set(count.name, in_numbers(counts.*count.value));
  return json;
}

Json to_json(const CheckResult& result) {
  Json json{{"stage", result.rung},
            {"variant", result.variant},
            {"backend", to_string(result.backend)},
            {"batch", result.shape.batch},
            {"heads", result.shape.heads},
            {"n", result.shape.n},
            {"d", result.shape.d},
            {"causal", result.shape.causal},
            {"problem", to_string(result.shape)},
            {"inputs", result.inputs},
            {"ok", result.ok},
            {"max_err", result.max_err},
            {"tolerance", result.tolerance},
            {"answers_ok", result.answers_right()},
            {"counts_ok", result.counts_right()}};
  if (!result.told.empty())
    json.set("told", Json::array(result.told, [](const Failure& told) { return to_json(told); }));
  if (result.backend == Place::emulator && !weaker_checks().empty()) json.set("weaker", std::string(weaker_checks()));
  if (result.shape.softmax_scale > 0) json.set("softmax_scale", result.shape.softmax_scale);
  if (result.rms_tolerance > 0) {
    json.set("rms_err", result.rms_err);
    json.set("rms_tolerance", result.rms_tolerance);
  }
  if (result.errors.size() > 1)
    json.set("outputs", Json::array(result.errors, [](const auto& of) { return to_json(of); }));
  if (result.counters) json.set("counters", to_json(*result.counters));
  json.set("failures", Json::array(result.failures, [](const auto& of) { return to_json(of); }));
  json.set("seconds", std::round(result.seconds * 1e4) / 1e4);
  return json;
}

Status write_document(const std::string& file, const Json& document, const std::string& seal) {
  if (file.empty()) return {};
  std::vector<std::string> rows;
  for (const Json& row : document.elements()) rows.push_back(row.dump());
  return write_text(file, seal + by_lines(rows) + "\n" + seal);
}

}  // namespace ladder
