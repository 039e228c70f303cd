// How a tensor core adds. Every experiment is one dot product, D = C + A[0] B[0] + ... + A[K-1] B[K-1], with terms chosen so that
// what an instruction keeps of them, what it cuts, and what it adds together show in the bits of D. Prints CSV, one row each:
//   experiment   which question, see below; s: so many binary places is the small term below the big one
//   c, terms     bits of C; k:a*b, bits of A[k] and B[k], for runs of equal terms, without those of +0 * +0
//   times        instructions one after another, each with the sum of the one before as its C
//   result       bits of D, and its value; alike: 1 if all rows and columns, which have the same terms, have the same answer
// An argument: how many sums of random terms of either kind, 40 without.
// Exit code: 0 done; 1 an error of CUDA; 77 no GPU of sm_80 or newer.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "common/ptx/memory.cuh"
#include "common/ptx/tensor_map.cuh"
#include "common/ptx/wgmma.cuh"
#include "harness/evidence/card.cuh"

#ifndef LADDER_COMMIT
#define LADDER_COMMIT "unknown"
#endif

namespace {

// ---- the card's side -----------------------------------------------------------------------------------------------

// 32 bytes of A and of B: 32 terms of 8 bits or 16 of 16.
struct Terms {
  uint32_t a[8], b[8];
  float c;
  int times;
};

// mma.sync: all 16 rows are A, all 8 columns B. Word w of a row holds the elements of lane w % 4, w / 4 says of which half.
#define ADDER_MMA(NAME, SM, SHAPE_AND_TYPES)                                                        \
  struct NAME {                                                                                     \
    static constexpr int THREADS = 32, MIN_SM = SM, MAX_SM = 1000;                                  \
    static __device__ void add(float (&d)[1][4], const Terms& terms) {                              \
      needs_sm<SM>();                                                                               \
      const int w = threadIdx.x % 4;                                                                \
      for (int i = 0; i < terms.times; ++i)                                                         \
        asm volatile("mma.sync.aligned." SHAPE_AND_TYPES                                            \
                     " {%0, %1, %2, %3}, {%4, %4, %5, %5}, {%6, %7}, {%0, %1, %2, %3};"             \
                     : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3])                   \
                     : "r"(terms.a[w]), "r"(terms.a[w + 4]), "r"(terms.b[w]), "r"(terms.b[w + 4])); \
    }                                                                                               \
  }
ADDER_MMA(MmaF16, 80, "m16n8k16.row.col.f32.f16.f16.f32");
ADDER_MMA(MmaBf16, 80, "m16n8k16.row.col.f32.bf16.bf16.f32");
ADDER_MMA(MmaE4m3, 90, "m16n8k32.row.col.f32.e4m3.e4m3.f32");

// wgmma: 64 rows are A and 8 columns B, each the first 32 bytes of a row of 128 with the 128-byte swizzle.
#define ADDER_WGMMA(NAME, SHAPE_AND_TYPES, TRANSPOSED)                                                               \
  struct NAME {                                                                                                      \
    static constexpr int THREADS = 128, MIN_SM = 90, MAX_SM = 90;                                                    \
    static __device__ void add(float (&d)[1][4], const Terms& terms) {                                               \
      needs_sm_90a();                                                                                                \
      const uint32_t tiles = (smem_base() + 1023) / 1024 * 1024, row = threadIdx.x;                                  \
      for (int chunk = 0; chunk < 2 && row < 64 + 8; ++chunk) {                                                      \
        const uint32_t* const from = (row < 64 ? terms.a : terms.b) + chunk * 4;                                     \
        st_shared_v4(tiles + row * 128 + (chunk ^ row % 8) * 16, {from[0], from[1], from[2], from[3]});              \
      }                                                                                                              \
      fence_proxy_async();                                                                                           \
      __syncthreads();                                                                                               \
      wgmma_fence(d);                                                                                                \
      for (int i = 0; i < terms.times; ++i)                                                                          \
        asm volatile("wgmma.mma_async.sync.aligned." SHAPE_AND_TYPES " {%0, %1, %2, %3}, %4, %5, 1, 1, 1" TRANSPOSED \
                     ";"                                                                                             \
                     : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3])                                    \
                     : "l"(wgmma_descriptor(tiles)), "l"(wgmma_descriptor(tiles + 64 * 128)));                       \
      wgmma_commit();                                                                                                \
      wgmma_wait<0>(d);                                                                                              \
    }                                                                                                                \
  }
