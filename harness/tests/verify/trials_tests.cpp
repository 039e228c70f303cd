// What a check launches: the problems that a reader does not ask for by name.
#include "harness/verify/trials.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/problem/inputs.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/tests/catch.hpp"

using namespace ladder;

namespace {

const Rung STAGE{.name = "00_trial", .idea = "", .limit = "", .prediction = ""};
const Variant TILED{.label = "tiled", .tile = {64, 32, 4}};
const Variant ANY{.label = "any", .accepts = {.features = CAUSAL, .min_d = 1, .max_d = 256}};
const Variant CAUSAL_TILED{.label = "tiled", .tile = {64, 32, 4}, .accepts = {.features = CAUSAL}};
constexpr Shape SHAPE{.batch = 1, .heads = 1, .n = 512, .d = 128};

using Trials = std::vector<Trial> (*)(const Variant&, const Shape&, const TrialChoice&);

}  // namespace

TEST_CASE("a check launches normal inputs, all sets in several batches, and a far problem of another shape") {
  Variant with_tensor_cores = TILED;
  with_tensor_cores.predict = [](const Launched&) { return Counts{.mma = 1}; };
  const std::vector<Trial> trials = emulator_trials(with_tensor_cores, SHAPE, {});
  const auto some = [&](const auto& is) { return std::ranges::any_of(trials, is); };
  CHECK(trials[0] == Trial{.shape = SHAPE, .kinds = {InputKind::normal}, .recorded = true});
  CHECK(some([](const Trial& trial) {
    return std::ranges::equal(trial.kinds, all_input_kinds()) && trial.shape.batch > 1 &&
           trial.shape.batch_heads() == std::ssize(all_input_kinds());
  }));
  CHECK(some([](const Trial& trial) { return trial.only_fused && trial.kinds.size() > 9; }));
  // Both builds, where rows are among them of which all scores are negative; without tensor cores that would take long.
  CHECK(some([](const Trial& trial) {
    return trial.both_builds && std::ranges::count(trial.kinds, InputKind::negative_rows) > 0;
  }));
  CHECK(std::ranges::none_of(emulator_trials(TILED, SHAPE, {}), &Trial::both_builds));

  const auto far = std::ranges::find_if(trials, [](const Trial& trial) { return trial.far_heads > 0; });
  REQUIRE(far != trials.end());
  CHECK(int64_t{far->far_heads} * far->shape.n * far->shape.d > int64_t{1} << 32);
  CHECK(far->shape.scale() != SHAPE.scale());
  CHECK(far->seed != trials[0].seed);

  for (const Trial& trial : trials) {  // the same softmax by other numbers
    if (trial.exponents.contains("Q") && trial.exponents.contains("V") && !trial.only_fused && !trial.ends_only)
      CHECK(std::ldexp(trial.shape.scale(), trial.exponents.at("Q") + trial.exponents.at("K")) == SHAPE.scale());
  }
  CHECK(some([](const Trial& trial) { return trial.exponents == Exponents{{"Q", -40}, {"K", -40}}; }));
  CHECK(some([](const Trial& trial) {  // seven tiles of 32 keys, in whole tiles of 64 queries
    return trial.shape.scale() > 10 * SHAPE.scale() && trial.shape.n == 256;
  }));
  CHECK(some([](const Trial& trial) {
    return trial.shape.scale() > 10 * SHAPE.scale() && trial.shape.batch_heads() > 32 &&
           trial.shape.batch_heads() % std::ssize(trial.kinds) == 0;
  }));
  // Blocks that stay on their SM deal the work out by the number of SMs: four, and others, odd and even, few and many.
  std::set<uint32_t> sms;
  for (const Trial& trial : trials) sms.insert(trial.multiprocessors);
  CHECK(sms == std::set<uint32_t>{4, 5, 6, 12, 132});
}

