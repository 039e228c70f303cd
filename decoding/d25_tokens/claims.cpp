#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {
#include "decoding/claims.hpp"

Spec bytes(int n_k, Scales scales) {
  Spec spec = cache(1, n_k, Element::e4m3);
  spec.scales = scales;
  return spec;
}

}  // namespace

CLAIM("each key brings eight bytes of scales, and else as many are read and multiplied as of a head's") {
  constexpr int64_t KEYS = 4096;
  const emulator::Counters &tokens = counted(rung(), bytes(KEYS, Scales::token)),
                           &heads = counted(previous(), bytes(KEYS, Scales::head));
  const uint64_t of_heads = 4 * 8 * 2 * 32 * sizeof(float);  // four blocks of eight warps, each lane both
  CHECK(tokens.gmem_bytes_read - heads.gmem_bytes_read == KEYS * 2 * sizeof(float) - of_heads);
  CHECK(tokens.mma == heads.mma);
  CHECK(traffic(tokens, "K and V", "ldmatrix").ideal == traffic(heads, "K and V", "ldmatrix").ideal);
  // Of eight keys together, by a quarter of the warp at a time.
  CHECK(traffic(tokens, "K and V", "ld.shared").ideal <= traffic(heads, "K and V", "ld.shared").ideal + KEYS / 2);
}

// Of three heads: each key's scale, V's as the next one's of K.
template <class Scale>
void judge_scales(Element keys, Element queries, const Scale& scale, float softmax_scale) {
  Shape shape{.batch = 1, .heads = 3, .n = 130, .d = 128, .softmax_scale = softmax_scale};
  shape.q_type = shape.o_type = queries, shape.kv_type = keys, shape.scales = Scales::token;
  Problem problem = make_question(shape, std::vector{InputKind::normal}, 1);
  const float of_V = queries == Element::f16 ? 0x1p-14f : 1;  // O has to fit
  for (int64_t key = 0; key < 3 * 130; ++key) {
    problem.inputs["K_scales"].set(key, scale(key));
    problem.inputs["V_scales"].set(key, of_V * scale(key + 1));
  }
  const CheckResult result = judged(rung(), problem);
  INFO(reasons(result));
  CHECK(result.answers_right());
}

CLAIM("keys beside each other have scales of 2^-14 and 2^15, and of zero, in all types") {
  constexpr float SCALES[] = {0x1p-14f, 0x1p15f, 0, 1};
  for (const Element keys : {Element::e4m3, Element::s8}) {
    for (const Element queries : {Element::bf16, Element::f16}) {
      for (const float of_scores : {0x1p-20f, 0x1p6f}) {  // scores as usual with the largest, and with the least
        judge_scales(
            keys, queries, [&](int64_t key) { return SCALES[key % 4]; }, of_scores);
        judge_scales(
            keys, queries, [&](int64_t key) { return SCALES[key / 130 % 3]; }, of_scores);  // of a head
      }
    }
  }
}