ADDER_WGMMA(WgmmaE4m3, "m64n8k32.f32.e4m3.e4m3", "");
ADDER_WGMMA(WgmmaE5m2, "m64n8k32.f32.e5m2.e5m2", "");
ADDER_WGMMA(WgmmaF16, "m64n8k16.f32.f16.f16", ", 0, 0");
ADDER_WGMMA(WgmmaBf16, "m64n8k16.f32.bf16.bf16", ", 0, 0");

// A block for each experiment; `sums` has four of each thread.
template <class Instruction>
__global__ void add(const Terms* terms, float4* sums) {
  const Terms own = terms[blockIdx.x];
  float d[1][4] = {{own.c, own.c, own.c, own.c}};
  Instruction::add(d, terms[blockIdx.x]);
  sums[blockIdx.x * Instruction::THREADS + threadIdx.x] = {d[0][0], d[0][1], d[0][2], d[0][3]};
}

// ---- experiments ---------------------------------------------------------------------------------------------------

struct Format {
  int exponent_bits, mantissa_bits, max_exponent;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int min_exponent() const { return 1 - bias(); }
  int bits() const { return 1 + exponent_bits + mantissa_bits; }
  int depth() const { return 256 / bits(); }
  // Of a number that the format has.
  uint32_t encode(double value) const {
    int exponent;
    std::frexp(value, &exponent);
    exponent = std::max(exponent - 1, min_exponent());
    const auto mantissa = static_cast<uint32_t>(std::ldexp(std::fabs(value), mantissa_bits - exponent));
    return uint32_t{std::signbit(value)} << (bits() - 1) |
           (((exponent + bias() - 1) << mantissa_bits) + mantissa) * (value != 0);
  }
  bool is_finite(uint32_t element) const {
    const uint32_t magnitude = element & ((1u << (bits() - 1)) - 1), exponent = magnitude >> mantissa_bits;
    return max_exponent > bias() ? magnitude != (1u << (bits() - 1)) - 1 : exponent != (1u << exponent_bits) - 1;
  }
};
constexpr Format E4M3{4, 3, 8}, E5M2{5, 2, 15}, F16{5, 10, 15}, BF16{8, 7, 127};

struct Experiment {
  const char* name;
  int s;
  Terms terms;
};

uint32_t element(const uint32_t (&words)[8], int k, int bits) {
  return words[k * bits / 32] >> k * bits % 32 & (1u << bits) - 1;
}

class Experiments {
 public:
  explicit Experiments(const Format& format, int random)
      : format_(format), depth_(format.depth()), big_(std::min(2 * format.max_exponent, 30)) {
    const int places = std::min(big_ - 2 * format.min_exponent(), 34);
    for (int s = 0; s <= places; ++s) small_beside_big(s);
    groups(places);
    for (const float c : {std::ldexp(2.f - 0x1p-23f, big_), -std::ldexp(2.f - 0x1p-23f, big_)}) {
      start("accumulator alone", 0, c);
      start("accumulator alone", 0, c).times = 2;
    }
    subnormals();
    specials();
    for (int i = 0; i < random; ++i) any_bits(i);
    for (int i = 0; i < random; ++i) close_exponents(i);
  }
  std::vector<Experiment> all;

 private:
  Terms& start(const char* name, int s, float c = 0) {
    all.push_back({name, s, {{}, {}, c, 1}});
    return all.back().terms;
  }
  void put_bits(int k, uint32_t a, uint32_t b) {
    const int bits = format_.bits(), word = k * bits / 32, at = k * bits % 32;
    all.back().terms.a[word] |= a << at;
    all.back().terms.b[word] |= b << at;
  }
  void put(int k, double a, double b) { put_bits(k, format_.encode(a), format_.encode(b)); }
  // value * 2^exponent, out of normal elements where the exponent is at least twice the smallest.
  void product(int k, double value, int exponent) {
    const int of_b = static_cast<int>(std::floor(exponent / 2.0));
    put(k, std::ldexp(value, exponent - of_b), std::ldexp(1, of_b));
  }
  void product(int first, int end, double value, int exponent) {
    for (int k = first; k < end; ++k) product(k, value, exponent);
  }

