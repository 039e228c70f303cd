#include "harness/tests/stages/claims.hpp"
#include "decoding/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

constexpr int KEYS = 4096, HEADS = 4;

CLAIM("of two heads a team fetches rows of 128 bytes, and all is read and multiplied as before") {
  Spec of = cache(1, KEYS, Element::s4);
  of.heads = 8, of.kv_heads = 2;
  const emulator::Counters &here = counted(rung(), of), &before = counted(previous(), of);
  CHECK(here.mma == before.mma);
  CHECK(traffic(here, "K and V", "ldmatrix").ideal == traffic(before, "K and V", "ldmatrix").ideal);
  CHECK(traffic(here, "K and V", "ld.shared").wavefronts == traffic(here, "K and V", "ld.shared").ideal);
}

CLAIM("an odd number of heads of keys costs what it did") {
  const emulator::Counters &here = counted(rung(), cache(1, KEYS, Element::s4)),
                           &before = counted(previous(), cache(1, KEYS, Element::s4));
  CHECK(here.mma == before.mma);
  CHECK(here.gmem_bytes_read == before.gmem_bytes_read);
}

CLAIM("keys beside each other have scales of 2^-14 and 2^15, and of zero") {
  constexpr float SCALES[] = {0x1p-14f, 0x1p15f, 0, 1};
  const auto as_they_are = [](int64_t) { return std::nan(""); };
  for (const float of_scores : {0x1p-20f, 0x1p6f}) {  // scores as usual with the largest, and with the least
    judge_numbers(
        HEADS, [&](int64_t key) { return SCALES[key % 4]; }, as_they_are, of_scores);
    judge_numbers(
        HEADS, [&](int64_t key) { return SCALES[key / 130 % 3]; }, as_they_are, of_scores);  // of a head all alike
  }
}

CLAIM("numbers of four bits that are all -8, all 7, all of one sign, and each of them") {
  const auto alike = [](int64_t) { return 0.125f; };
  judge_numbers(
      HEADS, alike, [](int64_t) { return -8.0; }, 0.01f);
  judge_numbers(
      HEADS, alike, [](int64_t) { return 7.0; }, 0.01f);
  judge_numbers(
      HEADS, alike, [](int64_t i) { return double(i * 5 % 8); }, 0.01f);
  judge_numbers(
      HEADS, alike, [](int64_t i) { return double((i + i / 128) % 16) - 8; }, 0.05f);
}

CLAIM("queries of any size that bf16 has, with one column that is 2^10 times as large") {
  for (const float size : {0x1p-100f, 0x1p-20f, 0x1p100f}) {
    Shape shape{.batch = 1, .heads = HEADS, .n = 130, .d = 128, .softmax_scale = 0.05f / size};
    shape.q_type = shape.o_type = Element::bf16, shape.kv_type = Element::s4;
    Problem problem = make_question(shape, std::vector{InputKind::normal}, 1);
    Tensor& Q = problem.inputs["Q"];
    for (int64_t i = 0; i < Q.spec().elements(); ++i) Q.set(i, Q[i] * size * (i % 128 == 5 ? 1 : 0x1p-10));
    const CheckResult result = judged(rung(), problem);
    INFO(reasons(result));
    CHECK(result.answers_right());
  }
}

CLAIM("values of a row's first keys that have a scale of zero, and those of all keys") {
  const auto as_they_are = [](int64_t) { return std::nan(""); };
  judge_numbers(
      HEADS, [&](int64_t key) { return key % 130 < 70 ? 0.0f : 0.5f; }, as_they_are, 0.05f);
  judge_numbers(
      HEADS, [&](int64_t) { return 0.0f; }, as_they_are, 0.05f);
}
