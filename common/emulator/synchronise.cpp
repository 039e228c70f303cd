// Barriers: __syncthreads, __syncwarp and the named ones.
#include <fmt/format.h>
#include <algorithm>
#include <utility>
#include "common/emulator/block.hpp"

namespace emulator {
namespace {

void complete_syncwarp(Warp& warp) {
  Block& block = *current.block;
  if (block.launch.options.check) block.races.sync_warp(warp.id);
  if (block.counting.tracing) block.counting.trace_event(Instruction::syncwarp, warp.site);
  warp.ready |= warp.live;
}

void wake(NamedBarrier& barrier) {
  Block& block = *current.block;
  ++block.counting.counters.barriers;
  std::vector<NamedBarrier::Passed> passed;
  for (Warp* const warp : barrier.waiting) {
    if (block.launch.options.check) {
      passed.push_back({warp->id, block.races.tick_of(warp->id)});
      block.races.acquire(warp->id, barrier.clock);
    }
    warp->arrived = 0;
    warp->ready = warp->live;
  }
  barrier = {.passed = std::move(passed)};
}

// A barrier has no owners: whoever comes is counted. So a warp must know that the last use of it is over, or it might
// have come in time for that one.
bool may_come_early(const NamedBarrier& barrier, uint32_t warp) {
  const auto is_past = [&](const NamedBarrier::Passed& passed) {
    return current.block->races.knows(warp, passed.warp, passed.tick + 1);
  };
  return !barrier.passed.empty() && std::ranges::none_of(barrier.passed, is_past);
}

// All lanes of the warp are there. True if the warp has to wait for other warps.
bool come_to(Instruction instruction, const CallSite& call, uint32_t id, uint32_t threads) {
  Block& block = *current.block;
  Warp& warp = *current.warp;
  const SiteId site = block.counting.site_id(instruction, call);
  const auto misused = [&](const std::string& how) {
    block.report({ReportKind::barrier_misuse, site},
                 [&] { return fmt::format("{} by warp {}: {}", block.wording.at(site), warp.id, how); });
  };
  if (block.counting.tracing) {
    TraceEvent& event = block.counting.trace_event(instruction, call);
    event.operand = static_cast<int>(id);
    event.threads = static_cast<int>(threads);
  }
  if (id >= block.scheduler.named_barriers.size()) {
    misused(fmt::format("the named barriers are 0 to 15, and {} is none", id));
    return false;
  }
  if (id == 0 && block.scheduler.at_barrier > 0)
    misused("barrier 0 is that of __syncthreads, too, and others wait there");
  if (threads == 0 || threads % 32 != 0 || threads > block.launch.warps() * 32) {
    misused(fmt::format("{} threads are not a multiple of 32 that this block has", threads));
    return false;
  }
  NamedBarrier& barrier = block.scheduler.named_barriers[id];
  if (barrier.expected == 0) {
    barrier.expected = threads;
    barrier.site = site;
  } else if (barrier.expected != threads) {
    misused(fmt::format("it expects {} threads at barrier {}, but {} expects {}", threads, id,
                        block.wording.at(barrier.site), barrier.expected));
  }
  barrier.arrived += 32;
  if (block.launch.options.check) {
    block.races.release(warp.id, barrier.clock);
    if (may_come_early(barrier, warp.id)) {
      misused(
          fmt::format("nothing says that the last use of barrier {}, by warp {} among others, is over by then; if "
                      "this warp comes earlier, it is counted there",
                      id, barrier.passed.front().warp));
    }
  }
  const bool waits = instruction == Instruction::barrier_sync;
  if (!waits && warp.has_turn) block.counting.counters.products_in_turns += warp.products - warp.before_turn;
  warp.before_turn = warp.products;
  warp.has_turn = waits;
  if (waits) barrier.waiting.push_back(&warp);
  if (barrier.arrived < barrier.expected) {
    if (waits) warp.arrived = warp.live;  // so that a deadlock can say where it waits
    return waits;
  }
  wake(barrier);
  return false;
}

void named_barrier(Instruction instruction, const CallSite& site, uint32_t id, uint32_t threads) {
  Warp& warp = *current.warp;
  if (!arrive(instruction, site, warp.live)) {
    wait();
  } else if (come_to(instruction, site, id, threads)) {
    warp.ready = 0;
    wait();
  } else {
    warp.ready |= warp.live;
  }
}

}  // namespace

void finish_without(Warp& warp) {
  if (warp.instruction != Instruction::syncwarp) incomplete(warp);
  if (warp.arrived != warp.live) return;
  warp.arrived = 0;
  complete_syncwarp(warp);
}

Block* peer_block(SiteId site, uint32_t rank) {
  Block& block = *current.block;
  const auto& blocks = block.cluster.blocks;
  const bool exists = rank < blocks.size();
  if (exists && blocks[rank]->scheduler.live != 0) return blocks[rank].get();
  block.report({ReportKind::cluster_misuse, site}, [&] {
    return fmt::format("{} by {}: block {} of the cluster {}", block.wording.at(site),
                       Wording::thread_name(current.thread()), rank,
                       exists ? "has ended, and with it its shared memory; a cluster_sync at its end is missing"
                              : fmt::format("does not exist, it has {}", blocks.size()));
  });
  return nullptr;
}

}  // namespace emulator