  // The small one is 1.75 * 2^(big - s), so that a last place shows whether the rest is cut, and to which side, or rounded.
  void small_beside_big(int s) {
    for (const double sign : {1., -1.}) {
      start("kept of a product", s);  // what is left once the big ones have cancelled
      product(0, 1, big_), product(1, -1, big_), product(2, sign * 1.75, big_ - s);
      start("kept of the accumulator", s, static_cast<float>(std::ldexp(sign * 1.75, big_ - s)));
      product(0, 1, big_), product(1, -1, big_);
      start("kept beside the accumulator", s, std::ldexp(1.f, big_));
      product(0, -1, big_), product(1, sign * 1.75, big_ - s);
      start("kept in the sum", s);  // nothing cancels
      product(0, 1, big_), product(1, sign * 1.75, big_ - s);
      start("added to the accumulator", s, std::ldexp(1.f, big_));
      product(0, sign * 1.75, big_ - s);
    }
    start("kept in a sum that carries", s);
    product(0, depth_ - 1, 1, big_), product(depth_ - 1, 1.75, big_ - s);
    start("many small products", s);  // one by one, or as a sum?
    product(0, 1, big_), product(1, -1, big_), product(2, depth_, 1, big_ - s);
    start("many beside the accumulator", s, std::ldexp(1.f, big_));
    product(0, depth_, 1, big_ - s);
    start("accumulator full of bits", s, std::ldexp(2.f - 0x1p-23f, big_ - s));
    product(0, 1, big_);
    // 1.75 * 1.75 = 3.0625: is its place that of 2, or is it that of the factors' exponents?
    start("a product above 2", s);
    put(0, std::ldexp(1.75, big_ / 2), std::ldexp(1.75, big_ / 2));
    put(1, -std::ldexp(1.75, big_ / 2), std::ldexp(1.75, big_ / 2));
    product(2, 1.75, big_ - s);
    // The same for a number whose mantissa is not normalised, 2^-m of the smallest exponent.
    const double subnormal = std::ldexp(1, format_.min_exponent() - format_.mantissa_bits);
    const double factor = std::ldexp(1, std::min(format_.max_exponent, 15));
    const int exponent = std::ilogb(subnormal * factor);
    if (exponent - s < 2 * format_.min_exponent()) return;
    start("a subnormal factor", s);
    put(0, subnormal, factor), put(1, -subnormal, factor), product(2, 1.75, exponent - s);
    start("a zero beside a large factor", s);
    put(0, 0, factor), product(1, 1.75, exponent - s);
  }

  // The big ones cancel where they meet: a product too small to stay beside them is lost in their group and stays in another.
  void groups(int places) {
    const int pairs[][2] = {
        {0, 1}, {0, depth_ / 2}, {0, depth_ - 1}, {depth_ / 2, depth_ / 2 + 1}, {depth_ - 2, depth_ - 1}};
    for (const auto& [plus, minus] : pairs) {
      for (int k = 0; k < depth_; ++k) {
        if (k == plus || k == minus) continue;
        start("added together", 100 * plus + minus);
        product(plus, 1, big_), product(minus, -1, big_), product(k, 1, big_ - places);
      }
    }
    for (const int minus : {0, depth_ - 1}) {
      for (int k = 0; k < depth_; ++k) {
        if (k == minus) continue;
        start("added together with the accumulator", minus, std::ldexp(1.f, big_));
        product(minus, -1, big_), product(k, 1, big_ - places);
      }
    }
  }

  void subnormals() {
    const double smallest = std::ldexp(1, format_.min_exponent() - format_.mantissa_bits);
    start("subnormals", 0), put(0, smallest, 1);
    start("subnormals", 1), put(0, smallest, smallest);
    start("subnormals", 2, 0x1p-149f);
    start("subnormals", 3, -0x1.fffffcp-127f);
    start("subnormals", 4, 0x1.8p-148f), put(0, smallest, smallest), put(1, -smallest, smallest);
    if (format_.exponent_bits < 8) return;
    for (int s = 0; s <= 30; ++s) {
      start("products of subnormal f32", s);
      put(0, std::ldexp(1.75, -70), std::ldexp(1.75, -50 - s));
      start("products of subnormal f32 cancel", s);  // 2^-120 and less
      product(0, 1, -120), product(1, -1, -120), product(2, 1.75, -120 - s);
    }
  }

