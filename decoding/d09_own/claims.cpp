#include "harness/tests/stages/claims.hpp"
#include "decoding/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("of 2048 keys a row has sixteen shares, of one query 520 bytes each, however many sequences there are") {
  const auto bytes_written = [&](int batch) { return counted(rung(), cache(batch, 2048)).gmem_bytes_written; };
  const uint64_t rows = 4, of_part = (128 + 2) * 4, of_O = 128 * 2, of_LSE = 4;
  CHECK(bytes_written(1) == rows * (16 * of_part + of_O + of_LSE));
  CHECK(bytes_written(3) == 3 * bytes_written(1));
}
