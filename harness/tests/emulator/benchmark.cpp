// How fast the emulator runs every rung, one head at d = 128: seconds, the best of several runs, buffers included.
//   emulator_benchmark [N..]      default: 512 1024
// Exit code 1 when a run was reported on or its answer is wrong, 2 for an N that a rung cannot do.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

#include "harness/devices/emulator_run.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/rung.hpp"
#include "harness/verify/check.hpp"

namespace {

double seconds(const ladder::Rung& rung, const ladder::Problem& problem, const emulator::Options& options) {
  double best = HUGE_VAL;
  double spent = 0;
  for (int repetition = 0; repetition < 7 && spent < 3; ++repetition) {
    const auto start = std::chrono::steady_clock::now();
    ladder::run_on_emulator(rung, rung.variants.front(), problem, options);
    const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::min(best, taken);
    spent += taken;
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) {
    int n = 0;
    const char* const end = argv[i] + std::strlen(argv[i]);
    if (const auto parsed = std::from_chars(argv[i], end, n); parsed.ec != std::errc() || parsed.ptr != end || n < 1) {
      fmt::print(stderr, "'{}' is no sequence length.\n  emulator_benchmark [N..]    for example:  512 1024\n",
                 argv[i]);
      return 2;
    }
    sizes.push_back(n);
  }
  if (sizes.empty()) sizes = {512, 1024};
  for (const int n : sizes) {
    for (const ladder::Rung& rung : ladder::rungs()) {
      if (const auto able = ladder::supports(rung, rung.variants.front(), {.n = n}); !able) {
        fmt::print(stderr, "{}\n", able.error().message);
        return 2;
      }
    }
  }
  int wrong = 0;
  fmt::print("{:<16} {:>6}  {:>12} {:>12} {:>12}\n", "stage", "N", "unchecked", "checked", "2 threads");
  for (const ladder::Rung& rung : ladder::rungs()) {
    for (const int n : sizes) {
      const ladder::Problem problem = ladder::make_problem({.n = n}, ladder::InputKind::normal, 1);
      // What is wrong may be fast: it gets no figures.
      if (const auto checked = ladder::check_on_emulator(rung, rung.variants.front(), problem); !checked.ok) {
        const bool said = !checked.failures.empty();
        fmt::print("{:<16} {:>6}  WRONG  {}\n", rung.name, n, said ? checked.failures.front().message : "");
        ++wrong;
        continue;
      }
      fmt::print("{:<16} {:>6}  {:>12.3f} {:>12.3f} {:>12.3f}\n", rung.name, n,
                 seconds(rung, problem, {.threads = 1, .check = false, .count = false}),
                 seconds(rung, problem, {.threads = 1}), seconds(rung, problem, {.threads = 2}));
      std::fflush(stdout);
    }
  }
  return wrong > 0 ? 1 : 0;
}
