#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec of(int n, int n_k) {
  return {.batch = 1,
          .heads = 2,
          .n = n,
          .n_k = n_k,
          .d = 128,
          .q_type = Element::e4m3,
          .kv_type = Element::e4m3,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM("the same products as before, and no memory that V is written to and read from again") {
  const emulator::Counters &here = counted(rung(), of(512, 512)), &before = counted(previous(), of(512, 512));
  CHECK(here.wgmma == before.wgmma);
  CHECK(here.gmem_bytes_written < before.gmem_bytes_written);
  CHECK(here.multicast_bytes == before.multicast_bytes);
}
