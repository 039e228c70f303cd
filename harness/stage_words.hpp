// The words of a stage.cu that both compilers read, without the standard library: nvcc parses it for longer than it takes to
// compile a kernel.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/attention.hpp"
#include "common/emulator/counters.hpp"
#include "common/emulator/size.hpp"

namespace gpu {
struct Device;  // common/ptx/device.cuh
}

namespace ladder {

template <class T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}

// What a tensor is made of.
enum class Element : uint8_t { f16, f32 };
constexpr size_t bytes_of(Element element) {
  return element == Element::f16 ? 2 : 4;
}

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

using emulator::Counts;

// ptxas' word on the default variant, enforced by a test: no more registers and spill bytes than this.
struct ResourceBound {
  int sm;         // 80, 90
  int registers;  // per thread
  int spill_bytes;
  const char* reason = "";  // why it spills, if it does
};

// The arguments of a launch, in the form that a kernel takes: one overload for each kind of parameters.
struct Arguments;
void convert(const Arguments& arguments, AttentionParams& params);

// How nvcc's half of a stage starts a kernel, whatever parameters it takes.
struct GpuStart {
  GpuStart() = default;
  template <class Params>
  GpuStart(void (*run)(gpu::Device&, const Params&))
      : run(reinterpret_cast<void (*)()>(run)),
        bind([](const Arguments& arguments, void* params) { convert(arguments, *static_cast<Params*>(params)); }),
        start([](void (*run)(), gpu::Device& device, const void* params) {
          reinterpret_cast<void (*)(gpu::Device&, const Params&)>(run)(device, *static_cast<const Params*>(params));
        }) {
    static_assert(sizeof(Params) <= PARAMS_BYTES && alignof(Params) <= alignof(std::max_align_t));
  }

  static constexpr size_t PARAMS_BYTES = 256;
  void (*run)() = nullptr;
  void (*bind)(const Arguments& arguments, void* params) = nullptr;
  void (*start)(void (*run)(), gpu::Device& device, const void* params) = nullptr;
};

// Hands the registry a variant of that half: its label in stage.cu, "" for its tile's.
void register_on_gpu(const char* stage, const char* label, const Tile& tile, const GpuStart& run, const void* kernel);

}  // namespace ladder
