// What the check makes of what the emulator counted and reported: predictions that the data decide, counts of what was there and
// idle, and two runs of one kernel that are not the same. With a right kernel, and a little work beside it. That
// wrong kernels are refused, each for its reason, tools/mutants/invented.txt holds.
#include <atomic>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "emulator_test.hpp"
#include "harness/base/files.hpp"
#include "harness/tests/fakes/right_kernel.cuh"
#include "harness/verify/record.hpp"

namespace {

using ladder::CheckResult;
using ladder::Counts;
using ladder::InputKind;
using ladder::Problem;

constexpr int N = 256;
using Launch = void (*)(Device&, const AttentionParams&);
using Kinds = std::set<std::string>;

ladder::Variant variant_of(Launch launch) {
  ladder::Variant variant{.label = "right", .tile = {BR, BC, WARPS}, .smem_bytes = SMEM_BYTES};
  variant.writes_lse = true;
  variant.on_emulator = launch;
  return variant;
}

const Problem& problem(InputKind kind, int heads = 1) {
  static std::map<std::pair<InputKind, int>, Problem> known;
  const auto place = known.find({kind, heads});
  if (place != known.end()) return place->second;
  return known.emplace(std::pair{kind, heads}, ladder::make_problem({.heads = heads, .n = N}, kind, 1)).first->second;
}

const ladder::Rung STAGE{.name = "right", .idea = "", .limit = "", .prediction = ""};

CheckResult check(const ladder::Variant& variant, const Problem& given) {
  return check_on_emulator(STAGE, variant, given);
}
CheckResult check_twice(const ladder::Variant& variant, const emulator::Options& options = {}) {
  return check_sets_on_emulator(STAGE, variant, problem(InputKind::normal), options, true)[0];
}

Kinds kinds_of(const CheckResult& result) {
  Kinds kinds;
  for (const auto& failure : result.failures) kinds.insert(std::string(to_string(failure.kind)));
  return kinds;
}
std::string messages_of(const CheckResult& result) {
  std::string messages;
  for (const auto& failure : result.failures) messages += failure.message + "\n";
  return messages;
}

// What a launch counts on normal inputs, with one of the counts off by `by`.
std::function<Counts(const ladder::Shape&)> counted(Launch launch, InputKind kind, emulator::CountOf off = &Counts::mma,
                                                    int64_t by = 0) {
  Counts counts = *check(variant_of(launch), problem(kind)).counters;
  counts.warps = 0;  // of blocks without work, too
  counts.*off += by;
  return [counts](const ladder::Shape&) { return counts; };
}

// A little work on top of the right kernel, whose answers stay the same.
enum class More { barrier, votes, shuffle, read, wavefronts, race, sum, idle_blocks, nothing };

template <More MORE>
__global__ void more_work(const AttentionParams p) {
  const uint32_t lane = threadIdx.x % 32;
  if (MORE == More::barrier) __syncthreads();
  if (MORE == More::votes) vote_any(true);
  if (MORE == More::shuffle) shfl_xor(1.0f, 1);
  if (MORE == More::read) ld_global_f32(p.LSE + lane);
  if (MORE == More::wavefronts) st_shared_b32(smem_base() + 128 * threadIdx.x, 0);
  if (MORE == More::race) st_shared_b32(smem_base(), lane);
  if (MORE == More::sum) red_global_add_f32(p.LSE, 1.0f);
}

constexpr uint32_t MORE_BLOCKS = 4, MORE_WARPS = 2;

template <More MORE>
void and_more(Device& device, const AttentionParams& p) {
  run_right(device, p);
  constexpr bool STORES = MORE == More::wavefronts || MORE == More::race;
  launch(device, more_work<MORE>, dim3(MORE == More::idle_blocks ? MORE_BLOCKS : 1), dim3(MORE_WARPS * 32),
         STORES ? MORE_WARPS * 32 * 128 : 0, p);
}
template <More MORE>
void more_in_another_order(Device& device, const AttentionParams& p) {
  device.options().schedule != 0 ? and_more<MORE>(device, p) : run_right(device, p);
}

__global__ void gives_registers_back() {
  setmaxnreg_dec<40>();
}

// Two products; a wait lets the second one go on, beside an exponential.
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
  ex2_approx(0);
  wgmma_wait<0>(second);
}

