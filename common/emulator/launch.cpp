// Starting a kernel: blocks on OS threads, and what they have counted and reported into the Device.
#include <fmt/format.h>
#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <queue>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>
#include "common/emulator/block.hpp"
#include "common/emulator/signals.hpp"

namespace emulator {
namespace {

constexpr uint32_t MAX_SMEM = max_shared_memory(90);  // per block

// Empty if the hardware would take it.
std::string what_is_wrong(const LaunchConfig& config) {
  const auto& [x, y, z] = config.shape;
  const dim3& grid = config.grid;
  if (x > 1024 || y > 1024 || z > 64 || config.threads() == 0 || config.threads() > 1024)
    return fmt::format("a block of {} x {} x {} threads; it must have 1 to 1024", x, y, z);
  if (config.blocks() == 0) return fmt::format("an empty grid of {} x {} x {} blocks", grid.x, grid.y, grid.z);
  if (grid.x > 0x7fffffff || grid.y > 0xffff || grid.z > 0xffff)
    return fmt::format("a grid of {} x {} x {} blocks; the limits are 2147483647, 65535, 65535", grid.x, grid.y,
                       grid.z);
  const uint32_t limit = config.options.smem_limit != 0 ? config.options.smem_limit : MAX_SMEM;
  if (config.smem_bytes > limit)
    return fmt::format("{} bytes of shared memory; a block can have {}", config.smem_bytes, limit);
  if (config.cluster == 0 || config.cluster > 8 || grid.x % config.cluster != 0)
    return fmt::format("clusters of {} blocks in a grid of {} x {} x {}; they have 1 to 8 and divide x", config.cluster,
                       grid.x, grid.y, grid.z);
  if (config.cluster > 1 && config.cluster * config.warps() > MAX_WARPS)
    return fmt::format("clusters of {} blocks of {} warps; the emulator knows clusters of up to {} warps",
                       config.cluster, config.warps(), MAX_WARPS);
  return "";
}

void add(Counters& sum, const Counters& part) {
  for (const Count& count : COUNTS) sum.*count.value += part.*count.value;
  for (const auto member : {&Counters::wgmma_flops, &Counters::cp_async, &Counters::bulk_bytes, &Counters::blocks})
    sum.*member += part.*member;
}

bool same_fault(const Report& a, const Report& b) {
  return a.kind == b.kind && a.where == b.where && a.buffer == b.buffer;
}

}  // namespace

class Launch {
 public:
  Launch(Device& device, const LaunchConfig& config) : device_(device), config_(config) {
    const Options& options = config.options;
    const uint64_t all = config.blocks() / std::max(1u, config.cluster), ends = options.ends;
    const uint64_t slices = options.in_runs ? options.slices : std::min(options.slices, all);
    count_ = all;
    std::set<uint64_t> chosen;
    const auto choose = [&](uint64_t begin, uint64_t end, uint64_t step = 1) {
      for (uint64_t i = begin; i < end; i += step) chosen.insert(i);
    };
    if (options.some > 0 && options.some < all) {
      const uint64_t last = all - options.some;
      const uint64_t first = options.between == Options::LAST ? last : options.between % (last + 1);
      choose(first, first + options.some);
    } else if (ends > 0 && 2 * ends < all) {
      const uint64_t begin = options.from > 0 ? all / 2 : 0;
      choose(begin, begin + ends);
      choose(all - ends, all);
      const uint64_t least = begin > 0 ? 0 : ends, behind = (begin > 0 ? begin : all - ends) + 1;
      if (options.between > 0 && least + ends < behind) {
        const uint64_t first = least + options.between % (behind - least - ends);
        choose(first, first + ends);
      }
    } else if (ends == 0 && slices >= 2 && all > options.whole_up_to) {
      const uint64_t from = options.from % slices, lines = uint64_t(config.grid.y) * config.grid.z;
      const uint64_t line = options.in_runs && lines > 1 ? all / lines : 1;
      for (const uint64_t number : {from, std::max(from, options.between % slices), slices - 1}) {
        const uint64_t end = ((number + 1) * all + slices - 1) / slices;
        choose(number * all / slices / line * line, (end + line - 1) / line * line);
        if (options.interleaved == 0 || slices % options.interleaved != 0) continue;
        const uint64_t part = all / options.interleaved, in_part = slices / options.interleaved;
        const uint64_t begin = number / in_part * part;
        choose(begin + number % in_part, begin + part, in_part);
      }
    }
    if (options.cluster_order != 0 && chosen.empty()) choose(0, all);
    chosen_.assign(chosen.begin(), chosen.end());
    if (!chosen_.empty()) {
      count_ = chosen_.size();
      config_.first_block = chosen_.front() * config_.cluster;
    }
    std::mt19937_64 random(options.cluster_order);
    for (uint64_t i = options.cluster_order != 0 ? count_ : 0; i > 1; --i)
      std::swap(chosen_[i - 1], chosen_[random() % i]);
  }

