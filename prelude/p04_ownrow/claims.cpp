#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("nothing is joined: no barrier and no shared memory, at lengths that fill no warp") {
  for (const Variant& variant : rung().variants) {
    for (const int n : {15, 17, 130}) {
      const emulator::Counters& counters = counted(rung(), variant, {.batch = 1, .heads = 1, .n = n, .d = 128});
      CHECK(counters.barriers == 0);
      CHECK(counters.smem_wavefronts == 0);
      CHECK(counters.gmem_bytes_written == uint64_t(n * 128 * 2));
    }
  }
}
