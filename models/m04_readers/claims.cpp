#include "harness/tests/stages/claims.hpp"
#include "harness/problem/spec.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec of(const char* text) {
  return parse_spec(text, {.q_type = Element::bf16, .kv_type = Element::bf16, .o_type = Element::bf16}).value();
}

}  // namespace

CLAIM("products, and every bit of O, are as before, by lists and without") {
  for (const char* text :
       {"h=2 n=512", "h=2 n=500 causal", "h=2 n=1024 blocks=0.4@7", "n=1024 blocks=0.4@7 block_keys=64",
        "n=1024 blocks=0.0001", "n=1024 blocks=0.5@3 block_keys=256"}) {
    CHECK(counted(rung(), of(text)).wgmma == counted(previous(), of(text)).wgmma);
    CHECK(same_bits(checked(rung(), of(text)), checked(previous(), of(text))));
  }
}

CLAIM("both threads read a list, and what one of them finds ahead it has read once") {
  // An entry's two numbers, and a list's three: of one thread, and of two.
  const Spec spec = of("nq=128 nk=1024 blocks=1");
  CHECK(counted(rung(), spec).gmem_bytes_read > counted(previous(), spec).gmem_bytes_read);
}