TEST_CASE(
    "sizes that people run are tried, some blocks of them, and whose each query is of whole heads beside each other") {
  Variant fast = CAUSAL_TILED;
  fast.tile = {64, 64, 4};
  fast.accepts.features |= GROUPED;
  fast.predict = [](const Launched&) { return Counts{.mma = 1}; };
  const std::vector<Trial> trials = emulator_trials(fast, SHAPE, {});
  const auto some = [&](const auto& is) { return std::ranges::any_of(trials, is); };
  for (const bool causal : {false, true}) {
    INFO(causal);
    // Eight tiles beside each other, where 16 divides the heads and 1024 the length.
    CHECK(some([=](const Trial& trial) {
      return trial.shape.causal == causal && trial.some >= 8 && trial.shape.heads % 16 == 0 && trial.shape.n >= 2048 &&
             trial.shape.n % 1024 == 0;
    }));
    CHECK(some([=](const Trial& trial) {
      return trial.shape.causal == causal && trial.begins_only && trial.shape.heads % 8 == 0 && trial.shape.n >= 512;
    }));
  }
  CHECK(some([](const Trial& trial) { return trial.some > 0 && trial.shape.n >= 256 * 64; }));  // tiles beyond 8 bits
  for (const auto& [heads, kv_heads] : {std::pair{32, 8}, {16, 2}, {8, 1}}) {
    INFO(heads);
    CHECK(some([&](const Trial& trial) {  // all blocks
      return trial.shape.heads == heads && trial.shape.kv_heads == kv_heads && !trial.ends_only && !trial.begins_only;
    }));
  }
  std::set<int> drawn, begun;  // by one commit or another
  for (uint64_t seed = 1; seed < 200; ++seed) {
    for (const Trial& trial : emulator_trials(fast, SHAPE, {.seed = seed})) {
      if (trial.begins_only) begun.insert(trial.shape.n);
      if (trial.some > 0 && trial.shape.batch_heads() == 1) drawn.insert(trial.shape.n / 64);
    }
  }
  for (const int n : {4096, 16384, 32768}) CHECK(begun.contains(n));
  for (int tiles = 9; tiles <= 32; ++tiles) {
    INFO(tiles << " tiles");
    CHECK(drawn.contains(tiles));
  }
  for (const int of : {11, 12, 13, 14, 15}) {
    CHECK(some([=](const Trial& trial) { return trial.shape.n / 64 % of == 0 && trial.shape.n >= 64 * of; }));
  }
}

TEST_CASE("of a variant with a workspace all blocks run, of as many keys") {
  Variant stored = CAUSAL_TILED;
  stored.accepts.features |= TAILS | CROSS;
  stored.predict = [](const Launched&) { return Counts{.mma = 1}; };
  stored.workspace_bytes = [](const Shape&) { return uint64_t{4}; };
  const auto some = [&](const TrialChoice& choice, const auto& is) {
    return std::ranges::any_of(emulator_trials(stored, SHAPE, choice), is);
  };
  CHECK(some({}, [](const Trial& trial) { return trial.shape.keys() >= 256 * 32 && !trial.ends_only; }));
  CHECK(some({}, [](const Trial& trial) { return trial.shape.batch_heads() >= 16 && trial.shape.keys() >= 1024; }));
  CHECK(some({.thorough = true}, [](const Trial& trial) { return trial.shape.keys() > 65536 && !trial.starts_only; }));
}

TEST_CASE("scores are as large as f32 has them, or as a variant takes them, where products are fused, too") {
  const auto largest = [](const Trial& trial) {  // of N(0, 1) before the exponents, in log2 units
    const auto exponent = [&](const char* name) {
      const auto found = trial.exponents.find(name);
      return found == trial.exponents.end() ? 0 : found->second;
    };
    return 6 * std::sqrt(double(trial.shape.d)) * trial.shape.scale() * 1.442695 *
           std::ldexp(1.0, exponent("Q") + exponent("K"));
  };
  const auto most = [&](const Variant& variant, Shape shape) {
    shape.q_type = shape.kv_type = shape.o_type = variant.accepts.q;
    double most = 0;
    for (const Trial& trial : emulator_trials(variant, shape, {}))
      if (trial.also_fused) most = std::max(most, largest(trial));
    return most;
  };
  Variant limited = TILED, wide = TILED;
  limited.largest_score = 0x1p20f;
  wide.accepts.q = wide.accepts.kv = wide.accepts.o = Element::bf16;
  CHECK(most(TILED, SHAPE) > 0x1p33);
  CHECK(most(limited, SHAPE) == Approx(0x1p20));
  CHECK(most(wide, SHAPE) > 0x1p118);
  // Of gradients, too; and for try as if nobody had said anything.
  Variant gradients = limited;
  gradients.accepts.formula = "backward";
  Shape backward = SHAPE;
  backward.formula = "backward";
  CHECK(most(gradients, backward) == Approx(0x1p20));
  CHECK(std::ranges::any_of(emulator_trials(limited, SHAPE, {.any_scores = true}),
                            [&](const Trial& trial) { return trial.also_fused && largest(trial) > 0x1p33; }));
  // One that is small until the middle of its walk.
  CHECK(std::ranges::any_of(emulator_trials(TILED, SHAPE, {}),
                            [](const Trial& trial) { return trial.kinds == std::vector{InputKind::huge_keys}; }));
}

