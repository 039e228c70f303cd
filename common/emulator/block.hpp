// A thread block at work on one OS thread: its warps, shared memory, barriers, and the scheduler of its fibers.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>
#include "common/emulator/bank_model.hpp"
#include "common/emulator/emulator.hpp"
#include "common/emulator/global_shadow.hpp"
#include "common/emulator/instructions.hpp"
#include "common/emulator/race_detector.hpp"
#include "common/emulator/report_log.hpp"
#include "common/emulator/site.hpp"
#include "common/emulator/tensor_map.hpp"
#include "common/emulator/warp.hpp"

namespace emulator {

struct Block;

// Who runs on this OS thread.
struct Current {
  Block* block = nullptr;
  Warp* warp = nullptr;
  uint32_t lane = 0;
  fiber* suspended = nullptr;  // where the fiber that is being switched away from is to be kept
  bool in_fault = false;       // a signal's report is being made

  uint32_t thread() const { return warp->id * 32 + lane; }
  Lane& state() const { return warp->lanes[lane]; }
};
inline constinit thread_local Current current;

// What is the same for all blocks of a launch.
struct LaunchConfig {
  const Options& options;
  const std::vector<Device::Buffer>& buffers;
  dim3 grid, shape;
  uint32_t smem_bytes;
  void (*body)(const void*);
  const void* kernel;
  int number;          // of the launch on its device
  bool maps_writable;  // a tensor map leads to a buffer that kernels may write
  GlobalShadow& shadow;

  uint32_t threads() const { return shape.x * shape.y * shape.z; }
  uint32_t warps() const { return (threads() + 31) / 32; }
  uint64_t blocks() const { return uint64_t{grid.x} * grid.y * grid.z; }
};

struct NamedBarrier {
  uint32_t expected = 0;  // threads; 0: nobody has come yet
  uint32_t arrived = 0;
  SiteId site = NO_SITE;  // of the first to come
  Known clock = {};
  std::vector<Warp*> waiting;
};

struct BulkCopy {  // a box in flight to shared memory
  uint32_t to;
  TensorMap map;
  std::array<int, 3> first;  // element
  bool readable;             // false: outside the registered buffers, NaN lands
  SiteId site;
  uint32_t thread;  // that has asked for it
};

struct Mbarrier {
  Mbarrier(uint32_t arrivals, uint32_t number_in_block, uint32_t by)
      : count(arrivals), pending(arrivals), number(number_in_block), initialised_by(by) {}

  uint32_t count;    // arrivals that complete a phase
  uint32_t pending;  // of them have yet to come
  uint64_t phase = 0;
  Released released = {};
  Known completed = {};             // what had been released when the last phase completed
  std::vector<uint32_t> waiting;    // threads, for the current phase
  uint32_t woken = 0;               // threads that waited for the last phase and have not run since
  std::vector<uint32_t> in_flight;  // threads whose copies have yet to land before they arrive, oldest first
  std::array<uint32_t, MAX_WARPS> passed = {};  // lanes that know of the last phase
  int64_t pending_bytes = 0;                    // that have yet to land; negative: nobody has expected them
  std::vector<BulkCopy> bulk_copies;            // in flight, oldest first
  uint32_t number;                              // in the order of initialisation
  uint32_t initialised_by;                      // thread
  bool fenced = false;                          // the copy engine knows it
};

struct Region {  // of shared memory
  uint32_t offset;
  uint32_t bytes;
  const char* name;
  uint32_t row_bytes;  // 0: it has no rows
};

// One worker's blocks, one after the other.
struct Block {
  explicit Block(const LaunchConfig& launch_config);
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void run(uint64_t linear_index);

  // ---- scheduling: called by the running lane
  // Lets other lanes run until this one, whose ready bit is clear, has been woken.
  void wait();
  void wait_for_other_warp();
  Warp* next_ready_warp();
  Warp& next_warp();  // ends the launch if no thread can go on
  void switch_to(Warp& warp, uint32_t lane);
  fiber run_lane(fiber&& from);
  void complete_block_barrier();
  [[noreturn]] void deadlock();
  std::string who_waits_where() const;
  // Called now and then by a lane that has just begun an instruction.
  void look(Instruction instruction, const CallSite& call, bool together);
  uint64_t steps(uint32_t thread) const {
    return warps[thread / 32].progress[thread % 32].steps + warps[thread / 32].together;
  }
  void report_endless_loop(const CallSite& call);
  // Where the running lane issued its last instruction; line 0 if it has issued none.
  SourceLine last_line() const;

