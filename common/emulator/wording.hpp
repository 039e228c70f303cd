// What reports say: the names of threads, blocks, buffers, rows and chunks, and the sentences about what the scheduler,
// the race detector, shared memory and signals have found. What a single instruction finds it words itself.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>
#include "common/emulator/emulator.hpp"
#include "common/emulator/instructions.hpp"
#include "common/emulator/race_detector.hpp"
#include "common/emulator/site.hpp"

namespace emulator {

struct Block;
struct Warp;

// Of one block, as it stands.
struct Wording {
  const Block& block;

  // ---- names
  std::string at(SiteId site) const;                           // "ldmatrix.x4 at 01_base/kernel.cuh:70"
  std::string place(uint32_t address) const;                   // "K+512"
  static std::string thread_name(uint32_t thread);             // "thread 37 (warp 1)"
  std::string actor_name(SiteId site, uint32_t thread) const;  // of wmma "warp 1", of bulk copies "the copy engine"
  std::string block_name() const;                              // "block (0, 0, 0)"
  static std::string block_name(const dim3& grid, uint64_t block);
  std::string global_place(const std::byte* address, std::string& buffer) const;  // "K+64"; and K
  // Of a machine instruction: "at ..." if its line is known exactly, else "after ...", the last emulated instruction's.
  static std::string line_name(const SourceLine& line, bool is_exact);

  // ---- the scheduler's reports
  std::string deadlock() const;
  // where[0] is where the thread is, the others are the lines that it goes round in.
  std::string endless_loop(uint32_t thread, const std::vector<SourceLine>& where) const;
  std::string who_waits_where() const;  // a line for each place, barrier and mbarrier
  std::string incomplete_warp(SiteId site, const Warp& warp) const;
  std::string divergence(SiteId here, uint32_t thread, SiteId there, const Warp& warp) const;
  static std::string exception(uint32_t thread, std::string_view what);
  static std::string stack_overflow(uint32_t thread);
  std::string thread_exit(SiteId copy, uint32_t thread) const;

  // ---- shared memory's
  std::string bad_address(uint32_t address, uint32_t bytes, uint32_t alignment, SiteId site, uint32_t thread) const;
  std::string hazard(const RaceDetector::Actor& actor, const Hazard& hazard) const;
  bool is_store(SiteId site) const;  // a bulk one

  // ---- the signals', about the running lane at `line_name`
  std::string plain_access(std::string_view what, std::string_view place, std::string_view line_name) const;
  std::string no_quotient(std::string_view line_name) const;
  std::string stuck(std::string_view line_name) const;
};

}  // namespace emulator
