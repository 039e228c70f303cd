// Products to the last bit, and f16, of which the conformance cases (conformance_tests.cpp) have some numbers.
#include <array>
#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "common/emulator/half.hpp"
#include "common/emulator/multiply.hpp"
#include "harness/tests/emulator/emulator_test.hpp"

using namespace emulator_test;

namespace {

// C += A * B from row-major A [16][16] and B [16][8] in f32, by the layouts of common/fragments.hpp.
__global__ void multiply_fragments(const float* A, const float* B, float* C) {
  const int lane = static_cast<int>(threadIdx.x);
  const auto a_at = [&](int i) { return A[FragmentA::row(lane, i) * 16 + FragmentA::col(lane, i)]; };
  const auto b_at = [&](int i) { return B[FragmentB::row(lane, i) * 8 + FragmentB::col(lane, i)]; };
  uint32_t a[4];
  for (int r = 0; r < 4; ++r) a[r] = pack_f16x2(a_at(2 * r), a_at(2 * r + 1));
  float c[4];
  for (int i = 0; i < 4; ++i) c[i] = C[FragmentC::row(lane, i) * 8 + FragmentC::col(lane, i)];
  mma_m16n8k16(c, a, pack_f16x2(b_at(0), b_at(1)), pack_f16x2(b_at(2), b_at(3)));
  for (int i = 0; i < 4; ++i) C[FragmentC::row(lane, i) * 8 + FragmentC::col(lane, i)] = c[i];
}

}  // namespace

TEST_CASE("an uninitialised operand makes its row or column NaN", "[emulator][tensor]") {
  float A[256] = {}, B[128] = {}, C[128] = {};
  A[3 * 16 + 5] = NAN;
  run(multiply_fragments, 32, 0, A, B, C);
  for (int i = 0; i < 128; ++i) CHECK(std::isnan(C[i]) == (i / 8 == 3));
}

TEST_CASE("the CPU's best multiplication agrees with the portable one to the bit", "[emulator][tensor]") {
  std::mt19937 random(3);
  alignas(64) uint32_t a[4][32], b[2][32];
  alignas(64) float c[128], best[128], portable[128];
  for (int repetition = 0; repetition < 50; ++repetition) {
    const bool is_bf16 = repetition % 2 == 1;
    const uint32_t no_subnormals = repetition % 4 == 0 ? 0 : 0x04000400;
    const auto pairs = [&] {  // finite, of either sign; of bf16 from 2^-63 up to 2, so that products are exact
      const uint32_t bits = static_cast<uint32_t>(random());
      return is_bf16 ? (bits & 0x9fff9fff) | 0x20002000 : (bits & 0xbfffbfff) | no_subnormals;
    };
    std::generate(std::begin(c), std::end(c), [&] { return static_cast<float>(random()) * 0x1p-32f; });
    for (auto& operand : a) std::generate(std::begin(operand), std::end(operand), pairs);
    for (auto& operand : b) std::generate(std::begin(operand), std::end(operand), pairs);
    (is_bf16 ? emulator::multiply_bf16 : emulator::multiply)(a, b, c, best);
    (is_bf16 ? emulator::multiply_bf16_portable : emulator::multiply_portable)(a, b, c, portable);
    for (int i = 0; i < 128; ++i) REQUIRE(std::bit_cast<uint32_t>(best[i]) == std::bit_cast<uint32_t>(portable[i]));
  }
}