inline namespace emulated {

using namespace emulator;

void __syncthreads(CallSite site) {
  Block& block = *current.block;
  Warp& warp = *current.warp;
  Lane& lane = current.state();
  step(Instruction::syncthreads, site);
  if (block.counting.tracing) block.counting.trace_lane_event(Instruction::syncthreads, site);
  if (block.scheduler.at_barrier == 0) {
    block.scheduler.barrier_site = site;
  } else if (block.scheduler.barrier_site != site) [[unlikely]] {
    const SiteId here = block.counting.site_id(Instruction::syncthreads, site);
    const SiteId there = block.counting.site_id(Instruction::syncthreads, block.scheduler.barrier_site);
    block.report({ReportKind::divergent_barrier, here, there}, [&] {
      return fmt::format("{} comes to {} while others wait in {}", Wording::thread_name(current.thread()),
                         block.wording.at(here), block.wording.at(there));
    });
  }
  const NamedBarrier& zero = block.scheduler.named_barriers[0];
  if (zero.expected != 0 || (block.launch.options.check && may_come_early(zero, warp.id))) [[unlikely]] {
    const SiteId here = block.counting.site_id(Instruction::syncthreads, site);
    block.report({ReportKind::barrier_misuse, here}, [&] {
      return fmt::format("{} by {}: __syncthreads is barrier 0, and nothing says that its last use by number is over",
                         block.wording.at(here), Wording::thread_name(current.thread()));
    });
  }
  ++block.scheduler.at_barrier;
  lane.waits_in = Instruction::syncthreads;
  lane.waits_at = site;
  warp.ready &= ~(1u << current.lane);
  block.scheduler.complete_block_barrier();
  if ((warp.ready >> current.lane & 1) == 0) wait();
}

uint32_t cluster_rank() {
  return current.block->rank;
}

void cluster_sync(CallSite site) {
  Block& block = *current.block;
  Warp& warp = *current.warp;
  step(Instruction::cluster_sync, site);
  if (block.counting.tracing) block.counting.trace_lane_event(Instruction::cluster_sync, site);
  ++block.cluster.at_barrier;
  Lane& lane = current.state();
  lane.waits_in = Instruction::cluster_sync;
  lane.waits_at = site;
  warp.ready &= ~(1u << current.lane);
  block.cluster.complete_barrier();
  if ((warp.ready >> current.lane & 1) == 0) wait();
}

void __syncwarp(CallSite site) {
  Warp& warp = *current.warp;
  if (arrive(Instruction::syncwarp, site, warp.live)) {
    complete_syncwarp(warp);
  } else {
    wait();
  }
}

void named_barrier_sync(uint32_t id, uint32_t threads, CallSite site) {
  named_barrier(Instruction::barrier_sync, site, id, threads);
}

void named_barrier_arrive(uint32_t id, uint32_t threads, CallSite site) {
  named_barrier(Instruction::barrier_arrive, site, id, threads);
}

}  // namespace emulated
