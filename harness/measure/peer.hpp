// Contestants from outside: any program that speaks JSON lines on its standard input and output. It lives in its own
// process, makes its own inputs and times itself with its own CUDA events. harness/peers/README.md has the protocol.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/base/process.hpp"
#include "harness/stage.hpp"

namespace ladder {

struct PeerCommand {
  std::string label;                   // for messages, until the peer has said its name
  std::vector<std::string> arguments;  // program first
};

// A --peer option: a line for the shell.
PeerCommand peer_from_option(const std::string& command_line);
// The executable files of a directory, by name. Whether they can run here, they say themselves.
std::vector<PeerCommand> find_peers(const std::filesystem::path& directory);

struct PeerLimits {      // seconds
  double prepare = 180;  // PyTorch from a cold disk, and a check against float64
  double run = 60;
};

// What a peer says of itself for one shape.
struct PeerInfo {
  std::string name;               // "fa2": the row's name
  std::string version;            // "pytorch 2.11"
  std::optional<double> max_err;  // not below 0; nothing: unverified
  bool ceiling = false;           // a thermometer, not an attention: "kind":"ceiling"
  std::optional<double> flops;    // of one launch of a ceiling: "flops"
};

// All errors name the peer and quote the end of its standard error. A peer that answers "ok":false gives its reason with
// ExitCode::cannot_run_here; one that dies, hangs or prints rubbish gives check_failed.
class Peer {
 public:
  static Result<Peer> start(const PeerCommand& command, PeerLimits limits = {});

  // Asks; the answer is fetched by prepared(), so that several peers can prepare at the same time.
  Status ask_to_prepare(const Shape& shape, std::string_view inputs, uint64_t seed);
  Result<PeerInfo> prepared();
  // Milliseconds of `launches` back-to-back launches.
  Result<double> time_ms(int launches);
  // False once it has died, hung or printed rubbish: a late answer to one request must not pass for that to the next.
  bool usable() const { return usable_; }

 private:
  Peer(Process process, std::string label, PeerLimits limits)
      : process_(std::move(process)), label_(std::move(label)), limits_(limits) {}
  Error blame(const Error& error);

  Process process_;
  std::string label_;
  PeerLimits limits_;
  bool usable_ = true;
};

}  // namespace ladder
