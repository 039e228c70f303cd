// Happens-before race detection on a block's shared memory, with vector clocks.
//
// Every warp has a clock that ticks at each barrier it passes, and knows of every other warp up to which tick the barriers
// have ordered it before itself. An access is ordered after an earlier one of another warp if it knows that warp up to the
// tick of the earlier access; after one of its own warp if the tick is past (so __syncwarp orders lanes) or the thread is
// the same. Only the executed schedule is judged, but the verdict does not depend on which schedule that was.
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
using VectorClock = std::array<uint32_t, MAX_WARPS>;

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
  void land(const Actor& actor, uint32_t offset, uint32_t bytes);

  // The barriers.
  void sync_block();
  void sync_warp(uint32_t warp) { known_[warp][warp] = clock_[warp]++; }
  void release(uint32_t warp, VectorClock& to);
  void acquire(uint32_t warp, const VectorClock& from);

 private:
  // A cell: clock << 32 | flags | thread << 16 | site. Clocks start at 1, so that 0 means "never".
  using Cell = uint64_t;
  static constexpr Cell IN_FLIGHT = Cell{1} << 31;
  static constexpr Cell SEVERAL = Cell{1} << 30;  // not one thread: other lanes have read too, or the whole warp
  static constexpr Cell THREAD = Cell{0x3ff} << 16;
  static uint32_t thread_of(Cell cell) { return static_cast<uint32_t>((cell & THREAD) >> 16); }
  static Hazard hazard_with(ReportKind kind, size_t cell_index, Cell other);

  Cell tag(const Actor& actor) const {
    return Cell{clock_[actor.warp]} << 32 | (actor.whole_warp ? SEVERAL : 0) | Cell{actor.thread} << 16 | actor.site;
  }
  // `own` is what the SEVERAL and THREAD bits of a cell of the actor's own would be.
  bool ordered(Cell earlier, uint32_t warp, Cell own) const {
    return static_cast<uint32_t>(earlier >> 32) <= known_[warp][thread_of(earlier) / 32] ||
           (earlier & (SEVERAL | THREAD)) == own;
  }
  bool write_cells(const Actor& actor, uint32_t offset, uint32_t bytes, Cell flags, Hazard& hazard);

  std::vector<Cell> writers_;  // one per cell
  std::vector<Cell> readers_;  // [warp][cell]
  uint32_t warps_ = 0;
  VectorClock clock_ = {};
  std::array<VectorClock, MAX_WARPS> known_ = {};  // known_[w][w] is always clock_[w] - 1
};

}  // namespace emulator
