// Bulk copies and reductions of bytes in a row, and the way of all bulk stores to global memory.
#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include "common/emulator/block.hpp"

namespace emulator {

void land_bulk_stores(Block& block, Lane& lane, size_t count, bool is_awaited) {
  for (size_t i = 0; i < count; ++i) {
    const BulkStore& store = lane.bulk_stores[i];
    if (store.accesses > 0 && is_awaited) {
      block.order.land({current.warp->id, current.thread(), store.site}, store.first_access, store.accesses);
    }
    if (!store.writable) continue;
    if (store.to == nullptr) {
      store_box(block, store);
    } else if (store.adds) {
      for (size_t at = 0; at < store.bytes.size(); at += sizeof(float)) {
        float value;
        std::memcpy(&value, store.bytes.data() + at, sizeof value);
        add_f32(block.global(store.to + at), value, false);
      }
    } else {
      std::memcpy(const_cast<std::byte*>(block.global(store.to)), store.bytes.data(), store.bytes.size());
    }
  }
  lane.bulk_stores.erase(lane.bulk_stores.begin(), lane.bulk_stores.begin() + static_cast<ptrdiff_t>(count));
  for (size_t& end : lane.bulk_group_ends) end -= std::min(end, count);
}

void read_for_bulk_store(Block& block, BulkStore& store, uint32_t shared_address, size_t at) {
  const RaceDetector::Reader reader{current.warp->id, 1, current.thread(), store.site, store.tick};
  Hazard hazard;
  if (block.launch.options.check && block.races.read_async(reader, shared_address - SMEM_BASE, hazard, store.judged))
    block.report_hazard({current.warp->id, current.thread(), store.site}, hazard);
  std::memcpy(store.bytes.data() + at, block.smem.at(shared_address), 16);
}

void issue_bulk_copy(Block& destination, Mbarrier& barrier, const BulkCopy& copy) {
  Block& block = *current.block;
  if (block.launch.options.check) {
    const RaceDetector::Actor actor{current.warp->id, current.thread(), copy.site};
    Hazard hazard;
    if (destination.races.issue_bulk(block.races, actor, barrier.number, copy.to - SMEM_BASE, copy.bytes, !copy.value,
                                     hazard))
      block.report_hazard(actor, hazard);
    block.races.release_thread(current.thread(), barrier.asked);
    barrier.asked_now.any = true;
    for (uint32_t group = 0; group < destination.warpgroups.size(); ++group) {
      uint32_t& over = barrier.asked_now.over[group];
      over = std::max(over, destination.races.products_known_by(block.races, actor.warp, actor.thread, group));
    }
  }
  std::memset(destination.smem.at(copy.to), 0xff, copy.bytes);
  barrier.bulk_copies.push_back(copy);
}

}  // namespace emulator

