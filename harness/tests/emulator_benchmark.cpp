// How fast the emulator runs every stage, one head at d = 128: seconds, the best of several launches.
//   emulator_benchmark [N..]      default: 512 1024
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>
#include "common/emulator/emulator.hpp"
#include "common/emulator/half.hpp"
#include "harness/stage.hpp"

namespace {

constexpr int HEAD_DIM = 128;

struct Problem {
  explicit Problem(int n, bool with_scores)
      : tensors(4, std::vector<f16>(static_cast<size_t>(n) * HEAD_DIM)),
        scores(with_scores ? static_cast<size_t>(n) * n : 0) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (auto& tensor : tensors) {
      for (f16& element : tensor) element = {emulator::float_to_half(normal(random))};
    }
    params = {.Q = tensors[0].data(),
              .K = tensors[1].data(),
              .V = tensors[2].data(),
              .O = tensors[3].data(),
              .S = with_scores ? scores.data() : nullptr,
              .batch_heads = 1,
              .n = n,
              .d = HEAD_DIM,
              .softmax_scale = 1.0f / std::sqrt(static_cast<float>(HEAD_DIM))};
  }
  void register_buffers(emulator::Device& device) const {
    const char* const names[] = {"Q", "K", "V", "O"};
    for (size_t i = 0; i < 4; ++i) {
      device.register_buffer(tensors[i].data(), tensors[i].size() * sizeof(f16), names[i],
                             i == 3 ? emulator::Access::read_write : emulator::Access::read_only);
    }
    if (!scores.empty())
      device.register_buffer(scores.data(), scores.size() * sizeof(float), "S", emulator::Access::read_write);
  }
  std::vector<std::vector<f16>> tensors;
  std::vector<float> scores;
  AttentionParams params;
};

double seconds(const ladder::Variant& variant, const Problem& problem, const emulator::Options& options) {
  double best = HUGE_VAL;
  double spent = 0;
  for (int repetition = 0; repetition < 7 && spent < 3; ++repetition) {
    emulator::Device device(options);
    problem.register_buffers(device);
    const auto start = std::chrono::steady_clock::now();
    variant.on_emulator(device, problem.params);
    const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!device.reports().empty()) {
      std::printf("%s\n", device.reports().front().message.c_str());
      return NAN;
    }
    best = std::min(best, taken);
    spent += taken;
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
  if (sizes.empty()) sizes = {512, 1024};
  std::printf("%-12s %6s  %12s %12s %12s\n", "stage", "N", "unchecked", "checked", "2 threads");
  for (const ladder::Stage& stage : ladder::stages()) {
    for (const int n : sizes) {
      const Problem problem(n, stage.materialises_scores);
      const ladder::Variant& variant = stage.variants.front();
      std::printf("%-12s %6d  %12.3f %12.3f %12.3f\n", std::string(stage.name).c_str(), n,
                  seconds(variant, problem, {.threads = 1, .check = false, .count = false}),
                  seconds(variant, problem, {.threads = 1}), seconds(variant, problem, {.threads = 2}));
    }
  }
}
