#include "harness/tests/stages/claims.hpp"
#include "backward/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM(
    "three eighths of a walk's products are on their way while exponentials are asked for: dQ and dK of the tile "
    "before") {
  const Spec longer = asked("n=1024"), shorter = asked("nq=512 nk=1024");
  const auto walk = [&](const Rung& rung) {  // over 512 queries more, of the same keys
    const auto now = counted(rung, longer), half = counted(rung, shorter);
    return std::pair{now.wgmma - half.wgmma, now.wgmma_beside_exponentials - half.wgmma_beside_exponentials};
  };
  // Of a tile and warpgroup: S and dP of 8 slices of columns, dQ of 8 of keys, dV and dK of 4 of queries.
  const auto [products, beside] = walk(rung());
  const auto [products_before, beside_before] = walk(previous());
  CHECK(products == products_before);
  CHECK(beside * 32 == products * 12);
  CHECK(beside_before * 32 == products * 8);  // dP
}

CLAIM("warpgroups meet no more in a walk") {
  const Spec spec = asked("n=1024");
  CHECK(counted(previous(), spec).barriers - counted(rung(), spec).barriers == 8 * 16);  // tiles of keys, of queries
}
