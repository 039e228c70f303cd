#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("K and V are loaded with half as many ldmatrix per query row, and at the tile before with as many") {
  auto before = ldmatrix_by_region(previous()), after = ldmatrix_by_region(rung());  // of one shape, so per row already
  CHECK(after["K"] * 2 == before["K"]);
  CHECK(after["V"] * 2 == before["V"]);
  CHECK(after["V"] > 0);
  // There, one 16-row group per warp has nothing to share: batching alone is worth nothing.
  CHECK(ldmatrix_by_region(rung(), with_tile(rung(), previous().variants[0].tile)) == before);
}

CLAIM("V is copied under QK, and the next K under PV") {
  const int per_tile = mma_per_tile(rung());
  CHECK(mma_under_copies(rung()) == Overlaps{{{"V", "K"}, 4 * per_tile}, {{"K", "V"}, 3 * per_tile}});
}

CLAIM("the compiler had merged the loads of the rung before already, at the same tile") {
  const Variant& same_tile = with_tile(previous(), rung().variants[0].tile);
  CHECK(in_machine_code(rung(), "LDSM") == in_machine_code(previous(), same_tile, "LDSM"));
}
