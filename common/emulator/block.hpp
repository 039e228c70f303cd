// A thread block at work on one OS thread: its warps and shared memory, and the parts that schedule its threads, count,
// find races, and word reports. An instruction reaches all of them through current.block.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include "common/emulator/counting.hpp"
#include "common/emulator/emulator.hpp"
#include "common/emulator/global_order.hpp"
#include "common/emulator/global_shadow.hpp"
#include "common/emulator/instructions.hpp"
#include "common/emulator/mbarrier.hpp"
#include "common/emulator/race_detector.hpp"
#include "common/emulator/report_log.hpp"
#include "common/emulator/scheduler.hpp"
#include "common/emulator/shared_memory.hpp"
#include "common/emulator/site.hpp"
#include "common/emulator/turns.hpp"
#include "common/emulator/warp.hpp"
#include "common/emulator/wording.hpp"

namespace emulator {

// The block of that rank in the running thread's cluster; null, and a report, if there is none or it has ended.
Block* peer_block(SiteId site, uint32_t rank);

// Bulk copies (bulk.cpp). One on its way to a block's shared memory, asked for by the running thread; 16 bytes for one
// that is on its way out; and the oldest `count` of a thread that reach global memory, which it knows if it has waited.
void issue_bulk_copy(Block& destination, Mbarrier& barrier, const BulkCopy& copy);
void read_for_bulk_store(Block& block, BulkStore& store, uint32_t shared_address, size_t at);
void land_bulk_stores(Block& block, Lane& lane, size_t count, bool is_awaited);
void store_box(Block& block, const BulkStore& store);  // tensor_map.cpp
// To the f32 at an address that has been checked, beside other threads. Subnormals may count as zeros of their sign.
void add_f32(const std::byte* address, float value, bool flushes);

// What is the same for all blocks of a launch.
struct LaunchConfig {
  const Options& options;
  const std::vector<Device::Buffer>& buffers;
  dim3 grid, shape;
  uint32_t smem_bytes;
  void (*body)(const void*);
  const void* call;  // of the kernel, with its arguments
  bool is_first;     // of this kernel on its device
  uint32_t cluster;  // blocks
  int number;        // of the launch on its device
  GlobalShadow& shadow;
  const GlobalShadow* before;  // of a launch that may not be over; null: it is
  Turns& turns;
  uint64_t first_block = 0;  // of those that run, by its linear index

  uint32_t threads() const { return shape.x * shape.y * shape.z; }
  uint32_t warps() const { return (threads() + 31) / 32; }
  uint64_t blocks() const { return uint64_t{grid.x} * grid.y * grid.z; }
};

struct Block;

struct WordWait {  // of a lane, for a word of global memory to hold a value
  Warp* warp;
  uint32_t lane;
  const uint32_t* word;
  uint32_t value;
  SiteId site;
};

// One worker's clusters, one after the other. A block without one is a cluster by itself.
struct Cluster {
  explicit Cluster(const LaunchConfig& launch_config);

  void run(uint64_t first_block);  // all of its blocks, by a linear index
  void complete_barrier();         // if all threads have come
  // A warp of any block that can run; null if there is none, even after copies have landed and other clusters have gone on.
  Warp* next_warp(const Block& after);

  const LaunchConfig& launch;
  SiteTable sites;
  RaceDetector races;
  std::vector<std::unique_ptr<Block>> blocks;  // by rank
  std::vector<WordWait> word_waits;
  std::vector<Warp*> order;  // of all blocks, who goes first; null: copies; empty: they take turns
  fiber host;                // whoever called run()
  uint32_t live = 0;         // threads
  uint32_t at_barrier = 0;   // of them in cluster_sync
  bool failed = false;       // by a fatal report
  bool stopped = false;      // by Options::stop
  bool left = false;         // because another one has failed, for which this one waits

 private:
  void draw_order(uint64_t first_block);
  Warp* next_own_warp(const Block& after);
  void wake_waiting();  // those whose word has come
  bool land_awaited_copies();
};

// One worker's blocks of one rank, one after the other.
struct Block {
  Block(Cluster& owner, uint32_t rank_in_cluster);
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void begin(uint64_t linear_index);
  void end(bool is_over);

  // ---- shared memory
  // Ends the launch unless the access is aligned and inside the block's shared memory.
  void require_valid(uint32_t address, uint32_t bytes, uint32_t alignment, SiteId site, uint32_t thread) {
    if (!smem.is_valid(address, bytes, alignment)) [[unlikely]]
      bad_address(address, bytes, alignment, site, thread);
  }
  void require_valid(uint32_t address, uint32_t bytes, SiteId site, uint32_t thread) {
    require_valid(address, bytes, bytes, site, thread);
  }
  [[noreturn]] void bad_address(uint32_t address, uint32_t bytes, uint32_t alignment, SiteId site, uint32_t thread);
  bool is_bulk_copy(SiteId site) const { return emulator::is_bulk_copy(counting.sites[site].instruction); }
  bool is_wgmma(SiteId site) const { return emulator::is_wgmma(counting.sites[site].instruction); }
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
  // Lands the oldest `count` cp.async of a thread, and makes the arrivals that waited for no others.
  void land_copies(uint32_t thread, size_t count);

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

  bool counts_sectors() const { return launch.options.count && launch.is_first && linear_index == launch.first_block; }