  void run() {
    if (device_.failed_ || device_.stopped_) return;
    if (const std::string wrong = what_is_wrong(config_); !wrong.empty()) {
      device_.refuse("bad launch: " + wrong);
      return;
    }
    if (config_.options.starts_only) {
      device_.counters_.blocks += config_.blocks();
      return;
    }
    const uint64_t wanted = config_.options.threads > 0 ? static_cast<uint64_t>(config_.options.threads)
                                                        : std::max(1u, std::thread::hardware_concurrency());
    const SignalHandlers handlers;
    const uint64_t workers = std::min(wanted, count_);
    config_.turns.start(workers);
    std::vector<std::future<void>> others;  // libc++ has no jthread before 20
    for (uint64_t i = 1; i < workers; ++i) others.push_back(std::async(std::launch::async, [this] { work(); }));
    work();
    others.clear();
    if (first_failed_ == UINT64_MAX && !device_.stopped_) report_races_between_blocks();
    merge_reports();
    Counters& sum = device_.counters_;
    sum.smem_bytes = std::max(sum.smem_bytes, config_.smem_bytes);
    sum.products_of_busiest_block = std::max(sum.products_of_busiest_block, most_products_);
    sum.products_of_busiest_sm += products_of_busiest_sm();
    if (config_.options.check) sum.unused_smem_bytes = std::max<uint64_t>(sum.unused_smem_bytes, unused_smem_bytes_);
    std::sort(device_.counters_.sites.begin(), device_.counters_.sites.end(), by_place);
  }

 private:
  using Products = std::pair<uint64_t, uint64_t>;  // a cluster's first block, and those of the one with most of them

  // As Counts says it.
  uint64_t products_of_busiest_sm() {
    std::sort(products_.begin(), products_.end());
    const uint64_t places = std::max(1u, config_.options.multiprocessors / config_.cluster);
    std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> busy_until;
    uint64_t most = 0;
    for (const auto& [number, products] : products_) {
      uint64_t begin = 0;
      if (busy_until.size() == places) begin = busy_until.top(), busy_until.pop();
      busy_until.push(begin + products);
      most = std::max(most, begin + products);
    }
    return most;
  }

  static bool by_place(const SiteCounts& a, const SiteCounts& b) { return place(a) < place(b); }
  static std::tuple<const std::string&, int, const std::string&, const std::string&> place(const SiteCounts& site) {
    return {site.file, site.line, site.instruction, site.buffer};
  }

  // The first block of a cluster that is run, in ascending order.
  uint64_t first_block(uint64_t number) const { return (chosen_.empty() ? number : chosen_[number]) * config_.cluster; }

  bool is_drawn() const { return config_.options.cluster_order != 0; }

