// Every rung of the ladder, on the emulator, by what it declares itself: no rung is named here. CTest runs this program for a few
// neighbours at a time (LADDER_STAGES names them) with the claims of their directories, and once for what holds between rungs; without
// LADDER_STAGES, [stage] covers all of them.
//
// A rung costs the suite a second at most: the problems are as small as two tiles of keys allow.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <numeric>
#include <set>
#include <sstream>

#include "harness/problem/shapes.hpp"
#include "harness/tests/catch.hpp"
#include "harness/tests/stages/claims.hpp"
#include "harness/verify/check.hpp"
#include "harness/verify/properties.hpp"
#include "harness/verify/record.hpp"
#include "harness/verify/trials.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

std::set<std::string> words_of(const char* list) {
  std::set<std::string> words;
  std::istringstream stream(list);
  for (std::string word; std::getline(stream, word, ',');) words.insert(word);
  return words;
}

// Those named by LADDER_STAGES; all without it.
std::vector<const Rung*> rungs_to_test() {
  const char* names = std::getenv("LADDER_STAGES");
  std::vector<const Rung*> chosen;
  for (const Rung& rung : rungs()) {
    if (names == nullptr || words_of(names).contains(std::string(rung.name))) chosen.push_back(&rung);
  }
  return chosen;
}

// The shortest length from `least` on that all of these variants take.
int length_for(std::span<const Variant> variants, int least) {
  int step = 1;
  for (const Variant& variant : variants) {
    step = std::lcm(step, std::lcm(std::max(1, variant.tile.br), std::max(1, variant.tile.bc)));
  }
  return (least + step - 1) / step * step;
}

// Two tiles of keys of each variant; of a variant without a tile, more keys than a warp has lanes, and an odd number.
int two_tiles(std::span<const Variant> variants) {
  int widest = 0;
  for (const Variant& variant : variants) widest = std::max(widest, variant.tile.bc);
  return length_for(variants, widest > 0 ? 2 * widest : 45);
}

// Three tiles of keys of a variant, or of queries two: of one without a tile, more rows than a block has warps.
int odd_tiles(const Variant& variant) {
  const Tile& tile = variant.tile;
  return length_for({&variant, 1}, tile.br > 0 ? std::max(2 * tile.bc, tile.br) + 1 : 97);
}

// Several heads of that length, and the head dimension that the variant is for, the default one if none is named.
Shape small(const Rung& rung, int heads, bool causal = false, const Variant* variant = nullptr) {
  const auto& accepts = (variant ? *variant : rung.variants[0]).accepts;
  return {.formula = rung.variants[0].accepts.formula,
          .batch = 1,
          .heads = heads,
          .n = two_tiles(rung.variants),
          .d = fitted(accepts, {}).d,
          .causal = causal,
          .q_type = accepts.q,
          .kv_type = accepts.kv,
          .o_type = accepts.o,
          .scales = accepts.scales};
}

// .ci/nightly makes all of it.
bool is_whole() {
  return std::getenv("LADDER_WHOLE") != nullptr;
}

// The input sets that its formula is tried on: every other one, and the rung behind it has the others; of a rung that has a mask every
// fourth without it, and every fourth under it. (A climb looks at each rung with nearly all of them.)
std::vector<InputKind> kinds_of(const Rung& rung, bool causal) {
  const Formula& formula = formula_of(small(rung, 1));
  const std::span<const InputKind> all = formula.is_attention ? all_input_kinds() : formula.kinds;
  if (is_whole()) return {all.begin(), all.end()};
  const auto place = static_cast<size_t>(&rung - rungs().data());
  const size_t step = rung.variants[0].takes(CAUSAL) ? 4 : 2, first = (place + (causal ? 2 : 0)) % step;
  std::vector<InputKind> kinds;
  for (size_t i = first; i < all.size(); i += step) kinds.push_back(all[i]);
  return kinds;
}

// Input sets for the default variant, a head each.
const Problem& sets(const Rung& rung, std::span<const InputKind> kinds, bool causal = false) {
  Shape shape = small(rung, static_cast<int>(kinds.size()), causal);
  shape.n = two_tiles(std::span(rung.variants).first(1));
  return problem(shape, kinds);
}

// Its worst bank conflicts; 0 without an ldmatrix.
double ways(const CheckResult& result) {
  const emulator::SiteCounts* const worst = worst_ldmatrix(result.counters.value());
  return worst == nullptr ? 0.0 : worst->ways();
}

}  // namespace

// ---- each rung ------------------------------------------------------------------------------------------------------

TEST_CASE("the stage is registered and has an emulated build", "[stage]") {
  REQUIRE_FALSE(rungs_to_test().empty());
  for (const Rung* rung : rungs_to_test()) {
    INFO(rung->name);
    REQUIRE_FALSE(rung->variants.empty());
    std::set<std::string> labels;
    for (const Variant& variant : rung->variants) {
      INFO(variant.label);
      CHECK(variant.on_emulator != nullptr);
      CHECK(variant.predict);
      CHECK(labels.insert(variant.label).second);
    }
    CHECK_FALSE(rung->idea.empty());
    CHECK_FALSE(rung->limit.empty());
    CHECK_FALSE(rung->prediction.empty());
    CHECK_FALSE(rung->needs.empty());
    CHECK_FALSE(rung->resources.empty());
  }
}

