#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("P and dS take 8 n^2 bytes, and twice the length moves four times the bytes") {
  const auto of = [](int n) { return Spec{.formula = "backward", .heads = 1, .n = n}; };
  CHECK(rung().workspace_at(of(4096)) == 8ull * 4096 * 4096 + 4 * 4096);
  CHECK(double(counted(rung(), of(128)).gmem_bytes_read) / double(counted(rung(), of(64)).gmem_bytes_read) ==
        Approx(4.0).epsilon(0.01));
}
