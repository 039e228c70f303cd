#include "common/emulator/scheduler.hpp"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <string>

#include "common/emulator/block.hpp"

namespace emulator {

Scheduler::Scheduler(Block& owner) : block(owner), stacks(owner.launch.threads()) {}

// ---- fibers -------------------------------------------------------------------------------------------------------

void Scheduler::start() {
  Warp* const warps = block.warps.get();
  const uint32_t threads = block.launch.threads();
  begins_only = bool(block.launch.options.begun);
  at_barrier = 0;
  named_barriers = {};
  free_registers = 0;
  register_waits.clear();
  const uint32_t registers = std::min(65536 / threads / 8 * 8, 256u);
  for (Warpgroup& group : block.warpgroups) group.clear(registers);
  late_sites_.clear();
  live = threads;
  for (uint32_t thread = 0; thread < live; ++thread) {
    Warp& warp = warps[thread / 32];
    const uint32_t lane = thread % 32;
    if (lane == 0) {
      warp.id = thread / 32;
      warp.live = warp.ready = live - thread >= 32 ? ALL_LANES : (1u << (live - thread)) - 1;
      warp.arrived = 0;
      warp.products = warp.weights = warp.together = warp.look_at = 0;
      warp.fragments = {};
      warp.has_turn = false;
      warp.progress = {};
      warp.waited = {};
    }
    Lane& state = warp.lanes[lane];
    state.copies.clear();
    state.group_ends.clear();
    state.arrivals.clear();
    state.requests.clear();
    state.arrived.clear();
    state.exponentials = 0;
    state.has_waited = false;
    state.wgmma.clear();
    state.bulk_stores.clear();
    state.bulk_group_ends.clear();
    state.has_stored = false;
    warp.fibers[lane] = stacks.start(thread, [this](fiber&& from) { return run_lane(std::move(from)); });
  }
}

fiber Scheduler::run_lane(fiber&& from) {
  *current.suspended = std::move(from);
  const uint32_t thread = current.thread();
  bool has_thrown = false;
  const auto report_exception = [&](const char* what) {
    has_thrown = true;
    block.report({ReportKind::kernel_exception}, [&] { return Wording::exception(thread, what); });
  };
  try {
    block.launch.body(block.launch.call);
  } catch (const std::exception& exception) {
    report_exception(exception.what());
  } catch (...) {
    report_exception("not a std::exception");
  }
  if (has_thrown) stop();
  if (stacks.overflowed(thread)) {
    block.report({ReportKind::stack_overflow}, [&] { return Wording::stack_overflow(thread); });
    stop();
  }

  Warp& warp = *current.warp;
  Lane& state = current.state();
  // Those that an mbarrier tracks are for others to wait for.
  const size_t tracked = state.arrivals.empty() ? 0 : state.arrivals.back().copies;
  if (state.copies.size() > tracked) {
    const SiteId site = state.copies[tracked].site;
    block.report({ReportKind::exit_in_flight, site}, [&] { return block.wording.thread_exit(site, thread); });
  }
  if (!state.wgmma.accumulators.empty()) {
    const SiteId site = block.warpgroups[thread / 128].tiles[state.wgmma.accumulators.front().tile].site;
    block.report({ReportKind::exit_in_flight, site}, [&] { return block.wording.thread_exit(site, thread); });
  }
  for (const BulkStore& store : state.bulk_stores) {
    if (store.is_read) continue;
    block.report({ReportKind::exit_in_flight, store.site},
                 [&] { return block.wording.thread_exit(store.site, thread); });
  }
  land_bulk_stores(block, state, state.bulk_stores.size(), false);
  const uint32_t self = 1u << current.lane;
  warp.ready &= ~self;
  warp.live &= ~self;
  --live;
  --block.cluster.live;
  if (block.launch.options.check) block.races.leave(thread);
  if (warp.arrived != 0) finish_without(warp);
  complete_block_barrier();
  block.cluster.complete_barrier();

  current.suspended = &warp.fibers[current.lane];
  if (block.cluster.live == 0) return std::move(block.cluster.host);
  Warp* const next = warp.able() != 0 ? &warp : &next_warp();
  current.lane = warp.able() != 0 ? Warp::next_after(current.lane, warp.able()) : next->next_lane();
  current.block = next->block;
  current.warp = next;
  return std::move(next->fibers[current.lane]);
}

void Scheduler::stop_early() {
  block.cluster.stopped = true;
  switch_to_host();
}

void Scheduler::stay() {
  for (;;) {
    current.warp->ready &= ~(1u << current.lane);
    wait();
  }
}

void Scheduler::leave() {
  block.cluster.left = true;
  switch_to_host();
}

void Scheduler::stop() {
  block.cluster.failed = true;
  switch_to_host();
}

void Scheduler::switch_to_host() {
  current.suspended = &current.warp->fibers[current.lane];
  std::move(block.cluster.host).resume();
  std::abort();
}

// ---- who waits for what -------------------------------------------------------------------------------------------

Warp* Scheduler::next_able_warp() {
  const uint32_t count = block.launch.warps();
  for (uint32_t i = 1; i <= count; ++i) {
    Warp& warp = block.warps[(current.warp->id + i) % count];
    if (warp.able() != 0) return &warp;
  }
  return nullptr;
}

Warp& Scheduler::next_warp() {
  Warp* const next = block.cluster.next_warp(block);
  if (next == nullptr) {
    const Options& options = block.launch.options;
    if (options.stop != nullptr && *options.stop) stop_early();
    if (options.begun) switch_to_host();
    if (block.launch.turns.has_failed()) leave();
    deadlock();
  }
  return *next;
}

void wait_for_other_warp() {
  Warp& next = current.block->scheduler.next_warp();
  const uint32_t lane = next.next_lane();
  if (&next == current.warp && lane == current.lane) return;  // it was waiting for copies
  switch_to(next, lane);
}

void give_way() {
  if (current.block->launch.options.schedule == 0) return;
  Warp& own = *current.warp;
  const bool lags = (own.lagging >> current.lane & 1) != 0;
  for (Warp* const warp : current.block->cluster.order) {
    if (warp == &own && !lags) return;
    if (warp == nullptr || warp->able() == 0) continue;
    switch_to(*warp, warp->next_lane());
    return;
  }
}

void Scheduler::complete_block_barrier() {
  if (at_barrier == 0 || at_barrier < live) return;
  at_barrier = 0;
  named_barriers[0] = {};
  ++block.counting.counters.barriers;
  if (block.launch.options.check) block.races.sync_block();
  for (uint32_t i = 0; i < block.launch.warps(); ++i) {
    Warp& warp = block.warps[i];
    warp.ready = warp.live;
    block.counting.count_accesses(warp);
  }
}

void incomplete(const Warp& warp) {
  Block& block = *current.block;
  const SiteId site = block.counting.site_id(warp.instruction, warp.site);
  block.report({ReportKind::incomplete_warp, site}, [&] { return block.wording.incomplete_warp(site, warp); });
  block.scheduler.stop();
}

void diverged(Instruction instruction, const CallSite& call) {
  Block& block = *current.block;
  const Warp& warp = *current.warp;
  const SiteId here = block.counting.site_id(instruction, call),
               there = block.counting.site_id(warp.instruction, warp.site);
  block.report({ReportKind::divergent_collective, here, there},
               [&] { return block.wording.divergence(here, current.thread(), there, warp); });
  block.scheduler.stop();
}

void Scheduler::deadlock() {
  const auto& blocks = block.cluster.blocks;
  Block& stuck =
      **std::find_if(blocks.begin(), blocks.end(), [](const auto& each) { return each->scheduler.live != 0; });
  const Warp* const warps = stuck.warps.get();
  const Warp* const first = std::find_if(warps, warps + stuck.launch.warps(), [](const Warp& w) { return w.live; });
  const auto [instruction, call] = first->waits_in(static_cast<uint32_t>(std::countr_zero(first->live)));
  const Fault fault{ReportKind::deadlock, stuck.counting.site_id(instruction, call)};
  stuck.report_as_worded(fault, [&] { return stuck.wording.deadlock(); });
  stop();
}

// ---- step limits --------------------------------------------------------------------------------------------------

uint64_t Scheduler::steps(uint32_t thread) const {
  const Warp& warp = block.warps[thread / 32];
  return warp.progress[thread % 32].steps + warp.together;
}

SourceLine Scheduler::last_line() const {
  const Warp& warp = *current.warp;
  const Progress& own = warp.progress[current.lane];
  if (own.together == static_cast<uint32_t>(warp.together)) return {own.file, static_cast<int>(own.line)};
  return source_line(warp.site);
}

void look(Instruction instruction, const CallSite& call, bool together) {
  current.block->scheduler.look(instruction, call, together);
}

void Scheduler::look(Instruction instruction, const CallSite& call, bool together) {
  constexpr uint64_t INTERVAL = 1024;
  constexpr uint64_t REMEMBERED = 4096;  // steps before the end of a loop: its lines are known by then
  const Options& options = block.launch.options;
  if (options.stop != nullptr && *options.stop) stop_early();
  const uint32_t thread = current.thread(), warps = block.launch.warps();
  const uint64_t taken = steps(thread);
  uint64_t next = taken + INTERVAL;
  if (options.max_steps != 0) {
    const uint64_t late = options.max_steps - std::min(options.max_steps / 2, REMEMBERED);
    next = std::min(next, late);
    if (taken >= late) {
      late_sites_.resize(warps * 33);
      late_sites_[together ? warps * 32 + thread / 32 : thread].insert(block.counting.site_id(instruction, call));
    }
    if (taken > options.max_steps) {
      report_endless_loop(call);
      stop();
    }
  }
  current.warp->look_at = std::max(current.warp->look_at, next);
}

void Scheduler::report_endless_loop(const CallSite& call) {
  const uint32_t thread = current.thread();
  std::set<std::pair<std::string, int>> lines;
  for (const uint32_t i : {thread, block.launch.warps() * 32 + thread / 32}) {
    for (const SiteId id : late_sites_[i]) {
      const Site& site = block.counting.sites[id];
      lines.emplace(site.call.file, site.call.line);
    }
  }
  std::vector<SourceLine> where = {source_line(call)};
  for (const auto& [file, line] : lines) where.push_back({file, line});
  std::string message = block.wording.endless_loop(thread, where);
  block.report_at(ReportKind::endless_loop, std::move(where), std::move(message));
}

}  // namespace emulator
