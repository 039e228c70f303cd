#include "harness/tests/stages/claims.hpp"
#include "backward/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("no barrier stands in a walk") {
  const Spec longer = asked("n=1024", 64), shorter = asked("nq=512 nk=1024", 64);
  const auto now = counted(rung(), longer), half = counted(rung(), shorter);
  CHECK(now.barriers == half.barriers);
  CHECK(counted(previous(), longer).barriers > counted(previous(), shorter).barriers);
}
