// The harness must reject every kernel of harness/wrong/, and each for the reason for which it is there. And it must
// accept the right kernel that they are made from: a check that rejects everything proves nothing.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "harness/devices/guarded.hpp"
#include "harness/tests/catch.hpp"
#include "harness/verify/check.hpp"
#include "harness/wrong/groups.cuh"
#include "harness/wrong/kernel.cuh"
#include "harness/wrong/lanes.cuh"
#include "harness/wrong/rows.cuh"
#include "harness/wrong/tiles.cuh"

namespace {

using ladder::CheckResult;
using ladder::InputKind;
using ladder::Problem;
using ladder::Shape;

constexpr int N = 256;  // four blocks of queries, eight tiles of keys

// Names of failure kinds, and of emulator reports with "report: " before them.
using Reasons = std::set<std::string>;

Reasons reasons_of(const CheckResult& result) {
  Reasons reasons;
  for (const auto& failure : result.failures) {
    const bool report = failure.kind == ladder::FailureKind::emulator_report;
    reasons.insert(report ? "report: " + failure.detail : std::string(to_string(failure.kind)));
  }
  return reasons;
}

std::string messages_of(const CheckResult& result) {
  std::string messages;
  for (const auto& failure : result.failures) messages += failure.message + "\n";
  return messages;
}

// What the right kernel does, exactly. "Pair": 16 rows of queries and a tile of keys.
ladder::Counts predict(const Shape& shape) {
  const uint64_t blocks_per_head = shape.n / BR, blocks = shape.batch_heads() * blocks_per_head;
  // Block b of a head walks to the end; under the mask to tile (b + 1) * BR / BC.
  const uint64_t tiles = blocks * (BR / BC) * (shape.causal ? blocks_per_head + 1 : 2 * blocks_per_head) / 2;
  const uint64_t pairs = tiles * WARPS;
  return {.mma = pairs * (QK_N_TILES * QK_K_TILES + PV_N_TILES * PV_K_TILES),
          .ldmatrix = pairs * (QK_K_TILES + QK_N_TILES / 2 * QK_K_TILES + PV_N_TILES * PV_K_TILES),
          .shuffles = pairs * 2 * 4,
          .barriers = tiles * 2,
          .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = blocks * BR * (ROW_BYTES + 4)};
}

using Launch = void (*)(Device&, const AttentionParams&);

CheckResult check(std::string_view name, Launch launch, const Problem& problem, Fault fault = Fault::none) {
  const ladder::Stage stage{.name = name, .idea = "", .limit = "", .prediction = ""};
  const ladder::Variant variant{.label = std::string(name),
                                .tile = {BR, BC, WARPS},
                                .smem_bytes = smem_bytes(fault),
                                .on_emulator = launch,
                                .conflict_ways = 1,
                                .predict = predict,
                                .causal = true,
                                .writes_lse = true};
  return check_on_emulator(stage, variant, problem);
}

const Problem& problem(InputKind kind, int heads = 1, bool causal = false) {
  static std::map<std::tuple<InputKind, int, bool>, Problem> known;
  const std::tuple key{kind, heads, causal};
  const auto place = known.find(key);
  if (place != known.end()) return place->second;
  const Shape shape{.heads = heads, .n = N, .causal = causal};
  return known.emplace(key, ladder::make_problem(shape, kind, 1)).first->second;
}

// U(0, 1] in all three tensors, by a linear congruential generator.
Problem uniform_problem() {
  const Shape shape{.n = N};
  Problem problem{shape, {InputKind::normal}, 1, ladder::make_inputs(InputKind::normal, shape, 1), {}};
  uint32_t state = 1;
  for (ladder::Tensor& tensor : problem.inputs) {
    for (f16& value : tensor.half()) {
      state = state * 1664525u + 1013904223u;
      value = ladder::to_f16(static_cast<float>((state >> 8) + 1) * 0x1p-24f);
    }
  }
  problem.reference = ladder::make_reference(shape, problem.inputs);
  return problem;
}

struct WrongKernel {
  Fault fault;
  std::string_view name;
  Launch launch;
  InputKind seen_on;
  Reasons reasons;                        // all that the check says about it, and nothing else
  std::vector<InputKind> hidden_on = {};  // inputs whose result is right in spite of the fault
  int heads = 1;
  bool causal = false;
};

template <Fault FAULT>
WrongKernel wrong(std::string_view name, InputKind seen_on, Reasons reasons, std::vector<InputKind> hidden_on = {},
                  int heads = 1, bool causal = false) {
  return {FAULT, name, launch_wrong<FAULT>, seen_on, std::move(reasons), std::move(hidden_on), heads, causal};
}

std::vector<WrongKernel> wrong_kernels() {
  using enum InputKind;
  return {
      wrong<Fault::no_running_max>("no_running_max", large_logits, {"nan_output", "wrong_lse"},
                                   {normal, one_hot, last_tile_max, negative_rows}),
      wrong<Fault::wrong_initial_max>("wrong_initial_max", normal, {"nan_output", "wrong_lse"}),
      wrong<Fault::no_correction>("no_correction", normal, {"wrong_result", "wrong_lse"},
                                  {ties, constant_v, first_tile_max}),
      wrong<Fault::stale_row_sum>("stale_row_sum", normal, {"wrong_result", "wrong_lse"}, {ties, first_tile_max}),
      wrong<Fault::late_rescale>("late_rescale", large_logits, {"nan_output"}, {normal, one_hot, negative_rows}),
      wrong<Fault::late_row_sum>("late_row_sum", large_logits, {"wrong_result", "wrong_lse"}, {normal, ties}),
      wrong<Fault::no_scale>("no_scale", normal, {"wrong_result", "wrong_lse"}, {ties, constant_v, one_hot}),
      wrong<Fault::lse_without_max>("lse_without_max", normal, {"wrong_lse"}, {normal}),
      wrong<Fault::mask_off_by_one>("mask_off_by_one", normal, {"wrong_result", "wrong_lse"}, {constant_v}, 1, true),
      wrong<Fault::mask_off_by_one>("mask_off_by_one, dense", normal, {}, {normal}),
      wrong<Fault::half_the_keys>("half_the_keys", normal, {"wrong_result", "counts_differ", "wrong_lse"},
                                  {constant_v}),
      wrong<Fault::wrong_head>("wrong_head", normal, {"wrong_result", "wrong_lse"}, {}, 2),
      wrong<Fault::wrong_head>("wrong_head, one head", normal, {}, {normal}),
      wrong<Fault::prefetch_past_end>("prefetch_past_end", normal,
                                      {"report: global-out-of-bounds", "report: exit-in-flight", "counts_differ"},
                                      {normal}),
      // What else it does shows before the head of NaN alone, below.
      wrong<Fault::next_heads_tile>("next_heads_tile", normal, {"counts_differ"}, {normal}, 2),
      wrong<Fault::plain_read>("plain_read", normal, {"wrong_result", "conflicts_differ", "wrong_lse"}, {constant_v}),
      wrong<Fault::no_swizzle>("no_swizzle", normal, {"conflicts_differ"}, {normal}),
      wrong<Fault::swapped_registers>("swapped_registers", normal, {"wrong_result", "wrong_lse"}, {constant_v}),
      wrong<Fault::uninitialised_S>("uninitialised_S", normal, {"nan_output", "wrong_lse"}),
      wrong<Fault::no_wait>("no_wait", normal,
                            {"report: in-flight-read", "report: race-read-after-write", "nan_output", "wrong_lse"}),
      wrong<Fault::no_barrier>("no_barrier", normal,
                               {"report: race-read-after-write", "report: race-write-after-read",
                                "report: uninitialised-read", "nan_output", "counts_differ", "wrong_lse"}),
      // Thread 0 runs first here, so the others read the right number; on a GPU they may. Only the detector sees it.
      wrong<Fault::no_broadcast_barrier>("no_broadcast_barrier", normal, {"report: race-read-after-write"}, {normal}),
      // Nor does the detector see global memory within a block: another order does, below.
      wrong<Fault::global_broadcast>("global_broadcast", normal, {"counts_differ"}, {normal}),
      wrong<Fault::early_prefetch>(
          "early_prefetch", normal,
          {"report: race-write-after-read", "report: in-flight-read", "nan_output", "wrong_lse"}),
      wrong<Fault::partial_barrier>(
          "partial_barrier", normal,
          {"report: divergent-barrier", "report: race-read-after-write", "report: race-write-after-read",
           "report: uninitialised-read", "nan_output", "wrong_lse"}),
      wrong<Fault::barrier_in_branch>("barrier_in_branch", normal, {"report: divergent-barrier"}, {normal}),
      wrong<Fault::mbarriers>("mbarriers", normal, {"counts_differ"}, {normal}),
      // The last warp goes on first, before the others have begun to copy.
      wrong<Fault::no_full_wait>("no_full_wait", normal,
                                 {"report: in-flight-read", "report: uninitialised-read",
                                  "report: race-write-after-read", "nan_output", "counts_differ", "wrong_lse"}),
      wrong<Fault::no_empty_wait>("no_empty_wait", normal, {"report: race-write-after-read", "counts_differ"}),
      wrong<Fault::elected_arrival>("elected_arrival", normal, {"report: race-write-after-read", "counts_differ"},
                                    {normal}),
      wrong<Fault::late_wait>("late_wait", normal, {"report: barrier-misuse", "counts_differ"}, {normal}),
      wrong<Fault::writes_nothing>("writes_nothing", normal, {"unwritten_output", "counts_differ"}),
      wrong<Fault::skips_a_row>("skips_a_row", normal, {"unwritten_output", "counts_differ"}),
      wrong<Fault::writes_guard>("writes_guard", normal, {"report: plain-access"}),
      wrong<Fault::modifies_Q>("modifies_Q", normal, {"report: plain-access"}),
      wrong<Fault::reads_neighbour>("reads_neighbour", normal, {"report: race-between-blocks", "counts_differ"},
                                    {normal}),
      wrong<Fault::empty_blocks>("empty_blocks", normal, {"counts_differ"}, {normal}),
      wrong<Fault::unused_memory>("unused_memory", normal, {"counts_differ"}, {normal}),
      wrong<Fault::needless_vote>("needless_vote", normal, {"counts_differ"}, {normal}),
      wrong<Fault::mean_of_V>("mean_of_V", normal, {"wrong_result", "counts_differ", "wrong_lse"}, {ties, constant_v}),
      // Reads 2 bytes that the formula does not have.
      wrong<Fault::peeks_at_output>("peeks_at_output", normal, {"counts_differ"}, {normal}),
  };
}

}  // namespace

