// The rungs of this binary: what every build of a rung's stage.cu (stage.hpp) has said of it, joined by name.
#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/stages/stage_words.hpp"

namespace gpu {
struct Device;  // common/ptx/device.cuh
}
namespace emulator {
class Device;  // common/emulator/emulator.hpp
}

namespace ladder {

// The function of a rung that starts its kernels on one device, whatever parameters they take.
template <class Device>
class Start {
 public:
  Start() = default;
  template <class Params>
  Start(void (*run)(Device&, const Params&)) : start_(run) {}
  explicit Start(const KernelStart& start) : start_(start) {}

  // A launch with these arguments: any number of times, without any more work on the host than the launch.
  std::function<void(Device&)> with(const Arguments& arguments) const {
    struct Params {
      alignas(std::max_align_t) std::byte bytes[KernelStart::PARAMS_BYTES] = {};
    } params;
    start_.bind(arguments, params.bytes);
    return [start = start_, params](Device& device) { start.start(start.run, &device, params.bytes); };
  }
  explicit operator bool() const { return start_.run != nullptr; }
  friend bool operator==(const Start& start, std::nullptr_t) { return !start; }

 private:
  KernelStart start_;
};
using EmulatedLaunch = Start<emulator::Device>;
using GpuLaunch = Start<gpu::Device>;

// What a prediction says, as a number.
constexpr uint64_t in_numbers(uint64_t predicted) {
  return predicted == NONE ? 0 : predicted;
}

// The words of told::Rung and told::Variant (stage.hpp), each with what became of it.
struct Variant {
  std::string label = {};
  std::string config = {};  // the kernel's Config as the compiler writes it, "Config<64, 128, 4>"; empty without one
  Tile tile = {};
  uint32_t smem_bytes = 0;
  uint32_t smem_bytes_per_key = 0;
  EmulatedLaunch on_emulator = {};         // of Build::pattern
  EmulatedLaunch on_emulator_zeroed = {};  // of Build::zero
  EmulatedLaunch on_emulator_fused = {};   // of Build::fused
  GpuLaunch on_gpu = {};
  const void* gpu_kernel = nullptr;  // for cudaFuncGetAttributes: registers, local bytes
  double conflict_ways = 0;
  std::function<Counts(const Launched&)> predict = {};
  Counts per_rescale = {};
  Counts per_look = {};
  Counts most_per_rescale = {};
  std::function<Counts(const Launched&)> most_of_data = {};
  bool recorded = false;

  Accepts accepts = {};
  bool writes_lse = false;
  uint64_t (*workspace_bytes)(const Shape&) = nullptr;
  bool stores_scores = false;
  bool from_first_key = false;
  int few_rows = 0;
  int few_tiles = 0;
  int few_keys = 0;
  int dense_tiles = 0;
  bool several = false;
  bool same_bits = false;
  float largest_score = 0;
  int keys_of_one_sign = 0;
  int keys_of_rising_weights = 0;

  bool takes(Feature feature) const { return (accepts.features & feature) != 0; }
  uint64_t smem_at(int n) const { return smem_bytes + uint64_t{smem_bytes_per_key} * n; }
  uint64_t workspace_at(const Shape& shape) const { return workspace_bytes ? workspace_bytes(shape) : 0; }
};

struct Rung {
  std::string_view name;
  std::string_view previous = "";
  Role role = Role::branch;
  bool untried = false;
  MoreLines more_lines = {};
  std::string_view idea;
  std::string_view limit;
  std::string_view prediction;
  int min_sm = 80;
  int max_sm = 0;
  std::string_view needs = "";
  std::vector<ResourceBound> resources = {};
  std::vector<Variant> variants = {};
  std::string directory = {};  // relative to the repository: "past_fa2/08_fragorder"; the registration knows it

  // The most workspace that a variant of it needs for `shape`, in bytes.
  uint64_t workspace_at(const Shape& shape) const {
    uint64_t most = 0;
    for (const Variant& variant : variants) most = std::max(most, variant.workspace_at(shape));
    return most;
  }
  std::string_view number() const { return name.substr(0, name.find('_')); }  // "03"
  std::string_view word() const { return name.substr(name.find('_') + 1); }   // "kvpipe"
  // The folder of its directory, "past_fa2"; empty for the ladder's top level.
  std::string_view part() const {
    return std::string_view(directory).substr(0,
                                              directory.size() > name.size() ? directory.size() - name.size() - 1 : 0);
  }
};

// Every rung of this binary. A rung comes after the one that it names as its previous; of several that name the same
// one, the one with the longest line of successors comes last, so that a branch stands beside what it branches from;
// but one that answers another problem, as gradients do, comes behind them all.
const std::vector<Rung>& rungs();

// Where it is told why there is an end to the scores that a variant takes: "05_exp2f".
std::string_view chapter_of_largest_score(const Variant& variant);
// The rung that `rung` names as its previous; null for the first.
const Rung* previous_of(const Rung& rung);

// The rung of the line that `rung` is or hangs under: the nearest of those that it comes from, or the first of all.
const Rung& of_line(const Rung& rung);

// All rungs, each of the line with what hangs under it behind it.
std::vector<const Rung*> by_line();

// "line", "branch", "variant", "port", "lost"
std::string_view to_string(Role role);

// Adds a rung of a test's own. Made before main.
struct Registration {
  explicit Registration(Rung rung);
};

// Takes a rung's variants away, so that those of another build of it, which registers next, stand alone.
void forget_variants(const Rung& rung);

}  // namespace ladder
