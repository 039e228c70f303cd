// Happens-before race detection on the shared memory of a cluster's blocks, mostly of one, with vector clocks.
//
// Every thread has a clock that ticks when it lets others know what it has done: at barriers, and when it arrives at an
// mbarrier. Of each warp everybody knows up to which tick the accesses of all its lanes are ordered before their own,
// and of single threads, which arrive one by one, up to which tick those of that thread are. An access is ordered after
// an earlier one if that is known up to its tick, or if the thread is the same. The lanes of a warp are in step after
// __syncwarp. Only the executed schedule is judged, but the verdict does not depend on which schedule that was.
//
// A thread that has waited at an mbarrier knows more than its warp, which catches up at its next barrier. Copies that
// an mbarrier tracks are no thread's writes: each warp has a second clock for them, which those who wait get to know.
// Bulk copies are the copy engine's, with a clock per mbarrier: to have waited at another one is not to know them.
//
// The copy engine goes another way to memory (the "async proxy") than loads and stores do. It knows of a store what a
// proxy fence has told it: a second set of clocks, which goes wherever the first goes, says what fences have told.
//
// That way also reads, and goes on reading when the instruction is long over: for the products of a warpgroup, and for
// bulk stores. Each of these readers has a clock too, and who waits for them learns how far they are.
//
// Memory is shadowed in cells of 4 bytes: its last writer, and for each warp its last reader. Reads of one cell by
// several lanes between two steps of their warp are one, with the earliest of their ticks.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>
#include "common/emulator/emulator.hpp"
#include "common/emulator/site.hpp"

namespace emulator {

constexpr int MAX_WARPS = 64;    // of a cluster
constexpr int BULK_CLOCKS = 32;  // of a block's mbarriers; the 33rd shares that of the first
constexpr int MAX_WARPGROUPS = MAX_WARPS / 4;
constexpr int READER_CLOCKS = MAX_WARPGROUPS + MAX_WARPS;
// Of the warps' threads, then of their copies, then of the mbarriers' bulk copies, then of the async proxy's readers.
constexpr uint32_t FIRST_BULK_CLOCK = 2 * MAX_WARPS, FIRST_READER_CLOCK = FIRST_BULK_CLOCK + BULK_CLOCKS;
using VectorClock = std::array<uint32_t, FIRST_READER_CLOCK + READER_CLOCKS>;

struct Knowledge {
  struct Own {  // what a thread has done itself, up to a tick
    uint32_t thread;
    uint32_t tick;
  };
  VectorClock clocks = {};
  std::vector<Own> own;  // by thread, ascending; of threads of which `clocks` says less
};
struct Known {
  Knowledge seen;
  Knowledge fenced;  // what of it a proxy fence has told to the copy engine
};

// What threads have let go of at an mbarrier, in its current phase and before.
struct Released {
  struct Part {
    VectorClock clocks = {};
    std::vector<uint32_t> own;  // by thread; empty until the first
  };
  Part seen, fenced;
};

struct Hazard {
  ReportKind kind;
  uint32_t offset;        // of the cell, in bytes from the start of shared memory
  int other_thread = -1;  // -1: nobody has written
  SiteId other = NO_SITE;
  bool other_is_warp = false;  // not one thread but several of its warp
  bool other_is_bulk = false;  // not a thread at all
  int other_rank = -1;         // the block's of the other thread, if it is another one of the cluster (BlockRaces)
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
  // A cell: clock << 32 | flags | thread << 16 | site. Clocks start at 1, so that 0 means "never".
  using Cell = uint64_t;

  // Of `blocks` blocks, each with so many bytes, a multiple of 16, and threads, which are counted in whole warps.
  void start(uint32_t blocks, uint32_t bytes, uint32_t threads);
  void leave(uint32_t thread) {  // its kernel has ended
    last_ticks_[thread] = ticks_[thread];
    has_left_ = true;
  }

  // Of so many bytes, from a cell on.
  uint32_t unwritten_bytes(uint32_t offset, uint32_t bytes) const {
    const auto first = writers_.begin() + offset / 4, rest = first + bytes / 4;  // of a word of which it has a part
    const auto whole = static_cast<uint32_t>(4 * std::count(first, rest, Cell{0}));
    return whole + (bytes % 4 > 0 && *rest == Cell{0} ? bytes % 4 : 0);
  }

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

