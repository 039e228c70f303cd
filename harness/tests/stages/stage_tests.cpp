// Every rung of the ladder, on the emulator. CTest runs this program once per stage (LADDER_STAGE names it), and once for
// what holds between stages; without LADDER_STAGE, [stage] covers all of them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <numbers>
#include <set>
#include <sstream>

#include "harness/devices/emulator_run.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/tests/catch.hpp"
#include "harness/verify/check.hpp"
#include "harness/verify/properties.hpp"
#include "harness/verify/trials.hpp"

using namespace ladder;

namespace {

constexpr Shape FULL{.batch = 1, .heads = 1, .n = 512, .d = 128};
constexpr Shape SMALL{.batch = 1, .heads = 1, .n = 256, .d = 128};  // two KV tiles of the widest stage
constexpr Shape HEADS{.batch = 2, .heads = 3, .n = 256, .d = 128};  // several heads, few tiles each
constexpr Shape CAUSAL{.batch = 1, .heads = 1, .n = 256, .d = 128, .causal = true};

// Those named by LADDER_STAGE; all without it.
std::vector<const Stage*> stages_to_test() {
  const char* name = std::getenv("LADDER_STAGE");
  std::vector<const Stage*> chosen;
  for (const Stage& stage : stages()) {
    if (name == nullptr || stage.name == name) chosen.push_back(&stage);
  }
  return chosen;
}

const Problem& problem(const Shape& shape, InputKind kind) {
  static std::map<std::tuple<int, int, int, bool, InputKind>, Problem> known;
  const auto key = std::tuple(shape.batch, shape.heads, shape.n, shape.causal, kind);
  const auto place = known.find(key);
  return place != known.end() ? place->second : known.emplace(key, make_problem(shape, kind, 1)).first->second;
}

// All that went wrong, for the message of a failed test.
std::string reasons(const CheckResult& result) {
  std::string text =
      fmt::format("{} ({}), {}, {}", result.stage, result.variant, to_string(result.shape), result.inputs);
  for (const Failure& failure : result.failures) {
    text += fmt::format("\n  {}: {}", to_string(failure.kind), failure.message);
  }
  return text;
}

const Stage* find(std::string_view name) {
  const auto stage = std::ranges::find(stages(), name, &Stage::name);
  return stage == stages().end() ? nullptr : &*stage;
}

// ldmatrix instructions per named region of shared memory: "Q", "K", "V".
std::map<std::string, uint64_t> ldmatrix_by_region(const Stage& stage, const Variant& variant) {
  const CheckResult result = check_on_emulator(stage, variant, problem(SMALL, InputKind::normal));
  std::map<std::string, uint64_t> requests;
  for (const emulator::SiteCounts& site : result.counters.value().sites) {
    if (is_ldmatrix(site)) requests[site.buffer] += site.requests;
  }
  return requests;
}

const Variant* with_tile(const Stage& stage, const Tile& tile) {
  const auto variant = std::ranges::find(stage.variants, tile, &Variant::tile);
  return variant == stage.variants.end() ? nullptr : &*variant;
}

}  // namespace

// ---- each stage ------------------------------------------------------------------------------------------------------

TEST_CASE("the stage is registered and has an emulated build", "[stage]") {
  REQUIRE_FALSE(stages_to_test().empty());
  for (const Stage* stage : stages_to_test()) {
    REQUIRE_FALSE(stage->variants.empty());
    std::set<std::string> labels;
    for (const Variant& variant : stage->variants) {
      INFO(stage->name << " " << variant.label);
      CHECK(variant.on_emulator != nullptr);
      CHECK(variant.predict);
      CHECK(labels.insert(variant.label).second);
    }
    CHECK_FALSE(stage->idea.empty());
    CHECK_FALSE(stage->limit.empty());
    CHECK_FALSE(stage->prediction.empty());
    CHECK_FALSE(stage->needs.empty());
    CHECK_FALSE(stage->resources.empty());
  }
}

TEST_CASE("the default variant passes what a reader's check holds it to", "[stage]") {
  for (const Stage* stage : stages_to_test()) {
    for (const Trial& trial : emulator_trials(*stage, stage->variants[0], FULL, {})) {
      Problem given = make_problem(trial.shape, trial.kinds, trial.seed);
      given.far_heads = trial.far_heads;
      for (const CheckResult& result :
           check_sets_on_emulator(*stage, stage->variants[0], given, {}, trial.both_builds)) {
        INFO(reasons(result));
        CHECK(result.ok);
      }
    }
  }
}

