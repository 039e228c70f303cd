#include "harness/tests/stages/claims.hpp"
#include "backward/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("S and dP begin with numbers, a call comes later: nothing else that is counted changes, whatever the lengths") {
  for (const char* const words : {"b=2 h=4 kv=2 n=200", "h=4 kv=2 causal lens_q=100,0,37 lens_k=100,70,5"}) {
    const Spec spec = asked(words);
    auto now = counts_of(counted(rung(), spec));
    CHECK(now.corrections_at_rest > 0);
    now.corrections_at_rest = 0;
    CHECK(now == counts_of(counted(previous(), spec)));
  }
}