TEST_CASE("the right kernel is accepted on every input") {
  for (const InputKind kind : ladder::all_input_kinds()) {
    DYNAMIC_SECTION(to_string(kind)) {
      for (const bool causal : {false, true}) {
        const CheckResult result = check("none", launch_wrong<Fault::none>, problem(kind, 2, causal));
        INFO(messages_of(result));
        CHECK(result.ok);
      }
    }
  }
}

TEST_CASE("what comes out right because one thread comes first does not in another order") {
  const ladder::Stage stage{.name = "order", .idea = "", .limit = "", .prediction = ""};
  ladder::Variant variant{.label = "order", .tile = {BR, BC, WARPS}, .smem_bytes = smem_bytes(Fault::none)};
  variant.writes_lse = true;
  const auto reasons = [&](Launch launch, bool both_builds) {
    variant.on_emulator = launch;
    return reasons_of(check_sets_on_emulator(stage, variant, problem(InputKind::normal, 2), {}, both_builds)[0]);
  };
  CHECK(reasons(launch_wrong<Fault::global_broadcast>, false).empty());
  CHECK(reasons(launch_wrong<Fault::global_broadcast>, true) == Reasons{"order_dependent"});
  for (const Launch right : {launch_wrong<Fault::none>, launch_wrong<Fault::mbarriers>}) {
    variant.smem_bytes = smem_bytes(right == launch_wrong<Fault::none> ? Fault::none : Fault::mbarriers);
    CHECK(reasons(right, true).empty());
  }
}