TEST_CASE("every variant is right and counts what it predicts, for one head and for several", "[stage]") {
  for (const Stage* stage : stages_to_test()) {
    for (const Variant& variant : stage->variants) {
      for (const Shape& shape : {SMALL, HEADS}) {
        const CheckResult result = check_on_emulator(*stage, variant, problem(shape, InputKind::normal));
        INFO(reasons(result));
        CHECK(result.ok);  // includes counts against Variant::predict, and conflicts against conflict_ways
      }
    }
  }
}

TEST_CASE("a stage that does causal is right and counts what it predicts, and no later key changes a row", "[stage]") {
  for (const Stage* stage : stages_to_test()) {
    CHECK(supports(*stage, stage->variants[0], CAUSAL).has_value() == stage->variants[0].causal);
    if (!stage->variants[0].causal) continue;
    for (const InputKind kind : all_input_kinds()) {
      const CheckResult result = check_on_emulator(*stage, stage->variants[0], problem(CAUSAL, kind));
      INFO(reasons(result));
      CHECK(result.ok);
    }
    for (const Variant& variant : stage->variants) {
      const CheckResult result = check_on_emulator(*stage, variant, problem(CAUSAL, InputKind::normal));
      INFO(reasons(result));
      CHECK(result.ok);
      for (const CheckResult& property : check_properties(*stage, variant, CAUSAL, 1, Backend::emulator)) {
        INFO(reasons(property));
        CHECK(property.ok);
      }
    }
  }
}

TEST_CASE("the stage has the conflicts that it predicts, on its worst ldmatrix line", "[stage]") {
  for (const Stage* stage : stages_to_test()) {
    for (const Variant& variant : stage->variants) {
      const CheckResult result = check_on_emulator(*stage, variant, problem(SMALL, InputKind::normal));
      const emulator::SiteCounts* const worst = worst_ldmatrix(result.counters.value());
      INFO(stage->name << " " << variant.label);
      CHECK((worst == nullptr ? 0.0 : worst->ways()) == variant.conflict_ways);
    }
  }
}

TEST_CASE("the properties of attention hold", "[stage]") {
  for (const Stage* stage : stages_to_test()) {
    for (const CheckResult& result : check_properties(*stage, stage->variants[0], SMALL, 1, Backend::emulator)) {
      INFO(reasons(result));
      CHECK(result.ok);
    }
  }
}

TEST_CASE("the tile's shape changes nothing beyond rounding", "[stage]") {
  for (const Stage* stage : stages_to_test()) {
    const Problem& given = problem(SMALL, InputKind::normal);
    const CheckResult first = check_on_emulator(*stage, stage->variants[0], given);
    for (const Variant& variant : stage->variants) {
      const CheckResult other = check_on_emulator(*stage, variant, given);
      INFO(stage->name << ": " << stage->variants[0].label << " against " << variant.label);
      CHECK(largest_difference(first.output, other.output) <= given.reference.tolerance());
    }
  }
}

TEST_CASE("an N that the tile does not divide is refused, never shortened", "[stage]") {
  for (const Stage* stage : stages_to_test()) {
    const Status status = supports(*stage, stage->variants[0], {.n = 1000});
    CHECK(status.has_value() == (stage->variants[0].tile.br == 0));  // no tile, any N
  }
}

TEST_CASE("a stage for any shape takes lengths and head dimensions that are no power of two", "[stage]") {
  for (const Stage* stage : stages_to_test()) {
    if (stage->variants[0].min_d > 1) continue;
    for (const Shape& shape :
         {Shape{.batch = 1, .heads = 1, .n = 1, .d = 1}, Shape{.batch = 1, .heads = 2, .n = 77, .d = 40},
          Shape{.batch = 3, .heads = 1, .n = 33, .d = 256}}) {
      const CheckResult result =
          check_on_emulator(*stage, stage->variants[0], make_problem(shape, InputKind::normal, 2));
      INFO(reasons(result));
      CHECK(result.ok);
    }
  }
}

// ---- between stages ----------------------------------------------------------------------------------------------------

