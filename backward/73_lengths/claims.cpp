#include "harness/tests/stages/claims.hpp"
#include "backward/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("padding is neither copied nor computed") {
  const emulator::Counters &padded = counted(rung(), asked("b=3 h=1 n=500")),
                           &packed = counted(rung(), asked("b=3 h=1 n=500 lens_q=500,100,60 lens_k=500,100,60"));
  CHECK(packed.wgmma < padded.wgmma / 2);
  CHECK(packed.bulk_copies < padded.bulk_copies / 2);
  CHECK(packed.gmem_bytes_reduced < padded.gmem_bytes_reduced / 2);
}

CLAIM("where all sequences have one length, every product is as before") {
  for (const char* const words : {"b=2 h=4 kv=2 n=200", "b=2 h=4 kv=2 n=200 causal"}) {
    const emulator::Counters &here = counted(rung(), asked(words)), &before = counted(previous(), asked(words));
    CHECK(here.wgmma == before.wgmma);
    CHECK(here.gmem_bytes_reduced == before.gmem_bytes_reduced);
  }
}
