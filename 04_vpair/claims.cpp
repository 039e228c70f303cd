#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("V is loaded with half as many ldmatrix, K and Q with as many") {
  REQUIRE(rung().variants[0].tile == previous().variants[0].tile);
  auto before = ldmatrix_by_region(previous()), after = ldmatrix_by_region(rung());
  CHECK(after["V"] * 2 == before["V"]);
  CHECK(after["V"] > 0);
  CHECK(after["K"] == before["K"]);
  CHECK(after["Q"] == before["Q"]);
}

CLAIM("copies go on under the products as before") {
  CHECK(mma_under_copies(rung()) == mma_under_copies(previous()));
}

CLAIM("fewer ldmatrix in the machine code") {
  CHECK(in_machine_code(rung(), "LDSM") < in_machine_code(previous(), "LDSM"));
}
