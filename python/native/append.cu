// append: a block takes a token of a sequence, all heads of its key and of its value, element by element.
// Shapes: append.hpp
#include "python/native/append.hpp"

#include "common/gpu.cuh"

namespace {

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) append_rows(AppendParams p) {
  const int token = blockIdx.x, sequence = blockIdx.y;
  const int before = ld_global_s32(p.cache_seqlens + sequence), key = before + token;
  if (token == 0 && threadIdx.x == 0) st_global_b32(p.lengths + sequence, uint32_t(max(min(before + p.n, p.n_k), 0)));
  if (token >= p.n || key < 0 || key >= p.n_k) return;  // the block of a call without tokens; no room
  int64_t page = sequence, row = key;
  if (p.block_table != nullptr) {
    page = ld_global_s32(p.block_table + int64_t(sequence) * p.most_pages + key / p.page_size);
    row = key % p.page_size;
  }
  const auto copy = [&](const void* from, const ForwardParams::Strides& from_strides, void* to,
                        const ForwardParams::Strides& to_strides, int head, int column) {
    const f16* const source = static_cast<const f16*>(from) + sequence * from_strides.batch + head * from_strides.head +
                              token * from_strides.row + column;
    f16* const place =
        static_cast<f16*>(to) + page * to_strides.batch + head * to_strides.head + row * to_strides.row + column;
    st_global_f16(place, ld_global_f16(source));  // 16 bits, whatever they are
  };
  for (int i = threadIdx.x; i < p.heads * p.d; i += THREADS) {
    copy(p.k, p.k_strides, p.K, p.K_strides, i / p.d, i % p.d);
    copy(p.v, p.v_strides, p.V, p.V_strides, i / p.d, i % p.d);
  }
}

}  // namespace

void append(Device& device, const AppendParams& p) {
  launch(device, append_rows, dim3(max(p.n, 1), p.batch), dim3(THREADS), 0, p);
}
