// The state of one warp: which lanes can run, where they meet, and what they have handed in.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>
#include "common/emulator/fiber.hpp"
#include "common/emulator/instructions.hpp"
#include "common/emulator/race_detector.hpp"
#include "common/emulator/site.hpp"
#include "common/emulator/tensor_map.hpp"
#include "common/emulator/warpgroup.hpp"

namespace emulator {

constexpr uint32_t ALL_LANES = ~0u;

struct SharedAccess {
  uint32_t address;
  SiteId site;
};

struct Copy {  // one cp.async in flight
  uint32_t to;
  SiteId site;
  const void* from;
  uint32_t size, bytes;     // 4 or 16; of these so many, and the rest is zeros
  bool readable;            // false: out of bounds, NaN lands
  uint64_t products;        // that the warp had started then
  uint64_t exponentials;    // that the thread had computed then
  bool is_tracked = false;  // by an mbarrier
};

struct Arrival {      // at an mbarrier, to be made when copies have landed
  uint32_t mbarrier;  // its address
  SiteId site;
  size_t copies;  // as an end within Lane::copies
};

struct Request {  // of copies that an mbarrier tracks, by a thread that has not waited there since
  uint32_t mbarrier;
  uint64_t copies, products;  // products: that the warp had started then, the sum over the copies
  uint64_t exponentials;      // that the thread had computed then, the sum over the copies
  uint64_t loads = 0;         // of the copies, those of the copy engine
};

struct Arrived {  // at an mbarrier, by a thread that has not waited there since
  uint32_t mbarrier;
  uint64_t phase, products;  // products: that the warp had started then
};

struct BulkStore {                // on its way to global memory, by the copy engine
  const std::byte* to = nullptr;  // bytes in a row; null: a box
  bool adds = false;              // f32, to what is there
  TensorMap map = {};             // of a box
  std::array<int, 4> first = {};  // element
  bool writable = true;           // false: not all of it is
  SiteId site = NO_SITE;
  uint32_t tick = 0;                      // of the race detector, for its reads
  RaceDetector::Cell judged = 0;          // their last writer
  size_t first_access = 0, accesses = 0;  // in Block::order
  std::vector<std::byte> bytes = {};
  uint64_t products = 0;      // that the warp had started then
  uint64_t exponentials = 0;  // that the thread had computed then
  bool is_read = false;       // a wait has said that shared memory may be overwritten
};

struct Fragment {  // what an ldmatrix has given the first lane
  std::array<uint32_t, 4> registers = {};
  uint64_t products = 0;  // that the warp had started then
  bool is_used = true;    // or there is none
};

struct Lane {
  uint3 thread_index = {};
  Instruction waits_in = {};  // where it waits if not in a warp instruction
  CallSite waits_at;
  std::vector<Copy> copies;        // oldest first
  std::vector<size_t> group_ends;  // cp.async groups as ends within `copies`
  std::vector<Arrival> arrivals;   // oldest first
  std::vector<Request> requests;
  std::vector<Arrived> arrived;        // the last phase of each mbarrier
  uint64_t exponentials = 0;           // that it has computed
  bool has_waited = false;             // for copies, since its last cp.async.mbarrier.arrive
  std::vector<SharedAccess> accesses;  // not yet counted
  WgmmaThread wgmma;
  std::vector<BulkStore> bulk_stores;   // oldest first
  std::vector<size_t> bulk_group_ends;  // as ends within `bulk_stores`
  bool has_stored = false;              // by the copy engine
};

// How far a lane has come in the block.
struct Progress {
  uint64_t steps = 0;     // emulated instructions of its own
  const char* file = "";  // the last of them
  uint32_t line = 0;
  uint32_t together = 0;  // Warp::together at the time, its low half
};

struct Block;

struct alignas(64) Warp {
  // Everything a warp instruction touches comes first.
  std::array<fiber, 32> fibers;
  uint32_t ready = 0;    // lanes that can run
  uint32_t live = 0;     // lanes that have not ended
  uint32_t lagging = 0;  // lanes that run when nobody else can
  uint32_t arrived = 0;  // lanes that wait in `instruction` at `site` for the others
  uint32_t id = 0;
  Block* block = nullptr;
  Instruction instruction = {};
  CallSite site;
  uint64_t products = 0;  // that it has started, mma or wgmma
  uint64_t weights = 0;   // exponentials that its first lane had computed at the last of them
  std::array<Fragment, 8> fragments = {};
  size_t next_fragment = 0;
  uint64_t before_turn = 0;  // of these, when it last came to a named barrier
  bool has_turn = false;     // it has waited there
  uint64_t together = 0;     // instructions that the lanes have executed as a warp
  uint64_t look_at = 0;      // when a lane has come so far, Block::look
  // Operands: each lane hands in its own on arrival. Results: the last lane to arrive computes them for all, and each
  // lane fetches its own when it wakes, so that nobody writes to another's stack.
  alignas(64) uint32_t in[10][32];
  alignas(64) uint32_t out[4][32];
  alignas(64) float addend[256];  // C of mma, 16 x 8, row-major; wmma: two of these
  alignas(64) float sum[256];     // and D; wmma: or what it loads of C

  std::array<Progress, 32> progress;
  std::array<uint64_t, 32> waited = {};  // 1 + `together` when the lane has last waited by itself, or 0
  std::array<Lane, 32> lanes;

  // Whether it comes from exponentials.
  bool start_product() {
    ++products;
    return std::exchange(weights, lanes[0].exponentials) != lanes[0].exponentials;
  }
  // Where a lane waits that cannot run.
  std::pair<Instruction, CallSite> waits_in(uint32_t lane) const {
    if (arrived >> lane & 1) return {instruction, site};
    return {lanes[lane].waits_in, lanes[lane].waits_at};
  }
  // This lane waits, by itself as long as no others do.
  void note_wait(uint32_t lane) { waited[lane] = together + 1; }
  // Lanes that have waited by themselves since the warp has last done anything together.
  uint32_t lanes_apart() const {
    uint32_t lanes = 0;
    for (uint32_t lane = 0; lane < 32; ++lane) lanes |= (waited[lane] == together + 1 ? 1u : 0u) << lane;
    return lanes & live;
  }
  uint32_t able() const { return ready & ~lagging; }
  static uint32_t next_after(uint32_t lane, uint32_t lanes) {
    return (lane + 1 + static_cast<uint32_t>(std::countr_zero(std::rotr(lanes, static_cast<int>(lane + 1))))) % 32;
  }
  uint32_t next_lane() const { return static_cast<uint32_t>(std::countr_zero(able() != 0 ? able() : ready)); }
};

}  // namespace emulator
