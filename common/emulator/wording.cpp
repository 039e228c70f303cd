#include "common/emulator/wording.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <map>

#include "common/emulator/block.hpp"

namespace emulator {
namespace {

std::string threads_of(const Warp& warp, uint32_t lanes) {
  std::vector<uint32_t> threads;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if (lanes >> lane & 1) threads.push_back(warp.id * 32 + lane);
  }
  return ranges(threads);
}

}  // namespace

// ---- names --------------------------------------------------------------------------------------------------------

std::string Wording::at(SiteId id) const {
  const Site& site = block.counting.sites[id];
  return fmt::format("{} at {}", info(site.instruction).name, to_string(source_line(site.call)));
}

std::string Wording::place(uint32_t address) const {
  const Region& region = block.smem.region_at(address);
  const uint32_t offset = address - SMEM_BASE - region.offset;
  if (region.row_bytes == 0) return fmt::format("{}+{}", region.name, offset);
  return fmt::format("{} row {}, chunk {} ({}+{})", region.name, offset / region.row_bytes,
                     offset % region.row_bytes / 16, region.name, offset);
}

std::string Wording::thread_name(uint32_t thread) {
  return fmt::format("thread {} (warp {})", thread, thread / 32);
}

std::string Wording::actor_name(SiteId site, uint32_t thread) const {
  const bool is_wmma = info(block.counting.sites[site].instruction).name.starts_with("wmma");
  if (block.is_bulk_copy(site)) return "the copy engine";
  if (block.is_wgmma(site)) return fmt::format("warpgroup {}", thread / WARPGROUP_THREADS);
  return is_wmma ? fmt::format("warp {}", thread / 32) : thread_name(thread);
}

std::string Wording::block_name() const {
  return block_name(block.launch.grid, block.linear_index);
}
std::string Wording::block_name(const dim3& grid, uint64_t block) {
  return fmt::format("block ({}, {}, {})", block % grid.x, block / grid.x % grid.y, block / grid.x / grid.y);
}

