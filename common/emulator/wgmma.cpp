// Warpgroups: products on tiles in shared memory, their flight, and the registers that warpgroups give to one another.
#include "common/emulator/wgmma.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include "common/emulator/block.hpp"
#include "common/emulator/multiply.hpp"

namespace emulator {
namespace {

constexpr uint32_t K_BYTES = 32, K = 16, CHUNK_BYTES = 16;  // K: of 16-bit elements
// What accumulators in flight hold: a signalling NaN, which arithmetic changes.
constexpr uint32_t IN_FLIGHT_BITS = 0xffbadbad;

Warpgroup& own_group() {
  return current.block->warpgroups[current.thread() / WARPGROUP_THREADS];
}

std::string group_name(uint32_t thread) {
  return fmt::format("warpgroup {}", thread / WARPGROUP_THREADS);
}

// ---- meeting --------------------------------------------------------------------------------------------------------

[[noreturn]] void incomplete_group(SiteId site) {
  Block& block = *current.block;
  block.report({ReportKind::incomplete_warp, site}, [&] {
    const uint32_t first = current.thread() / WARPGROUP_THREADS * WARPGROUP_THREADS;
    std::vector<uint32_t> gone;
    for (uint32_t thread = first; thread < first + WARPGROUP_THREADS; ++thread) {
      if (thread >= block.launch.threads() || (block.warps[thread / 32].live >> thread % 32 & 1) == 0)
        gone.push_back(thread);
    }
    return fmt::format("{} needs all 128 threads of {}, but threads {} have ended or never existed",
                       block.wording.at(site), group_name(first), ranges(gone));
  });
  block.scheduler.stop();
}

// All lanes of the warp are there. True if all four warps are.
bool come_to(Instruction instruction, const CallSite& call) {
  Block& block = *current.block;
  Warp& warp = *current.warp;
  const SiteId site = block.counting.site_id(instruction, call);
  const uint32_t first = warp.id / 4 * 4;
  if (first + 4 > block.launch.warps()) incomplete_group(site);
  for (uint32_t i = first; i < first + 4; ++i) {
    if (block.warps[i].live != ALL_LANES) incomplete_group(site);
  }
  if (block.counting.tracing) block.counting.trace_event(instruction, call);
  Warpgroup& group = own_group();
  if (group.arrived == 0) {
    group.instruction = instruction;
    group.site = call;
  } else if (group.instruction != instruction || group.site != call) {
    const SiteId there = block.counting.site_id(group.instruction, group.site);
    block.report({ReportKind::divergent_collective, site, there}, [&] {
      return fmt::format("warp {} has come to {} while other warps of its warpgroup wait in {}", warp.id,
                         block.wording.at(site), block.wording.at(there));
    });
    block.scheduler.stop();
  }
  group.arrived |= 1u << warp.id % 4;
  warp.arrived = warp.live;  // so that a deadlock can say where it waits
  return group.arrived == 0xf;
}

// The last of the 128 threads to come computes for all. False from `compute`: they have to wait on, and who wakes them
// is another matter.
template <class Compute>
void meet_as_warpgroup(Instruction instruction, const CallSite& call, Compute&& compute) {
  Warp& warp = *current.warp;
  if (!arrive(instruction, call, ALL_LANES)) {
    wait();
    return;
  }
  if (come_to(instruction, call) && compute()) {
    current.block->scheduler.wake_warpgroup(warp.id / 4);
    return;
  }
  warp.ready = 0;
  wait();
}

// ---- registers in flight --------------------------------------------------------------------------------------------

bool overlap(const void* a, uint32_t a_bytes, const void* b, uint32_t b_bytes) {
  const auto *const x = static_cast<const std::byte*>(a), *const y = static_cast<const std::byte*>(b);
  return x < y + b_bytes && y < x + a_bytes;
}

template <class Make>
void report_registers(ReportKind kind, SiteId site, SiteId other, Make&& how) {
  Block& block = *current.block;
  block.report({kind, site, other}, [&] {
    return fmt::format("{} by {}: {}", block.wording.at(site), Wording::thread_name(current.thread()), how());
  });
}

// The registers that an instruction is about to use must be as a fence has handed them over.
void require_handed(SiteId site, const void* registers, uint32_t bytes, const char* what) {
  const WgmmaThread& own = current.state().wgmma;
  const auto* const begin = static_cast<const std::byte*>(registers);
  const auto known = std::find_if(own.handed.begin(), own.handed.end(), [&](const WgmmaThread::Handed& handed) {
    return begin >= handed.begin && begin + bytes <= handed.begin + handed.bytes;
  });
  const bool is_known = known != own.handed.end();
  if (is_known && std::memcmp(begin, own.copies.data() + known->copy + (begin - known->begin), bytes) == 0) return;
  report_registers(ReportKind::missing_wgmma_fence, site, NO_SITE, [&] {
    return fmt::format("missing wgmma_fence: no fence has handed over {} {}", what,
                       is_known ? "since they were written" : "since their last product, or none ever has");
  });
}

// Names of registers in a fence or a wait: they are in flight still.
void require_landed(SiteId site, const WgmmaRegisters& registers) {
  const WgmmaThread& own = current.state().wgmma;
  const auto in_flight = [&](SiteId other, const char* what) {
    report_registers(ReportKind::registers_in_flight, site, other, [&] {
      return fmt::format("it names {} of {} that no wait has covered yet", what, current.block->wording.at(other));
    });
  };
  for (const WgmmaThread::Accumulators& each : own.accumulators) {
    if (overlap(each.d, each.n * 2, registers.begin, registers.bytes))
      in_flight(own_group().tiles[each.tile].site, "accumulators");
  }
  for (const WgmmaThread::Operand& each : own.operands) {
    if (overlap(each.a, 16, registers.begin, registers.bytes)) in_flight(each.site, "A registers");
  }
}

void hand_over(const WgmmaRegisters& registers) {
  WgmmaThread& own = current.state().wgmma;
  const auto same = std::find_if(own.handed.begin(), own.handed.end(), [&](const WgmmaThread::Handed& handed) {
    return handed.begin == registers.begin && handed.bytes == registers.bytes;
  });
  if (same != own.handed.end()) {
    std::memcpy(own.copies.data() + same->copy, registers.begin, registers.bytes);
    return;
  }
  std::erase_if(own.handed, [&](const WgmmaThread::Handed& handed) {
    return overlap(handed.begin, handed.bytes, registers.begin, registers.bytes);
  });
  if (own.handed.empty()) own.copies.clear();
  own.handed.push_back({registers.begin, registers.bytes, static_cast<uint32_t>(own.copies.size())});
  own.copies.insert(own.copies.end(), registers.begin, registers.begin + registers.bytes);
}

// Element i of a thread's n / 2 accumulators in the tile: FragmentC for every eight columns.
size_t place_in_tile(uint32_t thread, uint32_t i, uint32_t n) {
  const uint32_t lane = thread % 32, row = thread / 32 % 4 * 16 + lane / 4 + i / 2 % 2 * 8;
  return size_t{row} * n + i / 4 * 8 + lane % 4 * 2 + i % 2;
}

// ---- corrections at rest --------------------------------------------------------------------------------------------

bool is_at_rest(const Warpgroup& group, const Warp& warp) {
  return group.over[warp.id % 4] == group.products;
}

// Nothing runs from here on: what the accumulators hold.
void note_rest(WgmmaThread& own) {
  for (WgmmaThread::Landed& each : own.landed)
    std::memcpy(each.values.data(), each.d, each.values.size() * sizeof(float));
}

// Something runs from here on, `d` or other accumulators. NaN times a number is another NaN or the same one, as the compiler likes.
void end_rest(WgmmaThread& own) {
  const auto is_same = [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  for (WgmmaThread::Landed& each : own.landed)
    each.is_changed |= !std::equal(each.values.begin(), each.values.end(), each.d, is_same);
}

// A product begins on accumulators that none is in flight to.
void count_correction(WgmmaThread& own, const WgmmaOperands& operands) {
  const auto known = std::ranges::find(own.landed, operands.d, &WgmmaThread::Landed::d);
  if (known == own.landed.end()) return;
  if (known->is_changed && operands.accumulate &&
      std::any_of(operands.d, operands.d + operands.n / 2, [](float element) { return element != 0; }))
    ++current.block->counting.counters.corrections_at_rest;
  known->values.clear();
}

// Products up to `over` are: their results appear in this thread's registers.
void fetch_results(SiteId site, uint64_t over) {
  Block& block = *current.block;
  Warpgroup& group = own_group();
  WgmmaThread& own = current.state().wgmma;
  const uint32_t thread = current.thread();
  std::erase_if(own.accumulators, [&](const WgmmaThread::Accumulators& each) {
    Warpgroup::Tile& tile = group.tiles[each.tile];
    if (tile.last > over) return false;
    const uint32_t count = each.n / 2;
    if (block.launch.options.check && std::any_of(each.d, each.d + count, [](const float& element) {
          return std::bit_cast<uint32_t>(element) != IN_FLIGHT_BITS;
        })) {
      report_registers(ReportKind::registers_in_flight, tile.site, site, [&] {
        return fmt::format("its accumulators have been written in flight, before {}", block.wording.at(site));
      });
    }
    for (uint32_t i = 0; i < count; i += 2)
      std::memcpy(each.d + i, &tile.values[place_in_tile(thread, i, each.n)], 2 * sizeof(float));
    auto landed = std::ranges::find(own.landed, each.d, &WgmmaThread::Landed::d);
    if (landed == own.landed.end()) landed = own.landed.insert(landed, {each.d, {}});
    landed->values.assign(each.d, each.d + count);
    landed->is_changed = false;
    --tile.pending;
    std::erase_if(own.handed, [&](const WgmmaThread::Handed& handed) {
      return overlap(handed.begin, handed.bytes, each.d, count * 4);
    });
    return true;
  });
  std::erase_if(own.operands, [&](const WgmmaThread::Operand& each) {
    if (each.product > over) return false;
    if (std::memcmp(each.a, each.values.data(), 16) != 0) {
      report_registers(ReportKind::registers_in_flight, each.site, site, [&] {
        return fmt::format("its A registers have been written in flight, before {}", block.wording.at(site));
      });
    }
    return true;
  });
}

// ---- tiles in shared memory -----------------------------------------------------------------------------------------

// What the hardware reads of a matrix descriptor's bits, in bytes.
struct Descriptor {
  explicit Descriptor(uint64_t bits)
      : address((bits & 0x3fff) * 16),
        leading(static_cast<uint32_t>(bits >> 16 & 0x3fff) * 16),
        stride(static_cast<uint32_t>(bits >> 32 & 0x3fff) * 16),
        base_offset(bits >> 49 & 7),
        swizzle(bits >> 62) {}
  uint32_t address, leading, stride, base_offset, swizzle;

  // Of a 16-byte chunk of the pattern of 128-byte rows, eight of which follow one another: the swizzle is one of the
  // address's bits.
  uint32_t chunk(uint32_t row, uint32_t number, uint32_t panel) const {
    const uint32_t plain = address + panel * leading + row / 8 * stride + row % 8 * 128 + number * CHUNK_BYTES;
    return plain ^ (plain >> 7 & 7) << 4;
  }
};

class TileReader {
 public:
  TileReader(Block& block, SiteId site, uint64_t product)
      : block_(block),
        reader_{current.warp->id / 4 * 4, 4, current.warp->id / 4 * 4 * 32, site, static_cast<uint32_t>(product)} {}

  Descriptor decode(uint64_t bits, const char* name) {
    const Descriptor descriptor(bits);
    if (descriptor.swizzle == 1 && descriptor.base_offset == 0) return descriptor;
    block_.report({ReportKind::bad_descriptor, reader_.site}, [&] {
      return fmt::format(
          "{} by {}: the descriptor of {} has swizzle {} and base offset {}; the emulator knows 128-byte swizzle (1) "
          "without "
          "offset, as wgmma_descriptor makes it",
          block_.wording.at(reader_.site), group_name(reader_.thread), name, descriptor.swizzle,
          descriptor.base_offset);
    });
    block_.scheduler.stop();
  }

  void read(uint32_t address, std::byte* chunk) {
    block_.require_valid(address, CHUNK_BYTES, reader_.site, reader_.thread);
    Hazard hazard;
    if (block_.launch.options.check && block_.races.read_async(reader_, address - SMEM_BASE, hazard, judged_))
        [[unlikely]] {
      block_.report_hazard({reader_.first_warp, reader_.thread, reader_.site}, hazard);
      if (hazard.kind == ReportKind::in_flight_read) {
        std::memset(chunk, 0xff, CHUNK_BYTES);
        return;
      }
    }
    std::memcpy(chunk, block_.smem.at(address), CHUNK_BYTES);
  }

  // rows x 32 bytes, row by row.
  void read_k_major(const Descriptor& descriptor, uint32_t rows, std::vector<std::byte>& bytes) {
    bytes.resize(rows * K_BYTES);
    for (uint32_t row = 0; row < rows; ++row) {
      for (uint32_t chunk = 0; chunk < 2; ++chunk)
        read(descriptor.chunk(row, chunk, 0), &bytes[row * K_BYTES + chunk * CHUNK_BYTES]);
    }
  }
  // 16 x columns of 16-bit elements, row by row.
  void read_mn_major(const Descriptor& descriptor, uint32_t columns, std::vector<std::byte>& bytes) {
    bytes.resize(K * columns * 2);
    for (uint32_t row = 0; row < K; ++row) {
      for (uint32_t column = 0; column < columns; column += 8)
        read(descriptor.chunk(row, column % 64 / 8, column / 64), &bytes[(row * columns + column) * 2]);
    }
  }

 private:
  Block& block_;
  RaceDetector::Reader reader_;
  RaceDetector::Cell judged_ = 0;
};

// 64 rows of 32 bytes. From registers: FragmentA of each warp's 16 rows.
void read_A(TileReader& reader, const Warpgroup& group, std::vector<std::byte>& bytes) {
  const WgmmaOperands& own = group.in[0];
  if (own.a == nullptr) return reader.read_k_major(reader.decode(own.a_descriptor, "A"), WARPGROUP_ROWS, bytes);
  bytes.resize(WARPGROUP_ROWS * K_BYTES);
  for (uint32_t thread = 0; thread < WARPGROUP_THREADS; ++thread) {
    const uint32_t lane = thread % 32;
    for (uint32_t r = 0; r < 4; ++r) {
      const uint32_t row = thread / 32 * 16 + lane / 4 + r % 2 * 8, at = lane % 4 * 4 + r / 2 * 16;
      std::memcpy(&bytes[row * K_BYTES + at], group.in[thread].a + r, 4);
    }
  }
}

// D += A B, as it lies in shared memory now.
void multiply_tiles(TileReader& reader, Warpgroup& group, std::vector<float>& D) {
  static thread_local std::vector<std::byte> A_bytes, B_bytes;
  static thread_local std::vector<float> A, B, columns;
  const WgmmaOperands& own = group.in[0];
  read_A(reader, group, A_bytes);
  const Descriptor descriptor = reader.decode(own.b_descriptor, "B");
  if (own.trans_b) {
    reader.read_mn_major(descriptor, own.n, B_bytes);
  } else {
    reader.read_k_major(descriptor, own.n, B_bytes);
  }
  if (own.element == ladder::Element::e4m3) {
    multiply_tile_e4m3(A_bytes.data(), B_bytes.data(), D.data(), own.n);
    return;
  }
  if (own.element == ladder::Element::s8) {
    multiply_tile_s8(A_bytes.data(), B_bytes.data(), D.data(), own.n);
    return;
  }
  const ToFloats convert = own.element == ladder::Element::bf16 ? bf16_to_floats : to_floats;
  A.resize(WARPGROUP_ROWS * K);
  B.resize(K * own.n);
  convert(A_bytes.data(), A.data(), WARPGROUP_ROWS * K);
  if (own.trans_b) {
    convert(B_bytes.data(), B.data(), K * own.n);
  } else {
    columns.resize(K * own.n);
    convert(B_bytes.data(), columns.data(), K * own.n);
    for (uint32_t column = 0; column < own.n; ++column) {
      for (uint32_t k = 0; k < K; ++k) B[k * own.n + column] = columns[column * K + k];
    }
  }
  const bool is_rare = own.element == ladder::Element::f16 &&
                       (has_subnormals(A_bytes.data(), A.size()) || has_subnormals(B_bytes.data(), B.size()));
  (is_rare ? multiply_tile_subnormals : multiply_tile)(A.data(), B.data(), D.data(), own.n);
}

// ---- products -------------------------------------------------------------------------------------------------------

uint32_t depth_of(ladder::Element element) {
  return element == ladder::Element::e4m3 || element == ladder::Element::s8 ? K_BYTES : K_BYTES / 2;
}

void require_agreement(SiteId site, const Warpgroup& group) {
  const WgmmaOperands& first = group.in[0];
  for (uint32_t thread = 1; thread < WARPGROUP_THREADS; ++thread) {
    const WgmmaOperands& own = group.in[thread];
    const bool same_tile = group.tile_of[thread] == group.tile_of[0];
    if (same_tile && own.n == first.n && own.a_descriptor == first.a_descriptor &&
        own.b_descriptor == first.b_descriptor && own.accumulate == first.accumulate)
      continue;
    Block& block = *current.block;
    block.report({ReportKind::divergent_collective, site}, [&] {
      const uint32_t base = current.thread() / WARPGROUP_THREADS * WARPGROUP_THREADS;
      return fmt::format("{}: {} and {} disagree about {}", block.wording.at(site), Wording::thread_name(base),
                         Wording::thread_name(base + thread),
                         same_tile ? "descriptors or scale-d" : "which accumulators are in flight");
    });
    block.scheduler.stop();
  }
}

void multiply_as_warpgroup(Instruction instruction, const CallSite& call) {
  Block& block = *current.block;
  Warpgroup& group = own_group();
  const SiteId site = block.counting.site_id(instruction, call);
  require_agreement(site, group);
  const WgmmaOperands& own = group.in[0];
  group.tile = group.tile_of[0];
  const bool is_new = group.tile < 0;
  if (is_new) {
    const auto unused =
        std::find_if(group.tiles.begin(), group.tiles.end(), [](const auto& t) { return t.pending == 0; });
    group.tile = static_cast<int>(unused - group.tiles.begin());
    if (unused == group.tiles.end()) group.tiles.emplace_back();
  }
  Warpgroup::Tile& tile = group.tiles[static_cast<size_t>(group.tile)];
  if (is_new) {
    tile.pending = WARPGROUP_THREADS;
    tile.values.resize(size_t{WARPGROUP_ROWS} * own.n);
  }
  if (!own.accumulate) {
    std::fill(tile.values.begin(), tile.values.end(), 0.0f);
  } else if (is_new) {
    for (uint32_t thread = 0; thread < WARPGROUP_THREADS; ++thread) {
      for (uint32_t i = 0; i < own.n / 2; i += 2)
        std::memcpy(&tile.values[place_in_tile(thread, i, own.n)], group.in[thread].d + i, 2 * sizeof(float));
    }
  }
  tile.last = ++group.products;
  const uint32_t first_warp = current.warp->id / 4 * 4;
  for (uint32_t i = 0; i < 4; ++i)
    block.counting.counters.products_after_exponentials += block.warps[first_warp + i].start_product();
  tile.site = site;
  ++block.counting.counters.wgmma;
  block.counting.counters.wgmma_flops += uint64_t{2} * WARPGROUP_ROWS * own.n * depth_of(own.element);
  TileReader reader(block, site, group.products);
  multiply_tiles(reader, group, tile.values);
}

}  // namespace

// ---- scheduling -----------------------------------------------------------------------------------------------------

void Scheduler::wake_warpgroup(uint32_t group) {
  block.warpgroups[group].arrived = 0;
  for (uint32_t i = group * 4; i < group * 4 + 4; ++i) {
    block.warps[i].arrived = 0;
    block.warps[i].ready = block.warps[i].live;
  }
}

void Scheduler::grant_registers() {
  std::erase_if(register_waits, [&](const RegisterWait& each) {
    Warpgroup& group = block.warpgroups[each.warpgroup];
    const uint32_t wanted = (each.registers - group.registers) * WARPGROUP_THREADS;
    if (wanted > free_registers) return false;
    free_registers -= wanted;
    block.counting.counters.taken_registers += wanted;
    group.registers = each.registers;
    wake_warpgroup(each.warpgroup);
    return true;
  });
}

}  // namespace emulator

inline namespace emulated {

using namespace emulator;

void wgmma(const WgmmaOperands& operands, CallSite call) {
  Block& block = *current.block;
  block.scheduler.begin_only();
  const bool in_shared = operands.a == nullptr;
  const Instruction instruction = operands.element == ladder::Element::s8 ? Instruction::wgmma_ss_s8
                                  : operands.element == ladder::Element::e4m3
                                      ? (in_shared ? Instruction::wgmma_ss_e4m3 : Instruction::wgmma_rs_e4m3)
                                  : operands.element == ladder::Element::bf16
                                      ? (in_shared ? Instruction::wgmma_ss_bf16 : Instruction::wgmma_rs_bf16)
                                      : (in_shared ? Instruction::wgmma_ss : Instruction::wgmma_rs);
  const uint32_t thread = current.thread(), bytes = operands.n * 2;
  const SiteId site = block.counting.site_id(instruction, call);
  if (thread / WARPGROUP_THREADS >= block.warpgroups.size()) incomplete_group(site);
  Warpgroup& group = own_group();
  WgmmaThread& own = current.state().wgmma;
  int tile = -1;
  for (const WgmmaThread::Accumulators& each : own.accumulators) {
    if (!overlap(each.d, each.n * 2, operands.d, bytes)) continue;
    if (each.d == operands.d && each.n == operands.n) {
      tile = static_cast<int>(each.tile);
      continue;
    }
    report_registers(ReportKind::registers_in_flight, site, group.tiles[each.tile].site,
                     [] { return "its accumulators are in flight in a product of another shape"; });
  }
  if (block.launch.options.check) {
    if (tile < 0) require_handed(site, operands.d, bytes, "its accumulators");
    if (operands.a != nullptr) require_handed(site, operands.a, 16, "its A registers");
  }
  if (is_at_rest(group, *current.warp)) end_rest(own);
  if (tile < 0) count_correction(own, operands);
  group.in[thread % WARPGROUP_THREADS] = operands;
  group.tile_of[thread % WARPGROUP_THREADS] = tile;
  meet_as_warpgroup(instruction, call, [&] {
    multiply_as_warpgroup(instruction, call);
    return true;
  });
  if (tile < 0) {
    own.accumulators.push_back({operands.d, operands.n, static_cast<uint32_t>(group.tile)});
    std::fill_n(operands.d, operands.n / 2, std::bit_cast<float>(IN_FLIGHT_BITS));
  }
  if (operands.a != nullptr && block.launch.options.check) {
    auto& operand = own.operands.emplace_back();
    operand = {operands.a, {}, group.products, site};
    std::copy_n(operands.a, 4, operand.values.begin());
  }
}

void wgmma_fence(WgmmaRegisters a, WgmmaRegisters b, WgmmaRegisters c, WgmmaRegisters d, CallSite call) {
  Block& block = *current.block;
  meet(Instruction::wgmma_fence, call, [&](Block&, Warp&) {
    if (block.counting.tracing) block.counting.trace_event(Instruction::wgmma_fence, call);
  });
  if (!block.launch.options.check) return;
  const SiteId site = block.counting.site_id(Instruction::wgmma_fence, call);
  for (const WgmmaRegisters& registers : {a, b, c, d}) {
    if (registers.begin == nullptr) continue;
    require_landed(site, registers);
    hand_over(registers);
  }
}

void wgmma_commit(CallSite call) {
  meet(Instruction::wgmma_commit, call, [&](Block& block, Warp& warp) {
    if (block.counting.tracing) block.counting.trace_event(Instruction::wgmma_commit, call);
    if (warp.id / 4 >= block.warpgroups.size()) return;
    Warpgroup& group = block.warpgroups[warp.id / 4];
    group.group_ends[warp.id % 4].push_back(group.products);
  });
}

void wgmma_wait_pending(uint32_t pending, const WgmmaRegisters (&registers)[4], CallSite call) {
  Block& block = *current.block;
  meet(Instruction::wgmma_wait, call, [&](Block&, Warp& warp) {
    if (block.counting.tracing)
      block.counting.trace_event(Instruction::wgmma_wait, call).operand = static_cast<int>(pending);
    if (warp.id / 4 >= block.warpgroups.size()) return;
    Warpgroup& group = block.warpgroups[warp.id / 4];
    auto& ends = group.group_ends[warp.id % 4];
    uint64_t& over = group.over[warp.id % 4];
    if (ends.size() > pending) {
      const auto kept = ends.end() - pending;
      over = *(kept - 1);
      ends.erase(ends.begin(), kept);
      if (block.launch.options.check) block.races.know_reads(warp.id, static_cast<uint32_t>(over));
    }
    if (warp.id % 4 != 0) return;  // a warpgroup's products are counted once
    const auto left = group.count_left(warp.together + warp.progress[0].steps, warp.lanes[0].exponentials);
    block.counting.counters.wgmma_left_running += left.running;
    block.counting.counters.wgmma_beside_exponentials += left.beside_exponentials;
  });
  if (current.thread() / WARPGROUP_THREADS >= block.warpgroups.size()) return;
  const SiteId site = block.counting.site_id(Instruction::wgmma_wait, call);
  fetch_results(site, own_group().over[current.warp->id % 4]);
  if (is_at_rest(own_group(), *current.warp)) note_rest(current.state().wgmma);
  if (!block.launch.options.check) return;
  for (const WgmmaRegisters& each : registers) {
    if (each.begin != nullptr) require_landed(site, each);
  }
}

void setmaxnreg(uint32_t count, bool takes, CallSite call) {
  Block& block = *current.block;
  const Instruction instruction = takes ? Instruction::setmaxnreg_inc : Instruction::setmaxnreg_dec;
  const SiteId site = block.counting.site_id(instruction, call);
  if (current.thread() / WARPGROUP_THREADS >= block.warpgroups.size()) incomplete_group(site);
  meet_as_warpgroup(instruction, call, [&] {
    Warpgroup& group = own_group();
    if (takes ? count < group.registers : count > group.registers) {
      block.report({ReportKind::register_budget, site}, [&] {
        return fmt::format("{} by {}: to {} registers per thread, but it has {}", block.wording.at(site),
                           group_name(current.thread()), count, group.registers);
      });
      return true;
    }
    if (takes) {
      block.scheduler.register_waits.push_back({current.thread() / WARPGROUP_THREADS, count});
      block.scheduler.grant_registers();
      return group.registers == count;
    }
    block.scheduler.free_registers += (group.registers - count) * WARPGROUP_THREADS;
    group.registers = count;
    block.scheduler.grant_registers();
    return true;
  });
}

}  // namespace emulated
