#include "harness/tests/stages/claims.hpp"
#include "decoding/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec two_lengths(int page) {
  Spec spec = cache(2, 1000);
  spec.page = page;
  spec.lens_k = {.count = 2, .of = {1000, 300}};
  return spec;
}

}  // namespace

CLAIM("pages cost two reads of the table for each key, a step of each share ahead, and no byte of K and V") {
  const uint64_t more =
      counted(rung(), two_lengths(64)).gmem_bytes_read - counted(rung(), two_lengths(-1)).gmem_bytes_read;
  const uint64_t keys = 1000 + 300, of_step = 128, shares = 4;
  CHECK(more >= 2 * 4 * keys);
  CHECK(more <= 2 * 4 * (keys + of_step * shares));
}