// Three blocks add to a number: in the order of numbers that they draw, each its own part or that of its number; or in none.
enum class Turns { drawn, arrival, none };

__global__ void no_turns(uint32_t* words) {
  if (threadIdx.x < 2) st_global_b32(words + threadIdx.x, 0);
}
template <Turns TURNS>
__global__ void add_in_turn(float* sum, uint32_t* words) {
  if (threadIdx.x != 0) return;
  const uint32_t number = atom_global_add_u32(words, 1);
  const float parts[3] = {8.0f, -8.0f, 0x1p-21f};  // of which the last is lost beside the first, or not
  if (TURNS != Turns::none) ld_acquire_wait_u32(words + 1, number);
  red_global_add_f32(sum, parts[TURNS == Turns::arrival ? blockIdx.x : number]);
  red_release_add_u32(words + 1, 1);
}
template <Turns TURNS>
void and_turns(Device& device, const AttentionParams& p) {
  run_right(device, p);
  auto* const words = static_cast<uint32_t*>(p.workspace);
  launch(device, no_turns, dim3(1), dim3(32), 0, words);
  launch(device, add_in_turn<TURNS>, dim3(3), dim3(32), 0, p.LSE, words);
}

// Half of the heads in each of two launches.
void by_halves(Device& device, const AttentionParams& p) {
  AttentionParams first = p, second = p;
  first.batch_heads = p.batch_heads / 2;
  second.batch_heads -= first.batch_heads;
  const size_t rows = size_t(first.batch_heads) * p.n;
  for (const f16** tensor : {&second.Q, &second.K, &second.V}) *tensor += rows * p.d;
  second.O += rows * p.d;
  if (p.LSE) second.LSE += rows;
  if (first.batch_heads > 0) run_right(device, first);
  run_right(device, second);
}

// A launch that leaves its answer in the workspace, and one that copies it, so many elements a block that no number of heads divides
// the number of blocks.
constexpr int64_t COPIED = 1000;
__global__ void copy(const AttentionParams p) {
  const int64_t all = int64_t{p.batch_heads} * p.n * p.d;
  for (int64_t i = threadIdx.x; i < COPIED && blockIdx.x * COPIED + i < all; i += blockDim.x) {
    const int64_t at = blockIdx.x * COPIED + i;
    st_global_f16(p.O + at, ld_global_f16(static_cast<const f16*>(p.workspace) + at));
  }
}
void and_copy(Device& device, const AttentionParams& p) {
  AttentionParams inner = p;
  inner.O = static_cast<f16*>(p.workspace);
  run_right(device, inner);
  const int64_t all = int64_t{p.batch_heads} * p.n * p.d;
  launch(device, copy, dim3(static_cast<uint32_t>((all + COPIED - 1) / COPIED)), dim3(128), 0, p);
}

}  // namespace

TEST_CASE("what depends on the data comes with the votes for it, or up to its bound, or is rejected", "[verdict]") {
  constexpr uint64_t STEP = 7;
  // As if the fewest votes and shuffles were so many less.
  const auto judge = [&](InputKind kind, int64_t votes, int64_t shuffles, uint64_t most = 0) {
    ladder::Variant variant = variant_of(run_right);
    const Counts counts = *check(variant, problem(kind)).counters;
    variant.predict = [=](const ladder::Shape&) {
      Counts fewest = counts;
      fewest.yes_votes -= votes;
      fewest.shuffles -= shuffles;
      return fewest;
    };
    variant.per_rescale.shuffles = STEP;
    variant.most_of_data = [=](const ladder::Shape&) { return Counts{.shuffles = most}; };
    return kinds_of(check(variant, problem(kind)));
  };
  const Kinds rejected{"counts_differ"}, accepted;
  CHECK(judge(InputKind::normal, 0, 0) == accepted);
  CHECK(judge(InputKind::normal, 3, 3 * STEP) == accepted);
  CHECK(judge(InputKind::normal, 3, 2 * STEP) == rejected);
  CHECK(judge(InputKind::normal, 0, STEP) == rejected);
  CHECK(judge(InputKind::normal, 3, 3 * STEP + 1) == rejected);
  CHECK(judge(InputKind::normal, 3, 3 * STEP + 5, 5) == accepted);
  CHECK(judge(InputKind::normal, 3, 3 * STEP + 6, 5) == rejected);
  CHECK(judge(InputKind::normal, 3, 3 * STEP - 1, 5) == rejected);
  // Rows of NaN need no rescale: of such inputs some may be missing, of others none.
  CHECK(judge(InputKind::not_finite, -3, -3 * int64_t{STEP}) == accepted);
  CHECK(judge(InputKind::not_finite, -3, 0) == rejected);
  CHECK(judge(InputKind::large_logits, -3, -3 * int64_t{STEP}) == rejected);
}

