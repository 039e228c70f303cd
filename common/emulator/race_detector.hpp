// Happens-before race detection on a block's shared memory, with vector clocks.
//
// Every warp has a clock that ticks at each barrier it passes, and knows of every other warp up to which tick the barriers
// have ordered it before itself. An access is ordered after an earlier one of another warp if it knows that warp up to the
// tick of the earlier access; after one of its own warp if the tick is past (so __syncwarp orders lanes) or the thread is
// the same. Only the executed schedule is judged, but the verdict does not depend on which schedule that was.
//
// At mbarriers threads come one by one. A thread may know more than its warp, which catches up at its next barrier; but
// an arrival lets go of all its warp's accesses, so that a missing __syncwarp before an elected lane's is not seen. Copies
// that an mbarrier tracks are no thread's writes: each warp has a second clock for them, which those who wait get to know.
// Bulk copies are the copy engine's, with a clock per mbarrier: to have waited at another one is not to know them.
//
// Memory is shadowed in cells of 4 bytes: its last writer, and for each warp its last reader.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>
#include "common/emulator/emulator.hpp"
#include "common/emulator/site.hpp"

namespace emulator {

constexpr int MAX_WARPS = 32;
constexpr int BULK_CLOCKS = 32;  // of a block's mbarriers; the 33rd shares that of the first
// Of the warps' threads, then of their copies, then of the mbarriers' bulk copies.
using VectorClock = std::array<uint32_t, 2 * MAX_WARPS + BULK_CLOCKS>;

struct Hazard {
  ReportKind kind;
  uint32_t offset;        // of the cell, in bytes from the start of shared memory
  int other_thread = -1;  // -1: nobody has written
  SiteId other = NO_SITE;
  bool other_is_warp = false;  // not one thread but several of its warp
};

class RaceDetector {
 public:
  struct Actor {
    uint32_t warp;
    uint32_t thread;  // within the block
    SiteId site;
    // ldmatrix: the row goes to all lanes; `thread` only gave its address. wmma: nobody may know which lane it is.
    bool whole_warp = false;
  };

  void start_block(uint32_t bytes, uint32_t warps);

  // The accesses: each returns true and fills `hazard` for the first cell at fault. Aligned to 4 bytes and in bounds.
  bool read(const Actor& actor, uint32_t offset, uint32_t bytes, Hazard& hazard);
  bool write(const Actor& actor, uint32_t offset, uint32_t bytes, Hazard& hazard) {
    return write_cells(actor, offset, bytes, 0, hazard);
  }
  // cp.async: the write begins at its issue and is in flight until it lands.
  bool issue(const Actor& actor, uint32_t offset, uint32_t bytes, Hazard& hazard) {
    return write_cells(actor, offset, bytes, IN_FLIGHT, hazard);
  }
  void land(const Actor& actor, uint32_t offset, uint32_t bytes, bool tracked);  // by an mbarrier

  // A bulk copy is ordered after what the thread knows that asks for it. `mbarrier` is a number.
  bool issue_bulk(const Actor& actor, uint32_t mbarrier, uint32_t offset, uint32_t bytes, Hazard& hazard);
  void land_bulk(SiteId site, uint32_t mbarrier, uint32_t offset, uint32_t bytes) {
    std::fill_n(writers_.begin() + offset / 4, bytes / 4, bulk_tag(site, mbarrier));
  }

  // An mbarrier is touched by its own instructions only, and after its initialisation.
  bool initialise_mbarrier(const Actor& actor, uint32_t offset, Hazard& hazard) {
    return write_cells(actor, offset, 8, MBARRIER, hazard);
  }
  bool use_mbarrier(const Actor& actor, uint32_t offset, Hazard& hazard) const;

