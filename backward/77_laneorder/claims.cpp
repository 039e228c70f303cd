#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("as many reductions of as many bytes, and they touch half as many sectors: 1024 of a pair of tiles, not 2048") {
  const Spec two{.formula = "backward", .heads = 1, .n = 128}, four{.formula = "backward", .heads = 1, .n = 256};
  CHECK(counted(rung(), four).gmem_bytes_reduced == counted(previous(), four).gmem_bytes_reduced);
  const auto sectors_of_two_tiles = [&](const auto& rung) {
    return counted(rung, four).gmem_sectors - counted(rung, two).gmem_sectors;
  };
  CHECK(sectors_of_two_tiles(previous()) - sectors_of_two_tiles(rung()) == 2 * 1024);
}