  // ---- signals: what the running lane has done past the emulator, at machine address `pc`
  [[noreturn]] void plain_access(const void* address, std::string_view what, const void* pc);
  [[noreturn]] void divided_by_zero(const void* pc);
  [[noreturn]] void stuck(const void* pc);  // it executes no emulated instruction any more
  // The line, and "at ..." if it is known exactly, else "after ...", the last instruction's.
  std::pair<SourceLine, std::string> line_of(const void* pc) const;

  // ---- shared memory
  static constexpr uint32_t SMEM_BASE = 1024;  // the first KiB is the system's on the hardware too
  static constexpr uint32_t GRANULE = 8;       // of names: an mbarrier
  static constexpr size_t MAX_REGIONS = 32;

  std::byte* shared(uint32_t address) { return smem.get() + (address - SMEM_BASE); }
  // Ends the launch unless the access is aligned and inside the block's shared memory.
  void require_valid(uint32_t address, uint32_t bytes, uint32_t alignment, SiteId site, uint32_t thread) {
    const uint32_t offset = address - SMEM_BASE;  // wraps to a large number below the base
    if (offset > launch.smem_bytes || bytes > launch.smem_bytes - offset || (address & (alignment - 1)) != 0)
        [[unlikely]]
      bad_address(address, bytes, alignment, site, thread);
  }
  void require_valid(uint32_t address, uint32_t bytes, SiteId site, uint32_t thread) {
    require_valid(address, bytes, bytes, site, thread);
  }
  [[noreturn]] void bad_address(uint32_t address, uint32_t bytes, uint32_t alignment, SiteId site, uint32_t thread);
  uint8_t region_at(uint32_t address) const { return region_of[(address - SMEM_BASE) / GRANULE]; }
  void name_region(uint32_t address, uint32_t bytes, const char* name, uint32_t row_bytes);
  bool is_bulk_copy(SiteId site) const { return sites[site].instruction == Instruction::cp_async_bulk_tensor_3d; }
  // False: the data is in flight for this actor, who must not see it even if it is there.
  bool check_read(const RaceDetector::Actor& actor, uint32_t address, uint32_t bytes) {
    Hazard hazard;
    if (!launch.options.check || !races.read(actor, address - SMEM_BASE, bytes, hazard)) [[likely]]
      return true;
    report_hazard(actor, hazard);
    return hazard.kind != ReportKind::in_flight_read;
  }
  void check_write(const RaceDetector::Actor& actor, uint32_t address, uint32_t bytes) {
    Hazard hazard;
    if (launch.options.check && races.write(actor, address - SMEM_BASE, bytes, hazard)) [[unlikely]]
      report_hazard(actor, hazard);
  }
  void report_hazard(const RaceDetector::Actor& actor, const Hazard& hazard);

  // ---- global memory
  // The registered buffer that holds the access, if the access is right; a report and null otherwise.
  const Device::Buffer* checked_buffer(Instruction instruction, const CallSite& call, const void* address,
                                       uint32_t bytes, uint32_t alignment, bool is_write);
  // Where the byte at an address that has been checked lies.
  const std::byte* global(const std::byte* address) const {
    for (const Device::Buffer& buffer : launch.buffers) {
      const auto offset = static_cast<size_t>(address - buffer.begin);
      if (offset < buffer.bytes) return buffer.memory + offset;
    }
    return address;
  }

  // For races between blocks.
  void note_global(SiteId site, const Device::Buffer& buffer, const void* address, uint32_t bytes, bool is_write) {
    if (!launch.options.check || !launch.shadow.watches(buffer)) return;
    if (shadow_sites.size() <= site) shadow_sites.resize(site + size_t{1}, -1);
    int16_t& number = shadow_sites[site];
    if (number < 0) number = launch.shadow.number_of(sites[site]);
    const auto offset = static_cast<uint64_t>(static_cast<const std::byte*>(address) - buffer.begin);
    launch.shadow.note(buffer, offset, bytes, is_write, linear_index, static_cast<uint8_t>(number));
  }
  // A bulk copy reads bytes that threads may have written.
  void check_global_writes(SiteId site, const Device::Buffer& buffer, const std::byte* first, uint32_t bytes);

