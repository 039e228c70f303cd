// Tensor maps and the copy engine, which lands boxes of a tensor in shared memory.
#include "common/emulator/tensor_map.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include "common/emulator/block.hpp"

namespace emulator {
namespace {

constexpr uint32_t ROW_BYTES = 128;   // of a box: the span of the swizzle
constexpr uint32_t ALIGNMENT = 1024;  // 8 rows, after which the swizzle repeats

// Empty if the driver would take it.
std::string what_is_wrong(const TensorMap& map) {
  if (map.base == nullptr || reinterpret_cast<uintptr_t>(map.base) % 16 != 0)
    return fmt::format("its base {} is not an address aligned to 16 bytes", fmt::ptr(map.base));
  for (size_t i = 0; i < map.rank; ++i) {
    if (map.extent[i] == 0 || map.extent[i] > uint64_t{1} << 32)
      return fmt::format("dimension {} has {} elements; it must have 1 to 2^32", i, map.extent[i]);
    if (map.box[i] == 0 || map.box[i] > 256)
      return fmt::format("its box has {} elements in dimension {}; it must have 1 to 256", map.box[i], i);
    if (i > 0 && (map.stride_bytes[i] % 16 != 0 || map.stride_bytes[i] >= uint64_t{1} << 40))
      return fmt::format("the stride of dimension {} is {} bytes; it must be a multiple of 16 below 2^40", i,
                         map.stride_bytes[i]);
  }
  if (map.box[0] * map.element_bytes() != ROW_BYTES)
    return fmt::format("its box has rows of {} bytes; the swizzle is one of rows of {}",
                       map.box[0] * map.element_bytes(), ROW_BYTES);
  return "";
}

// Calls visit(row, address, first, count) for each row of the box that has elements inside the tensor: `count` bytes of
// them at `address`, the first of which is byte `first` of the row.
template <class Visit>
void for_each_row(const TensorMap& map, const std::array<int, 4>& at, Visit&& visit) {
  const auto inside = [&](size_t dimension, int64_t i) {
    return i >= 0 && static_cast<uint64_t>(i) < map.extent[dimension];
  };
  const int64_t x_end = std::min(int64_t{at[0]} + map.box[0], static_cast<int64_t>(map.extent[0]));
  const int64_t x = std::max(at[0], 0);
  if (x >= x_end) return;
  uint32_t row = 0;
  for (int64_t w = at[3]; w < int64_t{at[3]} + map.box[3]; ++w) {
    for (int64_t z = at[2]; z < int64_t{at[2]} + map.box[2]; ++z) {
      for (int64_t y = at[1]; y < int64_t{at[1]} + map.box[1]; ++y, ++row) {
        if (!inside(1, y) || !inside(2, z) || !inside(3, w)) continue;
        const uint64_t offset = static_cast<uint64_t>(y) * map.stride_bytes[1] +
                                static_cast<uint64_t>(z) * map.stride_bytes[2] +
                                static_cast<uint64_t>(w) * map.stride_bytes[3];
        const auto* const address = static_cast<const std::byte*>(map.base) + offset + x * int64_t{map.element_bytes()};
        visit(row, address, static_cast<uint32_t>(x - at[0]) * map.element_bytes(),
              static_cast<uint32_t>(x_end - x) * map.element_bytes());
      }
    }
  }
}

}  // namespace

void write_box(Block& block, const BulkCopy& copy) {
  std::memset(block.smem.at(copy.to), 0, copy.map.box_bytes());  // what lies outside the tensor
  for_each_row(copy.map, copy.first, [&](uint32_t row, const std::byte* address, uint32_t first, uint32_t count) {
    const std::byte* const from = block.global(address);
    std::array<std::byte, ROW_BYTES> bytes = {};
    std::memcpy(&bytes[first], from, count);
    for (uint32_t chunk = 0; chunk < ROW_BYTES / 16; ++chunk)
      std::memcpy(block.smem.at(copy.to + row * ROW_BYTES + (chunk ^ (row % 8)) * 16), &bytes[chunk * 16], 16);
  });
}

void store_box(Block& block, const BulkStore& store) {
  for_each_row(store.map, store.first, [&](uint32_t row, const std::byte* address, uint32_t first, uint32_t count) {
    const std::byte* const from = store.bytes.data() + row * ROW_BYTES + first;
    std::memcpy(const_cast<std::byte*>(block.global(address)), from, count);
  });
}

}  // namespace emulator

