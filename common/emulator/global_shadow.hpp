// Who has touched what of global memory in one launch. Blocks of a launch have no order among them, so a word that one
// writes and another reads or writes is a race. So is one that one adds to by a reduction and another reads or writes;
// reductions meet in any order. The first and the last block of each sort say enough, whatever the
// order in which blocks were run.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>
#include "common/emulator/emulator.hpp"
#include "common/emulator/global_order.hpp"
#include "common/emulator/site.hpp"

namespace emulator {

class GlobalShadow {
 public:
  struct Access {
    uint64_t block;
    Site site;
  };
  struct Clash {
    const Device::Buffer* buffer;
    uint64_t offset;  // of the first such word, in bytes
    Access first;     // writes or adds
    Access second;    // reads or writes
    bool second_writes;
    bool first_reduces = false;
    uint64_t times = 1;  // words
  };

  // Of the buffers that a kernel may write. Not thread-safe, unlike the functions that a worker calls.
  GlobalShadow(const std::vector<Device::Buffer>& buffers, uint64_t blocks);

  bool watches(const Device::Buffer& buffer) const { return enabled_ && buffer.access == emulator::Access::read_write; }
  // A small number for a place in the source, to be kept by the caller.
  uint8_t number_of(const Site& site);
  // bytes > 0, within the buffer.
  void note(const Device::Buffer& buffer, uint64_t offset, uint32_t bytes, GlobalUse use, uint64_t block, uint8_t site);

  // After the launch: each pair of places once.
  std::vector<Clash> clashes() const;

 private:
  static constexpr uint32_t CELL_BYTES = 2;  // an f16
  static constexpr uint64_t PAGE_CELLS = 4096;
  static constexpr size_t MAX_PAGES = 16384;  // 1 GiB of shadow; what lies beyond is not watched
  static constexpr uint64_t MAX_BLOCKS = (1 << 24) - 1;
  static constexpr size_t MAX_SITES = 256;

  // (block + 1) << 8 | site; 0: nobody.
  struct Cell {
    std::atomic<uint32_t> first_writer, last_writer, first_reader, last_reader;
  };
  using Page = std::array<Cell, PAGE_CELLS>;
  struct Pages {
    const Device::Buffer* buffer;
    std::vector<std::atomic<Page*>> pages, reductions;  // of these the writers are those who add
  };
  Page* page(std::atomic<Page*>& slot);
  Access access(uint32_t mark) const { return {(mark >> 8) - 1, sites_[mark & 0xff]}; }

  bool enabled_;
  std::vector<Pages> buffers_;
  std::mutex mutex_;
  std::vector<Site> sites_;
  std::vector<std::unique_ptr<Page>> made_;
};

}  // namespace emulator
