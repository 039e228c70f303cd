// A child process that is spoken to in lines, never waited for longer than asked, and never left behind.
#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "harness/base/error.hpp"

namespace ladder {

// A file descriptor, closed by its owner.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();
  int get() const { return number_; }
  void close() { Descriptor(std::move(*this)); }

 private:
  int number_;
};

class Process {
 public:
  Process() = default;  // of no child yet
  // Starts a program, looked up in PATH, in a process group of its own: a Ctrl-C for us does not reach it.
  static Result<std::unique_ptr<Process>> start(std::span<const std::string> arguments);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  // Closes its standard input, gives it a moment to leave, then kills its group.
  ~Process();

  // Sends a line. Errors: the child is gone, or does not read.
  Status write_line(std::string_view line, double limit_s);
  // Its next line of standard output, without the end. Errors: it ended (how), or said nothing for `limit_s` seconds.
  // `waiting` is called a few times per second while there is none.
  Result<std::string> read_line(double limit_s, const std::function<void(double waited_s)>& waiting = {});
  // Whether a line that nobody has read is there already.
  bool has_line();
  // The end of what it has written to standard error, at most 2000 characters.
  std::string error_tail();

 private:
  bool take_output();
  void take_errors();
  std::string how_it_ended();

  pid_t pid_ = -1;
  Descriptor in_, out_, err_;
  std::string unread_, errors_;
};

// A word as a shell takes it, whatever is in it.
std::string shell_word(const std::string& word);

}  // namespace ladder
