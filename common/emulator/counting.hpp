// What a block counts and records: the sites of its instructions, the events that Counters has, the wavefronts of each
// site in each part of shared memory (how many a request takes, bank_model.hpp says), and the trace.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>
#include "common/emulator/bank_model.hpp"
#include "common/emulator/emulator.hpp"
#include "common/emulator/shared_memory.hpp"
#include "common/emulator/site.hpp"
#include "common/emulator/warp.hpp"

namespace emulator {

struct SharedTraffic {
  uint64_t requests = 0, taken = 0, ideal = 0;
};

// Of one worker's blocks, those of one rank in their clusters.
struct Counting {
  Counting(int launch_number, const SharedMemory& shared, SiteTable& known)
      : launch(launch_number), smem(shared), sites(known) {}

  SiteId site_id(Instruction instruction, const CallSite& call) {
    const SiteId id = sites.id(instruction, call);
    if (traffic.size() < (id + size_t{1}) * SharedMemory::MAX_REGIONS) [[unlikely]]
      traffic.resize((id + size_t{1}) * SharedMemory::MAX_REGIONS);
    return id;
  }

  // ---- wavefronts
  void count_wavefronts(SiteId site, uint32_t address, Wavefronts wavefronts) {
    SharedTraffic& sum = traffic[site * SharedMemory::MAX_REGIONS + smem.region_number(address)];
    ++sum.requests;
    sum.taken += static_cast<uint64_t>(wavefronts.taken);
    sum.ideal += static_cast<uint64_t>(wavefronts.ideal);
  }
  // Remembers a plain load or store of the running lane: of an address in shared memory, or a sector of global memory.
  void log_access(uint32_t address, SiteId site);
  // A registered buffer begins with a sector.
  void log_global(const void* address, const Device::Buffer* buffer, SiteId site) {
    const auto begin = buffer == nullptr ? 0 : reinterpret_cast<uintptr_t>(buffer->begin) % SECTOR_BYTES;
    log_access(static_cast<uint32_t>((reinterpret_cast<uintptr_t>(address) - begin) / SECTOR_BYTES), site);
  }
  // Puts the lanes' plain loads and stores together into warp requests and counts them.
  void count_accesses(Warp& warp);

  // ---- trace, if `tracing`: one event per warp instruction. Pointers to events are good until the next one.
  TraceEvent& trace_event(Instruction instruction, const CallSite& call);       // for the whole warp
  TraceEvent& trace_lane_event(Instruction instruction, const CallSite& call);  // for the running lane
  void trace_shared(TraceEvent& event, uint32_t address, uint32_t bytes) const;
  static void trace_global(TraceEvent& event, const Device::Buffer* buffer, const void* address, uint32_t bytes);

  static constexpr uintptr_t SECTOR_BYTES = 32;
  int launch;  // its number on its device
  const SharedMemory& smem;
  SiteTable& sites;                    // the cluster's
  Counters counters;                   // its sites stay empty until the launch ends
  std::vector<SharedTraffic> traffic;  // [site][region]
  bool tracing = false;
  std::vector<TraceEvent> trace;
  struct LaneEvents {
    std::vector<size_t> events;        // in `trace`
    std::array<size_t, 32> next = {};  // for each lane, which of them it takes part in next
  };
  std::map<std::pair<uint32_t, SiteId>, LaneEvents> lane_events;  // by warp and place
};

}  // namespace emulator