TEST_CASE("the registry and the numbered directories are the same list", "[ladder]") {
  std::set<std::string> directories, registered;
  std::istringstream list(LADDER_STAGE_DIRECTORIES);
  for (std::string name; std::getline(list, name, ',');) directories.insert(name);
  for (const Stage& stage : stages()) registered.insert(std::string(stage.name));
  CHECK(registered == directories);
  CHECK_FALSE(registered.empty());
  for (const Stage& stage : stages()) {
    CHECK(std::filesystem::exists(std::filesystem::path(LADDER_SOURCE_DIR) / stage.directory / "kernel.cuh"));
  }
}

TEST_CASE("01 has 8-way conflicts, and every later stage has none", "[ladder]") {
  for (const Stage& stage : stages()) {
    if (stage.name < "01") continue;
    INFO(stage.name);
    const double expected = stage.name == "01_base" ? 8.0 : 1.0;
    CHECK(stage.variants[0].conflict_ways == expected);
    const CheckResult result = check_on_emulator(stage, stage.variants[0], problem(SMALL, InputKind::normal));
    CHECK(ldmatrix_ways(result.counters.value()) == expected);
  }
}

TEST_CASE("the swizzle is the only thing that removes the conflicts: same tile in 01 and 02", "[ladder]") {
  const Stage *base = find("01_base"), *swizzle = find("02_swizzle");
  REQUIRE(base);
  REQUIRE(swizzle);
  const Variant* plain = with_tile(*base, swizzle->variants[0].tile);
  REQUIRE(plain);
  CHECK(ldmatrix_by_region(*base, *plain) == ldmatrix_by_region(*swizzle, swizzle->variants[0]));
}

// How many mma of each product a warp issues while its copy into `in_flight` has been started and not yet waited for.
// The product is named by the operand that its fragments were last read from: K is QK, V is PV. A wait for one place of a
// ring counts for all of them.
std::map<std::pair<std::string, std::string>, int> mma_under_copies(const Stage& stage) {
  emulator::Options options;
  options.trace = true;
  const Shape shape{.batch = 1, .heads = 1, .n = 4 * stage.variants[0].tile.bc, .d = 128};
  const Problem& four_tiles = problem(shape, InputKind::normal);
  const EmulatorRun run = run_on_emulator(stage, stage.variants[0], four_tiles, options);
  std::map<std::pair<std::string, std::string>, int> overlaps;
  std::set<std::string> in_flight;
  std::string product;
  for (const emulator::TraceEvent& event : run.trace) {
    if (event.warp != 0) continue;
    const std::string& region = event.shared.buffer;
    if (event.instruction == "cp.async.16" || event.instruction.starts_with("cp.async.bulk")) in_flight.insert(region);
    if (event.instruction == "cp.async.wait_group" && event.operand == 0) in_flight.clear();
    if (event.instruction == "mbarrier.try_wait.parity" && region == "full") in_flight.clear();
    if (event.instruction.starts_with("ldmatrix") && region != "Q") product = region;
    if (event.instruction.starts_with("mma")) {
      for (const std::string& copy : in_flight) ++overlaps[{copy, product}];
    }
  }
  return overlaps;
}

TEST_CASE("from 03 on, V is copied under QK and the next K under PV; from 10 on, both under PV", "[ladder]") {
  using Overlaps = std::map<std::pair<std::string, std::string>, int>;
  for (const Stage& stage : stages()) {
    if (stage.name < "01") continue;
    INFO(stage.name);
    const Tile tile = stage.variants[0].tile;
    const int per_tile = tile.m_tiles() * tile.bc / 8 * (128 / 16);  // mma of one product, per warp
    // K's first copy has no product before it; the V of 03 to 09 is copied in the tile that uses it, so in all four. The
    // ring of 14 has its first two tiles copied before any product.
    const int requests = stage.name < "14" ? 3 : 2;
    const Overlaps expected = stage.name < "03" ? Overlaps{}
                              : stage.name < "10"
                                  ? Overlaps{{{"V", "K"}, 4 * per_tile}, {{"K", "V"}, 3 * per_tile}}
                                  : Overlaps{{{"V", "V"}, requests * per_tile}, {{"K", "V"}, requests * per_tile}};
    CHECK(mma_under_copies(stage) == expected);
  }
}

