#include "harness/base/terminal.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "harness/base/text.hpp"

namespace ladder {
namespace {

constexpr size_t USUAL_COLUMNS = 80;  // of a terminal that does not know its own

std::string_view environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

bool is_terminal(std::FILE* stream) {
  return isatty(fileno(stream)) && environment("TERM") != "dumb";
}

bool has_colour(std::FILE* stream) {
  return is_terminal(stream) && environment("NO_COLOR").empty();
}

size_t screen_columns(std::FILE* stream) {
  if (!isatty(fileno(stream))) return 0;
  winsize size = {};
  return ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : USUAL_COLUMNS;
}

size_t columns_of(std::FILE* stream) {
  const size_t typed = number_in<size_t>(environment("COLUMNS")).value_or(0);
  return typed > 0 ? typed : screen_columns(stream);
}

std::string wrapped(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  for (const std::string_view paragraph : split(text, '\n')) {
    lines.emplace_back();
    for (const std::string_view word : split(paragraph, ' ')) {
      const bool is_first = lines.back().empty();
      if (!is_first && lines.back().size() + 1 + word.size() > width) {
        lines.emplace_back();
      } else if (!is_first) {
        lines.back() += ' ';
      }
      lines.back() += word;
    }
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::string wrapped(std::string_view text, std::FILE* stream) {
  const size_t columns = columns_of(stream);
  return columns == 0 ? std::string(text) : wrapped(text, columns);
}

void print_wrapped(std::FILE* stream, std::string_view text) {
  fmt::print(stream, "{}\n", wrapped(text, stream));
}

}  // namespace ladder