  // Reads by the async proxy. They belong to the products of a warpgroup, or to a thread's bulk stores, of which those
  // of a warp share a clock. `tick` ascends with each instruction.
  struct Reader {
    uint32_t first_warp, warps;  // must know what they read to be written: a warpgroup's, or the thread's
    uint32_t thread;             // the first of the warpgroup, or the one
    SiteId site;
    uint32_t tick;
    Cell judged = 0;  // the last writer that was found right

    bool is_warpgroup() const { return warps > 1; }
    uint32_t clock() const { return is_warpgroup() ? first_warp / 4 : MAX_WARPGROUPS + first_warp; }
  };
  // 16 bytes, aligned.
  bool read_async(Reader& reader, uint32_t offset, Hazard& hazard);
  // They are over, and this warp or this thread knows.
  void know_reads(uint32_t warp, uint32_t clock, uint32_t tick) {
    uint32_t& known = known_[warp].seen.clocks[FIRST_READER_CLOCK + clock];
    known = std::max(known, tick);
  }
  uint32_t known_reads(uint32_t warp, uint32_t thread, uint32_t clock) const {
    const uint32_t i = FIRST_READER_CLOCK + clock, by_warp = known_[warp].seen.clocks[i];
    return threads_.empty() ? by_warp : std::max(by_warp, threads_[thread].seen.clocks[i]);
  }
  void know_reads_by_thread(uint32_t thread, uint32_t clock, uint32_t tick) {
    if (threads_.empty()) threads_.resize(ticks_.size());
    uint32_t& known = threads_[thread].seen.clocks[FIRST_READER_CLOCK + clock];
    known = std::max(known, tick);
  }

  // A bulk copy is ordered after what the thread knows that asks for it. `mbarrier` is a number.
  bool issue_bulk(const Actor& actor, uint32_t mbarrier, uint32_t offset, uint32_t bytes, bool needs_fence,
                  Hazard& hazard);
  void land_bulk(SiteId site, uint32_t mbarrier, uint32_t offset, uint32_t bytes) {
    std::fill_n(writers_.begin() + offset / 4, bytes / 4, bulk_tag(site, mbarrier));
  }

  // An mbarrier is touched by its own instructions only, and after its initialisation.
  bool initialise_mbarrier(const Actor& actor, uint32_t offset, Hazard& hazard) {
    return write_cells(actor, offset, 8, MBARRIER, hazard);
  }
  bool use_mbarrier(const Actor& actor, uint32_t offset, Hazard& hazard);
  bool invalidate_mbarrier(const Actor& actor, uint32_t offset, Hazard& hazard);

  // Accesses to other memory, of which the caller keeps the cells.
  Cell cell_of(const Actor& actor) { return tag(actor); }
  bool is_ordered(Cell earlier, const Actor& actor) {
    return ordered(earlier, actor.warp, tag(actor) & (SEVERAL | THREAD));
  }
  bool is_fenced(Cell earlier, const Actor& actor) const;
  static uint32_t thread_of(Cell cell) { return static_cast<uint32_t>((cell & THREAD) >> 16); }
  static SiteId site_of(Cell cell) { return static_cast<SiteId>(cell & 0xffff); }

  // A moment in the life of a thread. It is past for whoever knows of the thread's tick, or that the product is over that
  // the warp has yet to issue: four warps issue a product together.
  struct Moment {
    uint32_t thread, tick, next_product;
  };
  Moment moment(uint32_t thread, uint64_t products) const {
    return {thread, ticks_[thread], static_cast<uint32_t>(products + 1)};
  }
  static bool is_past(const Moment& moment, const Released& released) {
    const uint32_t warp = moment.thread / 32;
    const auto& [clocks, own] = released.seen;
    return moment.tick <= clocks[warp] || moment.next_product <= clocks[FIRST_READER_CLOCK + warp / 4] ||
           (!own.empty() && moment.tick <= own[moment.thread]);
  }

