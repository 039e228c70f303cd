// ladder bench: the TFLOPS table, by the protocol of rounds.hpp, against peers and ceilings of the same run.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/measure/csv.hpp"
#include "harness/measure/peer.hpp"
#include "harness/measure/rounds.hpp"
#include "harness/verbs/options.hpp"

namespace ladder {

Result<ExitCode> bench_verb(const Options& options);

// What the options ask for: --n and the rest, the headline shape without any, and with --sweep N = 512 ... 16384 at
// batch * N = 16384 before those of an explicit --n.
std::vector<Shape> bench_shapes(const Options& options);

// In turns, alone or burst, with the rounds and the soak that the options ask for.
Protocol protocol_of(const Options& options);

// Where results and peers are kept.
std::filesystem::path recorded_results_directory();
std::filesystem::path peers_directory();
// The commands of --peer, and of what lies in that directory unless --no-peers.
std::vector<PeerCommand> peer_commands(const Options& options);

// Those of `recorded` that answer the options, as a table marked as recorded; or a line saying that there are none.
std::string recorded_table(std::span<const ResultRow> recorded, const Options& options, size_t columns = 0);

}  // namespace ladder
