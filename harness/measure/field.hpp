// Who takes part in a bench of one shape, and the machine it runs on: the side of the bench that needs a GPU.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/devices/gpu.hpp"
#include "harness/measure/ceilings.hpp"
#include "harness/measure/group.hpp"
#include "harness/measure/nvml.hpp"
#include "harness/measure/peer.hpp"
#include "harness/measure/results.hpp"
#include "harness/measure/rounds.hpp"
#include "harness/verify/check.hpp"

namespace ladder {

// Peers, each in its process, from one shape to the next. Those that have failed are dropped.
class PeerPool {
 public:
  explicit PeerPool(const std::vector<PeerCommand>& commands);
  // Lets all of them prepare a problem at the same time, from files that they share.
  void ask_to_prepare(const Problem& problem);
  const std::vector<std::shared_ptr<Peer>>& peers() const { return peers_; }
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

 private:
  std::vector<std::shared_ptr<Peer>> peers_;  // shared with the contestants
  std::optional<PeerFiles> files_;
  std::vector<std::string> notes_;  // about those that failed to start or to listen
};

// The contestants of one shape; entry i and contestant i belong together.
class Field {
 public:
  // Uploads the problem. Fails when it does not fit into the GPU's memory.
  static Result<Field> create(const GpuInfo& gpu, std::shared_ptr<const Problem> problem, uint64_t workspace_bytes);

  // Checks the variant against the reference; a right one joins, and its timed groups are those of group.hpp. What
  // cannot run or is wrong becomes a note.
  void add(const Rung& rung, const Variant& variant);
  void add_ceilings(bool thermometers);  // or those alone that bound a row
  // Takes the answers of peers that were asked to prepare this problem, and judges them: all, or those of these names.
  // Fails only when interrupted.
  Status add_peers(PeerPool& pool, std::span<const std::string> only = {});

  std::span<const Entry> entries() const { return entries_; }
  std::span<const Contestant> contestants() const { return contestants_; }
  const std::vector<std::string>& notes() const { return notes_; }
  bool all_right() const { return all_right_; }                     // no rung was wrong
  const std::optional<Error>& refusal() const { return refusal_; }  // why the first rung that cannot run cannot

 private:
  Field(const GpuInfo& gpu, std::shared_ptr<const Problem> problem, std::shared_ptr<GpuProblem> on_gpu,
        std::shared_ptr<Groups> groups);

  GpuInfo gpu_;
  std::shared_ptr<const Problem> problem_;  // shared with the contestants
  std::shared_ptr<GpuProblem> on_gpu_;
  std::shared_ptr<Groups> groups_;
  std::vector<Entry> entries_;
  std::vector<Contestant> contestants_;
  std::vector<std::string> notes_;
  bool all_right_ = true;
  std::optional<Error> refusal_;
};

// The clock, the card's clocks, a common load, NVML if there is one, Ctrl-C, and whoever is told of progress.
class RealMachine {
 public:
  explicit RealMachine(const std::string& pci_bus_id);
  Machine machine(std::function<void(std::string_view what, double seconds)> progress);
  std::string driver_version() const { return nvml_ ? nvml_->driver_version() : ""; }
  std::vector<std::string> notes() const { return notes_; }  // what it lacks

 private:
  std::optional<Nvml> nvml_;
  std::unique_ptr<SmClocks> clocks_;
  std::unique_ptr<Ceiling> load_;
  std::vector<std::string> notes_;
};

// What the rows of this shape have in common; the commit is LADDER_COMMIT, of the environment or else of the build.
RunFacts run_facts(const GpuInfo& gpu, const RealMachine& machine, const Problem& problem, Regime regime);

}  // namespace ladder
