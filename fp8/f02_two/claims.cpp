#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec of(int n, int n_k) {
  return {.batch = 1,
          .heads = 1,
          .n = n,
          .n_k = n_k,
          .d = 128,
          .q_type = Element::e4m3,
          .kv_type = Element::e4m3,
          .o_type = Element::bf16};
}

// Of keys that all weigh the same, and values of one sign.
Problem ones(int n_k) {
  Problem problem = make_question(of(1, n_k), std::vector{InputKind::ties}, 1);
  Tensor& V = problem.inputs["V"];
  for (int64_t i = 0; i < V.spec().elements(); ++i) V.set(i, 1);
  return problem;
}

}  // namespace

CLAIM("65536 values of one sign are added up rightly, where the rung before stops at a sixth") {
  CHECK(judged(previous(), ones(1024)).answers_right());
  CHECK(!judged(previous(), ones(65536)).answers_right());
  const CheckResult result = judged(rung(), ones(65536));
  INFO(reasons(result));
  CHECK(result.answers_right());
}

CLAIM("65536 values of one sign whose maxima creep, or of one sign in either half, too, and the rung before is wrong") {
  for (const InputKind kind : {InputKind::one_sign, InputKind::near_ties}) {
    const Problem problem = make_question(of(4, 65536), std::vector{kind}, 1);
    CHECK(!judged(previous(), problem).answers_right());
    const CheckResult result = judged(rung(), problem);
    INFO(reasons(result));
    CHECK(result.answers_right());
  }
}

CLAIM(
    "the products of PV are as many, in two halves of the columns, and whoever adds them up waits once more in each "
    "tile") {
  const emulator::Counters &two = counted(rung(), of(512, 512)), &one = counted(previous(), of(512, 512));
  CHECK(2 * two.wgmma == 3 * one.wgmma);
  CHECK(two.wgmma_left_running == one.wgmma_left_running);
}
