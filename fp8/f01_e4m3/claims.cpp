#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec of(Element inputs) {
  return {.batch = 1, .heads = 2, .n = 512, .d = 128, .q_type = inputs, .kv_type = inputs, .o_type = Element::bf16};
}

}  // namespace

CLAIM("half as many products as in bf16, and half as many bytes of K and V") {
  const emulator::Counters &bytes = counted(rung(), of(Element::e4m3)),
                           &halves = counted(previous(), of(Element::bf16));
  CHECK(2 * bytes.wgmma == halves.wgmma);
  CHECK(2 * bytes.multicast_bytes == halves.multicast_bytes);
}

CLAIM("the scales of a head of zeros, and others as large and as small as they come") {
  Spec spec = of(Element::e4m3);
  spec.heads = 3, spec.n = 130;                   // some keys are hidden
  for (const float scale : {0x1p6f, 0x1p-20f}) {  // the scores are as usual with the least, and with the largest
    spec.softmax_scale = scale;
    Problem problem = make_question(spec, std::vector{InputKind::normal}, 1);
    constexpr float SCALES[] = {0x1p-14f, 0x1p15f, 0};
    for (int64_t head = 0; head < 3; ++head) {
      problem.inputs["Q_scales"].set(head, 0x1p-6f);
      problem.inputs["K_scales"].set(head, SCALES[head]);
      problem.inputs["V_scales"].set(head, SCALES[(head + 1) % 3]);
    }
    const CheckResult result = judged(rung(), problem);
    INFO(reasons(result));
    CHECK(result.answers_right());
  }
}
