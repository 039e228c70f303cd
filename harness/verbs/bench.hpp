// ladder bench: the TFLOPS table, by the protocol of rounds.hpp, against peers and ceilings of the same run.
#pragma once
#include <vector>

#include "harness/measure/peer.hpp"
#include "harness/measure/results.hpp"
#include "harness/verbs/options.hpp"
#include "harness/verbs/recorded.hpp"

namespace ladder {

// In turns, alone or burst, with the rounds and the soak that the options ask for.
Protocol protocol_of(const Options& options);

// Adds a heat to the files of --rounds-csv and --csv; `first`: of the rows that this program writes.
Status record(const Options& options, std::span<const Entry> entries, const HeatRun& run, const RunFacts& facts,
              std::span<const ResultRow> rows, bool first);

// The commands of --peer, and of what lies in harness/peers unless --no-peers.
std::vector<PeerCommand> peer_commands(const Options& options);

}  // namespace ladder
