// What a stage tells the harness about itself. A stage.cu fills one Stage per back end and registers it; the registry
// joins the two by name. The stage.cu is compiled twice: by nvcc for the GPU and by the C++ compiler for the emulator.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/attention.hpp"

namespace gpu {
struct Device;  // common/ptx/launch.cuh
}
namespace emulator {
class Device;  // common/emulator/emulator.hpp
}

namespace ladder {

// Size of one attention problem. All three tensors and the output are [batch, heads, n, d], f16.
struct Shape {
  int batch = 1;
  int heads = 1;
  int n = 512;
  int d = 128;
  bool causal = false;
  float softmax_scale = 0;  // 0: the usual 1 / sqrt(d)

  float scale() const { return softmax_scale > 0 ? softmax_scale : 1.0f / std::sqrt(static_cast<float>(d)); }
  int64_t batch_heads() const { return int64_t{batch} * heads; }
  int64_t elements() const { return batch_heads() * n * d; }
  bool operator==(const Shape&) const = default;
};

// One block's share of the work: `br` query rows against `bc` key/value rows at a time.
struct Tile {
  int br = 0;
  int bc = 0;
  int warps = 0;
  int m_tiles() const { return br / (16 * warps); }  // 16-row groups of queries per warp
  bool operator==(const Tile&) const = default;
};

// Exact event counts of one launch on the emulator; a warp instruction counts once. Bytes are those asked for.
struct Counts {
  uint64_t mma = 0;
  uint64_t ldmatrix = 0;
  uint64_t shuffles = 0;
  uint64_t barriers = 0;  // __syncthreads, once per block
  uint64_t gmem_bytes_read = 0;
  uint64_t gmem_bytes_written = 0;
  bool operator==(const Counts&) const = default;
};

// ptxas' word on the default variant, enforced by a test: no more registers and spill bytes than this.
struct ResourceBound {
  int sm;         // 80, 90
  int registers;  // per thread
  int spill_bytes;
  std::string_view reason = "";  // why it spills, if it does
};

// Launches a kernel on the emulator; the pointers lie in host memory.
using EmulatedLaunch = void (*)(emulator::Device&, const AttentionParams&);

// The emulated kernels are built twice: variables that a kernel leaves unset hold a bit pattern, or zeros. A right kernel
// cannot tell the difference.
enum class Unset { pattern, zero };
#ifdef LADDER_UNSET_IS_ZERO
constexpr Unset UNSET = Unset::zero;
#else
constexpr Unset UNSET = Unset::pattern;
#endif

// One compiled configuration of a stage's kernel. The first of a stage is its default, the others are ablations.
struct Variant {
  std::string label;  // "64x128, 4 warps"; unique within the stage
  Tile tile = {};
  uint32_t smem_bytes = 0;  // dynamic shared memory per block, and what each of the n keys adds to it:
  uint32_t smem_bytes_per_key = 0;
  EmulatedLaunch on_emulator = nullptr;         // with Unset::pattern
  EmulatedLaunch on_emulator_zeroed = nullptr;  // with Unset::zero
  void (*on_gpu)(gpu::Device&, const AttentionParams&) = nullptr;
  const void* gpu_kernel = nullptr;  // for cudaFuncGetAttributes: registers, local bytes
  double conflict_ways = 0;          // of the worst ldmatrix or wmma.load line (8, 1); 0: the stage has none
  std::function<Counts(const Shape&)> predict = {};  // expected counts, exact; but where the data decide,
  uint64_t shuffles_per_rescale = 0;  // the fewest shuffles, and each rescale of a warp makes so many more

  uint64_t smem_at(int n) const { return smem_bytes + uint64_t{smem_bytes_per_key} * n; }
};

struct Stage {
  std::string_view name;        // its directory: "03_kvpipe"
  std::string_view idea;        // one sentence
  std::string_view limit;       // what limits the stage before, one sentence
  std::string_view prediction;  // what we expected before measuring, with the reason
  int min_sm = 80;              // oldest GPU whose instructions suffice
  std::string_view needs = "";  // which ones those are: "mma.m16n8k16, cp.async"
  int max_d = 128;              // head dimensions: exactly 128, or 1..max_d when any_d
  bool any_d = false;
  bool causal = false;               // does both dense and causal attention; otherwise dense alone
  bool writes_lse = false;           // fills AttentionParams::LSE
  bool materialises_scores = false;  // needs AttentionParams::S
  // Numbers in the idea, the limit and the prediction that come from the machine code, a trial or arithmetic which no test
  // repeats, as written there: "1,850". All others are computed by a test.
  std::vector<std::string_view> uncounted = {};
  std::vector<ResourceBound> resources = {};
  std::vector<Variant> variants = {};
};

// Every stage of this binary, ordered by name. Filled before main by Registration objects.
const std::vector<Stage>& stages();

// The rung whose idea `stage` adds its own to: the one before it in the registry; null for the first.
const Stage* previous_of(const Stage& stage);

// Adds a stage, or joins its variants with those that the other back end's object has registered under the same name.
struct Registration {
  explicit Registration(Stage stage);
};

// One Variant of a stage.cu's, from the launch function of the back end that is being compiled.
Variant make_variant(std::string label, Tile tile, uint32_t smem_bytes, EmulatedLaunch on_emulator, const void* kernel,
                     double conflict_ways, std::function<Counts(const Shape&)> predict, Unset unset = UNSET);
Variant make_variant(std::string label, Tile tile, uint32_t smem_bytes,
                     void (*on_gpu)(gpu::Device&, const AttentionParams&), const void* kernel, double conflict_ways,
                     std::function<Counts(const Shape&)> predict);

}  // namespace ladder
