// WMMA for a plain C++20 compiler; common/ptx/wmma.cuh describes the functions. Here only what differs is said.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include "common/emulator/call_site.hpp"

namespace emulator {

struct WmmaElements;  // the way in, for the emulator

// Lane l holds elements 8 l .. 8 l + 7 of the 16 x 16 matrix, counted row by row (B: column by column): a layout that
// no GPU has, so that no kernel can come to rely on one. NaN until loaded or filled.
template <class Element, int USE>
class WmmaFragment {
 public:
  WmmaFragment() { std::fill(elements, elements + 8, NOT_A_NUMBER); }

 private:
  friend struct WmmaElements;
  static constexpr Element NOT_A_NUMBER = std::numeric_limits<Element>::has_quiet_NaN
                                              ? std::numeric_limits<Element>::quiet_NaN()
                                              : std::numeric_limits<Element>::max();  // f16 as bits: 0xffff
  Element elements[8];
};

}  // namespace emulator

inline namespace emulated {

using WmmaA = emulator::WmmaFragment<uint16_t, 0>;
using WmmaBRow = emulator::WmmaFragment<uint16_t, 1>;
using WmmaBCol = emulator::WmmaFragment<uint16_t, 2>;
using WmmaAccumulator = emulator::WmmaFragment<float, 3>;

// A row that does not begin at a multiple of 32 bytes, or lanes that disagree on `address` or `ld`, end the launch.
// Counted as on sm_80 and newer: a load of A or B as one ldmatrix.x4, a load or store of C as four requests of 8 bytes
// per lane, a wmma_mma as two mma.m16n8k16.
void wmma_fill(WmmaAccumulator& fragment, float value);
void wmma_load_a(WmmaA& fragment, uint32_t address, uint32_t ld, emulator::CallSite = emulator::CallSite::current());
void wmma_load_b_row(WmmaBRow& fragment, uint32_t address, uint32_t ld,
                     emulator::CallSite = emulator::CallSite::current());
void wmma_load_b_col(WmmaBCol& fragment, uint32_t address, uint32_t ld,
                     emulator::CallSite = emulator::CallSite::current());
void wmma_load_c(WmmaAccumulator& fragment, uint32_t address, uint32_t ld,
                 emulator::CallSite = emulator::CallSite::current());
void wmma_store_d(uint32_t address, const WmmaAccumulator& fragment, uint32_t ld,
                  emulator::CallSite = emulator::CallSite::current());
void wmma_mma(WmmaAccumulator& c, const WmmaA& a, const WmmaBRow& b,
              emulator::CallSite = emulator::CallSite::current());
void wmma_mma(WmmaAccumulator& c, const WmmaA& a, const WmmaBCol& b,
              emulator::CallSite = emulator::CallSite::current());

}  // namespace emulated
