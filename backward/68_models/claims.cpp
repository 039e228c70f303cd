#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec of(int n_q, int n_k, int heads = 4, int kv_heads = 4) {
  Spec spec{.formula = "backward", .heads = heads, .kv_heads = kv_heads, .n = n_q, .n_k = n_k};
  spec.q_type = spec.kv_type = spec.o_type = Element::bf16;
  return spec;
}

}  // namespace

CLAIM("a group shares what it reads of K and V, and what it writes of dK and dV") {
  const emulator::Counters &own = counted(rung(), of(256, 256)), &shared = counted(rung(), of(256, 256, 4, 1));
  constexpr uint64_t KEYS = 3 * 256 * 256;  // bytes of three heads
  CHECK(own.gmem_bytes_read - shared.gmem_bytes_read == 2 * KEYS);
  CHECK(own.gmem_bytes_written - shared.gmem_bytes_written == 2 * KEYS);
  CHECK(own.wgmma == shared.wgmma);
}

CLAIM("a length takes as many products as the next one of whole tiles") {
  CHECK(counted(rung(), of(200, 130)).wgmma == counted(rung(), of(256, 256)).wgmma);
}