  // Clusters are claimed in ascending order, and those below a failed one are finished: the reports do not depend on
  // the number of workers, unless clusters wait for each other. In a drawn order all end with the first that fails.
  void work() {
    const SignalStack stack(config_.options);
    Cluster cluster(config_);
    std::vector<Products> products;
    for (;;) {
      const uint64_t claimed = next_cluster_++;
      if (claimed >= count_) break;
      const uint64_t first = first_block(claimed);
      const uint64_t next = first + config_.cluster - 1;  // its last block
      if (is_drawn() ? first_failed_ != UINT64_MAX : next > first_failed_) break;
      if (config_.options.stop != nullptr && *config_.options.stop) {
        cluster.stopped = true;
        break;
      }
      cluster.run(first);
      uint64_t most = 0;
      for (const auto& block : cluster.blocks) most = std::max(most, block->products);
      if (most > 0) products.push_back({first, most});
      if (cluster.stopped || cluster.left) break;
      if (cluster.failed) {
        for (uint64_t known = first_failed_; next < known && !first_failed_.compare_exchange_weak(known, next);) {
        }
        break;
      }
    }
    config_.turns.finish(cluster.failed);
    const std::lock_guard guard(mutex_);
    device_.stopped_ |= cluster.stopped;
    for (const auto& block : cluster.blocks) merge(*block);
    products_.insert(products_.end(), products.begin(), products.end());
  }

  void merge(Block& block) {
    merge_counts(block);
    most_products_ = std::max(most_products_, block.most_products);
    unused_smem_bytes_ = std::min(unused_smem_bytes_, block.unused_smem_bytes);
    for (LoggedReport& report : block.log.reports()) reports_.push_back(std::move(report));
    report_newer_instructions(block);
    device_.trace_.insert(device_.trace_.end(), block.counting.trace.begin(), block.counting.trace.end());
    if (!block.counting.trace.empty()) {
      for (size_t i = 1; i < block.smem.regions().size(); ++i) {
        const Region& region = block.smem.regions()[i];
        device_.trace_regions_.push_back({config_.number, region.name, region.offset, region.bytes});
      }
    }
  }

  void report_newer_instructions(const Block& block) {
    const int has = config_.options.sm;
    for (SiteId id = 0; has > 0 && id < block.counting.sites.size(); ++id) {
      const Site& site = block.counting.sites[id];
      const InstructionInfo& instruction = info(site.instruction);
      if (instruction.sm <= has) continue;
      LoggedReport& added = reports_.emplace_back();
      added.report.kind = ReportKind::newer_instruction;
      added.report.where = {source_line(site.call)};
      added.report.message = fmt::format("{} at {} needs sm_{}, and sm_{} is to suffice", instruction.name,
                                         to_string(added.report.where[0]), instruction.sm, has);
    }
  }

  void merge_counts(const Block& block) {
    Counters& sum = device_.counters_;
    add(sum, block.counting.counters);
    for (size_t i = 0; i < block.counting.traffic.size(); ++i) {
      const SharedTraffic& part = block.counting.traffic[i];
      if (part.requests == 0) continue;
      const Site& site = block.counting.sites[static_cast<SiteId>(i / SharedMemory::MAX_REGIONS)];
      SiteCounts key{.file = site.call.file,
                     .line = static_cast<int>(site.call.line),
                     .instruction = std::string(info(site.instruction).name),
                     .buffer = block.smem.regions()[i % SharedMemory::MAX_REGIONS].name};
      const auto known = std::find_if(sum.sites.begin(), sum.sites.end(),
                                      [&](const SiteCounts& other) { return place(other) == place(key); });
      SiteCounts& entry = known == sum.sites.end() ? sum.sites.emplace_back(std::move(key)) : *known;
      entry.requests += part.requests;
      entry.wavefronts += part.taken;
      entry.ideal += part.ideal;
      sum.smem_wavefronts += part.taken;
      sum.smem_wavefronts_ideal += part.ideal;
      sum.conflicts += part.taken - part.ideal;
    }
  }

  void report_races_between_blocks() {
    const auto name_of = [&](uint64_t block) { return Wording::block_name(config_.grid, block); };
    for (const GlobalShadow::Clash& clash : config_.shadow.clashes()) {
      const SourceLine first = source_line(clash.first.site.call), second = source_line(clash.second.site.call);
      LoggedReport& added = reports_.emplace_back();
      added.block = std::min(clash.first.block, clash.second.block);
      added.report.kind = ReportKind::race_between_blocks;
      added.report.message = fmt::format(
          "race between blocks, which have no order in a launch: {} at {} by {} {} {}+{}, {} by {} at {} by {}",
          info(clash.second.site.instruction).name, to_string(second), name_of(clash.second.block),
          clash.second_writes ? "writes" : "reads", clash.buffer->name, clash.offset,
          clash.first_reduces ? "added to" : "written", info(clash.first.site.instruction).name, to_string(first),
          name_of(clash.first.block));
      added.report.where = {second, first};
      added.report.buffer = clash.buffer->name;
      added.report.times = clash.times;
    }
  }