  // The barriers.
  void sync_block(uint32_t first_warp, uint32_t warps);  // or the whole cluster
  void sync_warp(uint32_t warp);
  void release(uint32_t warp, Known& to);
  void acquire(uint32_t warp, const Known& from) { join(known_[warp], from); }
  // Up to which tick a warp has last let all of its accesses be known; and whether another one knows so much of it.
  uint32_t tick_of(uint32_t warp) const { return known_[warp].seen.clocks[warp]; }
  bool knows(uint32_t warp, uint32_t other, uint32_t tick) const { return known_[warp].seen.clocks[other] >= tick; }
  // One thread's, which leave the lanes of its warp unordered.
  void release_thread(uint32_t thread, Released& to);
  void acquire_thread(uint32_t thread, const Known& from);
  // What those who wait for a phase get to know.
  Known completed(const Released& released) const;
  // The tracked copies of a warp that have landed.
  void release_copies(uint32_t warp, Released& to) { to.seen.clocks[MAX_WARPS + warp] = clock_[MAX_WARPS + warp]++; }
  void see_copies(uint32_t thread);
  // The bulk copies at an mbarrier that have landed.
  void release_bulk(uint32_t mbarrier, Released& to) {
    const uint32_t i = FIRST_BULK_CLOCK + mbarrier % BULK_CLOCKS;
    to.seen.clocks[i] = clock_[i]++;
  }
  // What the thread knows is from now on known to the copy engine too.
  void fence_proxy(uint32_t thread);

 private:
  static constexpr Cell IN_FLIGHT = Cell{1} << 31;
  static constexpr Cell SEVERAL = Cell{1} << 30;  // not one thread: other lanes have read too, or the whole warp
  static constexpr Cell COPY = Cell{1} << 27;     // a tracked copy that has landed
  static constexpr Cell BULK = Cell{1} << 28;     // a bulk copy; its mbarrier's clock stands where the warp would
  static constexpr Cell MBARRIER = IN_FLIGHT | COPY;
  static constexpr Cell THREAD = Cell{0x7ff} << 16;
  static Hazard hazard_with(ReportKind kind, size_t cell_index, Cell other);

  Cell tag(const Actor& actor) {
    if (actor.whole_warp && uneven_ >> actor.warp & 1) [[unlikely]]
      align(actor.warp);
    return Cell{ticks_[actor.thread]} << 32 | (actor.whole_warp ? SEVERAL : 0) | Cell{actor.thread} << 16 | actor.site;
  }
  Cell bulk_tag(SiteId site, uint32_t mbarrier) const {
    const uint32_t clock = mbarrier % BULK_CLOCKS;
    return Cell{clock_[FIRST_BULK_CLOCK + clock]} << 32 | BULK | Cell{clock} << 21 | site;
  }
  static uint32_t tick_of(Cell cell) { return static_cast<uint32_t>(cell >> 32); }
  static size_t clock_of(Cell cell) { return cell >> 21 & 255; }  // BULK, COPY and the thread's warp
  // `own` is what the SEVERAL and THREAD bits of a cell of the actor's own would be.
  bool ordered(Cell earlier, uint32_t warp, Cell own) const {
    return tick_of(earlier) <= known_[warp].seen.clocks[clock_of(earlier)] ||
           (earlier & (BULK | COPY | SEVERAL | THREAD)) == own ||
           (!threads_.empty() && ordered_by_threads(earlier, warp, own));
  }
  bool ordered_by_threads(Cell earlier, uint32_t warp, Cell own) const;
  static bool knows(const Knowledge& knowledge, Cell earlier) {
    return tick_of(earlier) <= knowledge.clocks[clock_of(earlier)] || knows_thread(knowledge, earlier);
  }
  static bool knows_thread(const Knowledge& knowledge, Cell earlier);  // by itself
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
  void join(Knowledge& into, const Knowledge& from) const;
  void join(Known& into, const Known& from) const;
  void release(const Knowledge& knowledge, Released::Part& to) const;
  Knowledge completed(const Released::Part& released) const;
  void simplify(Knowledge& knowledge) const;  // what all lanes of a warp have done is what the warp has
  void gather(uint32_t warp);                 // what its threads know
  void align(uint32_t warp);
  uint32_t latest_tick(uint32_t warp) const {
    return *std::max_element(ticks_.begin() + warp * 32, ticks_.begin() + (warp + 1) * 32);
  }
  void tick(uint32_t thread) {
    ++ticks_[thread];
    uneven_ |= uint64_t{1} << thread / 32;
  }
  bool write_cells(const Actor& actor, uint32_t offset, uint32_t bytes, Cell flags, Hazard& hazard);
  Cell& reader_of(uint32_t warp, size_t cell) {
    std::vector<Cell>& page = readers_[warp * pages_ + cell / PAGE_CELLS];
    if (page.empty()) [[unlikely]]
      page.resize(PAGE_CELLS);
    return page[cell % PAGE_CELLS];
  }
  bool is_read_async(const Actor& actor, uint32_t offset, uint32_t bytes, Hazard& hazard) const;
  bool is_fenced_by_warp(Cell earlier, uint32_t warp) const;
  void note_read(Cell& reader, Cell own, Cell in_step) const {
    Cell noted = own;
    if (reader > in_step && ((reader ^ own) & (SEVERAL | THREAD)) != 0) [[unlikely]]  // another lane has read it too
      noted = (std::min(reader, own) & ~Cell{0xffffffff}) | (own & 0xffffffff) | SEVERAL;
    reader = noted;
  }

