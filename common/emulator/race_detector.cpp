#include "common/emulator/race_detector.hpp"

namespace emulator {

Hazard RaceDetector::hazard_with(ReportKind kind, size_t cell_index, Cell other) {
  return {kind,
          static_cast<uint32_t>(cell_index * 4),
          static_cast<int>(thread_of(other)),
          site_of(other),
          (other & SEVERAL) != 0,
          (other & BULK) != 0};
}

void RaceDetector::start(uint32_t blocks, uint32_t bytes, uint32_t threads) {
  const size_t cells = size_t{blocks} * ((bytes + 15) / 16 * 4);
  const uint32_t block_warps = (threads + 31) / 32;
  warps_ = blocks * block_warps;
  bulk_clocks_ = 0;
  for (std::vector<Cell>& readers : async_readers_) readers.clear();
  reader_clocks_ = 0;
  has_fences_ = false;
  uneven_ = 0;
  writers_.assign(cells, 0);
  pages_ = (cells + PAGE_CELLS - 1) / PAGE_CELLS;
  readers_.resize(warps_ * pages_);
  for (std::vector<Cell>& page : readers_) page.clear();
  ticks_.assign(warps_ * 32, 1);
  clock_.fill(1);
  last_ticks_.assign(warps_ * 32, 0);
  has_left_ = threads % 32 != 0;
  for (uint32_t block = 0; block < blocks; ++block)
    std::fill_n(last_ticks_.begin() + block * block_warps * 32, threads, UINT32_MAX);
  known_.assign(warps_, {});
  threads_.clear();
}

bool RaceDetector::read(const Actor& actor, uint32_t offset, uint32_t bytes, Hazard& hazard) {
  const size_t first = offset / 4, cells = bytes / 4;
  const Cell* const writer = writers_.data() + first;
  Cell* const reader = &reader_of(actor.warp, first);  // no access crosses a page
  const Cell own = tag(actor);
  bool found = false;
  Cell judged = 0;  // a row has mostly one writer
  const Cell in_step = Cell{known_[actor.warp].seen.clocks[actor.warp]} << 32 | 0xffffffff;
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
    note_read(reader[i], own, in_step);
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
  const uint32_t* const seen = known_[actor.warp].seen.clocks.data();
  for (size_t begin = first, end; begin < first + cells && !found; begin = end) {
    end = std::min(first + cells, (begin / PAGE_CELLS + 1) * PAGE_CELLS);
    for (uint32_t warp = 0; warp < warps_ && !found; ++warp) {
      const std::vector<Cell>& page = readers_[warp * pages_ + begin / PAGE_CELLS];
      if (page.empty()) continue;
      for (size_t i = begin; i < end && !found; ++i) {
        const Cell reader = page[i % PAGE_CELLS];
        if (tick_of(reader) > seen[clock_of(reader)] && !ordered(reader, actor.warp, self)) {
          found = true;
          hazard = hazard_with(ReportKind::race_write_after_read, i, reader);
        }
      }
    }
  }
  return found || is_read_async(actor, offset, bytes, hazard);
}

bool RaceDetector::is_read_async(const Actor& actor, uint32_t offset, uint32_t bytes, Hazard& hazard) const {
  for (uint32_t clock = 0; clock < reader_clocks_; ++clock) {
    const std::vector<Cell>& readers = async_readers_[clock];
    if (readers.empty()) continue;
    const auto known = [&](const Knowledge& knowledge) { return knowledge.clocks[FIRST_READER_CLOCK + clock]; };
    const uint32_t over =
        std::max(known(known_[actor.warp].seen), threads_.empty() ? 0 : known(threads_[actor.thread].seen));
    for (size_t i = offset / 16; i <= (offset + bytes - 1) / 16; ++i) {
      if (tick_of(readers[i]) <= over) continue;
      hazard = hazard_with(ReportKind::race_write_after_read, std::max<size_t>(4 * i, offset / 4), readers[i]);
      return true;
    }
  }
  return false;
}

bool RaceDetector::read_async(Reader& reader, uint32_t offset, Hazard& hazard) {
  std::vector<Cell>& readers = async_readers_[reader.clock()];
  if (readers.empty()) {
    readers.resize((writers_.size() + 3) / 4);
    reader_clocks_ = std::max(reader_clocks_, reader.clock() + 1);
  }
  readers[offset / 16] = Cell{reader.tick} << 32 | Cell{reader.thread} << 16 | reader.site;
  for (size_t i = offset / 4; i < offset / 4 + 4; ++i) {
    const Cell writer = writers_[i];
    if (writer == reader.judged && writer != 0) continue;
    const Actor actor{reader.first_warp, reader.thread, reader.site};
    const Cell own = reader.is_warpgroup() ? SEVERAL : tag(actor) & THREAD;
    bool is_ordered = writer != 0 && (writer & IN_FLIGHT) == 0, is_told = true;
    for (uint32_t warp = reader.first_warp; is_ordered && warp < reader.first_warp + reader.warps; ++warp) {
      is_ordered = ordered(writer, warp, own);
      is_told = is_told && ((writer & BULK) != 0 ||
                            (reader.is_warpgroup() ? is_fenced_by_warp(writer, warp) : is_fenced(writer, actor)));
    }
    if (is_ordered && is_told) {
      reader.judged = writer;
      continue;
    }
    if (writer == 0) {
      hazard = Hazard{ReportKind::uninitialised_read, static_cast<uint32_t>(i * 4)};
    } else {
      hazard = hazard_with(is_ordered ? ReportKind::missing_proxy_fence : read_fault(writer), i, writer);
    }
    return true;
  }
  return false;
}

bool RaceDetector::is_fenced_by_warp(Cell earlier, uint32_t warp) const {
  if (!has_fences_) return false;
  if (knows(known_[warp].fenced, earlier)) return true;
  for (uint32_t thread = warp * 32; thread < warp * 32 + 32; ++thread) {
    if (!knows(threads_[thread].fenced, earlier)) return false;
  }
  return true;
}

void RaceDetector::land(const Actor& actor, uint32_t offset, uint32_t bytes, bool tracked) {
  const Cell cell =
      tracked ? Cell{clock_[MAX_WARPS + actor.warp]} << 32 | COPY | Cell{actor.thread} << 16 | actor.site : tag(actor);
  std::fill_n(writers_.begin() + offset / 4, bytes / 4, cell);
}

bool RaceDetector::issue_bulk(const Actor& actor, uint32_t mbarrier, uint32_t offset, uint32_t bytes, bool needs_fence,
                              Hazard& hazard) {
  const size_t first = offset / 4;
  size_t unfenced = first + bytes / 4;
  for (size_t i = first; i < first + bytes / 4 && unfenced > i && needs_fence; ++i) {
    const Cell writer = writers_[i];
    if (writer != 0 && (writer & (IN_FLIGHT | BULK)) == 0 && (i == first || writer != writers_[i - 1]) &&
        !is_fenced(writer, actor))
      unfenced = i;
  }
  const Cell unfenced_writer = unfenced < first + bytes / 4 ? writers_[unfenced] : 0;
  bool found = write_cells(actor, offset, bytes, IN_FLIGHT, hazard);
  if (!found && unfenced_writer != 0) {
    found = true;
    hazard = hazard_with(ReportKind::missing_proxy_fence, unfenced, unfenced_writer);
  }
  std::fill_n(writers_.begin() + offset / 4, bytes / 4, bulk_tag(actor.site, mbarrier) | IN_FLIGHT);
  bulk_clocks_ = std::max(bulk_clocks_, mbarrier % BULK_CLOCKS + 1);
  return found;
}

bool RaceDetector::use_mbarrier(const Actor& actor, uint32_t offset, Hazard& hazard) {
  const Cell writer = writers_[offset / 4], own = tag(actor);
  Cell& reader = reader_of(actor.warp, offset / 4);
  // The latest use counts, and not the earliest: threads arrive, which ends a tick, and then wait. What ends an
  // mbarrier comes after a barrier of all its users.
  reader = reader == 0 || ((reader ^ own) & (SEVERAL | THREAD)) == 0 ? own : std::max(reader, own) | SEVERAL;
  if ((writer & MBARRIER) != MBARRIER) return false;  // overwritten, which has been reported
  if (ordered(writer & ~MBARRIER, actor.warp, own & THREAD)) return false;
  hazard = hazard_with(ReportKind::race_read_after_write, offset / 4, writer);
  return true;
}

bool RaceDetector::invalidate_mbarrier(const Actor& actor, uint32_t offset, Hazard& hazard) {
  for (size_t i = offset / 4; i < offset / 4 + 2; ++i) writers_[i] &= ~MBARRIER;
  return write_cells(actor, offset, 8, 0, hazard);
}

bool RaceDetector::is_fenced(Cell earlier, const Actor& actor) const {
  return has_fences_ && (knows(known_[actor.warp].fenced, earlier) || knows(threads_[actor.thread].fenced, earlier));
}

bool RaceDetector::ordered_by_threads(Cell earlier, uint32_t warp, Cell own) const {
  return knows_thread(known_[warp].seen, earlier) ||
         ((own & SEVERAL) == 0 && knows(threads_[thread_of(own)].seen, earlier));
}

bool RaceDetector::knows_thread(const Knowledge& knowledge, Cell earlier) {
  if (knowledge.own.empty() || (earlier & (SEVERAL | COPY | BULK)) != 0) return false;
  const auto own = std::lower_bound(knowledge.own.begin(), knowledge.own.end(), thread_of(earlier),
                                    [](const Knowledge::Own& o, uint32_t thread) { return o.thread < thread; });
  return own != knowledge.own.end() && own->thread == thread_of(earlier) && tick_of(earlier) <= own->tick;
}

// ---- barriers -------------------------------------------------------------------------------------------------------

void RaceDetector::sync_block(uint32_t first_warp, uint32_t warps) {
  Known all;
  for (uint32_t warp = first_warp; warp < first_warp + warps; ++warp) {
    if (!threads_.empty()) gather(warp);
    join(all, known_[warp]);
  }
  for (uint32_t warp = first_warp; warp < first_warp + warps; ++warp) all.seen.clocks[warp] = latest_tick(warp);
  std::erase_if(all.seen.own, [&](const Knowledge::Own& own) { return own.tick <= all.seen.clocks[own.thread / 32]; });
  for (uint32_t warp = first_warp; warp < first_warp + warps; ++warp) {
    known_[warp] = all;
    std::fill_n(ticks_.begin() + warp * 32, 32, all.seen.clocks[warp] + 1);
    uneven_ &= ~(uint64_t{1} << warp);
  }
}

void RaceDetector::sync_warp(uint32_t warp) {
  if (!threads_.empty()) gather(warp);
  const uint32_t tick = latest_tick(warp);
  known_[warp].seen.clocks[warp] = tick;
  std::fill_n(ticks_.begin() + warp * 32, 32, tick + 1);
  uneven_ &= ~(uint64_t{1} << warp);
}

void RaceDetector::align(uint32_t warp) {
  std::fill_n(ticks_.begin() + warp * 32, 32, latest_tick(warp));
  uneven_ &= ~(uint64_t{1} << warp);
}

void RaceDetector::release(uint32_t warp, Known& to) {
  sync_warp(warp);
  join(to, known_[warp]);
}

void RaceDetector::release_thread(uint32_t thread, Released& to) {
  const uint32_t warp = thread / 32;
  release(known_[warp].seen, to.seen);
  if (!threads_.empty()) release(threads_[thread].seen, to.seen);
  to.seen.own[thread] = ticks_[thread];
  if (has_fences_) {
    release(known_[warp].fenced, to.fenced);
    release(threads_[thread].fenced, to.fenced);
  }
  tick(thread);
}

void RaceDetector::release(const Knowledge& knowledge, Released::Part& to) const {
  join(to.clocks, knowledge.clocks);
  to.own.resize(ticks_.size());
  for (const auto& [thread, tick] : knowledge.own) to.own[thread] = std::max(to.own[thread], tick);
}

Known RaceDetector::completed(const Released& released) const {
  return {completed(released.seen), has_fences_ ? completed(released.fenced) : Knowledge{}};
}

Knowledge RaceDetector::completed(const Released::Part& released) const {
  Knowledge knowledge{released.clocks, {}};
  for (uint32_t thread = 0; thread < released.own.size(); ++thread) {
    if (released.own[thread] > knowledge.clocks[thread / 32]) knowledge.own.push_back({thread, released.own[thread]});
  }
  simplify(knowledge);
  return knowledge;
}

void RaceDetector::simplify(Knowledge& knowledge) const {
  auto& own = knowledge.own;
  for (size_t first = 0, last; first < own.size(); first = last) {
    const uint32_t warp = own[first].thread / 32;
    uint32_t lanes = 0, tick = UINT32_MAX;
    for (last = first; last < own.size() && own[last].thread / 32 == warp; ++last) {
      lanes |= 1u << own[last].thread % 32;
      tick = std::min(tick, own[last].tick);
    }
    uint32_t& known = knowledge.clocks[warp];
    for (uint32_t lane = 0; lane < 32 && has_left_; ++lane) {  // of which all is known that there will ever be
      if (last_ticks_[warp * 32 + lane] <= known) lanes |= 1u << lane;
    }
    if (lanes == ~0u) known = std::max(known, tick);
  }
  std::erase_if(own, [&](const Knowledge::Own& o) { return o.tick <= knowledge.clocks[o.thread / 32]; });
}

void RaceDetector::acquire_thread(uint32_t thread, const Known& from) {
  if (threads_.empty()) threads_.resize(ticks_.size());
  join(threads_[thread], from);
}

void RaceDetector::see_copies(uint32_t thread) {
  if (threads_.empty()) threads_.resize(ticks_.size());
  const uint32_t copies = MAX_WARPS + thread / 32;
  uint32_t& known = threads_[thread].seen.clocks[copies];
  known = std::max(known, clock_[copies] - 1);
}

void RaceDetector::fence_proxy(uint32_t thread) {
  if (threads_.empty()) threads_.resize(ticks_.size());
  has_fences_ = true;
  Known& known = threads_[thread];
  join(known.fenced, known_[thread / 32].seen);
  join(known.fenced, known.seen);
  Knowledge own;
  own.own.push_back({thread, ticks_[thread]});
  join(known.fenced, own);
  tick(thread);
}

void RaceDetector::join(VectorClock& into, const VectorClock& from) const {
  for (const uint32_t first : {0, MAX_WARPS}) {
    for (uint32_t i = first; i < first + warps_; ++i) into[i] = std::max(into[i], from[i]);
  }
  for (uint32_t i = FIRST_BULK_CLOCK; i < FIRST_BULK_CLOCK + bulk_clocks_; ++i) into[i] = std::max(into[i], from[i]);
  for (uint32_t i = FIRST_READER_CLOCK; i < FIRST_READER_CLOCK + reader_clocks_; ++i)
    into[i] = std::max(into[i], from[i]);
}

void RaceDetector::join(Knowledge& into, const Knowledge& from) const {
  join(into.clocks, from.clocks);
  if (from.own.empty()) return;
  std::vector<Knowledge::Own> all;
  all.reserve(into.own.size() + from.own.size());
  const auto add = [&](uint32_t thread, uint32_t tick) {
    if (tick > into.clocks[thread / 32]) all.push_back({thread, tick});
  };
  auto a = into.own.begin();
  for (const Knowledge::Own& own : from.own) {
    for (; a != into.own.end() && a->thread < own.thread; ++a) add(a->thread, a->tick);
    const bool both = a != into.own.end() && a->thread == own.thread;
    add(own.thread, both ? std::max(own.tick, a->tick) : own.tick);
    if (both) ++a;
  }
  for (; a != into.own.end(); ++a) add(a->thread, a->tick);
  into.own = std::move(all);
  simplify(into);
}

void RaceDetector::join(Known& into, const Known& from) const {
  join(into.seen, from.seen);
  if (has_fences_) join(into.fenced, from.fenced);
}

void RaceDetector::gather(uint32_t warp) {
  for (uint32_t lane = 0; lane < 32; ++lane) {
    Known& thread = threads_[warp * 32 + lane];
    join(known_[warp], thread);
    thread.seen.own.clear();
    thread.fenced.own.clear();
  }
}

}  // namespace emulator
