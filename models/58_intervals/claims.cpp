#include "harness/tests/stages/claims.hpp"
#include "harness/problem/spec.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec of(const char* text) {
  return parse_spec(text, {.q_type = Element::bf16, .kv_type = Element::bf16, .o_type = Element::bf16}).value();
}

}  // namespace

CLAIM("without intervals and windows every count is as before, and every bit of O") {
  for (const char* text : {"h=2 n=512", "h=2 n=500", "h=2 n=512 causal"}) {
    // But for the room in which rows would stand.
    const auto counts = [&](const Rung& of_rung) {
      return but_for(counts_of(counted(of_rung, of(text))), {&Counts::unused_smem_bytes});
    };
    CHECK(counts(rung()) == counts(previous()));
    CHECK(same_bits(checked(rung(), of(text)), checked(previous(), of(text))));
  }
}

CLAIM("the same keys are the same bits, whether a mask, a window or intervals say which") {
  const char* const same[][2] = {{"h=2 n=512 causal window=100,0", "h=2 n=512 window=100,-1 prefix=0"},
                                 {"h=2 n=300 window=300,5", "h=2 n=300 window=-1,5 intervals=300*0:300"},
                                 {"n=384 intervals=384*0:200", "n=384 intervals=384*-7:200"}};
  for (const auto& [one, other] : same) CHECK(same_bits(checked(rung(), of(one)), checked(rung(), of(other))));
}

CLAIM("tiles of keys that no query of a tile sees are neither copied nor multiplied") {
  // Four tiles of queries beside four of keys: each sees one; the last one of each sees all; the one in the middle sees none.
  const auto products = [](const char* text) { return counted(rung(), of(text)).wgmma; };
  const uint64_t one = products("n=128 intervals=128*0:128");
  CHECK(products("n=512 intervals=128*0:128,128*128:256,128*256:384,128*384:512") == 4 * one);
  CHECK(products("n=512 intervals=127*0:128,1*0:512,128*128:256,128*256:384,128*384:512") == 7 * one);
  CHECK(products("n=512 intervals=128*0:128,128*9:9,256*400:401") == 4 * one);
}

CLAIM("whole tiles are not masked: nobody looks for a maximum there") {
  const auto votes = [](const char* text) { return counted(rung(), of(text)).votes_on_scores; };
  CHECK(votes("nq=128 nk=1024 intervals=128*0:1024") < votes("nq=128 nk=1024 intervals=127*0:1024,1*1000:1024"));
}