TEST_CASE("the default variant is right on every input set, with a mask or without, and has the conflicts that it says",
          "[stage]") {
  for (const Rung* rung : rungs_to_test()) {
    const Variant& variant = rung->variants[0];
    INFO(rung->name);
    CHECK(supports(*rung, variant, small(*rung, 1, true)).has_value() == variant.takes(CAUSAL));
    for (const bool causal : {false, true}) {
      if (causal && !variant.takes(CAUSAL)) continue;
      for (const CheckResult& result :
           check_sets_on_emulator(*rung, variant, sets(*rung, kinds_of(*rung, causal), causal))) {
        INFO(reasons(result));
        CHECK(result.ok);  // counts against Variant::predict, too
        CHECK(ways(result) == variant.conflict_ways);
      }
    }
  }
}

TEST_CASE(
    "the default variant gives the same bits, whatever unset variables hold, and the others differ by rounding only",
    "[stage]") {
  // A maximum that begins at 0 shows where all scores are negative.
  constexpr std::array KINDS{InputKind::normal, InputKind::negative_rows};
  for (const Rung* rung : rungs_to_test()) {
    const Shape shape = small(*rung, std::ssize(KINDS));
    const std::vector<CheckResult> first =
        check_sets_on_emulator(*rung, rung->variants[0], problem(shape, KINDS), {}, true);
    for (const CheckResult& result : first) {
      INFO(reasons(result));
      CHECK(result.ok);
    }
    for (const Variant& variant : std::span(rung->variants).subspan(1)) {
      for (const bool causal : {false, true}) {
        if (causal && !variant.takes(CAUSAL)) continue;
        const Problem& of_variant = problem(small(*rung, std::ssize(KINDS), causal, &variant), KINDS);
        const std::vector<CheckResult> results = check_sets_on_emulator(*rung, variant, of_variant);
        for (const CheckResult& result : results) {
          INFO(reasons(result));
          CHECK(result.ok);
          CHECK(ways(result) == variant.conflict_ways);
        }
        INFO(rung->name << ": " << rung->variants[0].label << " against " << variant.label);
        const Reference& reference = of_variant.reference;
        if (!causal && of_variant.shape.d == shape.d && of_variant.shape.q_type == shape.q_type &&
            of_variant.shape.kv_type == shape.kv_type && of_variant.shape.v_type() == shape.v_type())
          CHECK(largest_difference(first[0].output, results[0].output) <=
                std::max(reference.tolerance(0), reference.tolerance(1)));
      }
    }
  }
}

TEST_CASE("what is recorded of the stage is what it counts", "[stage]") {
  for (const Rung* rung : rungs_to_test()) {
    const auto number = static_cast<size_t>(rung - rungs().data());  // which draws one beside the usual problem
    for (const Variant& variant : rung->variants) {
      if (!variant.recorded || (&variant != &rung->variants[0] && !is_whole())) continue;
      std::vector<Trial> trials = recorded_trials(variant);
      if (!is_whole() && trials.size() > 2) trials = {trials[0], trials[1 + number % (trials.size() - 1)]};
      for (const Trial& trial : trials) {
        CheckResult result = start_result(*rung, variant, trial.shape, "", Place::emulator);
        result.counters = count_recorded(*rung, variant, trial);
        INFO(to_string(trial.shape));
        judge_record(result, *rung, variant, trial);
        INFO(reasons(result));
        CHECK(result.failures.empty());
      }
    }
  }
}

TEST_CASE("the last head of tensors that int cannot number is right, at another scale and number of tiles", "[stage]") {
  // A fifth of a rung's tests: .ci/nightly makes it, and whoever checks a rung by its name goes beyond 2^32.
  if (!is_whole()) return;
  constexpr int FAR_HEADS =
      65535;  // CUDA's limit of gridDim.y; and odd, as blocks that wait for each other may be of two heads in turn
  for (const Rung* rung : rungs_to_test()) {
    const Variant& variant = rung->variants[0];
    // Of 128 columns: more than 2^31 elements, where int ends. `ladder check` goes beyond 2^32.
    Shape shape = small(*rung, 2);
    shape.n = length_for({&variant, 1}, 257);
    shape.softmax_scale = 0.7f * shape.scale();
    Problem far = make_problem(shape, InputKind::normal, 2);
    far.far_heads = FAR_HEADS;
    const CheckResult result = check_on_emulator(*rung, variant, far);
    INFO(reasons(result));
    CHECK(result.ok);
  }
}

