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

}  // namespace

CLAIM("exponentials are of maxima alone, a hundredth of the rung before, which has one for each score") {
  const emulator::Counters &here = counted(rung(), of(512, 512)), &before = counted(previous(), of(512, 512));
  CHECK(before.exponentials > 512 * 512);
  CHECK(100 * here.exponentials < before.exponentials);
  CHECK(here.gmem_bytes_written + 512 * sizeof(float) == before.gmem_bytes_written);  // no log-sum-exp
}

CLAIM("products add weights up: as many as with one sum of all columns, and no lane exchanges its sum") {
  const emulator::Counters &here = counted(rung(), of(512, 512)), &before = counted(previous(), of(512, 512));
  CHECK(3 * here.wgmma == 2 * before.wgmma);
  CHECK(here.wgmma_left_running == before.wgmma_left_running);
  CHECK(here.shuffles < before.shuffles);
}

CLAIM("65536 values of one sign are added up rightly, whether their weights are alike or maxima creep") {
  for (const InputKind kind : {InputKind::ties, InputKind::one_sign}) {
    Problem problem = make_question(of(8, 65536), std::vector{kind}, 1);
    Tensor& V = problem.inputs["V"];
    for (int64_t i = 0; kind == InputKind::ties && i < V.spec().elements(); ++i) V.set(i, 1);
    const CheckResult result = judged(rung(), problem);
    INFO(reasons(result));
    CHECK(result.answers_right());
  }
}

CLAIM("a key that is NaN makes NaN of all rows that see it, and of no others") {
  for (const bool causal : {false, true}) {
    Spec spec = of(300, 300);
    spec.causal = causal;
    const CheckResult result = judged(rung(), make_question(spec, std::vector{InputKind::nan_key}, 1));
    INFO(reasons(result));
    CHECK(result.answers_right());
  }
}