TEST_CASE("what comes with each look at scores, or with each rescale up to its bound, is held to their number",
          "[verdict]") {
  // As if so many looks, rescales and shuffles less were predicted.
  const auto judge = [](int64_t looks, int64_t rescales, int64_t shuffles) {
    static const auto votes = [](Device& device, const AttentionParams& p) {
      run_right(device, p);
      launch(device, more_work<More::votes>, dim3(4), dim3(MORE_WARPS * 32), 0, p);
    };
    ladder::Variant variant = variant_of(votes);
    const Counts counts = *check(variant, problem(InputKind::large_logits)).counters;
    REQUIRE(counts.votes_on_scores > 3);
    variant.predict = [=](const ladder::Shape&) {
      Counts fewest = counts;
      fewest.votes_on_scores -= looks, fewest.yes_votes -= rescales, fewest.shuffles -= shuffles;
      return fewest;
    };
    variant.per_look = {.shuffles = 5};
    variant.most_per_rescale = {.shuffles = 2, .votes_on_scores = 4};
    return kinds_of(check(variant, problem(InputKind::large_logits)));
  };
  const Kinds rejected{"counts_differ"}, accepted;
  CHECK(judge(0, 0, 0) == accepted);
  CHECK(judge(3, 1, 3 * 5) == accepted);
  CHECK(judge(3, 1, 3 * 5 + 2) == accepted);
  CHECK(judge(3, 1, 3 * 5 - 1) == rejected);
  CHECK(judge(3, 1, 3 * 5 + 3) == rejected);
  CHECK(judge(0, 0, 1) == rejected);
}

TEST_CASE("on normal inputs a warp may say yes once more than at least, on others as often as it likes", "[verdict]") {
  constexpr int ALL = N / BR * WARPS;
  const auto judge = [](InputKind kind, int64_t beyond_fewest, int heads = 1) {
    // Yes is said so often that some may be taken away; a kernel of its own says it, beside those that vote for a rescale.
    static const auto votes = [](Device& device, const AttentionParams& p) {
      run_right(device, p);
      launch(device, more_work<More::votes>, dim3(2 * ALL), dim3(MORE_WARPS * 32), 0, p);
    };
    ladder::Variant variant = variant_of(votes);
    Counts counts = *check(variant, problem(kind, heads)).counters;
    counts.yes_votes -= beyond_fewest;
    variant.predict = [counts](const ladder::Shape&) { return counts; };
    return kinds_of(check(variant, problem(kind, heads)));
  };
  const Kinds rejected{"counts_differ"}, accepted;
  for (const int64_t beyond : {0, ALL}) CHECK(judge(InputKind::normal, beyond) == accepted);
  for (const int64_t beyond : {-1, ALL + 1}) CHECK(judge(InputKind::normal, beyond) == rejected);
  CHECK(judge(InputKind::large_logits, ALL + 1) == accepted);
  CHECK(judge(InputKind::normal, 2 * ALL, 2) == accepted);
  CHECK(judge(InputKind::normal, 2 * ALL + 1, 2) == rejected);
}