TEST_CASE("04 loads V with half as many ldmatrix as 03, and K and Q with as many", "[ladder]") {
  const Stage *before = find("03_kvpipe"), *after = find("04_vpair");
  REQUIRE(before);
  REQUIRE(after);
  REQUIRE(before->variants[0].tile == after->variants[0].tile);
  auto counts_before = ldmatrix_by_region(*before, before->variants[0]);
  auto counts_after = ldmatrix_by_region(*after, after->variants[0]);
  CHECK(counts_after["V"] * 2 == counts_before["V"]);
  CHECK(counts_after["V"] > 0);
  CHECK(counts_after["K"] == counts_before["K"]);
  CHECK(counts_after["Q"] == counts_before["Q"]);
}

TEST_CASE("06 loads K and V with half as many ldmatrix per query row as 05", "[ladder]") {
  const Stage *before = find("05_exp2f"), *after = find("06_batched");
  REQUIRE(before);
  REQUIRE(after);
  // Both solve the same shape, so totals are per query row already.
  auto counts_before = ldmatrix_by_region(*before, before->variants[0]);
  auto counts_after = ldmatrix_by_region(*after, after->variants[0]);
  CHECK(counts_after["K"] * 2 == counts_before["K"]);
  CHECK(counts_after["V"] * 2 == counts_before["V"]);
  CHECK(counts_after["V"] > 0);
  // At 05's tile there is one 16-row group per warp and nothing to share: batching alone is worth nothing.
  const Variant* same_tile = with_tile(*after, before->variants[0].tile);
  REQUIRE(same_tile);
  CHECK(ldmatrix_by_region(*after, *same_tile) == counts_before);
}

// Of the eight tiles of a row whose scores grow by `growth` log2 units a tile: those in which `stage` rescales O.
std::vector<int> rescaled_tiles(const Stage& stage, float growth) {
  const int bc = stage.variants[0].tile.bc;
  const Shape shape{.batch = 1, .heads = 1, .n = 8 * bc, .d = 128};
  Problem problem{shape, {InputKind::normal}, 1, make_inputs(InputKind::normal, shape, 1), {}};
  // Column 0 makes the growth, up to 0 in the last tile; the others are small enough for it to decide.
  constexpr float Q_0 = 8.0f;
  const float step = growth * std::numbers::ln2_v<float> / shape.scale() / Q_0;
  for (f16& value : problem.inputs.half("Q")) value = to_f16(to_float(value) / 4);
  for (int row = 0; row < shape.n; ++row) {
    problem.inputs.half("Q")[row * shape.d] = to_f16(Q_0);
    problem.inputs.half("K")[row * shape.d] = to_f16(step * float(row / bc - 7));
  }
  problem.reference = make_reference(shape, problem.inputs);
  const CheckResult result = check_on_emulator(stage, stage.variants[0], problem);
  INFO(reasons(result));
  CHECK(result.ok);

  const EmulatorRun run = run_on_emulator(stage, stage.variants[0], problem, {.trace = true});
  std::vector<int> tiles;
  int tile = 0;
  for (const emulator::TraceEvent& event : run.trace) {
    if (event.warp != 0 || event.instruction != "vote.any") continue;
    if (event.operand != 0) tiles.push_back(tile);
    ++tile;
  }
  CHECK(tile == 8);
  return tiles;
}

TEST_CASE("09 to 12 rescale O in the first tile and when the maximum has grown by more than 8, else not", "[ladder]") {
  for (const char* name : {"09_rescale", "10_mbarrier", "11_addresses", "12_wide"}) {
    INFO(name);
    const Stage* stage = find(name);
    REQUIRE(stage);
    CHECK(rescaled_tiles(*stage, -20.0f) == std::vector{0});
    CHECK(rescaled_tiles(*stage, 0.0f) == std::vector{0});
    CHECK(rescaled_tiles(*stage, 3.0f) == std::vector{0, 3, 6});  // by 9; by 6 not yet
    CHECK(rescaled_tiles(*stage, 20.0f) == std::vector{0, 1, 2, 3, 4, 5, 6, 7});
  }
}

