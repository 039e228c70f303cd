#include "harness/tests/stages/claims.hpp"
#include "decoding/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("Q is copied to shared memory once for each share, and no thread waits for a row of it") {
  const Spec spec = cache(1, 2048);                 // sixteen shares of a step
  const uint64_t shares = 16, warps = 8, of_Q = 8;  // ldmatrix of a warp
  CHECK(counted(rung(), spec).ldmatrix == counted(previous(), spec).ldmatrix + shares * warps * of_Q);
  CHECK(counted(rung(), spec).gmem_bytes_read < counted(previous(), spec).gmem_bytes_read);
}
