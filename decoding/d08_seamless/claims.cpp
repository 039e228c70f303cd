#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("while the keys of a head are on their way, those of the one before are multiplied") {
  Spec spec{.batch = 1,
            .heads = 16,
            .kv_heads = 16,
            .n = 1,
            .n_k = 128,  // a step: so a block has four heads of one step each
            .q_type = Element::bf16,
            .kv_type = Element::bf16,
            .o_type = Element::bf16};
  spec.page = -1;
  CHECK(counted(previous(), spec).products_under_copies == 0);
  CHECK(counted(rung(), spec).products_under_copies > 0);
  CHECK(counted(rung(), spec).mma == counted(previous(), spec).mma);
}