inline namespace emulated {

using namespace emulator;

namespace {

constexpr uint32_t ALIGNMENT = 16;

// What a copy may ask for, or the launch ends. The registered buffer that it is in, if there is one.
SiteId begin_bulk(Instruction instruction, const CallSite& call, uint32_t shared_address, const void* global_address,
                  uint32_t bytes, const Device::Buffer*& buffer, bool& in_bounds) {
  Block& block = *current.block;
  step(instruction, call);
  const SiteId site = block.counting.site_id(instruction, call);
  if (bytes == 0 || bytes % ALIGNMENT != 0) {
    block.report({ReportKind::global_misaligned, site}, [&] {
      return fmt::format("misaligned bulk copy: {} by {} of {} bytes; they must be a multiple of 16 above 0",
                         block.wording.at(site), Wording::thread_name(current.thread()), bytes);
    });
    block.scheduler.stop();
  }
  block.require_valid(shared_address, bytes, ALIGNMENT, site, current.thread());
  const GlobalUse use = instruction == Instruction::cp_async_bulk                  ? GlobalUse::read
                        : instruction == Instruction::cp_reduce_async_bulk_add_f32 ? GlobalUse::reduction
                                                                                   : GlobalUse::write;
  Counters& counters = block.counting.counters;
  ++counters.bulk_copies;
  counters.bulk_bytes += bytes;
  counters.*gmem_bytes(use) += bytes;
  in_bounds = true;
  if (!block.launch.buffers.empty()) {
    buffer = block.checked_buffer(instruction, call, global_address, bytes, ALIGNMENT, use != GlobalUse::read);
    in_bounds = buffer != nullptr;
  }
  if (block.counting.tracing) {
    TraceEvent& event = block.counting.trace_lane_event(instruction, call);
    event.bytes += bytes;
    block.counting.trace_shared(event, shared_address, bytes);
    Counting::trace_global(event, buffer, global_address, bytes);
  }
  return site;
}

void store_bytes(Instruction instruction, const CallSite& call, void* global_address, uint32_t shared_address,
                 uint32_t bytes) {
  Block& block = *current.block;
  const bool adds = instruction == Instruction::cp_reduce_async_bulk_add_f32;
  const Device::Buffer* buffer = nullptr;
  BulkStore store;
  store.to = static_cast<const std::byte*>(global_address);
  store.adds = adds;
  store.site = begin_bulk(instruction, call, shared_address, global_address, bytes, buffer, store.writable);
  store.tick = ++block.bulk_reads;
  store.products = current.warp->products;
  store.exponentials = current.state().exponentials;
  store.bytes.resize(bytes);
  for (uint32_t at = 0; at < bytes; at += 16) read_for_bulk_store(block, store, shared_address + at, at);
  if (buffer != nullptr) {
    store.first_access = block.order.size();
    block.note_global(store.site, *buffer, global_address, bytes, adds ? GlobalUse::reduction : GlobalUse::write);
    store.accesses = block.order.size() - store.first_access;
    if (adds) block.note_sum(store.site, *buffer, global_address, bytes, store.first_access);
  }
  current.state().bulk_stores.push_back(std::move(store));
  block.counting.counters.storing_threads += !std::exchange(current.state().has_stored, true);
}

// ---- stores into another block of the cluster

constexpr uint32_t RANK_BIT =
    24;  // below it stands the address in the block, from it on the block's number plus 1; 0: it is this one

// The block that has the word, and where; null, and a report, if there is none.
Block* mapped_block(SiteId site, uint32_t mapped, uint32_t bytes, uint32_t& address) {
  Block& block = *current.block;
  address = mapped & ((1u << RANK_BIT) - 1);
  block.require_valid(address, bytes, site, current.thread());
  return peer_block(site, mapped >> RANK_BIT == 0 ? block.rank : (mapped >> RANK_BIT) - 1);
}

}  // namespace

uint32_t mapa(uint32_t address, uint32_t rank) {
  return (rank + 1) << RANK_BIT | address;
}

void st_shared_cluster_b32(uint32_t mapped, uint32_t value, CallSite call) {
  constexpr Instruction SELF = Instruction::st_shared_cluster_b32;
  Block& block = *current.block;
  step(SELF, call);
  const SiteId site = block.counting.site_id(SELF, call);
  uint32_t address = 0;
  Block* const peer = mapped_block(site, mapped, sizeof value, address);
  if (peer == nullptr) return;
  if (block.counting.tracing) block.counting.trace_lane_event(SELF, call).bytes += sizeof value;
  const RaceDetector::Actor actor{current.warp->id, current.thread(), site};
  Hazard hazard;
  if (block.launch.options.check && peer->races.write(block.races, actor, address - SMEM_BASE, sizeof value, hazard))
    block.report_hazard(actor, hazard);
  std::memcpy(peer->smem.at(address), &value, sizeof value);
}

void st_async_b32(uint32_t mapped, uint32_t value, uint32_t mapped_mbarrier, CallSite call) {
  constexpr Instruction SELF = Instruction::st_async_b32;
  Block& block = *current.block;
  give_way();
  step(SELF, call);
  const SiteId site = block.counting.site_id(SELF, call);
  uint32_t address = 0, mbarrier = 0;
  Block *const peer = mapped_block(site, mapped, sizeof value, address), *const its = mapped_block(
                                                                             site, mapped_mbarrier, 8, mbarrier);
  if (peer == nullptr || its == nullptr) return;
  if (peer != its) {
    block.report({ReportKind::cluster_misuse, site}, [&] {
      return fmt::format("{} by {}: the word is block {}'s of the cluster and the mbarrier block {}'s",
                         block.wording.at(site), Wording::thread_name(current.thread()), peer->rank, its->rank);
    });
    return;
  }
  Mbarrier* const barrier = peer->mbarriers.find(site, mbarrier);
  if (barrier == nullptr) return;
  if (block.counting.tracing) block.counting.trace_lane_event(SELF, call).bytes += sizeof value;
  issue_bulk_copy(*peer, *barrier, {address, sizeof value, nullptr, {}, {}, true, site, current.thread(), value});
}

void cp_async_bulk(uint32_t shared_address, const void* global_address, uint32_t bytes, uint32_t mbarrier,
                   CallSite call) {
  Block& block = *current.block;
  const Device::Buffer* buffer = nullptr;
  bool readable = true;
  const SiteId site =
      begin_bulk(Instruction::cp_async_bulk, call, shared_address, global_address, bytes, buffer, readable);
  block.require_valid(mbarrier, 8, site, current.thread());
  if (buffer != nullptr) block.note_global(site, *buffer, global_address, bytes, GlobalUse::read);
  Mbarrier* const barrier = block.mbarriers.find_for_bulk(site, mbarrier);
  if (barrier == nullptr) return;
  const auto* const from = static_cast<const std::byte*>(global_address);
  note_request(current.state(), {mbarrier, 1, current.warp->products, current.state().exponentials, 1});
  issue_bulk_copy(block, *barrier, {shared_address, bytes, from, {}, {}, readable, site, current.thread()});
}

void cp_async_bulk_store(void* global_address, uint32_t shared_address, uint32_t bytes, CallSite call) {
  store_bytes(Instruction::cp_async_bulk_store, call, global_address, shared_address, bytes);
}

void cp_reduce_async_bulk_add_f32(float* global_address, uint32_t shared_address, uint32_t bytes, CallSite call) {
  store_bytes(Instruction::cp_reduce_async_bulk_add_f32, call, global_address, shared_address, bytes);
}

}  // namespace emulated