  void merge_reports() {
    // Of the same fault, the one between warps is told, then that of the first block.
    std::stable_sort(reports_.begin(), reports_.end(), [](const LoggedReport& a, const LoggedReport& b) {
      return std::pair(rank(a.report), a.block) < std::pair(rank(b.report), b.block);
    });
    for (LoggedReport& entry : reports_) {
      if (!is_drawn() && entry.block > first_failed_) continue;  // whether it ran is a matter of luck
      if (is_fatal(entry.report.kind)) device_.failed_ = true;
      keep(std::move(entry.report));
    }
  }

  void keep(Report&& report) {
    auto& kept = device_.reports_;
    const auto known =
        std::find_if(kept.begin(), kept.end(), [&](const Report& other) { return same_fault(other, report); });
    device_.repeats_ += report.times;
    if (known != kept.end()) {
      known->times += report.times;
    } else if (static_cast<int>(kept.size()) < device_.options_.max_reports || is_fatal(report.kind)) {
      --device_.repeats_;
      kept.push_back(std::move(report));
    }
  }

  Device& device_;
  LaunchConfig config_;
  uint64_t count_ = 0;            // of the clusters to run
  std::vector<uint64_t> chosen_;  // which ones; empty: the first ones
  std::atomic<uint64_t> next_cluster_ = 0;
  std::atomic<uint64_t> first_failed_ = UINT64_MAX;
  uint32_t unused_smem_bytes_ = UINT32_MAX;
  uint64_t most_products_ = 0;
  std::vector<Products> products_;
  std::mutex mutex_;
  std::vector<LoggedReport> reports_;

 public:
  static int number_on(Device& device) { return device.launches_++; }
  static std::shared_ptr<GlobalShadow>& last_on(Device& device) { return device.last_launch_; }
  static void keep_last(Device& device) {
    if (device.last_launch_ != nullptr && device.last_launch_->is_small())
      device.earlier_launches_.push_back(device.last_launch_);
  }
  static bool is_first_on(Device& device, const void* kernel) {
    auto& known = device.kernels_;
    if (std::find(known.begin(), known.end(), kernel) != known.end()) return false;
    known.push_back(kernel);
    return true;
  }
};

void Device::register_buffer(const void* begin, size_t bytes, std::string name, Access access, const void* shadow) {
  const auto* const first = static_cast<const std::byte*>(begin);
  const auto same = std::find_if(buffers_.begin(), buffers_.end(), [&](const Buffer& b) { return b.begin == first; });
  last_launch_.reset();  // it knows where buffers stood, and so do those before
  earlier_launches_.clear();
  Buffer& buffer = same == buffers_.end() ? buffers_.emplace_back() : *same;
  buffer = {first, bytes, std::move(name), access, shadow == nullptr ? first : static_cast<const std::byte*>(shadow)};
}

std::optional<SourceLine> Device::writer_of(std::string_view buffer, uint64_t offset) const {
  const auto known = std::ranges::find(buffers_, buffer, &Buffer::name);
  if (known == buffers_.end() || last_launch_ == nullptr) return std::nullopt;
  std::optional<Site> writer = last_launch_->writer(*known, offset);
  for (auto launch = earlier_launches_.rbegin(); !writer && launch != earlier_launches_.rend(); ++launch)
    writer = (*launch)->writer(*known, offset);
  if (!writer) return std::nullopt;
  return source_line(writer->call);
}

void Device::refuse(std::string why) {
  reports_.push_back({ReportKind::bad_launch, std::move(why), {}, ""});
  failed_ = true;
}

void Device::reset() {
  counters_ = {};
  reports_.clear();
  trace_.clear();
  trace_regions_.clear();
  repeats_ = 0;
  launches_ = 0;
  kernels_.clear();
  failed_ = stopped_ = false;
}

}  // namespace emulator

