// Errors are values until main turns one into a message and an exit code.
#pragma once
#include <fmt/format.h>

#include <concepts>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

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

// An Error on its way to whatever Result is returned.
struct Unexpected {
  Error error;
};

// What came of something, or why nothing did: the part of C++23's std::expected that this project has a use for.
template <class T>
class [[nodiscard]] Result {
 public:
  Result() requires std::default_initializable<T>
  = default;
  Result(Unexpected failure) : held_(std::in_place_index<1>, std::move(failure.error)) {}
  template <class Value = T>
  requires(std::convertible_to<Value, T> && !std::same_as<std::remove_cvref_t<Value>, Result> &&
           !std::same_as<std::remove_cvref_t<Value>, Unexpected>) Result(Value&& value)
      : held_(std::in_place_index<0>, std::forward<Value>(value)) {}

  bool has_value() const { return held_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  T& operator*() & { return *std::get_if<0>(&held_); }
  const T& operator*() const& { return *std::get_if<0>(&held_); }
  T&& operator*() && { return std::move(*std::get_if<0>(&held_)); }
  T* operator->() { return std::get_if<0>(&held_); }
  const T* operator->() const { return std::get_if<0>(&held_); }
  Error& error() { return *std::get_if<1>(&held_); }
  const Error& error() const { return *std::get_if<1>(&held_); }
  // Throws where there is none.
  const T& value() const& { return std::get<0>(held_); }
  T&& value() && { return std::get<0>(std::move(held_)); }
  T value_or(T otherwise) const& { return has_value() ? **this : std::move(otherwise); }
  T value_or(T otherwise) && { return has_value() ? *std::move(*this) : std::move(otherwise); }
  template <class Function>
  auto map(Function function) const -> Result<std::invoke_result_t<Function, const T&>> {
    if (!has_value()) return Unexpected{error()};
    if constexpr (std::is_void_v<std::invoke_result_t<Function, const T&>>) {
      function(**this);
      return {};
    } else {
      return function(**this);
    }
  }

 private:
  std::variant<T, Error> held_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Unexpected failure) : error_(std::move(failure.error)) {}

  bool has_value() const { return !error_; }
  explicit operator bool() const { return has_value(); }
  Error& error() { return *error_; }
  const Error& error() const { return *error_; }
  template <class Function>
  Result<std::invoke_result_t<Function>> map(Function function) const {
    if (error_) return Unexpected{*error_};
    return function();
  }

 private:
  std::optional<Error> error_;
};
using Status = Result<void>;

inline Unexpected failure(ExitCode code, std::string message) {
  return {Error{code, std::move(message)}};
}
// The same of a format and what stands in it.
template <class First, class... Values>
Unexpected failure(ExitCode code, fmt::format_string<First, Values...> message, First&& first, Values&&... values) {
  return failure(code, fmt::format(message, std::forward<First>(first), std::forward<Values>(values)...));
}
template <class... Values>
Unexpected usage(fmt::format_string<Values...> message, Values&&... values) {
  return failure(ExitCode::usage, fmt::format(message, std::forward<Values>(values)...));
}

// What stopped one step is the error of the whole.
template <class T>
Unexpected passed_on(const Result<T>& stopped) {
  return {stopped.error()};
}

}  // namespace ladder
