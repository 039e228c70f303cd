// Holds the emulator to a real GPU: every primitive's conformance kernel, emulated, against the recorded answer. And both
// to arithmetic done here from the layouts' definitions, so that a recording cannot be wrong in the same way.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "harness/conformance/cases.hpp"
#include "harness/conformance/fixture.hpp"
#include "harness/tests/catch.hpp"

namespace {

using ladder::conformance::Case;
using Words = std::vector<uint32_t>;

const std::filesystem::path SOURCE = LADDER_SOURCE_DIR;
const std::filesystem::path FIXTURES = SOURCE / "harness/tests/fixtures/conformance";

struct Answer {
  Words words;
  std::string reports;  // what the emulator objects to: nothing, in a correct kernel
};

Answer run_on_emulator(const Case& test) {
  Answer answer{Words(test.output_words, 0xdeadbeef), ""};
  Device device({.threads = 1});
  if (!test.input.empty()) {
    device.register_buffer(test.input.data(), test.input.size() * 4, "in", emulator::Access::read_only);
  }
  device.register_buffer(answer.words.data(), answer.words.size() * 4, "out", emulator::Access::read_write);
  const uint32_t* in = test.input.data();
  run_case(device, test, in, answer.words.data());
  for (const auto& report : device.reports()) answer.reports += report.message + "\n";
  return answer;
}

// ---- what each kernel must give, computed without the emulator ----------------------------------------------------

Words chunks_gathered(const Words& in, size_t words_per_chunk) {
  Words out;
  for (size_t lane = 0; lane < 32; ++lane) {
    for (size_t word = 0; word < words_per_chunk; ++word) out.push_back(in[lane * 5 % 32 * words_per_chunk + word]);
  }
  return out;
}

Words chunks_scattered(const Words& in, size_t words_per_chunk) {
  Words out(in.size());
  for (size_t lane = 0; lane < 32; ++lane) {
    for (size_t word = 0; word < words_per_chunk; ++word) {
      out[lane * 5 % 32 * words_per_chunk + word] = in[lane * words_per_chunk + word];
    }
  }
  return out;
}

Words halved(const Words& in) {
  Words out;
  for (const uint32_t word : chunks_gathered(in, 1)) {
    const auto value = static_cast<int32_t>(word);
    out.push_back(static_cast<uint32_t>(value < 0 ? -(-value / 2) : value / 2));
  }
  return out;
}

Words zero_filled(const Words& in) {
  Words kept = in;
  for (size_t lane = 0; lane < 32; ++lane) {
    for (size_t byte = lane * 5 % 17; byte < 16; ++byte) kept[4 * lane + byte / 4] &= ~(0xffu << (byte % 4 * 8));
  }
  return chunks_scattered(kept, 4);
}

uint32_t float_bits(double value) {
  return std::bit_cast<uint32_t>(static_cast<float>(value));
}

Words sums_of_warps(const Words& in) {
  std::array<double, 32> sums;
  sums.fill(0.5);
  for (size_t thread = 0; thread < 128; ++thread) sums[thread * 5 % 32] += in[thread];
  Words out;
  for (const double sum : sums) out.push_back(float_bits(sum));
  for (size_t thread = 0; thread < 128; ++thread) out.push_back(out[(thread + 1) % 32]);
  out.push_back(float_bits(0));  // red flushes subnormals in global memory
  return out;
}

Words swapped_halves(const Words& in) {
  Words out(in.begin() + 64, in.end());
  out.insert(out.end(), in.begin(), in.begin() + 64);
  return out;
}

Words halves_apart(const Words& in) {
  Words out(in.begin() + 64, in.end());
  out.insert(out.end(), 16, 0xdeadbeef);
  out.insert(out.end(), in.begin(), in.begin() + 64);
  return out;
}

Words sums_of_bulk(const Words& in) {
  const auto value = [&](size_t i) { return double{std::bit_cast<float>(in[i])}; };
  Words out;
  for (size_t i = 0; i < 128; ++i)
    out.push_back(float_bits(0.5 + value(i) + (i < 64 ? 0 : value(64 + i)) + (i % 2 == 0 ? 1 : 0)));
  out.insert(out.end(), 4, float_bits(0x1p-126));
  return out;
}

// Thread t reads what t + distance has stored, then stores to t + distance, in the second half.
Words exchanged(const Words& in, size_t distance) {
  const size_t threads = in.size() / 2;
  Words out(in.size());
  for (size_t thread = 0; thread < threads; ++thread) {
    const size_t partner = (thread + distance) % threads;
    out[thread] = in[partner];
    out[threads + partner] = in[threads + thread];
  }
  return out;
}

// Within every group of threads, thread t reads what t + distance has stored.
Words rotated(const Words& in, size_t group, size_t distance) {
  Words out;
  for (size_t i = 0; i < in.size(); ++i) out.push_back(in[i / group * group + (i + distance) % group]);
  return out;
}

// Lane l reads what lane l mod count has stored, count being 1, 20 and 32.
Words behind_counts(const Words& in) {
  Words out;
  for (size_t lane = 0; lane < 32; ++lane) out.push_back(in[0]);
  for (size_t lane = 0; lane < 32; ++lane) out.push_back(in[32 + lane % 20]);
  out.insert(out.end(), in.begin() + 64, in.end());
  return out;
}

Words halves_scattered(const Words& in) {
  Words out = chunks_scattered(Words(in.begin(), in.begin() + 128), 4);
  const Words second = chunks_scattered(Words(in.begin() + 128, in.end()), 4);
  out.insert(out.end(), second.begin(), second.end());
  return out;
}

// The fragment of matrix m is that of the B operand of an mma, for .trans, and its mirror image without: element
// (row, column) is 0mrc.
Words matrix_fragments(uint32_t matrices, bool transposed) {
  Words out;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    for (uint32_t m = 0; m < matrices; ++m) {
      uint32_t word = 0;
      for (int half = 0; half < 2; ++half) {
        const uint32_t along = static_cast<uint32_t>(FragmentB::row(static_cast<int>(lane), half));
        const uint32_t across = static_cast<uint32_t>(FragmentB::col(static_cast<int>(lane), half));
        const uint32_t row = transposed ? along : across, column = transposed ? across : along;
        word |= (m << 8 | row << 4 | column) << (16 * half);
      }
      out.push_back(word);
    }
  }
  return out;
}