  void specials() {
    const float nan = std::nanf("0x1234"), infinity = INFINITY;
    int s = 0;
    for (const float c : {-0.f, nan, -nan, infinity, -infinity}) start("special accumulator", s++, c);
    start("special accumulator", s++, -0.f);
    for (int k = 0; k < depth_; ++k) put(k, -0., 1);
    start("special accumulator", s++, 0.f), put(0, -0., 1);
    start("special accumulator", s++, -1.f), put(0, 1, 1);
    start("special accumulator", s++, infinity), put(0, -1, 1);
    const uint32_t top = ((1u << format_.exponent_bits) - 1) << format_.mantissa_bits, one = format_.encode(1);
    const uint32_t minus = 1u << (format_.bits() - 1), all_ones = minus - 1;
    s = 0;
    start("special factor", s++), put_bits(0, all_ones, one);
    start("special factor", s++), put_bits(0, all_ones | minus, one);
    start("special factor", s++), put_bits(0, top, one);  // infinity, but in e4m3
    start("special factor", s++), put_bits(0, top | minus, one);
    start("special factor", s++), put_bits(0, top, 0);
    start("special factor", s++), put_bits(0, top, one), put_bits(1, top | minus, one);
    start("special factor", s++, -infinity), put_bits(0, top, one);
    s = 0;
    const float largest = 0x1.fffffep127f;
    for (int exponent = big_; exponent >= big_ - 28; --exponent) {  // below 2^128 - 2^104, by halves of a last place
      if (format_.exponent_bits < 8) break;
      start("beyond f32", s++, largest), product(0, 1, 103 + exponent - big_ + 2);
    }
    if (format_.exponent_bits < 8) return;
    start("beyond f32", s++), product(0, 1, 128);
    start("beyond f32", s++), product(0, 1, 128), product(1, -1, 128);
    start("beyond f32", s++), product(0, 1, 254), product(1, -1, 254), product(2, 1, 0);
    start("beyond f32", s++, largest), product(0, 1, 127), product(1, -1, 127);
  }

  // ---- sums of random terms: the rule must give all of them
  uint32_t random_element() {
    for (;;) {
      const auto element = static_cast<uint32_t>(random_()) & ((1u << format_.bits()) - 1);
      if (format_.is_finite(element)) return element;
    }
  }
  int random_from(int low, int high) { return low + static_cast<int>(random_() % (high - low + 1)); }
  float random_float(int exponent) {
    const uint32_t bits = static_cast<uint32_t>(random_()) & 0x807fffff;
    const uint32_t scaled = bits | static_cast<uint32_t>(std::clamp(exponent + 127, 1, 254)) << 23;
    float value;
    std::memcpy(&value, &scaled, sizeof value);
    return value;
  }
  void any_bits(int i) {
    const int middle = random_from(-8, 2 * std::min(format_.max_exponent, 15));
    start("any bits", i, i % 4 == 0 ? 0 : random_float(middle)).times = i % 10 == 9 ? 2 : 1;
    for (int k = 0; k < depth_; ++k) {
      const uint32_t a = random_element(), b = random_element();
      put_bits(k, a, b);
    }
  }
  void close_exponents(int i) {
    start("close exponents", i, i % 4 == 0 ? 0 : random_float(random_from(-4, 12))).times = i % 10 == 9 ? 2 : 1;
    const int spread = random_from(0, std::min(format_.max_exponent - 2, 12)), steps = 1 << format_.mantissa_bits;
    for (int k = 0; k < depth_; ++k) {
      const double a = std::ldexp(1 + double(random_from(0, steps - 1)) / steps, random_from(-spread / 2, spread / 2));
      const double b = std::ldexp(1 + double(random_from(0, steps - 1)) / steps, random_from(-1, 1));
      put(k, random_() % 2 ? a : -a, b);
    }
  }

