// New keys and values go behind those that a cache has.
#pragma once
#include "common/attention.hpp"

namespace emulator {
class Device;
}
namespace gpu {
struct Device;
}

// Token i of sequence s becomes key cache_seqlens[s] + i, and `lengths` says how many each sequence has then: as many as
// there is room for, at most. k, v: [batch, n, heads, d] in f16 or bf16; the caches as CacheParams has them (common/attention.hpp),
// with room for n_k keys of each sequence. A row's d elements lie side by side.
struct AppendParams {
  const void *k, *v;  // null where there are none, and n is 0
  void *K, *V;
  const int* cache_seqlens;  // [batch]
  int* lengths;              // [batch]
  const int* block_table;    // [batch, most_pages], or null
  ForwardParams::Strides k_strides, v_strides, K_strides, V_strides;
  int batch, heads, n, n_k, d, most_pages, page_size;
};

void append(gpu::Device& device, const AppendParams& p);
void append(emulator::Device& device, const AppendParams& p);