TEST_CASE("what no count of instructions shows is counted too: overlap; blocks, memory and registers without use",
          "[verdict]") {
  const auto said = [](Launch launch) {
    ladder::Variant variant = variant_of(launch);
    variant.predict = counted(run_right, InputKind::normal);
    return messages_of(check(variant, problem(InputKind::normal)));
  };
  CHECK(said(and_more<More::nothing>) == "blocks: 1 of 5 have written nothing to global memory, predicted 0\n");
  CHECK(said(and_more<More::idle_blocks>) == "blocks: 4 of 8 have written nothing to global memory, predicted 0\n");
  const Launch unused = [](Device& device, const AttentionParams& p) {
    launch(device, right_kernel, dim3(p.n / BR, p.batch_heads), dim3(THREADS), SMEM_BYTES + 1024, p);
  };
  CHECK_THAT(said(unused),
             Contains("bytes of a block's shared memory that are never written: predicted 0, counted 1024") &&
                 Contains("shared memory: the variant says"));
  const Launch gives_back = [](Device& device, const AttentionParams& p) {
    run_right(device, p);
    launch(device, gives_registers_back, dim3(1), dim3(128), 0);
  };
  CHECK_THAT(
      said(gives_back),  // 128 threads begin with 256 registers each
      Contains("registers that are given back (setmaxnreg.dec) and taken by nobody: predicted 0, counted 27648"));
  const Launch leaves = [](Device& device, const AttentionParams& p) {
    run_right(device, p);
    launch(device, leaves_running, dim3(1), dim3(128), 64 * 128);
  };
  CHECK_THAT(said(leaves), Contains("wgmma: predicted 0, counted 2") &&
                               Contains("wgmma that a wait leaves running: predicted 0, counted 1"));
}

TEST_CASE("what a rung leaves to its record is compared with that, and a change says how to record it", "[verdict]") {
  const ladder::Folder folder(std::filesystem::temp_directory_path());
  ladder::Rung rung = STAGE;
  rung.name = "98_right";
  rung.directory = folder.path().string();
  const auto recorded = [](Launch launch) {
    ladder::Variant variant = variant_of(launch);
    variant.recorded = true;
    variant.predict = [](const ladder::Shape&) { return Counts{}; };
    return variant;
  };
  rung.variants = {recorded(run_right)};
  const std::vector<ladder::Trial> trials = recorded_trials(rung.variants[0]);
  REQUIRE_FALSE(trials.empty());
  const auto said = [&](Launch launch) {
    CheckResult result;
    result.ok = true;
    result.counters = count_recorded(rung, recorded(launch), trials[0]);
    judge_record(result, rung, recorded(launch), trials[0]);
    CHECK(result.ok == result.failures.empty());
    return messages_of(result);
  };
  const std::string command = "./ladder check 98 --record-counts";
  CHECK_THAT(said(run_right), Contains("has no counts of right") && Contains(command));
  REQUIRE(record_counts(rung).value() == trials.size());
  CHECK(said(run_right).empty());
  CHECK_THAT(said(and_more<More::barrier>), Contains("barriers") && Contains(command));
  // A kernel in the rung's place is held to the rung's own, whatever is recorded.
  const auto beside = [&](int64_t more, bool is_recorded) {
    CheckResult result = check(variant_of(run_right), problem(InputKind::normal));
    emulator::Counters own = *result.counters;
    own.gmem_accesses += more;
    judge_beside(result, is_recorded ? recorded(run_right) : variant_of(run_right), own, true);
    return kinds_of(result);
  };
  CHECK(beside(0, true) == Kinds{});
  CHECK(beside(1, true) == Kinds{"counts_differ"});
  CHECK(beside(1, false) == Kinds{});
}

TEST_CASE("of some counts a rung may say nothing, but what it says holds", "[verdict]") {
  const auto judge = [](int64_t by) {
    ladder::Variant variant = variant_of(run_right);
    const auto sectors = static_cast<int64_t>(check(variant, problem(InputKind::normal)).counters->gmem_sectors);
    REQUIRE(sectors > 1);
    variant.predict = counted(run_right, InputKind::normal, &Counts::gmem_sectors, by == 0 ? -sectors : by);
    return kinds_of(check(variant, problem(InputKind::normal)));
  };
  CHECK(judge(0) == Kinds{});
  for (const int64_t by : {-1, 1}) CHECK(judge(by) == Kinds{"counts_differ"});
}

