#include "harness/measure/field.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <random>
#include <thread>

#include "harness/base/interrupt.hpp"
#include "harness/devices/capacity.hpp"
#include "harness/problem/shapes.hpp"

#ifndef LADDER_COMMIT
#define LADDER_COMMIT "unknown"
#endif

namespace ladder {
namespace {

// Of what is multiplied: the first input's elements, in the words of results.
std::string dtype_of(const Problem& problem) {
  return std::string(to_string(problem.formula().inputs(problem.shape).front().element));
}

// Groups on this problem's memory.
std::shared_ptr<Groups> make_groups(const Problem& problem, const std::shared_ptr<GpuProblem>& on_gpu, const Room& room,
                                    const Inputs& more_heads) {
  GroupMemory memory{.fill_output = std::bind_front(&GpuProblem::fill_output, on_gpu),
                     .negate = std::bind_front(&GpuProblem::negate, on_gpu),
                     .read_rows = std::bind_front(&GpuProblem::read_rows, on_gpu),
                     .check_guards = std::bind_front(&GpuProblem::check_guards, on_gpu)};
  std::vector<double> tolerances;
  for (const Reference::Answer& answer : problem.reference.answers) tolerances.push_back(answer.tolerance());
  std::random_device unforeseen;
  const uint64_t seed = uint64_t{unforeseen()} << 32 | unforeseen();
  std::vector<Question> questions =
      make_questions(problem.shape, problem.kinds.front(), problem.inputs, more_heads, room, seed);
  for (const Question& question :
       questions) {  // the largest error of plain attention may be in rows that are asked for
    for (size_t i = 0; i < tolerances.size(); ++i)
      tolerances[i] = std::max(tolerances[i], question.reference.answers[i].tolerance());
  }
  return std::make_shared<Groups>(std::move(memory), problem.shape, problem.kinds.front(), room, std::move(questions),
                                  tolerances, ~seed);
}

// Poisoned before a group and judged after it, as rungs are. What the peer says of its time is held to ours, which holds
// besides it the way to the peer and back.
Contestant make_contestant(const PeerInfo& info, const std::shared_ptr<Peer>& peer, double flops,
                           const std::shared_ptr<const Problem>& problem) {
  Contestant contestant{.name = info.name, .time_ms = [peer, flops, info](int launches) {
                          return believed_ms(*peer, launches, flops, info);
                        }};
  if (info.judged()) {
    contestant.before = [peer](int) { return peer->poison(); };
    contestant.after = [peer, problem, groups = uint64_t{0}]() mutable {
      return judge_some(*peer, *problem, problem->seed + ++groups);
    };
  }
  return contestant;
}

}  // namespace

PeerPool::PeerPool(const std::vector<PeerCommand>& commands) {
  for (const PeerCommand& command : commands) {
    Result<Peer> peer = Peer::start(command);
    if (peer) {
      peers_.push_back(std::make_shared<Peer>(std::move(*peer)));
    } else {
      notes_.push_back(peer.error().message);
    }
  }
}

void PeerPool::ask_to_prepare(const Problem& problem) {
  files_.reset();  // before the next ones need the room
  if (peers_.empty()) return;
  Result<PeerFiles> files = PeerFiles::create(problem.inputs);
  if (!files) {
    notes_.push_back(files.error().message);
    peers_.clear();
    return;
  }
  files_ = std::move(*files);
  for (const std::shared_ptr<Peer>& peer : peers_) {
    if (!peer->usable()) continue;
    const Status asked = peer->ask_to_prepare(problem.shape, to_string(problem.kinds.front()), problem.seed, *files_);
    if (!asked) notes_.push_back(asked.error().message);
  }
  std::erase_if(peers_, [](const std::shared_ptr<Peer>& peer) { return !peer->usable(); });
}

Field::Field(const GpuInfo& gpu, std::shared_ptr<const Problem> problem, std::shared_ptr<GpuProblem> on_gpu,
             std::shared_ptr<Groups> groups)
    : gpu_(gpu), problem_(std::move(problem)), on_gpu_(std::move(on_gpu)), groups_(std::move(groups)) {}

Result<Field> Field::create(const GpuInfo& gpu, std::shared_ptr<const Problem> problem, uint64_t workspace_bytes) {
  const Shape& shape = problem->shape;
  for (const Status& fits : {fits_gpu_memory(shape, workspace_bytes, gpu), fits_host_memory(shape, 0)}) {
    if (!fits) return passed_on(fits);
  }
  const Result<GpuInfo> now = gpu_info();  // peers have taken their memory in the meantime
  const Room room = room_for(shape, workspace_bytes, now ? now->memory_free : gpu.memory_free);
  const Inputs more_heads = make_more_heads(problem->kinds.front(), shape, problem->seed, room.more_heads);
  auto created = GpuProblem::create(shape, problem->inputs, workspace_bytes, more_heads, room.outputs);
  if (!created) return passed_on(created);
  const std::shared_ptr<GpuProblem> on_gpu = std::move(*created);
  Field field(gpu, problem, on_gpu, make_groups(*problem, on_gpu, room, more_heads));
  if (room.outputs < 3 || room.more_heads == 0) {
    field.notes_.push_back(fmt::format(
        "{}: little GPU memory is left, so the launches of a group share {} and {}: one that is left out, or "
        "whose answer is remembered, may stay unseen.",
        to_string(shape), room.outputs == 1 ? "one output" : fmt::format("{} outputs", room.outputs),
        room.more_heads == 0 ? "one set of inputs" : fmt::format("{} more heads", room.more_heads)));
  }
  return field;
}

void Field::add(const Rung& rung, const Variant& variant) {
  const std::string name = row_name(rung, variant);
  for (const Status& able : {supports(rung, variant, problem_->shape), runs_on(rung, variant, problem_->shape, gpu_)}) {
    if (able) continue;
    notes_.push_back(fmt::format("{}: not timed: {}", name, able.error().first_line()));
    if (!refusal_) refusal_ = able.error();
    return;
  }
  const CheckResult checked = check_on_gpu(rung, variant, *problem_, *on_gpu_, {});
  if (!checked.ok) {
    notes_.push_back(fmt::format("{}: not timed: wrong: {}", name,
                                 checked.failures.empty() ? "no reason given" : checked.failures.front().message));
    all_right_ = false;
    return;
  }
  const Rung* const before = previous_of(rung);
  Entry entry{.name = name,
              .kind = "stage",
              .flops = flops_of(problem_->shape),
              .rung = std::string(rung.name),
              .variant = variant.label,
              .is_default = variant.label == rung.variants.front().label,
              .own = own_work(variant, problem_->shape),
              .previous = std::string(before ? before->name : ""),
              .max_err = checked.max_err,
              .smem_bytes = static_cast<int>(variant.smem_at(problem_->shape.n))};
  if (const Result<KernelResources> resources = gpu_resources(variant, problem_->shape.n)) {
    entry.registers = resources->registers;
    entry.spill_bytes = resources->local_bytes;
  }
  entries_.push_back(std::move(entry));
  std::vector<std::string_view> outputs;
  for (const TensorSpec& spec : outputs_of(variant, problem_->shape)) outputs.push_back(spec.name);
  contestants_.push_back(make_contestant(
      name, groups_, std::move(outputs),
      [gpu = on_gpu_, &variant](std::span<const Launch> launches) { return gpu->time_ms(variant, launches); }));
}

void Field::add_ceilings(bool thermometers) {
  const std::string dtype = dtype_of(*problem_);
  for (const std::string_view name : Ceiling::names(dtype)) {
    if (!thermometers && !is_needed(name, entries_)) continue;
    auto created = Ceiling::create(name, dtype);
    if (!created) {
      if (created.error().code != ExitCode::cannot_run_here) notes_.push_back(created.error().message);
      continue;  // a card without the instruction has no ceiling of it
    }
    const std::shared_ptr<Ceiling> ceiling = std::move(*created);
    entries_.push_back({.name = std::string(name), .kind = "ceiling", .flops = ceiling->work()});
    contestants_.push_back(
        {.name = std::string(name), .time_ms = [ceiling](int launches) { return ceiling->time_ms(launches); }});
  }
}

Status Field::add_peers(PeerPool& pool, std::span<const std::string> only) {
  for (std::string& note : pool.take_notes()) notes_.push_back(std::move(note));
  for (const std::shared_ptr<Peer>& peer : pool.peers()) {
    const Result<PeerInfo> info = peer->prepared();
    if (!info) {
      if (info.error().code == ExitCode::interrupted) return passed_on(info);
      notes_.push_back(info.error().message);
      continue;
    }
    if (!only.empty() && std::ranges::find(only, info->name) == only.end()) continue;
    const auto note = [&](std::string_view what) { notes_.push_back(fmt::format("peer {}: {}", info->name, what)); };
    if (std::ranges::find(entries_, info->name, &Entry::name) != entries_.end()) {
      note("another contestant has this name already");
      continue;
    }
    const double flops = info->ceiling ? info->flops.value_or(0) : flops_of(problem_->shape);
    if (!(flops > 0)) {
      note("not timed: a ceiling says its \"flops\" for one launch");
      continue;
    }
    Entry entry{
        .name = info->name, .kind = info->ceiling ? "ceiling" : "peer", .flops = flops, .version = info->version};
    if (info->judged()) {
      const Result<double> error = judge(*peer, *problem_);
      if (!error) {
        if (error.error().code == ExitCode::interrupted) return passed_on(error);
        notes_.push_back(error.error().message + "\n  It is not timed.");
        continue;
      }
      entry.max_err = *error;
    } else if (!info->ceiling) {
      note("unverified: it keeps protocol 1, which shows its answers to nobody");
    }
    note(info->version.empty() ? "no version" : info->version);
    entries_.push_back(std::move(entry));
    contestants_.push_back(make_contestant(*info, peer, flops, problem_));
  }
  return {};
}

RealMachine::RealMachine(const std::string& pci_bus_id) : nvml_(Nvml::open(pci_bus_id)) {
  if (!nvml_) notes_.push_back("No NVML here: power, temperature and what slows the card stay unknown.");
  auto clocks = SmClocks::create();
  if (!clocks) notes_.push_back("The clocks are not counted: " + clocks.error().message);
  clocks_ = std::move(clocks).value_or(nullptr);
  auto load = Ceiling::create("mma_sync", "fp16");
  if (!load) notes_.push_back("No load keeps the card warm between groups: " + load.error().message);
  load_ = std::move(load).value_or(nullptr);
}

Machine RealMachine::machine(std::function<void(std::string_view, double)> progress) {
  using Clock = std::chrono::steady_clock;
  Machine machine{
      .now_s = [] { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); },
      .sleep_s = [](double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); },
      .interrupted = interrupted,
      .progress = std::move(progress)};
  if (nvml_) machine.card = [this] { return nvml_->now(); };
  if (load_) machine.load = [this](double ms) { return load_->keep_busy(ms); };
  if (clocks_) {
    machine.start_clock = [this] { clocks_->start(); };
    machine.stop_clock = [this] { return clocks_->stop(); };
  }
  return machine;
}

RunFacts run_facts(const GpuInfo& gpu, const RealMachine& machine, const Problem& problem, Regime regime) {
  const char* commit = std::getenv("LADDER_COMMIT");
  const std::string nvml_driver = machine.driver_version();
  return {.gpu = gpu.name,
          .sm = gpu.sm,
          .processors = gpu.processors,
          .driver = nvml_driver.empty() ? gpu.driver : nvml_driver,
          .cuda = gpu.cuda,
          .shape = problem.shape,
          .dtype = dtype_of(problem),
          .problem = beyond_columns(problem.shape),
          .inputs = std::string(to_string(problem.kinds.front())),
          .regime = std::string(to_string(regime)),
          .commit = commit && *commit ? commit : LADDER_COMMIT,
          .date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)))};
}

}  // namespace ladder
