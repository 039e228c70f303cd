#include "harness/tests/stages/claims.hpp"
#include "decoding/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("an A100's instructions suffice, its shared memory too, and products are those of d06") {
  Spec spec = cache(2, 1024);  // eight steps of 128 keys, sixteen of 64
  spec.page = 16;
  const auto &own = counted(rung(), spec), &before = counted(previous(), spec);
  CHECK(rung().min_sm == 80);
  CHECK(own.smem_bytes <= emulator::max_shared_memory(80));
  CHECK(own.mma == before.mma);
  CHECK(own.ldmatrix == before.ldmatrix);
}
