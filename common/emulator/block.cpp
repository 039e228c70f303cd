#include "common/emulator/block.hpp"

#include <algorithm>

namespace emulator {

Block::Block(const LaunchConfig& launch_config)
    : launch(launch_config),
      scheduler(*this),
      warps(std::make_unique<Warp[]>(launch_config.warps())),
      smem(launch_config.smem_bytes),
      counting(launch_config.number, smem),
      mbarriers(*this),
      wording{*this} {
  for (uint32_t thread = 0; thread < launch.threads(); ++thread) {
    const dim3& shape = launch.shape;
    warps[thread / 32].lanes[thread % 32].thread_index = {thread % shape.x, thread / shape.x % shape.y,
                                                          thread / shape.x / shape.y};
  }
}

void Block::run(uint64_t linear) {
  const dim3& grid = launch.grid;
  linear_index = linear;
  index = {static_cast<uint32_t>(linear % grid.x), static_cast<uint32_t>(linear / grid.x % grid.y),
           static_cast<uint32_t>(linear / grid.x / grid.y)};
  counting.tracing = launch.options.trace && linear == 0;
  mbarriers.clear();
  global_writes.clear();
  smem.fill_with_nan();
  if (launch.options.check) races.start_block(launch.smem_bytes, launch.threads());
  const uint64_t written_before = counting.counters.gmem_bytes_written;
  if (scheduler.run()) mbarriers.report_unawaited_copies();
  ++counting.counters.blocks;
  counting.counters.idle_blocks += counting.counters.gmem_bytes_written == written_before;
  if (launch.options.check) unused_smem_bytes = std::min(unused_smem_bytes, races.unwritten_bytes());
  for (uint32_t warp = 0; warp < launch.warps(); ++warp) counting.count_accesses(warps[warp]);
  current = {};
}

void Block::bad_address(uint32_t address, uint32_t bytes, uint32_t alignment, SiteId site, uint32_t thread) {
  const bool misaligned = (address & (alignment - 1)) != 0;
  report({misaligned ? ReportKind::shared_misaligned : ReportKind::shared_out_of_bounds, site},
         [&] { return wording.bad_address(address, bytes, alignment, site, thread); });
  scheduler.stop();
}

void Block::report_hazard(const RaceDetector::Actor& actor, const Hazard& hazard) {
  const uint32_t address = SMEM_BASE + hazard.offset;
  const bool within_warp = hazard.other != NO_SITE && !is_bulk_copy(hazard.other) && !is_bulk_copy(actor.site) &&
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