std::string Wording::global_place(const std::byte* address, std::string& name) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const Device::Buffer* nearest = nullptr;
  uintptr_t distance = uintptr_t{1} << 32;  // farther away no buffer is meant
  for (const Device::Buffer& buffer : block.launch.buffers) {
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

std::string Wording::line_name(const SourceLine& line, bool is_exact) {
  if (is_exact) return "at " + to_string(line);
  return line.line == 0 ? "before its first instruction" : "after " + to_string(line);
}

// ---- the scheduler's reports --------------------------------------------------------------------------------------

std::string Wording::deadlock() const {
  std::string message = fmt::format("deadlock, no thread of {} can go on:{}", block_name(), who_waits_where());
  for (const auto& other : block.cluster.blocks) {
    if (other.get() == &block || other->scheduler.live == 0) continue;
    message += fmt::format("\nand of {}:{}", other->wording.block_name(), other->wording.who_waits_where());
  }
  return message;
}

std::string Wording::endless_loop(uint32_t thread, const std::vector<SourceLine>& where) const {
  std::string numbers;
  for (size_t i = 1; i < where.size(); ++i) numbers += fmt::format("{}{}", numbers.empty() ? "" : ", ", where[i].line);
  const std::string message = fmt::format(
      "endless loop: {} has executed more than {} instructions in {}, and is at {}\n  it goes round in {} to {}, ",
      thread_name(thread), block.launch.options.max_steps, block_name(), to_string(where[0]), to_string(where[1]),
      where.back().line);
  return message + fmt::format("with instructions in lines {}{}", numbers, who_waits_where());
}

std::string Wording::who_waits_where() const {
  std::map<std::string, std::vector<uint32_t>> waiting;  // by place, in alphabetical order
  std::vector<uint32_t> ended, ready;
  for (uint32_t thread = 0; thread < block.launch.threads(); ++thread) {
    const Warp& warp = block.warps[thread / 32];
    if ((warp.live >> thread % 32 & 1) == 0) {
      ended.push_back(thread);
      continue;
    }
    if (warp.ready >> thread % 32 & 1) {
      ready.push_back(thread);
      continue;
    }
    const auto [instruction, call] = warp.waits_in(thread % 32);
    waiting[fmt::format("{} at {}", info(instruction).name, to_string(source_line(call)))].push_back(thread);
  }
  std::string message;
  for (const auto& [where, threads] : waiting) message += fmt::format("\n  {}: threads {}", where, ranges(threads));
  const auto& named_barriers = block.scheduler.named_barriers;
  for (size_t id = 0; id < named_barriers.size(); ++id) {
    const NamedBarrier& barrier = named_barriers[id];
    if (barrier.expected != 0)
      message += fmt::format("\n  barrier {}: {} of {} threads have come", id, barrier.arrived, barrier.expected);
  }
  for (const RegisterWait& each : block.scheduler.register_waits) {
    message += fmt::format("\n  warpgroup {} waits for {} registers per thread and has {}, {} are free", each.warpgroup,
                           each.registers, block.warpgroups[each.warpgroup].registers, block.scheduler.free_registers);
  }
  for (const auto& [address, barrier] : block.mbarriers.by_address) {
    if (barrier.waiting.empty()) continue;
    std::vector<uint32_t> threads;
    for (const MbarrierWait& each : barrier.waiting) threads.push_back(each.thread);
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

std::string Wording::incomplete_warp(SiteId site, const Warp& warp) const {
  return fmt::format("{} needs all 32 threads of warp {}, but threads {} have ended or never existed", at(site),
                     warp.id, threads_of(warp, ~warp.live));
}

std::string Wording::divergence(SiteId here, uint32_t thread, SiteId there, const Warp& warp) const {
  return fmt::format("{} has reached {} while other threads of its warp ({}) wait in {}", thread_name(thread), at(here),
                     threads_of(warp, warp.arrived), at(there));
}

std::string Wording::exception(uint32_t thread, std::string_view what) {
  return fmt::format("{} has thrown: {}", thread_name(thread), what);
}

std::string Wording::stack_overflow(uint32_t thread) {
  return thread_name(thread) + " has used more stack than there is";
}

std::string Wording::thread_exit(SiteId copy, uint32_t thread) const {
  return fmt::format("{} ends before it has waited for its {}", thread_name(thread), at(copy));
}

// ---- shared memory's ----------------------------------------------------------------------------------------------

std::string Wording::bad_address(uint32_t address, uint32_t bytes, uint32_t alignment, SiteId site,
                                 uint32_t thread) const {
  const std::string self =
      fmt::format("{} by {} at offset {}", at(site), actor_name(site, thread), int64_t{address} - SMEM_BASE);
  return (address & (alignment - 1)) != 0
             ? fmt::format("misaligned shared access: {} is not aligned to {} bytes", self, alignment)
             : fmt::format("shared access out of bounds: {} for {} bytes; the block has {} bytes of shared memory",
                           self, bytes, block.smem.bytes());
}

bool Wording::is_store(SiteId site) const {
  return is_bulk_store(block.counting.sites[site].instruction);
}

std::string Wording::hazard(const RaceDetector::Actor& actor, const Hazard& hazard) const {
  const std::string self = fmt::format("{} by {}", at(actor.site), actor_name(actor.site, actor.thread));
  const auto thread = static_cast<uint32_t>(hazard.other_thread);
  const std::string other =
      hazard.other == NO_SITE
          ? ""
          : fmt::format("{} by {}{}", at(hazard.other),
                        hazard.other_is_warp ? fmt::format("warp {}", thread / 32) : actor_name(hazard.other, thread),
                        hazard.other_rank < 0 ? "" : fmt::format(" of the block of rank {}", hazard.other_rank));
  const std::string where = place(SMEM_BASE + hazard.offset);
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
          "missing proxy fence: {} {} {}, written by {}, and no fence_proxy_async between them has told {}", self,
          block.is_wgmma(actor.site) || is_store(actor.site) ? "reads" : "overwrites", where, other,
          block.is_wgmma(actor.site) ? "the tensor cores" : "the copy engine");
    case ReportKind::race_read_after_write:
      return fmt::format("race, read after write without a barrier: {} reads {}, written by {}", self, where, other);
    case ReportKind::race_write_after_read:
      return fmt::format("race, write after read without a barrier: {} writes {}, read by {}", self, where, other);
    default:
      return fmt::format("race, write after write without a barrier: {} writes {}, written by {}", self, where, other);
  }
}

// ---- the signals' -------------------------------------------------------------------------------------------------

std::string Wording::plain_access(std::string_view what, std::string_view place, std::string_view line_name) const {
  return fmt::format(
      "{} has {} {} with a plain pointer, {}; the ways to global memory are ld_global_*, "
      "st_global_*, cp_async_16 and bulk copies, {}",
      thread_name(current.thread()), what, place, line_name, block_name());
}

std::string Wording::no_quotient(std::string_view line_name) const {
  return fmt::format("{} has divided integers without a quotient, {}, {}", thread_name(current.thread()), line_name,
                     block_name());
}

std::string Wording::stuck(std::string_view line_name) const {
  return fmt::format("endless loop: {} of {} has executed no emulated instruction for seconds, {}{}",
                     thread_name(current.thread()), block_name(), line_name, who_waits_where());
}

}  // namespace emulator