TEST_CASE("bytes from global memory follow the tile's formula", "[ladder]") {
  for (const Stage& stage : stages()) {
    for (const Variant& variant : stage.variants) {
      if (variant.tile.br == 0) continue;
      INFO(stage.name << " " << variant.label);
      const CheckResult result = check_on_emulator(stage, variant, problem(SMALL, InputKind::normal));
      const uint64_t n = SMALL.n, row_bytes = SMALL.d * 2, blocks = n / variant.tile.br;
      CHECK(result.counters.value().gmem_bytes_read == n * row_bytes + blocks * 2 * n * row_bytes);
      CHECK(result.counters.value().gmem_bytes_written == n * (row_bytes + (variant.writes_lse ? 4 : 0)));
    }
  }
}

TEST_CASE("00a to 00ac keep the scores on the chip: any N, and O(n d) bytes written", "[ladder]") {
  for (const char* name : {"00a_rowwise", "00aa_coalesced", "00ab_online", "00ac_ownrow"}) {
    const Stage* stage = find(name);
    REQUIRE(stage);
    for (const Variant& variant : stage->variants) {
      for (const int n : {1, 7, 15, 17, 77, 130}) {
        const Shape shape{.batch = 1, .heads = 2, .n = n, .d = 128};
        const CheckResult result = check_on_emulator(*stage, variant, make_problem(shape, InputKind::normal, 2));
        INFO(reasons(result));
        CHECK(result.ok);
        CHECK(result.counters.value().gmem_bytes_written == uint64_t(2 * n * (128 * 2 + (variant.writes_lse ? 4 : 0))));
      }
    }
  }
}

TEST_CASE("00a takes any head dimension up to 256, as 00 does; with 00aa it is 128 alone", "[ladder]") {
  const Stage *rowwise = find("00a_rowwise"), *coalesced = find("00aa_coalesced");
  REQUIRE(rowwise);
  REQUIRE(coalesced);
  for (const int d : {1, 33, 127, 129, 256}) {
    const Shape shape{.batch = 1, .heads = 2, .n = 40, .d = d};
    const CheckResult result =
        check_on_emulator(*rowwise, rowwise->variants[0], make_problem(shape, InputKind::normal, 2));
    INFO(reasons(result));
    CHECK(result.ok);
    CHECK_FALSE(supports(*coalesced, coalesced->variants[0], shape));
  }
  CHECK_FALSE(supports(*rowwise, rowwise->variants[0], {.n = 40, .d = 257}));
}

TEST_CASE("a warp's load of K takes 2 bytes of 32 rows in 00a and 128 of 4 in 00aa; V is read as before", "[ladder]") {
  // The loads of one buffer by the first block: how many, what all lanes ask for in one, and from where to where.
  using Loads = std::map<std::pair<uint64_t, uint64_t>, int>;
  const auto loads = [](std::string_view name, std::string_view buffer) {
    const Stage* stage = find(name);
    REQUIRE(stage);
    constexpr Shape SHAPE{.batch = 1, .heads = 1, .n = 128, .d = 128};
    const Problem& given = problem(SHAPE, InputKind::normal);
    Loads found;
    for (const auto& event : run_on_emulator(*stage, stage->variants[0], given, {.trace = true}).trace) {
      if (event.global.buffer == buffer) ++found[{event.bytes, event.global.bytes}];
    }
    return found;
  };
  constexpr uint64_t ROW = 128 * 2;
  CHECK(loads("00a_rowwise", "K") == Loads{{{64, 31 * ROW + 2}, 128 * 128 / 32}});
  CHECK(loads("00aa_coalesced", "K") == Loads{{{512, 3 * ROW + 128}, 128 * 128 / 256}});
  CHECK(loads("00a_rowwise", "V") == Loads{{{64, 64}, 128 * 128 / 32}});
  CHECK(loads("00aa_coalesced", "V") == loads("00a_rowwise", "V"));
}

TEST_CASE("00ab asks for the same bytes as 00aa, has a block's warps meet once, and takes rows that 00aa cannot hold",
          "[ladder]") {
  const Stage *coalesced = find("00aa_coalesced"), *online = find("00ab_online");
  REQUIRE(coalesced);
  REQUIRE(online);
  const auto count = [](const Stage& stage) {
    return check_on_emulator(stage, stage.variants[0], problem(SMALL, InputKind::normal)).counters.value();
  };
  const emulator::Counters before = count(*coalesced), after = count(*online);
  CHECK(after.gmem_bytes_read == before.gmem_bytes_read);
  CHECK(after.barriers == uint64_t(SMALL.n));
  CHECK(before.barriers == uint64_t(2 * SMALL.n));
  CHECK(supports(*online, online->variants[0], {.n = 65536}));
  CHECK_FALSE(supports(*coalesced, coalesced->variants[0], {.n = 65536}));
}

