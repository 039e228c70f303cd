#include "common/emulator/site.hpp"

#include <algorithm>
#include <iterator>

namespace emulator {

// Source of the compute capabilities: PTX ISA, "Target ISA Notes" of each instruction. Our mbarrier.try_wait is a loop of
// mbarrier.test_wait before sm_90.
const InstructionInfo& info(Instruction instruction) {
  static constexpr InstructionInfo TABLE[] = {
      {"__syncthreads", 0, false},
      {"__syncwarp", 0, false},
      {"bar.sync", 0, false},
      {"bar.arrive", 0, false},
      {"mbarrier.init", 0, false, 80},
      {"mbarrier.inval", 0, false, 80},
      {"mbarrier.arrive", 0, false, 80},
      {"cp.async.mbarrier.arrive.noinc", 0, false, 80},
      {"mbarrier.arrive.expect_tx", 0, false, 90},
      {"mbarrier.try_wait.parity", 0, false, 80},
      {"fence.mbarrier_init", 0, false, 90},
      {"fence.proxy.async.shared::cta", 0, false, 90},
      {"fence.proxy.async", 0, false, 90},
      {"fence.acq_rel.gpu", 0, false, 70},
      {"griddepcontrol.launch_dependents", 0, false, 90},
      {"griddepcontrol.wait", 0, false, 90},
      {"ld.shared.b32", 4, true},
      {"ld.shared.v2.b32", 8, true},
      {"ld.shared.v4.b32", 16, true},
      {"st.shared.b32", 4, false},
      {"st.shared.v2.b32", 8, false},
      {"st.shared.v4.b32", 16, false},
      {"ld.global.b16", 2, true},
      {"ld.global.b16", 2, true},
      {"ld.global.f32", 4, true},
      {"ld.global.s32", 4, true},
      {"ld.global.b32", 4, true},
      {"ld.global.v4.b32", 16, true},
      {"st.global.b16", 2, false},
      {"st.global.b16", 2, false},
      {"st.global.f32", 4, false},
      {"st.global.b32", 4, false},
      {"st.global.v4.b32", 16, false},
      {"red.global.add.f32", 4, false},
      {"atom.global.add.u32", 4, false},
      {"atom.global.inc.u32", 4, false},
      {"red.release.gpu.global.add.u32", 4, false, 70},
      {"ld.acquire.gpu.global.u32", 4, false, 70},
      {"cp.async.4", 4, false, 80},
      {"cp.async.16", 16, false, 80},
      {"cp.async.commit_group", 0, false, 80},
      {"cp.async.wait_group", 0, false, 80},
      {"cp.async.bulk", 0, false, 90},
      {"cp.async.bulk.tensor.3d", 0, false, 90},
      {"cp.async.bulk.tensor.4d", 0, false, 90},
      {"cp.async.bulk.tensor.4d.multicast", 0, false, 90},
      {"st.async.b32", 0, false, 90},
      {"cp.async.bulk.store", 0, false, 90},
      {"cp.async.bulk.tensor.4d.store", 0, false, 90},
      {"cp.reduce.async.bulk.add.f32", 0, false, 90},
      {"cp.async.bulk.commit_group", 0, false, 90},
      {"cp.async.bulk.wait_group.read", 0, false, 90},
      {"cp.async.bulk.wait_group", 0, false, 90},
      {"barrier.cluster", 0, false, 90},
      {"mbarrier.arrive.shared::cluster", 0, false, 90},
      {"st.shared::cluster.b32", 0, false, 90},
      {"ldmatrix.x4", 16, true, 75},
      {"ldmatrix.x2.trans", 16, true, 75},
      {"ldmatrix.x4.trans", 16, true, 75},
      {"stmatrix.x4", 16, false, 90},
      {"stmatrix.x4.trans", 16, false, 90},
      {"mma.m16n8k16", 0, false, 80},
      {"mma.m16n8k16.bf16", 0, false, 80},
      {"wgmma.ss", 0, false, 90},
      {"wgmma.rs", 0, false, 90},
      {"wgmma.ss.bf16", 0, false, 90},
      {"wgmma.rs.bf16", 0, false, 90},
      {"wgmma.ss.e4m3", 0, false, 90},
      {"wgmma.rs.e4m3", 0, false, 90},
      {"wgmma.ss.s8", 0, false, 90},
      {"wgmma.fence", 0, false, 90},
      {"wgmma.commit_group", 0, false, 90},
      {"wgmma.wait_group", 0, false, 90},
      {"setmaxnreg.dec", 0, false, 90},
      {"setmaxnreg.inc", 0, false, 90},
      {"elect.sync", 0, false, 90},
      {"wmma.load.a", 0, true},
      {"wmma.load.b.row", 0, true},
      {"wmma.load.b.col", 0, true},
      {"wmma.load.c", 0, true},
      {"wmma.store.d", 0, false},
      {"wmma.mma", 0, false},
      {"vote.any", 0, false},
      {"shfl.bfly", 0, false},
  };
  static_assert(std::size(TABLE) == static_cast<size_t>(Instruction::shuffle) + 1);
  return TABLE[static_cast<size_t>(instruction)];
}

SourceLine source_line(const CallSite& call) {
  return {call.file, static_cast<int>(call.line)};
}

SiteId SiteTable::find_or_add(const Site& site) {
  const auto found = std::find(sites_.begin(), sites_.end(), site);
  if (found == sites_.end() && sites_.size() < NO_SITE) {
    sites_.push_back(site);
    return static_cast<SiteId>(sites_.size() - 1);
  }
  return static_cast<SiteId>(std::min<ptrdiff_t>(found - sites_.begin(), NO_SITE - 1));
}

}  // namespace emulator
