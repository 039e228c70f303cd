#include "common/emulator/block.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <bit>
#include <iterator>
#include <random>

namespace emulator {

Cluster::Cluster(const LaunchConfig& launch_config) : launch(launch_config) {
  for (uint32_t rank = 0; rank < launch.cluster; ++rank) blocks.push_back(std::make_unique<Block>(*this, rank));
}

void Cluster::run(uint64_t first_block) {
  if (launch.options.check) races.start(launch.cluster, launch.smem_bytes, launch.threads());
  at_barrier = 0;
  word_waits.clear();
  live = launch.cluster * launch.threads();
  for (const auto& block : blocks) block->begin(first_block + block->rank);
  if (launch.options.schedule != 0) draw_order(first_block);
  Warp& first = order.empty() ? blocks[0]->warps[0] : *next_warp(*blocks[0]);
  const uint32_t lane = first.next_lane();
  current = {.block = first.block, .warp = &first, .lane = lane, .suspended = &host};
  fiber last = std::move(first.fibers[lane]).resume();
  *current.suspended = std::move(last);
  for (const auto& block : blocks) {
    current.block = block.get();
    block->end(!failed && !stopped && !left && !launch.options.begun);
  }
  current = {};
}

// Who stands before others in the order goes first, for as long as it can; the copies that somebody waits for stand in it
// too. Lanes that lag go when nobody else can. Who can come too late for something, or too early, does so here.
// Source: Burckhardt, Kothari, Musuvathi, Nagarakatte, "A Randomized Scheduler with Probabilistic Guarantees of Finding
// Bugs", 2010: random priorities show most faults of this kind in few runs.
void Cluster::draw_order(uint64_t first_block) {
  std::mt19937_64 random(launch.options.schedule * 0x9e3779b97f4a7c15 + first_block);
  order.assign(1, nullptr);
  for (const auto& block : blocks) {
    for (uint32_t i = 0; i < launch.warps(); ++i) {
      Warp& warp = block->warps[i];
      const uint32_t one = 1u << random() % 32;
      const uint32_t lanes[] = {0, 1, one,
                                ~one};  // lane 0 is the one that is chosen most often, for what one lane does
      warp.lagging = lanes[random() % std::size(lanes)];
      if ((warp.live & ~warp.lagging) == 0) warp.lagging = 0;
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(random() % (order.size() + 1)), &warp);
    }
  }
}

bool Cluster::land_awaited_copies() {
  return std::ranges::any_of(blocks, [](const auto& block) { return block->mbarriers.land_awaited_copies(); });
}

void Cluster::wake_waiting() {
  std::erase_if(word_waits, [&](const WordWait& wait) {
    const auto known = launch.turns.acquire(wait.word, wait.value);
    if (!known) return false;
    Block& block = *wait.warp->block;
    const RaceDetector::Actor actor{wait.warp->id, wait.warp->id * 32 + wait.lane, wait.site};
    if (launch.options.check) block.acquire(actor, *known);
    wait.warp->ready |= 1u << wait.lane;
    return true;
  });
}

Warp* Cluster::next_warp(const Block& after) {
  for (;;) {
    const uint64_t seen = word_waits.empty() ? 0 : launch.turns.changes();
    wake_waiting();
    if (Warp* const warp = next_own_warp(after)) return warp;
    if (word_waits.empty() || !launch.turns.wait_for_change(seen)) return nullptr;
  }
}

Warp* Cluster::next_own_warp(const Block& after) {
  if (order.empty()) {
    do {
      for (uint32_t i = 0; i < launch.cluster; ++i) {
        if (Warp* const warp = blocks[(after.rank + i) % launch.cluster]->scheduler.next_able_warp()) return warp;
      }
    } while (land_awaited_copies());
    return nullptr;
  }
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] != nullptr && order[i]->able() != 0) return order[i];
    if (order[i] == nullptr && land_awaited_copies()) i = static_cast<size_t>(-1);  // somebody can go on
  }
  const auto late = std::ranges::find_if(order, [](const Warp* warp) { return warp != nullptr && warp->ready != 0; });
  return late == order.end() ? nullptr : *late;
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
      if (const uint32_t apart = warp.lanes_apart(); apart != 0 && apart != warp.live) block->report_apart(warp, apart);
      if (warp.live != 0) block->require_one_call(warp);
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
  order.clear();
  sums.clear();
  writes.clear();
  fenced.clear();
  launch_waits.clear();
  bulk_reads = 0;
  smem.fill_with_nan();
  written_before = counting.counters.gmem_bytes_written + counting.counters.gmem_bytes_reduced;
  products_before = counting.counters.mma + counting.counters.wgmma;
  scheduler.start();
}

void Block::end(bool is_over) {
  if (is_over) mbarriers.report_unawaited_copies();
  ++counting.counters.blocks;
  counting.counters.warps += launch.warps();
  const uint64_t written = counting.counters.gmem_bytes_written + counting.counters.gmem_bytes_reduced;
  counting.counters.idle_blocks += written == written_before;
  products = counting.counters.mma + counting.counters.wgmma - products_before;
  most_products = std::max(most_products, products);
  counting.counters.idle_registers += scheduler.free_registers;
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

void Block::report_apart(const Warp& warp, uint32_t lanes) {
  const auto first = static_cast<uint32_t>(std::countr_zero(warp.live));
  const SiteId site = counting.site_id(Instruction::cluster_sync, warp.lanes[first].waits_at);
  report({ReportKind::barrier_misuse, site}, [&] {
    return fmt::format(
        "{} by warp {}: it counts whole warps, and {} of its lanes have waited at an mbarrier or for a copy since all "
        "were together; a __syncwarp before it is missing",
        wording.at(site), warp.id, std::popcount(lanes));
  });
}

void Block::require_one_call(const Warp& warp) {
  const auto first = static_cast<uint32_t>(std::countr_zero(warp.live));
  const CallSite& call = warp.lanes[first].waits_at;
  for (uint32_t lane = first + 1; lane < 32; ++lane) {
    if ((warp.live >> lane & 1) == 0 || warp.lanes[lane].waits_at == call) continue;
    const SiteId here = counting.site_id(Instruction::cluster_sync, warp.lanes[lane].waits_at);
    const SiteId there = counting.site_id(Instruction::cluster_sync, call);
    report({ReportKind::divergent_collective, here, there}, [&] {
      return fmt::format("{} has reached {} while thread {} of its warp waits in {}; whole warps come to one of them",
                         Wording::thread_name(warp.id * 32 + lane), wording.at(here), warp.id * 32 + first,
                         wording.at(there));
    });
    return;
  }
}

void Block::report_at(ReportKind kind, std::vector<SourceLine> where, std::string message, std::string buffer) {
  LoggedReport& added = log.reports().emplace_back();
  added.report = {kind, std::move(message), std::move(where), std::move(buffer)};
  added.block = linear_index;
}

}  // namespace emulator
