// The `ladder` program: parses, runs one verb, and turns what stopped it into a message and an exit code.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "harness/devices/gpu.hpp"
#include "harness/verbs/recorded.hpp"
#include "harness/verbs/verbs.hpp"

namespace ladder {
namespace {

Result<ExitCode> run_verb(const Options& options) {
  switch (options.verb) {
    case Verb::check:
      return check_verb(options);
    case Verb::explain:
      return explain_verb(options);
#ifdef LADDER_FIRST_LOOK
    case Verb::bench:
      return bench_without_gpu(options, gpu_info().error());
#else
    case Verb::bench:
      return bench_verb(options);
#endif
    case Verb::overview:
      return overview_verb(options);
#ifndef LADDER_FIRST_LOOK
    case Verb::compare:
      return compare_verb(options);
    case Verb::describe:
      return describe_verb(options);
    case Verb::peer:
      return peer_verb(options);
    case Verb::try_file:
      return try_verb(options);
#endif
    default:
      return failure(ExitCode::usage,
                     "This program is for a first look: check, bench, explain and the table.\n"
                     "  All words:  ./ladder build ladder");
  }
}

Result<ExitCode> run(const std::vector<std::string>& arguments) {
  const auto options = parse_options(arguments, rungs());
  if (!options) return passed_on(options);
  return run_verb(*options);
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  using ladder::ExitCode;
  try {
    auto code = ladder::run({argv + 1, argv + argc});
    // What was printed may still be in the buffer, and fail there.
    if (code && (std::fflush(stdout) != 0 || std::ferror(stdout))) {
      code = ladder::failure(ExitCode::check_failed, fmt::format("Standard output: {}.", std::strerror(errno)));
    }
    if (code) return static_cast<int>(*code);
    const ladder::Error& error = code.error();
    std::fflush(stdout);  // what was found before comes before
    fmt::print(error.code == ExitCode::done ? stdout : stderr, "{}\n", error.message);
    return static_cast<int>(error.code);
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "Out of memory. Smaller:  --n, --batch and --heads\n");
    return static_cast<int>(ExitCode::cannot_run_here);
  } catch (const std::exception& error) {  // e.g. standard output is a closed pipe or a full disk
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(ExitCode::check_failed);
  }
}
