// Instructions for which the 32 lanes of a warp meet: ldmatrix, mma, shuffles, votes.
#include <algorithm>
#include <array>
#include <cstring>
#include "common/emulator/block.hpp"
#include "common/emulator/multiply.hpp"

namespace emulator {
namespace {

// An 8x8 matrix of 16-bit elements by rows, into one register per lane.
void distribute(const std::byte* const (&rows)[8], uint32_t (&registers)[32]) {
  for (int row = 0; row < 8; ++row) std::memcpy(&registers[4 * row], rows[row], 16);
}

void distribute_transposed(const std::byte* const (&rows)[8], uint32_t (&registers)[32]) {
  uint16_t elements[8][8];
  for (int row = 0; row < 8; ++row) std::memcpy(elements[row], rows[row], 16);
  for (int lane = 0; lane < 32; ++lane) {
    const int column = lane / 4, row = lane % 4 * 2;
    registers[lane] = elements[row][column] | static_cast<uint32_t>(elements[row + 1][column]) << 16;
  }
}

// What a row in flight reads as.
constexpr auto NAN_BYTES = [] {
  std::array<std::byte, 16> row;
  row.fill(std::byte{0xff});
  return row;
}();
constexpr const std::byte* NAN_ROW = NAN_BYTES.data();

template <int MATRICES, bool TRANSPOSED>
void load_matrices(Block& block, Warp& warp) {
  constexpr uint32_t ROW_BYTES = 16;
  const uint32_t* const addresses = warp.in[0];
  const SiteId site = block.counting.site_id(warp.instruction, warp.site);
  uint32_t unseen = 0;  // rows that are in flight
  for (uint32_t lane = 0; lane < 8 * MATRICES; ++lane) {
    const uint32_t thread = warp.id * 32 + lane;
    block.require_valid(addresses[lane], ROW_BYTES, site, thread);
    if (!block.check_read({warp.id, thread, site, true}, addresses[lane], ROW_BYTES)) unseen |= 1u << lane;
  }
  ++block.counting.counters.ldmatrix;
  if (block.launch.options.count)
    block.counting.count_wavefronts(site, addresses[0], ldmatrix_wavefronts(addresses, MATRICES));
  if (block.counting.tracing) {
    TraceEvent& event = block.counting.trace_event(warp.instruction, warp.site);
    event.bytes = MATRICES * 8 * ROW_BYTES;
    for (int lane = 0; lane < 8 * MATRICES; ++lane) block.counting.trace_shared(event, addresses[lane], ROW_BYTES);
  }
  for (int matrix = 0; matrix < MATRICES; ++matrix) {
    const std::byte* rows[8];
    for (int row = 0; row < 8; ++row) {
      const int i = matrix * 8 + row;
      rows[row] = unseen >> i & 1 ? NAN_ROW : block.smem.at(addresses[i]);
    }
    (TRANSPOSED ? distribute_transposed : distribute)(rows, warp.out[matrix]);
  }
  Fragment& fragment = warp.fragments[warp.next_fragment++ % warp.fragments.size()];
  fragment = {.products = warp.products, .is_used = false};
  for (int matrix = 0; matrix < MATRICES; ++matrix) fragment.registers[matrix] = warp.out[matrix][0];
}

// The latest load that has given the first lane the registers of B, whichever variables they are in by now.
void note_use(Block& block, Warp& warp) {
  const size_t size = warp.fragments.size();
  for (size_t age = 1; age <= size; ++age) {
    Fragment& fragment = warp.fragments[(warp.next_fragment + size - age) % size];
    const auto number = [&](uint32_t value) {
      return std::find(fragment.registers.begin(), fragment.registers.end(), value) - fragment.registers.begin();
    };
    const auto low = number(warp.in[4][0]), high = number(warp.in[5][0]), none = std::ssize(fragment.registers);
    if (low == none || high == none) continue;
    block.counting.counters.fragments_in_pairs += low % 2 == 0 && high == low + 1;
    if (!fragment.is_used) block.counting.counters.fragments_ahead += warp.products - fragment.products;
    fragment.is_used = true;
    return;
  }
}

template <bool TRANSPOSED>
void store_matrices(Block& block, Warp& warp) {
  constexpr uint32_t MATRICES = 4, ROW_BYTES = 16, ADDRESS = 4;  // in Warp::in
  const uint32_t* const addresses = warp.in[ADDRESS];
  const SiteId site = block.counting.site_id(warp.instruction, warp.site);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t thread = warp.id * 32 + lane;
    block.require_valid(addresses[lane], ROW_BYTES, site, thread);
    block.check_write({warp.id, thread, site, true}, addresses[lane], ROW_BYTES);
    const uint32_t* const matrix = warp.in[lane / 8];  // row r is in lanes 4r to 4r + 3
    if constexpr (TRANSPOSED) {
      const uint32_t column = lane % 8;
      uint16_t elements[8];
      for (uint32_t row = 0; row < 8; ++row)
        elements[row] = static_cast<uint16_t>(matrix[row * 4 + column / 2] >> (16 * (column % 2)));
      std::memcpy(block.smem.at(addresses[lane]), elements, ROW_BYTES);
    } else {
      std::memcpy(block.smem.at(addresses[lane]), &matrix[lane % 8 * 4], ROW_BYTES);
    }
  }
  if (block.launch.options.count)
    block.counting.count_wavefronts(site, addresses[0], ldmatrix_wavefronts(addresses, MATRICES));
  if (block.counting.tracing) {
    TraceEvent& event = block.counting.trace_event(warp.instruction, warp.site);
    event.bytes = 32 * ROW_BYTES;
    for (uint32_t lane = 0; lane < 32; ++lane) block.counting.trace_shared(event, addresses[lane], ROW_BYTES);
  }
}

template <int MATRICES, bool TRANSPOSED>
void ldmatrix(Instruction instruction, uint32_t (&matrices)[MATRICES], uint32_t row_address, const CallSite& site) {
  current.warp->in[0][current.lane] = row_address;
  meet(instruction, site, load_matrices<MATRICES, TRANSPOSED>);
  for (int i = 0; i < MATRICES; ++i) matrices[i] = current.warp->out[i][current.lane];
}

template <bool TRANSPOSED>
void stmatrix(Instruction instruction, uint32_t row_address, const uint32_t (&matrices)[4], const CallSite& site) {
  Warp& warp = *current.warp;
  for (int i = 0; i < 4; ++i) warp.in[i][current.lane] = matrices[i];
  warp.in[4][current.lane] = row_address;
  meet(instruction, site, store_matrices<TRANSPOSED>);
}

template <Instruction SELF>
void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const float (&c)[4],
                  const CallSite& site) {
  current.block->scheduler.begin_only();
  Warp& warp = *current.warp;
  const uint32_t lane = current.lane;
  for (int r = 0; r < 4; ++r) warp.in[r][lane] = a[r];
  const uint32_t by_row = lane % 4 * 8 + lane / 4;
  warp.in[4][by_row] = b0;
  warp.in[5][by_row] = b1;
  const uint32_t of_pair = 2 * lane;  // FragmentC: rows lane / 4 and lane / 4 + 8 of 8 columns
  std::memcpy(warp.addend + of_pair, c, 2 * sizeof(float));
  std::memcpy(warp.addend + of_pair + 64, c + 2, 2 * sizeof(float));
  meet(SELF, site, [](Block& block, Warp& warp) {
    ++block.counting.counters.mma;
    note_use(block, warp);
    block.counting.counters.products_after_exponentials += warp.start_product();
    if (block.counting.tracing) block.counting.trace_event(SELF, warp.site);
    (SELF == Instruction::mma ? multiply : multiply_bf16)(warp.in, warp.in + 4, warp.addend, warp.sum);
  });
  std::memcpy(d, warp.sum + of_pair, 2 * sizeof(float));
  std::memcpy(d + 2, warp.sum + of_pair + 64, 2 * sizeof(float));
}

}  // namespace
}  // namespace emulator

