#include "harness/tests/stages/claims.hpp"
#include "decoding/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("eight SMs' worth of places on four: the eight tiles of one text's keys have a block each") {
  const uint64_t tile = 128 / 16 + 64 / 16;  // products, of QK and PV
  CHECK(counted(rung(), one_query(1, 512)).products_of_busiest_block == tile);
  CHECK(counted(rung(), one_query(64, 512)).products_of_busiest_block == 8 * tile);
}

CLAIM("keys and values are read once, however many share them out; Q, and parts of O, once for each share") {
  const uint64_t shares = 8, rows = 4, keys = 2 * 512 * 128 * 2, Q = shares * rows * 128 * 2;
  const uint64_t parts = shares * rows * (128 + 2 * 32) * 4;  // each lane of a warp reads the maximum and the sum
  CHECK(counted(rung(), one_query(1, 512)).gmem_bytes_read == keys + Q + parts);
}
