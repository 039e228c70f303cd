#include "common/emulator/counting.hpp"

#include <algorithm>
#include <string>
#include <string_view>

#include "common/emulator/scheduler.hpp"

namespace emulator {

// ---- wavefronts of plain loads and stores -------------------------------------------------------------------------

void Counting::log_access(uint32_t address, SiteId site) {
  // A lane that is far ahead of its warp lets the others catch up, so that logs stay short and line up.
  constexpr size_t CAPACITY = 1024;
  Warp& warp = *current.warp;
  const auto has_room = [&](uint32_t lane) { return warp.lanes[lane].accesses.size() < CAPACITY; };
  while (!has_room(current.lane)) {
    uint32_t behind = current.lane;
    do behind = Warp::next_after(behind, warp.ready);
    while (behind != current.lane && !has_room(behind));
    if (behind == current.lane) {
      count_accesses(warp);
    } else {
      switch_to(warp, behind);
    }
  }
  current.state().accesses.push_back({address, site});
}

namespace {

// Sectors of 32 bytes, by their numbers.
uint64_t touched(const uint32_t (&sectors)[32], uint32_t active) {
  uint32_t numbers[32], count = 0;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if (active >> lane & 1) numbers[count++] = sectors[lane];
  }
  std::sort(numbers, numbers + count);
  return static_cast<uint64_t>(std::unique(numbers, numbers + count) - numbers);
}

}  // namespace

void Counting::count_accesses(Warp& warp) {
  std::array<size_t, 32> next = {};
  const auto pending = [&](uint32_t lane) { return next[lane] < warp.lanes[lane].accesses.size(); };
  const auto next_of = [&](uint32_t lane) { return warp.lanes[lane].accesses[next[lane]]; };
  // Another lane does something else first and comes to `site` later: it is still in the branch or loop before it.
  const auto others_come_to = [&](SiteId site) {
    constexpr size_t LOOK_AHEAD = 64;
    for (uint32_t lane = 0; lane < 32; ++lane) {
      if (!pending(lane) || next_of(lane).site == site) continue;
      const auto& accesses = warp.lanes[lane].accesses;
      const size_t end = std::min(accesses.size(), next[lane] + LOOK_AHEAD);
      for (size_t i = next[lane]; i < end; ++i) {
        if (accesses[i].site == site) return true;
      }
    }
    return false;
  };
  for (;;) {
    constexpr uint32_t NONE = 32;
    uint32_t leader = NONE;
    for (uint32_t lane = 0; lane < 32; ++lane) {
      if (!pending(lane)) continue;
      if (leader == NONE) leader = lane;
      if (others_come_to(next_of(lane).site)) continue;
      leader = lane;
      break;
    }
    if (leader == NONE) break;
    // Lanes whose next access was issued from the same place take part in the same request.
    const SharedAccess request = next_of(leader);
    uint32_t addresses[32] = {};
    uint32_t active = 0;
    for (uint32_t lane = 0; lane < 32; ++lane) {
      if (!pending(lane) || next_of(lane).site != request.site) continue;
      addresses[lane] = next_of(lane).address;
      active |= 1u << lane;
      ++next[lane];
    }
    const InstructionInfo& instruction = info(sites[request.site].instruction);
    if (is_global(sites[request.site].instruction)) {
      counters.gmem_sectors += touched(addresses, active);
      continue;
    }
    count_wavefronts(request.site, request.address,
                     request_wavefronts(addresses, active, instruction.bytes, instruction.is_load));
  }
  for (Lane& lane : warp.lanes) lane.accesses.clear();
}

// ---- trace ----------------------------------------------------------------------------------------------------------

TraceEvent& Counting::trace_event(Instruction instruction, const CallSite& call) {
  TraceEvent& event = trace.emplace_back();
  event.launch = launch;
  event.warp = static_cast<int>(current.warp->id);
  event.sequence = trace.size() - 1;
  event.instruction = info(instruction).name;
  event.file = call.file;
  event.line = static_cast<int>(call.line);
  return event;
}

TraceEvent& Counting::trace_lane_event(Instruction instruction, const CallSite& call) {
  LaneEvents& known = lane_events[{current.warp->id, site_id(instruction, call)}];
  const size_t time = known.next[current.lane]++;
  if (time < known.events.size()) return trace[known.events[time]];
  known.events.push_back(trace.size());
  return trace_event(instruction, call);
}

namespace {

void widen(Extent& extent, std::string_view buffer, uint64_t offset, uint64_t bytes) {
  if (extent.buffer.empty()) extent = {std::string(buffer), offset, 0};
  const uint64_t first = std::min(extent.offset, offset),
                 behind = std::max(extent.offset + extent.bytes, offset + bytes);
  extent.offset = first;
  extent.bytes = behind - first;
}

}  // namespace

void Counting::trace_shared(TraceEvent& event, uint32_t address, uint32_t bytes) const {
  const Region& region = smem.region_at(address);
  if (event.shared.buffer.empty() || event.shared.buffer == region.name)
    widen(event.shared, region.name, address - SMEM_BASE - region.offset, bytes);
}

void Counting::trace_global(TraceEvent& event, const Device::Buffer* buffer, const void* address, uint32_t bytes) {
  if (buffer == nullptr || (!event.global.buffer.empty() && event.global.buffer != buffer->name)) return;
  widen(event.global, buffer->name, static_cast<uint64_t>(static_cast<const std::byte*>(address) - buffer->begin),
        bytes);
}

}  // namespace emulator
