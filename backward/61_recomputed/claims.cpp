#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("no memory grows with n^2, and each weight is computed twice, in the eight lanes of a row") {
  const auto of = [](int n) { return Spec{.formula = "backward", .heads = 1, .n = n}; };
  CHECK(rung().workspace_at(of(8192)) == 2 * rung().workspace_at(of(4096)));
  CHECK(counted(rung(), of(64)).exponentials == 2 * 8 * counted(previous(), of(64)).exponentials);
}
