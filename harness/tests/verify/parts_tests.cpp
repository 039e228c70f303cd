// Launches of which some blocks run: heads of very many, and the ends of a grid.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <vector>

#include "harness/tests/catch.hpp"
#include "harness/tests/verify/host_kernels.hpp"

using namespace ladder;
using namespace host_kernels;

TEST_CASE("of a problem of 2^32 elements a head in the middle and the last one are judged") {
  Problem problem = make_problem({.heads = 2, .n = 513, .d = 128}, InputKind::normal, 1);
  problem.far_heads = 65534;
  const auto judged = [&](Kernel* kernel) {
    const Rung rung = rung_of(kernel);
    return check_on_emulator(rung, rung.variants[0], problem);
  };
  // Two heads, where the tensors have them. The product of a head's number and its size is taken in 64 or in 32 bits.
  static const int64_t middle = problem.launched_head(0);
  CHECK(middle * problem.shape.n * problem.shape.d > int64_t{1} << 31);
  static const auto two_heads = [](emulator::Device& device, AttentionParams p, auto times) {
    const AttentionParams all = on_host(device, p);
    for (const int64_t head : {middle, int64_t{p.batch_heads} - 1}) attend_head(all, times(head, p.n * p.d));
  };
  CHECK(judged([](emulator::Device& device, const AttentionParams& p) {
          two_heads(device, p, [](int64_t a, int64_t b) { return a * b; });
        }).ok);
  const CheckResult narrow = judged([](emulator::Device& device, const AttentionParams& p) {
    two_heads(device, p, [](uint32_t a, uint32_t b) { return a * b; });
  });
  REQUIRE(narrow.has(FailureKind::unwritten_output));
  CHECK(narrow.failures[0].message.find("batch 1, head 32766") != std::string::npos);
}

TEST_CASE("of many heads a third one can be judged, which lies between the first and the last") {
  Problem problem = make_problem({.heads = 3, .n = 40, .d = 32}, InputKind::normal, 1);
  problem.far_heads = 1000;
  const int64_t middle = problem.launched_head(1);
  CHECK(problem.launched_head(0) == 0);
  CHECK(problem.launched_head(2) == 999);
  CHECK(middle > 16);
  CHECK(middle < 983);
  const auto judged = [&](Kernel* kernel) {
    const Rung rung = rung_of(kernel);
    return check_on_emulator(rung, rung.variants[0], problem);
  };
  static const auto heads = [](emulator::Device& device, AttentionParams p, std::initializer_list<int64_t> which) {
    for (const int64_t head : which) attend_head(on_host(device, p), static_cast<size_t>(head * p.n * p.d));
  };
  static const int64_t known_middle = middle;
  CHECK(judged([](emulator::Device& device, const AttentionParams& p) {
          heads(device, p, {0, known_middle, 999});
        }).ok);
  const CheckResult without = judged([](emulator::Device& device, const AttentionParams& p) {
    heads(device, p, {0, 999});
  });
  REQUIRE(without.has(FailureKind::unwritten_output));
  CHECK(without.failures[0].message.find(fmt::format("batch {}, head {}", middle / 500, middle % 500)) !=
        std::string::npos);
}

TEST_CASE("where only the ends of a grid run, the rows are judged that they write, and there must be enough of them") {
  Problem problem = make_question({.heads = 2, .n = 1024, .d = 32}, std::array{InputKind::normal, InputKind::ties}, 1);
  problem.ends_only = true;
  // On the host: all rows, one wrong row, nothing at all, half a row.
  const auto judged = [&](Kernel* kernel) {
    const Rung fake = rung_of(kernel);
    return check_sets_on_emulator(fake, fake.variants[0], problem);
  };
  static const auto row = [](emulator::Device& device, const AttentionParams& given, int query, float value) {
    const AttentionParams p = on_host(device, given);
    std::fill_n(p.O + int64_t{query} * p.d, p.d, to_f16(value));
  };
  CHECK(judged(right)[0].ok);
  const auto wrong = judged([](emulator::Device& device, const AttentionParams& p) { row(device, p, 2047, 3.0f); });
  CHECK(wrong[0].ok);
  CHECK(wrong[1].has(FailureKind::wrong_result));
  const auto nothing = judged([](emulator::Device&, const AttentionParams&) {});
  CHECK(nothing[0].has(FailureKind::unwritten_output));
  const auto half = judged([](emulator::Device& device, const AttentionParams& p) {
    const AttentionParams all = on_host(device, p);
    std::fill_n(all.O, 16, to_f16(0.0f));
  });
  CHECK(half[0].has(FailureKind::unwritten_output));
}

