#include "harness/tests/stages/claims.hpp"
#include "backward/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("K and V are loaded into registers once, however long a walk is, which has twice as many barriers") {
  const Spec longer = asked("nq=1024 nk=512", 64), shorter = asked("nq=512 nk=512", 64);
  const auto now = counted(rung(), longer), half = counted(rung(), shorter);
  const auto before = counted(previous(), longer), half_before = counted(previous(), shorter);
  CHECK(now.ldmatrix == half.ldmatrix);
  CHECK(now.ldmatrix > before.ldmatrix);
  CHECK(now.barriers - half.barriers == 2 * (before.barriers - half_before.barriers));
}
