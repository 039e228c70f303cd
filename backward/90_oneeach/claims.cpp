#include "harness/tests/stages/claims.hpp"
#include "harness/problem/spec.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec asked(const char* words, int d = 256) {
  Spec bf16{.formula = "backward", .d = d};
  bf16.q_type = bf16.kv_type = bf16.o_type = Element::bf16;
  return parse_spec(words, bf16).value();
}

}  // namespace

CLAIM("a score has one exponential, though two warpgroups need its weight; a softcap has one more") {
  const uint64_t scores = 2 * 256 * 256;
  CHECK(counted(rung(), asked("h=2 n=256")).exponentials == scores);
  CHECK(counted(rung(), asked("h=2 n=256 softcap=5")).exponentials == 2 * scores);
}

CLAIM("dQ leaves without the copy engine, which brings tiles and takes dK and dV away") {
  const uint64_t blocks = 2 * 256 / 64, tiles = blocks * 256 / 64, panels = 4;
  CHECK(counted(rung(), asked("h=2 n=256")).bulk_copies ==
        blocks * 2 * panels + tiles * (2 * panels + 1) + blocks * 8 * panels);
}

CLAIM("136 to 192 columns cost the same, three quarters of the additions of 256") {
  const auto of = [](int variant, int d) { return counted(rung(), rung().variants[variant], asked("h=2 n=256", d)); };
  CHECK(of(1, 136).wgmma == of(1, 192).wgmma);
  CHECK(4 * of(1, 136).gmem_bytes_reduced == 3 * of(0, 200).gmem_bytes_reduced);
}
