#include "harness/base/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

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
  std::string lines;
  size_t used = 0;  // of the line at hand
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(" \n"), text.size());
    const std::string_view word = text.substr(0, end);
    if (used > 0 && used + 1 + word.size() > width) {
      lines += '\n';
      used = 0;
    } else if (used > 0) {
      lines += ' ';
      ++used;
    }
    lines += word;
    used += word.size();
    if (end < text.size() && text[end] == '\n') {
      lines += '\n';
      used = 0;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string wrapped(std::string_view text, std::FILE* stream) {
  const size_t columns = columns_of(stream);
  return columns == 0 ? std::string(text) : wrapped(text, columns);
}

}  // namespace ladder