// A little work on top of the right kernel, whose answers stay the same.
enum class More { barrier, vote, shuffle, read, write, wavefronts, race, nothing_else };

template <More MORE>
__global__ void more_work(const AttentionParams p) {
  const uint32_t lane = threadIdx.x % 32;
  if (MORE == More::barrier) __syncthreads();
  if (MORE == More::vote) vote_any(false);
  if (MORE == More::shuffle) shfl_xor(1.0f, 1);
  if (MORE == More::read) ld_global_f32(p.LSE + lane);
  if (MORE == More::write) st_global_f32(p.LSE + lane, ld_global_f32(p.LSE + lane));
  if (MORE == More::wavefronts) st_shared_b32(smem_base() + 128 * threadIdx.x, 0);
  if (MORE == More::race) st_shared_b32(smem_base(), lane);
}

// By the threads' order, if `by_order`, or by the build.
template <More MORE, bool BY_ORDER>
void launch_more(Device& device, const AttentionParams& p) {
  launch_wrong<Fault::none>(device, p);
  if (device.options().schedule != 0 || !BY_ORDER) launch(device, more_work<MORE>, dim3(1), dim3(64), 64 * 128, p);
}

TEST_CASE("what is done in one order of the threads, or in one build, and not in the other is told by its count") {
  const ladder::Stage stage{.name = "order", .idea = "", .limit = "", .prediction = ""};
  ladder::Variant variant{.label = "order", .tile = {BR, BC, WARPS}, .smem_bytes = smem_bytes(Fault::none)};
  variant.writes_lse = true;
  const auto said = [&](Launch launch, Launch zeroed) {
    variant.on_emulator = launch;
    if (zeroed) variant.on_emulator_zeroed = zeroed;
    const auto results = check_sets_on_emulator(stage, variant, problem(InputKind::normal), {}, true);
    std::string all;
    for (const auto& failure : results[0].failures)
      all += fmt::format("{}: {}\n", to_string(failure.kind), failure.message);
    variant.on_emulator_zeroed = {};
    return all;
  };
  const ladder::Counts right = predict(problem(InputKind::normal).shape);
  const std::string by_order =
                        "order_dependent: what it does depends on which thread of a block comes first: two orders "
                        "give other counts",
                    by_build =
                        "unset_variable: a variable is read that nobody has set: two builds that differ in nothing "
                        "but what such a variable holds give other counts";
  const auto counts = [](uint64_t one, uint64_t more, const char* name) {
    return fmt::format(" {} and {} {}", one, one + more, name);
  };
  const auto held = [&]<More MORE>(const std::string& expected) {
    CHECK_THAT(said(launch_more<MORE, true>, nullptr), StartsWith(by_order) && Contains(expected));
    CHECK_THAT(said(launch_wrong<Fault::none>, launch_more<MORE, false>), StartsWith(by_build) && Contains(expected));
  };
  held.operator()<More::barrier>(counts(right.barriers, 1, "barriers"));
  held.operator()<More::vote>(counts(0, 2, "votes"));
  held.operator()<More::shuffle>(counts(right.shuffles, 2, "shuffles"));
  held.operator()<More::read>(counts(right.gmem_bytes_read, 256, "bytes read from global memory"));
  held.operator()<More::write>(fmt::format(
      " {} and {} bytes read from global memory, {} and {} bytes written to global memory", right.gmem_bytes_read,
      right.gmem_bytes_read + 256, right.gmem_bytes_written, right.gmem_bytes_written + 256));
  variant.on_emulator = launch_wrong<Fault::none>;
  const uint64_t wavefronts = check_on_emulator(stage, variant, problem(InputKind::normal)).counters->smem_wavefronts;
  held.operator()<More::wavefronts>(counts(wavefronts, 64, "wavefronts of shared memory"));
  held.operator()<More::nothing_else>("");
}

