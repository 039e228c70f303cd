#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec of(Element inputs, Element output) {
  return {.batch = 1, .heads = 2, .n = 512, .d = 128, .q_type = inputs, .kv_type = inputs, .o_type = output};
}

}  // namespace

CLAIM("QK has as many products as in e4m3, PV twice as many, and nothing is turned before") {
  const emulator::Counters &exact = counted(rung(), of(Element::s8, Element::f16)),
                           &bytes = counted(previous(), of(Element::e4m3, Element::bf16));
  CHECK(2 * exact.wgmma == 3 * bytes.wgmma);
  CHECK(2 * exact.multicast_bytes == 3 * bytes.multicast_bytes);
  CHECK(exact.gmem_bytes_written < bytes.gmem_bytes_written);
}

CLAIM("scores that 14 bits do not tell apart") {
  // Of all keys one is better than the others by a step of int8, in one column of 128 that are as large as they come.
  Spec spec = of(Element::s8, Element::f16);
  spec.heads = 1, spec.n = 1, spec.n_k = 256, spec.softmax_scale = 1;
  Problem problem = make_question(spec, std::vector{InputKind::ties}, 1);
  for (const char* name : {"Q", "K"}) {
    Tensor& numbers = problem.inputs[name];
    for (int64_t i = 0; i < numbers.spec().elements(); ++i) numbers.set(i, 127);
  }
  const int64_t best = 77;
  for (int64_t key = 0; key < spec.n_k; ++key) {
    problem.inputs["K"].set(key * spec.d, key == best ? 127 : 126);  // 2 064 512 - 127, and the best one 2 064 512
    problem.inputs["K_scales"].set(key, 1);
  }
  problem.inputs["Q_scales"].set(0, 0x1p-4);  // so the others weigh 2^-11 of it each
  const CheckResult result = judged(rung(), problem);
  INFO(reasons(result));
  CHECK(result.answers_right());
}

CLAIM("the scales of rows of zeros, and others as large and as small as they come, side by side") {
  Spec spec = of(Element::s8, Element::f16);
  spec.n = 130;                                   // some keys are hidden
  for (const float scale : {0x1p6f, 0x1p-12f}) {  // the scores are as usual with the least, and with the largest
    spec.softmax_scale = scale;
    Problem problem = make_question(spec, std::vector{InputKind::normal}, 1);
    constexpr float SCALES[] = {0x1p-14f, 0x1p-2f, 0};
    for (const char* name : {"Q_scales", "K_scales"}) {
      Tensor& scales = problem.inputs[name];
      for (int64_t row = 0; row < scales.spec().elements(); ++row)
        scales.set(row, name[0] == 'Q' ? (row % 7 == 0 ? 0 : 0x1p-6f) : SCALES[row % 3]);
    }
    const CheckResult result = judged(rung(), problem);
    INFO(reasons(result));
    CHECK(result.answers_right());
  }
}
