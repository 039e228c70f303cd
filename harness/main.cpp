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

// By what was asked for.
constexpr std::pair<Verb, Result<ExitCode> (*)(const Options&)> VERBS[] = {
    {Verb::overview, overview_verb},
    {Verb::check, check_verb},
    {Verb::explain, explain_verb},
    {Verb::describe, describe_verb},
    {Verb::list, list_verb},
#ifdef LADDER_FIRST_LOOK
    {Verb::bench, [](const Options& options) { return bench_without_gpu(options, gpu_info().error()); }},
#else
    {Verb::bench, bench_verb},       {Verb::compare, compare_verb}, {Verb::peer, peer_verb},
    {Verb::try_file, try_verb},
#endif
};

Result<ExitCode> run(const std::vector<std::string>& arguments) {
  const auto options = parse_options(arguments, rungs());
  if (!options) return passed_on(options);
  for (const auto& [verb, function] : VERBS) {
    if (verb == options->verb) return function(*options);
  }
  return failure(ExitCode::usage,
                 "This program is for a first look: check, bench, explain, list, describe and the table.\n"
                 "  All words:  ./ladder build ladder");
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  using ladder::ExitCode;
  try {
    auto code = ladder::run({argv + 1, argv + argc});
    // What was printed may still be in the buffer, and fail there.
    if (code && (std::fflush(stdout) != 0 || std::ferror(stdout))) {
      code = ladder::failure(ExitCode::check_failed, "Standard output: {}.", std::strerror(errno));
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