TEST_CASE("what the emulator reports in another order alone says so") {
  const ladder::Stage stage{.name = "order", .idea = "", .limit = "", .prediction = ""};
  ladder::Variant variant{.label = "order", .tile = {BR, BC, WARPS}, .smem_bytes = smem_bytes(Fault::none)};
  variant.writes_lse = true;
  variant.on_emulator = launch_more<More::race, true>;
  const CheckResult result = check_sets_on_emulator(stage, variant, problem(InputKind::normal), {}, true)[0];
  REQUIRE_FALSE(result.failures.empty());
  for (const auto& failure : result.failures) {
    CHECK(failure.kind == ladder::FailureKind::order_dependent);
    CHECK_THAT(failure.message, StartsWith("with the threads of a block in another order: "));
    CHECK(failure.detail.starts_with("race"));
    CHECK_FALSE(failure.where.empty());
  }
}

TEST_CASE("a run that was told to stop says nothing about another order or build") {
  static std::atomic<bool> stop;
  static int runs, last;
  const Launch stops = [](Device& device, const AttentionParams& p) {
    stop = ++runs == last;
    launch_more<More::barrier, true>(device, p);
    stop = false;
  };
  const ladder::Stage stage{.name = "order", .idea = "", .limit = "", .prediction = ""};
  ladder::Variant variant{.label = "order", .tile = {BR, BC, WARPS}, .smem_bytes = smem_bytes(Fault::none)};
  variant.writes_lse = true;
  variant.on_emulator = variant.on_emulator_zeroed = stops;
  const auto reasons_if_it_stops = [&](int run) {
    runs = 0;
    last = run;
    return reasons_of(check_sets_on_emulator(stage, variant, problem(InputKind::normal), {.stop = &stop}, true)[0]);
  };
  CHECK(reasons_if_it_stops(0) == Reasons{"order_dependent"});
  CHECK(runs == 3);  // as it is, in another order, and in the first order again
  CHECK(reasons_if_it_stops(2).empty());
  CHECK(runs == 2);
  CHECK(reasons_if_it_stops(3).empty());
}

// Each block writes the first of its rows, and nothing else.
__global__ void writes_a_row(const AttentionParams p) {
  const size_t row = size_t(blockIdx.y) * p.n + blockIdx.x * BR;
  st_global_b32(p.O + row * HEAD_DIM + 2 * threadIdx.x, 0);
}

TEST_CASE("where only the ends of a grid run, each block that has written owes a tile of rows") {
  Problem question = ladder::make_question({.n = 8 * N}, std::array{InputKind::normal}, 1);
  question.ends_only = true;
  const ladder::Stage stage{.name = "ends", .idea = "", .limit = "", .prediction = ""};
  ladder::Variant variant{.label = "ends", .tile = {BR, BC, WARPS}};
  variant.on_emulator = +[](Device& device, const AttentionParams& p) {
    launch(device, writes_a_row, dim3(p.n / BR, p.batch_heads), dim3(HEAD_DIM / 2), 0, p);
  };
  const CheckResult result = check_on_emulator(stage, variant, question);
  REQUIRE_FALSE(result.failures.empty());
  const uint64_t blocks = result.counters->blocks;
  CHECK(blocks >= 3);
  CHECK(result.failures[0].message ==
        fmt::format("{} blocks have written to {} queries, where {} are theirs at least", blocks, blocks, blocks * BR));
}

TEST_CASE("what is read past the end of a head shows before the head of NaN, though all it has is weights of zero") {
  const auto kinds = ladder::all_input_kinds();
  const Problem side_by_side = ladder::make_problem({.heads = static_cast<int>(kinds.size()), .n = N}, kinds, 1);
  const ladder::Stage stage{.name = "heads", .idea = "", .limit = "", .prediction = ""};
  ladder::Variant variant{.label = "heads", .tile = {BR, BC, WARPS}, .smem_bytes = smem_bytes(Fault::none)};
  variant.writes_lse = true;
  const auto wrong_on = [&](Launch launch) {
    variant.on_emulator = launch;
    std::vector<size_t> wrong;
    const std::vector<CheckResult> results = check_sets_on_emulator(stage, variant, side_by_side);
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i].ok) wrong.push_back(i);
    }
    return wrong;
  };
  const auto nan_head = static_cast<size_t>(std::ranges::find(kinds, InputKind::nan_head) - kinds.begin());
  CHECK(wrong_on(launch_wrong<Fault::none>).empty());
  CHECK(wrong_on(launch_wrong<Fault::next_heads_tile>) == std::vector{nan_head - 1});
}

