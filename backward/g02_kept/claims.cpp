#include "harness/tests/stages/claims.hpp"
#include "backward/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("V in registers is the same V: as many products, and every bit of the gradients") {
  for (const char* const words :
       {"b=2 h=3 n=300 d=96 causal", "h=4 kv=2 d=80 causal lens_q=100,0,37 lens_k=100,70,5"}) {
    const Spec spec = asked(words);
    CHECK(counts_of(counted(rung(), spec)).wgmma == counts_of(counted(previous(), spec)).wgmma);
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
  }
}
