#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("a turn is one barrier of a warpgroup for each tile but the first, and nothing else has changed") {
  const Spec usual{
      .heads = 2, .n = 768, .d = 128, .q_type = Element::bf16, .kv_type = Element::bf16, .o_type = Element::bf16};
  const Counts counts = counted(rung(), usual), before = counted(previous(), usual);
  // Twelve tiles of queries, each with six of keys, by two warpgroups; and a block's last turn is nobody's.
  CHECK(counts.barriers == before.barriers + 12 * (6 - 1) * 2 + emulator::MULTIPROCESSORS);
  CHECK(counts.wgmma == before.wgmma);
  CHECK(counts.gmem_bytes_read == before.gmem_bytes_read);
  CHECK(same_bits(checked(rung(), usual), checked(previous(), usual)));
}
