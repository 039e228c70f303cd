#include "harness/tests/stages/claims.hpp"
#include "decoding/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("no multiprocessor multiplies more than another by more than a step, whatever the lengths are") {
  Spec spec = cache(4, 4096);
  spec.lens_k = {.count = 4, .of = {300, 4096, 100, 128}};
  const uint64_t of_step = 8 * 2 * 2 * 8, steps = 3 + 32 + 1 + 1;  // products of 16 rows beside 128 keys
  CHECK(counted(rung(), spec).mma == steps * of_step);
  CHECK(counted(rung(), spec).products_of_busiest_sm == (steps + 3) / 4 * of_step);
  CHECK(counted(previous(), spec).products_of_busiest_sm >= 32 * of_step);
}
