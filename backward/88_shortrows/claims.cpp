#include "harness/tests/stages/claims.hpp"
#include "backward/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("blocks that begin in any order give the same bits: of grouped heads, in a window, of several lengths") {
  for (const char* words : {"b=2 h=4 kv=2 n=450 causal window=330,0 lens_q=90,150 lens_k=400,450",
                            "h=2 kv=1 nq=150 nk=420 window=200,150"}) {
    const CheckResult result = check_on_emulator(rung(), rung().variants[0], problem(asked(words, 64)), {}, true);
    INFO(reasons(result));
    CHECK(result.ok);
  }
}

CLAIM(
    "products, copies and what is added to dQ are as before; two reductions of a tile wait for a turn and pass it on") {
  for (const char* words : {"b=2 h=4 kv=2 n=200 causal", "h=2 n=600 causal window=130,0", "h=3 nq=100 nk=300"}) {
    const Spec spec = asked(words, 64);
    const emulator::Counters &now = counted(rung(), spec), &before = counted(previous(), spec);
    const uint64_t blocks = uint64_t(spec.batch) * spec.key_heads() * ((spec.keys() + 127) / 128);
    const uint64_t additions = (now.gmem_bytes_reduced - before.gmem_bytes_reduced) / 4 - blocks;  // to turns
    CHECK(now.wgmma == before.wgmma);
    CHECK(now.bulk_copies == before.bulk_copies);
    CHECK(now.barriers == before.barriers);
    CHECK(additions * (64 * 64 * 4 / 2) == before.gmem_bytes_reduced);  // one for each half of a tile
  }
}