TEST_CASE("shuffles that depend on the data come in whole rescales on top of the fewest, or are rejected") {
  constexpr uint64_t STEP = 7;  // which divides no count
  const Problem& given = problem(InputKind::normal);
  const uint64_t counted = predict(given.shape).shuffles;
  const auto judge = [&](uint64_t fewest, uint64_t step) {
    const ladder::Stage stage{.name = "none", .idea = "", .limit = "", .prediction = ""};
    ladder::Variant variant{.label = "none", .tile = {BR, BC, WARPS}, .smem_bytes = smem_bytes(Fault::none)};
    variant.writes_lse = true;
    variant.on_emulator = launch_wrong<Fault::none>;
    variant.predict = [fewest](const Shape& shape) {
      ladder::Counts counts = predict(shape);
      counts.shuffles = fewest;
      return counts;
    };
    variant.shuffles_per_rescale = step;
    return reasons_of(check_on_emulator(stage, variant, given));
  };
  const Reasons rejected{"counts_differ"};
  CHECK(judge(counted, STEP).empty());
  CHECK(judge(counted - STEP, STEP).empty());
  CHECK(judge(counted - 3 * STEP, STEP).empty());
  CHECK(judge(counted - 3 * STEP, 0) == rejected);
  CHECK(judge(counted - 3 * STEP - 1, STEP) == rejected);
  CHECK(judge(counted + STEP, STEP) == rejected);
}

TEST_CASE("on normal inputs a warp may say yes once more than at least, on others as often as it likes") {
  const auto judge = [](InputKind kind, int64_t beyond_fewest, int heads = 1) {
    const Problem& given = problem(kind, heads);
    const ladder::Stage stage{.name = "vote", .idea = "", .limit = "", .prediction = ""};
    ladder::Variant variant{.label = "vote", .tile = {BR, BC, WARPS}, .smem_bytes = smem_bytes(Fault::none)};
    variant.writes_lse = true;
    variant.on_emulator = launch_wrong<Fault::needless_vote>;
    ladder::Counts counts = predict(given.shape);
    const CheckResult without = check_on_emulator(stage, variant, given);
    counts.votes = without.counters->votes;
    counts.yes_votes = without.counters->yes_votes - beyond_fewest;
    variant.predict = [counts](const Shape&) { return counts; };
    const CheckResult result = check_on_emulator(stage, variant, given);
    if (beyond_fewest > 0 && !result.ok) {
      CHECK(messages_of(result) ==
            fmt::format(
                "votes that say yes: {} rescales beyond the fewest, where normal inputs give none of {} warps more "
                "than one\n",
                beyond_fewest, heads * N / BR * WARPS));
    }
    return reasons_of(result);
  };
  constexpr int64_t ALL_WARPS = N / BR * WARPS;
  const Reasons rejected{"counts_differ"};
  for (const int64_t beyond : {int64_t{0}, ALL_WARPS}) CHECK(judge(InputKind::normal, beyond).empty());
  for (const int64_t beyond : {int64_t{-1}, ALL_WARPS + 1}) CHECK(judge(InputKind::normal, beyond) == rejected);
  CHECK(judge(InputKind::large_logits, ALL_WARPS + 1).empty());
  CHECK(judge(InputKind::normal, 2 * ALL_WARPS, 2).empty());
  CHECK(judge(InputKind::normal, 2 * ALL_WARPS + 1, 2) == rejected);
}

TEST_CASE("rows of NaN need no rescale: of such inputs whole rescales may be missing, of others none") {
  const auto judge = [](InputKind kind, uint64_t missing, uint64_t step) {
    const Problem& given = problem(kind);
    const ladder::Stage stage{.name = "none", .idea = "", .limit = "", .prediction = ""};
    ladder::Variant variant{.label = "none", .tile = {BR, BC, WARPS}, .smem_bytes = smem_bytes(Fault::none)};
    variant.writes_lse = true;
    variant.on_emulator = launch_wrong<Fault::none>;
    variant.predict = [missing](const Shape& shape) {
      ladder::Counts counts = predict(shape);
      counts.shuffles += missing;
      return counts;
    };
    variant.shuffles_per_rescale = step;
    return check_on_emulator(stage, variant, given).counts_right();
  };
  CHECK(judge(InputKind::not_finite, 3 * 7, 7));  // 7 divides no count
  CHECK(judge(InputKind::not_finite, 3, 1));
  CHECK_FALSE(judge(InputKind::not_finite, 3 * 7 + 1, 7));
  CHECK_FALSE(judge(InputKind::not_finite, 3 * 7, 0));
  CHECK_FALSE(judge(InputKind::large_logits, 3 * 7, 7));
}

TEST_CASE("a block without work owes no rows, where only the ends of a grid run") {
  Problem question = ladder::make_question({.heads = 2, .n = 8 * N}, std::array{InputKind::normal}, 1);
  question.ends_only = true;
  const ladder::Stage stage{.name = "ends", .idea = "", .limit = "", .prediction = ""};
  ladder::Variant variant{.label = "ends", .tile = {BR, BC, WARPS}, .smem_bytes = smem_bytes(Fault::none)};
  variant.writes_lse = true;
  for (const Launch launch : {launch_wrong<Fault::none>, launch_wrong<Fault::empty_blocks>}) {
    variant.on_emulator = launch;
    CHECK(reasons_of(check_on_emulator(stage, variant, question)).empty());
  }
}

__global__ void gives_registers_back() {
  setmaxnreg_dec<40>();
}

