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

constexpr int KEYS = 4096;

CLAIM("the second product is half as many instructions, and K, V and their scales are read as before") {
  const emulator::Counters &here = counted(rung(), beside(KEYS, Element::s4)),
                           &before = counted(previous(), beside(KEYS, Element::s4));
  CHECK(4 * here.mma == 3 * before.mma);
  CHECK(traffic(here, "K and V", "ldmatrix").ideal == traffic(before, "K and V", "ldmatrix").ideal);
  // Twice as many blocks read Q, and twice as many shares are joined.
  CHECK(here.gmem_bytes_read <= before.gmem_bytes_read * 11 / 10);
}

CLAIM("what a warp leaves are eight rows, and those are half as much to write") {
  const emulator::Counters &here = counted(rung(), beside(KEYS, Element::s4)),
                           &before = counted(previous(), beside(KEYS, Element::s4));
  // Of twice as many shares, each block's eight warps.
  CHECK(traffic(here, "K and V", "st.shared").ideal == traffic(before, "K and V", "st.shared").ideal);
}

// Of three heads: each key's scale, V's as the next key's of K, and what each number is, if it is not as it was.
template <class Scale, class Number>
void judge_numbers(const Scale& scale, const Number& number, float softmax_scale) {
  Shape shape{.batch = 1, .heads = 3, .n = 130, .d = 128, .softmax_scale = softmax_scale};
  shape.q_type = shape.o_type = Element::bf16, shape.kv_type = Element::s4;
  Problem problem = make_question(shape, std::vector{InputKind::normal}, 1);
  for (const char* const name : {"K", "V"}) {
    Tensor &numbers = problem.inputs[name], &scales = problem.inputs[name[0] == 'K' ? "K_scales" : "V_scales"];
    for (int64_t i = 0; i < numbers.spec().elements(); ++i) {
      if (const double given = number(i); !std::isnan(given)) numbers.set(i, given);
    }
    for (int64_t key = 0; key < scales.spec().elements(); ++key) scales.set(key, scale(key + (name[0] == 'V')));
  }
  const CheckResult result = judged(rung(), problem);
  INFO(reasons(result));
  CHECK(result.answers_right());
}

CLAIM("keys beside each other have scales of 2^-14 and 2^15, and of zero") {
  constexpr float SCALES[] = {0x1p-14f, 0x1p15f, 0, 1};
  const auto as_they_are = [](int64_t) { return std::nan(""); };
  for (const float of_scores : {0x1p-20f, 0x1p6f}) {  // scores as usual with the largest, and with the least
    judge_numbers([&](int64_t key) { return SCALES[key % 4]; }, as_they_are, of_scores);
    judge_numbers([&](int64_t key) { return SCALES[key / 130 % 3]; }, as_they_are, of_scores);  // of a head all alike
  }
}

CLAIM("numbers of four bits that are all -8, all 7, all of one sign, and each of them") {
  const auto alike = [](int64_t) { return 0.125f; };
  judge_numbers(
      alike, [](int64_t) { return -8.0; }, 0.01f);
  judge_numbers(
      alike, [](int64_t) { return 7.0; }, 0.01f);
  judge_numbers(
      alike, [](int64_t i) { return double(i * 5 % 8); }, 0.01f);
  judge_numbers(
      alike, [](int64_t i) { return double((i + i / 128) % 16) - 8; }, 0.05f);
}
