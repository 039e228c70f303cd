#include "common/emulator/global_order.hpp"

#include <algorithm>

namespace emulator {

void GlobalOrder::clear() {
  has_reductions_ = false;
  reads_ = 0;
  all_.clear();
  indexed_ = 0;
  lines_.clear();
}

void GlobalOrder::land(const RaceDetector::Actor& actor, size_t first, size_t count) {
  for (size_t i = first; i < first + count; ++i) {
    all_[i].cell = races_.cell_of(actor);
    all_[i].in_flight = false;
  }
}

void GlobalOrder::fence_proxy(const RaceDetector::Actor& actor) {
  for (Access& each : all_) {
    if (each.fence == 0 && !each.in_flight && races_.is_ordered(each.cell, actor)) each.fence = races_.cell_of(actor);
  }
}

// Of one that a thread has done before in the same way and place, the later one is remembered.
void GlobalOrder::index() {
  for (; indexed_ < all_.size(); ++indexed_) {
    Access& own = all_[indexed_];
    const auto is_same = [&](uint32_t number) {
      const Access& other = all_[number];
      return other.first == own.first && other.bytes == own.bytes && other.use == own.use && !other.by_engine &&
             races_.thread_of(other.cell) == races_.thread_of(own.cell);
    };
    if (!own.by_engine) {
      const std::vector<uint32_t>& line = lines_[reinterpret_cast<uintptr_t>(own.first) / LINE_BYTES];
      const auto same = std::find_if(line.begin(), line.end(), is_same);
      if (same != line.end()) {
        all_[*same] = own;
        continue;
      }
    }
    for_each_line(own, [&](uintptr_t line) { lines_[line].push_back(static_cast<uint32_t>(indexed_)); });
  }
}

bool GlobalOrder::find_fault(const RaceDetector::Actor& actor, const Access& access, Fault& fault) {
  index();
  bool found = false;
  for_each_line(access, [&](uintptr_t line) {
    const auto known = lines_.find(line);
    if (found || known == lines_.end()) return;
    found = std::any_of(known->second.begin(), known->second.end(),
                        [&](uint32_t number) { return is_fault(all_[number], actor, access, fault); });
  });
  return found;
}

bool GlobalOrder::is_fault(const Access& earlier, const RaceDetector::Actor& actor, const Access& access,
                           Fault& fault) {
  if (earlier.first >= access.first + access.bytes || access.first >= earlier.first + earlier.bytes) return false;
  const bool one_reduces = (earlier.use == GlobalUse::reduction) != (access.use == GlobalUse::reduction);
  const bool engine_meets = access.by_engine && !earlier.by_engine && earlier.use != GlobalUse::read;
  const bool engine_reads = engine_meets && access.use == GlobalUse::read;
  if (!one_reduces && !engine_reads) return false;
  fault.earlier = earlier;
  if (earlier.in_flight) {
    fault.kind = access.use == GlobalUse::read ? ReportKind::in_flight_read : ReportKind::in_flight_overwrite;
    return true;
  }
  if (!races_.is_ordered(earlier.cell, actor)) {
    fault.kind = access.use == GlobalUse::read    ? ReportKind::race_read_after_write
                 : earlier.use == GlobalUse::read ? ReportKind::race_write_after_read
                                                  : ReportKind::race_write_after_write;
    return true;
  }
  fault.kind = ReportKind::missing_proxy_fence;
  return engine_meets && (earlier.fence == 0 || !races_.is_ordered(earlier.fence, actor));
}

}  // namespace emulator
