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

CLAIM("products of half a tile: twice as many of QK as before, which had all 128 keys in one, and PV as before") {
  const emulator::Counters &here = counted(rung(), of(512, 512)), &before = counted(previous(), of(512, 512));
  CHECK(3 * here.wgmma == 4 * before.wgmma);
  CHECK(here.exponentials_beside_products > before.exponentials_beside_products);
  CHECK(here.gmem_bytes_read == before.gmem_bytes_read);
}

CLAIM("65536 values of one sign, of weights that are alike, and of others") {
  for (const InputKind kind : {InputKind::ties, InputKind::one_sign}) {
    Problem problem = make_question(of(4, 65536), std::vector{kind}, 1);
    Tensor& V = problem.inputs["V"];
    for (int64_t i = 0; kind == InputKind::ties && i < V.spec().elements(); ++i) V.set(i, 1);
    const CheckResult result = judged(rung(), problem);
    INFO(reasons(result));
    CHECK(result.answers_right());
  }
}

CLAIM("a maximum that grows in the second half of a tile: what the first half has got is shrunk") {
  Problem problem = make_question(of(64, 256), std::vector{InputKind::normal}, 1);
  Tensor &Q = problem.inputs["Q"], &K = problem.inputs["K"];
  for (const char* scale : {"Q_scales", "K_scales"}) problem.inputs[scale].set(0, 1);
  for (int64_t i = 0; i < Q.spec().elements(); ++i) Q.set(i, 1);
  for (int64_t i = 0; i < K.spec().elements(); ++i) {
    const int64_t key = i / 128;  // 250: of the last tile's second half
    K.set(i, key == 250 ? 1.25f : key == 0 || key == 140 ? 0.5f : 0);
  }
  const CheckResult result = judged(rung(), problem);
  INFO(reasons(result));
  CHECK(result.answers_right());
}
