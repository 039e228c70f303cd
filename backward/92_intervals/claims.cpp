#include "harness/tests/stages/claims.hpp"
#include "backward/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

uint64_t products(const char* words) {
  return counts_of(counted(rung(), asked(words))).wgmma;
}

}  // namespace

CLAIM("without intervals the same tiles meet as before") {
  for (const char* words : {"b=2 h=4 kv=2 n=200", "h=2 n=500 causal", "h=2 nq=300 nk=500 causal window=100,0"})
    CHECK(products(words) == counts_of(counted(previous(), asked(words))).wgmma);
}

CLAIM("tiles of queries that see none of a tile of keys are neither copied nor multiplied") {
  // Four tiles of 128 keys; each is seen by two tiles of 64 queries. One query that sees all makes a walk to it.
  const uint64_t one = products("n=128 intervals=128*0:128");
  CHECK(products("n=512 intervals=128*0:128,128*128:256,128*256:384,128*384:512") == 4 * one);
  CHECK(2 * products("n=512 intervals=127*0:128,1*0:512,128*128:256,128*256:384,128*384:512") ==
        (2 * 4 + 1 + 3 + 5) * one);
  CHECK(products("n=512 intervals=128*0:128,256*9:9,128*384:512") == 2 * one);
}

CLAIM("a document is as good as a sequence of its own, to the last bit of dK and dV") {
  const auto of = [&](const char* words) { return checked(rung(), asked(words)); };
  CHECK(same_bits(of("n=256 intervals=256*0:256"), of("n=256")));
  CHECK(same_bits(of("n=256 causal window=100,0"), of("n=256 window=100,-1 prefix=0")));
}