  Format format_;
  int depth_, big_;
  std::mt19937_64 random_{1};
};

// ---- running them --------------------------------------------------------------------------------------------------

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

std::string text_of(const Terms& terms, int bits) {
  std::string text;
  const int depth = 256 / bits, digits = bits / 4;
  for (int k = 0; k < depth;) {
    const uint32_t a = element(terms.a, k, bits), b = element(terms.b, k, bits);
    int end = k + 1;
    while (end < depth && element(terms.a, end, bits) == a && element(terms.b, end, bits) == b) ++end;
    char term[64];
    if (end - k > 1) {
      std::snprintf(term, sizeof term, "%d-%d:%0*x*%0*x", k, end - 1, digits, a, digits, b);
    } else {
      std::snprintf(term, sizeof term, "%d:%0*x*%0*x", k, digits, a, digits, b);
    }
    if (a != 0 || b != 0) text += (text.empty() ? "" : " ") + std::string(term);
    k = end;
  }
  return text;
}

template <class Instruction>
void print_rows(const char* name, const Format& format, int sm, int random) {
  if (sm < Instruction::MIN_SM || sm > Instruction::MAX_SM) return;
  const std::vector<Experiment> experiments = Experiments(format, random).all;
  std::vector<Terms> terms;
  for (const Experiment& each : experiments) terms.push_back(each.terms);
  std::vector<float> sums(terms.size() * Instruction::THREADS * 4);
  Terms* terms_on_card = nullptr;
  float4* sums_on_card = nullptr;
  const size_t terms_bytes = terms.size() * sizeof(Terms), sums_bytes = sums.size() * sizeof(float);
  checked(cudaMalloc(&terms_on_card, terms_bytes), "memory for the terms");
  checked(cudaMalloc(&sums_on_card, sums_bytes), "memory for the sums");
  checked(cudaMemcpy(terms_on_card, terms.data(), terms_bytes, cudaMemcpyHostToDevice), "copying the terms");
  add<Instruction><<<static_cast<unsigned>(terms.size()), Instruction::THREADS, 16384>>>(terms_on_card, sums_on_card);
  checked(cudaMemcpy(sums.data(), sums_on_card, sums_bytes, cudaMemcpyDeviceToHost), name);
  checked(cudaFree(terms_on_card), "freeing"), checked(cudaFree(sums_on_card), "freeing");
  const std::string about = about_this_run();
  for (size_t i = 0; i < experiments.size(); ++i) {
    const float* const own = &sums[i * Instruction::THREADS * 4];
    const bool alike = std::all_of(own, own + Instruction::THREADS * 4,
                                   [&](const float& sum) { return bits_of(sum) == bits_of(*own); });
    const Terms& each = experiments[i].terms;
    std::printf("%s,%s,%d,%d,%08x,%s,%08x,%.9g,%d,%s\n", name, experiments[i].name, experiments[i].s, each.times,
                bits_of(each.c), text_of(each, format.bits()).c_str(), bits_of(*own), *own, alike, about.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int random = argc > 1 ? std::atoi(argv[1]) : 40;
  int cards = 0, major = 0, minor = 0;
  if (cudaGetDeviceCount(&cards) != cudaSuccess || cards == 0 ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) != cudaSuccess || major < 8) {
    std::fprintf(stderr, "These sums need a GPU of sm_80 or newer, and there is none here.\n");
    return 77;
  }
  const int sm = 10 * major + minor;
  std::printf("instruction,experiment,s,times,c,terms,result,value,alike,gpu,cuda,commit,date\n");
  print_rows<WgmmaE4m3>("wgmma.e4m3", E4M3, sm, random);
  print_rows<WgmmaE5m2>("wgmma.e5m2", E5M2, sm, random);
  print_rows<WgmmaF16>("wgmma.f16", F16, sm, random);
  print_rows<WgmmaBf16>("wgmma.bf16", BF16, sm, random);
  print_rows<MmaF16>("mma.f16", F16, sm, random);
  print_rows<MmaBf16>("mma.bf16", BF16, sm, random);
  print_rows<MmaE4m3>("mma.e4m3", E4M3, sm, random);
  return 0;
}