inline namespace emulated {

using namespace emulator;

DeviceCopies::DeviceCopies(const DeviceCopies& other) : count(other.count + (current.block != nullptr)) {}

DeviceCopies& DeviceCopies::operator=(const DeviceCopies& other) {
  count = other.count + (current.block != nullptr);
  return *this;
}

namespace {

void fence_proxy(Instruction instruction, const CallSite& call, bool global_too) {
  Block& block = *current.block;
  step(instruction, call);
  if (block.counting.tracing) block.counting.trace_lane_event(instruction, call);
  block.counting.counters.wgmma_under_fences += block.running_products(current.warp->id);
  if (!block.launch.options.check) return;
  const RaceDetector::Actor actor{current.warp->id, current.thread(), block.counting.site_id(instruction, call)};
  if (global_too) block.order.fence_proxy(actor);
  block.races.fence_proxy(actor.thread);
}

}  // namespace

void fence_proxy_async_shared(CallSite site) {
  fence_proxy(Instruction::fence_proxy_async_shared, site, false);
}

void fence_proxy_async(CallSite site) {
  fence_proxy(Instruction::fence_proxy_async, site, true);
}

TensorMap checked_map(Device& device, const TensorMap& map) {
  if (device.failed()) return {};
  const std::string wrong = what_is_wrong(map);
  if (wrong.empty()) return map;
  device.refuse("bad tensor map: " + wrong);
  return {};
}

namespace {

// What a copy may ask for, or the launch ends.
SiteId begin_bulk(Instruction instruction, const CallSite& call, const TensorMap& map, int x, uint32_t rank) {
  Block& block = *current.block;
  step(instruction, call);
  const SiteId site = block.counting.site_id(instruction, call);
  const auto refuse = [&](ReportKind kind, auto&& how) {
    block.report({kind, site}, [&] {
      return fmt::format("{}{} by {}{}", kind == ReportKind::global_misaligned ? "misaligned bulk copy: " : "",
                         block.wording.at(site), Wording::thread_name(current.thread()), how());
    });
    block.scheduler.stop();
  };
  if (map.base == nullptr)
    refuse(ReportKind::bad_launch,
           [&] { return fmt::format(": its tensor map was never made by tensor_map_{}d", rank); });
  if (map.rank != rank)
    refuse(ReportKind::bad_launch, [&] { return fmt::format(": its tensor map has {} dimensions", map.rank); });
  if (map.copies.count > 1) {
    refuse(ReportKind::bad_launch, [] {
      return ": its tensor map is a copy that the kernel has made; the copy engine takes the parameter itself, const "
             "__grid_constant__ TensorMap, or a reference to it";
    });
  }
  if (x * static_cast<int>(map.element_bytes()) % 16 != 0) {
    refuse(ReportKind::global_misaligned, [&] {
      return fmt::format(" begins at x = {}; a row must begin at a multiple of {}", x,
                         map.element_bytes() == 2 ? "8 halves" : "16 bytes");
    });
  }
  return site;
}

bool begins_outside(const TensorMap& map, const std::array<int, 4>& first) {
  for (uint32_t i = 0; i < map.rank; ++i) {
    if (first[i] < 0 || static_cast<uint64_t>(first[i]) >= map.extent[i]) return true;
  }
  return false;
}

// Copies the box whose first element is `first` to `shared_address` in the blocks of `ranks`; none: in this one.
void load_box(Instruction instruction, const CallSite& call, uint32_t shared_address, const TensorMap& map,
              const std::array<int, 4>& first, uint32_t mbarrier, uint32_t ranks = 0) {
  Block& block = *current.block;
  const bool is_multicast = ranks != 0;
  const SiteId site =
      begin_bulk(instruction, call, map, first[0], instruction == Instruction::cp_async_bulk_tensor_3d ? 3 : 4);
  const uint32_t thread = current.thread(), bytes = map.box_bytes();
  block.require_valid(shared_address, bytes, ALIGNMENT, site, thread);
  block.require_valid(mbarrier, 8, site, thread);
  std::vector<Block*> destinations;
  if (!is_multicast) destinations.push_back(&block);
  for (uint32_t rank = 0; ranks >> rank != 0; ++rank) {
    if ((ranks >> rank & 1) == 0) continue;
    if (Block* const peer = peer_block(site, rank)) destinations.push_back(peer);
  }

  TraceEvent* const event = block.counting.tracing ? &block.counting.trace_lane_event(instruction, call) : nullptr;
  if (event != nullptr) {
    event->bytes += bytes;
    block.counting.trace_shared(*event, shared_address, bytes);
  }
  Counters& counters = block.counting.counters;
  ++counters.bulk_copies;
  note_request(current.state(), {mbarrier, 1, current.warp->products, current.state().exponentials, 1});
  BulkCopy copy{shared_address, bytes, nullptr, map, first, true, site, thread};
  for_each_row(map, copy.first, [&](uint32_t, const std::byte* address, uint32_t, uint32_t row_bytes) {
    counters.gmem_bytes_read += row_bytes;
    if (block.launch.buffers.empty()) return;
    const Device::Buffer* const buffer =
        block.checked_buffer(instruction, call, address, row_bytes, map.element_bytes(), false);
    copy.readable &= buffer != nullptr;
    if (buffer != nullptr) block.note_global(site, *buffer, address, row_bytes, GlobalUse::read);
    if (event != nullptr) Counting::trace_global(*event, buffer, address, row_bytes);
  });
  // Where a box begins outside of its map, an H200 reads the first byte that the map names: it must be memory.
  if (begins_outside(map, first) && !block.launch.buffers.empty())
    block.checked_buffer(instruction, call, static_cast<const std::byte*>(map.base), 16, map.element_bytes(), false);

  for (Block* const destination : destinations) {
    counters.bulk_bytes += bytes;
    if (is_multicast) counters.multicast_bytes += bytes;
    Mbarrier* const barrier = destination->mbarriers.find_for_bulk(site, mbarrier);
    if (barrier != nullptr) issue_bulk_copy(*destination, *barrier, copy);
  }
}

}  // namespace

void cp_async_bulk_tensor_3d(uint32_t shared_address, const TensorMap& map, int x, int y, int z, uint32_t mbarrier,
                             CallSite call) {
  load_box(Instruction::cp_async_bulk_tensor_3d, call, shared_address, map, {x, y, z, 0}, mbarrier);
}

void cp_async_bulk_tensor_4d(uint32_t shared_address, const TensorMap& map, int x, int y, int z, int w,
                             uint32_t mbarrier, CallSite call) {
  load_box(Instruction::cp_async_bulk_tensor_4d, call, shared_address, map, {x, y, z, w}, mbarrier);
}

void cp_async_bulk_tensor_4d_multicast(uint32_t shared_address, const TensorMap& map, int x, int y, int z, int w,
                                       uint32_t mbarrier, uint16_t ranks, CallSite call) {
  load_box(Instruction::cp_async_bulk_tensor_4d_multicast, call, shared_address, map, {x, y, z, w}, mbarrier, ranks);
}

void cp_async_bulk_tensor_store_4d(const TensorMap& map, int x, int y, int z, int w, uint32_t shared_address,
                                   CallSite call) {
  constexpr Instruction SELF = Instruction::cp_async_bulk_tensor_store_4d;
  Block& block = *current.block;
  const SiteId site = begin_bulk(SELF, call, map, x, 4);
  if (std::min({x, y, z, w}) < 0) {
    block.report({ReportKind::global_out_of_bounds, site}, [&] {
      return fmt::format("{} by {} begins before its map, at ({}, {}, {}, {}): an illegal instruction on an H200",
                         block.wording.at(site), Wording::thread_name(current.thread()), x, y, z, w);
    });
    block.scheduler.stop();
  }
  const uint32_t thread = current.thread(), bytes = map.box_bytes();
  block.require_valid(shared_address, bytes, ALIGNMENT, site, thread);
  TraceEvent* const event = block.counting.tracing ? &block.counting.trace_lane_event(SELF, call) : nullptr;
  if (event != nullptr) {
    event->bytes += bytes;
    block.counting.trace_shared(*event, shared_address, bytes);
  }
  ++block.counting.counters.bulk_copies;
  block.counting.counters.bulk_bytes += bytes;

  BulkStore store;
  store.map = map;
  store.first = {x, y, z, w};
  store.site = site;
  store.tick = ++block.bulk_reads;
  store.products = current.warp->products;
  store.exponentials = current.state().exponentials;
  store.first_access = block.order.size();
  store.bytes.resize(bytes);
  for (uint32_t at = 0; at < bytes; at += 16) {
    const uint32_t row = at / ROW_BYTES, chunk = at % ROW_BYTES / 16,
                   from = shared_address + row * ROW_BYTES + (chunk ^ (row % 8)) * 16;
    read_for_bulk_store(block, store, from, at);
  }
  for_each_row(map, store.first, [&](uint32_t, const std::byte* address, uint32_t, uint32_t row_bytes) {
    block.counting.counters.gmem_bytes_written += row_bytes;
    if (block.launch.buffers.empty()) return;
    const Device::Buffer* const buffer =
        block.checked_buffer(SELF, call, address, row_bytes, map.element_bytes(), true);
    store.writable &= buffer != nullptr;
    if (buffer != nullptr) block.note_global(site, *buffer, address, row_bytes, GlobalUse::write);
    if (event != nullptr) Counting::trace_global(*event, buffer, address, row_bytes);
  });
  store.accesses = block.order.size() - store.first_access;
  current.state().bulk_stores.push_back(std::move(store));
  block.counting.counters.storing_threads += !std::exchange(current.state().has_stored, true);
}

void cp_async_bulk_commit(CallSite call) {
  Lane& lane = current.state();
  step(Instruction::cp_async_bulk_commit, call);
  lane.bulk_group_ends.push_back(lane.bulk_stores.size());
  if (current.block->counting.tracing)
    current.block->counting.trace_lane_event(Instruction::cp_async_bulk_commit, call);
}

void cp_async_bulk_wait_pending(uint32_t pending, bool read_only, CallSite call) {
  const Instruction instruction = read_only ? Instruction::cp_async_bulk_wait_read : Instruction::cp_async_bulk_wait;
  Block& block = *current.block;
  Lane& lane = current.state();
  step(instruction, call);
  if (block.counting.tracing) block.counting.trace_lane_event(instruction, call).operand = static_cast<int>(pending);
  current.warp->note_wait(current.lane);
  if (lane.bulk_group_ends.size() <= pending) return;
  const auto kept = lane.bulk_group_ends.end() - pending;
  const size_t over = *(kept - 1);
  for (size_t i = 0; i < over; ++i) {
    BulkStore& store = lane.bulk_stores[i];
    if (!store.is_read) {
      block.counting.counters.products_under_copies += current.warp->products - store.products;
      block.counting.counters.exponentials_under_stores += lane.exponentials - store.exponentials;
    }
    store.is_read = true;
    if (block.launch.options.check) block.races.know_reads_by_thread(current.thread(), store.tick);
  }
  if (read_only) return;
  lane.bulk_group_ends.erase(lane.bulk_group_ends.begin(), kept);
  land_bulk_stores(block, lane, over, true);
}

}  // namespace emulated
