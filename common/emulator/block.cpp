#include "common/emulator/block.hpp"

#include "common/emulator/signals.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace emulator {
namespace {

std::string threads_of(const Warp& warp, uint32_t lanes) {
  std::vector<uint32_t> threads;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if (lanes >> lane & 1) threads.push_back(warp.id * 32 + lane);
  }
  return ranges(threads);
}

// Where a lane waits that cannot run.
std::pair<Instruction, CallSite> waits_in(const Warp& warp, uint32_t lane) {
  if (warp.arrived >> lane & 1) return {warp.instruction, warp.site};
  return {warp.lanes[lane].waits_in, warp.lanes[lane].waits_at};
}

}  // namespace

Block::Block(const LaunchConfig& launch_config)
    : launch(launch_config),
      stacks(launch_config.threads()),
      warps(std::make_unique<Warp[]>(launch_config.warps())),
      regions{{0, launch_config.smem_bytes, "shared", 0}},
      region_of((launch_config.smem_bytes + GRANULE - 1) / GRANULE),
      smem(static_cast<std::byte*>(
          ::operator new (std::max(launch_config.smem_bytes, GRANULE), std::align_val_t{SMEM_BASE}))) {
  for (uint32_t thread = 0; thread < launch.threads(); ++thread) {
    const dim3& shape = launch.shape;
    warps[thread / 32].lanes[thread % 32].thread_index = {thread % shape.x, thread / shape.x % shape.y,
                                                          thread / shape.x / shape.y};
  }
}

void Block::run(uint64_t linear) {
  const dim3& grid = launch.grid;
  linear_index = linear;
  index = {static_cast<uint32_t>(linear % grid.x), static_cast<uint32_t>(linear / grid.x % grid.y),
           static_cast<uint32_t>(linear / grid.x / grid.y)};
  tracing = launch.options.trace && linear == 0;
  at_barrier = 0;
  named_barriers = {};
  mbarriers.clear();
  mbarriers_made = 0;
  global_writes.clear();
  late_sites.clear();
  std::memset(smem.get(), 0xff, launch.smem_bytes);  // NaN as f16 and as f32
  if (launch.options.check) races.start_block(launch.smem_bytes, launch.threads());

  current = {.block = this, .warp = warps.get(), .lane = 0, .suspended = &host};
  live = launch.threads();
  for (uint32_t thread = 0; thread < live; ++thread) {
    Warp& warp = warps[thread / 32];
    const uint32_t lane = thread % 32;
    if (lane == 0) {
      warp.id = thread / 32;
      warp.live = warp.ready = live - thread >= 32 ? ALL_LANES : (1u << (live - thread)) - 1;
      warp.arrived = 0;
      warp.together = warp.look_at = 0;
      warp.progress = {};
    }
    Lane& state = warp.lanes[lane];
    state.copies.clear();
    state.group_ends.clear();
    state.arrivals.clear();
    state.has_waited = false;
    warp.fibers[lane] = stacks.start(thread, [this](fiber&& from) { return run_lane(std::move(from)); });
  }
  fiber last = std::move(warps[0].fibers[0]).resume();
  *current.suspended = std::move(last);
  if (failed || stopped) {
    for (uint32_t thread = 0; thread < launch.threads(); ++thread) abandon(warps[thread / 32].fibers[thread % 32]);
  } else {
    report_unawaited_copies();
  }
  for (uint32_t warp = 0; warp < launch.warps(); ++warp) count_accesses(warps[warp]);
  current = {};
}

// ---- scheduling ---------------------------------------------------------------------------------------------------

fiber Block::run_lane(fiber&& from) {
  *current.suspended = std::move(from);
  const uint32_t thread = current.thread();
  bool has_thrown = false;
  const auto report_exception = [&](const char* what) {
    has_thrown = true;
    report({ReportKind::kernel_exception}, [&] { return thread_name(thread) + " has thrown: " + what; });
  };
  try {
    launch.body(launch.kernel);
  } catch (const std::exception& exception) {
    report_exception(exception.what());
  } catch (...) {
    report_exception("not a std::exception");
  }
  if (has_thrown) stop();
  if (stacks.overflowed(thread)) {
    report({ReportKind::stack_overflow}, [&] { return thread_name(thread) + " has used more stack than there is"; });
    stop();
  }

  Warp& warp = *current.warp;
  const Lane& state = current.state();
  // Those that an mbarrier tracks are for others to wait for.
  const size_t tracked = state.arrivals.empty() ? 0 : state.arrivals.back().copies;
  if (state.copies.size() > tracked) {
    const SiteId site = state.copies[tracked].site;
    report({ReportKind::exit_in_flight, site},
           [&] { return fmt::format("{} ends before it has waited for its {}", thread_name(thread), at(site)); });
  }
  const uint32_t self = 1u << current.lane;
  warp.ready &= ~self;
  warp.live &= ~self;
  --live;
  if (launch.options.check) races.leave(thread);
  if (warp.arrived != 0) finish_without(warp);
  complete_block_barrier();

  current.suspended = &warp.fibers[current.lane];
  if (live == 0) return std::move(host);
  Warp* const next = warp.ready != 0 ? &warp : &next_warp();
  current.lane =
      next == &warp ? warp.next_ready_after(current.lane) : static_cast<uint32_t>(std::countr_zero(next->ready));
  current.warp = next;
  return std::move(next->fibers[current.lane]);
}