inline namespace emulated {

using namespace emulator;

void ldmatrix_x4(uint32_t (&matrices)[4], uint32_t row_address, CallSite site) {
  ldmatrix<4, false>(Instruction::ldmatrix_x4, matrices, row_address, site);
}

void ldmatrix_x2_trans(uint32_t (&matrices)[2], uint32_t row_address, CallSite site) {
  ldmatrix<2, true>(Instruction::ldmatrix_x2_trans, matrices, row_address, site);
}

void ldmatrix_x4_trans(uint32_t (&matrices)[4], uint32_t row_address, CallSite site) {
  ldmatrix<4, true>(Instruction::ldmatrix_x4_trans, matrices, row_address, site);
}

void stmatrix_x4(uint32_t row_address, const uint32_t (&matrices)[4], CallSite site) {
  stmatrix<false>(Instruction::stmatrix_x4, row_address, matrices, site);
}

void stmatrix_x4_trans(uint32_t row_address, const uint32_t (&matrices)[4], CallSite site) {
  stmatrix<true>(Instruction::stmatrix_x4_trans, row_address, matrices, site);
}

void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const float (&c)[4], CallSite site) {
  multiply_add<Instruction::mma>(d, a, b0, b1, c, site);
}

void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, CallSite site) {
  multiply_add<Instruction::mma>(c, a, b0, b1, c, site);
}

