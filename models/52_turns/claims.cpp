#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec usual() {
  return {.heads = 2, .n = 768, .d = 64, .q_type = Element::bf16, .kv_type = Element::bf16, .o_type = Element::bf16};
}

}  // namespace

CLAIM("a turn is one barrier of a warpgroup for each tile but the first, and nothing else has changed") {
  const Counts counts = counted(rung(), usual()), before = counted(previous(), usual());
  // Eight tiles of queries, each with six of keys, by three warpgroups; and a block's last turn is nobody's.
  CHECK(counts.barriers == before.barriers + 8 * (6 - 1) * 3 + emulator::MULTIPROCESSORS);
  CHECK(counts.wgmma == before.wgmma);
  CHECK(counts.gmem_bytes_read == before.gmem_bytes_read);
}