  // For races between blocks, and within this one.
  bool is_ordered_memory(const Device::Buffer& buffer) const {
    return launch.options.check && buffer.access == Access::read_write;
  }
  void note_global(SiteId site, const Device::Buffer& buffer, const void* address, uint32_t bytes, GlobalUse use) {
    const auto* const first = static_cast<const std::byte*>(address);
    if (launch.options.begun && use == GlobalUse::read) [[unlikely]]
      launch.options.begun(buffer.name, static_cast<uint64_t>(first - buffer.begin), bytes, linear_index);
    if (!is_ordered_memory(buffer)) return;
    const RaceDetector::Actor actor{current.warp->id, current.thread(), site};
    if (launch.before != nullptr) [[unlikely]]
      note_beside_launch_before(actor, buffer, first, bytes, use);
    if (launch.shadow.watches(buffer)) {
      if (shadow_sites.size() <= site) shadow_sites.resize(site + size_t{1}, -1);
      int16_t& number = shadow_sites[site];
      if (number < 0) number = launch.shadow.number_of(counting.sites[site]);
      const bool is_plain = use == GlobalUse::write && !is_bulk_copy(site);
      const auto own = is_plain ? GlobalShadow::write_of(linear_index, actor.thread, writes.add(actor, {}),
                                                         static_cast<uint8_t>(number))
                                : 0;
      launch.shadow.note(buffer, static_cast<uint64_t>(first - buffer.begin), bytes, use, linear_index,
                         static_cast<uint8_t>(number), own,
                         [&](GlobalShadow::Write other) { return writes.knows(actor, other); });
    }
    const GlobalOrder::Access access{first, bytes, use, is_bulk_copy(site)};
    order.note(actor, access,
               [&](const GlobalOrder::Fault& fault) { report_global_order(buffer, actor, access, fault); });
  }
  void note_beside_launch_before(const RaceDetector::Actor& actor, const Device::Buffer& buffer, const std::byte* first,
                                 uint32_t bytes, GlobalUse use);
  bool knows_launch_before(const RaceDetector::Actor& actor) {
    return std::ranges::any_of(launch_waits, [&](RaceDetector::Cell wait) { return races.is_ordered(wait, actor); });
  }
  // The running thread adds to f32; by the copy engine, as the access of that number in `order`.
  void note_sum(SiteId site, const Device::Buffer& buffer, const void* address, uint32_t bytes,
                std::optional<size_t> by_engine);
  // What the running thread hands on where it releases, and what a thread gets to know: of sums and of plain writes.
  void acquire(const RaceDetector::Actor& actor, const Sums& known) {
    sums.acquire(actor, known);
    writes.acquire(actor, known);
  }
  Sums released(SiteId site) {
    const RaceDetector::Actor actor{current.warp->id, current.thread(), site};
    Sums all = sums.known_to(actor, linear_index);
    all.merge(writes.known_to(actor, linear_index));
    return all;
  }
  void report_global_order(const Device::Buffer& buffer, const RaceDetector::Actor& actor,
                           const GlobalOrder::Access& access, const GlobalOrder::Fault& fault);

  // ---- reports
  // Make returns the message, to which the block's name is added.
  template <class Make>
  void report(const Fault& fault, Make&& make) {
    report_as_worded(fault, [&] { return make() + ", " + wording.block_name(); });
  }
  template <class Make>
  void report_as_worded(const Fault& fault, Make&& make) {
    log.add(fault, counting.sites, linear_index, std::forward<Make>(make));
  }
  // These lanes come to the cluster's barrier apart from the others of their warp.
  void report_apart(const Warp& warp, uint32_t lanes);
  // The lanes of a warp that waits at the cluster's barrier have come there by one cluster_sync; other warps may have
  // come by another (.aligned).
  void require_one_call(const Warp& warp);
  // A report that is told at `where`, for faults that have no site.
  void report_at(ReportKind kind, std::vector<SourceLine> where, std::string message, std::string buffer = "");

  Cluster& cluster;
  const uint32_t rank;
  const LaunchConfig& launch;
  Scheduler scheduler;
  std::unique_ptr<Warp[]> warps;  // gone before the scheduler's stacks
  std::vector<Warpgroup> warpgroups;
  // Products of the warp's group that no wait of the warp has covered.
  uint64_t running_products(uint32_t warp) const {
    return warp / 4 < warpgroups.size() ? warpgroups[warp / 4].products - warpgroups[warp / 4].over[warp % 4] : 0;
  }
  SharedMemory smem;
  Counting counting;
  BlockRaces races;
  Mbarriers mbarriers;
  Wording wording;
  ReportLog log;

  uint32_t unused_smem_bytes = UINT32_MAX;  // by the block that has used most, so far
  uint64_t most_products = 0;               // of one block, so far
  uint64_t products = 0;                    // of the last block

  // The block that is running.
  uint64_t linear_index = 0;
  uint3 index = {};
  GlobalOrder order{races};
  BlockSums sums{order, races}, writes{order, races, BlockSums::WRITES};
  struct Fenced {  // of a thread: what its additions hand on since its last fence, and have found
    Sums hands_on, finds;
  };
  std::map<uint32_t, Fenced> fenced;
  std::vector<RaceDetector::Cell> launch_waits;  // for the launch before
  uint32_t bulk_reads = 0;                       // bulk stores and reductions so far
  uint64_t written_before = 0;                   // bytes of global memory that earlier blocks have written
  uint64_t products_before = 0;                  // of earlier blocks
  std::vector<int16_t> shadow_sites;             // their numbers in launch.shadow; -1: none yet
};

}  // namespace emulator