// Two products; a wait lets the second one go on.
__global__ void leaves_running() {
  for (uint32_t i = threadIdx.x; i < 64 * 32; i += 128) st_shared_b32(smem_base() + 4 * i, 0);
  fence_proxy_async_shared();
  __syncthreads();
  float first[8][4] = {}, second[8][4] = {};
  const uint64_t tile = wgmma_descriptor(smem_base());
  wgmma_fence(first, second);
  wgmma_ss(first, tile, tile);
  wgmma_commit();
  wgmma_ss(second, tile, tile);
  wgmma_commit();
  wgmma_wait<1>(first);
  wgmma_wait<0>(second);
}

TEST_CASE("what no count of instructions shows is counted too: overlap; blocks, memory and registers without use") {
  const auto said = [](Launch launch, Fault claimed) {
    return messages_of(check("slow", launch, problem(InputKind::normal), claimed));
  };
  CHECK(said(launch_wrong<Fault::empty_blocks>, Fault::none) ==
        "blocks: 4 of 8 have written nothing to global memory, predicted 0\n");
  const Launch unused = launch_wrong<Fault::unused_memory>;
  CHECK(said(unused, Fault::unused_memory) ==
        "bytes of a block's shared memory that are never written: predicted 0, counted 8192\n");
  CHECK_THAT(said(unused, Fault::none),
             Contains("shared memory: the variant says 32768 bytes per block, the launch asks for 40960"));
  const Launch gives_back = [](Device& device, const AttentionParams& p) {
    launch_wrong<Fault::none>(device, p);
    launch(device, gives_registers_back, dim3(1), dim3(128), 0);
  };
  CHECK_THAT(
      said(gives_back, Fault::none),  // 128 threads begin with 256 registers each
      Contains("registers that are given back (setmaxnreg.dec) and taken by nobody: predicted 0, counted 27648"));
  const Launch leaves = [](Device& device, const AttentionParams& p) {
    launch_wrong<Fault::none>(device, p);
    launch(device, leaves_running, dim3(1), dim3(128), 64 * 128);
  };
  CHECK_THAT(said(leaves, Fault::none), Contains("wgmma: predicted 0, counted 2") &&
                                            Contains("wgmma that a wait leaves running: predicted 0, counted 1"));
}

TEST_CASE("every wrong kernel is rejected for its reason") {
  for (const WrongKernel& kernel : wrong_kernels()) {
    DYNAMIC_SECTION(kernel.name) {
      const Problem& given = problem(kernel.seen_on, kernel.heads, kernel.causal);
      const CheckResult result = check(kernel.name, kernel.launch, given, kernel.fault);
      INFO(messages_of(result));
      CHECK(reasons_of(result) == kernel.reasons);
      CHECK(result.ok == kernel.reasons.empty());
    }
  }
}

TEST_CASE("no input alone would do: some hide a fault behind a right result") {
  for (const WrongKernel& kernel : wrong_kernels()) {
    for (const InputKind kind : kernel.hidden_on) {
      DYNAMIC_SECTION(kernel.name << " on " << to_string(kind)) {
        const CheckResult result = check(kernel.name, kernel.launch, problem(kind, kernel.heads, kernel.causal));
        CHECK(result.max_err <= result.tolerance);
      }
    }
  }
}

// The table that docs/softmax.md shows. After a change that is meant: LADDER_RECORD=1 wrong_tests "[book]".
TEST_CASE("the book prints what the check says of a kernel without a running maximum", "[book]") {
  std::string table = "inputs,kernel,largest error,tolerance,verdict,what the check says\n";
  for (const auto& [kind, words] : {std::pair{InputKind::normal, "\"N(0, 1)\""},
                                    std::pair{InputKind::large_logits, "\"Q and K of standard deviation 8\""}}) {
    for (const auto& [name, launch] : {std::pair<std::string_view, Launch>{"right", launch_wrong<Fault::none>},
                                       {"no_running_max", launch_wrong<Fault::no_running_max>}}) {
      const CheckResult result = check(name, launch, problem(kind));
      const std::string error = std::isnan(result.max_err) ? "NaN" : fmt::format("{:.3g}", result.max_err);
      table += fmt::format("{},{},{},{:.3g},{},\"{}\"\n", words, name, error, result.tolerance,
                           result.ok ? "accepted" : "rejected", result.ok ? "" : result.failures.front().message);
    }
  }
  const std::string path = LADDER_SOURCE_DIR "/tools/site/recorded/no_running_max.csv";
  if (std::getenv("LADDER_RECORD") != nullptr) std::ofstream(path) << table;
  std::ifstream file(path);
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == table);
}

TEST_CASE("a key of the future is found without a reference") {
  ladder::Variant variant;
  variant.causal = variant.writes_lse = true;
  variant.on_emulator = launch_wrong<Fault::mask_off_by_one>;
  const ladder::Stage stage{.name = "mask_off_by_one", .idea = "", .limit = "", .prediction = ""};
  std::set<std::string> broken;
  for (const CheckResult& property :
       check_properties(stage, variant, {.n = N, .causal = true}, 1, ladder::Backend::emulator)) {
    if (!property.ok) broken.insert(property.inputs);
  }
  CHECK(broken == std::set<std::string>{"prefix"});
}

TEST_CASE("no fault is left out") {
  std::set<Fault> rejected;
  for (const WrongKernel& kernel : wrong_kernels()) {
    if (!kernel.reasons.empty()) rejected.insert(kernel.fault);
  }
  CHECK(rejected.size() == static_cast<size_t>(Fault::peeks_at_output));  // the last one; the first is none
}

