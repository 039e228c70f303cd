// Split keys, as a kernel for few queries has them: blocks of a head's keys leave what they have found in a workspace, and a second
// launch joins it, or the last block that has come. Each way once right, and in five ways wrong.
#include <algorithm>
#include <set>

#include "harness/devices/emulator_run.hpp"
#include "harness/tests/emulator/emulator_test.hpp"
#include "harness/verify/check.hpp"

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
  alone               // and alone it knows of the shares, for nobody meets it behind its wait
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

__device__ void join(const AttentionParams& p, Way way, int head, int row) {
  const int last = SPLITS - (way == Way::one_too_few) + (way == Way::one_too_many);
  float sums[D] = {}, largest = -INFINITY, total = 0;
  for (int split = 0; split < last; ++split) {
    const float* const share = share_of(p, way, head, row, split);
    const float its = way == Way::no_correction ? 0 : ld_global_f32(share + D), larger = std::max(largest, its);
    const float old = std::exp(largest - larger), own = std::exp(its - larger);
    largest = larger;
    total = total * old + own * ld_global_f32(share + D + 1);
    for (int c = 0; c < D; ++c) sums[c] = sums[c] * old + own * ld_global_f32(share + c);  // @joins
  }
  for (int c = 0; c < D; ++c) st_global_f16(p.O + (head * p.n + row) * D + c, ::ladder::to_f16(sums[c] / total));
}

__global__ void clear(AttentionParams p) {
  st_global_b32(counter_of(p, 0, static_cast<int>(blockIdx.x)), 0);
}
__global__ void split(AttentionParams p, Way way) {
  const int tile = blockIdx.x, head = blockIdx.y, number = blockIdx.z, row = tile * ROWS + threadIdx.x;
  leave(p, way, head, row, number);
  if (!is_in_one_launch(way)) return;
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
  join(p, way, head, row);
}
__global__ void join_all(AttentionParams p, Way way) {
  join(p, way, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x * ROWS + threadIdx.x));
}

Way the_way;  // a kernel of a rung is a function

CheckResult judged(Way way) {
  the_way = way;
  Rung rung;
  rung.name = "99_split";
  Variant variant;
  variant.label = "split";
  variant.accepts.min_d = 1;
  variant.workspace_bytes = [](const Shape& shape) {
    return uint64_t(shape.batch_heads()) * shape.n * SPLITS * SHARE * 4 + shape.batch_heads() * shape.n / ROWS * 4;
  };
  variant.on_emulator = +[](emulator::Device& device, const AttentionParams& p) {
    const auto tiles = static_cast<uint32_t>(p.n / ROWS), heads = static_cast<uint32_t>(p.batch_heads);
    if (is_in_one_launch(the_way)) launch(device, clear, dim3(tiles * heads), dim3(1), 0, p);
    launch(device, split, dim3(tiles, heads, SPLITS), dim3(ROWS), 0, p, the_way);
    if (!is_in_one_launch(the_way)) launch(device, join_all, dim3(tiles, heads), dim3(ROWS), 0, p, the_way);
  };
  rung.variants.push_back(variant);
  static const Problem problem = make_problem({.heads = 2, .n = 64, .d = D}, InputKind::peaky, 1);
  return check_on_emulator(rung, rung.variants.front(), problem, {.threads = 1, .max_steps = 100000});
}

}  // namespace

TEST_CASE("keys are split and joined by a second launch, or by the last block that has come") {
  for (const Way way : {Way::two_launches, Way::one_launch}) {
    const CheckResult result = judged(way);
    INFO((result.failures.empty() ? "" : result.failures.front().message));
    CHECK(result.ok);
  }
}

TEST_CASE("split keys in two launches, and how they go wrong") {
  const auto kind = [](Way way) {
    const CheckResult result = judged(way);
    REQUIRE_FALSE(result.ok);
    return result.failures.front().kind;
  };
  CHECK(kind(Way::no_correction) == FailureKind::wrong_result);
  CHECK(kind(Way::one_too_few) == FailureKind::wrong_result);
  CHECK(kind(Way::half_a_share) == FailureKind::nan_output);
  CHECK(kind(Way::one_too_many) != FailureKind::counts_differ);
  CHECK(kind(Way::by_queries) == FailureKind::emulator_report);
}

TEST_CASE("what a block has written another one reads behind a release and an acquire; without, both lines are told") {
  for (const Way way : {Way::waits_for_none, Way::another_counter, Way::relaxed, Way::before_the_others, Way::alone}) {
    INFO(static_cast<int>(way));
    const CheckResult result = judged(way);
    const auto race = std::ranges::find(result.failures, "race-between-blocks", &Failure::detail);
    REQUIRE(race != result.failures.end());
    std::set<int> lines;
    for (const emulator::SourceLine& where : race->where) lines.insert(where.line);
    CHECK(lines == std::set<int>{MARKED("leaves").line, MARKED("joins").line});
  }
}