  std::vector<Cell> writers_;  // one per cell
  static constexpr size_t PAGE_CELLS = 1024;
  std::vector<std::vector<Cell>> readers_;  // [warp][page]; a page is empty until its first cell is read
  size_t pages_ = 0;                        // of each warp
  std::array<std::vector<Cell>, READER_CLOCKS> async_readers_;  // per 16 bytes; empty until the first
  uint32_t reader_clocks_ = 0;                                  // in use
  uint32_t warps_ = 0;
  uint32_t bulk_clocks_ = 0;          // in use
  bool has_fences_ = false;           // else `fenced` is empty everywhere
  uint64_t uneven_ = 0;               // warps whose lanes' ticks may differ
  std::vector<uint32_t> ticks_;       // of each thread
  VectorClock clock_ = {};            // of copies and bulk copies; those of the warps are the ticks
  std::vector<uint32_t> last_ticks_;  // of each thread that has ended; 0 of those that never were
  bool has_left_ = false;             // there is one of them
  std::vector<Known> known_;          // known_[w].seen.clocks[w] is where the lanes of w were last in step
  std::vector<Known> threads_;        // what each knows beyond its warp; empty until one does
};

// One block's view of its cluster's detector: with its own warps, threads and bytes, from 0.
class BlockRaces {
 public:
  using Actor = RaceDetector::Actor;
  using Cell = RaceDetector::Cell;

  BlockRaces(RaceDetector& cluster, uint32_t rank, uint32_t blocks, uint32_t bytes, uint32_t threads)
      : all_(cluster),
        rank_(rank),
        blocks_(blocks),
        warps_((threads + 31) / 32),
        first_warp_(rank * warps_),
        first_byte_(rank * ((bytes + 15) / 16 * 16)) {}

  void leave(uint32_t thread) { all_.leave(global(thread)); }
  uint32_t unwritten_bytes(uint32_t bytes) const { return all_.unwritten_bytes(first_byte_, bytes); }
  bool read(const Actor& actor, uint32_t offset, uint32_t bytes, Hazard& hazard) {
    return own(all_.read(global(actor), first_byte_ + offset, bytes, hazard), hazard);
  }
  bool write(const Actor& actor, uint32_t offset, uint32_t bytes, Hazard& hazard) {
    return own(all_.write(global(actor), first_byte_ + offset, bytes, hazard), hazard);
  }
  bool issue(const Actor& actor, uint32_t offset, uint32_t bytes, Hazard& hazard) {
    return own(all_.issue(global(actor), first_byte_ + offset, bytes, hazard), hazard);
  }
  void land(const Actor& actor, uint32_t offset, uint32_t bytes, bool tracked) {
    all_.land(global(actor), first_byte_ + offset, bytes, tracked);
  }
  bool read_async(RaceDetector::Reader reader, uint32_t offset, Hazard& hazard, Cell& judged) {
    reader.first_warp += first_warp_;
    reader.thread = global(reader.thread);
    reader.judged = judged;
    const bool found = all_.read_async(reader, first_byte_ + offset, hazard);
    judged = reader.judged;
    return own(found, hazard);
  }
  void know_reads(uint32_t warp, uint32_t tick) { all_.know_reads(first_warp_ + warp, (first_warp_ + warp) / 4, tick); }
  void know_reads_by_thread(uint32_t thread, uint32_t tick) {
    all_.know_reads_by_thread(global(thread), MAX_WARPGROUPS + global(thread) / 32, tick);
  }
  // Of this block's warpgroup, known to be over by a thread of `by`.
  uint32_t products_known_by(const BlockRaces& by, uint32_t warp, uint32_t thread, uint32_t group) const {
    return all_.known_reads(by.first_warp_ + warp, by.global(thread), first_warp_ / 4 + group);
  }
  // Into this block's memory, asked for by a thread of `by`.
  bool issue_bulk(const BlockRaces& by, const Actor& actor, uint32_t mbarrier, uint32_t offset, uint32_t bytes,
                  bool needs_fence, Hazard& hazard) {
    return by.own(all_.issue_bulk(by.global(actor), number(mbarrier), first_byte_ + offset, bytes, needs_fence, hazard),
                  hazard, first_byte_);
  }
  bool write(const BlockRaces& by, const Actor& actor, uint32_t offset, uint32_t bytes, Hazard& hazard) {
    return by.own(all_.write(by.global(actor), first_byte_ + offset, bytes, hazard), hazard, first_byte_);
  }
  void land_bulk(SiteId site, uint32_t mbarrier, uint32_t offset, uint32_t bytes) {
    all_.land_bulk(site, number(mbarrier), first_byte_ + offset, bytes);
  }
  bool initialise_mbarrier(const Actor& actor, uint32_t offset, Hazard& hazard) {
    return own(all_.initialise_mbarrier(global(actor), first_byte_ + offset, hazard), hazard);
  }
  bool use_mbarrier(const BlockRaces& by, const Actor& actor, uint32_t offset, Hazard& hazard) {
    return by.own(all_.use_mbarrier(by.global(actor), first_byte_ + offset, hazard), hazard, first_byte_);
  }
  bool invalidate_mbarrier(const Actor& actor, uint32_t offset, Hazard& hazard) {
    return own(all_.invalidate_mbarrier(global(actor), first_byte_ + offset, hazard), hazard);
  }