TEST_CASE("groups of keys that are joined wrongly are rejected, each for its reason and where it shows") {
  using enum InputKind;
  const auto reasons = [](Launch launch, InputKind kind, int n) {
    const ladder::Stage stage{.name = "groups", .idea = "", .limit = "", .prediction = ""};
    const ladder::Variant variant{
        .label = "groups", .smem_bytes = groups::SMEM_BYTES, .on_emulator = launch, .writes_lse = true};
    const CheckResult result = check_on_emulator(stage, variant, ladder::make_problem({.heads = 2, .n = n}, kind, 1));
    INFO(messages_of(result));
    CHECK(result.ok == result.failures.empty());
    return reasons_of(result);
  };
  for (const InputKind kind : ladder::all_input_kinds()) {
    INFO(to_string(kind));
    for (const int n : {7, 64}) CHECK(reasons(groups::launch_wrong<GroupFault::none>, kind, n).empty());
  }
  const Launch join_without_max = groups::launch_wrong<GroupFault::join_without_max>;
  CHECK(reasons(join_without_max, normal, 64) == Reasons{"wrong_result", "wrong_lse"});
  CHECK(reasons(join_without_max, constant_v, 64) == Reasons{"wrong_lse"});  // a mean of equals, whatever the weights
  CHECK(reasons(join_without_max, ties, 64).empty());
  const Launch empty_group = groups::launch_wrong<GroupFault::empty_group>;
  CHECK(reasons(empty_group, normal, 7) == Reasons{"nan_output", "wrong_lse"});
  for (const int n : {16, 17, 64}) CHECK(reasons(empty_group, normal, n).empty());  // every group has a key
}

TEST_CASE("a row that is divided by one warp's sum is right as long as that warp has all keys, and then rejected") {
  const auto reasons = [](Launch launch, InputKind kind, int n) {
    const ladder::Stage stage{.name = "rows", .idea = "", .limit = "", .prediction = ""};
    ladder::Variant variant{.label = "rows", .smem_bytes = rows::SMEM_BYTES, .on_emulator = launch};
    variant.smem_bytes_per_key = 4;
    const ladder::Shape shape{.heads = 2, .n = n, .d = 32};
    const CheckResult result = check_on_emulator(stage, variant, ladder::make_problem(shape, kind, 1));
    INFO(messages_of(result));
    CHECK(result.ok == result.failures.empty());
    return reasons_of(result);
  };
  const Launch right = rows::launch_wrong<RowFault::none>, one_warps_sum = rows::launch_wrong<RowFault::one_warps_sum>;
  for (const InputKind kind : ladder::all_input_kinds()) {
    INFO(to_string(kind));
    for (const int n : {7, 33, 140}) CHECK(reasons(right, kind, n).empty());
    CHECK(reasons(one_warps_sum, kind, 32).empty());
    if (kind == InputKind::nan_head || kind == InputKind::nan_key) continue;  // NaN, whatever it is divided by
    CHECK_FALSE(reasons(one_warps_sum, kind, 33).empty());
  }
  CHECK(reasons(one_warps_sum, InputKind::constant_v, 33) == Reasons{"wrong_result"});
}

TEST_CASE("lanes that share a row and do not agree on it are rejected, each for its reason and where it shows") {
  using enum InputKind;
  const auto reasons = [](Launch launch, InputKind kind) {
    const ladder::Stage stage{.name = "lanes", .idea = "", .limit = "", .prediction = ""};
    const ladder::Variant variant{
        .label = "lanes", .smem_bytes = lanes::SMEM_BYTES, .on_emulator = launch, .writes_lse = true};
    const CheckResult result = check_on_emulator(stage, variant, ladder::make_problem({.heads = 2, .n = 128}, kind, 1));
    INFO(messages_of(result));
    CHECK(result.ok == result.failures.empty());
    return reasons_of(result);
  };
  for (const InputKind kind : ladder::all_input_kinds()) {
    INFO(to_string(kind));
    CHECK(reasons(lanes::launch_wrong<LaneFault::none>, kind).empty());
  }

  std::set<std::string_view> rejected;
  const auto expect = [&](std::string_view name, Launch launch, InputKind kind, const Reasons& expected) {
    INFO(name << " on " << to_string(kind));
    CHECK(reasons(launch, kind) == expected);
    if (!expected.empty()) rejected.insert(name);
  };
  expect("own_maximum", lanes::launch_wrong<LaneFault::own_maximum>, normal, {"wrong_result", "wrong_lse"});
  expect("own_maximum", lanes::launch_wrong<LaneFault::own_maximum>, ties, {});  // eight maxima, all the same
  expect("own_sum", lanes::launch_wrong<LaneFault::own_sum>, normal, {"wrong_result", "wrong_lse"});
  expect("own_sum", lanes::launch_wrong<LaneFault::own_sum>, constant_v, {"wrong_result", "wrong_lse"});
  expect(
      "no_warp_barrier", lanes::launch_wrong<LaneFault::no_warp_barrier>, normal,
      {"report: race-read-after-write", "report: race-write-after-read", "report: uninitialised-read", "nan_output"});
  expect("early_overwrite", lanes::launch_wrong<LaneFault::early_overwrite>, normal, {"report: race-write-after-read"});
  CHECK(rejected.size() == static_cast<size_t>(LaneFault::early_overwrite));  // the last one; the first is none
}

