// Contestants from outside: any program that speaks JSON lines on its standard input and output. It lives in its own
// process and times itself with its own CUDA events; inputs are handed to it, and its outputs are judged here.
// harness/peers/README.md has the protocol.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/base/files.hpp"
#include "harness/base/json.hpp"
#include "harness/base/process.hpp"
#include "harness/problem/problem.hpp"

namespace ladder {

constexpr int PEER_PROTOCOL =
    3;  // 2: of problems there were dense and causal ones in fp16 alone; 1: a peer made its own inputs, and
        // its answers were seen by nobody

struct PeerCommand {
  std::string label;                   // for messages, until the peer has said its name
  std::vector<std::string> arguments;  // program first
};

// A --peer option: a line for the shell.
PeerCommand peer_from_option(const std::string& command_line);
// The executable files of a directory, by name. Whether they can run here, they say themselves.
std::vector<PeerCommand> find_peers(const std::filesystem::path& directory);

struct PeerLimits {      // seconds
  double prepare = 180;  // PyTorch from a cold disk
  double run = 60;
};

// What a peer says of itself for one shape.
struct PeerInfo {
  std::string name;                                          // "fa2": the row's name
  std::string version;                                       // "pytorch 2.11"
  int protocol = 1;                                          // what it keeps
  bool ceiling = false;                                      // a thermometer, not an attention: "kind":"ceiling"
  std::optional<double> flops;                               // of one launch of a ceiling: "flops"
  bool judged() const { return protocol >= 2 && !ceiling; }  // poison and output can be asked of it
};

// The inputs of one problem in files, where all peers read them: of the problem's types in the machine's byte order, [batch,
// heads, n, d] contiguous. In memory where there is room (/dev/shm), else in the directory for temporary files. Removed with the object.
struct PeerFiles {
  Folder folder;
  static Result<PeerFiles> create(const Inputs& inputs);
  std::filesystem::path of(std::string_view tensor) const { return folder.path() / tensor; }
};

// All errors name the peer and quote the end of its standard error. A peer that answers "ok":false gives its reason with
// ExitCode::cannot_run_here; one that dies, hangs, prints rubbish or speaks unasked gives check_failed.
class Peer {
 public:
  static Result<Peer> start(const PeerCommand& command, PeerLimits limits = {});

  // Asks; the answer is fetched by prepared(), so that several peers can prepare at the same time.
  Status ask_to_prepare(const Shape& shape, std::string_view inputs, uint64_t seed, const PeerFiles& files);
  Result<PeerInfo> prepared();
  // Fills its output with NaN.
  Status poison();
  // Milliseconds of `launches` back-to-back launches.
  Result<double> time_ms(int launches);
  // These rows of the last launch's output, as one unit.
  Result<Tensor> output(std::span<const Cell> cells);
  // A request that the protocol does not have: "ok":false is the right answer, and any other the error.
  Status refuses_unknown_requests();
  // False once it has died, hung or printed rubbish: a late answer to one request must not pass for that to the next.
  bool usable() const { return usable_; }
  const std::string& label() const { return label_; }

 private:
  Peer(std::unique_ptr<Process> process, std::string label, PeerLimits limits)
      : process_(std::move(process)), label_(std::move(label)), limits_(limits) {}
  Status send(const std::string& request);
  Result<Json> ask(const Json& request, double limit_s);  // the answer, "ok":true
  Unexpected blame(const Error& error);

  std::unique_ptr<Process> process_;
  std::string label_, name_;
  PeerLimits limits_;
  bool usable_ = true;
  TensorSpec output_;
  bool plain_ = true;  // what it was asked for, protocol 2 knows as well
  std::filesystem::path output_file_;
};

// Peer::time_ms, unless no card can be as fast as that (`flops` of one launch), or far more time has passed here.
Result<double> believed_ms(Peer& peer, int launches, double flops, const PeerInfo& info);
// Poisons the output, launches once and holds all of the problem's rows to the reference: the largest error, or what is wrong.
Result<double> judge(Peer& peer, const Problem& problem);
// The same of some rows, drawn with `seed`, of what the last launches left.
Status judge_some(Peer& peer, const Problem& problem, uint64_t seed);

}  // namespace ladder
