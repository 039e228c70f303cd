// ladder bench: the TFLOPS table, by the protocol of rounds.hpp, against peers and ceilings of the same run.
#pragma once
#include <filesystem>
#include <vector>

#include "harness/measure/peer.hpp"
#include "harness/verbs/options.hpp"
#include "harness/verbs/recorded.hpp"

namespace ladder {

// In turns, alone or burst, with the rounds and the soak that the options ask for.
Protocol protocol_of(const Options& options);

// Where peers are kept.
std::filesystem::path peers_directory();
// The commands of --peer, and of what lies in that directory unless --no-peers.
std::vector<PeerCommand> peer_commands(const Options& options);

}  // namespace ladder
