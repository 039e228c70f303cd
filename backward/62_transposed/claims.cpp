#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec of(int n) {
  return {.formula = "backward", .heads = 1, .n = n};
}

}  // namespace

CLAIM("lanes exchange nothing but the parts of D: P^T and dS^T are made where they are needed") {
  for (const int n : {128, 256}) CHECK(counted(rung(), of(n)).shuffles == uint64_t(n) / 4 * 3);
}

CLAIM("a tile takes 256 mma and 144 ldmatrix of a warp in one walk, 192 and 112 in the other") {
  const emulator::Counters& counters = counted(rung(), of(64));  // one tile, four warps
  CHECK(counters.mma == 4 * (256 + 192));
  CHECK(counters.ldmatrix == 4 * (144 + 112));
}
