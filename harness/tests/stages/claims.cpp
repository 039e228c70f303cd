#include "harness/tests/stages/claims.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <numbers>
#include <set>
#include <tuple>

#include "harness/devices/emulator_run.hpp"
#include "harness/problem/shapes.hpp"

namespace ladder::claims {
namespace {

// What was made for these before, or is made now; each caller, by the type of its lambda, knows its own.
template <class Make, class... Keys>
const auto& once(const Make& make, const Keys&... keys) {
  static std::map<std::tuple<Keys...>, decltype(make())> known;
  const auto found = known.find({keys...});
  return found != known.end() ? found->second : known.emplace(std::tuple(keys...), make()).first->second;
}

}  // namespace

const Rung& rung_named(std::string_view name) {
  const auto rung = std::ranges::find(rungs(), name, &Rung::name);
  INFO(name);
  REQUIRE(rung != rungs().end());
  return *rung;
}

const Rung& previous_to(const Rung& rung) {
  const Rung* const previous = previous_of(rung);
  INFO(rung.name);
  REQUIRE(previous);
  return *previous;
}

const Problem& problem(const Shape& shape, std::span<const InputKind> kinds) {
  return once([&] { return make_problem(shape, kinds, 1); }, to_string(shape), std::vector(kinds.begin(), kinds.end()));
}

const Problem& problem(const Shape& shape, InputKind kind) {
  return problem(shape, std::span(&kind, 1));
}

std::string reasons(const CheckResult& result) {
  std::string text =
      fmt::format("{} ({}), {}, {}", result.rung, result.variant, to_string(result.shape), result.inputs);
  for (const Failure& failure : result.failures) {
    text += fmt::format("\n  {}: {}", to_string(failure.kind), failure.message);
  }
  return text;
}

const CheckResult& checked(const Rung& rung, const Variant& variant, const Shape& shape) {
  const CheckResult& result =
      once([&] { return check_on_emulator(rung, variant, problem(shape)); }, &variant, to_string(shape));
  INFO(reasons(result));
  REQUIRE(result.ok);
  return result;
}

const CheckResult& checked(const Rung& rung, const Shape& shape) {
  return checked(rung, rung.variants[0], shape);
}

const emulator::Counters& counted(const Rung& rung, const Variant& variant, const Shape& shape) {
  return checked(rung, variant, shape).counters.value();
}

const emulator::Counters& counted(const Rung& rung, const Shape& shape) {
  return counted(rung, rung.variants[0], shape);
}

bool same_bits(const CheckResult& a, const CheckResult& b) {
  return std::ranges::equal(a.output.half(), b.output.half(), {}, &f16::bits, &f16::bits);
}

const Variant& with_tile(const Rung& rung, const Tile& tile) {
  const auto variant = std::ranges::find(rung.variants, tile, &Variant::tile);
  INFO(rung.name << " with " << tile.br << "x" << tile.bc << ", " << tile.warps << " warps");
  REQUIRE(variant != rung.variants.end());
  return *variant;
}

std::map<std::string, uint64_t> ldmatrix_by_region(const Rung& rung, const Variant& variant, const Shape& shape) {
  std::map<std::string, uint64_t> requests;
  for (const emulator::SiteCounts& site : counted(rung, variant, shape).sites) {
    if (is_ldmatrix(site)) requests[site.buffer] += site.requests;
  }
  return requests;
}

std::map<std::string, uint64_t> ldmatrix_by_region(const Rung& rung, const Shape& shape) {
  return ldmatrix_by_region(rung, rung.variants[0], shape);
}

Traffic traffic(const emulator::Counters& counters, std::string_view region, std::string_view instruction) {
  Traffic sum;
  for (const emulator::SiteCounts& site : counters.sites) {
    if (site.buffer != region || !std::string_view(site.instruction).starts_with(instruction)) continue;
    sum.requests += site.requests;
    sum.wavefronts += site.wavefronts;
    sum.ideal += site.ideal;
  }
  return sum;
}

Loads first_blocks_loads(const Rung& rung, std::string_view buffer, const Shape& shape) {
  Loads found;
  for (const auto& event : run_on_emulator(rung, rung.variants[0], problem(shape), {.trace = true}).trace) {
    if (event.global.buffer == buffer) ++found[{event.bytes, event.global.bytes}];
  }
  return found;
}

uint64_t bytes_read_by_tile(const Tile& tile, const Shape& shape) {
  const uint64_t rows = shape.batch_heads() * shape.n, row_bytes = shape.d * 2, blocks = rows / tile.br;
  return rows * row_bytes + blocks * 2 * shape.n * row_bytes;
}

Overlaps mma_under_copies(const Rung& rung) {
  const auto count = [&] {
    const Tile& tile = rung.variants[0].tile;
    const Shape shape{.batch = 1, .heads = 1, .n = 4 * tile.bc, .d = 128};
    emulator::Options options{.trace = true};
    options.slices = shape.n / tile.br;  // the block that is traced, and the last one
    const EmulatorRun run = run_on_emulator(rung, rung.variants[0], problem(shape), options);
    Overlaps overlaps;
    std::set<std::string> in_flight;
    std::string product;
    for (const emulator::TraceEvent& event : run.trace) {
      if (event.warp != 0) continue;
      const std::string& region = event.shared.buffer;
      if (event.instruction == "cp.async.16" || event.instruction.starts_with("cp.async.bulk"))
        in_flight.insert(region);
      if (event.instruction == "cp.async.wait_group" && event.operand == 0) in_flight.clear();
      if (event.instruction == "mbarrier.try_wait.parity" && region == "full") in_flight.clear();
      if (event.instruction.starts_with("ldmatrix") && region != "Q") product = region;
      if (event.instruction.starts_with("mma")) {
        for (const std::string& copy : in_flight) ++overlaps[{copy, product}];
      }
    }
    return overlaps;
  };
  return once(count, &rung);
}

int mma_per_tile(const Rung& rung) {
  const Tile& tile = rung.variants[0].tile;
  return tile.m_tiles() * (tile.bc / 8) * (SMALL.d / 16);
}

Problem growing_scores(const Rung& rung, float growth) {
  const int bc = rung.variants[0].tile.bc;
  const Accepts& accepts = rung.variants[0].accepts;
  const Shape shape{.batch = 1,
                    .heads = 1,
                    .n = GROWING_TILES * bc,
                    .d = 128,
                    .q_type = accepts.q,
                    .kv_type = accepts.kv,
                    .o_type = accepts.o,
                    .scales = accepts.scales};
  // Column 0 makes the growth, up to 0 in the last tile; the others are small enough for it to decide.
  constexpr float Q_0 = 8.0f;
  const float step = growth * std::numbers::ln2_v<float> / shape.scale() / Q_0;
  Problem problem{shape, {InputKind::normal}, 1, make_inputs(InputKind::normal, shape, 1), {}};
  Tensor &Q = problem.inputs["Q"], &K = problem.inputs["K"];
  for (int64_t i = 0; i < Q.spec().elements(); ++i) Q.set(i, Q[static_cast<size_t>(i)] / 4);
  for (int row = 0; row < shape.n; ++row) {
    Q.set(int64_t{row} * shape.d, Q_0);
    K.set(int64_t{row} * shape.d, step * float(row / bc - (GROWING_TILES - 1)));
  }
  return problem;
}

CheckResult judged(const Rung& rung, Problem problem) {
  std::vector<Cell> rows;
  for (int64_t row = 0; row < problem.shape.batch_heads() * problem.shape.n; row += 7) {
    rows.push_back({row / problem.shape.n, row % problem.shape.n});
  }
  problem.reference = make_reference(problem.shape, problem.inputs, rows);
  const auto found = std::ranges::find_if(rung.variants, [&](const auto& each) { return takes(each, problem.shape); });
  return check_on_emulator(rung, found == rung.variants.end() ? rung.variants[0] : *found, problem);
}

namespace {

// A trace of the first block, with growing scores.
EmulatorRun growing_run(const Rung& rung, float growth) {
  const Problem problem = growing_scores(rung, growth);
  emulator::Options options{.trace = true};
  options.slices = problem.shape.n / rung.variants[0].tile.br;  // the block that is traced, and the last one
  return run_on_emulator(rung, rung.variants[0], problem, options);
}

}  // namespace

std::vector<int> rescaled_tiles(const Rung& rung, float growth) {
  const auto find = [&] {
    std::vector<int> tiles;
    int votes = 0;
    for (const emulator::TraceEvent& event : growing_run(rung, growth).trace) {
      if (event.warp != 0 || event.instruction != "vote.any") continue;
      if (event.operand != 0) tiles.push_back(votes);
      ++votes;
    }
    CHECK(votes == GROWING_TILES);
    return tiles;
  };
  return once(find, &rung, growth);
}

int under_products(const Rung& rung, std::string_view instruction) {
  const auto count = [&] {
    int times = 0, in_flight = 0;  // groups of products
    for (const emulator::TraceEvent& event : growing_run(rung, 0.0f).trace) {
      if (event.warp != 0) continue;
      if (event.instruction == "wgmma.commit_group") ++in_flight;
      if (event.instruction == "wgmma.wait_group") in_flight = std::min(in_flight, event.operand);
      if (event.instruction == instruction && in_flight > 0) ++times;
    }
    return times;
  };
  return once(count, &rung, std::string(instruction));
}

std::set<int> copying_warps(const Rung& rung) {
  std::set<int> warps;
  for (const auto& event : run_on_emulator(rung, rung.variants[0], problem(SMALL), {.trace = true}).trace) {
    if (event.instruction.starts_with("cp.async.bulk.tensor")) warps.insert(event.warp);
  }
  return warps;
}

int in_machine_code(const Rung& rung, const Variant& variant, std::string_view opcode) {
  // "Config<64, 128, 4>" is recorded as "flash_attention<64, 128, 4>"; a flag that is left out as 0.
  std::string parameters = variant.config.substr(std::min(variant.config.find('<'), variant.config.size()));
  const std::string without_flag = parameters.substr(0, parameters.size() - 1) + ", 0>";
  std::ifstream file(LADDER_SOURCE_DIR "/docs/results/h200_counters.csv");
  for (std::string line; std::getline(file, line);) {
    const size_t metric = line.find(fmt::format(",sass.{},inst,", opcode));
    if (!line.starts_with(fmt::format("{},", rung.name)) || metric == std::string::npos) continue;
    for (const std::string& kernel : {parameters, without_flag}) {
      if (line.find(kernel + "\"") != std::string::npos) return std::stoi(line.substr(line.find("inst,", metric) + 5));
    }
  }
  FAIL(fmt::format("no sass.{} of {} ({}) in docs/results/h200_counters.csv", opcode, rung.name, variant.config));
  return 0;
}

int in_machine_code(const Rung& rung, std::string_view opcode) {
  return in_machine_code(rung, rung.variants[0], opcode);
}

}  // namespace ladder::claims