inline namespace emulated {

using namespace emulator;

const uint3& thread_index() {
  return current.state().thread_index;
}
const uint3& block_index() {
  return current.block->index;
}
const dim3& block_shape() {
  return current.block->launch.shape;
}
const dim3& grid_shape() {
  return current.block->launch.grid;
}

uint32_t multiprocessors(const Device& device) {
  const Options& options = device.options();
  return options.ends > 0 || options.some > 0 || options.begun ? MANY_MULTIPROCESSORS : options.multiprocessors;
}

namespace {

void count_exponential() {
  Block& block = *current.block;
  ++block.counting.counters.exponentials;
  block.counting.counters.exponentials_beside_products += block.running_products(current.warp->id) > 0;
  ++current.state().exponentials;
}

}  // namespace

void count_pack() {
  if (current.block == nullptr) return;
  Block& block = *current.block;
  block.counting.counters.packs_beside_products += block.running_products(current.warp->id) > 0;
}

void count_integer_maximum() {
  if (current.block != nullptr) ++current.block->counting.counters.integer_maxima;
}

float ex2_approx(float x) {
  count_exponential();
  const float result = std::exp2(x);
  return result < 0x1p-126f ? 0.0f : result;  // .ftz
}

// As wrong as a GPU may be: eleven significant bits, a relative error of up to 2^-11.
float tanh_approx(float x) {
  count_exponential();
  const float result = std::tanh(x);
  return std::bit_cast<float>((std::bit_cast<uint32_t>(result) + 0x1000u) & ~0x1fffu);
}

float lg2_approx(float x) {
  return static_cast<float>(std::log2(static_cast<double>(std::fabs(x) < 0x1p-126f ? 0.0f : x)));  // .ftz
}

float rcp_approx(float x) {
  const float result = 1.0f / (std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x);
  return std::fabs(result) < 0x1p-126f ? std::copysign(0.0f, result) : result;  // .ftz
}

void run_grid(Device& device, dim3 grid, dim3 block, uint32_t cluster, uint32_t smem_bytes, void (*body)(const void*),
              const void* call, const void* kernel, bool is_dependent) {
  std::shared_ptr<GlobalShadow>& last = Launch::last_on(device);
  Launch::keep_last(device);
  if (!is_dependent) last.reset();
  const std::shared_ptr<GlobalShadow> before = last;
  last = std::make_shared<GlobalShadow>(device.buffers(), uint64_t{grid.x} * grid.y * grid.z);
  Turns turns(device.options().stop);
  const LaunchConfig config{.options = device.options(),
                            .buffers = device.buffers(),
                            .grid = grid,
                            .shape = block,
                            .smem_bytes = smem_bytes,
                            .body = body,
                            .call = call,
                            .is_first = Launch::is_first_on(device, kernel),
                            .cluster = cluster,
                            .number = Launch::number_on(device),
                            .shadow = *last,
                            .before = before.get(),
                            .turns = turns};
  Launch(device, config).run();
}

void griddepcontrol_launch_dependents(CallSite site) {
  step(Instruction::griddepcontrol_launch_dependents, site);
  Counting& counting = current.block->counting;
  if (counting.tracing) counting.trace_lane_event(Instruction::griddepcontrol_launch_dependents, site);
}

void griddepcontrol_wait(CallSite site) {
  constexpr Instruction SELF = Instruction::griddepcontrol_wait;
  Block& block = *current.block;
  step(SELF, site);
  if (block.counting.tracing) block.counting.trace_lane_event(SELF, site);
  const RaceDetector::Actor actor{current.warp->id, current.thread(), block.counting.site_id(SELF, site)};
  if (block.launch.before != nullptr && block.launch.options.check && !block.knows_launch_before(actor))
    block.launch_waits.push_back(block.races.cell_of(actor));
}

}  // namespace emulated
