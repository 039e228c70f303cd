#include "common/emulator/signals.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <charconv>
#include <climits>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>

#include "common/emulator/block.hpp"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__
#endif
#endif

namespace emulator {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool ENABLED = false;
#else
constexpr bool ENABLED = true;
#endif

constexpr int CLOCK_SIGNAL = SIGVTALRM;
constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, CLOCK_SIGNAL};
constexpr size_t STACK_BYTES = 256 * 1024;
// Of the thread's own time, so that a busy machine makes no difference.
constexpr long TICK_NANOSECONDS = 250'000'000;
constexpr int TICKS_WITHOUT_STEP = 8;

std::mutex mutex;
int users = 0;
struct sigaction previous[std::size(SIGNALS)];

struct Seen {
  uint64_t block = 0, steps = 0;
  uint32_t thread = 0;
  bool operator==(const Seen&) const = default;
};
constinit thread_local Seen last_seen;
constinit thread_local int ticks_without_step = 0;

const void* program_counter(const ucontext_t& context) {
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(context.uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(context.uc_mcontext.pc);
#else
  return nullptr;
#endif
}

std::string_view kind_of_access([[maybe_unused]] const ucontext_t& context) {
#if defined(__x86_64__)
  constexpr greg_t WRITE = 2;  // a bit of the page fault's error code
  return (context.uc_mcontext.gregs[REG_ERR] & WRITE) != 0 ? "written" : "read";
#else
  return "accessed";
#endif
}

// The source line of a machine instruction, exactly or else that of the last emulated one; and what a report says of
// it.
std::pair<SourceLine, std::string> line_of(const Block& block, const void* pc) {
  const std::optional<SourceLine> exact = machine_line(pc);
  SourceLine line = exact ? *exact : block.scheduler.last_line();
  std::string name = Wording::line_name(line, exact.has_value());
  return {std::move(line), std::move(name)};
}

// What the running lane has done past the emulator, at machine address `pc`. The reports are made in functions of their
// own, because stop() runs no destructors.
[[noreturn]] void plain_access(Block& block, const void* address, std::string_view what, const void* pc) {
  [&] {
    std::string buffer;
    const std::string place = block.wording.global_place(static_cast<const std::byte*>(address), buffer);
    const auto [where, line_name] = line_of(block, pc);
    block.report_at(ReportKind::plain_access, {where}, block.wording.plain_access(what, place, line_name), buffer);
  }();
  block.scheduler.stop();
}

[[noreturn]] void no_quotient(Block& block, const void* pc) {
  [&] {
    const auto [where, line_name] = line_of(block, pc);
    block.report_at(ReportKind::kernel_exception, {where}, block.wording.no_quotient(line_name));
  }();
  block.scheduler.stop();
}

// It executes no emulated instruction any more.
[[noreturn]] void stuck(Block& block, const void* pc) {
  [&] {
    const auto [where, line_name] = line_of(block, pc);
    block.report_at(ReportKind::endless_loop, {where}, block.wording.stuck(line_name));
  }();
  block.scheduler.stop();
}

void on_clock(Block& block, const ucontext_t& context) {
  const Options& options = block.launch.options;
  const Seen now = {block.linear_index, block.scheduler.steps(current.thread()), current.thread()};
  ticks_without_step = now == last_seen ? ticks_without_step + 1 : 0;
  last_seen = now;
  if (ticks_without_step == 0) return;
  if (options.stop != nullptr && *options.stop) block.scheduler.stop_early();
  if (options.max_steps == 0 || ticks_without_step < TICKS_WITHOUT_STEP) return;
  current.in_fault = true;
  stuck(block, program_counter(context));
}

// Does not return if the signal is a kernel's: it leaves by switching to the fiber that has started the block, and the
// kernel's own is abandoned. Then the mask of blocked signals must be as before, hence SA_NODEFER.
void handle(int signal, siginfo_t* info, void* opaque) {
  const auto& context = *static_cast<const ucontext_t*>(opaque);
  Block* const block = current.block;
  const bool in_kernel = block != nullptr && block->cluster.host && !current.in_fault;
  if (signal == CLOCK_SIGNAL) {
    if (in_kernel) on_clock(*block, context);
    return;
  }
  if (!in_kernel) {
    for (size_t i = 0; i < std::size(SIGNALS); ++i) {
      if (SIGNALS[i] == signal) sigaction(signal, &previous[i], nullptr);  // and the instruction is tried again
    }
    return;
  }
  current.in_fault = true;
  if (signal == SIGFPE) no_quotient(*block, program_counter(context));
  plain_access(*block, info->si_addr, kind_of_access(context), program_counter(context));
}

struct Place {  // of an instruction in its file
  uintptr_t pc;
  std::string file;
  uintptr_t offset;
};

// Empty if the program cannot be run.
std::string output_of(const std::vector<std::string>& command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child;
  const bool started = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string output;
  char part[512];
  for (ssize_t n; started && (n = read(ends[0], part, sizeof part)) > 0;) output.append(part, static_cast<size_t>(n));
  close(ends[0]);
  if (started) waitpid(child, nullptr, 0);
  return output;
}

}  // namespace

