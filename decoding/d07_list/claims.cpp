#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("no multiprocessor multiplies more than another by more than a step, whatever the lengths are") {
  Spec spec{.batch = 4,
            .heads = 4,
            .kv_heads = 1,
            .n = 1,
            .n_k = 4096,
            .q_type = Element::bf16,
            .kv_type = Element::bf16,
            .o_type = Element::bf16};
  spec.page = -1;
  spec.lens_k = {.count = 4, .of = {300, 4096, 100, 128}};
  const uint64_t of_step = 8 * 2 * 2 * 8, steps = 3 + 32 + 1 + 1;  // products of 16 rows beside 128 keys
  CHECK(counted(rung(), spec).mma == steps * of_step);
  CHECK(counted(rung(), spec).products_of_busiest_sm == (steps + 3) / 4 * of_step);
  CHECK(counted(previous(), spec).products_of_busiest_sm >= 32 * of_step);
}