TEST_CASE("where only the ends of a grid run, rows of every residue are judged") {
  // 2112 rows, of which 96 are judged: 22 apart, every other row would be left out.
  Problem problem = make_question({.heads = 2, .n = 1056, .d = 32}, std::array{InputKind::normal}, 1);
  problem.ends_only = true;
  static int64_t wrong_residue;
  const Rung rung = rung_of(then([](const AttentionParams& p) {
    for (int64_t row = wrong_residue; row < 2 * p.n; row += 2) p.O[row * p.d] = to_f16(3.0f);
  }));
  for (wrong_residue = 0; wrong_residue < 2; ++wrong_residue)
    CHECK(only(check_on_emulator(rung, rung.variants[0], problem), FailureKind::wrong_result));
}

TEST_CASE("a kernel may take many heads in turn instead of one after the other") {
  Problem problem = make_problem({.heads = 2, .n = 41, .d = 32}, InputKind::normal, 1);
  problem.far_heads = 1000;
  static std::vector<emulator::Options> asked;
  const auto judged = [&](Kernel* kernel) {
    asked.clear();
    const Rung rung = rung_of(kernel);
    return check_on_emulator(rung, rung.variants[0], problem, {.multiprocessors = 7});
  };
  static const int64_t first = problem.launched_head(0);
  static const auto heads = [](emulator::Device& device, AttentionParams p, bool last) {
    asked.push_back(device.options());
    attend_head(on_host(device, p), static_cast<size_t>(first * p.n * p.d));
    if (last) attend_head(on_host(device, p), static_cast<size_t>(int64_t{999} * p.n * p.d));
  };
  // Of the blocks that run, those of the last head are among them one way or the other.
  CHECK(judged([](emulator::Device& device, const AttentionParams& p) {
          heads(device, p, device.options().interleaved);
        }).ok);
  REQUIRE(asked.size() == 2);
  CHECK(asked[1].interleaved);
  CHECK(asked[1].multiprocessors >= 1000);  // none of the blocks has a second head
  // As many blocks as multiprocessors, whatever there is to do: the last head is another block's if there are more of them.
  CHECK(judged([](emulator::Device& device, const AttentionParams& p) {
          heads(device, p, device.options().multiprocessors == static_cast<uint32_t>(p.batch_heads * p.n));
        }).ok);
  CHECK(judged([](emulator::Device& device, const AttentionParams& p) {
          heads(device, p, !device.options().interleaved);
        }).ok);
  CHECK(asked.size() == 1);
  // Where it is wrong either way, the usual one is told.
  const CheckResult without = judged([](emulator::Device& device, const AttentionParams& p) {
    if (!device.options().interleaved) heads(device, p, false);
  });
  REQUIRE(only(without, FailureKind::unwritten_output));
  CHECK_THAT(without.failures[0].message, StartsWith("1312 of 2624 "));
}

TEST_CASE("a kernel may take the last of many heads first") {
  const int known = GENERATE(2, 3);
  static int launches;
  Problem problem = make_problem({.heads = known, .n = 41, .d = 32}, InputKind::normal, 1);
  problem.far_heads = GENERATE(999, 1000);
  CAPTURE(known, problem.far_heads);
  // Head 999 - i, as of a block of head i, where that is among those that run.
  const Rung rung = rung_of([](emulator::Device& device, const AttentionParams& given) {
    ++launches;
    const emulator::Options& options = device.options();
    AttentionParams p = given;
    const auto heads = static_cast<uint64_t>(p.batch_heads);
    if (options.slices != heads || options.interleaved > 0) return;
    for (const uint64_t block : {options.from, std::max(options.from, options.between), heads - 1})
      attend_head(on_host(device, p), static_cast<size_t>((heads - 1 - block) * static_cast<uint64_t>(p.n * p.d)));
  });
  launches = 0;
  const CheckResult result = check_on_emulator(rung, rung.variants[0], problem);
  INFO((result.failures.empty() ? "" : result.failures[0].message));
  CHECK(result.ok);
  CHECK(launches <= 6);
}
