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
  fence_acq_rel_gpu,
  griddepcontrol_launch_dependents,
  griddepcontrol_wait,
  ld_shared_b32,
  ld_shared_v2,
  ld_shared_v4,
  st_shared_b32,
  st_shared_v2,
  st_shared_v4,
  ld_global_f16,
  ld_global_bf16,
  ld_global_f32,
  ld_global_s32,
  ld_global_b32,
  ld_global_v4,
  st_global_f16,
  st_global_bf16,
  st_global_f32,
  st_global_b32,
  st_global_v4,
  red_global_add_f32,
  atom_global_add_u32,
  atom_global_inc_u32,
  red_release_add_u32,
  ld_acquire_wait_u32,
  cp_async_4,
  cp_async_16,
  cp_async_commit,
  cp_async_wait,
  cp_async_bulk,
  cp_async_bulk_tensor_3d,
  cp_async_bulk_tensor_4d,
  cp_async_bulk_tensor_4d_multicast,
  st_async_b32,
  cp_async_bulk_store,
  cp_async_bulk_tensor_store_4d,
  cp_reduce_async_bulk_add_f32,
  cp_async_bulk_commit,
  cp_async_bulk_wait_read,
  cp_async_bulk_wait,
  cluster_sync,
  mbarrier_arrive_remote,
  st_shared_cluster_b32,
  ldmatrix_x4,
  ldmatrix_x2_trans,
  ldmatrix_x4_trans,
  stmatrix_x4,
  stmatrix_x4_trans,
  mma,
  mma_bf16,
  wgmma_ss,
  wgmma_rs,
  wgmma_ss_bf16,
  wgmma_rs_bf16,
  wgmma_ss_e4m3,
  wgmma_rs_e4m3,
  wgmma_ss_s8,
  wgmma_fence,
  wgmma_commit,
  wgmma_wait,
  setmaxnreg_dec,
  setmaxnreg_inc,
  elect,
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
  int sm = 0;  // compute capability times ten that first has it; 0: every GPU
};
const InstructionInfo& info(Instruction instruction);
// Of threads: their loads and stores, reductions and copies.
inline bool is_global(Instruction instruction) {
  return instruction >= Instruction::ld_global_f16 && instruction <= Instruction::cp_async_16;
}
// Reads or writes memory by the copy engine, after the instruction.
inline bool is_bulk_copy(Instruction instruction) {
  return instruction >= Instruction::cp_async_bulk && instruction <= Instruction::cp_reduce_async_bulk_add_f32;
}
// Those that read shared memory.
inline bool is_bulk_store(Instruction instruction) {
  return instruction >= Instruction::cp_async_bulk_store && is_bulk_copy(instruction);
}
inline bool is_wgmma(Instruction instruction) {
  return instruction >= Instruction::wgmma_ss && instruction <= Instruction::wgmma_ss_s8;
}

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