TEST_CASE(
    "of more keys than a variant adds up rightly it meets no values of one sign, or no weights that rise and fall") {
  Variant one_level = TILED, rounds = TILED;
  one_level.keys_of_one_sign = 64, rounds.keys_of_rising_weights = 64;
  const auto meets = [](const Variant& variant, InputKind kind, bool any_scores = false) {
    return std::ranges::any_of(emulator_trials(variant, SHAPE, {.any_scores = any_scores}), [&](const Trial& trial) {
      return trial.shape.keys() > 64 && std::ranges::count(trial.kinds, kind) > 0;
    });
  };
  for (const InputKind kind : {InputKind::near_ties, InputKind::rising_weights, InputKind::one_sign}) {
    CHECK(meets(TILED, kind));
    CHECK(!meets(one_level, kind));
    CHECK(meets(rounds, kind) == (kind != InputKind::rising_weights));
    CHECK(meets(rounds, kind, true));
  }
}

TEST_CASE("a GPU meets what the emulator meets, but for heads whose memory is not there") {
  const std::vector<Trial> on_gpu = gpu_trials(CAUSAL_TILED, SHAPE, {});
  for (const Trial& trial : emulator_trials(CAUSAL_TILED, SHAPE, {})) {
    if (trial.far_heads > 0 || trial.starts_only || trial.only_fused) continue;
    CHECK(std::ranges::any_of(on_gpu, [&](const Trial& other) {
      return other.shape == trial.shape && other.kinds == trial.kinds && other.seed == trial.seed &&
             other.exponents == trial.exponents && other.leaves_out == trial.leaves_out;
    }));
  }
}

TEST_CASE("a variant whose blocks depend on the number of SMs gets more shares than an H200 has places for") {
  Variant persistent = CAUSAL_TILED;
  const auto many = [](const Variant& variant, int places) {
    return std::ranges::count_if(emulator_trials(variant, SHAPE, {}), [=](const Trial& trial) {
      return trial.multiprocessors == 132 && trial.shape.batch_heads() > places && trial.shape.causal;
    });
  };
  static const auto blocks = [](const Launched& problem, uint32_t of_cluster) {
    return of_cluster * std::min(problem.multiprocessors / of_cluster, static_cast<uint32_t>(problem.batch_heads()));
  };
  persistent.predict = [](const Launched& problem) { return Counts{.barriers = blocks(problem, 2)}; };
  CHECK(many(persistent, 66) == 1);
  persistent.predict = [](const Launched& problem) { return Counts{.barriers = blocks(problem, 1)}; };
  CHECK(many(persistent, 132) == 1);
  // And one head that surprises before others that do not, all of them for the same few blocks.
  const std::vector<Trial> trials = emulator_trials(persistent, SHAPE, {});
  CHECK(std::ranges::count_if(trials, [](const Trial& trial) {
          return trial.multiprocessors == 2 && trial.shape.batch_heads() > 4 &&
                 trial.kinds.front() != InputKind::normal &&
                 std::ranges::count(trial.kinds, InputKind::normal) == std::ssize(trial.kinds) - 1;
        }) == 1);
  persistent.predict = [](const Launched&) { return Counts{}; };
  CHECK(many(persistent, 66) == 0);
}