Warp* Block::next_ready_warp() {
  const uint32_t count = launch.warps();
  for (uint32_t i = 1; i <= count; ++i) {
    Warp& warp = warps[(current.warp->id + i) % count];
    if (warp.ready != 0) return &warp;
  }
  return nullptr;
}

Warp& Block::next_warp() {
  Warp* next = next_ready_warp();
  if (next == nullptr && land_awaited_copies()) next = next_ready_warp();
  if (next == nullptr) deadlock();
  return *next;
}

void Block::wait_for_other_warp() {
  Warp& next = next_warp();
  const auto lane = static_cast<uint32_t>(std::countr_zero(next.ready));
  if (&next == current.warp && lane == current.lane) return;  // it was waiting for copies
  switch_to(next, lane);
}

void Block::complete_block_barrier() {
  if (at_barrier == 0 || at_barrier < live) return;
  at_barrier = 0;
  ++counters.barriers;
  if (launch.options.check) races.sync_block();
  for (uint32_t i = 0; i < launch.warps(); ++i) {
    warps[i].ready = warps[i].live;
    count_accesses(warps[i]);
  }
}

void incomplete(const Warp& warp) {
  Block& block = *current.block;
  const SiteId site = block.site_id(warp.instruction, warp.site);
  block.report({ReportKind::incomplete_warp, site}, [&] {
    return fmt::format("{} needs all 32 threads of warp {}, but threads {} have ended or never existed", block.at(site),
                       warp.id, threads_of(warp, ~warp.live));
  });
  block.stop();
}

void diverged(Instruction instruction, const CallSite& call) {
  Block& block = *current.block;
  const Warp& warp = *current.warp;
  const SiteId here = block.site_id(instruction, call), there = block.site_id(warp.instruction, warp.site);
  block.report({ReportKind::divergent_collective, here, there}, [&] {
    return fmt::format("{} has reached {} while other threads of its warp ({}) wait in {}",
                       Block::thread_name(current.thread()), block.at(here), threads_of(warp, warp.arrived),
                       block.at(there));
  });
  block.stop();
}

void Block::deadlock() {
  const Warp* const first = std::find_if(&warps[0], &warps[0] + launch.warps(), [](const Warp& w) { return w.live; });
  const auto [instruction, call] = waits_in(*first, static_cast<uint32_t>(std::countr_zero(first->live)));
  const Fault fault{ReportKind::deadlock, site_id(instruction, call)};
  log.add(fault, sites, linear_index,
          [&] { return fmt::format("deadlock, no thread of {} can go on:{}", block_name(), who_waits_where()); });
  stop();
}

std::string Block::who_waits_where() const {
  std::map<std::string, std::vector<uint32_t>> waiting;  // by place, in alphabetical order
  std::vector<uint32_t> ended, ready;
  for (uint32_t thread = 0; thread < launch.threads(); ++thread) {
    const Warp& warp = warps[thread / 32];
    if ((warp.live >> thread % 32 & 1) == 0) {
      ended.push_back(thread);
      continue;
    }
    if (warp.ready >> thread % 32 & 1) {
      ready.push_back(thread);
      continue;
    }
    const auto [instruction, call] = waits_in(warp, thread % 32);
    waiting[fmt::format("{} at {}", info(instruction).name, to_string(source_line(call)))].push_back(thread);
  }
  std::string message;
  for (const auto& [where, threads] : waiting) message += fmt::format("\n  {}: threads {}", where, ranges(threads));
  for (size_t id = 1; id < named_barriers.size(); ++id) {
    const NamedBarrier& barrier = named_barriers[id];
    if (barrier.expected != 0)
      message += fmt::format("\n  barrier {}: {} of {} threads have come", id, barrier.arrived, barrier.expected);
  }
  for (const auto& [address, barrier] : mbarriers) {
    if (barrier.waiting.empty()) continue;
    std::vector<uint32_t> threads = barrier.waiting;
    std::sort(threads.begin(), threads.end());
    const std::string bytes = barrier.pending_bytes > 0 ? fmt::format(" and {} bytes", barrier.pending_bytes) : "";
    message += fmt::format(
        "\n  mbarrier {}: {} of {} arrivals{} of phase {} (parity {}) are pending, threads {} wait for it",
        place(address), barrier.pending, barrier.count, bytes, barrier.phase, barrier.phase % 2, ranges(threads));
    if (barrier.pending_bytes < 0)
      message += fmt::format("; {} bytes have landed that nobody has expected", -barrier.pending_bytes);
  }
  if (!ready.empty()) message += fmt::format("\n  can go on: threads {}", ranges(ready));
  if (!ended.empty()) message += fmt::format("\n  ended: threads {}", ranges(ended));
  return message;
}