double half_value(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 10 & 31), mantissa = static_cast<int>(bits & 1023);
  const double sign = bits >> 15 ? -1.0 : 1.0;
  if (exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

double bfloat_value(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 7 & 255), mantissa = static_cast<int>(bits & 127);
  const double sign = bits >> 15 ? -1.0 : 1.0;
  if (exponent == 255) return mantissa == 0 ? sign * INFINITY : NAN;
  return sign * (exponent == 0 ? std::ldexp(mantissa, -133) : std::ldexp(128 + mantissa, exponent - 134));
}

// With so many bits behind the point. Of e4m3 all ones are NaN, and there is no infinity.
double value_of_8(uint32_t bits, int mantissa) {
  const int bias = mantissa == 3 ? 7 : 15, exponent = static_cast<int>(bits >> mantissa & (0x7fu >> mantissa)),
            rest = static_cast<int>(bits & ((1u << mantissa) - 1)), sign = bits >> 7 ? -1 : 1;
  if (mantissa == 3 ? (bits & 0x7f) == 0x7f : exponent == 31 && rest > 0) return NAN;
  if (mantissa == 2 && exponent == 31) return sign * INFINITY;
  return sign * std::ldexp(exponent == 0 ? rest : (1 << mantissa) + rest, std::max(exponent, 1) - bias - mantissa);
}

using Value = double (*)(uint32_t);

// The nearest of all finite values of a type of 16 bits, found by trying each; among equals the even one. From some
// value on it is infinity.
uint32_t nearest(uint32_t float_bits, Value value_of, uint32_t infinity, double first_infinite) {
  const double value = std::bit_cast<float>(float_bits);
  const uint32_t sign = float_bits >> 31 << 15;
  if (std::isnan(value)) return 0x7fff;
  if (std::fabs(value) >= first_infinite) return sign | infinity;
  uint32_t best = 0;
  for (uint32_t bits = 1; bits < infinity; ++bits) {
    const double closer = std::fabs(value_of(best) - std::fabs(value)) - std::fabs(value_of(bits) - std::fabs(value));
    if (closer > 0 || (closer == 0 && bits % 2 == 0)) best = bits;
  }
  return sign | best;
}
uint32_t nearest_half(uint32_t float_bits) {
  return nearest(float_bits, half_value, 0x7c00, 65520.0);
}
uint32_t nearest_bfloat(uint32_t float_bits) {
  return nearest(float_bits, bfloat_value, 0x7f80, 0x1.ffp127);
}

// Of two f16 each; a difference in f32 is rounded as the exact one is.
uint32_t differences_of_halves(const uint32_t* in) {
  const auto of = [](uint32_t a, uint32_t b) {
    return nearest_half(std::bit_cast<uint32_t>(static_cast<float>(half_value(a & 0xffff) - half_value(b & 0xffff))));
  };
  return of(in[0], in[1]) | of(in[0] >> 16, in[1] >> 16) << 16;
}

// An f32 that bf16 are apart is rounded, as the exact difference is: it has more than twice their bits.
uint32_t differences_of_bf16(const uint32_t* in) {
  const auto of = [](uint32_t a, uint32_t b) {
    return nearest_bfloat(
        std::bit_cast<uint32_t>(static_cast<float>(bfloat_value(a & 0xffff) - bfloat_value(b & 0xffff))));
  };
  return of(in[0], in[1]) | of(in[0] >> 16, in[1] >> 16) << 16;
}

// The same of 8 bits, whose largest number is as far as it goes.
double e4m3_value(uint32_t bits) {
  return value_of_8(bits, 3);
}
double s8_value(uint32_t bits) {
  return static_cast<int8_t>(bits);
}
uint32_t nearest_of_8(uint32_t float_bits, int mantissa) {
  const double value = std::bit_cast<float>(float_bits), magnitude = std::min(std::fabs(value), 1e6);
  if (std::isnan(value)) return 0x7f;
  uint32_t best = 0;
  for (uint32_t bits = 1; bits < 0x7f && std::isfinite(value_of_8(bits, mantissa)); ++bits) {
    const double own = std::fabs(value_of_8(bits, mantissa) - magnitude),
                 its = std::fabs(value_of_8(best, mantissa) - magnitude);
    if (own < its || (own == its && bits % 2 == 0)) best = bits;
  }
  return (float_bits >> 31 << 7) | best;
}

// in[4 lane + m]: lane's register of matrix m, whose rows are four lanes each.
Words stored_matrices(const Words& in) {
  Words out(128);
  for (size_t m = 0; m < 4; ++m) {
    for (size_t lane = 0; lane < 32; ++lane) out[(8 * m + lane / 4) * 5 % 32 * 4 + lane % 4] = in[4 * lane + m];
  }
  return out;
}

// The same with columns for rows: two lanes' halves share a word.
Words stored_columns(const Words& in) {
  Words out(128);
  for (size_t m = 0; m < 4; ++m) {
    for (size_t row = 0; row < 8; ++row) {
      for (size_t column = 0; column < 8; ++column) {
        const uint32_t element = in[4 * (4 * row + column / 2) + m] >> (16 * (column % 2)) & 0xffff;
        out[(8 * m + column) * 5 % 32 * 4 + row / 2] |= element << (16 * (row % 2));
      }
    }
  }
  return out;
}