TEST_CASE("the last head's share of a workspace ends just beyond what 32 bits can number") {
  Variant stored = TILED;
  const auto numbers = [](const Shape& shape) { return uint64_t(shape.batch_heads()) * shape.n * shape.n; };
  static const auto bytes = [](const Shape& shape) { return uint64_t(shape.batch_heads()) * shape.n * shape.n * 4; };
  stored.workspace_bytes = [](const Shape& shape) { return bytes(shape); };
  CHECK(std::ranges::count_if(emulator_trials(stored, SHAPE, {}), [&](const Trial& trial) {
          Shape one = trial.shape;
          one.batch = one.heads = 1;
          const uint64_t all = trial.far_heads * numbers(one);
          return all > uint64_t{1} << 32 && all - numbers(one) < uint64_t{1} << 32;
        }) == 1);
}

TEST_CASE(
    "a variant that takes any head dimension meets one that no tile divides, and one with a mask all sets under it") {
  const std::vector<Trial> trials = emulator_trials(ANY, SHAPE, {});
  const auto some_trial = [&](const auto& is) { return std::ranges::any_of(trials, is); };
  CHECK(some_trial([](const Trial& trial) {
    return trial.shape.d == ANY.accepts.min_d && trial.shape.n > 65535;  // CUDA's limit of gridDim.y
  }));
  CHECK(some_trial(
      [](const Trial& trial) { return trial.shape.causal && std::ranges::equal(trial.kinds, all_input_kinds()); }));
  CHECK(some_trial([](const Trial& trial) { return trial.shape.causal && trial.both_builds; }));
  CHECK(some_trial([](const Trial& trial) { return trial.shape.causal && trial.shape.n == 1; }));
  const std::vector<Trial> tiled = emulator_trials(CAUSAL_TILED, SHAPE, {});
  CHECK(std::ranges::any_of(tiled, &Trial::ends_only));
  // Whatever is left over by a loop that takes so many tiles at a time, of a variant whose tiles are as long as they are wide.
  for (const bool causal : {false, true}) {
    Variant square = causal ? CAUSAL_TILED : TILED;
    square.tile = {64, 64, 4};
    std::set<int> tiles;
    for (const Trial& trial : emulator_trials(square, SHAPE, {})) {
      if (trial.shape.causal == causal) tiles.insert(trial.shape.n / square.tile.bc);
    }
    for (int count = 1; count <= (causal ? 9 : 10); ++count) {
      INFO(count << " tiles");
      CHECK(tiles.contains(count));
    }
  }

  // Whatever is left over by a loop that takes so many columns or keys at a time is left over in some trial.
  std::set<int> columns, keys;
  for (const Trial& trial : trials) {
    columns.insert(trial.shape.d);
    keys.insert(trial.shape.n);
  }
  const auto some = [](const std::set<int>& of, auto is) { return std::ranges::any_of(of, is); };
  CHECK(some(columns, [](int d) { return d % 8 == 4; }));
  CHECK(some(columns, [](int d) { return d % 4 == 2; }));
  for (const int at_once : {16, 32, 64}) CHECK(some(columns, [=](int d) { return d % at_once == at_once / 2; }));
  CHECK(columns.contains(64));
  CHECK(columns.contains(ANY.accepts.max_d));
  CHECK(columns.contains(ANY.accepts.max_d - 1));
  for (const int at_once : {4, 8, 16, 32}) {
    CHECK(some(keys, [=](int n) { return n > at_once && n % at_once >= at_once / 2; }));
    CHECK(some(keys, [=](int n) { return n > at_once && n % at_once > 0 && n % at_once < at_once / 2; }));
  }
  for (const int at_once : {8, 16, 32}) {  // by groups of threads, four steps at a time
    std::set<int> left_over;
    for (const int n : keys) left_over.insert((n + at_once - 1) / at_once % 4);
    CHECK(left_over.size() == 4);
  }
}

