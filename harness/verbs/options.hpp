// The command line, parsed and checked as far as it can be without touching a machine.
#pragma once
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/problem/inputs.hpp"
#include "harness/stages/rung.hpp"

namespace ladder {

enum class Verb { overview, check, bench, compare, explain, describe, list, peer, try_file };
enum class Where { automatic, cpu, gpu };

// Flags that were not given stay empty, so that each verb can choose its own default per back end.
struct Options {
  Verb verb = Verb::overview;
  std::vector<const Rung*>
      rungs;  // in the order named; all of them when none is (compare: exactly two, null for a peer)
  bool rungs_named = false;
  std::vector<std::string>
      variants;  // compare: what stood behind each rung's name, as in 02:64x32; "" is the default; of
                 // peer:NAME, the name

  std::string
      problem;  // --problem, in the words of problem/spec.hpp; the flags after it are short forms of some of them
  std::vector<int> n;  // --n 4096,8192
  std::optional<int> d, batch, heads;
  bool causal = false;
  uint64_t seed = 1;
  std::vector<InputKind> inputs;
  Where on = Where::automatic;
  bool all = false;     // the overview: rungs beside the line, too
  bool ablate = false;  // all variants of a rung, not only its default

  std::string file, like;   // try: a kernel, and the rung that it was said to stand for; it is in `rungs`
  bool counts = false;      // try: what differs from the rung's counts is a failure
  bool any_scores = false;  // try: scores may be larger than the rung takes them
  bool sealed = false;      // try: its JSON stands between two copies of the word on standard input

  // check
  bool quick = false;             // a few problems on the emulator, not all
  bool thorough = false;          // many random problems more
  bool answers_only = false;      // counts may be what they are
  bool record_counts = false;     // counts.tsv is written anew before
  bool first_failure = false;     // a rung's check ends with a wrong answer
  std::optional<double> timeout;  // seconds for one launch with its inputs and reference

  std::string csv, json, trace;  // a file, "-" for standard output, or empty; known to be writable

  // bench and compare
  bool sweep = false;
  bool burst = false, alone = false;  // not both
  bool resume = false;                // without what csv holds of this commit
  std::optional<int> rounds;
  std::optional<double> soak_seconds;
  std::string versus = "fa2";      // whose rate the table's last ratio is over
  std::string rounds_csv;          // a file, or empty; known to be writable
  std::vector<std::string> peers;  // --peer CMD; peer: the one command
  bool no_peers = false;           // neither those nor the ones in harness/peers/
};

// `arguments` are those behind the program's name. A request for help comes back as an Error with ExitCode::done.
Result<Options> parse_options(std::span<const std::string> arguments, const std::vector<Rung>& known);

// "3", "03", "kvpipe" and "03_kvpipe" name the same rung. The error suggests the nearest name.
Result<const Rung*> find_rung(std::string_view name, const std::vector<Rung>& known);

// One problem for each --n; what the options leave open comes from `defaults`, as far as `accepts` takes that: its formula, its
// types, its nearest head dimension. Without it, that of the first rung that was named.
std::vector<Spec> shapes_for(const Options& options, const Spec& defaults, const Accepts* accepts = nullptr);

// What --problem says of a problem that the flags have made.
Spec with_problem(const Options& options, const Spec& spec);

// Where tables go: standard output, unless --json - or --csv - has reserved it.
std::FILE* table_stream(const Options& options);

}  // namespace ladder
