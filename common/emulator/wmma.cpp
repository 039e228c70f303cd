// WMMA: loads, stores and products of whole 16 x 16 matrices by a warp.
#include "common/emulator/wmma.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include "common/emulator/block.hpp"
#include "common/emulator/multiply.hpp"

namespace emulator {

struct WmmaElements {
  template <class Element, int USE>
  static Element* of(WmmaFragment<Element, USE>& fragment) {
    return fragment.elements;
  }
  template <class Element, int USE>
  static const Element* of(const WmmaFragment<Element, USE>& fragment) {
    return fragment.elements;
  }
};

namespace {

constexpr uint32_t SIZE = 16, PER_LANE = 8;  // rows and columns of a matrix; elements of one lane
constexpr uint32_t ALIGNMENT = 32;           // of every row, in bytes
// Warp::in: the elements handed in come first, in up to 8 rows, then these.
constexpr uint32_t ADDRESS = 8, LEADING = 9;

// ---- shared memory -------------------------------------------------------------------------------------------------

// A matrix in shared memory as the lanes have handed it in: its rows (columns for b_col) are `stride` bytes apart.
struct Matrix {
  uint32_t address;
  uint32_t stride;
  SiteId site;

  uint32_t row(uint32_t i) const { return address + i * stride; }
};

// Where all lanes mean the same matrix, and its rows are aligned; otherwise the launch ends.
Matrix agreed_matrix(Block& block, const Warp& warp, uint32_t element_bytes) {
  const uint32_t(&addresses)[32] = warp.in[ADDRESS], (&leading)[32] = warp.in[LEADING];
  const SiteId site = block.counting.site_id(warp.instruction, warp.site);
  for (uint32_t lane = 1; lane < 32; ++lane) {
    if (addresses[lane] == addresses[0] && leading[lane] == leading[0]) continue;
    block.report({ReportKind::divergent_collective, site}, [&] {
      const auto of_lane = [&](uint32_t l) {
        return fmt::format("offset {}, leading dimension {}", int64_t{addresses[l]} - SMEM_BASE, leading[l]);
      };
      return fmt::format("lanes disagree: {} has {} in {}, but {} in {}", block.wording.at(site), of_lane(lane),
                         Wording::thread_name(warp.id * 32 + lane), of_lane(0), Wording::thread_name(warp.id * 32));
    });
    block.scheduler.stop();
  }
  const uint32_t stride = leading[0] * element_bytes;
  if (addresses[0] % ALIGNMENT != 0) block.bad_address(addresses[0], ALIGNMENT, ALIGNMENT, site, warp.id * 32);
  if (stride % ALIGNMENT != 0) {
    block.report({ReportKind::shared_misaligned, site}, [&] {
      return fmt::format(
          "misaligned rows: {} by warp {} has a leading dimension of {} elements, which are {} bytes; it must be a "
          "multiple of {}, so that every row begins at a multiple of {} bytes",
          block.wording.at(site), warp.id, leading[0], stride, ALIGNMENT / element_bytes, ALIGNMENT);
    });
    block.scheduler.stop();
  }
  return {addresses[0], stride, site};
}

// Calls access(actor, address, bytes) for what each lane holds, an access of its own. As the actor is "the whole warp",
// it is ordered without a barrier with nothing but the same lane's part of the same matrix in other loads and stores.
template <class Element, class Access>
void for_each_lane(Block& block, const Warp& warp, const Matrix& matrix, Access&& access) {
  constexpr uint32_t BYTES = PER_LANE * sizeof(Element);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t thread = warp.id * 32 + lane, address = matrix.row(lane / 2) + lane % 2 * BYTES;
    block.require_valid(address, BYTES, matrix.site, thread);
    access(RaceDetector::Actor{warp.id, thread, matrix.site, true}, address, BYTES);
  }
}

// f32: in each of four requests lane l moves the pair l % 4 of row l / 4 of an 8 x 8 quadrant.
void count_quadrants(Block& block, const Matrix& matrix, bool is_load) {
  for (uint32_t quadrant = 0; quadrant < 4; ++quadrant) {
    uint32_t addresses[32];
    for (uint32_t lane = 0; lane < 32; ++lane)
      addresses[lane] = matrix.row(quadrant % 2 * 8 + lane / 4) + quadrant / 2 * 32 + lane % 4 * 8;
    block.counting.count_wavefronts(matrix.site, matrix.address, request_wavefronts(addresses, ALL_LANES, 8, is_load));
  }
}

// f16: one ldmatrix.x4 of the four 8 x 8 quadrants.
void count_ldmatrix(Block& block, const Matrix& matrix) {
  ++block.counting.counters.ldmatrix;
  if (!block.launch.options.count) return;
  uint32_t rows[32];
  for (uint32_t i = 0; i < 32; ++i) rows[i] = matrix.row(i % SIZE) + i / SIZE * 16;
  block.counting.count_wavefronts(matrix.site, matrix.address, ldmatrix_wavefronts(rows, 4));
}

void trace(Block& block, const Warp& warp, const Matrix& matrix, uint32_t element_bytes) {
  TraceEvent& event = block.counting.trace_event(warp.instruction, warp.site);
  event.bytes = SIZE * SIZE * element_bytes;
  for (uint32_t row = 0; row < SIZE; ++row) block.counting.trace_shared(event, matrix.row(row), SIZE * element_bytes);
}

// The rows go to `to`, one behind the other.
template <class Element>
void load_matrix(Block& block, Warp& warp, void* to) {
  const Matrix matrix = agreed_matrix(block, warp, sizeof(Element));
  for_each_lane<Element>(block, warp, matrix, [&](const RaceDetector::Actor& actor, uint32_t address, uint32_t bytes) {
    auto* const own = static_cast<std::byte*>(to) + actor.thread % 32 * bytes;
    if (block.check_read(actor, address, bytes)) {
      std::memcpy(own, block.smem.at(address), bytes);
    } else {
      std::memset(own, 0xff, bytes);  // NaN
    }
  });
  if (sizeof(Element) == 2) {
    count_ldmatrix(block, matrix);
  } else if (block.launch.options.count) {
    count_quadrants(block, matrix, true);
  }
  if (block.counting.tracing) trace(block, warp, matrix, sizeof(Element));
}

void store_matrix(Block& block, Warp& warp) {
  const Matrix matrix = agreed_matrix(block, warp, sizeof(float));
  for_each_lane<float>(block, warp, matrix, [&](const RaceDetector::Actor& actor, uint32_t address, uint32_t bytes) {
    block.check_write(actor, address, bytes);
    std::memcpy(block.smem.at(address), &warp.in[0][0] + actor.thread % 32 * PER_LANE, bytes);
  });
  if (block.launch.options.count) count_quadrants(block, matrix, false);
  if (block.counting.tracing) trace(block, warp, matrix, sizeof(float));
}

void hand_in(uint32_t address, uint32_t ld) {
  current.warp->in[ADDRESS][current.lane] = address;
  current.warp->in[LEADING][current.lane] = ld;
}

// For A, and for B stored column by column.
template <int USE>
void load_halves(Instruction instruction, WmmaFragment<uint16_t, USE>& fragment, uint32_t address, uint32_t ld,
                 const CallSite& site) {
  hand_in(address, ld);
  meet(instruction, site, [](Block& block, Warp& warp) { load_matrix<uint16_t>(block, warp, warp.out); });
  std::memcpy(WmmaElements::of(fragment), &current.warp->out[0][0] + current.lane * 4, 16);
}

// ---- products ------------------------------------------------------------------------------------------------------

// Both kinds of B hold 8 k of column lane / 2. The two halves of B's columns are two operands of mma.m16n8k16, whose
// registers multiply() wants in fragment order.
template <int USE>
void multiply_accumulate(WmmaAccumulator& c, const WmmaA& a, const WmmaFragment<uint16_t, USE>& b,
                         const CallSite& site) {
  Warp& warp = *current.warp;
  const uint32_t row = current.lane / 2, half = current.lane % 2;
  uint32_t pairs[4];
  std::memcpy(pairs, WmmaElements::of(a), sizeof pairs);
  for (uint32_t i = 0; i < 4; ++i) warp.in[row / 8 + half * 2][row % 8 * 4 + i] = pairs[i];
  std::memcpy(pairs, WmmaElements::of(b), sizeof pairs);
  for (uint32_t i = 0; i < 4; ++i) warp.in[4 + row / 8 * 2 + half][i * 8 + row % 8] = pairs[i];
  const uint32_t first = half * 128 + row * 8;
  std::copy_n(WmmaElements::of(c), PER_LANE, warp.addend + first);
  current.block->scheduler.begin_only();
  meet(Instruction::wmma_mma, site, [](Block& block, Warp& warp) {
    block.counting.counters.mma += 2;
    block.counting.counters.products_after_exponentials += warp.start_product();
    if (block.counting.tracing) block.counting.trace_event(Instruction::wmma_mma, warp.site);
    multiply(warp.in, warp.in + 4, warp.addend, warp.sum);
    multiply(warp.in, warp.in + 6, warp.addend + 128, warp.sum + 128);
  });
  std::copy_n(warp.sum + first, PER_LANE, WmmaElements::of(c));
}

}  // namespace
}  // namespace emulator