TEST_CASE(
    "where rows have strides, those of the second tile lie where 31 bits do not number the elements, on the emulator") {
  Variant strided = TILED;
  strided.accepts.features = STRIDES | TAILS | CROSS | WINDOW | SOFTCAP;
  const auto is_far = [](const Trial& trial) {
    return int64_t{32} * (trial.shape.pad + trial.shape.d) >= int64_t{1} << 31;
  };
  const std::vector<Trial> trials = emulator_trials(strided, SHAPE, {});
  const auto far = std::ranges::find_if(trials, is_far);
  REQUIRE(far != trials.end());
  CHECK(far->shape.n > 64);
  CHECK(supports(STAGE, strided, far->shape));
  CHECK(std::ranges::none_of(gpu_trials(strided, SHAPE, {}), is_far));
  // Below a quarter of the cap, and beyond what f32 has exponentials of; and all of a head's scores far below minus the cap.
  CHECK(std::ranges::any_of(trials, [](const Trial& trial) { return trial.shape.softcap > 4 * 128; }));
  CHECK(std::ranges::any_of(trials, [](const Trial& trial) {
    return trial.shape.softcap > 0 && std::ranges::count(trial.kinds, InputKind::negative_rows) > 0;
  }));
}

TEST_CASE("where nobody wants the log-sum-exps there are keys, and there are none") {
  Variant strided = TILED;
  strided.accepts.features = STRIDES | TAILS | CROSS;
  strided.writes_lse = true;
  std::set<bool> has_keys;
  for (const Trial& trial : emulator_trials(strided, SHAPE, {}))
    if (trial.leaves_out) has_keys.insert(trial.shape.keys() > 0);
  CHECK(has_keys.size() == 2);
}

TEST_CASE("so many heads that they are far apart have nothing behind their rows, which would be gigabytes") {
  Shape padded = SHAPE;
  padded.pad = 8;
  int far = 0;
  for (const Trial& trial : emulator_trials(TILED, padded, {})) {
    if (trial.far_heads == 0) continue;
    ++far;
    CHECK(trial.shape.pad == 0);
  }
  CHECK(far > 0);
}

TEST_CASE("of given sets and a given length nothing else is launched, or at no other length") {
  const std::vector<Trial> chosen =
      emulator_trials(TILED, SHAPE, {.inputs = {InputKind::peaky, InputKind::ties}, .seed = 7});
  REQUIRE(chosen.size() == 2);
  CHECK(chosen[0] == Trial{.shape = SHAPE, .kinds = {InputKind::peaky}, .seed = 7, .both_builds = true});
  CHECK(chosen[1] == Trial{.shape = SHAPE, .kinds = {InputKind::ties}, .seed = 7});
  CHECK(emulator_trials(TILED, SHAPE, {.n_given = true})[1].shape.n == SHAPE.n);
  CHECK(emulator_trials(TILED, SHAPE, {.n_given = true, .quick = true})[0].shape.n == SHAPE.n);
}

TEST_CASE("a drawn window that ends with a query's own key is a mask, and its problem says so, as kernels are told") {
  Variant windowed = CAUSAL_TILED;
  windowed.accepts.features |= TAILS | CROSS | WINDOW;
  int masks = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    for (const Trial& trial : emulator_trials(windowed, SHAPE, {.seed = seed})) {
      if (trial.shape.right != 0) continue;
      CHECK(trial.shape.causal);
      ++masks;
    }
  }
  CHECK(masks > 0);
}

TEST_CASE("thorough trials are as many again, of shapes that the variant takes, and the same for the same seed") {
  const TrialChoice thorough{.thorough = true, .seed = 3};
  const std::vector<Trial> trials = emulator_trials(TILED, SHAPE, thorough);
  REQUIRE(trials.size() > 16);
  CHECK(trials == emulator_trials(TILED, SHAPE, thorough));
  CHECK(trials != emulator_trials(TILED, SHAPE, {.thorough = true, .seed = 4}));
  std::set<int> lengths, batches, heads;
  for (const Trial& trial : trials) {
    CHECK(supports(STAGE, TILED, trial.shape));
    CHECK(trial.shape.batch_heads() % std::ssize(trial.kinds) == 0);
    lengths.insert(trial.shape.n);
    batches.insert(trial.shape.batch);
    heads.insert(trial.shape.heads);
  }
  for (const std::set<int>& drawn : {lengths, batches, heads}) CHECK(drawn.size() > 2);
  // The first ones are those of every check, in the order in which threads take turns.
  CHECK(std::ranges::count(trials, 0u, &Trial::schedule) ==
        std::ranges::count(emulator_trials(TILED, SHAPE, {}), 0u, &Trial::schedule));
}

