#include "harness/tests/stages/claims.hpp"
#include "harness/problem/spec.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("no barrier stands in a walk") {
  Spec bf16{.formula = "backward"};
  bf16.d = 64;
  bf16.q_type = bf16.kv_type = bf16.o_type = Element::bf16;
  const Spec longer = parse_spec("n=1024", bf16).value(), shorter = parse_spec("nq=512 nk=1024", bf16).value();
  const auto now = counted(rung(), longer), half = counted(rung(), shorter);
  CHECK(now.barriers == half.barriers);
  CHECK(counted(previous(), longer).barriers > counted(previous(), shorter).barriers);
}
