#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec beside(int n_k, Element keys) {
  Spec spec{.batch = 1,
            .heads = 4,
            .kv_heads = 1,
            .n = 1,
            .n_k = n_k,
            .q_type = Element::bf16,
            .kv_type = keys,
            .o_type = Element::bf16};
  spec.page = -1;
  return spec;
}

}  // namespace

CLAIM("of K and V half as many bytes are read, and products are as many") {
  const emulator::Counters &bytes = counted(rung(), beside(4096, Element::e4m3)),
                           &halves = counted(previous(), beside(4096, Element::bf16));
  const uint64_t cache = 2 * 4096 * 128;
  CHECK(halves.gmem_bytes_read - bytes.gmem_bytes_read >= cache - cache / 64);
  CHECK(bytes.mma == halves.mma);
}

CLAIM("a byte is read from shared memory once, as in the rung before, and none is written there again") {
  const emulator::Counters &bytes = counted(rung(), beside(4096, Element::e4m3)),
                           &halves = counted(previous(), beside(4096, Element::bf16));
  const uint64_t tile_rows = 4096, joined = 4096 / 8;  // 128 B each: of K, and of V; what four blocks' warps have found
  CHECK(traffic(halves, "K and V", "ldmatrix").ideal == 2 * 2 * tile_rows);
  CHECK(traffic(bytes, "K and V", "ldmatrix").ideal == tile_rows);
  CHECK(traffic(bytes, "K and V", "ld.shared").ideal <= tile_rows + 2 * joined);
  CHECK(traffic(bytes, "K and V", "st.shared").ideal <= traffic(halves, "K and V", "st.shared").ideal);
}

CLAIM("scales of 2^-14 and 2^15, and of zero") {
  for (const float scale : {0x1p6f, 0x1p-20f}) {  // the scores are as usual with the least, and with the largest
    Shape shape{.batch = 1, .heads = 3, .n = 130, .d = 128, .softmax_scale = scale};
    shape.q_type = shape.o_type = Element::bf16, shape.kv_type = Element::e4m3;
    Problem problem = make_question(shape, std::vector{InputKind::normal}, 1);
    constexpr float SCALES[] = {0x1p-14f, 0x1p15f, 0};
    for (int64_t head = 0; head < 3; ++head) {
      problem.inputs["K_scales"].set(head, SCALES[head]);
      problem.inputs["V_scales"].set(head, SCALES[(head + 1) % 3]);
    }
    const CheckResult result = judged(rung(), problem);
    INFO(reasons(result));
    CHECK(result.answers_right());
  }
}
