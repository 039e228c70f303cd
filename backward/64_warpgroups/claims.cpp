#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

const Spec SPEC{.formula = "backward", .heads = 1, .n = 256};
constexpr uint64_t TILES = 4 * 2;  // of 64 queries and 128 keys

}  // namespace

CLAIM("a pair of a warpgroup and a tile takes 32 wgmma, and waits leave 20 of them running") {
  const emulator::Counters& counters = counted(rung(), SPEC);
  CHECK(counters.wgmma == TILES * 2 * 32);
  CHECK(counters.wgmma_left_running == TILES * 2 * 20);
}

CLAIM("dS alone changes hands: one barrier a tile, 16 KiB of stmatrix without bank conflicts") {
  const emulator::Counters& counters = counted(rung(), SPEC);
  CHECK(counters.barriers == 2 + TILES);
  const Traffic stores = traffic(counters, "dS", "stmatrix");
  CHECK(stores.requests == TILES * 16 * 1024 / 512);
  CHECK(stores.wavefronts == stores.ideal);
}

CLAIM("tiles of 128 keys read half as many queries as those of 64, and add half as much to dQ") {
  const emulator::Counters &now = counted(rung(), SPEC), &before = counted(previous(), SPEC);
  CHECK(2 * now.gmem_bytes_reduced == before.gmem_bytes_reduced);
}
