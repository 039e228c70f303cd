// Tensor maps and the copy engine, which lands boxes of a tensor in shared memory.
#include "common/emulator/tensor_map.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include "common/emulator/block.hpp"

namespace emulator {
namespace {

constexpr uint32_t ROW_ELEMENTS = 64, ROW_BYTES = 128;  // of a box: the span of the swizzle
constexpr uint32_t ALIGNMENT = 1024;                    // 8 rows, after which the swizzle repeats

// Empty if the driver would take it.
std::string what_is_wrong(const TensorMap& map) {
  if (map.base == nullptr || reinterpret_cast<uintptr_t>(map.base) % 16 != 0)
    return fmt::format("its base {} is not an address aligned to 16 bytes", fmt::ptr(map.base));
  for (size_t i = 0; i < 3; ++i) {
    if (map.extent[i] == 0 || map.extent[i] > uint64_t{1} << 32)
      return fmt::format("dimension {} has {} elements; it must have 1 to 2^32", i, map.extent[i]);
    if (map.box[i] == 0 || map.box[i] > 256)
      return fmt::format("its box has {} elements in dimension {}; it must have 1 to 256", map.box[i], i);
    if (i > 0 && (map.stride_bytes[i] % 16 != 0 || map.stride_bytes[i] >= uint64_t{1} << 40))
      return fmt::format("the stride of dimension {} is {} bytes; it must be a multiple of 16 below 2^40", i,
                         map.stride_bytes[i]);
  }
  if (map.box[0] != ROW_ELEMENTS)
    return fmt::format("its box has rows of {} bytes; the swizzle is one of rows of {}", map.box[0] * sizeof(f16),
                       ROW_BYTES);
  return "";
}

// Calls visit(row, address, first, count) for each row of the box that has elements inside the tensor: `count` of them at
// `address`, the first of which is element `first` of the row.
template <class Visit>
void for_each_row(const TensorMap& map, const std::array<int, 3>& at, Visit&& visit) {
  const auto inside = [&](size_t dimension, int64_t i) {
    return i >= 0 && static_cast<uint64_t>(i) < map.extent[dimension];
  };
  const int64_t x_end = std::min(int64_t{at[0]} + ROW_ELEMENTS, static_cast<int64_t>(map.extent[0]));
  const int64_t x = std::max(at[0], 0);
  if (x >= x_end) return;
  uint32_t row = 0;
  for (int64_t z = at[2]; z < int64_t{at[2]} + map.box[2]; ++z) {
    for (int64_t y = at[1]; y < int64_t{at[1]} + map.box[1]; ++y, ++row) {
      if (!inside(1, y) || !inside(2, z)) continue;
      const uint64_t offset =
          static_cast<uint64_t>(y) * map.stride_bytes[1] + static_cast<uint64_t>(z) * map.stride_bytes[2];
      const auto* const address = reinterpret_cast<const std::byte*>(map.base) + offset + x * int64_t{sizeof(f16)};
      visit(row, address, static_cast<uint32_t>(x - at[0]), static_cast<uint32_t>(x_end - x));
    }
  }
}

}  // namespace

void write_box(Block& block, const BulkCopy& copy) {
  std::memset(block.smem.at(copy.to), 0, copy.map.box_bytes());  // what lies outside the tensor
  for_each_row(copy.map, copy.first, [&](uint32_t row, const std::byte* address, uint32_t first, uint32_t count) {
    const std::byte* const from = block.global(address);
    f16 elements[ROW_ELEMENTS] = {};
    std::memcpy(elements + first, from, count * sizeof(f16));
    for (uint32_t chunk = 0; chunk < ROW_BYTES / 16; ++chunk)
      std::memcpy(block.smem.at(copy.to + row * ROW_BYTES + (chunk ^ (row % 8)) * 16), elements + chunk * 8, 16);
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
  if (!block.launch.options.check) return;
  const RaceDetector::Actor actor{current.warp->id, current.thread(), block.counting.site_id(instruction, call)};
  if (global_too) {
    for (Block::GlobalWrite& write : block.global_writes) {
      if (write.fence == 0 && block.races.is_ordered(write.cell, actor)) write.fence = block.races.cell_of(actor);
    }
  }
  block.races.fence_proxy(actor.thread);
}

}  // namespace

void fence_proxy_async_shared(CallSite site) {
  fence_proxy(Instruction::fence_proxy_async_shared, site, false);
}

void fence_proxy_async(CallSite site) {
  fence_proxy(Instruction::fence_proxy_async, site, true);
}

TensorMap tensor_map_3d(Device& device, const f16* base, const uint64_t (&extent)[3], const uint64_t (&stride_bytes)[2],
                        const uint32_t (&box)[3]) {
  if (device.failed()) return {};
  const TensorMap map{.base = base,
                      .extent = std::to_array(extent),
                      .stride_bytes = {sizeof(f16), stride_bytes[0], stride_bytes[1]},
                      .box = std::to_array(box)};
  const std::string wrong = what_is_wrong(map);
  if (wrong.empty()) {
    device.note_tensor(base);
    return map;
  }
  device.refuse("bad tensor map: " + wrong);
  return {};
}

void cp_async_bulk_tensor_3d(uint32_t shared_address, const TensorMap& map, int x, int y, int z, uint32_t mbarrier,
                             CallSite call) {
  constexpr Instruction SELF = Instruction::cp_async_bulk_tensor_3d;
  Block& block = *current.block;
  step(SELF, call);
  const SiteId site = block.counting.site_id(SELF, call);
  const uint32_t thread = current.thread();
  if (map.base == nullptr) {
    block.report({ReportKind::bad_launch, site}, [&] {
      return fmt::format("{} by {}: its tensor map was never made by tensor_map_3d", block.wording.at(site),
                         Wording::thread_name(thread));
    });
    block.scheduler.stop();
  }
  if (map.copies.count > 1) {
    block.report({ReportKind::bad_launch, site}, [&] {
      return fmt::format(
          "{} by {}: its tensor map is a copy that the kernel has made; the copy engine takes the parameter "
          "itself, const __grid_constant__ TensorMap, or a reference to it",
          block.wording.at(site), Wording::thread_name(thread));
    });
    block.scheduler.stop();
  }
  if (x % 8 != 0) {
    block.report({ReportKind::global_misaligned, site}, [&] {
      return fmt::format("misaligned bulk copy: {} by {} begins at x = {}; a row must begin at a multiple of 8 halves",
                         block.wording.at(site), Wording::thread_name(thread), x);
    });
    block.scheduler.stop();
  }
  const uint32_t bytes = map.box_bytes();
  block.require_valid(shared_address, bytes, ALIGNMENT, site, thread);
  block.require_valid(mbarrier, 8, site, thread);
  Mbarrier* const barrier = block.mbarriers.find_for_bulk(site, mbarrier);
  if (barrier == nullptr) return;

  TraceEvent* const event = block.counting.tracing ? &block.counting.trace_lane_event(SELF, call) : nullptr;
  if (event != nullptr) {
    event->bytes += bytes;
    block.counting.trace_shared(*event, shared_address, bytes);
  }
  ++block.counting.counters.bulk_copies;
  BulkCopy copy{shared_address, map, {x, y, z}, true, site, thread};
  for_each_row(map, copy.first, [&](uint32_t, const std::byte* address, uint32_t, uint32_t count) {
    const uint32_t row_bytes = count * uint32_t{sizeof(f16)};
    block.counting.counters.gmem_bytes_read += row_bytes;
    if (block.launch.buffers.empty()) return;
    const Device::Buffer* const buffer = block.checked_buffer(SELF, call, address, row_bytes, sizeof(f16), false);
    copy.readable &= buffer != nullptr;
    if (buffer != nullptr && buffer->access == Access::read_write) {
      block.note_global(site, *buffer, address, row_bytes, false);
      block.check_global_writes(site, *buffer, address, row_bytes);
    }
    if (event != nullptr) Counting::trace_global(*event, buffer, address, row_bytes);
  });

  const RaceDetector::Actor actor{current.warp->id, thread, site};
  Hazard hazard;
  if (block.launch.options.check &&
      block.races.issue_bulk(actor, barrier->number, shared_address - SMEM_BASE, bytes, hazard))
    block.report_hazard(actor, hazard);
  std::memset(block.smem.at(shared_address), 0xff, bytes);
  barrier->bulk_copies.push_back(copy);
}

}  // namespace emulated