SignalHandlers::SignalHandlers() {
  if (!ENABLED) return;
  const std::lock_guard guard(mutex);
  if (users++ > 0) return;
  struct sigaction action = {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
  for (size_t i = 0; i < std::size(SIGNALS); ++i) sigaction(SIGNALS[i], &action, &previous[i]);
}

SignalHandlers::~SignalHandlers() {
  if (!ENABLED) return;
  const std::lock_guard guard(mutex);
  if (--users > 0) return;
  for (size_t i = 0; i < std::size(SIGNALS); ++i) sigaction(SIGNALS[i], &previous[i], nullptr);
}

SignalStack::SignalStack(const Options& options) {
  if (!ENABLED) return;
  memory_ = std::make_unique_for_overwrite<std::byte[]>(STACK_BYTES);
  const stack_t own = {.ss_sp = memory_.get(), .ss_flags = 0, .ss_size = STACK_BYTES};
  sigaltstack(&own, &previous_);
  if (options.max_steps == 0 && options.stop == nullptr) return;
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = CLOCK_SIGNAL;
  event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
  timer_t timer;
  if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) != 0) return;
  timer_ = timer;
  const timespec tick = {0, TICK_NANOSECONDS};
  const itimerspec schedule = {tick, tick};
  timer_settime(timer, 0, &schedule, nullptr);
}

SignalStack::~SignalStack() {
  if (!ENABLED) return;
  if (timer_) timer_delete(*timer_);
  sigaltstack(&previous_, nullptr);
}

std::optional<SourceLine> machine_line(const void* pc) {
  Place place = {reinterpret_cast<uintptr_t>(pc), "", 0};
  const auto find = [](dl_phdr_info* object, size_t, void* opaque) {
    Place& sought = *static_cast<Place*>(opaque);
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      const auto& segment = object->dlpi_phdr[i];
      const uintptr_t offset = sought.pc - object->dlpi_addr;
      if (segment.p_type != PT_LOAD || offset - segment.p_vaddr >= segment.p_memsz) continue;
      sought.file = object->dlpi_name;
      sought.offset = offset;
      return 1;
    }
    return 0;
  };
  if (pc == nullptr || dl_iterate_phdr(find, &place) == 0) return std::nullopt;
  if (place.file.empty()) {  // the program itself
    char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    if (length <= 0) return std::nullopt;
    place.file.assign(path, static_cast<size_t>(length));
  }
  const std::string answer = output_of({"addr2line", "-e", place.file, fmt::format("{:#x}", place.offset)});
  const size_t colon = answer.find_last_of(':');  // "/a/kernel.cuh:70 (discriminator 2)\n", "??:0"
  if (colon == std::string::npos || answer.starts_with("??")) return std::nullopt;
  SourceLine line{answer.substr(0, colon), 0};
  std::from_chars(answer.data() + colon + 1, answer.data() + answer.size(), line.line);
  if (line.line == 0) return std::nullopt;
  return line;
}

}  // namespace emulator
