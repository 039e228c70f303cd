#include "harness/tests/stages/claims.hpp"
#include "decoding/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("of sixteen rows, four of which are somebody's, four are stored") {
  const Spec spec = cache(1, 2048);
  const auto stored = [&](const Rung& of) { return traffic(counted(of, spec), "K and V", "st.shared"); };
  CHECK(2 * stored(rung()).requests <= stored(previous()).requests);
  CHECK(3 * stored(rung()).wavefronts <= stored(previous()).wavefronts);
}
