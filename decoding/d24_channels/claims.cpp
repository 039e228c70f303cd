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

CLAIM("the loop is d13's: as many keys more cost as much more, to the last access") {
  const auto more = [](const Rung& of, Scales scales, const auto& count) {
    return count(counted(of, bytes(8192, scales))) - count(counted(of, bytes(4096, scales)));
  };
  const auto same = [&](const auto& count) {
    CHECK(more(rung(), Scales::channel, count) == more(previous(), Scales::head, count));
  };
  same([](const emulator::Counters& of) { return of.mma; });
  same([](const emulator::Counters& of) { return of.ldmatrix; });
  same([](const emulator::Counters& of) { return of.exponentials; });
  same([](const emulator::Counters& of) { return traffic(of, "K and V", "ld.shared").ideal; });
  same([](const emulator::Counters& of) { return of.gmem_bytes_read; });
}

CLAIM("a block reads a scale of each column of K in each warp, and of each of V") {
  const emulator::Counters &channels = counted(rung(), bytes(4096, Scales::channel)),
                           &heads = counted(previous(), bytes(4096, Scales::head));
  // Eight lanes read the same column of K; here four blocks of eight warps.
  const uint64_t warps = 4 * 8, of_K = warps * 8 * 128 * sizeof(float), of_V = warps * 128 * sizeof(float),
                 of_heads = 2 * warps * 32 * sizeof(float);
  CHECK(channels.gmem_bytes_read - heads.gmem_bytes_read == of_K + of_V - of_heads);
}

// Of three heads: each column's scale, V's as the next one's of K.
template <class Scale>
void judge_scales(Element keys, Element queries, const Scale& scale, float softmax_scale) {
  Shape shape{.batch = 1, .heads = 3, .n = 130, .d = 128, .softmax_scale = softmax_scale};
  shape.q_type = shape.o_type = queries, shape.kv_type = keys, shape.scales = Scales::channel;
  Problem problem = make_question(shape, std::vector{InputKind::normal}, 1);
  const float of_V = queries == Element::f16 ? 0x1p-14f : 1;  // O has to fit
  for (int64_t column = 0; column < 3 * 128; ++column) {
    problem.inputs["K_scales"].set(column, scale(column));
    problem.inputs["V_scales"].set(column, of_V * scale(column + 1));
  }
  const CheckResult result = judged(rung(), problem);
  INFO(reasons(result));
  CHECK(result.answers_right());
}

CLAIM("columns beside each other have scales of 2^-14 and 2^15, and of zero, in all types") {
  constexpr float SCALES[] = {0x1p-14f, 0x1p15f, 0, 1};
  for (const Element keys : {Element::e4m3, Element::s8}) {
    for (const Element queries : {Element::bf16, Element::f16}) {
      for (const float of_scores : {0x1p-20f, 0x1p6f}) {  // scores as usual with the largest, and with the least
        judge_scales(
            keys, queries, [&](int64_t column) { return SCALES[column % 4]; }, of_scores);
        judge_scales(
            keys, queries, [&](int64_t column) { return SCALES[column / 128 % 3]; }, of_scores);  // of a head
      }
    }
  }
}
