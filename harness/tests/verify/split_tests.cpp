// Split keys, as a kernel for few queries has them: blocks of a head's keys leave what they have found in a workspace, and it is joined
// by a second launch, by a block that waits for the others, or by the last block that has come. Each way once right, and wrong in
// five ways or more.
#include <algorithm>
#include <set>

#include "harness/devices/emulator_run.hpp"
#include "harness/tests/emulator/emulator_test.hpp"
#include "harness/verify/check.hpp"
#include "harness/verify/judge.hpp"

using namespace ladder;
using namespace emulator_test;

namespace {

constexpr int ROWS = 32, SPLITS = 3, D = 16,
              SHARE = D + 2;  // numbers that a query leaves: its sums, its maximum, its sum of weights

enum class Way {
  two_launches,
  no_correction,  // maxima are not looked at
  one_too_few,    // the last share is forgotten
  one_too_many,   // and one that nobody has written is joined
  by_queries,     // each head's shares where the first one's are
  half_a_share,   // columns of the second half are never left
  one_launch,
  waits_for_none,     // who joins does not wait
  another_counter,    // he waits for what is told of the first tile
  relaxed,            // nobody releases
  before_the_others,  // the first thread tells of what others are still to write
  alone,              // and alone it knows of the shares, for nobody meets it behind its wait
  last_block,
  no_fence_before,   // of what the block has stored the counter says nothing
  no_fence_behind,   // nor is it asked
  fence_too_early,   // each thread fences what it has stored, and none what the others have
  read_too_early,    // all threads read at once, and look later whether they may
  last_but_one,      // who joins finds one share fewer
  plain_counter,     // a load and a store
  never_again,       // the counter goes on from where the launch before has left it
  last_but_too_few,  // and a share is forgotten here, too
};

bool is_in_one_launch(Way way) {
  return way >= Way::one_launch;
}

__device__ float* share_of(const AttentionParams& p, Way way, int head, int row, int split) {
  const int query = way == Way::by_queries ? row : head * p.n + row;
  return static_cast<float*>(p.workspace) + (query * SPLITS + split) * SHARE;
}
__device__ uint32_t* counter_of(const AttentionParams& p, int head, int tile) {
  return static_cast<uint32_t*>(p.workspace) + p.batch_heads * p.n * SPLITS * SHARE + head * (p.n / ROWS) + tile;
}

__device__ void leave(const AttentionParams& p, Way way, int head, int row, int split) {
  const int keys = (p.n + SPLITS - 1) / SPLITS, first = split * keys;
  float sums[D] = {}, largest = -INFINITY, total = 0;
  for (int key = first; key < std::min(p.n, first + keys); ++key) {
    float score = 0;
    for (int c = 0; c < D; ++c) {
      score += ::ladder::to_float(ld_global_f16(p.Q + (head * p.n + row) * D + c)) *
               ::ladder::to_float(ld_global_f16(p.K + (head * p.n + key) * D + c));
    }
    score *= p.softmax_scale;
    const float larger = std::max(largest, score);
    const float correction = std::exp(largest - larger), weight = std::exp(score - larger);
    largest = larger;
    total = total * correction + weight;
    for (int c = 0; c < D; ++c)
      sums[c] = sums[c] * correction + weight * ::ladder::to_float(ld_global_f16(p.V + (head * p.n + key) * D + c));
  }
  float* const share = share_of(p, way, head, row, split);
  for (int c = 0; c < (way == Way::half_a_share ? D / 2 : D); ++c) st_global_f32(share + c, sums[c]);  // @leaves
  st_global_f32(share + D, largest);
  st_global_f32(share + D + 1, total);
}

struct Row {
  f16 of[D];
};
__device__ Row joined(const AttentionParams& p, Way way, int head, int row) {
  const bool is_short = way == Way::one_too_few || way == Way::last_but_too_few;
  const int last = SPLITS - is_short + (way == Way::one_too_many);
  float sums[D] = {}, largest = -INFINITY, total = 0;
  for (int split = 0; split < last; ++split) {
    const float* const share = share_of(p, way, head, row, split);
    const float its = way == Way::no_correction ? 0 : ld_global_f32(share + D), larger = std::max(largest, its);
    const float old = std::exp(largest - larger), own = std::exp(its - larger);
    largest = larger;
    total = total * old + own * ld_global_f32(share + D + 1);
    for (int c = 0; c < D; ++c) sums[c] = sums[c] * old + own * ld_global_f32(share + c);  // @joins
  }
  Row result;
  for (int c = 0; c < D; ++c) result.of[c] = ::ladder::to_f16(sums[c] / total);
  return result;
}
__device__ void store(const AttentionParams& p, int head, int row, const Row& result) {
  for (int c = 0; c < D; ++c) st_global_f16(p.O + (head * p.n + row) * D + c, result.of[c]);  // @stores
}

// One more of the shares of this tile is there. Whether it is the last.
__device__ bool is_last(uint32_t* counter, Way way) {
  if (way == Way::plain_counter) {
    const uint32_t before = ld_global_b32(counter);  // @looks
    st_global_b32(counter, (before + 1) % SPLITS);   // @counts
    return before == SPLITS - 1;
  }
  const uint32_t before =
      way == Way::never_again ? atom_global_add_u32(counter, 1) : atom_global_inc_u32(counter, SPLITS - 1);
  return before == (way == Way::last_but_one ? SPLITS - 2 : SPLITS - 1);
}
__device__ void join_if_last(const AttentionParams& p, Way way, int head, int tile, int row) {
  Row result;
  if (way == Way::fence_too_early) fence_acq_rel_gpu();
  __syncthreads();
  if (threadIdx.x == 0) {
    if (way != Way::no_fence_before && way != Way::fence_too_early) fence_acq_rel_gpu();
    st_shared_b32(smem_base(), is_last(counter_of(p, head, tile), way));
    if (way != Way::no_fence_behind) fence_acq_rel_gpu();
  }
  if (way == Way::read_too_early) result = joined(p, way, head, row);
  __syncthreads();
  if (ld_shared_b32(smem_base()) == 0) return;
  if (way != Way::read_too_early) result = joined(p, way, head, row);
  store(p, head, row, result);
}

__global__ void clear(AttentionParams p) {
  st_global_b32(counter_of(p, 0, static_cast<int>(blockIdx.x)), 0);
}
__global__ void split(AttentionParams p, Way way) {
  const int tile = blockIdx.x, head = blockIdx.y, number = blockIdx.z, row = tile * ROWS + threadIdx.x;
  leave(p, way, head, row, number);
  if (!is_in_one_launch(way)) return;
  if (way >= Way::last_block) return join_if_last(p, way, head, tile, row);
  uint32_t* const counter = counter_of(p, head, tile);
  if (way != Way::before_the_others) __syncthreads();
  if (threadIdx.x == 0) {
    if (way == Way::relaxed) {
      atom_global_add_u32(counter, 1);
    } else {
      red_release_add_u32(counter, 1);
    }
  }
  if (number != SPLITS - 1) return;
  if (threadIdx.x == 0 && way != Way::waits_for_none)
    ld_acquire_wait_u32(way == Way::another_counter ? counter_of(p, head, 0) : counter, SPLITS);
  if (way != Way::alone) __syncthreads();
  store(p, head, row, joined(p, way, head, row));
}
__global__ void join_all(AttentionParams p, Way way) {
  const int head = blockIdx.y, row = blockIdx.x * ROWS + threadIdx.x;
  store(p, head, row, joined(p, way, head, row));
}
// What the launch before has left, but for the counters.
__global__ void forget(AttentionParams p) {
  const int head = blockIdx.y, row = blockIdx.x * ROWS + threadIdx.x;
  for (int c = 0; c < D; ++c) st_global_f16(p.O + (head * p.n + row) * D + c, ::ladder::to_f16(NAN));
  for (int i = 0; i < SPLITS * SHARE; ++i) st_global_f32(share_of(p, Way::last_block, head, row, 0) + i, NAN);
}

// Each thread reads its query of the first head, as far as tiles are numbered.
__global__ void begin(AttentionParams p, uint32_t numbered) {
  ld_global_f16(p.Q + (blockIdx.x % numbered * ROWS + threadIdx.x) * D);
}

Way the_way;  // a kernel of a rung is a function

CheckResult judged(Way way) {
  the_way = way;
  Rung rung;
  rung.name = "99_split";
  Variant variant;
  variant.label = "split";
  variant.accepts.min_d = 1;
  variant.smem_bytes = 4;
  variant.workspace_bytes = [](const Shape& shape) {
    return uint64_t(shape.batch_heads()) * shape.n * SPLITS * SHARE * 4 + shape.batch_heads() * shape.n / ROWS * 4;
  };
  variant.on_emulator = +[](emulator::Device& device, const AttentionParams& p) {
    const auto tiles = static_cast<uint32_t>(p.n / ROWS), heads = static_cast<uint32_t>(p.batch_heads);
    if (is_in_one_launch(the_way)) launch(device, clear, dim3(tiles * heads), dim3(1), 0, p);
    launch(device, split, dim3(tiles, heads, SPLITS), dim3(ROWS), 4, p, the_way);
    if (the_way >= Way::last_block) {
      launch(device, forget, dim3(tiles, heads), dim3(ROWS), 0, p);
      launch(device, split, dim3(tiles, heads, SPLITS), dim3(ROWS), 4, p, the_way);
    }
    if (!is_in_one_launch(the_way)) launch(device, join_all, dim3(tiles, heads), dim3(ROWS), 0, p, the_way);
  };
  rung.variants.push_back(variant);
  static const Problem problem = make_problem({.heads = 2, .n = 64, .d = D}, InputKind::peaky, 1);
  return check_on_emulator(rung, rung.variants.front(), problem, {.threads = 1, .max_steps = 100000});
}

FailureKind first_failure(Way way) {
  const CheckResult result = judged(way);
  REQUIRE_FALSE(result.ok);
  return result.failures.front().kind;
}

// Of each race between blocks that is told.
std::set<std::set<int>> lines_of_races(Way way) {
  std::set<std::set<int>> all;
  for (const Failure& failure : judged(way).failures) {
    if (failure.detail != "race-between-blocks") continue;
    std::set<int> lines;
    for (const emulator::SourceLine& where : failure.where) lines.insert(where.line);
    all.insert(lines);
  }
  return all;
}

}  // namespace