TEST_CASE("00ac to 00ae compute the same to the bit, and read K and V ever less often", "[ladder]") {
  std::vector<CheckResult> results;
  for (const char* name : {"00ac_ownrow", "00ad_shared", "00ae_regtile"}) {
    const Stage* stage = find(name);
    REQUIRE(stage);
    results.push_back(check_on_emulator(*stage, stage->variants[0], problem(SMALL, InputKind::normal)));
    CHECK(std::ranges::equal(results[0].output.half(), results.back().output.half(), {}, &f16::bits, &f16::bits));
    CHECK(results.back().counters.value().shuffles == results[0].counters.value().shuffles);
  }
  const auto streamed = [&](size_t i) {  // without Q
    return results[i].counters.value().gmem_bytes_read - SMALL.n * SMALL.d * 2;
  };
  CHECK(streamed(0) == 16 * streamed(1));  // 16 queries to a block
  CHECK(streamed(1) == 4 * streamed(2));   // 64
  const auto loads = [&](size_t i) {
    uint64_t requests = 0;
    for (const emulator::SiteCounts& site : results[i].counters.value().sites) {
      if (site.buffer == "Q" || site.instruction != "ld.shared.v4.b32") continue;
      CHECK(site.wavefronts == site.ideal);
      requests += site.requests;
    }
    return requests;
  };
  CHECK(loads(0) == 0);
  CHECK(loads(1) == 4 * loads(2));  // a value read serves four products
}

TEST_CASE("00af exchanges a quarter as often as 00ae, 00b an eighth as often as 00af and reads an eighth of its Q",
          "[ladder]") {
  std::vector<emulator::Counters> counts;
  for (const char* name : {"00ae_regtile", "00af_wholescores", "00b_tiled"}) {
    const Stage* stage = find(name);
    REQUIRE(stage);
    counts.push_back(check_on_emulator(*stage, stage->variants[0], problem(SMALL, InputKind::normal)).counters.value());
  }
  CHECK(counts[0].shuffles == 4 * counts[1].shuffles);
  CHECK(counts[1].shuffles == 8 * counts[2].shuffles);
  const auto of = [&](size_t i, std::string_view buffer, std::string_view instruction) {
    emulator::SiteCounts sum{};
    for (const emulator::SiteCounts& site : counts[i].sites) {
      if (site.buffer != buffer || site.instruction != instruction) continue;
      sum.requests += site.requests;
      sum.wavefronts += site.wavefronts;
      sum.ideal += site.ideal;
    }
    return sum;
  };
  CHECK(of(1, "Q", "ld.shared.v4.b32").requests == 8 * of(2, "Q", "ld.shared.v4.b32").requests);
  CHECK(of(1, "K", "ld.shared.v4.b32").wavefronts == of(1, "K", "ld.shared.v4.b32").ideal);
  // Single weights of four rows meet in a bank; four at a time fill it.
  const emulator::SiteCounts single = of(1, "P", "st.shared.b32"), four = of(2, "P", "st.shared.v4.b32");
  CHECK(single.requests > 0);
  CHECK(single.wavefronts == 4 * single.ideal);
  CHECK(four.requests > 0);
  CHECK(four.wavefronts == four.ideal);
}

TEST_CASE("half the query tile streams K and V twice as often", "[ladder]") {
  const Stage* tiled = find("00b_tiled");
  REQUIRE(tiled);
  const auto streamed = [&](const Variant& variant) {
    const CheckResult result = check_on_emulator(*tiled, variant, problem(SMALL, InputKind::normal));
    return result.counters.value().gmem_bytes_read - SMALL.n * SMALL.d * 2;  // without Q
  };
  const Variant *whole = with_tile(*tiled, {64, 64, 4}), *half = with_tile(*tiled, {32, 64, 2});
  REQUIRE(whole);
  REQUIRE(half);
  CHECK(streamed(*half) == 2 * streamed(*whole));
}

