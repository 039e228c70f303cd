// What a rung tells the harness about itself. A stage.cu fills one Rung and registers it. It is compiled several
// times, by the C++ compiler for the emulator and by nvcc, which hands over how a kernel is started on the GPU and nothing else
// (stage_gpu.hpp); the registry joins what they register by name.
#pragma once
#ifdef __CUDACC__
#include "harness/stage_gpu.hpp"
#else
#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/stage_words.hpp"

namespace emulator {
class Device;  // common/emulator/emulator.hpp
}

namespace ladder {

using Label = std::string;

// The function of a rung that starts its kernels on one device, whatever parameters they take.
template <class Device>
class Start {
 public:
  Start() = default;
  template <class Params>
  Start(void (*run)(Device&, const Params&))
      : bind_([run](const Arguments& arguments) {
          Params params{};
          convert(arguments, params);
          return [run, params](Device& device) { run(device, params); };
        }) {}
  Start(const GpuStart& half);

  // A launch with these arguments: any number of times, without any more work on the host than the launch.
  std::function<void(Device&)> with(const Arguments& arguments) const { return bind_(arguments); }
  explicit operator bool() const { return bind_ != nullptr; }
  friend bool operator==(const Start& start, std::nullptr_t) { return !start; }

 private:
  std::function<std::function<void(Device&)>(const Arguments&)> bind_;
};
template <>
Start<gpu::Device>::Start(const GpuStart& half);
using EmulatedLaunch = Start<emulator::Device>;
using GpuLaunch = Start<gpu::Device>;

// The emulated kernels are built twice: variables that a kernel leaves unset hold a bit pattern, or zeros. A right
// kernel cannot tell the difference.
enum class Unset { pattern, zero };
#ifdef LADDER_UNSET_IS_ZERO
constexpr Unset UNSET = Unset::zero;
#else
constexpr Unset UNSET = Unset::pattern;
#endif

// One compiled configuration of a rung's kernel. The first of a rung is its default, the others are ablations.
struct Variant {
  Label label = {};         // unique within the rung; from the tile, "64x128, 4 warps", if stage.cu gives none
  std::string config = {};  // the kernel's Config as the compiler writes it, "Config<64, 128, 4>"; empty without one
  Tile tile = {};
  uint32_t smem_bytes = 0;  // dynamic shared memory per block, and what each of the n keys adds to it:
  uint32_t smem_bytes_per_key = 0;
  EmulatedLaunch on_emulator = {};         // with Unset::pattern
  EmulatedLaunch on_emulator_zeroed = {};  // with Unset::zero
  GpuLaunch on_gpu = {};
  const void* gpu_kernel = nullptr;  // for cudaFuncGetAttributes: registers, local bytes
  double conflict_ways = 0;          // of the worst ldmatrix or wmma.load line (8, 1); 0: the rung has none
  std::function<Counts(const Shape&)> predict = {};  // expected counts, exact; but where the data decide,
  uint64_t shuffles_per_rescale = 0;  // the fewest shuffles, and each rescale of a warp makes so many more

  Accepts accepts = {};                                 // which problems it takes
  bool writes_lse = false;                              // fills AttentionParams::LSE
  uint64_t (*workspace_bytes)(const Shape&) = nullptr;  // AttentionParams::workspace; null: it needs none
  bool stores_scores = false;                           // what that holds is all n^2 scores

  bool takes(Feature feature) const { return (accepts.features & feature) != 0; }
  uint64_t smem_at(int n) const { return smem_bytes + uint64_t{smem_bytes_per_key} * n; }
  uint64_t workspace_at(const Shape& shape) const { return workspace_bytes ? workspace_bytes(shape) : 0; }
};

struct Rung {
  std::string_view name;           // its directory: "03_kvpipe"
  std::string_view previous = "";  // the rung whose idea it adds its own to, "02_swizzle"; none for the first alone
  std::string_view idea;           // one sentence
  std::string_view limit;          // what limits the rung before, one sentence
  std::string_view prediction;     // what we expected before measuring, with the reason
  int min_sm = 80;                 // oldest GPU whose instructions suffice
  int max_sm = 0;                  // newest one that has them; 0: every newer one has
  std::string_view needs = "";     // which ones those are: "mma.m16n8k16, cp.async"
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
// one, the one with the longest line of successors comes last, so that a branch stands beside what it branches from.
const std::vector<Rung>& rungs();

// The rung that `rung` names as its previous; null for the first.
const Rung* previous_of(const Rung& rung);

// Adds a rung, or joins its variants with those that another build of the same stage.cu has registered. Made before
// main.
struct Registration {
  explicit Registration(Rung rung);
};

// Takes a rung's variants away, so that those of another build of it, which registers next, stand alone.
void forget_variants(const Rung& rung);

// One Variant of a stage.cu's: `rest` is completed with what its tile and the launch function of the build say.
Variant make_variant(Tile tile, uint32_t smem_bytes, EmulatedLaunch run, const void* kernel,
                     std::function<Counts(const Shape&)> predict, Variant rest = {}, Unset unset = UNSET);

// "Config<64, 128, 4>" of that type, without the namespaces around it.
template <class Type>
std::string type_name() {
  const std::string_view signature = __PRETTY_FUNCTION__;  // "... [with Type = {anonymous}::Config<64, 128, 4>; ..."
  const size_t begin = signature.find("Type = ") + 7;
  const std::string_view type = signature.substr(begin, signature.find_first_of(";]", begin) - begin);
  const size_t scope = type.substr(0, type.find('<')).rfind("::");
  return std::string(type.substr(scope == std::string_view::npos ? 0 : scope + 2));
}

// The same of a kernel's Config, which has BR, BC, WARPS and SMEM_BYTES.
template <class Config, class Device, class Arguments, class... Params>
Variant make_variant(void (*run)(Device&, const Arguments&), void (*kernel)(Params...),
                     std::function<Counts(const Shape&)> predict, Variant rest = {}) {
  rest.config = type_name<Config>();
  return make_variant({Config::BR, Config::BC, Config::WARPS}, Config::SMEM_BYTES, Start<Device>(run),
                      reinterpret_cast<const void*>(kernel), std::move(predict), std::move(rest));
}

}  // namespace ladder
#endif
