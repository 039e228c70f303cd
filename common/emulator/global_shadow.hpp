// Who has touched what of global memory in one launch. Blocks of a launch have no order among them but what they tell each other by a
// release and an acquire (turns.hpp), so a word that one writes and another reads or writes without is a race. So is one that one adds to by a reduction and another reads or writes;
// reductions meet in any order. The first and the last block of each sort say enough, whatever the
// order in which blocks were run.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
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
  // From the top a block plus 1, a thread of it, which of its writes, from 1 on, and the number of the place; 0: none.
  using Write = uint64_t;
  static Write write_of(uint64_t block, uint32_t thread, uint32_t number, uint8_t site) {
    return (block + 1) << 40 | uint64_t{thread} << 30 | uint64_t{number} << 8 | site;
  }
  static uint64_t block_of(Write write) { return (write >> 40) - 1; }
  static uint32_t thread_of(Write write) { return write >> 30 & 1023; }
  static uint32_t which_of(Write write) { return write >> 8 & 0x3fffff; }

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
  // `own` is a plain write's, or null; knows(another's) says whether the actor has been told of it.
  template <class Knows>
  void note(const Device::Buffer& buffer, uint64_t offset, uint32_t bytes, GlobalUse use, uint64_t block, uint8_t site,
            Write own, const Knows& knows) {
    const uint32_t mark_of_own = static_cast<uint32_t>(block + 1) << 8 | site;
    for_each_cell(buffer, offset, bytes, use, [&](Cell& mark) {
      const Write latest = use == GlobalUse::reduction ? 0 : mark.latest.load();
      const bool is_ordered = latest != 0 && (latest >> 40 == block + 1 || knows(latest));
      if (own != 0) mark.latest = own;
      if (is_ordered && latest >> 40 != block + 1) return;
      if (is_ordered && use == GlobalUse::read) return;
      note_first(use == GlobalUse::read ? mark.first_reader : mark.first_writer, mark_of_own);
      note_last(use == GlobalUse::read ? mark.last_reader : mark.last_writer, mark_of_own);
    });
  }

  // Who has written one of these bytes or added to it, or, for one who writes, read it: of the launch before, when this one begins.
  std::optional<Access> touched(const Device::Buffer& buffer, uint64_t offset, uint32_t bytes, bool writes) const;

  // After the launch: where the word at that offset was last written, or added to.
  std::optional<Site> writer(const Device::Buffer& buffer, uint64_t offset) const;
  // Of a launch that has touched little: a few MB of shadow.
  bool is_small() const { return made_.size() <= 64; }

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
    std::atomic<Write> latest;  // of the plain ones
  };
  using Page = std::array<Cell, PAGE_CELLS>;
  struct Pages {
    const Device::Buffer* buffer;
    std::vector<std::atomic<Page*>> pages, reductions;  // of these the writers are those who add
  };
  Page* page(std::atomic<Page*>& slot);
  template <class Visit>
  void for_each_cell(const Device::Buffer& buffer, uint64_t offset, uint32_t bytes, GlobalUse use, const Visit& visit) {
    const auto own_buffer =
        std::find_if(buffers_.begin(), buffers_.end(), [&](const Pages& pages) { return pages.buffer == &buffer; });
    auto& pages = use == GlobalUse::reduction ? own_buffer->reductions : own_buffer->pages;
    const uint64_t end = (offset + bytes + CELL_BYTES - 1) / CELL_BYTES;
    for (uint64_t cell = offset / CELL_BYTES; cell < end;) {
      Page* const here = page(pages[cell / PAGE_CELLS]);
      const uint64_t page_end = std::min(end, (cell / PAGE_CELLS + 1) * PAGE_CELLS);
      for (; here != nullptr && cell < page_end; ++cell) visit((*here)[cell % PAGE_CELLS]);
      cell = page_end;
    }
  }
  static void note_first(std::atomic<uint32_t>& mark, uint32_t own);
  static void note_last(std::atomic<uint32_t>& mark, uint32_t own);
  Access access(uint32_t mark) const { return {(mark >> 8) - 1, sites_[mark & 0xff]}; }

  bool enabled_;
  std::vector<Pages> buffers_;
  std::mutex mutex_;
  std::vector<Site> sites_;
  std::vector<std::unique_ptr<Page>> made_;
};

}  // namespace emulator