  // ---- asynchronous copies and mbarriers
  // Lands the oldest `count` copies of a thread, and makes the arrivals that waited for no others.
  void land_copies(uint32_t thread, size_t count);
  // Lands what threads wait for at mbarriers. False: none of them can go on all the same.
  bool land_awaited_copies();
  Mbarrier* find_mbarrier(SiteId site, uint32_t address);  // null, and a report, if there is none
  void count_arrival(uint32_t address, SiteId site, uint32_t thread, uint32_t bytes_to_land = 0);
  void land_bulk_copy(uint32_t address);                                // the oldest of a barrier's
  void complete_phase(uint32_t address, SiteId site, uint32_t thread);  // if nothing is pending
  void pass(Mbarrier& barrier, uint32_t thread);
  void report_unawaited_copies();

  // ---- counting
  void count_wavefronts(SiteId site, uint32_t address, Wavefronts wavefronts) {
    SharedTraffic& sum = traffic[site * MAX_REGIONS + region_at(address)];
    ++sum.requests;
    sum.taken += static_cast<uint64_t>(wavefronts.taken);
    sum.ideal += static_cast<uint64_t>(wavefronts.ideal);
  }
  SiteId site_id(Instruction instruction, const CallSite& call) {
    const SiteId id = sites.id(instruction, call);
    if (traffic.size() < (id + size_t{1}) * MAX_REGIONS) [[unlikely]]
      traffic.resize((id + size_t{1}) * MAX_REGIONS);
    return id;
  }
  void log_access(uint32_t address, SiteId site);
  // Puts the lanes' plain loads and stores together into warp requests and counts them.
  void count_accesses(Warp& warp);

  // ---- trace, if `tracing`: one event per warp instruction. Pointers to events are good until the next one.
  TraceEvent& trace_event(Instruction instruction, const CallSite& call);       // for the whole warp
  TraceEvent& trace_lane_event(Instruction instruction, const CallSite& call);  // for the running lane
  void trace_shared(TraceEvent& event, uint32_t address, uint32_t bytes) const;
  static void trace_global(TraceEvent& event, const Device::Buffer* buffer, const void* address, uint32_t bytes);

  // ---- words for reports
  // A report that is told at `where`, for faults that have no site.
  void report_at(ReportKind kind, std::vector<SourceLine> where, std::string message, std::string buffer = "");
  std::string global_place(const std::byte* address, std::string& buffer) const;  // "K+64"; and K
  std::string at(SiteId site) const;                           // "ldmatrix.x4 at 01_base/kernel.cuh:70"
  std::string place(uint32_t address) const;                   // "K+512"
  static std::string thread_name(uint32_t thread);             // "thread 37 (warp 1)"
  std::string actor_name(SiteId site, uint32_t thread) const;  // of wmma "warp 1", of bulk copies "the copy engine"
  std::string block_name() const;                              // "block (0, 0, 0)"

  template <class Make>
  void report(const Fault& fault, Make&& make) {
    log.add(fault, sites, linear_index, [&] { return make() + ", " + block_name(); });
  }
  template <class Make>
  void report_mbarrier(SiteId site, uint32_t thread, uint32_t address, Make&& how) {
    report({ReportKind::barrier_misuse, site},
           [&] { return at(site) + " by " + thread_name(thread) + " on " + place(address) + ": " + how(); });
  }
  // Ends the launch, after a fatal report. The fibers are abandoned where they stand, without destructors: what calls
  // this keeps nothing on its stack that owns memory, and a kernel's locals are registers.
  [[noreturn]] void stop();
  // Ends the launch without a report.
  [[noreturn]] void stop_early();
  [[noreturn]] void switch_to_host();

  const LaunchConfig& launch;
  Stacks stacks;
  std::unique_ptr<Warp[]> warps;
  SiteTable sites;
  RaceDetector races;
  Counters counters;  // its sites stay empty until the launch ends
  struct SharedTraffic {
    uint64_t requests = 0, taken = 0, ideal = 0;
  };
  std::vector<SharedTraffic> traffic;  // [site][region]
  std::vector<Region> regions;         // [0] is what has no name
  std::vector<uint8_t> region_of;      // per granule
  ReportLog log;
  std::vector<TraceEvent> trace;
  struct LaneEvents {
    std::vector<size_t> events;        // in `trace`
    std::array<size_t, 32> next = {};  // for each lane, which of them it takes part in next
  };
  std::map<std::pair<uint32_t, SiteId>, LaneEvents> lane_events;  // by warp and place