namespace {

// D of one column and row, as all others, for A and B with the same terms in each.
float sum_of_e4m3(const std::array<std::byte, 32>& a, const std::array<std::byte, 32>& b, float c) {
  std::array<std::byte, 64 * 32> A;
  std::array<std::byte, 8 * 32> B;
  std::array<float, 64 * 8> D;
  for (size_t row = 0; row < 64; ++row) std::ranges::copy(a, &A[row * 32]);
  for (size_t column = 0; column < 8; ++column) std::ranges::copy(b, &B[column * 32]);
  D.fill(c);
  emulator::multiply_tile_e4m3(A.data(), B.data(), D.data(), 8);
  for (const float& sum : D) CHECK(std::bit_cast<uint32_t>(sum) == std::bit_cast<uint32_t>(D[0]));
  return D[0];
}

// A row of docs/results/h200_adder.csv: bits of so many factors, of the accumulator, and of what came.
struct Recorded {
  std::string text;
  std::array<uint16_t, 32> a{}, b{};
  float c;
  int times;
  uint32_t sum;
};

std::vector<Recorded> recorded(std::string_view instruction) {
  std::ifstream table(std::string(LADDER_SOURCE_DIR) + "/docs/results/h200_adder.csv");
  std::vector<Recorded> sums;
  const auto bits = [](const std::string& digits) { return static_cast<uint32_t>(std::stoul(digits, nullptr, 16)); };
  for (std::string line; std::getline(table, line);) {
    std::vector<std::string> cells;
    for (std::istringstream row(line); std::getline(row, line, ',');) cells.push_back(line);
    if (cells.at(0) != instruction) continue;
    Recorded sum{.text = cells.at(1) + ", " + cells.at(2) + ": " + cells.at(5) + " to " + cells.at(4),
                 .c = std::bit_cast<float>(bits(cells.at(4))),
                 .times = std::stoi(cells.at(3)),
                 .sum = bits(cells.at(6))};
    std::istringstream terms(cells.at(5));
    for (std::string term; terms >> term;) {  // k:aa*bb or k-k:aa*bb
      const size_t colon = term.find(':'), dash = term.find('-'), times = term.find('*');
      const size_t first = std::stoul(term), last = dash < colon ? std::stoul(term.substr(dash + 1)) : first;
      for (size_t k = first; k <= last; ++k) {
        sum.a.at(k) = static_cast<uint16_t>(bits(term.substr(colon + 1, times - colon - 1)));
        sum.b.at(k) = static_cast<uint16_t>(bits(term.substr(times + 1)));
      }
    }
    sums.push_back(sum);
  }
  return sums;
}

// The same of mma.m16n8k16 and of wgmma.
float sum_of_mma(emulator::Multiply multiply, const Recorded& of, float c) {
  alignas(64) uint32_t a[4][32], b[2][32];
  alignas(64) float C[16 * 8], D[16 * 8];
  const auto two = [](const std::array<uint16_t, 32>& factors, size_t k) {
    return uint32_t{factors[k + 1]} << 16 | factors[k];
  };
  for (size_t lane = 0; lane < 32; ++lane) {
    for (size_t r = 0; r < 4; ++r) a[r][lane] = two(of.a, lane % 4 * 2 + r / 2 * 8);
    for (size_t r = 0; r < 2; ++r) b[r][lane] = two(of.b, lane / 8 * 2 + r * 8);
  }
  std::ranges::fill(C, c);
  multiply(a, b, C, D);
  for (const float& sum : D) CHECK(std::bit_cast<uint32_t>(sum) == std::bit_cast<uint32_t>(D[0]));
  return D[0];
}
float sum_of_wgmma(const Recorded& of, float c) {
  std::array<float, 64 * 16> A;
  std::array<float, 16 * 24> B;
  std::array<float, 64 * 24> D;
  for (size_t i = 0; i < A.size(); ++i) A[i] = emulator::half_to_float(of.a[i % 16]);
  for (size_t i = 0; i < B.size(); ++i) B[i] = emulator::half_to_float(of.b[i / 24]);
  D.fill(c);
  CHECK((emulator::has_subnormals(of.a.data(), 16) || emulator::has_subnormals(of.b.data(), 16)));
  emulator::multiply_tile_subnormals(A.data(), B.data(), D.data(), 24);
  for (const float& sum : D) CHECK(std::bit_cast<uint32_t>(sum) == std::bit_cast<uint32_t>(D[0]));
  return D[0];
}

bool is_subnormal(uint16_t half) {
  return (half & 0x7c00) == 0 && (half & 0x3ff) != 0;
}

}  // namespace

TEST_CASE("products of e4m3 add up as an H200's wgmma does, to the last bit", "[emulator][tensor]") {
  const std::vector<Recorded> sums = recorded("wgmma.e4m3");
  CHECK(sums.size() > 700);
  for (const Recorded& of : sums) {
    std::array<std::byte, 32> a, b;
    std::ranges::transform(of.a, a.begin(), [](uint16_t bits) { return static_cast<std::byte>(bits); });
    std::ranges::transform(of.b, b.begin(), [](uint16_t bits) { return static_cast<std::byte>(bits); });
    float sum = of.c;
    for (int i = 0; i < of.times; ++i) sum = sum_of_e4m3(a, b, sum);
    INFO(of.text);
    CHECK(std::bit_cast<uint32_t>(sum) == of.sum);
  }
}