inline namespace emulated {

using namespace emulator;

void wmma_fill(WmmaAccumulator& fragment, float value) {
  std::fill_n(WmmaElements::of(fragment), PER_LANE, value);
}

void wmma_load_a(WmmaA& fragment, uint32_t address, uint32_t ld, CallSite site) {
  load_halves(Instruction::wmma_load_a, fragment, address, ld, site);
}

void wmma_load_b_col(WmmaBCol& fragment, uint32_t address, uint32_t ld, CallSite site) {
  load_halves(Instruction::wmma_load_b_col, fragment, address, ld, site);
}

void wmma_load_b_row(WmmaBRow& fragment, uint32_t address, uint32_t ld, CallSite site) {
  hand_in(address, ld);
  meet(Instruction::wmma_load_b_row, site,
       [](Block& block, Warp& warp) { load_matrix<uint16_t>(block, warp, warp.out); });
  uint16_t rows[SIZE][SIZE];
  std::memcpy(rows, current.warp->out, sizeof rows);
  const uint32_t column = current.lane / 2, first_k = current.lane % 2 * PER_LANE;
  for (uint32_t i = 0; i < PER_LANE; ++i) WmmaElements::of(fragment)[i] = rows[first_k + i][column];
}

void wmma_load_c(WmmaAccumulator& fragment, uint32_t address, uint32_t ld, CallSite site) {
  hand_in(address, ld);
  meet(Instruction::wmma_load_c, site, [](Block& block, Warp& warp) { load_matrix<float>(block, warp, warp.sum); });
  std::copy_n(current.warp->sum + current.lane * PER_LANE, PER_LANE, WmmaElements::of(fragment));
}

void wmma_store_d(uint32_t address, const WmmaAccumulator& fragment, uint32_t ld, CallSite site) {
  hand_in(address, ld);
  std::memcpy(&current.warp->in[0][0] + current.lane * PER_LANE, WmmaElements::of(fragment), PER_LANE * sizeof(float));
  meet(Instruction::wmma_store_d, site, store_matrix);
}

void wmma_mma(WmmaAccumulator& c, const WmmaA& a, const WmmaBRow& b, CallSite site) {
  multiply_accumulate(c, a, b, site);
}

void wmma_mma(WmmaAccumulator& c, const WmmaA& a, const WmmaBCol& b, CallSite site) {
  multiply_accumulate(c, a, b, site);
}

}  // namespace emulated
