// The emulator's twins of common/ptx/wgmma.cuh.
//
// A product is computed when it is issued, by the last of the warpgroup's 128 threads to come, into a tile of its own.
// Its accumulators are NaN, of a pattern that nobody else writes, until a wait of the thread covers it; then they hold
// the result. So who reads one too early gets NaN, and who writes one is reported, as is who writes an A register in
// flight.
#pragma once
#include <cstddef>
#include <cstdint>
#include "common/element.hpp"
#include "common/emulator/instructions.hpp"

inline namespace emulated {

inline uint64_t wgmma_descriptor(uint32_t address, uint32_t panel_bytes = 16) {
  constexpr uint64_t HIGH = 1u << 30 | 1024 / 16;
  return HIGH << 32 | (panel_bytes / 16) << 16 | (address & 0x3ffff) / 16;
}
inline uint64_t wgmma_advance(uint64_t descriptor, uint32_t bytes) {
  const auto low = static_cast<uint32_t>(descriptor) + bytes / 16;
  return (descriptor >> 32) << 32 | low;
}

// An array of registers, of any number of dimensions, or none.
struct WgmmaRegisters {
  std::byte* begin = nullptr;
  uint32_t bytes = 0;
  WgmmaRegisters() = default;
  template <class Element, size_t COUNT>
  WgmmaRegisters(Element (&array)[COUNT]) : begin(reinterpret_cast<std::byte*>(&array)), bytes(sizeof array) {}
};
void wgmma_fence(WgmmaRegisters a = {}, WgmmaRegisters b = {}, WgmmaRegisters c = {}, WgmmaRegisters d = {},
                 CallSite site = CallSite::current());
void wgmma_commit(CallSite site = CallSite::current());
void wgmma_wait_pending(uint32_t pending, const WgmmaRegisters (&registers)[4], CallSite site);
template <int PENDING>
void wgmma_wait(WgmmaRegisters a = {}, WgmmaRegisters b = {}, WgmmaRegisters c = {}, WgmmaRegisters d = {},
                CallSite site = CallSite::current()) {
  wgmma_wait_pending(PENDING, {a, b, c, d}, site);
}

// One thread's part of a product.
struct WgmmaOperands {
  float* d;
  uint32_t n;         // columns of D
  const uint32_t* a;  // four registers; null: A lies at a_descriptor
  uint64_t a_descriptor, b_descriptor;
  bool accumulate, trans_b;
  ladder::Element element;  // of A and B
};
void wgmma(const WgmmaOperands& operands, CallSite site);

template <bool TRANS_B = false, int N_TILES>
void wgmma_ss(float (&d)[N_TILES][4], uint64_t a, uint64_t b, bool accumulate = true,
              CallSite site = CallSite::current()) {
  wgmma({&d[0][0], 8 * N_TILES, nullptr, a, b, accumulate, TRANS_B, ladder::Element::f16}, site);
}
template <bool TRANS_B = false, int N_TILES>
void wgmma_rs(float (&d)[N_TILES][4], const uint32_t (&a)[4], uint64_t b, bool accumulate = true,
              CallSite site = CallSite::current()) {
  wgmma({&d[0][0], 8 * N_TILES, a, 0, b, accumulate, TRANS_B, ladder::Element::f16}, site);
}
template <bool TRANS_B = false, int N_TILES>
void wgmma_ss_bf16(float (&d)[N_TILES][4], uint64_t a, uint64_t b, bool accumulate = true,
                   CallSite site = CallSite::current()) {
  wgmma({&d[0][0], 8 * N_TILES, nullptr, a, b, accumulate, TRANS_B, ladder::Element::bf16}, site);
}
template <bool TRANS_B = false, int N_TILES>
void wgmma_rs_bf16(float (&d)[N_TILES][4], const uint32_t (&a)[4], uint64_t b, bool accumulate = true,
                   CallSite site = CallSite::current()) {
  wgmma({&d[0][0], 8 * N_TILES, a, 0, b, accumulate, TRANS_B, ladder::Element::bf16}, site);
}
template <int N_TILES>
void wgmma_ss_e4m3(float (&d)[N_TILES][4], uint64_t a, uint64_t b, bool accumulate = true,
                   CallSite site = CallSite::current()) {
  wgmma({&d[0][0], 8 * N_TILES, nullptr, a, b, accumulate, false, ladder::Element::e4m3}, site);
}
template <int N_TILES>
void wgmma_rs_e4m3(float (&d)[N_TILES][4], const uint32_t (&a)[4], uint64_t b, bool accumulate = true,
                   CallSite site = CallSite::current()) {
  wgmma({&d[0][0], 8 * N_TILES, a, 0, b, accumulate, false, ladder::Element::e4m3}, site);
}
// Its sums are int32, and in flight none that 128 products of bytes add up to.
template <int N_TILES>
void wgmma_ss_s8(int32_t (&d)[N_TILES][4], uint64_t a, uint64_t b, bool accumulate = true,
                 CallSite site = CallSite::current()) {
  wgmma({reinterpret_cast<float*>(d), 8 * N_TILES, nullptr, a, b, accumulate, false, ladder::Element::s8}, site);
}

// All blocks are taken to start with the most registers that their launch bounds could give: 65536 / threads.
void setmaxnreg(uint32_t count, bool takes, CallSite site);
template <int COUNT>
void setmaxnreg_dec(CallSite site = CallSite::current()) {
  static_assert(COUNT % 8 == 0 && 24 <= COUNT && COUNT <= 256);
  setmaxnreg(COUNT, false, site);
}
template <int COUNT>
void setmaxnreg_inc(CallSite site = CallSite::current()) {
  static_assert(COUNT % 8 == 0 && 24 <= COUNT && COUNT <= 256);
  setmaxnreg(COUNT, true, site);
}

}  // namespace emulated
