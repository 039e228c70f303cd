#include "common/emulator/race_detector.hpp"

namespace emulator {

Hazard RaceDetector::hazard_with(ReportKind kind, size_t cell_index, Cell other) {
  return {kind, static_cast<uint32_t>(cell_index * 4), static_cast<int>(thread_of(other)),
          static_cast<SiteId>(other & 0xffff), (other & SEVERAL) != 0};
}

void RaceDetector::start_block(uint32_t bytes, uint32_t warps) {
  const size_t cells = (bytes + 3) / 4;
  warps_ = warps;
  bulk_clocks_ = 0;
  writers_.assign(cells, 0);
  readers_.assign(cells * warps, 0);
  clock_.fill(1);
  known_ = {};
  threads_.clear();
}

bool RaceDetector::read(const Actor& actor, uint32_t offset, uint32_t bytes, Hazard& hazard) {
  const size_t first = offset / 4, cells = bytes / 4;
  const Cell* const writer = writers_.data() + first;
  Cell* const reader = readers_.data() + actor.warp * writers_.size() + first;
  const Cell own = tag(actor);
  bool found = false;
  Cell judged = 0;  // a row has mostly one writer
  const Cell in_step = Cell{known_[actor.warp][actor.warp]} << 32 | 0xffffffff;
  for (size_t i = 0; i < cells; ++i) {
    if (writer[i] != judged || judged == 0) {
      judged = writer[i];
      const bool bad = judged == 0 || (judged & IN_FLIGHT) || !ordered(judged, actor.warp, own & (SEVERAL | THREAD));
      if (bad && !found) {
        found = true;
        hazard = judged == 0 ? Hazard{ReportKind::uninitialised_read, static_cast<uint32_t>((first + i) * 4)}
                             : hazard_with(read_fault(judged), first + i, judged);
      }
    }
    const bool another_lane = reader[i] > in_step && ((reader[i] ^ own) & (SEVERAL | THREAD)) != 0;
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
      if ((writer & IN_FLIGHT) || !ordered(writer, actor.warp, self)) {
        found = true;
        hazard = hazard_with(write_fault(writer), i, writer);
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

void RaceDetector::land(const Actor& actor, uint32_t offset, uint32_t bytes, bool tracked) {
  const Cell cell =
      tracked ? Cell{clock_[MAX_WARPS + actor.warp]} << 32 | COPY | Cell{actor.thread} << 16 | actor.site : tag(actor);
  std::fill_n(writers_.begin() + offset / 4, bytes / 4, cell);
}

bool RaceDetector::issue_bulk(const Actor& actor, uint32_t mbarrier, uint32_t offset, uint32_t bytes, Hazard& hazard) {
  const bool found = write_cells(actor, offset, bytes, IN_FLIGHT, hazard);
  std::fill_n(writers_.begin() + offset / 4, bytes / 4, bulk_tag(actor.site, mbarrier) | IN_FLIGHT);
  bulk_clocks_ = std::max(bulk_clocks_, mbarrier % BULK_CLOCKS + 1);
  return found;
}

bool RaceDetector::use_mbarrier(const Actor& actor, uint32_t offset, Hazard& hazard) const {
  const Cell writer = writers_[offset / 4];
  if ((writer & MBARRIER) != MBARRIER) return false;  // overwritten, which has been reported
  if (ordered(writer & ~MBARRIER, actor.warp, tag(actor) & THREAD)) return false;
  hazard = hazard_with(ReportKind::race_read_after_write, offset / 4, writer);
  return true;
}

void RaceDetector::sync_block() {
  VectorClock all = {};
  for (uint32_t warp = 0; warp < warps_; ++warp) {
    if (!threads_.empty()) gather(warp);
    join(all, known_[warp]);
  }
  std::copy_n(clock_.begin(), warps_, all.begin());
  for (uint32_t warp = 0; warp < warps_; ++warp) {
    known_[warp] = all;
    ++clock_[warp];
  }
}

void RaceDetector::release(uint32_t warp, VectorClock& to) {
  sync_warp(warp);
  join(to, known_[warp]);
}

void RaceDetector::release_thread(uint32_t thread, VectorClock& to) {
  const uint32_t warp = thread / 32;
  join(to, known_[warp]);
  if (!threads_.empty()) join(to, threads_[thread]);
  to[warp] = clock_[warp]++;
}

void RaceDetector::acquire_thread(uint32_t thread, const VectorClock& from) {
  if (threads_.empty()) threads_.resize(size_t{warps_} * 32);
  join(threads_[thread], from);
}

void RaceDetector::see_copies(uint32_t thread) {
  VectorClock landed = {};
  landed[MAX_WARPS + thread / 32] = clock_[MAX_WARPS + thread / 32] - 1;
  acquire_thread(thread, landed);
}

void RaceDetector::join(VectorClock& into, const VectorClock& from) const {
  for (const uint32_t first : {0, MAX_WARPS}) {
    for (uint32_t i = first; i < first + warps_; ++i) into[i] = std::max(into[i], from[i]);
  }
  for (uint32_t i = 2 * MAX_WARPS; i < 2 * MAX_WARPS + bulk_clocks_; ++i) into[i] = std::max(into[i], from[i]);
}

void RaceDetector::gather(uint32_t warp) {
  for (uint32_t lane = 0; lane < 32; ++lane) join(known_[warp], threads_[warp * 32 + lane]);
}

}  // namespace emulator
