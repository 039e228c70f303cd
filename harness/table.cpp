#include "harness/table.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace ladder {
namespace {

// Colour codes take no room on the screen.
size_t shown_width(const std::string& cell) {
  size_t width = 0;
  for (size_t i = 0; i < cell.size(); ++i) {
    if (cell[i] == '\x1b') {
      i = cell.find('m', i);
    } else {
      ++width;
    }
  }
  return width;
}

std::string coloured(const char* word, bool good, std::FILE* stream) {
  if (!isatty(fileno(stream))) return word;
  return fmt::format("\x1b[{}m{}\x1b[0m", good ? 32 : 31, word);
}

}  // namespace

Table::Table(std::vector<std::string> titles) {
  for (std::string& title : titles) {
    left_.push_back(title.starts_with('<'));
    if (left_.back()) title.erase(0, 1);
  }
  rows_.push_back(std::move(titles));
}

void Table::add(std::vector<std::string> cells) {
  cells.resize(left_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<size_t> widths(left_.size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], shown_width(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - shown_width(row[i]), ' ');
      line += (i == 0 ? "" : "  ") + (left_[i] ? row[i] + space : space + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string verdict_word(bool right, std::FILE* stream) {
  return coloured(right ? "right" : "WRONG", right, stream);
}

std::string count_word(bool right, std::FILE* stream) {
  return coloured(right ? "right" : "DIFFER", right, stream);
}

std::string grouped(uint64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) digits.insert(at, ",");
  return digits;
}

std::string bytes_text(double bytes) {
  if (bytes < 1024 * 1024) return fmt::format("{:.1f} KiB", bytes / 1024);
  if (bytes < 1024.0 * 1024 * 1024) return fmt::format("{:.1f} MiB", bytes / 1024 / 1024);
  return fmt::format("{:.1f} GiB", bytes / 1024 / 1024 / 1024);
}

}  // namespace ladder