Words matrix_product(const Words& in, Value value = half_value) {
  Words out;
  for (size_t row = 0; row < 16; ++row) {
    for (size_t column = 0; column < 8; ++column) {
      double sum = static_cast<int32_t>(in[384 + row * 8 + column]);
      for (size_t k = 0; k < 16; ++k) sum += value(in[row * 16 + k]) * value(in[256 + k * 8 + column]);
      out.push_back(static_cast<uint32_t>(static_cast<int32_t>(sum)));
    }
  }
  return out;
}

Words product_and_c(const Words& in, Value value = half_value) {
  Words out = matrix_product(in, value);
  out.insert(out.end(), in.begin() + 384, in.end());
  return out;
}

Words as_integers(const Words& floats) {
  Words out;
  for (const uint32_t bits : floats)
    out.push_back(static_cast<uint32_t>(static_cast<int32_t>(std::bit_cast<float>(bits))));
  return out;
}

Words half_integers(const Words& halves) {
  Words out;
  for (const uint32_t bits : halves) out.push_back(static_cast<uint32_t>(static_cast<int32_t>(half_value(bits))));
  return out;
}

Words transposed(const Words& matrix) {
  Words out;
  for (size_t i = 0; i < 256; ++i) out.push_back(matrix[i % 16 * 16 + i / 16]);
  return out;
}

// The 16 columns of D, and 8 that the store must leave alone.
Words padded(const Words& matrix) {
  Words out;
  for (size_t i = 0; i < matrix.size(); ++i) {
    out.push_back(matrix[i]);
    if (i % 16 == 15) out.insert(out.end(), 8, 0xdeadbeef);
  }
  return out;
}

Words halves(const Words& in) {
  Words out;
  for (const uint32_t word : in) {
    out.push_back(word & 0xffff);
    out.push_back(word >> 16);
  }
  return out;
}

Words wmma_products(const Words& in) {
  const Words all = halves(in);
  const auto b = all.begin() + 256;
  const Words A(all.begin(), b), B(b, b + 256);
  Words out;
  for (const Words& factor : {B, transposed(B)}) {
    for (size_t i = 0; i < 256; ++i) {
      double sum = std::bit_cast<float>(in[256 + i]);
      for (size_t k = 0; k < 16; ++k) sum += half_value(A[i / 16 * 16 + k]) * half_value(factor[k * 16 + i % 16]);
      out.push_back(static_cast<uint32_t>(static_cast<int32_t>(sum)));
    }
  }
  return out;
}

Words packed_pairs(const Words& low_halves) {
  Words out;
  for (size_t i = 0; i < low_halves.size(); i += 2) out.push_back(low_halves[i] | low_halves[i + 1] << 16);
  return out;
}

// A box of 64 x 12 x 2 halves from (x, y, z) on, swizzled, of a tensor whose rows are 128 halves, 64 of each of two planes.
Words box(const Words& in, int x, int y, int z) {
  Words halves(2 * 12 * 64);
  for (int plane = 0; plane < 2; ++plane) {
    for (int row = 0; row < 12; ++row) {
      for (int column = 0; column < 64; ++column) {
        const int r = y + row, c = x + column, p = z + plane;
        if (r < 0 || r >= 20 || c < 0 || c >= 64 || p < 0 || p >= 2) continue;
        const int place = plane * 12 + row, from = r * 128 + p * 64 + c;
        halves[static_cast<size_t>(place * 64 + (column / 8 ^ place % 8) * 8 + column % 8)] =
            in[static_cast<size_t>(from / 2)] >> (from % 2 * 16) & 0xffff;
      }
    }
  }
  return packed_pairs(halves);
}

Words four_boxes(const Words& in) {
  Words out;
  for (const auto& [x, y, z] : {std::array{0, 3, 0}, {24, 13, 0}, {-8, -5, 0}, {0, 4, 1}}) {
    const Words words = box(in, x, y, z);
    out.insert(out.end(), words.begin(), words.end());
  }
  return out;
}

Words boxes_in_phases(const Words& in) {
  Words out;
  for (uint32_t phase = 0; phase < 3; ++phase) {
    const Words words = box(in, 0, static_cast<int>(4 * phase), 0);
    for (size_t thread = 0; thread < 64; ++thread) out.push_back(thread == 0 ? phase : words[12 * thread]);
  }
  return out;
}

Words exchanged_boxes(const Words& in) {
  Words out;
  for (const int y : {8, 0}) {
    const Words words = box(in, 0, y, 0);
    out.insert(out.end(), words.begin(), words.begin() + 128);
  }
  return out;
}

// A box of 64 x 8 x 2 x 1 halves from (x, y, 0, head) on, swizzled, of a tensor of two heads of ten rows of 128 halves.
Words box_4d(const Words& in, int x, int y, int head) {
  Words halves(2 * 8 * 64);
  for (int place = 0; place < 16; ++place) {
    for (int column = 0; column < 64; ++column) {
      const int r = y + place % 8, c = x + column, from = (head * 10 + r) * 128 + place / 8 * 64 + c;
      if (r >= 10 || c >= 64) continue;
      halves[static_cast<size_t>(place * 64 + (column / 8 ^ place % 8) * 8 + column % 8)] =
          in[static_cast<size_t>(from / 2)] >> (from % 2 * 16) & 0xffff;
    }
  }
  return packed_pairs(halves);
}

Words two_boxes_4d(const Words& in, const std::array<int, 3>& first, const std::array<int, 3>& second) {
  Words out = box_4d(in, first[0], first[1], first[2]);
  const Words other = box_4d(in, second[0], second[1], second[2]);
  out.insert(out.end(), other.begin(), other.end());
  return out;
}

