#include "common/emulator/race_detector.hpp"

namespace emulator {

Hazard RaceDetector::hazard_with(ReportKind kind, size_t cell_index, Cell other) {
  return {kind, static_cast<uint32_t>(cell_index * 4), static_cast<int>(thread_of(other)),
          static_cast<SiteId>(other & 0xffff), (other & SEVERAL) != 0};
}

void RaceDetector::start_block(uint32_t bytes, uint32_t warps) {
  const size_t cells = (bytes + 3) / 4;
  warps_ = warps;
  writers_.assign(cells, 0);
  readers_.assign(cells * warps, 0);
  clock_.fill(1);
  known_ = {};
}

bool RaceDetector::read(const Actor& actor, uint32_t offset, uint32_t bytes, Hazard& hazard) {
  const size_t first = offset / 4, cells = bytes / 4;
  const Cell* const writer = writers_.data() + first;
  Cell* const reader = readers_.data() + actor.warp * writers_.size() + first;
  const Cell own = tag(actor);
  bool found = false;
  Cell judged = 0;  // a row has mostly one writer
  for (size_t i = 0; i < cells; ++i) {
    if (writer[i] != judged || judged == 0) {
      judged = writer[i];
      const bool bad = judged == 0 || (judged & IN_FLIGHT) || !ordered(judged, actor.warp, own & (SEVERAL | THREAD));
      if (bad && !found) {
        found = true;
        hazard = judged == 0
                     ? Hazard{ReportKind::uninitialised_read, static_cast<uint32_t>((first + i) * 4)}
                     : hazard_with(judged & IN_FLIGHT ? ReportKind::in_flight_read : ReportKind::race_read_after_write,
                                   first + i, judged);
      }
    }
    const Cell before = reader[i] ^ own;
    const bool another_lane = before >> 32 == 0 && (before & (SEVERAL | THREAD)) != 0;
    reader[i] = another_lane ? own | SEVERAL : own;
  }
  return found;
}

bool RaceDetector::write_cells(const Actor& actor, uint32_t offset, uint32_t bytes, Cell flags, Hazard& hazard) {
  const size_t first = offset / 4, cells = bytes / 4;
  const Cell own = tag(actor);
  const Cell self = own & (SEVERAL | THREAD);
  bool found = false;
  for (size_t i = first; i < first + cells; ++i) {
    const Cell writer = writers_[i];
    if (!found && writer != 0) {
      if (writer & IN_FLIGHT) {
        found = true;
        hazard = hazard_with(ReportKind::in_flight_overwrite, i, writer);
      } else if (!ordered(writer, actor.warp, self)) {
        found = true;
        hazard = hazard_with(ReportKind::race_write_after_write, i, writer);
      }
    }
    writers_[i] = own | flags;
  }
  const Cell* readers = readers_.data() + first;
  for (uint32_t warp = 0; warp < warps_ && !found; ++warp, readers += writers_.size()) {
    for (size_t i = 0; i < cells && !found; ++i) {
      if (readers[i] != 0 && !ordered(readers[i], actor.warp, self)) {
        found = true;
        hazard = hazard_with(ReportKind::race_write_after_read, first + i, readers[i]);
      }
    }
  }
  return found;
}

void RaceDetector::land(const Actor& actor, uint32_t offset, uint32_t bytes) {
  std::fill_n(writers_.begin() + offset / 4, bytes / 4, tag(actor));
}

void RaceDetector::sync_block() {
  VectorClock all = {};
  std::copy_n(clock_.begin(), warps_, all.begin());
  for (uint32_t warp = 0; warp < warps_; ++warp) {
    known_[warp] = all;
    ++clock_[warp];
  }
}

void RaceDetector::release(uint32_t warp, VectorClock& to) {
  sync_warp(warp);
  for (uint32_t other = 0; other < warps_; ++other) to[other] = std::max(to[other], known_[warp][other]);
}

void RaceDetector::acquire(uint32_t warp, const VectorClock& from) {
  for (uint32_t other = 0; other < warps_; ++other) known_[warp][other] = std::max(known_[warp][other], from[other]);
}

}  // namespace emulator