TEST_CASE("a rung may say that there is nothing of a count", "[verdict]") {
  const auto judge = [](uint64_t Counts::*count) {
    ladder::Variant variant = variant_of(run_right);
    variant.predict = [counts = counted(run_right, InputKind::normal), count](const ladder::Shape& shape) {
      Counts said = counts(shape);
      said.*count = ladder::NONE;
      return said;
    };
    return kinds_of(check(variant, problem(InputKind::normal)));
  };
  CHECK(judge(&Counts::storing_threads) == Kinds{});
  CHECK(judge(&Counts::gmem_sectors) == Kinds{"counts_differ"});
}

TEST_CASE("a block without work owes no rows, where only the ends of a grid run", "[verdict]") {
  Problem question = ladder::make_question({.heads = 2, .n = 8 * N}, std::array{InputKind::normal}, 1);
  question.ends_only = true;
  static const auto twice_the_blocks = [](Device& device, const AttentionParams& p) {
    run_right(device, p);
    launch(device, more_work<More::nothing>, dim3(p.n / BR, p.batch_heads), dim3(32), 0, p);
  };
  CHECK(kinds_of(check(variant_of(run_right), question)) == Kinds{});
  CHECK(kinds_of(check(variant_of(twice_the_blocks), question)) == Kinds{"counts_differ"});
}

TEST_CASE("what is done in one order of the threads, or in one build, and not in the other is told by its count",
          "[verdict]") {
  const auto said = [](Launch launch, Launch zeroed) {
    ladder::Variant variant = variant_of(launch);
    variant.on_emulator_zeroed = zeroed ? zeroed : launch;
    return check_twice(variant);
  };
  const auto held = [&]<More MORE>(const std::string& count) {
    const CheckResult by_order = said(more_in_another_order<MORE>, nullptr), by_build = said(run_right, and_more<MORE>);
    CHECK(kinds_of(by_order) == Kinds{"order_dependent"});
    CHECK(kinds_of(by_build) == Kinds{"unset_variable"});
    CHECK_THAT(messages_of(by_order), Contains(count));
    CHECK_THAT(messages_of(by_build), Contains(count));
  };
  held.operator()<More::barrier>(" barriers");
  held.operator()<More::votes>(" votes");
  held.operator()<More::shuffle>(" shuffles");
  held.operator()<More::read>(" bytes read from global memory");
  held.operator()<More::wavefronts>(" shared-memory wavefronts");
  CHECK(said(run_right, nullptr).ok);
}

TEST_CASE("what the emulator reports in another order alone says so", "[verdict]") {
  const CheckResult result = check_twice(variant_of(more_in_another_order<More::race>));
  CHECK(kinds_of(result) == Kinds{"order_dependent"});
  for (const auto& failure : result.failures) {
    CHECK(failure.detail.starts_with("race"));
    CHECK_FALSE(failure.where.empty());
  }
}

TEST_CASE("a sum that is wrong in every order is wrong, and not the order's fault", "[verdict]") {
  ladder::Variant variant = variant_of(and_more<More::sum>);
  variant.on_emulator_zeroed = variant.on_emulator;
  CHECK(kinds_of(check_twice(variant)) == Kinds{"wrong_lse"});
}

TEST_CASE("a rung that promises the same bits in every run is held to it", "[verdict]") {
  const auto said = [](Launch launch, bool same_bits) {
    ladder::Variant variant = variant_of(launch);
    variant.on_emulator_zeroed = launch;
    variant.workspace_bytes = [](const ladder::Shape&) { return uint64_t{8}; };
    variant.same_bits = same_bits;
    return check_twice(variant);
  };
  const CheckResult in_turn = said(and_turns<Turns::drawn>, true), arrival = said(and_turns<Turns::arrival>, true),
                    none = said(and_turns<Turns::none>, true);
  INFO(messages_of(in_turn));
  CHECK(in_turn.ok);
  CHECK(kinds_of(arrival) == Kinds{"order_dependent"});
  CHECK_THAT(messages_of(arrival), Contains("which block comes first"));
  CHECK(kinds_of(none) == Kinds{"emulator_report"});
  CHECK(none.failures.front().detail == "unordered-sums");
  CHECK(said(and_turns<Turns::arrival>, false).ok);
  CHECK(said(and_turns<Turns::none>, false).ok);
}

