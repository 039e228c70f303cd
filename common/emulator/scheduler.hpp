// Which thread of a block runs: the fibers and their switches, the lanes of a warp that meet, who waits for what, and
// when a thread has taken too many steps. What each instruction goes through is inline.
#pragma once
#include <array>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>
#include "common/emulator/fiber.hpp"
#include "common/emulator/race_detector.hpp"
#include "common/emulator/site.hpp"
#include "common/emulator/warp.hpp"

namespace emulator {

struct Block;

// Who runs on this OS thread.
struct Current {
  Block* block = nullptr;
  Warp* warp = nullptr;
  uint32_t lane = 0;
  fiber* suspended = nullptr;  // where the fiber that is being switched away from is to be kept
  bool in_fault = false;       // a signal's report is being made

  uint32_t thread() const { return warp->id * 32 + lane; }
  Lane& state() const { return warp->lanes[lane]; }
};
inline constinit thread_local Current current;

struct NamedBarrier {
  uint32_t expected = 0;  // threads; 0: nobody has come yet
  uint32_t arrived = 0;
  SiteId site = NO_SITE;  // of the first to come
  Known clock = {};
  std::vector<Warp*> waiting = {};
  struct Passed {
    uint32_t warp, tick;  // what it had let go of by then
  };
  std::vector<Passed> passed = {};  // the warps that waited when it was last complete
};

struct RegisterWait {  // setmaxnreg.inc
  uint32_t warpgroup, registers;
};

// Of one block. But for start() and steps(), it is called by the running lane.
struct Scheduler {
  explicit Scheduler(Block& owner);

  void start();  // makes the block's threads
  uint64_t steps(uint32_t thread) const;
  // Where the running lane issued its last instruction; line 0 if it has issued none.
  SourceLine last_line() const;
  void complete_block_barrier();
  void wake_warpgroup(uint32_t group);
  void grant_registers();  // to those who wait and for whom there are enough
  // Called now and then by a lane that has just begun an instruction.
  void look(Instruction instruction, const CallSite& call, bool together);
  Warp* next_able_warp();  // of this block; null if there is none
  Warp& next_warp();       // of the cluster; ends the launch if no thread can go on
  // Ends the launch, after a fatal report. The fibers are abandoned where they stand, without destructors: what calls
  // this keeps nothing on its stack that owns memory, and a kernel's locals are registers.
  [[noreturn]] void stop();
  // Ends the launch without a report.
  [[noreturn]] void stop_early();
  [[noreturn]] void leave();  // another cluster has ended it
  // Returns, unless Options::begun is set: a product is where the running lane stays.
  void begin_only() {
    if (begins_only) [[unlikely]]
      stay();
  }

  Block& block;
  Stacks stacks;
  bool begins_only = false;
  uint32_t live = 0;
  uint32_t at_barrier = 0;  // threads that wait in __syncthreads
  CallSite barrier_site;    // where the first of them does
  std::array<NamedBarrier, 16> named_barriers;
  uint32_t free_registers = 0;
  std::vector<RegisterWait> register_waits;

 private:
  fiber run_lane(fiber&& from);
  [[noreturn]] void deadlock();
  void report_endless_loop(const CallSite& call);
  [[noreturn]] void switch_to_host();
  [[noreturn]] void stay();

  // The sites that each thread, and after them each warp together, has come by since it was close to
  // Options::max_steps.
  std::vector<std::set<SiteId>> late_sites_;
};

void look(Instruction instruction, const CallSite& call, bool together);  // the running block's Scheduler::look
void wait_for_other_warp();
// The running lane is about to do what others may wait for. Where the order of threads is drawn, those before it go first.
void give_way();
[[noreturn]] void diverged(Instruction instruction, const CallSite& site);
[[noreturn]] void incomplete(const Warp& warp);
// A lane has ended while others of its warp wait for the warp (synchronise.cpp).
void finish_without(Warp& warp);

// The running lane executes an instruction on its own.
inline void step(Instruction instruction, const CallSite& call) {
  Warp& warp = *current.warp;
  Progress& own = warp.progress[current.lane];
  ++own.steps;
  own.file = call.file;
  own.line = call.line;
  own.together = static_cast<uint32_t>(warp.together);
  if (own.steps + warp.together >= warp.look_at) [[unlikely]]
    look(instruction, call, false);
}

// Lanes of a warp meet. False: others have yet to come, and this lane must wait(). True: this lane is the last, and
// must wake the others, warp.ready |= members, when it has computed what they wait for.
inline bool arrive(Instruction instruction, const CallSite& site, uint32_t members) {
  Warp& warp = *current.warp;
  const uint32_t self = 1u << current.lane;
  if (warp.arrived == 0) {
    warp.instruction = instruction;
    warp.site = site;
    if ((members & ~warp.live) != 0) [[unlikely]]
      incomplete(warp);
  } else if (warp.instruction != instruction || warp.site != site) [[unlikely]] {
    // __syncwarp is a barrier of lanes, whichever of its lines each of them has come to.
    if (warp.instruction != instruction || instruction != Instruction::syncwarp) diverged(instruction, site);
  }
  warp.arrived |= self;
  if (warp.arrived == members) {
    warp.arrived = 0;
    ++warp.together;
    if (warp.progress[current.lane].steps + warp.together >= warp.look_at) [[unlikely]]
      look(instruction, site, true);
    return true;
  }
  warp.ready &= ~self;
  return false;
}

inline void switch_to(Warp& warp, uint32_t lane) {
  fiber& own = current.warp->fibers[current.lane];
  current.suspended = &own;
  current.block = warp.block;
  current.warp = &warp;
  current.lane = lane;
  fiber previous = std::move(warp.fibers[lane]).resume();
  *current.suspended = std::move(previous);  // some other fiber has switched back here
}

// Lets other lanes run until this one, whose ready bit is clear, has been woken.
inline void wait() {
  Warp& warp = *current.warp;
  if (warp.able() != 0) [[likely]] {
    switch_to(warp, Warp::next_after(current.lane, warp.able()));
  } else {
    wait_for_other_warp();
  }
}

// The last lane to arrive computes for all; then each fetches its own.
template <class Compute>
inline void meet(Instruction instruction, const CallSite& site, Compute&& compute) {
  if (arrive(instruction, site, ALL_LANES)) {
    compute(*current.block, *current.warp);
    current.warp->ready = ALL_LANES;
  } else {
    wait();
  }
}

}  // namespace emulator
