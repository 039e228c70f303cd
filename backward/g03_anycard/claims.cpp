#include "harness/tests/stages/claims.hpp"
#include "backward/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("every variant fits an A100, and of each type and every number of columns there is one for an RTX card") {
  for (const Variant& variant : rung().variants) CHECK(variant.smem_bytes <= emulator::max_shared_memory(80));
  for (const Element type : {Element::f16, Element::bf16}) {
    for (int d = 8; d <= 128; d += 8) {
      CHECK(std::ranges::any_of(rung().variants, [&](const Variant& variant) {
        return variant.accepts.q == type && variant.accepts.min_d <= d && d <= variant.accepts.max_d &&
               variant.smem_bytes <= emulator::max_shared_memory(86);
      }));
    }
  }
}

CLAIM("of every operand that is loaded, two products or more are made, in every variant") {
  for (const Variant& variant : rung().variants) {
    Spec spec = asked("n=256", variant.accepts.max_d);
    spec.q_type = spec.kv_type = spec.o_type = variant.accepts.q;
    const emulator::Counters& counts = counted(rung(), variant, spec);
    CHECK(counts.mma >= 2 * counts.ldmatrix);
  }
}
