#include "harness/tests/stages/claims.hpp"
#include "backward/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("three times as many products run beside exponentials: dQ and dK of a tile") {
  const Spec longer = asked("n=1024", 64), shorter = asked("nq=512 nk=1024", 64);
  const auto walk = [&](const Rung& rung) {  // over 512 queries more, of the same keys
    const auto now = counted(rung, longer), half = counted(rung, shorter);
    return std::pair{now.wgmma - half.wgmma, now.wgmma_beside_exponentials - half.wgmma_beside_exponentials};
  };
  // Of a tile and warpgroup: dQ of 8 slices of keys, dK of 4 of queries; S, dP and dV have 4 each.
  const auto [products, beside] = walk(rung());
  const auto [products_before, beside_before] = walk(previous());
  CHECK(products == products_before);
  CHECK(beside * 2 == products);
  CHECK(beside_before * 6 == products);  // dP alone
}
