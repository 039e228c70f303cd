#include "harness/verbs/json.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

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

}  // namespace

Json to_json(const Counts& counts) {
  Json json;
  for (const emulator::Count& count : emulator::COUNTS) json.set(count.name, in_numbers(counts.*count.value));
  return json;
}

Json to_json(const CheckResult& result) {
  Json failures = Json::array();
  for (const Failure& failure : result.failures) {
    Json entry{{"kind", to_string(failure.kind)}, {"message", failure.message}};
    if (!failure.detail.empty()) entry.set("detail", failure.detail);
    failures.push_back(entry);
  }
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
  if (result.shape.softmax_scale > 0) json.set("softmax_scale", result.shape.softmax_scale);
  if (result.rms_tolerance > 0) {
    json.set("rms_err", result.rms_err);
    json.set("rms_tolerance", result.rms_tolerance);
  }
  Json outputs = Json::array();
  for (const OutputError& error : result.errors) {
    outputs.push_back({{"output", error.output},
                       {"max_err", error.max_err},
                       {"tolerance", error.tolerance},
                       {"rms_err", error.rms_err},
                       {"rms_tolerance", error.rms_tolerance}});
  }
  if (outputs.size() > 1) json.set("outputs", outputs);
  if (result.counters) json.set("counters", to_json(*result.counters));
  json.set("failures", failures);
  json.set("seconds", std::round(result.seconds * 1e4) / 1e4);
  return json;
}

Status write_document(const std::string& file, const Json& document, const std::string& seal) {
  // One object of an array per line: short enough to read, and to compare with diff.
  std::string text;
  if (document.is_array()) {
    text = "[";
    for (size_t i = 0; i < document.size(); ++i) text += (i == 0 ? "\n" : ",\n") + document.at(i);
    text += "\n]\n";
  } else {
    text = document.dump(1) + "\n";
  }
  return write_text(file, seal + text + seal);
}

Status write_text(const std::string& file, const std::string& text) {
  struct Close {
    void operator()(std::FILE* stream) const { std::fclose(stream); }
  };
  const bool standard_output = file == "-";
  const std::unique_ptr<std::FILE, Close> owned(standard_output ? nullptr : std::fopen(file.c_str(), "w"));
  std::FILE* stream = standard_output ? stdout : owned.get();
  if (stream != nullptr && std::fwrite(text.data(), 1, text.size(), stream) == text.size() &&
      std::fflush(stream) == 0) {
    return {};
  }
  return failure(ExitCode::check_failed, fmt::format("{} could not be written: {}.",
                                                     standard_output ? "standard output" : file, std::strerror(errno)));
}

}  // namespace ladder
