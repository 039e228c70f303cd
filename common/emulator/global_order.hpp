// What the threads of a block have done to global memory that kernels may write, and in what order. Two rules are held to
// here; that blocks have no order among themselves is held to in global_shadow.hpp.
//
// A reduction (red, cp.reduce.async.bulk) may meet other reductions in any order, but a plain read or write of the same
// bytes must come before it or after it. Of the reads before a block's first reduction, MAX_READS are
// remembered.
//
// The copy engine finds what threads have stored or added when a proxy fence has told it. What itself adds or stores
// there has landed when a wait, not a wait for the reading of shared memory, has said so to the thread that has asked.
#pragma once
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>
#include "common/emulator/emulator.hpp"
#include "common/emulator/race_detector.hpp"

namespace emulator {

enum class GlobalUse : uint8_t { read, write, reduction };

// Where its bytes are counted.
constexpr CountOf gmem_bytes(GlobalUse use) {
  if (use == GlobalUse::read) return &Counts::gmem_bytes_read;
  return use == GlobalUse::write ? &Counts::gmem_bytes_written : &Counts::gmem_bytes_reduced;
}

class GlobalOrder {
 public:
  struct Access {
    const std::byte* first;
    uint32_t bytes;
    GlobalUse use;
    bool by_engine;  // the copy engine: in flight until it has landed
    bool in_flight = false;
    RaceDetector::Cell cell = 0;
    RaceDetector::Cell fence = 0;  // the first that has told the copy engine; 0: none has
  };
  struct Fault {
    ReportKind kind;
    Access earlier;
  };

  explicit GlobalOrder(BlockRaces& races) : races_(races) {}
  void clear();
  // Remembers an access of the actor's. Calls report(fault) if an earlier one should have been ordered before it.
  template <class Report>
  void note(const RaceDetector::Actor& actor, Access access, Report&& report) {
    if (access.use == GlobalUse::reduction) has_reductions_ = true;
    const bool is_read = access.use == GlobalUse::read;
    if (has_reductions_ || (access.by_engine && is_read)) {
      Fault fault;
      if (find_fault(actor, access, fault)) report(fault);
    }
    if (is_read && (access.by_engine || (!has_reductions_ && reads_++ >= MAX_READS))) return;
    access.cell = races_.cell_of(actor);
    access.in_flight = access.by_engine;
    all_.push_back(access);
  }
  // Whether one of them is over, and the actor knows.
  bool is_there(size_t number, const RaceDetector::Actor& actor) const {
    return !all_[number].in_flight && races_.is_ordered(all_[number].cell, actor);
  }
  size_t size() const { return all_.size(); }  // those that are remembered, in the order of their issue
  // What the copy engine has been asked for is there, and the thread that has asked knows: of these accesses.
  void land(const RaceDetector::Actor& actor, size_t first, size_t count);
  void fence_proxy(const RaceDetector::Actor& actor);

 private:
  static constexpr uintptr_t LINE_BYTES = 64;
  static constexpr uint32_t MAX_READS = 1 << 16;

  template <class Visit>
  static void for_each_line(const Access& access, Visit&& visit) {
    const auto first = reinterpret_cast<uintptr_t>(access.first);
    for (uintptr_t line = first / LINE_BYTES; line <= (first + access.bytes - 1) / LINE_BYTES; ++line) visit(line);
  }
  void index();
  bool find_fault(const RaceDetector::Actor& actor, const Access& access, Fault& fault);
  bool is_fault(const Access& earlier, const RaceDetector::Actor& actor, const Access& access, Fault& fault);

  BlockRaces& races_;
  bool has_reductions_ = false;
  uint32_t reads_ = 0;  // before the first reduction
  std::vector<Access> all_;
  size_t indexed_ = 0;                                          // so many of them stand in `lines_`
  std::unordered_map<uintptr_t, std::vector<uint32_t>> lines_;  // those that touch a line, as numbers
};

}  // namespace emulator