Words multicast_boxes(const Words& in) {
  Words out = two_boxes_4d(in, {0, 1, 0}, {0, 1, 1});
  const Words first = out;
  out.insert(out.end(), first.begin(), first.end());
  return out;
}

// Boxes of halves from `first` on, as they are counted in shared memory, on their way to rows `y` and following of a head.
struct StoredBox {
  uint32_t first;
  size_t y, head;
};
Words stored_boxes(const std::vector<StoredBox>& boxes) {
  Words all(20 * 128);
  for (size_t i = 0; i < all.size(); ++i) all[i] = i % 2 == 0 ? 0xbeef : 0xdead;
  for (const StoredBox& box : boxes) {
    for (size_t place = 0; place < 16; ++place) {
      const size_t row = box.y + place % 8;
      if (row >= 10) continue;
      for (size_t column = 0; column < 64; ++column) {
        all[(box.head * 10 + row) * 128 + place / 8 * 64 + column] =
            box.first + static_cast<uint32_t>(place * 64 + (column / 8 ^ place % 8) * 8 + column % 8);
      }
    }
  }
  return packed_pairs(all);
}
Words two_groups_of_boxes(const Words&) {
  return stored_boxes({{1, 0, 0}, {0x1001, 8, 0}, {0x2001, 0, 1}});
}
Words box_and_one_more(const Words&) {
  Words out = stored_boxes({{1, 0, 0}});
  for (size_t i = 0; i < 32; ++i) out[i] += 0x10001;
  return out;
}

// D[row][column] over the slices of k from `first` on. B lies column by column, or row by row.
double wgmma_element(const Words& in, size_t n, bool by_rows, size_t row, size_t column, size_t first, size_t slices,
                     Value value = half_value) {
  const size_t in_a_word = value == e4m3_value || value == s8_value ? 4 : 2, bits = 32 / in_a_word,
               slice = 8 * in_a_word, k_end = 4 * slice;
  const auto element = [&](size_t i) {
    return value(in[i / in_a_word] >> (i % in_a_word * bits) & ((1u << bits) - 1));
  };
  double sum = 0;
  for (size_t k = slice * first; k < slice * (first + slices); ++k)
    sum += element(row * k_end + k) * element(64 * k_end + (by_rows ? k * n + column : column * k_end + k));
  return sum;
}

Words wgmma_tile(const Words& in, bool by_rows, size_t first = 0, size_t slices = 4, Value value = half_value) {
  Words out;
  for (size_t i = 0; i < 4096; ++i)
    out.push_back(static_cast<uint32_t>(
        static_cast<int32_t>(wgmma_element(in, 64, by_rows, i / 64, i % 64, first, slices, value))));
  return out;
}

// FragmentC: thread t of a warpgroup has rows t / 32 * 16 + t % 32 / 4 and 8 below, and two of every eight columns.
Words wgmma_sums(const Words& in, size_t n, bool by_rows, Value value = half_value) {
  Words out;
  for (size_t thread = 0; thread < 128; ++thread) {
    for (size_t half = 0; half < 2; ++half) {
      const size_t row = thread / 32 * 16 + thread % 32 / 4 + half * 8;
      uint32_t sum = 0;
      for (size_t column = 0; column < n; ++column) {
        if (column % 8 / 2 != thread % 4) continue;
        const auto element = static_cast<int32_t>(wgmma_element(in, n, by_rows, row, column, 0, 4, value));
        sum += static_cast<uint32_t>(element) * static_cast<uint32_t>(column + 1);
      }
      out.push_back(sum);
    }
  }
  return out;
}

Words fenced_products(const Words& in) {
  Words out;
  for (size_t i = 0; i < 4096; ++i) {
    const size_t row = i / 64, column = i % 64;
    const size_t thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
    const double first = static_cast<double>(thread) + wgmma_element(in, 64, false, row, column, 0, 1);
    out.push_back(
        static_cast<uint32_t>(static_cast<int32_t>(2 * first + wgmma_element(in, 64, false, row, column, 1, 1))));
  }
  return out;
}

Words grouped_products(const Words& in) {
  Words out = wgmma_tile(in, false, 0, 1);
  const Words second = wgmma_tile(in, false, 1, 2);
  out.insert(out.end(), second.begin(), second.end());
  return out;
}

// The fields of a descriptor, in units of 16 bytes: address, 14 bits from 0; distance of panels, from 16; of eight rows,
// from 32, which is 1024 bytes; 128-byte swizzle, 1 from 62.
Words descriptors(uint64_t address, uint64_t panel) {
  const uint64_t bits = address / 16 + (panel / 16 << 16) + (uint64_t{64} << 32) + (uint64_t{1} << 62);
  return {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)};
}

Words descriptor_pairs(const Words& in, bool advanced) {
  Words out;
  for (size_t i = 0; i < in.size(); i += 2) {
    // Going on is adding to the address; what leaves its 14 bits would be an address that no block has.
    const Words one = advanced ? descriptors(in[i] + in[i + 1], 8192) : descriptors(in[i], in[i + 1]);
    out.insert(out.end(), one.begin(), one.end());
  }
  return out;
}

Words registers_moved(const Words& in) {
  Words out = in;
  for (size_t thread = 128; thread < 384; ++thread) ++out[thread];
  return out;
}

Words ranks(const Words&) {
  Words out;
  for (uint32_t block = 0; block < 6; ++block) {
    for (uint32_t thread = 0; thread < 32; ++thread) out.push_back(block % 2 * 100 + thread);
  }
  return out;
}

Words cluster_indices(const Words&) {
  Words out;
  for (uint32_t block = 0; block < 8; ++block) {
    for (uint32_t thread = 0; thread < 32; ++thread)
      out.push_back(((block / 4 * 10 + block % 4) * 10 + block % 4) * 1000 + 400 + thread);
  }
  return out;
}

