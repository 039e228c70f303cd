// For the claims.cpp of a rung's directory: tests of what that rung alone says of itself, in its chapter or as its idea. What
// holds for every rung by what its stage.cu declares stands in stage_tests.cpp.
//
//   CLAIM("V is loaded with half as many ldmatrix, K and Q with as many") {
//     ...ldmatrix_by_region(rung())...
//   }
//
// A claim is about rung() and the rung that it starts from, previous(), and names no other. CMake compiles the file in a namespace,
// with LADDER_RUNG, the directory's name, so it includes this header alone; `ctest -L 03` runs the claims of rung 03 with its other tests.
#ifndef HARNESS_TESTS_STAGES_CLAIMS_HPP
#define HARNESS_TESTS_STAGES_CLAIMS_HPP
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/emulator/emulator.hpp"
#include "harness/devices/emulator_run.hpp"
#include "harness/problem/problem.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/tests/catch.hpp"
#include "harness/verify/check.hpp"

namespace ladder::claims {

constexpr Shape SMALL{.batch = 1, .heads = 1, .n = 256, .d = 128};  // two KV tiles of the widest tile
constexpr Shape FULL{.batch = 1, .heads = 1, .n = 512, .d = 128};   // what `ladder explain` counts at

// The rung of that name; the test fails without one.
const Rung& rung_named(std::string_view name);
// The rung that `rung` starts from; the test fails without one.
const Rung& previous_to(const Rung& rung);

// A problem of these input sets, or of one, made once per process.
const Problem& problem(const Shape& shape, std::span<const InputKind> kinds);
const Problem& problem(const Shape& shape, InputKind kind = InputKind::normal);

// What a check of a variant, or of a rung's default, says on normal inputs; right, or the test fails. Run once per process.
const CheckResult& checked(const Rung& rung, const Variant& variant, const Shape& shape = SMALL);
const CheckResult& checked(const Rung& rung, const Shape& shape = SMALL);
// Its counters.
const emulator::Counters& counted(const Rung& rung, const Variant& variant, const Shape& shape = SMALL);
const emulator::Counters& counted(const Rung& rung, const Shape& shape = SMALL);
// Of these, what every rung predicts; zeros for the others.
inline Counts counts_of(const emulator::Counters& counters) {
  Counts counts = counters;
  for (const emulator::Count& count : emulator::COUNTS) {
    if (count.is(emulator::WHERE_SAID)) counts.*count.value = 0;
  }
  return counts;
}
// The same with zeros where somebody else is to say what is right.
inline Counts but_for(Counts counts, std::initializer_list<emulator::CountOf> left_out) {
  for (const emulator::CountOf each : left_out) counts.*each = 0;
  return counts;
}
// All that went wrong, for the message of a failed test.
std::string reasons(const CheckResult& result);

bool same_bits(const CheckResult& a, const CheckResult& b);

// The variant with that tile; the test fails without one.
const Variant& with_tile(const Rung& rung, const Tile& tile);

// ldmatrix instructions, of each named region of shared memory: "Q", "K", "V".
std::map<std::string, uint64_t> ldmatrix_by_region(const Rung& rung, const Variant& variant,
                                                   const Shape& shape = SMALL);
std::map<std::string, uint64_t> ldmatrix_by_region(const Rung& rung, const Shape& shape = SMALL);

// Traffic with one region of shared memory, by instructions whose names begin with `instruction`.
struct Traffic {
  uint64_t requests = 0, wavefronts = 0, ideal = 0;
};
Traffic traffic(const emulator::Counters& counters, std::string_view region, std::string_view instruction = "");

// The loads of one buffer by the first block: {{bytes that the lanes ask for, bytes from the first to the last of them}:
// how many such loads}.
using Loads = std::map<std::pair<uint64_t, uint64_t>, int>;
Loads first_blocks_loads(const Rung& rung, std::string_view buffer, const Shape& shape);

// What a block that reads its queries once, and K and V once per block, reads from global memory.
uint64_t bytes_read_by_tile(const Tile& tile, const Shape& shape);

// How many mma of each product a warp issues while its copy into a region has been started and not yet waited for, in four
// tiles of keys: {{region, product}: mma}. The product is named by the operand that its fragments were last read from: K is
// QK, V is PV. A wait for one slot of a ring counts for all of them.
using Overlaps = std::map<std::pair<std::string, std::string>, int>;
Overlaps mma_under_copies(const Rung& rung);
// The mma that a warp issues for one product of one tile of keys.
int mma_per_tile(const Rung& rung);

// Instructions of one name in the variant's machine code for sm_90, "LDSM", as docs/results/h200_counters.csv has recorded them;
// the test fails where it has not.
int in_machine_code(const Rung& rung, const Variant& variant, std::string_view opcode);
int in_machine_code(const Rung& rung, std::string_view opcode);

// Inputs, without a reference, whose rows see eight tiles of keys with scores that grow by `growth` log2 units per tile.
constexpr int GROWING_TILES = 8;
Problem growing_scores(const Rung& rung, float growth);
// The first variant that takes it, or the default, on a problem without a reference. Of its rows every seventh is looked at: each of a warp's 16 in turn.
CheckResult judged(const Rung& rung, Problem problem);
// Those of the eight tiles in which `rung` rescales O, by the votes of its first warp.
std::vector<int> rescaled_tiles(const Rung& rung, float growth);

// How often the first warp of the grid executes an instruction while products of its warpgroup are in flight, with eight tiles of
// keys: "vote.any" is where its softmax is.
int under_products(const Rung& rung, std::string_view instruction);
// The warps that ask for bulk copies, in the first block.
std::set<int> copying_warps(const Rung& rung);

}  // namespace ladder::claims
#endif

// For each claims.cpp of a file again.
#ifdef LADDER_RUNG
#define CLAIM(text) TEST_CASE(LADDER_RUNG ": " text, "[" LADDER_RUNG "]")

namespace {
[[maybe_unused]] const ladder::Rung& rung() {
  return ladder::claims::rung_named(LADDER_RUNG);
}
[[maybe_unused]] const ladder::Rung& previous() {
  return ladder::claims::previous_to(rung());
}
}  // namespace
#endif