void Block::look(Instruction instruction, const CallSite& call, bool together) {
  constexpr uint64_t INTERVAL = 1024;
  constexpr uint64_t REMEMBERED = 4096;  // steps before the end of a loop: its lines are known by then
  const Options& options = launch.options;
  if (options.stop != nullptr && *options.stop) stop_early();
  const uint32_t thread = current.thread();
  const uint64_t taken = steps(thread);
  uint64_t next = taken + INTERVAL;
  if (options.max_steps != 0) {
    const uint64_t late = options.max_steps - std::min(options.max_steps / 2, REMEMBERED);
    next = std::min(next, late);
    if (taken >= late) {
      late_sites.resize(launch.warps() * 33);
      late_sites[together ? launch.warps() * 32 + thread / 32 : thread].insert(site_id(instruction, call));
    }
    if (taken > options.max_steps) {
      report_endless_loop(call);
      stop();
    }
  }
  current.warp->look_at = std::max(current.warp->look_at, next);
}

void Block::report_endless_loop(const CallSite& call) {
  const uint32_t thread = current.thread();
  std::set<std::pair<std::string, int>> lines;
  for (const uint32_t i : {thread, launch.warps() * 32 + thread / 32}) {
    for (const SiteId site : late_sites[i]) lines.emplace(sites[site].call.file, sites[site].call.line);
  }
  std::vector<SourceLine> where = {source_line(call)};
  std::string numbers;
  for (const auto& [file, line] : lines) {
    where.push_back({file, line});
    numbers += fmt::format("{}{}", numbers.empty() ? "" : ", ", line);
  }
  std::string message = fmt::format(
      "endless loop: {} has executed more than {} instructions in {}, and is at {}\n  it goes round in {} to {}, ",
      thread_name(thread), launch.options.max_steps, block_name(), to_string(where[0]), to_string(where[1]),
      where.back().line);
  message += fmt::format("with instructions in lines {}{}", numbers, who_waits_where());
  report_at(ReportKind::endless_loop, std::move(where), std::move(message));
}

SourceLine Block::last_line() const {
  const Warp& warp = *current.warp;
  const Progress& own = warp.progress[current.lane];
  if (own.together == static_cast<uint32_t>(warp.together)) return {own.file, static_cast<int>(own.line)};
  return source_line(warp.site);
}

void Block::stop_early() {
  stopped = true;
  switch_to_host();
}

void Block::stop() {
  failed = true;
  switch_to_host();
}

void Block::switch_to_host() {
  current.suspended = &current.warp->fibers[current.lane];
  fiber never = std::move(host).resume();
  std::abort();
}

// ---- shared memory ------------------------------------------------------------------------------------------------

void Block::bad_address(uint32_t address, uint32_t bytes, uint32_t alignment, SiteId site, uint32_t thread) {
  const bool misaligned = (address & (alignment - 1)) != 0;
  report({misaligned ? ReportKind::shared_misaligned : ReportKind::shared_out_of_bounds, site}, [&] {
    const std::string self =
        fmt::format("{} by {} at offset {}", at(site), actor_name(site, thread), int64_t{address} - SMEM_BASE);
    return misaligned
               ? fmt::format("misaligned shared access: {} is not aligned to {} bytes", self, alignment)
               : fmt::format("shared access out of bounds: {} for {} bytes; the block has {} bytes of shared memory",
                             self, bytes, launch.smem_bytes);
  });
  stop();
}

