#include "common/emulator/global_shadow.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace emulator {
void GlobalShadow::note_first(std::atomic<uint32_t>& mark, uint32_t own) {
  for (uint32_t known = mark; (known == 0 || own >> 8 < known >> 8) && !mark.compare_exchange_weak(known, own);) {
  }
}

void GlobalShadow::note_last(std::atomic<uint32_t>& mark, uint32_t own) {
  for (uint32_t known = mark; own >> 8 > known >> 8 && !mark.compare_exchange_weak(known, own);) {
  }
}

GlobalShadow::GlobalShadow(const std::vector<Device::Buffer>& buffers, uint64_t blocks)
    : enabled_(blocks <= MAX_BLOCKS) {
  if (!enabled_) return;
  for (const Device::Buffer& buffer : buffers) {
    if (buffer.access != emulator::Access::read_write) continue;
    const uint64_t cells = (buffer.bytes + CELL_BYTES - 1) / CELL_BYTES;
    const uint64_t pages = (cells + PAGE_CELLS - 1) / PAGE_CELLS;
    buffers_.push_back({&buffer, std::vector<std::atomic<Page*>>(pages), std::vector<std::atomic<Page*>>(pages)});
  }
}

uint8_t GlobalShadow::number_of(const Site& site) {
  const std::lock_guard guard(mutex_);
  const auto known = std::find(sites_.begin(), sites_.end(), site);
  const auto number = static_cast<size_t>(known - sites_.begin());
  if (known == sites_.end() && sites_.size() < MAX_SITES) sites_.push_back(site);
  return static_cast<uint8_t>(std::min(number, MAX_SITES - 1));
}

GlobalShadow::Page* GlobalShadow::page(std::atomic<Page*>& slot) {
  if (Page* const known = slot.load(std::memory_order_acquire)) return known;
  const std::lock_guard guard(mutex_);
  if (Page* const known = slot.load(std::memory_order_acquire)) return known;
  if (made_.size() == MAX_PAGES) return nullptr;
  made_.push_back(std::make_unique<Page>());
  slot.store(made_.back().get(), std::memory_order_release);
  return made_.back().get();
}

std::optional<GlobalShadow::Access> GlobalShadow::touched(const Device::Buffer& buffer, uint64_t offset, uint32_t bytes,
                                                          bool writes) const {
  const auto known = std::ranges::find(buffers_, &buffer, &Pages::buffer);
  if (known == buffers_.end()) return std::nullopt;
  for (uint64_t cell = offset / CELL_BYTES; cell < (offset + bytes + CELL_BYTES - 1) / CELL_BYTES; ++cell) {
    for (const auto* const pages : {&known->pages, &known->reductions}) {
      const Page* const page = (*pages)[cell / PAGE_CELLS];
      if (page == nullptr) continue;
      const Cell& own = (*page)[cell % PAGE_CELLS];
      const uint32_t mark = own.first_writer != 0 || !writes ? own.first_writer : own.first_reader;
      if (mark != 0) return access(mark);
    }
  }
  return std::nullopt;
}

std::optional<Site> GlobalShadow::writer(const Device::Buffer& buffer, uint64_t offset) const {
  const auto known = std::ranges::find(buffers_, &buffer, &Pages::buffer);
  if (known == buffers_.end()) return std::nullopt;
  const uint64_t cell = offset / CELL_BYTES;
  const auto at = [&](const std::vector<std::atomic<Page*>>& pages) -> const Cell* {
    const Page* const page = pages[cell / PAGE_CELLS];
    return page == nullptr ? nullptr : &(*page)[cell % PAGE_CELLS];
  };
  const Cell *const adds = at(known->reductions), *const own = at(known->pages);
  uint64_t mark = adds == nullptr ? 0 : adds->last_writer.load();
  if (mark == 0 && own != nullptr) mark = own->latest != 0 ? own->latest.load() : own->last_writer.load();
  const size_t number = mark & 0xff;
  if (mark == 0 || number == MAX_SITES - 1) return std::nullopt;  // which stands for several
  return sites_[number];
}

std::vector<GlobalShadow::Clash> GlobalShadow::clashes() const {
  std::vector<Clash> all;
  std::map<std::tuple<const Device::Buffer*, uint32_t, uint32_t, bool>, size_t> known;
  const auto clash = [&](const Pages& pages, uint64_t cell, uint32_t first, uint32_t second, bool second_writes,
                         bool first_reduces = false) {
    const auto [entry, is_new] =
        known.try_emplace({pages.buffer, first & 0xff, second & 0xff, second_writes}, all.size());
    if (!is_new) {
      ++all[entry->second].times;
      return;
    }
    all.push_back({pages.buffer, cell * CELL_BYTES, access(first), access(second), second_writes, first_reduces});
  };
  // Of those who add, somebody of another block than one of these two.
  const auto clash_with_reductions = [&](const Pages& pages, uint64_t number, const Cell& adds, uint32_t first,
                                         uint32_t last, bool writes) {
    if (first == 0) return;
    const uint32_t other = adds.first_writer >> 8 != first >> 8 ? first : last;
    const uint32_t adder = adds.first_writer >> 8 != other >> 8 ? adds.first_writer : adds.last_writer;
    if (adder >> 8 != other >> 8) clash(pages, number, adder, other, writes, true);
  };
  for (const Pages& pages : buffers_) {
    for (uint64_t i = 0; i < pages.pages.size(); ++i) {
      const Page *const page = pages.pages[i], *const reductions = pages.reductions[i];
      if (page == nullptr) continue;
      for (uint64_t c = 0; c < PAGE_CELLS; ++c) {
        const Cell& cell = (*page)[c];
        if (reductions != nullptr && (*reductions)[c].first_writer != 0) {
          const Cell& adds = (*reductions)[c];
          clash_with_reductions(pages, i * PAGE_CELLS + c, adds, cell.first_reader, cell.last_reader, false);
          clash_with_reductions(pages, i * PAGE_CELLS + c, adds, cell.first_writer, cell.last_writer, true);
        }
        const uint32_t writer = cell.first_writer, last_writer = cell.last_writer;
        if (writer == 0) continue;
        const uint32_t reader = cell.first_reader, last_reader = cell.last_reader;
        if (writer >> 8 != last_writer >> 8) clash(pages, i * PAGE_CELLS + c, writer, last_writer, true);
        // Somebody reads what another writes: the first reader, or the last.
        const uint32_t other = reader >> 8 != writer >> 8 ? reader : last_reader;
        if (other != 0 && other >> 8 != writer >> 8) clash(pages, i * PAGE_CELLS + c, writer, other, false);
      }
    }
  }
  return all;
}

}  // namespace emulator
