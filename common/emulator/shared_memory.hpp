// A block's shared memory: its bytes, and the names of their parts.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace emulator {

constexpr uint32_t SMEM_ALIGNMENT = 1024;           // which kernels may count on, and on nothing more
constexpr uint32_t SMEM_BASE = 3 * SMEM_ALIGNMENT;  // its first address

struct Region {  // of shared memory
  uint32_t offset;
  uint32_t bytes;
  const char* name;
  uint32_t row_bytes;  // 0: it has no rows
};

class SharedMemory {
 public:
  static constexpr size_t MAX_REGIONS = 32;

  explicit SharedMemory(uint32_t bytes);

  uint32_t bytes() const { return bytes_; }
  std::byte* at(uint32_t address) { return memory_.get() + (address - SMEM_BASE); }
  // Inside, and aligned.
  bool is_valid(uint32_t address, uint32_t bytes, uint32_t alignment) const {
    const uint32_t offset = address - SMEM_BASE;  // wraps to a large number below the base
    return offset <= bytes_ && bytes <= bytes_ - offset && (address & (alignment - 1)) == 0;
  }
  void fill_with_nan();

  void name(uint32_t address, uint32_t bytes, const char* name, uint32_t row_bytes);
  uint8_t region_number(uint32_t address) const { return region_of_[(address - SMEM_BASE) / GRANULE]; }
  const Region& region_at(uint32_t address) const { return regions_[region_number(address)]; }
  const std::vector<Region>& regions() const { return regions_; }  // [0] is what has no name

 private:
  static constexpr uint32_t GRANULE = 8;  // of names: an mbarrier

  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{SMEM_ALIGNMENT}); }
  };

  uint32_t bytes_;
  std::vector<Region> regions_;
  std::vector<uint8_t> region_of_;  // per granule
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace emulator