Words shuffled(const Words& in) {
  Words out;
  for (const size_t mask : {1, 2, 4, 8, 16, 31}) {
    for (size_t lane = 0; lane < 32; ++lane) out.push_back(in[lane ^ mask]);
  }
  return out;
}

Words asked(const Words& in) {
  Words out;
  for (size_t i = 0; i < 4; ++i) {
    for (size_t lane = 0; lane < 32; ++lane)
      out.push_back(in[(i == 0 ? 0 : i == 1 ? 31 : i == 2 ? lane * 7 + 3 : lane + 27) % 32]);
  }
  return out;
}

Words votes(const Words& in) {
  Words out;
  for (auto vote = in.begin(); vote != in.end(); vote += 32)
    out.insert(out.end(), 32, std::any_of(vote, vote + 32, [](uint32_t word) { return word != 0; }));
  return out;
}

Words launch_indices(const Words&) {
  Words out;
  for (uint32_t block = 0; block < 6; ++block) {
    for (uint32_t thread = 0; thread < 32; ++thread) {
      out.push_back((block / 3 * 1000 + block % 3 * 100 + thread) * 10000 + 2332);
    }
  }
  return out;
}

// Numbers, turns and sum, a gap, and what each number has found of the sum.
Words sums_in_turn(const Words& in) {
  Words out{4, 4, 0, 0};
  for (const uint32_t word : in) {
    out.push_back(out[2]);
    out[2] += word;
  }
  return out;
}

// A counter that began above its limit, the words that blocks have left, and their sums.
Words sums_of_last_block(const Words& in) {
  Words out(64, 0xdeadbeef), sums(64);
  out[0] = 5;
  out.insert(out.end(), in.begin(), in.end());
  for (size_t i = 0; i < in.size(); ++i) sums[i % 64] += in[i];
  out.insert(out.end(), sums.begin(), sums.end());
  return out;
}

// Argument and result side by side.
Words with_results(const Words& in, size_t arguments, const std::function<uint32_t(const uint32_t*)>& result) {
  Words out;
  for (size_t i = 0; i < in.size(); i += arguments) {
    out.insert(out.end(), in.begin() + static_cast<std::ptrdiff_t>(i),
               in.begin() + static_cast<std::ptrdiff_t>(i + arguments));
    out.push_back(result(&in[i]));
  }
  return out;
}

Words packed_of_8(const Words& in, int mantissa) {
  return with_results(
      in, 2, [&](const uint32_t* x) { return nearest_of_8(x[0], mantissa) | nearest_of_8(x[1], mantissa) << 8; });
}
Words unpacked_of_8(const Words& in, int mantissa) {
  const auto half = [&](uint32_t bits) {
    return nearest_half(std::bit_cast<uint32_t>(static_cast<float>(value_of_8(bits, mantissa))));
  };
  return with_results(in, 1, [&](const uint32_t* x) { return half(*x & 0xff) | half(*x >> 8) << 16; });
}

uint32_t selected_bytes(const uint32_t* x) {
  std::array<uint32_t, 8> bytes;
  for (size_t i = 0; i < 8; ++i) bytes[i] = x[i / 4] >> (i % 4 * 8) & 0xff;
  uint32_t result = 0;
  for (size_t i = 0; i < 4; ++i) {
    const uint32_t digit = x[2] >> (4 * i) % 16 & 15, byte = bytes[digit % 8];
    result |= (digit < 8 ? byte : byte >= 128 ? 255u : 0u) << (8 * i);
  }
  return result;
}

Words functions_of_bits(const Words& in) {
  Words out(6);
  for (uint32_t bit = 0; bit < 32; ++bit) {
    const uint32_t a = in[0] >> bit & 1, b = in[1] >> bit & 1, c = in[2] >> bit & 1, ones = a + b + c;
    const uint32_t results[] = {a, b, c, ones % 2, ones / 2, ones == 0};
    for (size_t i = 0; i < 6; ++i) out[i] |= results[i] << bit;
  }
  return out;
}

// What lanes of four blocks have stored in the next block but `distance` - 1.
Words stored_in_blocks(const Words& in, size_t distance, size_t phases) {
  Words out(in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    const size_t rank = i / 32 / phases, phase = i / 32 % phases, lane = i % 32;
    out[((rank + distance) % 4 * phases + phase) * 32 + lane * 5 % 32] = in[i];
  }
  return out;
}

Words read_by_dependents(const Words& in) {
  Words out = in, read = rotated(in, in.size(), 37);
  out.insert(out.end(), read.begin(), read.end());
  return out;
}

uint32_t exp2_bits(const uint32_t* argument) {
  const double exact = std::exp2(static_cast<double>(std::bit_cast<float>(*argument)));
  return std::bit_cast<uint32_t>(exact < 0x1p-126 ? 0.0f : static_cast<float>(exact));  // subnormals are flushed
}

uint32_t log2_bits(const uint32_t* argument) {
  const float x = std::bit_cast<float>(*argument);
  return std::bit_cast<uint32_t>(static_cast<float>(std::log2(x < 0x1p-126f ? 0.0 : static_cast<double>(x))));
}

uint32_t inverse_bits(const uint32_t* argument) {
  const float x = std::bit_cast<float>(*argument);
  const double exact = 1 / (x < 0x1p-126f ? 0.0 : static_cast<double>(x));
  return std::bit_cast<uint32_t>(exact < 0x1p-126 ? 0.0f : static_cast<float>(exact));
}

Words same(const Words& in) {
  return in;
}

using Expectation = std::function<Words(const Words&)>;