  // Accesses to other memory, of which the caller keeps the cells.
  Cell cell_of(const Actor& actor) { return all_.cell_of(global(actor)); }
  bool is_ordered(Cell earlier, const Actor& actor) { return all_.is_ordered(earlier, global(actor)); }
  uint32_t thread_of(Cell cell) const { return RaceDetector::thread_of(cell) - first_warp_ * 32; }

  RaceDetector::Moment moment(uint32_t thread, uint64_t products) const {
    return all_.moment(global(thread), products);
  }

  void sync_block() { all_.sync_block(first_warp_, warps_); }
  void sync_cluster() { all_.sync_block(0, warps_ * blocks_); }
  void sync_warp(uint32_t warp) { all_.sync_warp(first_warp_ + warp); }
  void release(uint32_t warp, Known& to) { all_.release(first_warp_ + warp, to); }
  void acquire(uint32_t warp, const Known& from) { all_.acquire(first_warp_ + warp, from); }
  uint32_t tick_of(uint32_t warp) const { return all_.tick_of(first_warp_ + warp); }
  bool knows(uint32_t warp, uint32_t other, uint32_t tick) const {
    return all_.knows(first_warp_ + warp, first_warp_ + other, tick);
  }
  void release_thread(uint32_t thread, Released& to) { all_.release_thread(global(thread), to); }
  void acquire_thread(uint32_t thread, const Known& from) { all_.acquire_thread(global(thread), from); }
  Known completed(const Released& released) const { return all_.completed(released); }
  void release_copies(uint32_t warp, Released& to) { all_.release_copies(first_warp_ + warp, to); }
  void see_copies(uint32_t thread) { all_.see_copies(global(thread)); }
  void release_bulk(uint32_t mbarrier, Released& to) { all_.release_bulk(number(mbarrier), to); }
  void fence_proxy(uint32_t thread) { all_.fence_proxy(global(thread)); }

 private:
  uint32_t global(uint32_t thread) const { return first_warp_ * 32 + thread; }
  Actor global(Actor actor) const {
    actor.warp += first_warp_;
    actor.thread = global(actor.thread);
    return actor;
  }
  uint32_t number(uint32_t mbarrier) const { return mbarrier * blocks_ + rank_; }
  bool own(bool found, Hazard& hazard) const { return own(found, hazard, first_byte_); }
  bool own(bool found, Hazard& hazard, uint32_t first_byte) const {
    if (!found) [[likely]]
      return false;
    hazard.offset -= first_byte;
    if (hazard.other_thread < 0 || hazard.other_is_bulk) return true;
    const int threads = static_cast<int>(warps_ * 32), rank = hazard.other_thread / threads;
    if (rank != static_cast<int>(rank_)) hazard.other_rank = rank;
    hazard.other_thread %= threads;
    return true;
  }

  RaceDetector& all_;
  uint32_t rank_, blocks_, warps_, first_warp_, first_byte_;
};

}  // namespace emulator