  // The barriers.
  void sync_block();
  void sync_warp(uint32_t warp) {
    if (!threads_.empty()) gather(warp);
    known_[warp][warp] = clock_[warp]++;
  }
  void release(uint32_t warp, VectorClock& to);
  void acquire(uint32_t warp, const VectorClock& from) { join(known_[warp], from); }
  // One thread's, which leave the lanes of its warp unordered.
  void release_thread(uint32_t thread, VectorClock& to);
  void acquire_thread(uint32_t thread, const VectorClock& from);
  // The tracked copies of a warp that have landed.
  void release_copies(uint32_t warp, VectorClock& to) { to[MAX_WARPS + warp] = clock_[MAX_WARPS + warp]++; }
  void see_copies(uint32_t thread);
  // The bulk copies at an mbarrier that have landed.
  void release_bulk(uint32_t mbarrier, VectorClock& to) {
    const uint32_t i = 2 * MAX_WARPS + mbarrier % BULK_CLOCKS;
    to[i] = clock_[i]++;
  }

 private:
  // A cell: clock << 32 | flags | thread << 16 | site. Clocks start at 1, so that 0 means "never".
  using Cell = uint64_t;
  static constexpr Cell IN_FLIGHT = Cell{1} << 31;
  static constexpr Cell SEVERAL = Cell{1} << 30;  // not one thread: other lanes have read too, or the whole warp
  static constexpr Cell COPY = Cell{1} << 26;     // a tracked copy that has landed
  static constexpr Cell BULK = Cell{1} << 27;     // a bulk copy; its mbarrier's clock stands where the warp would
  static constexpr Cell MBARRIER = IN_FLIGHT | COPY;
  static constexpr Cell THREAD = Cell{0x3ff} << 16;
  static uint32_t thread_of(Cell cell) { return static_cast<uint32_t>((cell & THREAD) >> 16); }
  static Hazard hazard_with(ReportKind kind, size_t cell_index, Cell other);

  Cell tag(const Actor& actor) const {
    return Cell{clock_[actor.warp]} << 32 | (actor.whole_warp ? SEVERAL : 0) | Cell{actor.thread} << 16 | actor.site;
  }
  Cell bulk_tag(SiteId site, uint32_t mbarrier) const {
    const uint32_t clock = mbarrier % BULK_CLOCKS;
    return Cell{clock_[2 * MAX_WARPS + clock]} << 32 | BULK | Cell{clock} << 21 | site;
  }
  // `own` is what the SEVERAL and THREAD bits of a cell of the actor's own would be.
  bool ordered(Cell earlier, uint32_t warp, Cell own) const {
    const auto tick = static_cast<uint32_t>(earlier >> 32);
    const size_t clock = earlier >> 21 & 127;  // BULK, COPY and the thread's warp
    return tick <= known_[warp][clock] || (earlier & (BULK | COPY | SEVERAL | THREAD)) == own ||
           (!threads_.empty() && (own & SEVERAL) == 0 && tick <= threads_[thread_of(own)][clock]);
  }
  // What is wrong with a read of, or a write over, what is not ordered.
  static ReportKind read_fault(Cell writer) {
    if ((writer & MBARRIER) == MBARRIER) return ReportKind::barrier_misuse;
    return (writer & (MBARRIER | BULK)) != 0 ? ReportKind::in_flight_read : ReportKind::race_read_after_write;
  }
  static ReportKind write_fault(Cell writer) {
    if ((writer & MBARRIER) == MBARRIER) return ReportKind::barrier_misuse;
    return (writer & (MBARRIER | BULK)) != 0 ? ReportKind::in_flight_overwrite : ReportKind::race_write_after_write;
  }
  void join(VectorClock& into, const VectorClock& from) const;
  void gather(uint32_t warp);  // what its threads know
  bool write_cells(const Actor& actor, uint32_t offset, uint32_t bytes, Cell flags, Hazard& hazard);

  std::vector<Cell> writers_;  // one per cell
  std::vector<Cell> readers_;  // [warp][cell]
  uint32_t warps_ = 0;
  uint32_t bulk_clocks_ = 0;  // in use
  VectorClock clock_ = {};
  std::array<VectorClock, MAX_WARPS> known_ = {};  // known_[w][w] is where the lanes of w were last in step
  std::vector<VectorClock> threads_;               // what each knows beyond its warp; empty until one does
};

}  // namespace emulator
