// What the blocks of a launch tell each other through words of global memory, and the order in which they add to sums.
//
// Each worker runs one cluster after the other. A thread that waits for a word lets others of its cluster go first; when none of
// them can go on, the worker waits until another one has changed a word. With one worker a block can wait only for those that
// have begun before it: the strictest GPU there may be, with room for a single cluster.
//
// Who releases a word hands on what it knows, and who acquires the word knows it too: by instructions that say so, or by additions that
// say nothing, behind a fence or before one (fence_acq_rel_gpu). Of what? Of plain writes, which others may then
// read or write over (global_shadow.hpp), and of reductions of f32: how many of a thread's are there, performed. Where sums are to have
// the same bits in every run (Options::ordered_sums), a thread may add to a number only when it knows of all that have added to it before.
#pragma once
#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>
#include "common/emulator/emulator.hpp"
#include "common/emulator/global_order.hpp"
#include "common/emulator/race_detector.hpp"
#include "common/emulator/site.hpp"

namespace emulator {

// Of each thread of a grid that has added, or written (then with BlockSums::WRITES): so many of its reductions, or writes, are there.
using Sums = std::map<uint64_t, uint32_t>;
void join(Sums& into, const Sums& from);

class Turns {
 public:
  struct Adder {
    uint64_t block = 0;
    uint32_t thread = 0;  // of the block
    uint32_t number = 0;  // of its reductions, from 1
    Site site = {};

    uint64_t in_grid() const { return block << 10 | thread; }
  };

  explicit Turns(const std::atomic<bool>* stop) : stop_(stop) {}

  // ---- workers: as many as start()
  void start(uint64_t workers) { working_ = workers; }
  void finish(bool has_failed);  // one of them has no more to do
  bool has_failed() const;
  uint64_t changes() const;  // of words, so far
  // Waits for one more than `seen`. False: nobody is left to make one, or the launch is to end.
  bool wait_for_change(uint64_t seen);

  // ---- words
  // Makes next(what was there, operand) of one, and says what was there. `released` is handed on, and added to what others had.
  using Next = uint32_t(uint32_t before, uint32_t operand);
  uint32_t change(uint32_t* word, Next* next, uint32_t operand, Sums& released);
  // If it holds the value, what has been released there; otherwise nothing.
  std::optional<Sums> acquire(const uint32_t* word, uint32_t value) const;

  // ---- sums
  // The words of a range have a new last adder. If one of them had another, of whom nothing is known: that one.
  std::optional<Adder> add_to(const std::byte* first, uint32_t bytes, const Adder& own, const Sums& known);

 private:
  static constexpr size_t PAGE_WORDS = 1024;
  using Page = std::array<uint32_t, PAGE_WORDS>;  // of each word the last adder, as an index of adders_ plus 1

  const std::atomic<bool>* stop_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t changes_ = 0, working_ = 0, waiting_ = 0;
  bool is_stuck_ = false, has_failed_ = false;
  std::unordered_map<const uint32_t*, Sums> words_;
  std::vector<Adder> adders_;
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
};

// What the threads of one block have added, and have been told of other blocks.
class BlockSums {
 public:
  using Actor = RaceDetector::Actor;

  static constexpr uint64_t WRITES = uint64_t{1} << 63;

  BlockSums(const GlobalOrder& order, BlockRaces& races, uint64_t kind = 0)
      : kind_(kind), order_(order), races_(races) {}
  void clear() {
    added_.clear();
    told_.clear();
  }
  // One more reduction of the actor's, and its number. Of the copy engine's, where it stands in the block's GlobalOrder.
  uint32_t add(const Actor& actor, std::optional<size_t> by_engine);
  void acquire(const Actor& actor, const Sums& known);
  Sums known_to(const Actor& actor, uint64_t block);
  // Whether another block has told it of this write, as GlobalShadow numbers it.
  bool knows(const Actor& actor, uint64_t write);

 private:
  struct Added {
    RaceDetector::Cell cell;
    std::optional<size_t> by_engine;
  };
  struct Told {
    RaceDetector::Cell since;
    Sums known;  // and what the thread had been told before
  };
  // What has been told to a thread that the actor is behind: visit(it), until one is true.
  template <class Visit>
  bool any_told(const Actor& actor, const Visit& visit) {
    for (const auto& [thread, told] : told_) {
      const auto last = std::partition_point(told.begin(), told.end(),
                                             [&](const Told& each) { return races_.is_ordered(each.since, actor); });
      if (last != told.begin() && visit(std::prev(last)->known)) return true;
    }
    return false;
  }

  const uint64_t kind_;
  const GlobalOrder& order_;
  BlockRaces& races_;
  std::map<uint32_t, std::vector<Added>> added_;  // by thread, in its order
  std::map<uint32_t, std::vector<Told>> told_;    // the same
};

}  // namespace emulator