void Block::name_region(uint32_t address, uint32_t bytes, const char* name, uint32_t row_bytes) {
  const uint32_t offset = address - SMEM_BASE;
  if (offset >= launch.smem_bytes) return;  // an access there will be reported
  const auto known = std::find_if(regions.begin() + 1, regions.end(), [&](const Region& region) {
    return region.offset == offset && region.bytes == bytes && std::strcmp(region.name, name) == 0;
  });
  const auto number = static_cast<uint8_t>(known - regions.begin());
  if (known == regions.end()) {
    if (regions.size() == MAX_REGIONS) return;
    regions.push_back({offset, bytes, name, row_bytes});
  }
  const size_t first = offset / GRANULE;
  if (region_of[first] == number) return;
  const size_t last = std::min<size_t>((size_t{offset} + bytes + GRANULE - 1) / GRANULE, region_of.size());
  std::fill(region_of.begin() + static_cast<ptrdiff_t>(first), region_of.begin() + static_cast<ptrdiff_t>(last),
            number);
}

void Block::report_hazard(const RaceDetector::Actor& actor, const Hazard& hazard) {
  const uint32_t address = SMEM_BASE + hazard.offset;
  const bool within_warp = hazard.other != NO_SITE && !is_bulk_copy(hazard.other) && !is_bulk_copy(actor.site) &&
                           static_cast<uint32_t>(hazard.other_thread) / 32 == actor.warp;
  report({hazard.kind, actor.site, hazard.other, regions[region_at(address)].name, within_warp}, [&] {
    const std::string self = fmt::format("{} by {}", at(actor.site), actor_name(actor.site, actor.thread));
    const auto thread = static_cast<uint32_t>(hazard.other_thread);
    const std::string other = hazard.other == NO_SITE
                                  ? ""
                                  : fmt::format("{} by {}", at(hazard.other),
                                                hazard.other_is_warp ? fmt::format("warp {}", thread / 32)
                                                                     : actor_name(hazard.other, thread));
    const std::string where = place(address);
    switch (hazard.kind) {
      case ReportKind::uninitialised_read:
        return fmt::format("uninitialised read: {} reads {}, which nobody has written", self, where);
      case ReportKind::in_flight_read:
        return fmt::format("read of data in flight: {} reads {} before the wait of {}", self, where, other);
      case ReportKind::in_flight_overwrite:
        return fmt::format("write over data in flight: {} writes {} before the wait of {}", self, where, other);
      case ReportKind::barrier_misuse:
        return fmt::format("access to an mbarrier: {} touches {}, which is that of {}", self, where, other);
      case ReportKind::missing_proxy_fence:
        return fmt::format(
            "missing proxy fence: {} overwrites {}, written by {}, and no fence_proxy_async between them "
            "has told the copy engine",
            self, where, other);
      case ReportKind::race_read_after_write:
        return fmt::format("race, read after write without a barrier: {} reads {}, written by {}", self, where, other);
      case ReportKind::race_write_after_read:
        return fmt::format("race, write after read without a barrier: {} writes {}, read by {}", self, where, other);
      default:
        return fmt::format("race, write after write without a barrier: {} writes {}, written by {}", self, where,
                           other);
    }
  });
}

// ---- counting and trace ---------------------------------------------------------------------------------------------

void Block::log_access(uint32_t address, SiteId site) {
  // A lane that is far ahead of its warp lets the others catch up, so that logs stay short and line up.
  constexpr size_t CAPACITY = 1024;
  Warp& warp = *current.warp;
  const auto has_room = [&](uint32_t lane) { return warp.lanes[lane].accesses.size() < CAPACITY; };
  while (!has_room(current.lane)) {
    uint32_t behind = current.lane;
    do behind = warp.next_ready_after(behind);
    while (behind != current.lane && !has_room(behind));
    if (behind == current.lane) {
      count_accesses(warp);
    } else {
      switch_to(warp, behind);
    }
  }
  current.state().accesses.push_back({address, site});
}

void Block::count_accesses(Warp& warp) {
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
    count_wavefronts(request.site, request.address,
                     request_wavefronts(addresses, active, instruction.bytes, instruction.is_load));
  }
  for (Lane& lane : warp.lanes) lane.accesses.clear();
}

TraceEvent& Block::trace_event(Instruction instruction, const CallSite& call) {
  TraceEvent& event = trace.emplace_back();
  event.launch = launch.number;
  event.warp = static_cast<int>(current.warp->id);
  event.sequence = trace.size() - 1;
  event.instruction = info(instruction).name;
  event.file = call.file;
  event.line = static_cast<int>(call.line);
  return event;
}