TEST_CASE("tiles that the copy engine brings wrongly, or scores relative to a wrong maximum, are rejected") {
  using enum InputKind;
  const auto reasons = [](Launch launch, InputKind kind) {
    const ladder::Stage stage{.name = "tiles", .idea = "", .limit = "", .prediction = "", .min_sm = 90};
    const ladder::Variant variant{.label = "tiles", .smem_bytes = tiles::SMEM_BYTES, .on_emulator = launch};
    const CheckResult result = check_on_emulator(stage, variant, problem(kind, 2));
    INFO(messages_of(result));
    CHECK(result.ok == result.failures.empty());
    return reasons_of(result);
  };
  for (const InputKind kind : ladder::all_input_kinds()) {
    INFO(to_string(kind));
    CHECK(reasons(tiles::launch_wrong<TileFault::none>, kind).empty());
  }

  std::set<std::string_view> rejected;
  const auto expect = [&](std::string_view name, Launch launch, InputKind kind, const Reasons& expected) {
    INFO(name << " on " << to_string(kind));
    CHECK(reasons(launch, kind) == expected);
    if (!expected.empty()) rejected.insert(name);
  };
  expect("no_bulk_wait", tiles::launch_wrong<TileFault::no_bulk_wait>, normal,
         {"report: in-flight-read", "report: in-flight-overwrite", "report: barrier-misuse", "report: exit-in-flight",
          "nan_output"});
  expect("short_expect", tiles::launch_wrong<TileFault::short_expect>, normal,
         {"report: in-flight-read", "report: in-flight-overwrite", "report: exit-in-flight", "nan_output"});
  expect("long_expect", tiles::launch_wrong<TileFault::long_expect>, normal, {"report: deadlock"});
  expect("no_fence", tiles::launch_wrong<TileFault::no_fence>, normal, {"report: barrier-misuse"});
  expect("no_proxy_fence", tiles::launch_wrong<TileFault::no_proxy_fence>, normal, {"report: missing-proxy-fence"});
  expect("copied_map", tiles::launch_wrong<TileFault::copied_map>, normal, {"report: bad-launch"});
  expect("early_request", tiles::launch_wrong<TileFault::early_request>, normal,
         {"report: barrier-misuse", "report: race-write-after-read", "report: in-flight-read", "nan_output"});
  for (const InputKind kind : {normal, large_logits}) {
    expect("unswizzled_read", tiles::launch_wrong<TileFault::unswizzled_read>, kind, {"wrong_result"});
    expect("one_panel", tiles::launch_wrong<TileFault::one_panel>, kind, {"wrong_result"});
  }
  expect("unshifted_S", tiles::launch_wrong<TileFault::unshifted_S>, normal, {"wrong_result"});
  expect("half_a_maximum", tiles::launch_wrong<TileFault::half_a_maximum>, normal, {"wrong_result"});
  expect("half_a_maximum", tiles::launch_wrong<TileFault::half_a_maximum>, constant_v, {});  // a mean of equals
  // Scores near 0 need no maximum; those far below 0 leave all weights of the row 0.
  expect("no_first_shift", tiles::launch_wrong<TileFault::no_first_shift>, normal, {});
  expect("no_first_shift", tiles::launch_wrong<TileFault::no_first_shift>, negative_rows, {"nan_output"});
  expect("never_rescales", tiles::launch_wrong<TileFault::never_rescales>, normal, {});
  expect("never_rescales", tiles::launch_wrong<TileFault::never_rescales>, large_logits, {"nan_output"});
  CHECK(rejected.size() == static_cast<size_t>(TileFault::never_rescales));  // the last one; the first is none
}

TEST_CASE("the write-up's verification would have let most of them pass") {
  // Its inputs are U(0, 1], and it accepts unless the mean difference exceeds 0.05. With such inputs all scores are nearly
  // equal, so O is nearly the mean of V, whatever the kernel does with Q and K; and a comparison with NaN is false.
  const auto accepts = [](const CheckResult& result, const ladder::Reference& reference) {
    double sum = 0;
    for (size_t i = 0; i < result.output.size(); ++i) {
      sum += std::fabs(result.output[i] - reference["O"].values[i]);
    }
    const bool fails = sum / static_cast<double>(result.output.size()) > 0.05;
    return !fails;
  };
  const Problem uniform = uniform_problem();
  REQUIRE(uniform.reference.all_rows);
  for (const auto& [name, launch] : std::initializer_list<std::pair<std::string_view, Launch>>{
           {"no_running_max", launch_wrong<Fault::no_running_max>},
           {"no_correction", launch_wrong<Fault::no_correction>},
           {"no_scale", launch_wrong<Fault::no_scale>},
           {"half_the_keys", launch_wrong<Fault::half_the_keys>},
           {"swapped_registers", launch_wrong<Fault::swapped_registers>},
           {"plain_read", launch_wrong<Fault::plain_read>},
           {"wrong_initial_max", launch_wrong<Fault::wrong_initial_max>},
           {"skips_a_row", launch_wrong<Fault::skips_a_row>},
           {"mean_of_V", launch_wrong<Fault::mean_of_V>},
       }) {
    INFO(name);
    CHECK(accepts(check(name, launch, uniform), uniform.reference));
  }
}