TEST_CASE("keys are split and joined by a second launch, by who waits, or by the last block that has come") {
  for (const Way way : {Way::two_launches, Way::one_launch, Way::last_block}) {
    const CheckResult result = judged(way);
    INFO((result.failures.empty() ? "" : result.failures.front().message));
    CHECK(result.ok);
  }
}

TEST_CASE("split keys in two launches, and how they go wrong") {
  CHECK(first_failure(Way::no_correction) == FailureKind::wrong_result);
  CHECK(first_failure(Way::one_too_few) == FailureKind::wrong_result);
  CHECK(first_failure(Way::half_a_share) == FailureKind::nan_output);
  CHECK(first_failure(Way::one_too_many) != FailureKind::counts_differ);
  CHECK(first_failure(Way::by_queries) == FailureKind::emulator_report);
}

TEST_CASE("wrong numbers name the line that has written them, whichever launch has") {
  const emulator::SourceLine stores = MARKED("stores");
  for (const Way way : {Way::no_correction, Way::half_a_share, Way::last_but_too_few}) {
    const Failure failure = judged(way).failures.front();
    INFO(failure.message);
    CHECK(failure.where == std::vector{stores});
    CHECK(failure.message.ends_with(" at " + emulator::to_string(stores)));
  }
}

TEST_CASE("what a block has written another one reads behind a release and an acquire; without, both lines are told") {
  const std::set<int> shares = {MARKED("leaves").line, MARKED("joins").line};
  for (const Way way :
       {Way::waits_for_none, Way::another_counter, Way::relaxed, Way::before_the_others, Way::alone,
        Way::no_fence_before, Way::no_fence_behind, Way::fence_too_early, Way::read_too_early, Way::last_but_one}) {
    INFO(static_cast<int>(way));
    CHECK(lines_of_races(way).contains(shares));
  }
}

