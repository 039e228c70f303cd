#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec one_query(int batch) {
  return {.batch = batch,
          .heads = 4,
          .kv_heads = 1,
          .n = 1,
          .n_k = 512,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM("eight SMs' worth of places on four: the eight tiles of one text's keys have a block each") {
  const uint64_t tile = 128 / 16 + 64 / 16;  // products, of QK and PV
  CHECK(counted(rung(), one_query(1)).products_of_busiest_block == tile);
  CHECK(counted(rung(), one_query(64)).products_of_busiest_block == 8 * tile);
}

CLAIM("keys and values are read once, however many share them out; parts of O come to it") {
  const uint64_t once = (4 + 2 * 512) * 128 * 2, parts = 8 * 4 * (128 + 2) * 4;
  CHECK(counted(rung(), one_query(1)).gmem_bytes_read == once + parts);
}