TEST_CASE("the first and the last blocks of a grid are right, and they alone run", "[stage]") {
  const std::array kinds{InputKind::last_tile_max, InputKind::creeping_max};
  for (const Rung* rung : rungs_to_test()) {
    const Variant& variant = rung->variants[0];
    Shape shape = small(*rung, 4);
    if (variant.workspace_at(shape) > 0)
      shape.heads = 2;  // which lets all blocks run: the heads between tell nothing new
    else if (variant.few_rows > 0)
      shape.heads = 16;  // a larger tile may be a head's only one: of four heads all would be ends
    shape.n = odd_tiles(variant);
    Problem problem = make_question(shape, kinds, 3);
    problem.ends_only = true;
    for (const CheckResult& result : check_sets_on_emulator(*rung, variant, problem)) {
      INFO(reasons(result));
      CHECK(result.ok);
      CHECK(result.counters->gmem_bytes_written > 0);
      if (variant.tile.br == 0 || variant.workspace_at(shape) > 0) continue;
      const auto all = static_cast<uint64_t>(shape.elements()) * sizeof(f16);
      CHECK(result.counters->gmem_bytes_written < all);
    }
  }
}

TEST_CASE("an N that the tile does not divide is refused, never shortened", "[stage]") {
  for (const Rung* rung : rungs_to_test()) {
    for (const Variant& variant : rung->variants) {
      INFO(rung->name << " " << variant.label);
      const int step = length_for({&variant, 1}, 1);
      for (const int n : {step, 8 * step}) {
        Spec spec = small(*rung, 1, false, &variant);
        spec.n = n;
        spec.d = variant.accepts.max_d;
        CHECK(supports(*rung, variant, spec));
        spec.n += step / 2;
        if (step > 1) CHECK(supports(*rung, variant, spec).has_value() == variant.takes(TAILS));
      }
    }
  }
}

TEST_CASE("a stage without a tile takes any length, and any head dimension that it declares", "[stage]") {
  for (const Rung* rung : rungs_to_test()) {
    const Variant& variant = rung->variants[0];
    if (variant.tile.br > 0) continue;
    const auto of = [&](int batch, int n, int d) {
      Shape shape = small(*rung, 1);
      shape.batch = batch, shape.n = n, shape.d = d;
      return shape;
    };
    const auto [min_d, max_d] = std::pair(variant.accepts.min_d, variant.accepts.max_d);
    for (const Shape& shape : {of(1, 1, min_d), of(2, 33, max_d), of(1, 50, (min_d + max_d) / 2)})
      checked(*rung, variant, shape);
    for (const int d : {min_d - 1, max_d + 1}) CHECK_FALSE(supports(*rung, variant, of(1, 33, d)));
  }
}

// ---- between rungs ----------------------------------------------------------------------------------------------------

TEST_CASE("the registry and the directories of rungs are the same list, and each rung starts from one before it",
          "[ladder]") {
  const std::set<std::string> directories = words_of(LADDER_STAGE_DIRECTORIES);
  std::set<std::string> registered, before;
  for (const Rung& rung : rungs()) {
    INFO(rung.name);
    registered.insert(std::string(rung.name));
    CHECK(std::filesystem::exists(std::filesystem::path(LADDER_SOURCE_DIR) / rung.directory / "kernel.cuh"));
    if (&rung == &rungs().front()) {
      CHECK(rung.previous.empty());
    } else {
      CHECK(before.count(std::string(rung.previous)) == 1);
    }
    before.insert(std::string(rung.name));
  }
  CHECK(registered == directories);
  CHECK_FALSE(registered.empty());
}

TEST_CASE("rungs of another problem than the first one's stand behind all of its own", "[ladder]") {
  const auto other = [](const Rung& rung) {
    return rung.variants.front().accepts.formula != rungs().front().variants.front().accepts.formula;
  };
  CHECK(std::ranges::is_partitioned(rungs(), std::not_fn(other)));
}

TEST_CASE("every row of the table of trials is one of a stage's, by a name of its own", "[ladder]") {
  std::vector<TrialRow> all;
  for (const Rung& rung : rungs()) {
    for (const Variant& variant : rung.variants) {
      const std::vector<TrialRow> rows =
          trial_rows(variant, fitted(variant.accepts, EMULATOR_SHAPE), {.thorough = true});
      all.resize(rows.size());
      for (size_t i = 0; i < rows.size(); ++i) all[i] = {rows[i].name, rows[i].mistake, all[i].trials + rows[i].trials};
    }
  }
  std::set<std::string_view> names;
  for (const TrialRow& row : all) {
    INFO(row.name << ", for " << row.mistake);
    CHECK(row.trials > 0);
    CHECK(names.insert(row.name).second);
  }
}

TEST_CASE("a stage that multiplies by wgmma says that newer GPUs have not got it", "[ladder]") {
  for (const Rung& rung : rungs()) {
    INFO(rung.name);
    if (rung.needs.starts_with("wgmma")) CHECK((rung.min_sm == 90 && rung.max_sm == 90));
  }
}
