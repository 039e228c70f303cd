// Errors are values until main turns one into a message and an exit code.
#pragma once
#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace ladder {

enum class ExitCode {
  done = 0,
  check_failed = 1,
  usage = 2,
  cannot_run_here = 77,  // no GPU, GPU too old, too little memory; CTest reads 77 as "skipped"
  interrupted = 130,     // Ctrl-C; results so far are written
};

// What went wrong, in words for the user: the cause, the fact, and the way out.
struct Error {
  ExitCode code = ExitCode::check_failed;
  std::string message;
  std::string first_line() const { return message.substr(0, message.find('\n')); }
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = tl::expected<void, Error>;

inline tl::unexpected<Error> failure(ExitCode code, std::string message) {
  return tl::make_unexpected(Error{code, std::move(message)});
}
// The same of a format and what stands in it.
template <class First, class... Values>
tl::unexpected<Error> failure(ExitCode code, fmt::format_string<First, Values...> message, First&& first,
                              Values&&... values) {
  return failure(code, fmt::format(message, std::forward<First>(first), std::forward<Values>(values)...));
}
template <class... Values>
tl::unexpected<Error> usage(fmt::format_string<Values...> message, Values&&... values) {
  return failure(ExitCode::usage, fmt::format(message, std::forward<Values>(values)...));
}

// What stopped one step is the error of the whole.
template <class T>
tl::unexpected<Error> passed_on(const Result<T>& stopped) {
  return tl::make_unexpected(stopped.error());
}

}  // namespace ladder