  // The block that is running.
  uint64_t linear_index = 0;
  uint3 index = {};
  fiber host;  // whoever called run()
  uint32_t live = 0;
  uint32_t at_barrier = 0;  // threads that wait in __syncthreads
  CallSite barrier_site;    // where the first of them does
  std::array<NamedBarrier, 16> named_barriers;
  std::map<uint32_t, Mbarrier> mbarriers;  // by address
  uint32_t mbarriers_made = 0;
  // What the block has stored to global memory, if the launch has a tensor map of what it may write.
  struct GlobalWrite {
    const std::byte* first;
    uint32_t bytes;
    RaceDetector::Cell cell;
    RaceDetector::Cell fence;  // the first that has told the copy engine; 0: none has
  };
  std::vector<GlobalWrite> global_writes;
  std::vector<int16_t> shadow_sites;  // their numbers in launch.shadow; -1: none yet
  // The sites that each thread, and after them each warp together, has come by since it was close to Options::max_steps.
  std::vector<std::set<SiteId>> late_sites;
  bool tracing = false;
  bool failed = false;   // by a fatal report
  bool stopped = false;  // by Options::stop
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{SMEM_BASE}); }
  };
  std::unique_ptr<std::byte, Free> smem;
};

[[noreturn]] void diverged(Instruction instruction, const CallSite& site);
[[noreturn]] void incomplete(const Warp& warp);
void finish_without(Warp& warp);

// The running lane executes an instruction on its own.
inline void step(Instruction instruction, const CallSite& call) {
  Warp& warp = *current.warp;
  Progress& own = warp.progress[current.lane];
  ++own.steps;
  own.file = call.file;
  own.line = call.line;
  own.together = static_cast<uint32_t>(warp.together);
  if (own.steps + warp.together >= warp.look_at) [[unlikely]]
    current.block->look(instruction, call, false);
}

// Lanes of a warp meet. False: others have yet to come, and this lane must wait(). True: this lane is the last, and must
// wake the others, warp.ready |= members, when it has computed what they wait for.
inline bool arrive(Instruction instruction, const CallSite& site, uint32_t members) {
  Warp& warp = *current.warp;
  const uint32_t self = 1u << current.lane;
  if (warp.arrived == 0) {
    warp.instruction = instruction;
    warp.site = site;
    if ((members & ~warp.live) != 0) [[unlikely]]
      incomplete(warp);
  } else if (warp.instruction != instruction || warp.site != site) [[unlikely]] {
    // __syncwarp is a barrier of lanes, whichever of its lines each of them has come to.
    if (warp.instruction != instruction || instruction != Instruction::syncwarp) diverged(instruction, site);
  }
  warp.arrived |= self;
  if (warp.arrived == members) {
    warp.arrived = 0;
    ++warp.together;
    if (warp.progress[current.lane].steps + warp.together >= warp.look_at) [[unlikely]]
      current.block->look(instruction, site, true);
    return true;
  }
  warp.ready &= ~self;
  return false;
}

inline void Block::switch_to(Warp& warp, uint32_t lane) {
  fiber& own = current.warp->fibers[current.lane];
  current.suspended = &own;
  current.warp = &warp;
  current.lane = lane;
  fiber previous = std::move(warp.fibers[lane]).resume();
  *current.suspended = std::move(previous);  // some other fiber has switched back here
}

inline void Block::wait() {
  Warp& warp = *current.warp;
  if (warp.ready != 0) [[likely]] {
    switch_to(warp, warp.next_ready_after(current.lane));
  } else {
    wait_for_other_warp();
  }
}

// The last lane to arrive computes for all; then each fetches its own.
template <class Compute>
inline void meet(Instruction instruction, const CallSite& site, Compute&& compute) {
  if (arrive(instruction, site, ALL_LANES)) {
    compute(*current.block, *current.warp);
    current.warp->ready = ALL_LANES;
  } else {
    current.block->wait();
  }
}

}  // namespace emulator
