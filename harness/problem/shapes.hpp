// Which problems a rung takes.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/problem/spec.hpp"
#include "harness/stages/rung.hpp"

namespace ladder {

// What a verb takes where no shape is named. On the emulator, in a second; on a GPU the write-up's for figures, a
// smaller one to check, and between them one for its counters.
constexpr Shape EMULATOR_SHAPE{.batch = 1, .heads = 1, .n = 512, .d = 128};
constexpr Shape HEADLINE{.batch = 16, .heads = 16, .n = 8192, .d = 128};
constexpr Shape GPU_CHECK_SHAPE{.batch = 2, .heads = 4, .n = 1024, .d = 128};
constexpr Shape GPU_COUNTED_SHAPE{.batch = 1, .heads = 2, .n = 4096, .d = 128};
constexpr int SWEEP_TOKENS = 16384;  // batch times N of the sweep over N

// The problem with the formula, the types and the nearest head dimension that are taken.
Spec fitted(const Accepts& accepts, Spec spec);

// The features that the problem asks for; not TAILS, which depends on whose tiles they are.
uint32_t needs(const Spec& spec);
// How many features the variant has that the problem does not ask for, and that cost it something all the same.
int unasked(const Variant& variant, const Spec& spec);
// Features by their names: "causal", "grouped".
std::vector<std::string_view> names_of(uint32_t features);

// Success, or all that the variant lacks to solve the problem in one sentence, with the nearest N that it can and the
// rungs that do it: usage, or cannot_run_here when no GPU, emulated or not, has the shared memory for it.
Status supports(const Rung& rung, const Variant& variant, const Spec& spec);
// The same in a word.
bool takes(const Variant& variant, const Spec& spec);

// Success, or how much shared memory per block the variant needs at n keys and that `who` has `available` bytes of it
// (cannot_run_here).
Status fits_shared_memory(const Rung& rung, const Variant& variant, int n, size_t available, const std::string& who);

}  // namespace ladder
