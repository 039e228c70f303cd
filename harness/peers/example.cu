// The smallest peer: attention as the formula says it, one thread a row of O. Compile it with nvcc for the GPU, or as
// C++ for the host:
// clang-format off
//   nvcc -std=c++20 -arch=native harness/peers/example.cu -o example
//   g++ -std=c++20 -O2 -x c++ harness/peers/example.cu -o example
// clang-format on
// and try it with  ./ladder peer ./example
#include "peer.hpp"

#ifdef __CUDACC__
#include <cuda_fp16.h>
using f16 = __half;
#else
using f16 = _Float16;
#endif

// Row `row` of O, for d up to MAX_D: the keys one by one, relative to the highest score so far.
constexpr int MAX_D = 256;
PEER_KERNEL_CODE inline void attend(const peer::Problem& p, int64_t row) {
  const int64_t head = row / p.n * p.n, keys = p.causal ? row % p.n + 1 : p.n;
  const f16* K = static_cast<const f16*>(p.K) + head * p.d;
  const f16* V = static_cast<const f16*>(p.V) + head * p.d;
  float Q[MAX_D], O[MAX_D], max = -INFINITY, sum = 0;
  for (int i = 0; i < p.d; ++i) {
    Q[i] = p.softmax_scale * static_cast<float>(static_cast<const f16*>(p.Q)[row * p.d + i]);
    O[i] = 0;
  }
  for (int64_t key = 0; key < keys; ++key, K += p.d, V += p.d) {
    float score = 0;
    for (int i = 0; i < p.d; ++i) score += Q[i] * static_cast<float>(K[i]);
    const float new_max = fmaxf(max, score), correction = expf(max - new_max), weight = expf(score - new_max);
    max = new_max;
    sum = sum * correction + weight;
    for (int i = 0; i < p.d; ++i) O[i] = O[i] * correction + weight * static_cast<float>(V[i]);
  }
  for (int i = 0; i < p.d; ++i) static_cast<f16*>(p.O)[row * p.d + i] = static_cast<f16>(O[i] / sum);
}

#ifdef __CUDACC__
__global__ void attention(peer::Problem p) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row < p.rows()) attend(p, row);
}
#endif

int main() {
  const auto prepare = [](const peer::Problem& p) {
    if (p.d > MAX_D) throw peer::Refusal("d is at most 256 here");
  };
  const auto launch = [](const peer::Problem& p) {
#ifdef __CUDACC__
    attention<<<static_cast<unsigned>((p.rows() + 127) / 128), 128>>>(p);
#else
    for (int64_t row = 0; row < p.rows(); ++row) attend(p, row);
#endif
  };
  return peer::serve("example", "1.0", prepare, launch);
}