TEST_CASE("the last block is known by a counter that counts each block, and again in the next launch") {
  const std::set<int> looks_and_counts = {MARKED("looks").line, MARKED("counts").line};
  CHECK(lines_of_races(Way::plain_counter).contains(looks_and_counts));
  CHECK(first_failure(Way::never_again) == FailureKind::nan_output);
  CHECK(first_failure(Way::last_but_too_few) == FailureKind::wrong_result);
}

TEST_CASE("queries of a long head that no block begins with are a fault, unless blocks may go on to them") {
  const auto judged = [](void (*run)(emulator::Device&, const AttentionParams&)) {
    Rung rung;
    rung.name = "99_begin";
    Variant variant;
    variant.label = "begin";
    variant.accepts.min_d = 1;
    variant.on_emulator = run;
    const Trial trial{.shape = {.n = 16384, .d = D}, .begins_only = true};
    const Problem none{trial.shape, trial.kinds, trial.seed, {}, {}};
    return *emulator_backend()->run({&rung, &variant, "99_begin"}, trial, none, false);
  };
  CHECK(judged([](emulator::Device& device, const AttentionParams& p) {
          launch(device, begin, dim3(p.n / ROWS), dim3(ROWS), 0, p, 512u);
        }).empty());
  const auto results = judged([](emulator::Device& device, const AttentionParams& p) {
    launch(device, begin, dim3(p.n / ROWS), dim3(ROWS), 0, p, 256u);
  });
  REQUIRE(results.size() == 1);
  CHECK(results[0].has(FailureKind::unwritten_output));
  CHECK(judged([](emulator::Device& device, const AttentionParams& p) {
          launch(device, begin, dim3(std::min(p.n / ROWS, 64)), dim3(ROWS), 0, p, 512u);
        }).empty());
}
