#include "harness/tests/stages/claims.hpp"
#include "harness/problem/spec.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec of(const char* text) {
  return parse_spec(text, {.q_type = Element::bf16, .kv_type = Element::bf16, .o_type = Element::bf16}).value();
}

}  // namespace

CLAIM("without lists every count is as before, and every bit of O") {
  for (const char* text : {"h=2 n=512", "h=2 n=500", "h=2 n=512 causal"}) {
    // But for the room in which stencils, or rows, would stand.
    const auto counts = [&](const Rung& of_rung) {
      return but_for(counts_of(counted(of_rung, of(text))), {&Counts::unused_smem_bytes});
    };
    CHECK(counts(rung()) == counts(previous()));
    CHECK(same_bits(checked(rung(), of(text)), checked(previous(), of(text))));
  }
}

CLAIM("blocks that are in no list are neither copied nor multiplied") {
  const auto products = [](const char* text) { return counted(rung(), of(text)).wgmma; };
  const uint64_t tile = products("n=128 blocks=1");
  CHECK(products("n=1024 blocks=1") == 64 * tile);
  CHECK(products("n=1024 causal blocks=1") == 36 * tile);
  CHECK(products("n=1024 blocks=0.0001") == 8 * tile);  // of an empty list one tile, of which nobody sees anything
}

CLAIM("blocks of 64 keys, wherever they lie, make tiles two by two") {
  const auto products = [](const char* text) { return counted(rung(), of(text)).wgmma; };
  CHECK(products("n=1024 blocks=1 block_keys=64") == products("n=1024 blocks=1"));
  CHECK(products("nq=128 nk=448 blocks=1 block_keys=64") == products("nq=128 nk=512 blocks=1"));  // seven
}

CLAIM("whole blocks are not masked, nor does anybody look for a maximum there") {
  const auto counts = [](const char* text) { return counted(rung(), of(text)); };
  const auto whole = counts("nq=128 nk=1024 blocks=1"), part = counts("nq=128 nk=1024 blocks=1 partial=1");
  CHECK(whole.votes_on_scores < part.votes_on_scores);
  CHECK(whole.gmem_bytes_read < part.gmem_bytes_read);  // nor are there stencils
}
