#include "harness/verbs/verbs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "harness/base/files.hpp"
#include "harness/base/table.hpp"
#include "harness/base/terminal.hpp"
#include "harness/base/text.hpp"
#include "harness/devices/capacity.hpp"
#include "harness/devices/emulator_run.hpp"
#include "harness/devices/gpu.hpp"
#include "harness/devices/trace.hpp"
#include "harness/problem/formula.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/verbs/json.hpp"
#include "harness/verify/check.hpp"

namespace ladder {
namespace {

constexpr uint64_t WAVEFRONT_BYTES = 128;  // 32 banks of 4 bytes

void print_paragraph(std::FILE* out, std::string_view title, std::string_view text) {
  constexpr size_t WIDEST = 100, NARROWEST = 20, INDENT = 12;
  const size_t columns = columns_of(out);
  const size_t width = columns == 0 ? WIDEST : std::clamp(columns - std::min(columns, INDENT), NARROWEST, WIDEST);
  const std::string lines = wrapped(text, width);
  for (const std::string_view line : split(lines, '\n'))
    fmt::print(out, "{:<{}}{}\n", std::exchange(title, ""), INDENT, line);
}

std::string rows_per_warp(const Tile& tile) {
  return tile.m_tiles() == 0 ? std::to_string(tile.br / tile.warps) : fmt::format("{} x 16", tile.m_tiles());
}

void print_kernel(std::FILE* out, const Rung& rung, const Variant& variant, const Shape& shape) {
  const std::string shared = bytes_text(double(variant.smem_at(shape.n))) + " of shared memory per block";
  print_paragraph(out, "Kernel",
                  variant.tile.warps == 0 ? variant.label
                  : variant.tile.br == 0
                      ? fmt::format("{}, {}", variant.label, shared)
                      : fmt::format("{}: {} query rows against {} keys at a time, {} rows per warp, {}", variant.label,
                                    variant.tile.br, variant.tile.bc, rows_per_warp(variant.tile), shared));
  for (size_t i = 1; i < rung.variants.size(); ++i) {
    print_paragraph(out, i == 1 ? "Ablations" : "", rung.variants[i].label);
  }
  if (const float largest = variant.largest_score; largest > 0) {
    print_paragraph(out, "Scores",
                    fmt::format("up to 2^{:.4g} (score * log2(e)); {} says why", std::log2(largest),
                                chapter_of_largest_score(variant)));
  }
  if (variant.keys_of_one_sign > 0)
    print_paragraph(out, "Sums",
                    fmt::format("of up to {} values of one sign, or of one in either half; its chapter says why",
                                variant.keys_of_one_sign));
  if (variant.keys_of_rising_weights > 0)
    print_paragraph(out, "Weights",
                    fmt::format("that rise and fall again over up to {} keys, of values of two signs; f02_two says why",
                                variant.keys_of_rising_weights));
  print_paragraph(out, "Needs", fmt::format("{} ({})", gpus_of(rung), rung.needs));
  for (const ResourceBound& bound : rung.resources) {
    print_paragraph(out, &bound == rung.resources.data() ? "Resources" : "",
                    fmt::format("sm_{}: at most {} registers and {} bytes spilled per thread{}{}", bound.sm,
                                bound.registers, bound.spill_bytes, *bound.reason ? ": " : "", bound.reason));
  }
  if (const auto gpu = gpu_info(); gpu && runs_on(rung, variant, shape, *gpu)) {
    if (const auto resources = gpu_resources(variant, shape.n)) {
      print_paragraph(out, "",
                      fmt::format("this {}: {} registers, {} bytes of local memory, {} blocks per SM", gpu->name,
                                  resources->registers, resources->local_bytes, resources->blocks_per_sm));
    }
  }
}

void print_counts(std::FILE* out, const Variant& variant, const CheckResult& result, const CheckResult* before) {
  const emulator::Counters& counters = *result.counters;
  const Counts predicted = variant.predict ? variant.predict(result.shape) : Counts{};
  const Counts counted_before = before ? Counts(*before->counters) : Counts{};

  print_wrapped(out, fmt::format("\nCounted on the emulator: {}, normal inputs, a warp instruction once",
                                 to_string(result.shape)));
  Table table({"<", "predicted", "counted", before ? before->rung : ""});
  for (const emulator::Count& count : emulator::COUNTS) {
    if (count.value == &Counts::gmem_bytes_read) break;  // bytes stand in a table of their own
    const uint64_t told = predicted.*count.value, now = counters.*count.value, then = counted_before.*count.value;
    const bool said = variant.predict && !((variant.recorded || count.is(emulator::WHERE_SAID)) && told == 0);
    if ((now == 0 && then == 0 && told == 0) || (count.is(emulator::WHERE_SAID) && !said))
      continue;  // nobody asks for it
    table.add({count.words, said ? grouped(in_numbers(told)) : "", grouped(now), before ? grouped(then) : ""});
  }
  const auto measured = [&](const char* name, const auto& value, std::string expected = "") {
    table.add({name, std::move(expected), value(counters), before ? value(*before->counters) : ""});
  };
  measured("  without bank conflicts", [](const emulator::Counters& c) { return grouped(c.smem_wavefronts_ideal); });
  measured(
      "ldmatrix bank conflicts",
      [](const emulator::Counters& c) { return fmt::format("{:.2f}-way", ldmatrix_ways(c)); },
      variant.conflict_ways > 0 ? fmt::format("{:.2f}-way", variant.conflict_ways) : "");
  fmt::print(out, "{}", table.text(out));
}

// Bytes at each level, as far as the emulator sees them: what the kernel asks for, before any cache.
void print_traffic(std::FILE* out, const Variant& variant, const CheckResult& result, const CheckResult* before) {
  const IoModel io = formula_of(result.shape).io_model(variant, result.shape);
  const Counts predicted = variant.predict ? variant.predict(result.shape) : Counts{};
  const Counts &counts = *result.counters, &counts_before = *(before ? before : &result)->counters;
  fmt::print(out, "\nBytes requested at each level\n");
  Table table({"<", "predicted", "counted", before ? before->rung : "", "IO model"});
  const auto add = [&](const char* level, bool is_predicted, const auto& value, std::string model = "") {
    table.add({level, is_predicted ? grouped(value(predicted)) : "", grouped(value(counts)),
               before ? grouped(value(counts_before)) : "", std::move(model)});
  };
  const bool told = variant.predict && !variant.recorded;
  add("global memory, read", told, [](const Counts& of) { return of.gmem_bytes_read; });
  add("global memory, written", told, [](const Counts& of) { return of.gmem_bytes_written; });
  if (counts.gmem_bytes_reduced > 0)
    add("global memory, added to", told, [](const Counts& of) { return of.gmem_bytes_reduced; });
  const auto all = [](const Counts& of) { return of.gmem_bytes_read + of.gmem_bytes_written + of.gmem_bytes_reduced; };
  add("  together", told, all, grouped(static_cast<uint64_t>(io.bytes)));
  add("shared memory, wavefronts x 128", false, [](const Counts& of) { return of.smem_wavefronts * WAVEFRONT_BYTES; });
  fmt::print(out, "{}", table.text(out));
  print_wrapped(out,
                fmt::format("IO model: {} bytes per head. It has no caches, and neither has the emulator.", io.text));
}

void print_sites(std::FILE* out, const emulator::Counters& counters) {
  if (counters.sites.empty()) {
    fmt::print(out, "\nNo warp reads or writes shared memory itself: no bank conflicts are counted.\n");
    return;
  }
  fmt::print(out, "\nShared memory, by source line\n");
  Table table({"<line", "<instruction", "<region", "?requests", "wavefronts", "??ideal", "conflicts"});
  for (const emulator::SiteCounts& site : counters.sites) {
    table.add({emulator::to_string({site.file, site.line}), site.instruction, site.buffer, grouped(site.requests),
               grouped(site.wavefronts), grouped(site.ideal), fmt::format("{:.2f}-way", site.ways())});
  }
  fmt::print(out, "{}", table.text(out));
}

Json explanation(const Rung& rung, const Variant& variant, const CheckResult& result) {
  Json json = to_json(result);
  json.set("idea", rung.idea);
  json.set("limit_before", rung.limit);
  json.set("prediction", rung.prediction);
  if (variant.predict) {
    const Counts predicted = variant.predict(result.shape);
    Json said;
    for (const emulator::Count& count : emulator::COUNTS) {
      if (const uint64_t told = predicted.*count.value; told > 0 || !variant.recorded)
        said.set(count.name, in_numbers(told));
    }
    json.set("predicted", said);
  }
  json.set("io_model_bytes", formula_of(result.shape).io_model(variant, result.shape).bytes);
  const auto site_json = [](const emulator::SiteCounts& site) -> Json {
    return {{"line", emulator::to_string({site.file, site.line})},
            {"instruction", site.instruction},
            {"buffer", site.buffer},
            {"requests", site.requests},
            {"wavefronts", site.wavefronts},
            {"ideal", site.ideal},
            {"ways", site.ways()}};
  };
  json.set("sites", Json::array(result.counters->sites, site_json));
  return json;
}

Result<ExitCode> explain(const Options& options, bool counts_only) {
  std::FILE* const out = table_stream(options);
  bool ok = true, first = true;
  Json explanations = Json::array();
  for (const Shape& shape : shapes_for(options, EMULATOR_SHAPE)) {
    std::optional<Problem> problem;               // of this shape, for all rungs
    std::map<const Rung*, CheckResult> emulated;  // a rung is explained, and then compared with
    const auto emulate = [&](const Rung& rung) -> const CheckResult& {
      if (!problem) problem = make_problem(shape, InputKind::normal, options.seed);
      const auto [known, is_new] = emulated.try_emplace(&rung);
      if (is_new) known->second = check_on_emulator(rung, rung.variants.front(), *problem);
      return known->second;
    };
    for (const Rung* rung : options.rungs) {
      const Variant& variant = rung->variants.front();
      if (auto status = supports(*rung, variant, shape); !status) return passed_on(status);
      if (auto status = fits_host_memory(shape, variant.workspace_at(shape)); !status) return passed_on(status);
      if (!counts_only) {
        fmt::print(out, "{}{}\n\n", std::exchange(first, false) ? "" : "\n\n", rung->name);
        print_paragraph(out, "Idea", rung->idea);
        print_paragraph(out, "Before", rung->limit);
        print_paragraph(out, "Prediction", rung->prediction);
        print_kernel(out, *rung, variant, shape);
      }

      const CheckResult& result = emulate(*rung);
      const Rung* const from = previous_of(*rung);
      const bool is_compared = from && supports(*from, from->variants.front(), shape);
      const CheckResult* const before = is_compared ? &emulate(*from) : nullptr;
      print_counts(out, variant, result, before);
      print_traffic(out, variant, result, before);
      print_sites(out, *result.counters);
      for (const Failure& failure : counts_only ? std::vector<Failure>() : result.failures) {
        fmt::print(out, "\n{}\n  {}\n", to_string(failure.kind), failure.message);
      }
      ok = ok && result.ok;
      explanations.push_back(explanation(*rung, variant, result));
      if (!options.trace.empty()) {
        const EmulatorRun run = run_on_emulator(*rung, variant, *problem, {.trace = true});
        const Status written = write_text(options.trace, trace_document(*rung, variant, shape, run));
        if (!written) return passed_on(written);
      }
    }
  }
  if (auto status = write_document(counts_only ? "" : options.json, explanations); !status) return passed_on(status);
  return ok ? ExitCode::done : ExitCode::check_failed;
}

}  // namespace

Result<ExitCode> explain_verb(const Options& options) {
  if (!options.trace.empty() && (options.rungs.size() != 1 || options.n.size() > 1)) {
    return usage("--trace follows one stage at one N, for example:  ./ladder explain 03 --trace kvpipe.json");
  }
  if (options.on == Where::gpu) {
    if (!options.trace.empty()) {
      return usage("--trace comes from the emulator. Leave --on gpu out.");
    }
    return explain_on_gpu(options);
  }
  return explain(options, false);
}

Result<ExitCode> explain_counts(const Options& options) {
  return explain(options, true);
}

}  // namespace ladder
