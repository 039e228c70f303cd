#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("of sixteen rows, four of which are somebody's, four are stored") {
  Spec spec{.batch = 1,
            .heads = 4,
            .kv_heads = 1,
            .n = 1,
            .n_k = 2048,
            .q_type = Element::bf16,
            .kv_type = Element::bf16,
            .o_type = Element::bf16};
  spec.page = -1;
  const auto stored = [&](const Rung& of) { return traffic(counted(of, spec), "K and V", "st.shared"); };
  CHECK(2 * stored(rung()).requests <= stored(previous()).requests);
  CHECK(3 * stored(rung()).wavefronts <= stored(previous()).wavefronts);
}
