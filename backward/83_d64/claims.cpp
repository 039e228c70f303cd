#include "harness/tests/stages/claims.hpp"
#include "harness/problem/spec.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM(
    "at d = 64 there are as many exponentials as at 128, for half of the products, and half as many barriers in a "
    "walk") {
  Spec at_64{.formula = "backward"};
  at_64.q_type = at_64.kv_type = at_64.o_type = Element::bf16;
  Spec at_128 = at_64;
  at_64.d = 64;
  const auto walk = [](const Rung& rung, const Spec& usual) {  // over 512 queries more, of the same keys
    const Counts longer = counted(rung, parse_spec("nq=1024 nk=512", usual).value());
    const Counts shorter = counted(rung, parse_spec("nq=512 nk=512", usual).value());
    return std::pair{longer.barriers - shorter.barriers, longer.exponentials - shorter.exponentials};
  };
  const auto [barriers, exponentials] = walk(rung(), at_64);
  const auto [barriers_before, exponentials_before] = walk(previous(), at_128);
  CHECK(exponentials == exponentials_before);
  CHECK(barriers * 2 == barriers_before);
}
