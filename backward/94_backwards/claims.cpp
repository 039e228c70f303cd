#include "harness/tests/stages/claims.hpp"
#include "backward/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("in another order of rows the same is done: every count is as before, and every bit of the gradients") {
  for (const char* const words : {"b=2 h=3 n=300 causal", "h=4 kv=2 causal lens_q=100,0,37 lens_k=100,70,5"}) {
    const Spec spec = asked(words);
    CHECK(counts_of(counted(rung(), spec)) == counts_of(counted(previous(), spec)));
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
  }
}
