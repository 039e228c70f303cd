#include "harness/tests/stages/claims.hpp"
#include "backward/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("a window that all keys are in costs nothing that is counted, and a narrow one takes tiles of products away") {
  const auto products = [&](const char* words) { return counts_of(counted(rung(), asked(words))).wgmma; };
  const Spec all = asked("b=2 h=4 kv=2 n=200 causal");
  CHECK(counts_of(counted(rung(), all)) == counts_of(counted(previous(), all)));
  CHECK(products("n=1024 causal window=1024,0") == products("n=1024 causal"));
  // Of 8 blocks of 128 keys each walks over 2 tiles of 64 queries for its own keys and 2 for the 128 behind them, the last over 2.
  CHECK(products("n=1024 causal window=128,0") * (2 + 4 + 6 + 8 + 10 + 12 + 14 + 16) ==
        products("n=1024 causal") * (7 * 4 + 2));
}
