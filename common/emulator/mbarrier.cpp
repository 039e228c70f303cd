// mbarriers. A thread that waits for a phase is woken by the arrival that completes it, or by the last of the bytes
// that the phase expects. The arrivals of cp.async.mbarrier.arrive and the bytes of bulk copies come when the copies
// land, which is as late as possible: when no thread can go on, those that somebody waits for land.
#include "common/emulator/mbarrier.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include <utility>

#include "common/emulator/block.hpp"

namespace emulator {
namespace {

constexpr uint32_t BYTES = 8;
constexpr uint32_t MAX_COUNT = (1 << 20) - 1;  // of arrivals, and of bytes

template <class Make>
void report_misuse(SiteId site, uint32_t thread, uint32_t address, Make&& how) {
  Block& block = *current.block;
  const Wording& words = block.wording;
  block.report({ReportKind::barrier_misuse, site}, [&] {
    return words.at(site) + " by " + Wording::thread_name(thread) + " on " + words.place(address) + ": " + how();
  });
}

SiteId begin(Instruction instruction, const CallSite& call, uint32_t address, int operand) {
  give_way();
  Block& block = *current.block;
  step(instruction, call);
  const SiteId site = block.counting.site_id(instruction, call);
  block.require_valid(address, BYTES, site, current.thread());
  if (block.counting.tracing) {
    TraceEvent& event = block.counting.trace_lane_event(instruction, call);
    event.operand = operand;
    block.counting.trace_shared(event, address, BYTES);
  }
  return site;
}

void note_arrival(Lane& lane, const Arrived& arrived) {
  const auto known = std::ranges::find(lane.arrived, arrived.mbarrier, &Arrived::mbarrier);
  if (known == lane.arrived.end()) {
    lane.arrived.push_back(arrived);
  } else {
    *known = arrived;
  }
}

}  // namespace

void note_request(Lane& lane, const Request& request) {
  const auto known = std::ranges::find(lane.requests, request.mbarrier, &Request::mbarrier);
  if (known == lane.requests.end()) {
    lane.requests.push_back(request);
  } else {
    known->copies += request.copies;
    known->products += request.products;
    known->exponentials += request.exponentials;
    known->loads += request.loads;
  }
}

void Mbarriers::clear() {
  by_address.clear();
  made = 0;
}

Mbarrier* Mbarriers::find(SiteId site, uint32_t address) {
  const auto entry = by_address.find(address);
  if (entry == by_address.end()) {
    report_misuse(site, current.thread(), address, [] { return "nobody has initialised an mbarrier there"; });
    return nullptr;
  }
  const RaceDetector::Actor actor{current.warp->id, current.thread(), site};
  Hazard hazard;
  if (block.launch.options.check && block.races.use_mbarrier(current.block->races, actor, address - SMEM_BASE, hazard))
    current.block->report_hazard(actor, hazard);
  return &entry->second;
}

Mbarrier* Mbarriers::find_for_bulk(SiteId site, uint32_t address) {
  Mbarrier* const barrier = find(site, address);
  if (barrier != nullptr && !barrier->fenced) {
    report_misuse(site, current.thread(), address, [&] {
      return fmt::format("the copy engine may not know it: no fence_mbarrier_init by {} after its initialisation",
                         Wording::thread_name(barrier->initialised_by));
    });
  }
  return barrier;
}

void Mbarriers::pass(Mbarrier& barrier, const MbarrierWait& wait) {
  if (!block.launch.options.check) return;
  const uint32_t thread = wait.thread;
  barrier.waits.push_back(wait);
  block.races.acquire_thread(thread, barrier.completed);
  const uint32_t group = thread / WARPGROUP_THREADS;
  if (barrier.asked_before.any && group < block.warpgroups.size() && (barrier.groups_passed >> group & 1) == 0) {
    barrier.groups_passed |= 1u << group;
    block.counting.counters.wgmma_under_loads += block.warpgroups[group].products - barrier.asked_before.over[group];
  }
  uint32_t& lanes = barrier.passed[thread / 32];
  lanes |= 1u << thread % 32;
  if ((block.warps[thread / 32].live & ~lanes) == 0) block.races.acquire(thread / 32, barrier.completed);
}

void Mbarriers::count_arrival(uint32_t address, SiteId site, uint32_t thread, uint32_t bytes_to_land) {
  Mbarrier& barrier = by_address.at(address);
  if (barrier.pending == 0) {
    report_misuse(site, thread, address, [&] {
      return fmt::format("all {} arrivals of phase {} have come, it only waits for {} bytes", barrier.count,
                         barrier.phase, barrier.pending_bytes);
    });
    return;
  }
  --barrier.pending;
  barrier.pending_bytes += bytes_to_land;
  complete_phase(address, site, thread);
}

void Mbarriers::arrive_after_copies(uint32_t thread, const Arrival& arrival) {
  Mbarrier& barrier = by_address.at(arrival.mbarrier);
  barrier.in_flight.erase(std::find(barrier.in_flight.begin(), barrier.in_flight.end(), thread));
  if (block.launch.options.check) block.races.release_copies(thread / 32, barrier.released);
  count_arrival(arrival.mbarrier, arrival.site, thread);
}

void Mbarriers::complete_phase(uint32_t address, SiteId site, uint32_t thread) {
  Mbarrier& barrier = by_address.at(address);
  if (barrier.pending != 0 || barrier.pending_bytes > 0) return;
  if (barrier.pending_bytes < 0) {
    report_misuse(site, thread, address, [&] {
      return fmt::format("{} bytes more have landed in phase {} than were expected", -barrier.pending_bytes,
                         barrier.phase);
    });
  }
  if (barrier.woken != 0) {
    report_misuse(site, thread, address, [&] {
      return fmt::format(
          "it completes phase {} while {} threads that wait for phase {} have yet to see it; more than {} arrivals a "
          "phase?",
          barrier.phase, barrier.woken, barrier.phase - 1, barrier.count);
    });
  } else if (block.launch.options.check) {
    check_waits(barrier, address, site, thread);
  }
  barrier.waits.clear();
  ++barrier.phase;
  barrier.pending = barrier.count;
  barrier.pending_bytes = 0;
  if (block.launch.options.check) barrier.completed = block.races.completed(barrier.released);
  barrier.passed = {};
  barrier.asked_before = std::exchange(barrier.asked_now, {});
  barrier.groups_passed = 0;
  for (const MbarrierWait& wait : barrier.waiting) {
    block.warps[wait.thread / 32].ready |= 1u << wait.thread % 32;
    pass(barrier, wait);
  }
  barrier.woken += static_cast<uint32_t>(barrier.waiting.size());
  barrier.waiting.clear();
}

// A wait names no phase but its parity. So whoever has waited for the last phase must have done so before this one can end,
// and somebody must have, or who waits next does not know for what.
void Mbarriers::check_waits(Mbarrier& barrier, uint32_t address, SiteId site, uint32_t thread) {
  const uint64_t phase = barrier.phase;
  if (phase > 0 && barrier.waits.empty()) barrier.unseen = site;
  for (const MbarrierWait& wait : barrier.waits) {
    if (RaceDetector::is_past(wait.moment, barrier.released) || RaceDetector::is_past(wait.moment, barrier.asked))
      continue;
    block.report({ReportKind::barrier_misuse, site, wait.site}, [&] {
      return fmt::format(
          "{} by {} on {}: it completes phase {}, and nothing says that {} has been at {} by then; if it comes there "
          "later, it waits for a phase {} that may need it",
          block.wording.at(site), Wording::thread_name(thread), block.wording.place(address), phase,
          Wording::thread_name(wait.thread), block.wording.at(wait.site), phase + 1);
    });
    break;
  }
}

void Mbarriers::land_bulk_copy(uint32_t address) {
  Mbarrier& barrier = by_address.at(address);
  const BulkCopy copy = barrier.bulk_copies.front();
  barrier.bulk_copies.erase(barrier.bulk_copies.begin());
  const uint32_t bytes = copy.bytes;
  if (copy.value) {
    std::memcpy(block.smem.at(copy.to), &*copy.value, bytes);
  } else if (copy.readable && copy.from == nullptr) {
    write_box(block, copy);
  } else if (copy.readable) {
    std::memcpy(block.smem.at(copy.to), block.global(copy.from), bytes);
  }
  if (block.launch.options.check) {
    block.races.land_bulk(copy.site, barrier.number, copy.to - SMEM_BASE, bytes);
    block.races.release_bulk(barrier.number, barrier.released);
  }
  barrier.pending_bytes -= bytes;
  complete_phase(address, copy.site, copy.thread);
}

bool Mbarriers::land_awaited_copies() {
  for (auto& [address, barrier] : by_address) {
    if (barrier.waiting.empty()) continue;
    while (!barrier.bulk_copies.empty() && !barrier.waiting.empty()) land_bulk_copy(address);
    while (!barrier.in_flight.empty() && !barrier.waiting.empty()) {
      const uint32_t thread = barrier.in_flight.front();
      const auto& arrivals = block.warps[thread / 32].lanes[thread % 32].arrivals;
      const auto next = std::find_if(arrivals.begin(), arrivals.end(),
                                     [mbarrier = address](const Arrival& a) { return a.mbarrier == mbarrier; });
      block.land_copies(thread, next->copies);
    }
    if (barrier.waiting.empty()) return true;
  }
  return false;
}

void Mbarriers::report_unawaited_copies() {
  for (const auto& entry : by_address) {
    const uint32_t address = entry.first;
    const Mbarrier& barrier = entry.second;
    for (const uint32_t thread : barrier.in_flight) {
      const SiteId site = block.warps[thread / 32].lanes[thread % 32].copies.front().site;
      block.report({ReportKind::exit_in_flight, site}, [&] {
        return fmt::format("the block ends before anybody has waited at {} for {} by {}", block.wording.place(address),
                           block.wording.at(site), Wording::thread_name(thread));
      });
    }
    for (const BulkCopy& copy : barrier.bulk_copies) {
      block.report({ReportKind::exit_in_flight, copy.site}, [&] {
        return fmt::format("the block ends before anybody has waited at {} for {} by {}", block.wording.place(address),
                           block.wording.at(copy.site), Wording::thread_name(copy.thread));
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
    report_misuse(site, current.thread(), address,
                  [&] { return fmt::format("a count of {}; it must be 1 to {}", count, MAX_COUNT); });
    return;
  }
  if (block.mbarriers.by_address.contains(address)) {
    report_misuse(site, current.thread(), address, [] {
      return "there is an mbarrier already; one thread initialises it, once, or mbarrier_inval ends it before";
    });
    return;
  }
  const RaceDetector::Actor actor{current.warp->id, current.thread(), site};
  Hazard hazard;
  if (block.launch.options.check && block.races.initialise_mbarrier(actor, address - SMEM_BASE, hazard))
    block.report_hazard(actor, hazard);
  block.mbarriers.by_address.try_emplace(address, count, block.mbarriers.made++, current.thread());
}

void mbarrier_inval(uint32_t address, CallSite call) {
  Block& block = *current.block;
  const SiteId site = begin(Instruction::mbarrier_inval, call, address, 0);
  const auto entry = block.mbarriers.by_address.find(address);
  if (entry == block.mbarriers.by_address.end()) {
    report_misuse(site, current.thread(), address, [] { return "nobody has initialised an mbarrier there"; });
    return;
  }
  const Mbarrier& barrier = entry->second;
  if (!barrier.waiting.empty() || !barrier.in_flight.empty() || !barrier.bulk_copies.empty()) {
    report_misuse(site, current.thread(), address, [&] {
      return fmt::format("it ends an mbarrier at which {} threads wait and {} copies are to land",
                         barrier.waiting.size(), barrier.in_flight.size() + barrier.bulk_copies.size());
    });
    return;
  }
  const RaceDetector::Actor actor{current.warp->id, current.thread(), site};
  Hazard hazard;
  if (block.launch.options.check && block.races.invalidate_mbarrier(actor, address - SMEM_BASE, hazard))
    block.report_hazard(actor, hazard);
  block.mbarriers.by_address.erase(entry);
}

void mbarrier_arrive(uint32_t address, CallSite call) {
  Block& block = *current.block;
  const SiteId site = begin(Instruction::mbarrier_arrive, call, address, 0);
  Mbarrier* const barrier = block.mbarriers.find(site, address);
  if (barrier == nullptr) return;
  if (block.launch.options.check) block.races.release_thread(current.thread(), barrier->released);
  note_arrival(current.state(), {address, barrier->phase, current.warp->products});
  block.counting.counters.arrivals_under_stores += !current.state().bulk_stores.empty();
  block.mbarriers.count_arrival(address, site, current.thread());
}

void mbarrier_arrive_remote(uint32_t address, uint32_t rank, CallSite call) {
  Block& block = *current.block;
  const SiteId site = begin(Instruction::mbarrier_arrive_remote, call, address, static_cast<int>(rank));
  Block* const peer = peer_block(site, rank);
  if (peer == nullptr) return;
  Mbarrier* const barrier = peer->mbarriers.find(site, address);
  if (barrier == nullptr) return;
  if (block.launch.options.check) block.races.release_thread(current.thread(), barrier->released);
  block.counting.counters.arrivals_under_stores += !current.state().bulk_stores.empty();
  peer->mbarriers.count_arrival(address, site, current.thread());
}

void mbarrier_arrive_expect_tx(uint32_t address, uint32_t bytes, CallSite call) {
  Block& block = *current.block;
  const SiteId site = begin(Instruction::mbarrier_arrive_expect_tx, call, address, static_cast<int>(bytes));
  Mbarrier* const barrier = block.mbarriers.find(site, address);
  if (barrier == nullptr) return;
  if (barrier->pending_bytes + bytes > MAX_COUNT) {
    report_misuse(site, current.thread(), address, [&] {
      return fmt::format("{} bytes in a phase; it can expect {}", barrier->pending_bytes + bytes, MAX_COUNT);
    });
    return;
  }
  if (block.launch.options.check) block.races.release_thread(current.thread(), barrier->released);
  block.mbarriers.count_arrival(address, site, current.thread(), bytes);
}

void fence_mbarrier_init(CallSite call) {
  Block& block = *current.block;
  step(Instruction::fence_mbarrier_init, call);
  if (block.counting.tracing) block.counting.trace_lane_event(Instruction::fence_mbarrier_init, call);
  for (auto& [address, barrier] : block.mbarriers.by_address)
    barrier.fenced |= barrier.initialised_by == current.thread();
}

void cp_async_mbarrier_arrive_noinc(uint32_t address, CallSite call) {
  Block& block = *current.block;
  Lane& lane = current.state();
  const SiteId site = begin(Instruction::mbarrier_arrive_noinc, call, address, 0);
  Mbarrier* const barrier = block.mbarriers.find(site, address);
  if (barrier == nullptr) return;
  // Copies that have landed in a wait are this thread's own writes, and to be let go of as such.
  if (block.launch.options.check && lane.has_waited) block.races.release_thread(current.thread(), barrier->released);
  lane.has_waited = false;
  Request request{address, 0, 0, 0};
  for (auto copy = lane.copies.rbegin(); copy != lane.copies.rend() && !copy->is_tracked; ++copy) {
    copy->is_tracked = true;
    ++request.copies;
    request.products += copy->products;
    request.exponentials += copy->exponentials;
  }
  if (request.copies > 0) note_request(lane, request);
  if (lane.copies.empty()) {
    if (block.launch.options.check) {
      block.races.release_copies(current.warp->id, barrier->released);
      block.races.release_thread(current.thread(), barrier->asked);
    }
    block.mbarriers.count_arrival(address, site, current.thread());
    return;
  }
  if (block.launch.options.check) block.races.release_thread(current.thread(), barrier->asked);
  lane.arrivals.push_back({address, site, lane.copies.size()});
  barrier->in_flight.push_back(current.thread());
}

void mbarrier_wait_parity(uint32_t address, uint32_t parity, CallSite call) {
  Block& block = *current.block;
  const SiteId site = begin(Instruction::mbarrier_wait, call, address, static_cast<int>(parity));
  Mbarrier* const barrier = block.mbarriers.find(site, address);
  if (barrier == nullptr) return;
  if (parity > 1) {
    report_misuse(site, current.thread(), address, [&] { return fmt::format("a parity of {}; it is 0 or 1", parity); });
    return;
  }
  current.warp->note_wait(current.lane);
  ++block.counting.counters.mbarrier_waits;
  Lane& lane = current.state();
  std::erase_if(lane.requests, [&](const Request& request) {
    if (request.mbarrier != address) return false;
    block.counting.counters.products_under_copies += request.copies * current.warp->products - request.products;
    block.counting.counters.exponentials_under_copies += request.copies * lane.exponentials - request.exponentials;
    block.counting.counters.loads_awaited_by_asker += request.loads;
    return true;
  });
  const bool is_over = barrier->phase % 2 != parity;
  std::erase_if(lane.arrived, [&](const Arrived& arrived) {
    if (arrived.mbarrier != address || arrived.phase + (is_over ? 1 : 0) != barrier->phase) return false;
    if (arrived.products != 0 && arrived.products == current.warp->products)
      ++block.counting.counters.arrivals_awaited_at_once;
    return true;
  });
  MbarrierWait own{current.thread(), site, {}};
  if (block.launch.options.check) {
    if (const SiteId unseen = std::exchange(barrier->unseen, NO_SITE); unseen != NO_SITE) {
      block.report({ReportKind::barrier_misuse, site, unseen}, [&] {
        return fmt::format(
            "{} by {} on {}: two phases or more have been completed, the last by {}, since anybody has waited here; "
            "more than {} arrivals a phase?",
            block.wording.at(site), Wording::thread_name(current.thread()), block.wording.place(address),
            block.wording.at(unseen), barrier->count);
      });
    }
    const auto& groups = block.warpgroups;
    const uint32_t group = own.thread / WARPGROUP_THREADS;
    own.moment = block.races.moment(own.thread, group < groups.size() ? groups[group].products : 0);
  }
  if (is_over) {
    block.mbarriers.pass(*barrier, own);
    return;
  }
  barrier->waiting.push_back(own);
  lane.waits_in = Instruction::mbarrier_wait;
  lane.waits_at = call;
  current.warp->ready &= ~(1u << current.lane);
  const uint32_t number = barrier->number;
  wait();
  const auto entry =
      block.mbarriers.by_address.find(address);  // it may have been ended, which somebody else's fault would be
  if (entry != block.mbarriers.by_address.end() && entry->second.number == number) --entry->second.woken;
}

}  // namespace emulated
