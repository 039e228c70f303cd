#include "harness/tests/stages/claims.hpp"
#include "backward/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("without a function it is the rung before, and in a problem without sinks there is none of their kernel") {
  const Spec spec = asked("b=2 h=4 kv=2 n=300 causal window=200,0", 64);
  const auto& here = counted(rung(), with_tile(rung(), {128, 128, 8}), spec);
  const auto& before = counted(previous(), spec);
  CHECK(here.wgmma == before.wgmma);
  CHECK(here.exponentials == before.exponentials);
  CHECK(here.barriers == before.barriers);
  CHECK(here.bulk_copies == before.bulk_copies);
  CHECK(here.warps == before.warps);
  CHECK(here.gmem_bytes_read <= before.gmem_bytes_read);
}

CLAIM("a softcap is an exponential more for each score, and a slope none; a sink is one for each query") {
  const auto counts = [&](const char* words) { return counts_of(counted(rung(), asked(words))); };
  const Counts plain = counts("h=2 n=256"), capped = counts("h=2 n=256 softcap=5"), sloped = counts("h=2 n=256 alibi"),
               sunk = counts("h=2 n=256 sink");
  CHECK(capped.exponentials == 2 * plain.exponentials);
  CHECK(sloped.exponentials == plain.exponentials);
  CHECK(sunk.exponentials == plain.exponentials + 2 * 256);
  for (const Counts& each : {capped, sloped, sunk}) CHECK(each.wgmma == plain.wgmma);
}