const std::map<std::string_view, Expectation>& expectations() {
  static const std::map<std::string_view, Expectation> all = {
      {"smem_base", [](const Words&) { return Words(64, 0); }},
      {"smem_name", same},
      {"ld_shared_b32", [](const Words& in) { return chunks_gathered(in, 1); }},
      {"ld_shared_v2", [](const Words& in) { return chunks_gathered(in, 2); }},
      {"ld_shared_v4", [](const Words& in) { return chunks_gathered(in, 4); }},
      {"st_shared_b32", [](const Words& in) { return chunks_scattered(in, 1); }},
      {"st_shared_v2", [](const Words& in) { return chunks_scattered(in, 2); }},
      {"st_shared_v4", [](const Words& in) { return chunks_scattered(in, 4); }},
      {"ld_global_f16", [](const Words& in) { return chunks_gathered(halves(in), 1); }},
      {"ld_global_bf16", [](const Words& in) { return chunks_gathered(halves(in), 1); }},
      {"ld_global_b32", [](const Words& in) { return chunks_gathered(in, 1); }},
      {"ld_global_f32", [](const Words& in) { return chunks_gathered(in, 1); }},
      {"ld_global_s32", halved},
      {"ld_global_v4", [](const Words& in) { return chunks_gathered(in, 4); }},
      {"st_global_f16", [](const Words& in) { return packed_pairs(chunks_scattered(in, 1)); }},
      {"st_global_bf16", [](const Words& in) { return packed_pairs(chunks_scattered(in, 1)); }},
      {"st_global_b32", [](const Words& in) { return chunks_scattered(in, 1); }},
      {"st_global_f32", [](const Words& in) { return chunks_scattered(in, 1); }},
      {"st_global_v4", [](const Words& in) { return chunks_scattered(in, 4); }},
      {"red_global_add_f32", sums_of_warps},
      {"atom_global_add_u32", sums_in_turn},
      {"atom_global_inc_u32", [](const Words&) { return Words{19, 18, 18, 18, 18, 18, 18, 1, 127 % 7}; }},
      {"fence_acq_rel_gpu", sums_of_last_block},
      {"createpolicy_evict_first", [](const Words& in) { return chunks_gathered(in, 4); }},
      {"createpolicy_evict_last", [](const Words& in) { return chunks_gathered(in, 4); }},
      {"cp_async_bulk.policy", swapped_halves},
      {"cp_async_bulk_tensor_4d.policy",
       [](const Words& in) {
         return two_boxes_4d(in, {0, 1, 1}, {8, 5, 0});
       }},
      {"launch_dependent", read_by_dependents},
      {"griddepcontrol_launch_dependents", read_by_dependents},
      {"griddepcontrol_wait", read_by_dependents},
      {"mapa", [](const Words& in) { return stored_in_blocks(in, 1, 1); }},
      {"st_shared_cluster_b32", [](const Words& in) { return stored_in_blocks(in, 3, 1); }},
      {"st_async_b32", [](const Words& in) { return stored_in_blocks(in, 1, 2); }},
      {"pack_e4m3x2", [](const Words& in) { return packed_of_8(in, 3); }},
      {"pack_e5m2x2", [](const Words& in) { return packed_of_8(in, 2); }},
      {"unpack_e4m3x2", [](const Words& in) { return unpacked_of_8(in, 3); }},
      {"unpack_e5m2x2", [](const Words& in) { return unpacked_of_8(in, 2); }},
      {"sub_f16x2", [](const Words& in) { return with_results(in, 2, differences_of_halves); }},
      {"sub_bf16x2", [](const Words& in) { return with_results(in, 2, differences_of_bf16); }},
      {"prmt_b32", [](const Words& in) { return with_results(in, 3, selected_bytes); }},
      {"lop3_b32", functions_of_bits},
      {"red_release_add_u32", sums_in_turn},
      {"ld_acquire_wait_u32", sums_in_turn},
      {"cp_async_16.zero_fill", zero_filled},
      {"cp_async_bulk", swapped_halves},
      {"cp_async_bulk_store", halves_apart},
      {"cp_reduce_async_bulk_add_f32", sums_of_bulk},
      {"cp_async_16", [](const Words& in) { return chunks_scattered(in, 4); }},
      {"cp_async_4",
       [](const Words& in) {
         Words kept = in;
         for (size_t lane = 1; lane < 32; lane += 2) kept[lane] = 0;
         return chunks_scattered(kept, 1);
       }},
      {"cp_async_commit", same},
      {"cp_async_wait", same},
      {"__syncthreads", [](const Words& in) { return exchanged(in, 37); }},
      {"__syncwarp", [](const Words& in) { return exchanged(in, 13); }},
      {"named_barrier_sync", [](const Words& in) { return rotated(in, 64, 37); }},
      {"named_barrier_arrive", [](const Words& in) { return rotated(in, 32, 13); }},
      {"mbarrier_init", behind_counts},
      {"mbarrier_inval", behind_counts},
      {"mbarrier_arrive", [](const Words& in) { return rotated(in, 32, 13); }},
      {"cp_async_mbarrier_arrive_noinc", halves_scattered},
      {"mbarrier_wait_parity", [](const Words& in) { return rotated(in, 64, 37); }},
      {"cp_async_bulk_tensor_3d", four_boxes},
      {"mbarrier_arrive_expect_tx", boxes_in_phases},
      {"fence_mbarrier_init", exchanged_boxes},
      {"fence_proxy_async_shared", [](const Words& in) { return box(in, 0, 8, 0); }},
      {"fence_proxy_async", [](const Words& in) { return box(in, 0, 8, 0); }},
      {"cp_async_bulk_tensor_4d",
       [](const Words& in) {
         return two_boxes_4d(in, {0, 1, 1}, {8, 5, 0});
       }},
      {"cp_async_bulk_tensor_4d.e4m3",
       [](const Words& in) {
         return two_boxes_4d(in, {0, 1, 1}, {8, 5, 0});
       }},
      {"cp_async_bulk_tensor_4d_multicast", multicast_boxes},
      {"cp_async_bulk_tensor_store_4d",
       [](const Words&) {
         return stored_boxes({{1, 5, 1}});
       }},
      {"cp_async_bulk_commit", two_groups_of_boxes},
      {"cp_async_bulk_wait_read", two_groups_of_boxes},
      {"cp_async_bulk_wait", box_and_one_more},
      {"cluster_rank", ranks},
      {"launch_clusters", cluster_indices},
      {"cluster_sync", same},
      {"mbarrier_arrive_remote", same},
      {"launch", launch_indices},
      {"shfl", asked},
      {"shfl_xor", shuffled},
      {"vote_any", votes},
      {"ldmatrix_x4", [](const Words&) { return matrix_fragments(4, false); }},
      {"ldmatrix_x2_trans", [](const Words&) { return matrix_fragments(2, true); }},
      {"ldmatrix_x4_trans", [](const Words&) { return matrix_fragments(4, true); }},
      {"stmatrix_x4", [](const Words& in) { return stored_matrices(in); }},
      {"stmatrix_x4_trans", [](const Words& in) { return stored_columns(in); }},
      {"elect_sync", [](const Words&) { return Words(64, 1); }},
      {"wgmma_descriptor", [](const Words& in) { return descriptor_pairs(in, false); }},
      {"wgmma_advance", [](const Words& in) { return descriptor_pairs(in, true); }},
      {"wgmma_fence", fenced_products},
      {"wgmma_commit", grouped_products},
      {"wgmma_wait", grouped_products},
      {"setmaxnreg_dec", registers_moved},
      {"setmaxnreg_inc", registers_moved},
      {"mma_m16n8k16", [](const Words& in) { return matrix_product(in); }},
      {"mma_m16n8k16.own_c", [](const Words& in) { return product_and_c(in); }},
      {"mma_m16n8k16_bf16", [](const Words& in) { return matrix_product(in, bfloat_value); }},
      {"mma_m16n8k16_bf16.own_c", [](const Words& in) { return product_and_c(in, bfloat_value); }},
      {"wmma_fill", [](const Words& in) { return Words(256, in[0]); }},
      {"wmma_load_a", [](const Words& in) { return half_integers(halves(in)); }},
      {"wmma_load_b_row", [](const Words& in) { return half_integers(halves(in)); }},
      {"wmma_load_b_col", [](const Words& in) { return transposed(half_integers(halves(in))); }},
      {"wmma_load_c", as_integers},
      {"wmma_store_d", padded},
      {"wmma_mma", wmma_products},
      {"pack_f16x2",
       [](const Words& in) {
         return with_results(in, 2, [](const uint32_t* x) { return nearest_half(x[0]) | nearest_half(x[1]) << 16; });
       }},
      {"pack_bf16x2",
       [](const Words& in) {
         return with_results(in, 2,
                             [](const uint32_t* x) { return nearest_bfloat(x[0]) | nearest_bfloat(x[1]) << 16; });
       }},
      {"to_bf16",
       [](const Words& in) { return with_results(in, 1, [](const uint32_t* x) { return nearest_bfloat(*x); }); }},
      {"to_float.bf16",
       [](const Words& in) {
         return with_results(in, 1, [](const uint32_t* x) {
           const double value = bfloat_value(*x);
           return std::isnan(value) ? *x << 16 : std::bit_cast<uint32_t>(static_cast<float>(value));
         });
       }},
      {"to_f16",
       [](const Words& in) { return with_results(in, 1, [](const uint32_t* x) { return nearest_half(*x); }); }},
      {"to_float",
       [](const Words& in) {
         return with_results(in, 1, [](const uint32_t* x) {
           const double value = half_value(*x);
           return std::isnan(value) ? 0x7fffffffu : std::bit_cast<uint32_t>(static_cast<float>(value));
         });
       }},
      {"ex2_approx", [](const Words& in) { return with_results(in, 1, exp2_bits); }},
      {"lg2_approx", [](const Words& in) { return with_results(in, 1, log2_bits); }},
      {"rcp_approx", [](const Words& in) { return with_results(in, 1, inverse_bits); }},
      {"launch.f32_arithmetic",
       [](const Words& in) {
         Words out;
         for (size_t i = 0; i < in.size(); i += 2) {
           const double a = std::bit_cast<float>(in[i]), b = std::bit_cast<float>(in[i + 1]);
           out.insert(out.end(), {in[i], in[i + 1]});
           // In double the sum, the product and the quotient of two f32 lose nothing that a second rounding could miss.
           for (const double value : {std::fmax(a, b), std::fmin(a, b), a + b, a * b, a / b})
             out.push_back(std::bit_cast<uint32_t>(static_cast<float>(value)));
         }
         return out;
       }},
      {"tanh_approx",
       [](const Words& in) {
         return with_results(in, 1, [](const uint32_t* x) {
           return std::bit_cast<uint32_t>(static_cast<float>(std::tanh(std::bit_cast<float>(*x))));
         });
       }},
      {"saturate",
       [](const Words& in) {
         return with_results(in, 1, [](const uint32_t* x) {
           const float value = std::bit_cast<float>(*x);
           return std::bit_cast<uint32_t>(std::isnan(value) ? 0.0f : std::clamp(value, 0.0f, 1.0f) + 0.0f);
         });
       }},
      {"max_nan",
       [](const Words& in) {
         return with_results(in, 2, [](const uint32_t* x) {
           const float a = std::bit_cast<float>(x[0]), b = std::bit_cast<float>(x[1]);
           return std::bit_cast<uint32_t>(std::isnan(a) || std::isnan(b) ? NAN : std::fmax(a, b));
         });
       }},
      {"max3_s32",
       [](const Words& in) {
         return with_results(in, 3, [](const uint32_t* x) {
           std::array<int32_t, 3> values;
           std::copy_n(x, 3, values.begin());
           std::sort(values.begin(), values.end());
           return static_cast<uint32_t>(values[2]);
         });
       }},
  };
  return all;
}

