// Loads, stores and cp.async.
#include <fmt/format.h>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include "common/emulator/block.hpp"

namespace emulator {
namespace {

template <class T>
T nan_pattern() {
  T value;
  std::memset(&value, 0xff, sizeof value);
  return value;
}

RaceDetector::Actor actor(SiteId site) {
  return {current.warp->id, current.thread(), site};
}

// ---- shared memory ------------------------------------------------------------------------------------------------

template <class T>
SiteId begin_shared(Instruction instruction, const CallSite& call, uint32_t address) {
  Block& block = *current.block;
  step(instruction, call);
  const SiteId site = block.counting.site_id(instruction, call);
  block.require_valid(address, sizeof(T), site, current.thread());
  if (block.launch.options.count) block.counting.log_access(address, site);
  if (block.counting.tracing) {
    TraceEvent& event = block.counting.trace_lane_event(instruction, call);
    event.bytes += sizeof(T);
    block.counting.trace_shared(event, address, sizeof(T));
  }
  return site;
}

template <class T>
T load_shared(Instruction instruction, const CallSite& call, uint32_t address) {
  Block& block = *current.block;
  const SiteId site = begin_shared<T>(instruction, call, address);
  if (!block.check_read(actor(site), address, sizeof(T))) return nan_pattern<T>();
  T value;
  std::memcpy(&value, block.smem.at(address), sizeof value);
  return value;
}

template <class T>
void store_shared(Instruction instruction, const CallSite& call, uint32_t address, const T& value) {
  Block& block = *current.block;
  const SiteId site = begin_shared<T>(instruction, call, address);
  block.check_write(actor(site), address, sizeof(T));
  std::memcpy(block.smem.at(address), &value, sizeof value);
}

// ---- global memory ------------------------------------------------------------------------------------------------

void report_global(ReportKind kind, Instruction instruction, const CallSite& call, const void* address, uint32_t bytes,
                   uint32_t alignment, const Device::Buffer* buffer) {
  Block& block = *current.block;
  const auto& buffers = block.launch.buffers;
  const SiteId site = block.counting.site_id(instruction, call);
  // The nearest buffer below names an address outside all of them.
  const auto* const byte = static_cast<const std::byte*>(address);
  for (const Device::Buffer& other : buffers) {
    if (kind != ReportKind::global_out_of_bounds || other.begin > byte) continue;
    if (buffer == nullptr || other.begin > buffer->begin) buffer = &other;
  }
  block.report({kind, site, NO_SITE, buffer == nullptr ? "" : buffer->name}, [&] {
    const std::string self = fmt::format("{} by {}", block.wording.at(site), Wording::thread_name(current.thread()));
    const std::string place = buffer == nullptr ? fmt::format("address {}, below every buffer", fmt::ptr(address))
                                                : fmt::format("{}+{} ({} has {} bytes)", buffer->name,
                                                              byte - buffer->begin, buffer->name, buffer->bytes);
    if (kind == ReportKind::global_misaligned)
      return fmt::format("misaligned global access: {} at {} is not aligned to {} bytes", self, place, alignment);
    if (kind == ReportKind::global_read_only) return fmt::format("write to a read-only buffer: {} at {}", self, place);
    return fmt::format("global access outside every buffer: {} of {} bytes at {}", self, bytes, place);
  });
}

// Where the bytes at `address` lie.
const std::byte* in_memory(const Device::Buffer* buffer, const void* address) {
  const auto* const byte = static_cast<const std::byte*>(address);
  return buffer == nullptr ? byte : buffer->memory + (byte - buffer->begin);
}

// Where the bytes lie; null: the access must not be carried out.
inline const std::byte* begin_global(Instruction instruction, const CallSite& call, const void* address, uint32_t bytes,
                                     GlobalUse use, GlobalUse counted_as) {
  Block& block = *current.block;
  step(instruction, call);
  ++block.counting.counters.gmem_accesses;
  block.counting.counters.*gmem_bytes(counted_as) += bytes;
  const Device::Buffer* buffer = nullptr;
  if (!block.launch.buffers.empty()) {
    buffer = block.checked_buffer(instruction, call, address, bytes, bytes, use != GlobalUse::read);
    if (buffer == nullptr) return nullptr;
    if (block.is_ordered_memory(*buffer) || block.launch.options.begun)
      block.note_global(block.counting.site_id(instruction, call), *buffer, address, bytes, use);
  }
  if (block.counts_sectors()) block.counting.log_global(address, buffer, block.counting.site_id(instruction, call));
  if (block.counting.tracing) {
    TraceEvent& event = block.counting.trace_lane_event(instruction, call);
    event.bytes += bytes;
    Counting::trace_global(event, buffer, address, bytes);
  }
  return in_memory(buffer, address);
}

inline const std::byte* begin_global(Instruction instruction, const CallSite& call, const void* address, uint32_t bytes,
                                     GlobalUse use) {
  return begin_global(instruction, call, address, bytes, use, use);
}

template <class T>
T load_global(Instruction instruction, const CallSite& call, const void* address) {
  const std::byte* const from = begin_global(instruction, call, address, sizeof(T), GlobalUse::read);
  if (from == nullptr) return nan_pattern<T>();
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void store_global(Instruction instruction, const CallSite& call, void* address, const T& value) {
  const std::byte* const to = begin_global(instruction, call, address, sizeof(T), GlobalUse::write);
  if (to != nullptr) std::memcpy(const_cast<std::byte*>(to), &value, sizeof value);
}

}  // namespace

void add_f32(const std::byte* address, float value, bool flushes) {
  const auto flushed = [&](float x) { return flushes && std::abs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; };
  std::atomic_ref<float> sum(*reinterpret_cast<float*>(const_cast<std::byte*>(address)));
  float known = sum.load(std::memory_order_relaxed);
  while (!sum.compare_exchange_weak(known, flushed(flushed(known) + flushed(value)), std::memory_order_relaxed)) {
  }
}

const Device::Buffer* Block::checked_buffer(Instruction instruction, const CallSite& call, const void* address,
                                            uint32_t bytes, uint32_t alignment, bool is_write) {
  const auto* const byte = static_cast<const std::byte*>(address);
  for (const Device::Buffer& buffer : launch.buffers) {
    const auto offset = static_cast<size_t>(byte - buffer.begin);  // wraps to a large number below the buffer
    if (offset >= buffer.bytes || bytes > buffer.bytes - offset) continue;
    if ((reinterpret_cast<uintptr_t>(address) & (alignment - 1)) != 0) {
      report_global(ReportKind::global_misaligned, instruction, call, address, bytes, alignment, &buffer);
      return nullptr;
    }
    if (is_write && buffer.access == Access::read_only) {
      report_global(ReportKind::global_read_only, instruction, call, address, bytes, alignment, &buffer);
      return nullptr;
    }
    return &buffer;
  }
  report_global(ReportKind::global_out_of_bounds, instruction, call, address, bytes, alignment, nullptr);
  return nullptr;
}

void Block::report_global_order(const Device::Buffer& buffer, const RaceDetector::Actor& actor,
                                const GlobalOrder::Access& access, const GlobalOrder::Fault& fault) {
  const GlobalOrder::Access& earlier = fault.earlier;
  const SiteId other = RaceDetector::site_of(earlier.cell);
  report({fault.kind, actor.site, other, buffer.name}, [&] {
    const char* what = "missing proxy fence";
    std::string until;
    switch (fault.kind) {
      case ReportKind::in_flight_read:
        what = "read of data in flight";
        break;
      case ReportKind::in_flight_overwrite:
        what = "write over data in flight";
        break;
      case ReportKind::race_read_after_write:
        what = "race, read after write without a barrier";
        break;
      case ReportKind::race_write_after_read:
        what = "race, write after read without a barrier";
        break;
      case ReportKind::race_write_after_write:
        what = "race, write after write without a barrier";
        break;
      default:
        until = ", and no fence_proxy_async between them has told the copy engine";
    }
    if (earlier.in_flight) until = ", and no cp_async_bulk_wait has said that it is there";
    constexpr const char *DOES[] = {"reads", "writes", "adds to"}, *DONE[] = {"read", "written", "added to"};
    return fmt::format("{}: {} by {} {} {}+{}, {} by {} by {}{}", what, wording.at(actor.site),
                       wording.actor_name(actor.site, actor.thread), DOES[static_cast<int>(access.use)], buffer.name,
                       std::max(access.first, earlier.first) - buffer.begin, DONE[static_cast<int>(earlier.use)],
                       wording.at(other), wording.actor_name(other, races.thread_of(earlier.cell)), until);
  });
}

void Block::note_beside_launch_before(const RaceDetector::Actor& actor, const Device::Buffer& buffer,
                                      const std::byte* first, uint32_t bytes, GlobalUse use) {
  if (knows_launch_before(actor)) return;
  const auto offset = static_cast<uint64_t>(first - buffer.begin);
  const auto other = launch.before->touched(buffer, offset, bytes, use != GlobalUse::read);
  if (!other) return;
  const SiteId there = counting.site_id(other->site.instruction, other->site.call);
  report({ReportKind::race_between_blocks, actor.site, there, buffer.name}, [&] {
    return fmt::format(
        "race between launches: {} by {} touches {}+{}, as does {} of the launch before, and no griddepcontrol_wait "
        "has said that it is over",
        wording.at(actor.site), wording.actor_name(actor.site, actor.thread), buffer.name, offset, wording.at(there));
  });
}

void Block::note_sum(SiteId site, const Device::Buffer& buffer, const void* address, uint32_t bytes,
                     std::optional<size_t> by_engine) {
  if (!launch.options.ordered_sums || !is_ordered_memory(buffer)) return;
  const RaceDetector::Actor actor{current.warp->id, current.thread(), site};
  const Sums known = sums.known_to(actor, linear_index);
  const Turns::Adder own{linear_index, actor.thread, sums.add(actor, by_engine), counting.sites[site]};
  const auto* const first = static_cast<const std::byte*>(address);
  const std::optional<Turns::Adder> other = launch.turns.add_to(first, bytes, own, known);
  if (!other) return;
  const SiteId there = counting.site_id(other->site.instruction, other->site.call);
  report({ReportKind::unordered_sums, site, there, buffer.name}, [&] {
    return fmt::format(
        "sums without an order: {} by {} adds to {}+{} after {} by thread {} of {}, and nothing says that this "
        "addition is "
        "there by then: a cp_async_bulk_wait, not that for the reading, and between blocks a release after it and an "
        "acquire",
        wording.at(site), wording.actor_name(site, actor.thread), buffer.name, first - buffer.begin, wording.at(there),
        other->thread, Wording::block_name(launch.grid, other->block));
  });
}

void Block::land_copies(uint32_t thread, size_t count) {
  Lane& lane = warps[thread / 32].lanes[thread % 32];
  const size_t tracked = lane.arrivals.empty() ? 0 : lane.arrivals.back().copies;
  for (size_t i = 0; i < count; ++i) {
    const Copy& copy = lane.copies[i];
    if (copy.readable) {
      if (copy.bytes > 0) std::memcpy(smem.at(copy.to), copy.from, copy.bytes);
      std::memset(smem.at(copy.to) + copy.bytes, 0, copy.size - copy.bytes);
    }
    if (launch.options.check) races.land({thread / 32, thread, copy.site}, copy.to - SMEM_BASE, copy.size, i < tracked);
  }
  lane.copies.erase(lane.copies.begin(), lane.copies.begin() + static_cast<ptrdiff_t>(count));
  for (size_t& end : lane.group_ends) end -= std::min(end, count);
  while (!lane.arrivals.empty() && lane.arrivals.front().copies <= count) {
    const Arrival arrival = lane.arrivals.front();
    lane.arrivals.erase(lane.arrivals.begin());
    mbarriers.arrive_after_copies(thread, arrival);
  }
  for (Arrival& arrival : lane.arrivals) arrival.copies -= count;
}

}  // namespace emulator

inline namespace emulated {

using namespace emulator;

uint32_t smem_base() {
  return SMEM_BASE;
}
void smem_name(uint32_t address, uint32_t bytes, const char* name, uint32_t row_bytes) {
  current.block->smem.name(address, bytes, name, row_bytes);
}

uint32_t ld_shared_b32(uint32_t address, CallSite site) {
  return load_shared<uint32_t>(Instruction::ld_shared_b32, site, address);
}
uint2 ld_shared_v2(uint32_t address, CallSite site) {
  return load_shared<uint2>(Instruction::ld_shared_v2, site, address);
}
uint4 ld_shared_v4(uint32_t address, CallSite site) {
  return load_shared<uint4>(Instruction::ld_shared_v4, site, address);
}
void st_shared_b32(uint32_t address, uint32_t value, CallSite site) {
  store_shared(Instruction::st_shared_b32, site, address, value);
}
void st_shared_v2(uint32_t address, uint2 value, CallSite site) {
  store_shared(Instruction::st_shared_v2, site, address, value);
}
void st_shared_v4(uint32_t address, uint4 value, CallSite site) {
  store_shared(Instruction::st_shared_v4, site, address, value);
}

f16 ld_global_f16(const f16* address, CallSite site) {
  return load_global<f16>(Instruction::ld_global_f16, site, address);
}
bf16 ld_global_bf16(const bf16* address, CallSite site) {
  return load_global<bf16>(Instruction::ld_global_bf16, site, address);
}
float ld_global_f32(const float* address, CallSite site) {
  return load_global<float>(Instruction::ld_global_f32, site, address);
}
int32_t ld_global_s32(const int32_t* address, CallSite site) {
  return load_global<int32_t>(Instruction::ld_global_s32, site, address);
}
uint32_t ld_global_b32(const void* address, CallSite site) {
  return load_global<uint32_t>(Instruction::ld_global_b32, site, address);
}
uint4 ld_global_v4(const void* address, CallSite site) {
  return load_global<uint4>(Instruction::ld_global_v4, site, address);
}
void st_global_f16(f16* address, f16 value, CallSite site) {
  store_global(Instruction::st_global_f16, site, address, value);
}
void st_global_bf16(bf16* address, bf16 value, CallSite site) {
  store_global(Instruction::st_global_bf16, site, address, value);
}
void st_global_f32(float* address, float value, CallSite site) {
  store_global(Instruction::st_global_f32, site, address, value);
}
void st_global_b32(void* address, uint32_t value, CallSite site) {
  store_global(Instruction::st_global_b32, site, address, value);
}
void st_global_v4(void* address, uint4 value, CallSite site) {
  store_global(Instruction::st_global_v4, site, address, value);
}

void red_global_add_f32(float* address, float value, CallSite site) {
  const std::byte* const to = begin_global(Instruction::red_global_add_f32, site, address, 4, GlobalUse::reduction);
  if (to == nullptr) return;
  Block& block = *current.block;
  if (block.launch.options.ordered_sums && !block.launch.buffers.empty()) {
    const SiteId own = block.counting.site_id(Instruction::red_global_add_f32, site);
    const Device::Buffer* const buffer =
        block.checked_buffer(Instruction::red_global_add_f32, site, address, 4, 4, true);
    block.note_sum(own, *buffer, address, 4, std::nullopt);
  }
  add_f32(to, value, true);
}

// ---- words that blocks wait for -----------------------------------------------------------------------------------

namespace {

uint32_t add(uint32_t before, uint32_t value) {
  return before + value;
}
uint32_t increment(uint32_t before, uint32_t limit) {
  return before >= limit ? 0 : before + 1;
}

// What was there; all ones if it must not be touched.
uint32_t change_u32(Instruction instruction, const CallSite& call, uint32_t* address, Turns::Next* next,
                    uint32_t operand) {
  give_way();
  const std::byte* const to = begin_global(instruction, call, address, 4, GlobalUse::reduction);
  if (to == nullptr) return nan_pattern<uint32_t>();
  Block& block = *current.block;
  auto* const word = reinterpret_cast<uint32_t*>(const_cast<std::byte*>(to));
  Sums known;
  if (instruction == Instruction::red_release_add_u32) {
    if (block.launch.options.check) known = block.released(block.counting.site_id(instruction, call));
    return block.launch.turns.change(word, next, operand, known);
  }
  const auto fenced = block.fenced.find(current.thread());
  if (fenced != block.fenced.end()) known = fenced->second.hands_on;
  const uint32_t before = block.launch.turns.change(word, next, operand, known);
  if (!known.empty()) join(block.fenced[current.thread()].finds, known);
  return before;
}

}  // namespace

uint32_t atom_global_add_u32(uint32_t* address, uint32_t value, CallSite site) {
  return change_u32(Instruction::atom_global_add_u32, site, address, add, value);
}
uint32_t atom_global_inc_u32(uint32_t* address, uint32_t limit, CallSite site) {
  return change_u32(Instruction::atom_global_inc_u32, site, address, increment, limit);
}
void red_release_add_u32(uint32_t* address, uint32_t value, CallSite site) {
  change_u32(Instruction::red_release_add_u32, site, address, add, value);
}

void fence_acq_rel_gpu(CallSite site) {
  constexpr Instruction SELF = Instruction::fence_acq_rel_gpu;
  Block& block = *current.block;
  step(SELF, site);
  if (block.counting.tracing) block.counting.trace_lane_event(SELF, site);
  if (!block.launch.options.check) return;
  const SiteId own = block.counting.site_id(SELF, site);
  Block::Fenced& fenced = block.fenced[current.thread()];
  if (!fenced.finds.empty()) block.acquire(actor(own), fenced.finds);
  fenced = {block.released(own), {}};
}

// However often it looks, it counts once.
void ld_acquire_wait_u32(const uint32_t* address, uint32_t value, CallSite site) {
  constexpr Instruction SELF = Instruction::ld_acquire_wait_u32;
  give_way();
  const std::byte* const from = begin_global(SELF, site, address, 4, GlobalUse::reduction, GlobalUse::read);
  if (from == nullptr) return;
  Block& block = *current.block;
  Lane& lane = current.state();
  current.warp->note_wait(current.lane);
  lane.waits_in = SELF;
  lane.waits_at = site;
  current.warp->ready &= ~(1u << current.lane);
  block.cluster.word_waits.push_back(
      {current.warp, current.lane, reinterpret_cast<const uint32_t*>(from), value, block.counting.site_id(SELF, site)});
  wait();
}

// ---- cp.async -----------------------------------------------------------------------------------------------------

namespace {

template <uint32_t BYTES>
void start_cp_async(uint32_t shared_address, const void* global_address, uint32_t bytes, const CallSite& call) {
  constexpr Instruction SELF = BYTES == 16 ? Instruction::cp_async_16 : Instruction::cp_async_4;
  Block& block = *current.block;
  step(SELF, call);
  const SiteId site = block.counting.site_id(SELF, call);
  block.require_valid(shared_address, BYTES, site, current.thread());
  ++block.counting.counters.cp_async;
  block.counting.counters.gmem_bytes_read += bytes;
  const Device::Buffer* buffer = nullptr;
  bool readable = bytes <= BYTES;
  if (!readable) report_global(ReportKind::global_out_of_bounds, SELF, call, global_address, bytes, BYTES, nullptr);
  if (readable && bytes > 0 && !block.launch.buffers.empty()) {
    buffer = block.checked_buffer(SELF, call, global_address, bytes, BYTES, false);
    readable = buffer != nullptr;
  }
  if (buffer != nullptr) block.note_global(site, *buffer, global_address, bytes, GlobalUse::read);
  if (block.counts_sectors() && bytes > 0) block.counting.log_global(global_address, buffer, site);
  Hazard hazard;
  if (block.launch.options.check && block.races.issue(actor(site), shared_address - SMEM_BASE, BYTES, hazard))
    block.report_hazard(actor(site), hazard);
  std::memset(block.smem.at(shared_address), 0xff, BYTES);
  Lane& lane = current.state();
  lane.copies.push_back({shared_address, site, in_memory(buffer, global_address), BYTES, bytes, readable,
                         current.warp->products, lane.exponentials});
  if (block.counting.tracing) {
    TraceEvent& event = block.counting.trace_lane_event(SELF, call);
    event.bytes += BYTES;
    block.counting.trace_shared(event, shared_address, BYTES);
    Counting::trace_global(event, buffer, global_address, bytes);
  }
}

}  // namespace

void cp_async_16(uint32_t shared_address, const void* global_address, CallSite call) {
  start_cp_async<16>(shared_address, global_address, 16, call);
}
void cp_async_16(uint32_t shared_address, const void* global_address, uint32_t bytes, CallSite call) {
  start_cp_async<16>(shared_address, global_address, bytes, call);
}
void cp_async_4(uint32_t shared_address, const void* global_address, uint32_t bytes, CallSite call) {
  start_cp_async<4>(shared_address, global_address, bytes, call);
}

void cp_async_commit(CallSite site) {
  Lane& lane = current.state();
  step(Instruction::cp_async_commit, site);
  lane.group_ends.push_back(lane.copies.size());
  if (current.block->counting.tracing) current.block->counting.trace_lane_event(Instruction::cp_async_commit, site);
}

void cp_async_wait_pending(int pending, CallSite site) {
  Block& block = *current.block;
  Lane& lane = current.state();
  step(Instruction::cp_async_wait, site);
  if (block.counting.tracing) block.counting.trace_lane_event(Instruction::cp_async_wait, site).operand = pending;
  const size_t groups = lane.group_ends.size();
  current.warp->note_wait(current.lane);
  if (groups <= static_cast<size_t>(pending)) return;
  const auto kept = lane.group_ends.begin() + static_cast<ptrdiff_t>(groups - static_cast<size_t>(pending));
  const size_t landed = *(kept - 1);
  lane.group_ends.erase(lane.group_ends.begin(), kept);
  for (size_t i = 0; i < landed; ++i) {
    const Copy& copy = lane.copies[i];
    if (copy.is_tracked) continue;
    block.counting.counters.products_under_copies += current.warp->products - copy.products;
    block.counting.counters.exponentials_under_copies += lane.exponentials - copy.exponentials;
  }
  block.land_copies(current.thread(), landed);
  lane.has_waited = true;
  if (block.launch.options.check && !block.mbarriers.by_address.empty()) block.races.see_copies(current.thread());
}

}  // namespace emulated
