// mbarriers. A thread that waits for a phase is woken by the arrival that completes it. The arrivals of
// cp.async.mbarrier.arrive come when their copies land, which is as late as possible: when no thread can go on, those
// that somebody waits for land.
#include <fmt/format.h>
#include "common/emulator/block.hpp"

namespace emulator {
namespace {

constexpr uint32_t BYTES = 8;
constexpr uint32_t MAX_COUNT = (1 << 20) - 1;

template <class Make>
void report_misuse(SiteId site, uint32_t address, Make&& how) {
  Block& block = *current.block;
  block.report({ReportKind::barrier_misuse, site}, [&] {
    return fmt::format("{} by {} on {}: {}", block.at(site), Block::thread_name(current.thread()), block.place(address),
                       how());
  });
}

SiteId begin(Instruction instruction, const CallSite& call, uint32_t address, int operand) {
  Block& block = *current.block;
  const SiteId site = block.site_id(instruction, call);
  block.require_valid(address, BYTES, site, current.thread());
  if (block.tracing) {
    TraceEvent& event = block.trace_lane_event(instruction, call);
    event.operand = operand;
    block.trace_shared(event, address, BYTES);
  }
  return site;
}

// Null, and a report, if there is none.
Mbarrier* find(SiteId site, uint32_t address) {
  Block& block = *current.block;
  const auto entry = block.mbarriers.find(address);
  if (entry == block.mbarriers.end()) {
    report_misuse(site, address, [] { return "nobody has initialised an mbarrier there"; });
    return nullptr;
  }
  const RaceDetector::Actor actor{current.warp->id, current.thread(), site};
  Hazard hazard;
  if (block.launch.options.check && block.races.use_mbarrier(actor, address - Block::SMEM_BASE, hazard))
    block.report_hazard(actor, hazard);
  return &entry->second;
}

}  // namespace

// `thread` knows that the last phase has completed.
void Block::pass(Mbarrier& barrier, uint32_t thread) {
  if (!launch.options.check) return;
  races.acquire_thread(thread, barrier.completed);
  uint32_t& lanes = barrier.passed[thread / 32];
  lanes |= 1u << thread % 32;
  if ((warps[thread / 32].live & ~lanes) == 0) races.acquire(thread / 32, barrier.completed);
}

void Block::count_arrival(uint32_t address, SiteId site) {
  Mbarrier& barrier = mbarriers.at(address);
  if (--barrier.pending != 0) return;
  if (barrier.woken != 0) {
    report_misuse(site, address, [&] {
      return fmt::format(
          "it completes phase {} while {} threads that wait for phase {} have yet to see it; more than {} arrivals a "
          "phase?",
          barrier.phase, barrier.woken, barrier.phase - 1, barrier.count);
    });
  }
  ++barrier.phase;
  barrier.pending = barrier.count;
  barrier.completed = barrier.clock;
  barrier.passed = {};
  for (const uint32_t thread : barrier.waiting) {
    warps[thread / 32].ready |= 1u << thread % 32;
    pass(barrier, thread);
  }
  barrier.woken += static_cast<uint32_t>(barrier.waiting.size());
  barrier.waiting.clear();
}

bool Block::land_awaited_copies() {
  for (auto& [address, barrier] : mbarriers) {
    if (barrier.waiting.empty()) continue;
    while (!barrier.in_flight.empty() && !barrier.waiting.empty()) {
      const uint32_t thread = barrier.in_flight.front();
      const auto& arrivals = warps[thread / 32].lanes[thread % 32].arrivals;
      const auto next = std::find_if(arrivals.begin(), arrivals.end(),
                                     [mbarrier = address](const Arrival& a) { return a.mbarrier == mbarrier; });
      land_copies(thread, next->copies);
    }
    if (barrier.waiting.empty()) return true;
  }
  return false;
}

void Block::report_unawaited_copies() {
  for (const auto& [address, barrier] : mbarriers) {
    for (const uint32_t thread : barrier.in_flight) {
      const SiteId site = warps[thread / 32].lanes[thread % 32].copies.front().site;
      report({ReportKind::exit_in_flight, site}, [&] {
        return fmt::format("the block ends before anybody has waited at {} for {} by {}", place(address), at(site),
                           thread_name(thread));
      });
    }
  }
}

}  // namespace emulator

inline namespace emulated {

using namespace emulator;

void mbarrier_init(uint32_t address, uint32_t count, CallSite call) {
  Block& block = *current.block;
  const SiteId site = begin(Instruction::mbarrier_init, call, address, static_cast<int>(count));
  if (count == 0 || count > MAX_COUNT) {
    report_misuse(site, address, [&] { return fmt::format("a count of {}; it must be 1 to {}", count, MAX_COUNT); });
    return;
  }
  if (block.mbarriers.contains(address)) {
    report_misuse(site, address, [] { return "there is an mbarrier already; one thread initialises it, once"; });
    return;
  }
  const RaceDetector::Actor actor{current.warp->id, current.thread(), site};
  Hazard hazard;
  if (block.launch.options.check && block.races.initialise_mbarrier(actor, address - Block::SMEM_BASE, hazard))
    block.report_hazard(actor, hazard);
  block.mbarriers.try_emplace(address, count);
}

void mbarrier_arrive(uint32_t address, CallSite call) {
  Block& block = *current.block;
  const SiteId site = begin(Instruction::mbarrier_arrive, call, address, 0);
  Mbarrier* const barrier = find(site, address);
  if (barrier == nullptr) return;
  if (block.launch.options.check) block.races.release_thread(current.thread(), barrier->clock);
  block.count_arrival(address, site);
}

void cp_async_mbarrier_arrive_noinc(uint32_t address, CallSite call) {
  Block& block = *current.block;
  Lane& lane = current.state();
  const SiteId site = begin(Instruction::mbarrier_arrive_noinc, call, address, 0);
  Mbarrier* const barrier = find(site, address);
  if (barrier == nullptr) return;
  // Copies that have landed in a wait are this thread's own writes, and to be let go of as such.
  if (block.launch.options.check && lane.has_waited) block.races.release_thread(current.thread(), barrier->clock);
  lane.has_waited = false;
  if (lane.copies.empty()) {
    if (block.launch.options.check) block.races.release_copies(current.warp->id, barrier->clock);
    block.count_arrival(address, site);
    return;
  }
  lane.arrivals.push_back({address, site, lane.copies.size()});
  barrier->in_flight.push_back(current.thread());
}

void mbarrier_wait_parity(uint32_t address, uint32_t parity, CallSite call) {
  Block& block = *current.block;
  const SiteId site = begin(Instruction::mbarrier_wait, call, address, static_cast<int>(parity));
  Mbarrier* const barrier = find(site, address);
  if (barrier == nullptr) return;
  if (parity > 1) {
    report_misuse(site, address, [&] { return fmt::format("a parity of {}; it is 0 or 1", parity); });
    return;
  }
  if (barrier->phase % 2 != parity) {
    block.pass(*barrier, current.thread());
    return;
  }
  barrier->waiting.push_back(current.thread());
  Lane& lane = current.state();
  lane.waits_in = Instruction::mbarrier_wait;
  lane.waits_at = call;
  current.warp->ready &= ~(1u << current.lane);
  block.wait();
  --barrier->woken;
}

}  // namespace emulated
