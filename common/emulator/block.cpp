#include "common/emulator/block.hpp"

#include <algorithm>

namespace emulator {

Cluster::Cluster(const LaunchConfig& launch_config) : launch(launch_config) {
  for (uint32_t rank = 0; rank < launch.cluster; ++rank) blocks.push_back(std::make_unique<Block>(*this, rank));
}

void Cluster::run(uint64_t first_block) {
  if (launch.options.check) races.start(launch.cluster, launch.smem_bytes, launch.threads());
  at_barrier = 0;
  live = launch.cluster * launch.threads();
  for (const auto& block : blocks) block->begin(first_block + block->rank);
  Warp& first = blocks[0]->warps[0];
  current = {.block = blocks[0].get(), .warp = &first, .lane = 0, .suspended = &host};
  fiber last = std::move(first.fibers[0]).resume();
  *current.suspended = std::move(last);
  for (const auto& block : blocks) {
    current.block = block.get();
    block->end(!failed && !stopped);
  }
  current = {};
}

Warp* Cluster::next_ready_warp(const Block& after) {
  for (bool landed = false;; landed = true) {
    for (uint32_t i = 0; i < launch.cluster; ++i) {
      if (Warp* const warp = blocks[(after.rank + i) % launch.cluster]->scheduler.next_ready_warp()) return warp;
    }
    if (landed) return nullptr;
    bool any = false;
    for (const auto& block : blocks) any = any || block->mbarriers.land_awaited_copies();
    if (!any) return nullptr;
  }
}

void Cluster::complete_barrier() {
  if (at_barrier == 0 || at_barrier < live) return;
  at_barrier = 0;
  if (launch.options.check) blocks[0]->races.sync_cluster();
  for (const auto& block : blocks) {
    if (block->scheduler.live == 0) continue;
    ++block->counting.counters.barriers;
    for (uint32_t i = 0; i < launch.warps(); ++i) {
      Warp& warp = block->warps[i];
      warp.ready = warp.live;
      block->counting.count_accesses(warp);
    }
  }
}

Block::Block(Cluster& owner, uint32_t rank_in_cluster)
    : cluster(owner),
      rank(rank_in_cluster),
      launch(owner.launch),
      scheduler(*this),
      warps(std::make_unique<Warp[]>(launch.warps())),
      warpgroups(launch.warps() / 4),
      smem(launch.smem_bytes),
      counting(launch.number, smem, owner.sites),
      races(owner.races, rank, launch.cluster, launch.smem_bytes, launch.threads()),
      mbarriers(*this),
      wording{*this} {
  for (uint32_t thread = 0; thread < launch.threads(); ++thread) {
    const dim3& shape = launch.shape;
    warps[thread / 32].block = this;
    warps[thread / 32].lanes[thread % 32].thread_index = {thread % shape.x, thread / shape.x % shape.y,
                                                          thread / shape.x / shape.y};
  }
}

void Block::begin(uint64_t linear) {
  const dim3& grid = launch.grid;
  linear_index = linear;
  index = {static_cast<uint32_t>(linear % grid.x), static_cast<uint32_t>(linear / grid.x % grid.y),
           static_cast<uint32_t>(linear / grid.x / grid.y)};
  counting.tracing = launch.options.trace && linear == 0;
  mbarriers.clear();
  global_writes.clear();
  bulk_reads = 0;
  smem.fill_with_nan();
  written_before = counting.counters.gmem_bytes_written;
  scheduler.start();
}

void Block::end(bool is_over) {
  if (is_over) {
    mbarriers.report_unawaited_copies();
  } else {
    scheduler.abandon_all();
  }
  ++counting.counters.blocks;
  counting.counters.idle_blocks += counting.counters.gmem_bytes_written == written_before;
  if (launch.options.check) unused_smem_bytes = std::min(unused_smem_bytes, races.unwritten_bytes(launch.smem_bytes));
  for (uint32_t warp = 0; warp < launch.warps(); ++warp) counting.count_accesses(warps[warp]);
}

void Block::bad_address(uint32_t address, uint32_t bytes, uint32_t alignment, SiteId site, uint32_t thread) {
  const bool misaligned = (address & (alignment - 1)) != 0;
  report({misaligned ? ReportKind::shared_misaligned : ReportKind::shared_out_of_bounds, site},
         [&] { return wording.bad_address(address, bytes, alignment, site, thread); });
  scheduler.stop();
}

void Block::report_hazard(const RaceDetector::Actor& actor, const Hazard& hazard) {
  const uint32_t address = SMEM_BASE + hazard.offset;
  const bool within_warp = hazard.other != NO_SITE && hazard.other_rank < 0 && !is_bulk_copy(hazard.other) &&
                           !is_bulk_copy(actor.site) && !is_wgmma(hazard.other) && !is_wgmma(actor.site) &&
                           static_cast<uint32_t>(hazard.other_thread) / 32 == actor.warp;
  report({hazard.kind, actor.site, hazard.other, smem.region_at(address).name, within_warp},
         [&] { return wording.hazard(actor, hazard); });
}

void Block::report_at(ReportKind kind, std::vector<SourceLine> where, std::string message, std::string buffer) {
  LoggedReport& added = log.reports().emplace_back();
  added.report = {kind, std::move(message), std::move(where), std::move(buffer)};
  added.block = linear_index;
}

}  // namespace emulator
