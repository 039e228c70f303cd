#include "harness/tests/stages/claims.hpp"
#include "decoding/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec unlike(int longest) {
  Spec spec = cache(3, longest);
  spec.lens_k = {.count = 3, .of = {200, longest, 77}};
  return spec;
}

}  // namespace

CLAIM("without a function a list costs what d08's does, and a function no product and no byte of a key more") {
  const Spec plain = unlike(1500);
  Spec capped = plain;
  capped.softcap = 50;
  const auto &own = counted(rung(), plain), &before = counted(previous(), plain), &under = counted(rung(), capped);
  CHECK(own.mma == before.mma);
  CHECK(own.gmem_bytes_read == before.gmem_bytes_read);
  CHECK(own.gmem_bytes_written == before.gmem_bytes_written);
  CHECK(under.mma == own.mma);
  CHECK(under.gmem_bytes_read == own.gmem_bytes_read);
  CHECK(under.exponentials > own.exponentials);
}

CLAIM("a sink is read once for each row, however often its keys are cut") {
  const Spec plain = unlike(1500);
  Spec sunk = plain;
  sunk.sink = true;
  const uint64_t rows = 3 * 4, lanes = 32;  // of the warp that leaves a row, alike
  CHECK(counted(rung(), sunk).gmem_bytes_read == counted(rung(), plain).gmem_bytes_read + rows * lanes * sizeof(float));
}
