// A block's mbarriers: their phases, who waits for one, and the copies that are in flight towards them.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>
#include "common/emulator/race_detector.hpp"
#include "common/emulator/site.hpp"
#include "common/emulator/tensor_map.hpp"
#include "common/emulator/warp.hpp"

namespace emulator {

struct Block;

struct BulkCopy {  // in flight to shared memory, by the copy engine
  uint32_t to, bytes;
  const std::byte* from;     // bytes in a row; null: a box
  TensorMap map;             // of a box
  std::array<int, 4> first;  // element
  bool readable;             // false: outside the registered buffers, NaN lands
  SiteId site;
  uint32_t thread;                     // that has asked for it
  std::optional<uint32_t> value = {};  // a thread's own, and not what lies anywhere
};
// Puts a box into shared memory (tensor_map.cpp).
void write_box(Block& block, const BulkCopy& copy);

// For the products that run until the thread waits for what it has asked for.
void note_request(Lane& lane, const Request& request);

struct MbarrierWait {
  uint32_t thread;
  SiteId site;
  RaceDetector::Moment moment;  // with Options::check
};

struct Mbarrier {
  Mbarrier(uint32_t arrivals, uint32_t number_in_block, uint32_t by)
      : count(arrivals), pending(arrivals), number(number_in_block), initialised_by(by) {}

  uint32_t count;    // arrivals that complete a phase
  uint32_t pending;  // of them have yet to come
  uint64_t phase = 0;
  Released released = {};
  Known completed = {};               // what had been released when the last phase completed
  std::vector<MbarrierWait> waiting;  // for the current phase
  uint32_t woken = 0;                 // threads that waited for the last phase and have not run since
  std::vector<uint32_t> in_flight;    // threads whose copies have yet to land before they arrive, oldest first
  std::array<uint32_t, MAX_WARPS> passed = {};  // lanes that know of the last phase
  std::vector<MbarrierWait> waits;              // for the last phase, with Options::check
  SiteId unseen = NO_SITE;            // what has completed a phase before anybody had waited for the one before
  Released asked = {};                // what those knew who have asked for copies that arrive when they have landed
  int64_t pending_bytes = 0;          // that have yet to land; negative: nobody has expected them
  std::vector<BulkCopy> bulk_copies;  // in flight, oldest first
  // Of each warpgroup of the block: its products that are known to be over where copies are asked for. Of this phase, and of the last.
  struct Asked {
    bool any = false;
    std::array<uint32_t, MAX_WARPGROUPS> over = {};
  } asked_now, asked_before;
  uint32_t groups_passed = 0;  // warpgroups that know of the last phase
  uint32_t number;             // in the order of initialisation
  uint32_t initialised_by;     // thread
  bool fenced = false;         // the copy engine knows it
};

struct Mbarriers {
  explicit Mbarriers(Block& owner) : block(owner) {}

  void clear();
  Mbarrier* find(SiteId site, uint32_t address);           // null, and a report, if there is none
  Mbarrier* find_for_bulk(SiteId site, uint32_t address);  // and a report if the copy engine may not know it
  void count_arrival(uint32_t address, SiteId site, uint32_t thread, uint32_t bytes_to_land = 0);
  void arrive_after_copies(uint32_t thread, const Arrival& arrival);  // they have landed
  void pass(Mbarrier& barrier, const MbarrierWait& wait);  // the thread knows that the last phase has completed
  // Lands what threads wait for. False: none of them can go on all the same.
  bool land_awaited_copies();
  void report_unawaited_copies();

  Block& block;
  std::map<uint32_t, Mbarrier> by_address;
  uint32_t made = 0;

 private:
  void land_bulk_copy(uint32_t address);                                // the oldest of a barrier's
  void complete_phase(uint32_t address, SiteId site, uint32_t thread);  // if nothing is pending
  void check_waits(Mbarrier& barrier, uint32_t address, SiteId site, uint32_t thread);
};

}  // namespace emulator