// Of a product of warpgroups, as its name has it, wgmma_rs_bf16.n128_trans_b, or of another primitive.
Expectation expectation_of(std::string_view name) {
  if (!name.starts_with("wgmma_ss") && !name.starts_with("wgmma_rs")) return expectations().at(name);
  const auto has = [&](const char* word) { return name.find(word) != std::string_view::npos; };
  const size_t n = has(".n") ? std::stoul(std::string(name.substr(name.find(".n") + 2))) : 64;
  const Value value = has("bf16") ? bfloat_value : has("e4m3") ? e4m3_value : has("s8") ? s8_value : half_value;
  return [=, by_rows = has("trans_b")](const Words& in) {
    return n == 64 ? wgmma_tile(in, by_rows, 0, 4, value) : wgmma_sums(in, n, by_rows, value);
  };
}

// Primitives that no GPU has answered for yet. Whoever records their fixtures takes them off this list.
const std::set<std::string> AWAITING_FIXTURE = {};

std::string read_text(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// What common/ offers a kernel: the functions of common/ptx/, and the built-in barriers that gpu.cuh names.
std::set<std::string> offered_primitives() {
  std::set<std::string> names;
  const auto collect = [&](const std::string& text, const std::regex& pattern) {
    for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match) {
      names.insert((*match)[1]);
    }
  };
  for (const auto& entry : std::filesystem::directory_iterator(SOURCE / "common/ptx")) {
    const std::string text = read_text(entry.path());
    collect(text, std::regex(R"(__device__ __forceinline__ \w+ (\w+)\()"));
    collect(text, std::regex(R"(\nvoid (launch\w*)\()"));
  }
  collect(read_text(SOURCE / "common/gpu.cuh"), std::regex(R"((__sync\w+)\(\))"));
  return names;
}

}  // namespace

