// The state of four warps that execute wgmma together, and of one of their threads.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>
#include "common/emulator/site.hpp"
#include "common/emulator/wgmma.hpp"

namespace emulator {

constexpr uint32_t WARPGROUP_THREADS = 128, WARPGROUP_ROWS = 64;

// Of one thread.
struct WgmmaThread {
  // What a fence has handed over: an array of registers and what it held.
  struct Handed {
    const std::byte* begin;
    uint32_t bytes;
    uint32_t copy;  // where in `copies`
  };
  struct Accumulators {  // in flight
    float* d;
    uint32_t n;
    uint32_t tile;  // Warpgroup::tiles
  };
  struct Landed {  // accumulators that no product has been added to since
    const float* d;
    std::vector<float> values;  // when nothing ran any more; none: they have been added to
    bool is_changed = false;    // since then, before anything ran again
  };
  struct Operand {  // A registers in flight
    const uint32_t* a;
    std::array<uint32_t, 4> values;
    uint64_t product;
    SiteId site;
  };
  std::vector<Handed> handed;
  std::vector<std::byte> copies;
  std::vector<Accumulators> accumulators;
  std::vector<Operand> operands;
  std::vector<Landed> landed;

  void clear() {
    handed.clear();
    copies.clear();
    accumulators.clear();
    operands.clear();
    landed.clear();
  }
};

struct Warpgroup {
  struct Tile {             // D of products in flight
    uint64_t last = 0;      // product on it
    uint32_t pending = 0;   // threads that have yet to fetch it; 0: the tile is free
    SiteId site = NO_SITE;  // of the last product
    std::vector<float> values;
  };
  // The warps that have come to `instruction` at `site`, as a mask.
  uint32_t arrived = 0;
  Instruction instruction = {};
  CallSite site;
  // What the threads have handed in.
  std::array<WgmmaOperands, WARPGROUP_THREADS> in;
  std::array<int, WARPGROUP_THREADS> tile_of;  // that their accumulators are in flight to; -1: none
  int tile = 0;                                // what they get

  std::vector<Tile> tiles;
  uint64_t products = 0;                            // issued
  uint64_t left_running = 0;                        // the last that has been counted as left in flight by a wait
  uint64_t left_from = 0, left_to = 0;              // what the last wait has left of those behind it
  uint64_t work = 0;                                // that the first warp's first lane had done at that wait
  uint64_t exponentials = 0;                        // of it
  std::array<std::vector<uint64_t>, 4> group_ends;  // of each warp, groups as numbers of products, oldest first
  std::array<uint64_t, 4> over = {};                // the product up to which each warp has waited
  uint32_t registers = 0;                           // of each thread (setmaxnreg)

  // At a wait of the first warp: how many the wait before has left in flight, unless nothing has been done since; and of these,
  // unless what has been done is no exponential.
  struct Left {
    uint64_t running = 0, beside_exponentials = 0;
  };
  Left count_left(uint64_t work_now, uint64_t exponentials_now) {
    Left left;
    if (work_now + exponentials_now > work + exponentials + 1) {  // the wait itself is work
      left.running = left_to - left_from;
      if (exponentials_now > exponentials) left.beside_exponentials = left.running;
      left_running = std::max(left_running, left_to);
    }
    left_from = std::max(over[0], left_running);
    left_to = products;
    work = work_now;
    exponentials = exponentials_now;
    return left;
  }

  void clear(uint32_t registers_at_start) {
    arrived = 0;
    for (Tile& each : tiles) each.pending = 0;
    products = left_running = left_from = left_to = work = exponentials = 0;
    for (auto& ends : group_ends) ends.clear();
    over = {};
    registers = registers_at_start;
  }
};

}  // namespace emulator
