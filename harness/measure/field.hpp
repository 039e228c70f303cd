// Who takes part in a bench of one shape, and the machine it runs on: the side of the bench that needs a GPU.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/devices/gpu.hpp"
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
  // Lets all of them prepare a shape at the same time.
  void ask_to_prepare(const Shape& shape, InputKind kind, uint64_t seed);
  const std::vector<std::shared_ptr<Peer>>& peers() const { return peers_; }
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

 private:
  std::vector<std::shared_ptr<Peer>> peers_;  // shared with the contestants
  std::vector<std::string> notes_;            // about those that failed to start or to listen
};

// The contestants of one shape; entry i and contestant i belong together.
class Field {
 public:
  // Makes inputs and reference and uploads them. Fails when the shape does not fit into the GPU's memory.
  static Result<Field> create(const GpuInfo& gpu, const Shape& shape, InputKind kind, uint64_t seed,
                              uint64_t workspace_bytes);

  // Checks the variant against the reference; a right one joins, and its timed groups are those of group.hpp. What
  // cannot run or is wrong becomes a note.
  void add(const Stage& stage, const Variant& variant);
  void add_mma_ceiling();
  // Takes the answers of peers that were asked to prepare this shape. Fails only when interrupted.
  Status add_peers(PeerPool& pool);

  std::span<const Entry> entries() const { return entries_; }
  std::span<const Contestant> contestants() const { return contestants_; }
  const std::vector<std::string>& notes() const { return notes_; }
  bool all_right() const { return all_right_; }                     // no stage was wrong
  const std::optional<Error>& refusal() const { return refusal_; }  // why the first stage that cannot run cannot

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

// The clock, NVML if there is one, Ctrl-C, and a line of progress on standard error.
Machine real_machine(Nvml* nvml, std::function<void(std::string_view what, int done, int total)> progress);

// What the rows of this shape have in common; the commit is LADDER_COMMIT, of the environment or else of the build.
RunFacts run_facts(const GpuInfo& gpu, const std::optional<Nvml>& nvml, const Shape& shape, InputKind kind,
                   Regime regime);

}  // namespace ladder