TEST_CASE("a run that was told to stop says nothing about another order or build", "[verdict]") {
  static std::atomic<bool> stop;
  static int runs, last;
  ladder::Variant variant = variant_of([](Device& device, const AttentionParams& p) {
    stop = ++runs == last;
    more_in_another_order<More::barrier>(device, p);
    stop = false;
  });
  variant.on_emulator_zeroed = variant.on_emulator;
  const auto kinds_if_it_stops = [&](int run) {
    runs = 0;
    last = run;
    return kinds_of(check_twice(variant, {.stop = &stop}));
  };
  CHECK(kinds_if_it_stops(0) == Kinds{"order_dependent"});
  CHECK(runs == 3);  // as it is, in another order, and in the first order again
  CHECK(kinds_if_it_stops(2) == Kinds{});
  CHECK(runs == 2);
  CHECK(kinds_if_it_stops(3) == Kinds{});
}

TEST_CASE("two launches are as right as one: of many heads, and where only the ends of a grid run", "[verdict]") {
  ladder::Variant halves = variant_of(by_halves), copied = variant_of(and_copy);
  copied.workspace_bytes = [](const ladder::Shape& shape) { return uint64_t(shape.elements()) * sizeof(f16); };
  Problem far = ladder::make_problem({.heads = 3, .n = 64}, InputKind::normal, 1);
  far.far_heads = 65535;
  Problem ends = ladder::make_question({.heads = 2, .n = N}, std::array{InputKind::normal}, 1);
  ends.ends_only = true;
  for (const ladder::Variant* variant : {&halves, &copied}) {
    for (const Problem* given : {&far, &ends}) CHECK(messages_of(check(*variant, *given)).empty());
  }
}

void nothing(AttentionParams) {}

TEST_CASE("a grid that no GPU starts is found at a length at which nothing is computed", "[verdict]") {
  const auto starts = [](Launch launch, int n) {
    const CheckResult result = check_start(STAGE, variant_of(launch), {.n = n});
    CHECK(result.ok == messages_of(result).empty());
    return result.ok;
  };
  const Launch rows_in_x = [](Device& device, const AttentionParams& p) {
    launch(device, nothing, dim3(p.n, 1), dim3(32), 0, p);
  };
  const Launch rows_in_y = [](Device& device, const AttentionParams& p) {
    launch(device, nothing, dim3(1, p.n), dim3(32), 0, p);
  };
  CHECK(starts(rows_in_x, 65536));
  CHECK(starts(rows_in_y, 65535));
  CHECK(!starts(rows_in_y, 65536));
}

TEST_CASE(
    "what costs more than in a rung's own kernel is said, but for sectors of a first block that may be another one",
    "[verdict]") {
  const CheckResult result = check(variant_of(run_right), problem(InputKind::normal));
  const auto kinds_beside = [&](emulator::CountOf less, bool causal) {
    CheckResult beside = result;
    beside.shape.causal = causal;
    emulator::Counters own = *result.counters;
    own.*less = own.*less * 9 / 10;
    judge_beside(beside, variant_of(run_right), own, true);
    return kinds_of(beside);
  };
  const Kinds differ = {"counts_differ"};
  CHECK(kinds_beside(&Counts::shuffles, false) == Kinds{});
  for (const bool causal : {false, true}) CHECK(kinds_beside(&Counts::smem_wavefronts, causal) == differ);
  CHECK(kinds_beside(&Counts::gmem_sectors, false) == differ);
  CHECK(kinds_beside(&Counts::gmem_sectors, true) == Kinds{});
}
