#include "harness/tests/stages/claims.hpp"
#include "decoding/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

constexpr int KEYS = 4096, HEADS = 3;

CLAIM("the second product is half as many instructions, and K, V and their scales are read as before") {
  const emulator::Counters &here = counted(rung(), cache(1, KEYS, Element::s4)),
                           &before = counted(previous(), cache(1, KEYS, Element::s4));
  CHECK(4 * here.mma == 3 * before.mma);
  CHECK(traffic(here, "K and V", "ldmatrix").ideal == traffic(before, "K and V", "ldmatrix").ideal);
  // Twice as many blocks read Q, and twice as many shares are joined.
  CHECK(here.gmem_bytes_read <= before.gmem_bytes_read * 11 / 10);
}

CLAIM("what a warp leaves are eight rows, and those are half as much to write") {
  const emulator::Counters &here = counted(rung(), cache(1, KEYS, Element::s4)),
                           &before = counted(previous(), cache(1, KEYS, Element::s4));
  // Of twice as many shares, each block's eight warps.
  CHECK(traffic(here, "K and V", "st.shared").ideal == traffic(before, "K and V", "st.shared").ideal);
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
