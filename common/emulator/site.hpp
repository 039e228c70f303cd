// Instructions and the places they were issued from, as small numbers that shadow memory and logs can hold.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>
#include "common/emulator/call_site.hpp"
#include "common/emulator/emulator.hpp"

namespace emulator {

enum class Instruction : uint8_t {
  syncthreads,
  syncwarp,
  barrier_sync,
  barrier_arrive,
  mbarrier_init,
  mbarrier_inval,
  mbarrier_arrive,
  mbarrier_arrive_noinc,
  mbarrier_arrive_expect_tx,
  mbarrier_wait,
  fence_mbarrier_init,
  fence_proxy_async_shared,
  fence_proxy_async,
  ld_shared_b32,
  ld_shared_v2,
  ld_shared_v4,
  st_shared_b32,
  st_shared_v2,
  st_shared_v4,
  ld_global_f16,
  ld_global_f32,
  ld_global_b32,
  ld_global_v4,
  st_global_f16,
  st_global_f32,
  st_global_b32,
  st_global_v4,
  cp_async_16,
  cp_async_commit,
  cp_async_wait,
  cp_async_bulk_tensor_3d,
  ldmatrix_x4,
  ldmatrix_x2_trans,
  ldmatrix_x4_trans,
  mma,
  wmma_load_a,
  wmma_load_b_row,
  wmma_load_b_col,
  wmma_load_c,
  wmma_store_d,
  wmma_mma,
  vote,
  shuffle,
};

struct InstructionInfo {
  std::string_view name;
  uint8_t bytes;  // per thread; per row for ldmatrix; 0 for wmma, which counts by itself
  bool is_load;
};
const InstructionInfo& info(Instruction instruction);

struct Site {
  CallSite call;
  Instruction instruction = Instruction::syncthreads;
  bool operator==(const Site&) const = default;
};
SourceLine source_line(const CallSite& call);

using SiteId = uint16_t;
constexpr SiteId NO_SITE = 0xffff;

// Numbers sites in the order of their first use.
class SiteTable {
 public:
  SiteId id(Instruction instruction, const CallSite& call) {
    Recent& recent = recent_[(call.line * 8 + call.column) % recent_.size()];
    if (recent.site.call == call && recent.site.instruction == instruction) return recent.id;
    return recent.id = find_or_add(recent.site = {call, instruction});
  }
  const Site& operator[](SiteId id) const { return sites_[id]; }
  size_t size() const { return sites_.size(); }

 private:
  struct Recent {
    Site site;
    SiteId id = NO_SITE;
  };
  SiteId find_or_add(const Site& site);

  std::vector<Site> sites_;
  std::array<Recent, 256> recent_;
};

}  // namespace emulator
