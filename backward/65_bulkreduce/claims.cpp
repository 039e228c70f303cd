#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

const Spec SPEC{.formula = "backward", .heads = 1, .n = 256};
constexpr uint64_t TILES = 4 * 2;  // of 64 queries and 128 keys

}  // namespace

CLAIM("products, barriers and what is added to dQ are as before; no thread adds by itself") {
  const emulator::Counters &now = counted(rung(), SPEC), &before = counted(previous(), SPEC);
  CHECK(now.wgmma == before.wgmma);
  CHECK(now.barriers == before.barriers);
  CHECK(now.gmem_bytes_reduced == before.gmem_bytes_reduced);
  CHECK(before.gmem_accesses - now.gmem_accesses == TILES * 64 * 128);
  CHECK(now.bulk_copies - before.bulk_copies == TILES * 2);
}

CLAIM("a tile's dQ takes 64 stores of a warp, without bank conflicts") {
  const Traffic stores = traffic(counted(rung(), SPEC), "dQ", "st.shared");
  CHECK(stores.requests == TILES * 64);
  CHECK(stores.wavefronts == stores.ideal);
}
