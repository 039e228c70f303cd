#include "harness/base/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "harness/base/interrupt.hpp"

namespace ladder {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t ERROR_TAIL = 2000;
constexpr size_t LONGEST_LINE = 1 << 20;

Clock::time_point in_seconds(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Milliseconds to wait now: short steps, so that a Ctrl-C between two polls is seen soon.
int step_until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<long>(left, 0, 100));
}

Unexpected system_error(std::string_view what, int error) {
  return failure(ExitCode::check_failed, "{}: {}", what, std::strerror(error));
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

Result<std::unique_ptr<Process>> Process::start(std::span<const std::string> arguments) {
  // The input is a socket and not a pipe: writing to a child that is gone then is an error and not a SIGPIPE.
  int in[2], out[2], err[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) != 0) return system_error("no socket", errno);
  auto process = std::make_unique<Process>();
  process->in_ = Descriptor(in[0]);
  const Descriptor child_in(in[1]);
  if (::pipe2(out, O_CLOEXEC) != 0) return system_error("no pipe", errno);
  process->out_ = Descriptor(out[0]);
  const Descriptor child_out(out[1]);
  if (::pipe2(err, O_CLOEXEC) != 0) return system_error("no pipe", errno);
  process->err_ = Descriptor(err[0]);
  const Descriptor child_err(err[1]);
  ::fcntl(process->err_.get(), F_SETFL, O_NONBLOCK);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, child_in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, child_out.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, child_err.get(), STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);

  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const int error = ::posix_spawnp(&process->pid_, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    process->pid_ = -1;
    return system_error("cannot start " + arguments[0], error);
  }
  return process;
}

Process::~Process() {
  if (pid_ < 0) return;
  in_.close();
  const Clock::time_point deadline = in_seconds(0.5);
  while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (Clock::now() >= deadline) {
      ::kill(-pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ::kill(-pid_, SIGKILL);  // what it may have started itself
}

Status Process::write_line(std::string_view line, double limit_s) {
  const std::string text = std::string(line) + '\n';
  const Clock::time_point deadline = in_seconds(limit_s);
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t bytes = ::send(in_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (bytes >= 0) {
      sent += static_cast<size_t>(bytes);
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return failure(ExitCode::check_failed, how_it_ended());
    } else if (errno != EAGAIN && errno != EINTR) {
      return system_error("cannot write to it", errno);
    } else if (Clock::now() >= deadline) {
      return failure(ExitCode::check_failed, "did not read its input for {:g} s", limit_s);
    } else {
      pollfd wait{.fd = in_.get(), .events = POLLOUT, .revents = 0};
      ::poll(&wait, 1, step_until(deadline));
    }
  }
  return {};
}

Result<std::string> Process::read_line(double limit_s, const std::function<void(double waited_s)>& waiting) {
  const Clock::time_point start = Clock::now(), deadline = in_seconds(limit_s);
  for (;;) {
    if (const size_t end = unread_.find('\n'); end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    if (unread_.size() > LONGEST_LINE) return failure(ExitCode::check_failed, "wrote a megabyte without a line end");
    if (interrupted()) return failure(ExitCode::interrupted, "interrupted");
    if (waiting) waiting(std::chrono::duration<double>(Clock::now() - start).count());
    // Its standard error is emptied all the while, or a talkative child would block on a full pipe.
    pollfd wait[2] = {{.fd = out_.get(), .events = POLLIN, .revents = 0},
                      {.fd = err_.get(), .events = POLLIN, .revents = 0}};
    const int ready = ::poll(wait, err_.get() < 0 ? 1 : 2, step_until(deadline));
    if (ready > 0 && wait[1].revents != 0) take_errors();
    if (ready > 0 && wait[0].revents != 0) {
      if (!take_output()) return failure(ExitCode::check_failed, how_it_ended());
    } else if (Clock::now() >= deadline) {
      return failure(ExitCode::check_failed, "did not answer within {:g} s", limit_s);
    }
  }
}

// False at its end.
bool Process::take_output() {
  char buffer[4096];
  const ssize_t bytes = ::read(out_.get(), buffer, sizeof buffer);
  if (bytes > 0) unread_.append(buffer, static_cast<size_t>(bytes));
  return bytes != 0;
}

bool Process::has_line() {
  pollfd wait{.fd = out_.get(), .events = POLLIN, .revents = 0};
  while (unread_.find('\n') == std::string::npos && unread_.size() <= LONGEST_LINE && ::poll(&wait, 1, 0) > 0) {
    if (!take_output()) break;
  }
  return unread_.find('\n') != std::string::npos;
}

void Process::take_errors() {
  char buffer[4096];
  ssize_t bytes = 0;
  while (err_.get() >= 0 && (bytes = ::read(err_.get(), buffer, sizeof buffer)) > 0) {
    errors_.append(buffer, static_cast<size_t>(bytes));
    if (errors_.size() > 2 * ERROR_TAIL) errors_.erase(0, errors_.size() - ERROR_TAIL);
  }
  if (bytes == 0) err_.close();
}

std::string Process::error_tail() {
  take_errors();
  std::string tail = errors_.substr(errors_.size() - std::min(errors_.size(), ERROR_TAIL));
  while (!tail.empty() && std::isspace(static_cast<unsigned char>(tail.back()))) tail.pop_back();
  return tail;
}

std::string Process::how_it_ended() {
  if (pid_ < 0) return "has ended";
  int status = 0;
  pid_t ended = 0;
  // Its output may close an instant before it ends.
  for (int i = 0; i < 100 && ended == 0; ++i) {
    ended = ::waitpid(pid_, &status, WNOHANG);
    if (ended == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (ended != pid_) return "closed its output";
  ::kill(-pid_, SIGKILL);  // what it may have started itself
  pid_ = -1;
  if (WIFSIGNALED(status))
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

std::string shell_word(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

}  // namespace ladder
