#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec of(int heads, int n) {
  return {.heads = heads,
          .n = n,
          .d = 128,
          .causal = true,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}
uint64_t busiest(const Rung& of_rung, const Spec& spec) {
  return counted(of_rung, spec).products_of_busiest_block;
}

}  // namespace

CLAIM(
    "of eight heads of three tiles four blocks get three shares each, of four tiles of keys, and not the busiest "
    "four") {
  const Spec spec = of(8, 384);
  CHECK(busiest(previous(), spec) * 3 == busiest(rung(), spec) * 4);
  CHECK(counted(rung(), spec).wgmma == counted(previous(), spec).wgmma);
}

CLAIM("of an even number of tiles shares are those of before; and every bit of O is") {
  for (const Spec& spec : {of(8, 512), of(3, 384), of(5, 100), of(4, 640)}) {
    if (spec.n == 512) CHECK(busiest(rung(), spec) == busiest(previous(), spec));
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
  }
}
