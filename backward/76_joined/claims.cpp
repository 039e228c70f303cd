#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("S and dP begin with numbers, a call comes later: nothing else that is counted changes, whatever the lengths") {
  Spec bf16{.formula = "backward"};
  bf16.q_type = bf16.kv_type = bf16.o_type = Element::bf16;
  for (const char* const words : {"b=2 h=4 kv=2 n=200", "h=4 kv=2 causal lens_q=100,0,37 lens_k=100,70,5"}) {
    const Spec spec = parse_spec(words, bf16).value();
    auto now = counts_of(counted(rung(), spec));
    CHECK(now.corrections_at_rest > 0);
    now.corrections_at_rest = 0;
    CHECK(now == counts_of(counted(previous(), spec)));
  }
}