TEST_CASE("every primitive has a conformance case, an expectation and a fixture") {
  const auto offered = offered_primitives();
  REQUIRE(offered.size() >= 40);
  std::set<std::string> tested, primitives, recorded;
  for (const Case& test : all_cases()) {
    tested.insert(std::string(test.primitive));
    primitives.emplace(test.primitive.substr(0, test.primitive.find('.')));  // without an overload's ".what"
  }
  std::error_code no_directory;
  for (const auto& entry : std::filesystem::directory_iterator(FIXTURES, no_directory))
    if (entry.is_regular_file()) recorded.insert(entry.path().stem());
  CHECK(primitives == offered);
  INFO("on a GPU: conformance_record writes the fixtures; then AWAITING_FIXTURE must not name them any more");
  for (const std::string& primitive : AWAITING_FIXTURE) CHECK(recorded.insert(primitive).second);
  CHECK(recorded == tested);
}

TEST_CASE("an emulated primitive gives what its definition says") {
  for (const Case& test : all_cases()) {
    DYNAMIC_SECTION(test.primitive) {
      const Answer answer = run_on_emulator(test);
      CHECK(answer.reports == "");
      CHECK(ladder::conformance::difference(test, expectation_of(test.primitive)(test.input), answer.words) == "");
    }
  }
}

// CTest shows this one as skipped as long as it has something to say.
TEST_CASE("primitives without a fixture", "[awaiting]") {
  for (const std::string& primitive : AWAITING_FIXTURE) WARN(primitive << ": no fixture recorded yet");
}

TEST_CASE("an emulated primitive gives what a GPU has given") {
  for (const Case& test : all_cases()) {
    if (AWAITING_FIXTURE.contains(std::string(test.primitive))) continue;
    DYNAMIC_SECTION(test.primitive) {
      const auto recorded =
          ladder::conformance::read_fixture(ladder::conformance::fixture_path(FIXTURES, test.primitive));
      INFO((recorded ? "" : recorded.error().message));
      REQUIRE(recorded);
      CHECK(ladder::conformance::difference(test, *recorded, run_on_emulator(test).words) == "");
    }
  }
}

TEST_CASE("a fixture reads back as it was written, and a difference is seen") {
  Case test{.primitive = "round_trip", .what = "nothing", .layout = "word by word", .kernel = nullptr};
  const Words words = {0, 0xffffffff, 0x3f800000, 4, 5, 6, 7, 8, 9};
  const auto directory = std::filesystem::temp_directory_path() / "flash-ladder-conformance";
  const auto file = ladder::conformance::fixture_path(directory, test.primitive);
  for (const bool is_shared : {false, true}) {
    REQUIRE(ladder::conformance::write_fixture(directory, test, words, {"a GPU", "13.0", "2026-11-21"}, is_shared));
    CHECK(std::filesystem::exists(ladder::conformance::shared_path(directory, words)) == is_shared);
    const auto read = ladder::conformance::read_fixture(file);
    REQUIRE(read);
    CHECK(*read == words);
    CHECK(ladder::conformance::difference(test, words, *read) == "");
  }

  Words other = words;
  other[2] += 2;
  CHECK(ladder::conformance::difference(test, words, other) != "");
  test.max_ulp = 2;
  CHECK(ladder::conformance::difference(test, words, other) == "");
  other[2] += 1;
  CHECK(ladder::conformance::difference(test, words, other) != "");
  other.pop_back();
  CHECK(ladder::conformance::difference(test, words, other) != "");

  std::ofstream(file) << "0000000g\n";
  CHECK_FALSE(ladder::conformance::read_fixture(file));
  std::filesystem::remove_all(directory);
  CHECK_FALSE(ladder::conformance::read_fixture(file));
}
