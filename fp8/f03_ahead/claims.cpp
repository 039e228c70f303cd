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

CLAIM("65536 keys with values of one sign, whatever their weights") {
  for (const InputKind kind : {InputKind::ties, InputKind::one_sign, InputKind::near_ties, InputKind::rising_weights}) {
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
  for (int64_t c = 0; c < 128; ++c) {
    for (int64_t query = 0; query < 64; ++query) Q.set(query * 128 + c, 1);
    for (const int64_t key : {0, 80, 130, 255}) K.set(key * 128 + c, key == 0 ? 0.25f : key == 80 ? 0.5f : 0.75f);
  }
  const CheckResult result = judged(rung(), problem);
  INFO(reasons(result));
  CHECK(result.answers_right());
}