TEST_CASE("thorough trials have all queries of a long head, of a variant whose products tensor cores make") {
  const auto whole_heads = [](uint64_t mma) {
    Variant variant = TILED;
    variant.predict = [=](const Launched&) { return Counts{.mma = mma}; };
    return std::ranges::count_if(emulator_trials(variant, SHAPE, {.thorough = true}), [](const Trial& trial) {
      return trial.shape.n > 4096 && trial.far_heads == 0 && !trial.ends_only && !trial.starts_only &&
             !trial.begins_only;
    });
  };
  CHECK(whole_heads(1) == 1);
  CHECK(whole_heads(0) == 0);
}

TEST_CASE(
    "thorough trials have more keys than 16 bits can number, unless a variant takes fewer or a workspace grows with "
    "them") {
  const auto far_walks = [](const Variant& variant) {
    std::vector<bool> causal;
    for (const Trial& trial : emulator_trials(variant, SHAPE, {.thorough = true})) {
      if (trial.shape.n <= 65536 || trial.starts_only) continue;
      CHECK(trial.ends_only);
      CHECK(std::ranges::count(trial.kinds, InputKind::ties) == 1);  // the largest sum of weights
      CHECK(supports(STAGE, variant, trial.shape));
      causal.push_back(trial.shape.causal);
    }
    return causal;
  };
  CHECK(far_walks(TILED) == std::vector{false});
  CHECK(far_walks(CAUSAL_TILED) == std::vector{false, true});
  Variant short_rows = TILED;
  short_rows.smem_bytes_per_key = 4;
  CHECK(far_walks(short_rows).empty());
  Variant with_workspace = TILED;
  with_workspace.workspace_bytes = [](const Shape&) -> uint64_t { return 1; };
  CHECK(far_walks(with_workspace).empty());
}

TEST_CASE("a GPU has the same trials, and more than 2^32 elements with --thorough alone") {
  const auto far = [](const Trial& trial) { return trial.far_heads > 0; };
  const std::vector<Trial> trials = gpu_trials(ANY, SHAPE, {});
  REQUIRE(trials.size() > 20);
  CHECK(std::ranges::none_of(trials, far));
  CHECK(std::ranges::none_of(trials, &Trial::ends_only));
  CHECK(std::ranges::none_of(trials, &Trial::also_fused));
  CHECK(std::ranges::none_of(trials, &Trial::both_builds));
  CHECK(std::ranges::count_if(gpu_trials(ANY, SHAPE, {.thorough = true}), far) == 1);
}

TEST_CASE("another seed gives every trial other numbers, and random ones another order of threads") {
  for (const Trials trials : {emulator_trials, gpu_trials}) {
    const auto one = trials(ANY, SHAPE, {.thorough = true, .seed = 3});
    const auto other = trials(ANY, SHAPE, {.thorough = true, .seed = 4});
    REQUIRE(one.size() == other.size());
    for (size_t i = 0; i < one.size(); ++i) {
      CHECK(one[i].seed != other[i].seed);
      CHECK((one[i].schedule == 0 || one[i].schedule != other[i].schedule));
    }
  }
}

TEST_CASE("whatever is asked for, a variant gets problems that it takes, and the same sets in every head") {
  Variant with_workspace = CAUSAL_TILED;
  with_workspace.workspace_bytes = [](const Shape&) -> uint64_t { return 1; };
  // No GPU has the shared memory for 65536 keys; and some head dimensions of the trials are too small.
  const Variant short_rows{
      .label = "rows", .smem_bytes_per_key = 4, .accepts = {.features = CAUSAL, .min_d = 40, .max_d = 128}};
  for (const Trials trials : {emulator_trials, gpu_trials}) {
    for (const Variant& variant : {TILED, ANY, CAUSAL_TILED, with_workspace, short_rows}) {
      for (const bool n_given : {false, true}) {
        for (const Trial& trial : trials(variant, SHAPE, {.n_given = n_given, .thorough = true})) {
          INFO(variant.label << ", n = " << trial.shape.n << ", d = " << trial.shape.d);
          CHECK(trial.shape.n > 0);
          CHECK(supports(STAGE, variant, trial.shape));
          CHECK(trial.shape.batch_heads() % std::ssize(trial.kinds) == 0);
        }
      }
    }
  }
}