TraceEvent& Block::trace_lane_event(Instruction instruction, const CallSite& call) {
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

void Block::trace_shared(TraceEvent& event, uint32_t address, uint32_t bytes) const {
  const Region& region = regions[region_at(address)];
  if (event.shared.buffer.empty() || event.shared.buffer == region.name)
    widen(event.shared, region.name, address - SMEM_BASE - region.offset, bytes);
}

void Block::trace_global(TraceEvent& event, const Device::Buffer* buffer, const void* address, uint32_t bytes) {
  if (buffer == nullptr || (!event.global.buffer.empty() && event.global.buffer != buffer->name)) return;
  widen(event.global, buffer->name, static_cast<uint64_t>(static_cast<const std::byte*>(address) - buffer->begin),
        bytes);
}

// ---- signals ----------------------------------------------------------------------------------------------------------

void Block::plain_access(const void* address, std::string_view what, const void* pc) {
  [&] {
    std::string buffer;
    const std::string place = global_place(static_cast<const std::byte*>(address), buffer);
    const auto [where, words] = line_of(pc);
    report_at(ReportKind::plain_access, {where},
              fmt::format("{} has {} {} with a plain pointer, {}; the ways to global memory are ld_global_*, "
                          "st_global_*, cp_async_16 and bulk copies, {}",
                          thread_name(current.thread()), what, place, words, block_name()),
              buffer);
  }();
  stop();
}

void Block::divided_by_zero(const void* pc) {
  [&] {
    const auto [where, words] = line_of(pc);
    report_at(
        ReportKind::kernel_exception, {where},
        fmt::format("{} has divided an integer by zero, {}, {}", thread_name(current.thread()), words, block_name()));
  }();
  stop();
}

void Block::stuck(const void* pc) {
  [&] {
    const auto [where, words] = line_of(pc);
    report_at(ReportKind::endless_loop, {where},
              fmt::format("endless loop: {} of {} has executed no emulated instruction for seconds, {}{}",
                          thread_name(current.thread()), block_name(), words, who_waits_where()));
  }();
  stop();
}

std::pair<SourceLine, std::string> Block::line_of(const void* pc) const {
  if (const std::optional<SourceLine> exact = machine_line(pc)) return {*exact, "at " + to_string(*exact)};
  const SourceLine last = last_line();
  return {last, last.line == 0 ? "before its first instruction" : "after " + to_string(last)};
}

// ---- words for reports ----------------------------------------------------------------------------------------------

std::string Block::at(SiteId site) const {
  return fmt::format("{} at {}", info(sites[site].instruction).name, to_string(source_line(sites[site].call)));
}

std::string Block::place(uint32_t address) const {
  const Region& region = regions[region_at(address)];
  const uint32_t offset = address - SMEM_BASE - region.offset;
  if (region.row_bytes == 0) return fmt::format("{}+{}", region.name, offset);
  return fmt::format("{} row {}, chunk {} ({}+{})", region.name, offset / region.row_bytes,
                     offset % region.row_bytes / 16, region.name, offset);
}

void Block::report_at(ReportKind kind, std::vector<SourceLine> where, std::string message, std::string buffer) {
  LoggedReport& added = log.reports().emplace_back();
  added.report = {kind, std::move(message), std::move(where), std::move(buffer)};
  added.block = linear_index;
}

std::string Block::global_place(const std::byte* address, std::string& name) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const Device::Buffer* nearest = nullptr;
  uintptr_t distance = uintptr_t{1} << 32;  // farther away no buffer is meant
  for (const Device::Buffer& buffer : launch.buffers) {
    const auto begin = reinterpret_cast<uintptr_t>(buffer.begin), end = begin + buffer.bytes;
    const uintptr_t away = at < begin ? begin - at : at < end ? 0 : at - end + 1;
    if (away >= distance) continue;
    nearest = &buffer;
    distance = away;
  }
  if (nearest == nullptr) return fmt::format("address {}", fmt::ptr(address));
  name = nearest->name;
  if (address < nearest->begin) return fmt::format("{} bytes before the start of {}", distance, name);
  const std::string place = fmt::format("{}+{}", name, address - nearest->begin);
  return distance == 0 ? place : fmt::format("{}, {} bytes after its end", place, distance - 1);
}

std::string Block::thread_name(uint32_t thread) {
  return fmt::format("thread {} (warp {})", thread, thread / 32);
}

std::string Block::actor_name(SiteId site, uint32_t thread) const {
  const bool is_wmma = info(sites[site].instruction).name.starts_with("wmma");
  if (is_bulk_copy(site)) return "the copy engine";
  return is_wmma ? fmt::format("warp {}", thread / 32) : thread_name(thread);
}

std::string Block::block_name() const {
  return fmt::format("block ({}, {}, {})", index.x, index.y, index.z);
}

}  // namespace emulator
