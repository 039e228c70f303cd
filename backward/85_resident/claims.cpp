#include "harness/tests/stages/claims.hpp"
#include "harness/problem/spec.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("K and V are loaded into registers once, however long a walk is, which has twice as many barriers") {
  Spec bf16{.formula = "backward"};
  bf16.d = 64;
  bf16.q_type = bf16.kv_type = bf16.o_type = Element::bf16;
  const Spec longer = parse_spec("nq=1024 nk=512", bf16).value(), shorter = parse_spec("nq=512 nk=512", bf16).value();
  const auto now = counted(rung(), longer), half = counted(rung(), shorter);
  const auto before = counted(previous(), longer), half_before = counted(previous(), shorter);
  CHECK(now.ldmatrix == half.ldmatrix);
  CHECK(now.ldmatrix > before.ldmatrix);
  CHECK(now.barriers - half.barriers == 2 * (before.barriers - half_before.barriers));
}