TEST_CASE("00c is 00b to the bit when dense, and visits half of the tiles when causal", "[ladder]") {
  const Stage *dense = find("00b_tiled"), *causal = find("00c_causal");
  REQUIRE(dense);
  REQUIRE(causal);
  const auto run = [](const Stage& stage, const Shape& shape) {
    return check_on_emulator(stage, stage.variants[0], problem(shape, InputKind::normal));
  };
  const CheckResult before = run(*dense, SMALL), after = run(*causal, SMALL);
  CHECK(std::ranges::equal(before.output.half(), after.output.half(), {}, &f16::bits, &f16::bits));
  CHECK(counts_of(*before.counters) == counts_of(*after.counters));
  // Four blocks of queries against 1, 2, 3 and 4 of 4 tiles.
  const uint64_t tiles = run(*causal, CAUSAL).counters.value().barriers / 2;
  CHECK(tiles == 10);
}

TEST_CASE("00ca moves QK to mma, passes S through shared memory and leaves PV as in 00c; 00d moves PV", "[ladder]") {
  const Stage *scalar = find("00c_causal"), *qk = find("00ca_wmmaqk"), *both = find("00d_wmma");
  REQUIRE(scalar);
  REQUIRE(qk);
  REQUIRE(both);
  const Tile common{32, 64, 2};  // 00c's default has no room for S
  struct Run {
    uint64_t mma, barriers, shuffles, gmem_bytes_read;
    std::map<std::string, uint64_t> read, written;  // wavefronts per region of shared memory
  };
  const auto run = [&](const Stage& stage) {
    const Variant* variant = with_tile(stage, common);
    REQUIRE(variant);
    const emulator::Counters counts =
        check_on_emulator(stage, *variant, problem(SMALL, InputKind::normal)).counters.value();
    Run result{counts.mma, counts.barriers, counts.shuffles, counts.gmem_bytes_read, {}, {}};
    for (const emulator::SiteCounts& site : counts.sites) {
      const bool stores = site.instruction.starts_with("st.") || site.instruction.starts_with("wmma.store");
      (stores ? result.written : result.read)[site.buffer] += site.wavefronts;
    }
    return result;
  };
  Run before = run(*scalar), middle = run(*qk), after = run(*both);
  CHECK(before.mma == 0);
  CHECK(middle.mma > 0);
  CHECK(after.mma == 2 * middle.mma);
  CHECK(before.read.count("S") == 0);
  // PV of 00ca is 00c's, and its QK is 00d's.
  for (const char* region : {"V", "P"}) {
    INFO(region);
    CHECK(middle.read[region] == before.read[region]);
    CHECK(middle.written[region] == before.written[region]);
  }
  for (const char* region : {"Q", "K"}) {
    INFO(region);
    CHECK(middle.read[region] == after.read[region]);
    CHECK(middle.written[region] == after.written[region]);
  }
  CHECK(middle.read["S"] > 0);
  CHECK(middle.read["S"] < after.read["S"]);  // where P V comes through too
  for (const Run* other : {&before, &after}) {
    CHECK(other->barriers == middle.barriers);
    CHECK(other->shuffles == middle.shuffles);
    CHECK(other->gmem_bytes_read == middle.gmem_bytes_read);
  }
}

TEST_CASE("the passes over the banks that the chapters of 00ca and 00d count", "[ladder]") {
  const auto run = [](std::string_view name, const Tile& tile) {
    const Stage* stage = find(name);
    REQUIRE(stage);
    const Variant* variant = with_tile(*stage, tile);
    REQUIRE(variant);
    return check_on_emulator(*stage, *variant, problem(FULL, InputKind::normal)).counters.value();
  };
  const auto passes = [](const emulator::Counters& counts, std::string_view region) {
    uint64_t wavefronts = 0;
    for (const emulator::SiteCounts& site : counts.sites) {
      if (site.buffer == region) wavefronts += site.wavefronts;
    }
    return wavefronts;
  };
  const emulator::Counters scalar = run("00c_causal", {64, 64, 4}), qk = run("00ca_wmmaqk", {64, 32, 4}),
                           both = run("00d_wmma", {64, 32, 4});
  const uint64_t groups = 512 / 16 * 512 / 64;  // of 16 queries and 64 keys
  CHECK(scalar.smem_wavefronts / groups == 1636);
  CHECK(qk.smem_wavefronts / groups == 2468);
  CHECK(qk.smem_wavefronts == 631808);
  CHECK(qk.smem_wavefronts_ideal == 254976);
  CHECK(both.smem_wavefronts_ideal == 189440);
  for (const emulator::Counters* counts : {&qk, &both}) {
    CHECK(passes(*counts, "Q") + passes(*counts, "K") == 393216 + 9216);  // loads and stores
  }
  CHECK(passes(qk, "S") == 16384);
  CHECK(passes(both, "S") == 16384 + 65536);  // P V too
  CHECK(passes(qk, "P") == 73728);
  CHECK(passes(both, "P") == 16384);
  CHECK(passes(qk, "V") == 131072 + 8192);
  CHECK(passes(both, "V") == 262144 + 8192);
  CHECK(run("00ca_wmmaqk", {32, 64, 2}).smem_wavefronts == 582656);
}