TEST_CASE("products of f16 with subnormal factors add up as an H200's do, to the last bit", "[emulator][tensor]") {
  const auto hold = [](std::string_view instruction, const auto& add) {
    int sums = 0;
    for (const Recorded& of : recorded(instruction)) {
      if (std::ranges::none_of(of.a, is_subnormal) && std::ranges::none_of(of.b, is_subnormal)) continue;
      float sum = of.c;
      for (int i = 0; i < of.times; ++i) sum = add(of, sum);
      INFO(instruction << ", " << of.text);
      CHECK(std::bit_cast<uint32_t>(sum) == of.sum);
      ++sums;
    }
    CHECK(sums > 40);
  };
  for (const emulator::Multiply multiply : {emulator::multiply, emulator::multiply_portable})
    hold("mma.f16", [&](const Recorded& of, float c) { return sum_of_mma(multiply, of, c); });
  hold("wgmma.f16", sum_of_wgmma);
}

TEST_CASE("a subnormal factor changes no sum but those of its own row or column", "[emulator][tensor]") {
  std::mt19937 random(3);
  alignas(64) uint32_t a[4][32], b[2][32];
  alignas(64) float c[128], before[128], after[128];
  const auto pairs = [&] { return (static_cast<uint32_t>(random()) & 0x83ff83ff) | 0x38003800; };  // 0.5 to 1
  for (auto& operand : a) std::generate(std::begin(operand), std::end(operand), pairs);
  for (auto& operand : b) std::generate(std::begin(operand), std::end(operand), pairs);
  std::ranges::fill(c, 1.0f / 3);
  emulator::multiply(a, b, c, before);
  a[0][3 * 4] = (a[0][3 * 4] & 0xffff0000) | 1;  // row 3
  b[1][5] = (b[1][5] & 0xffff0000) | 1;          // column 5
  emulator::multiply(a, b, c, after);
  for (int i = 0; i < 128; ++i) {
    if (i / 8 != 3 && i % 8 != 5) CHECK(std::bit_cast<uint32_t>(after[i]) == std::bit_cast<uint32_t>(before[i]));
  }
}

TEST_CASE("in one accumulator a sum of ones in e4m3 stands still at 16384", "[emulator][tensor]") {
  std::array<std::byte, 32> ones;
  ones.fill(std::byte{0x38});
  float sum = 0;
  for (int key = 0; key < 65536; key += 32) sum = sum_of_e4m3(ones, ones, sum);
  CHECK(sum == 16384);
}

TEST_CASE("every f16 survives f32 and back", "[emulator][tensor]") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const f16 half{static_cast<uint16_t>(bits)};
    const float value = to_float(half);
    const bool is_nan = (bits & 0x7fff) > 0x7c00;
    if (std::isnan(value) != is_nan || to_f16(value).bits != (is_nan ? 0x7fff : bits)) FAIL("f16 with bits " << bits);
  }
  CHECK(to_float(f16{0x3c00}) == 1.0f);
  CHECK(to_float(f16{0xc000}) == -2.0f);
  CHECK(to_float(f16{0x0001}) == 0x1p-24f);
  CHECK(to_float(f16{0x7bff}) == 65504.0f);
  CHECK(to_float(f16{0xfc00}) == -INFINITY);
}

TEST_CASE("f32 rounds to the nearest f16, ties to even", "[emulator][tensor]") {
  // Between neighbours, just below, at and just above the middle.
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = to_float(f16{static_cast<uint16_t>(bits)}), high = to_float(f16{static_cast<uint16_t>(bits + 1)});
    const float middle = low + (high - low) / 2;  // exact
    const uint32_t even = bits + bits % 2;
    if (to_f16(std::nextafter(middle, low)).bits != bits || to_f16(middle).bits != even ||
        to_f16(std::nextafter(middle, high)).bits != bits + 1 || to_f16(-middle).bits != (even | 0x8000))
      FAIL("between f16 " << bits << " and the next");
  }
  CHECK(to_f16(65519.996f).bits == 0x7bff);
  CHECK(to_f16(65520.0f).bits == 0x7c00);
  CHECK(to_f16(std::numeric_limits<float>::max()).bits == 0x7c00);
  CHECK(to_f16(-INFINITY).bits == 0xfc00);
  CHECK(to_f16(std::numeric_limits<float>::denorm_min()).bits == 0);
  CHECK(to_f16(-0.0f).bits == 0x8000);
  CHECK(to_f16(0x1p-25f).bits == 0);  // the middle between 0 and the smallest subnormal
  CHECK(to_f16(std::nextafter(0x1p-25f, 1.0f)).bits == 1);
  CHECK(pack_f16x2(1.0f, -2.0f) == 0xc0003c00);
}
