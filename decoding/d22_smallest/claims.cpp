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

constexpr int64_t KEYS = 4096, ROWS = KEYS / 2;  // of 128 B each: of K, and of V

CLAIM("of K and V half as many bytes are read, and their scales; products are as many") {
  const emulator::Counters &nibbles = counted(rung(), beside(KEYS, Element::s4)),
                           &bytes = counted(previous(), beside(KEYS, Element::e4m3));
  constexpr uint64_t LESS = 2 * KEYS * (128 - 64 - sizeof(float));
  CHECK(bytes.gmem_bytes_read - nibbles.gmem_bytes_read >= LESS - LESS / 64);
  CHECK(bytes.gmem_bytes_read - nibbles.gmem_bytes_read <= LESS + LESS / 32);  // d13 reads a head's scales in each lane
  CHECK(nibbles.mma == bytes.mma);
}

CLAIM("a byte of K and V is read from shared memory once, and none is written there again") {
  const emulator::Counters &nibbles = counted(rung(), beside(KEYS, Element::s4)),
                           &bytes = counted(previous(), beside(KEYS, Element::e4m3));
  // Of eight keys together, by a quarter of the warp at a time; what four blocks' warps have found.
  constexpr uint64_t SCALES = KEYS / 2, JOINED = KEYS / 8;
  CHECK(traffic(nibbles, "K and V", "ldmatrix").ideal == ROWS);
  CHECK(traffic(nibbles, "K and V", "ld.shared").ideal <= ROWS + SCALES + 2 * JOINED);
  CHECK(traffic(nibbles, "K and V", "st.shared").ideal <= traffic(bytes, "K and V", "st.shared").ideal);
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
