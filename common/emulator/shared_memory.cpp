#include "common/emulator/shared_memory.hpp"

#include <algorithm>
#include <cstring>

namespace emulator {

SharedMemory::SharedMemory(uint32_t bytes)
    : bytes_(bytes),
      regions_{{0, bytes, "shared", 0}},
      region_of_((bytes + GRANULE - 1) / GRANULE),
      memory_(static_cast<std::byte*>(::operator new (std::max(bytes, GRANULE), std::align_val_t{SMEM_ALIGNMENT}))) {}

void SharedMemory::fill_with_nan() {
  std::memset(memory_.get(), 0xff, bytes_);  // as f16 and as f32
}

void SharedMemory::name(uint32_t address, uint32_t bytes, const char* name, uint32_t row_bytes) {
  const uint32_t offset = address - SMEM_BASE;
  if (offset >= bytes_) return;  // an access there will be reported
  const auto known = std::find_if(regions_.begin() + 1, regions_.end(), [&](const Region& region) {
    return region.offset == offset && region.bytes == bytes && std::strcmp(region.name, name) == 0;
  });
  const auto number = static_cast<uint8_t>(known - regions_.begin());
  if (known == regions_.end()) {
    if (regions_.size() == MAX_REGIONS) return;
    regions_.push_back({offset, bytes, name, row_bytes});
  }
  const size_t first = offset / GRANULE;
  if (region_of_[first] == number) return;
  const size_t last = std::min<size_t>((size_t{offset} + bytes + GRANULE - 1) / GRANULE, region_of_.size());
  std::fill(region_of_.begin() + static_cast<ptrdiff_t>(first), region_of_.begin() + static_cast<ptrdiff_t>(last),
            number);
}

}  // namespace emulator
