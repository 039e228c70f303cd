#include "harness/tests/stages/claims.hpp"
#include "backward/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("what is added to the sum of dQ ends at column 96, and dQ is that of a kernel that adds zeros behind it") {
  for (const char* const words :
       {"b=2 h=3 n=300 d=96 causal", "h=4 kv=2 d=80 causal lens_q=100,0,37 lens_k=100,70,5"}) {
    const Spec spec = asked(words);
    const Counts here = counts_of(counted(rung(), spec)), before = counts_of(counted(previous(), spec));
    CHECK(here.gmem_bytes_reduced * 4 == before.gmem_bytes_reduced * 3);
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
  }
}