TEST_CASE("from 00d to 00f first P and P V leave shared memory, then S, and nothing else does", "[ladder]") {
  const Stage* base = find("01_base");
  REQUIRE(base);
  const auto run = [](const Stage& stage) {
    return check_on_emulator(stage, stage.variants[0], problem(FULL, InputKind::normal)).counters.value();
  };
  const emulator::Counters without = run(*base);
  CHECK(without.smem_wavefronts == 672768);
  struct Rung {
    std::string_view stage;
    uint64_t S, P;  // wavefronts; P V goes through the memory of S: 65,536 of them in 00d and 00da
  };
  // The figures of the chapters.
  for (const Rung& rung : {Rung{"00d_wmma", 81920, 16384}, Rung{"00da_fraglayout", 81920, 16384},
                           Rung{"00e_mmapv", 16384, 0}, Rung{"00f_mmaqk", 0, 0}, Rung{"00g_rowgroups", 0, 0}}) {
    INFO(rung.stage);
    const Stage* stage = find(rung.stage);
    REQUIRE(stage);
    const emulator::Counters with = run(*stage);
    std::map<std::string, uint64_t> wavefronts;
    uint64_t ideal = 0;
    for (const emulator::SiteCounts& site : with.sites) {
      wavefronts[site.buffer] += site.wavefronts;
      if (site.buffer == "S" || site.buffer == "P") ideal += site.ideal;
    }
    CHECK(wavefronts["S"] == rung.S);
    CHECK(wavefronts["P"] == rung.P);
    CHECK(with.smem_wavefronts - rung.S - rung.P == without.smem_wavefronts);
    CHECK(with.smem_wavefronts_ideal - ideal == without.smem_wavefronts_ideal);
    CHECK(with.mma == without.mma);
    if (rung.stage == "00d_wmma")
      CHECK(double(ideal) / double(with.smem_wavefronts_ideal) == Approx(0.48).epsilon(0.01));
  }
}

TEST_CASE("when dense, 00f, 00g and 01 agree to the bit and in all counts but the log-sum-exp's bytes", "[ladder]") {
  const auto run = [](std::string_view name) {
    const Stage* stage = find(name);
    REQUIRE(stage);
    return check_on_emulator(*stage, stage->variants[0], problem(SMALL, InputKind::normal));
  };
  const CheckResult one_group = run("00f_mmaqk"), two_groups = run("00g_rowgroups"), base = run("01_base");
  CHECK(std::ranges::equal(one_group.output.half(), two_groups.output.half(), {}, &f16::bits, &f16::bits));
  CHECK(std::ranges::equal(two_groups.output.half(), base.output.half(), {}, &f16::bits, &f16::bits));
  CHECK(counts_of(*one_group.counters) == counts_of(*two_groups.counters));
  Counts without = counts_of(*two_groups.counters);
  without.gmem_bytes_written -= uint64_t(SMALL.n) * 4;
  CHECK(counts_of(*base.counters) == without);
}

TEST_CASE("00 moves O(n^2) bytes: twice the length, four times the bytes", "[ladder]") {
  const Stage* naive = find("00_naive");
  REQUIRE(naive);
  const auto bytes = [&](int n) {
    const Problem given = make_problem({.n = n}, InputKind::normal, 1);
    return double(check_on_emulator(*naive, naive->variants[0], given).counters.value().gmem_bytes_read);
  };
  CHECK(bytes(128) / bytes(64) == Approx(4.0).epsilon(0.01));
}