void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const float (&c)[4],
                       CallSite site) {
  multiply_add<Instruction::mma_bf16>(d, a, b0, b1, c, site);
}

void mma_m16n8k16_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, CallSite site) {
  multiply_add<Instruction::mma_bf16>(c, a, b0, b1, c, site);
}

uint32_t shfl(uint32_t value, int from, CallSite site) {
  Warp& warp = *current.warp;
  warp.in[0][current.lane] = value;
  warp.in[1][current.lane] = static_cast<uint32_t>(from) % 32;
  meet(Instruction::shuffle, site, [](Block& block, Warp& warp) {
    ++block.counting.counters.shuffles;
    block.counting.counters.shuffles_beside_products += block.running_products(warp.id) > 0;
    if (block.counting.tracing) block.counting.trace_event(Instruction::shuffle, warp.site);
    for (uint32_t lane = 0; lane < 32; ++lane) warp.out[0][lane] = warp.in[0][warp.in[1][lane]];
  });
  return warp.out[0][current.lane];
}

float shfl_xor(float value, int lane_mask, CallSite site) {
  return std::bit_cast<float>(shfl(std::bit_cast<uint32_t>(value), static_cast<int>(current.lane) ^ lane_mask, site));
}

bool elect_sync(CallSite site) {
  Block& block = *current.block;
  block.counting.site_id(Instruction::elect, site);  // its place is known, though no wavefront is counted there
  meet(Instruction::elect, site, [](Block& block, Warp& warp) {
    if (block.counting.tracing) block.counting.trace_event(Instruction::elect, warp.site);
  });
  // Always the same lane, and PTX does not say which: another one when the threads run in another order.
  return current.lane == (block.launch.options.schedule == 0 ? 0 : 31);
}

bool vote_any(bool predicate, CallSite site) {
  Warp& warp = *current.warp;
  warp.in[0][current.lane] = predicate;
  meet(Instruction::vote, site, [](Block& block, Warp& warp) {
    warp.out[0][0] = *std::max_element(std::begin(warp.in[0]), std::end(warp.in[0]));
    ++block.counting.counters.votes;
    block.counting.counters.votes_on_scores += warp.lanes[0].exponentials == warp.weights;
    block.counting.counters.yes_votes += warp.out[0][0] != 0;
    if (block.counting.tracing)
      block.counting.trace_event(Instruction::vote, warp.site).operand = static_cast<int>(warp.out[0][0]);
  });
  return warp.out[0][0] != 0;
}

}  // namespace emulated
