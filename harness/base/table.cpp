#include "harness/base/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "harness/base/terminal.hpp"

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
  if (!has_colour(stream)) return word;
  return fmt::format("\x1b[{}m{}\x1b[0m", good ? 32 : 31, word);
}

}  // namespace

Table::Table(std::vector<std::string> titles) {
  for (std::string& title : titles) {
    Column column;
    size_t marks = 0;
    for (; marks < title.size() && std::strchr("<~?", title[marks]); ++marks) {
      column.left = column.left || title[marks] != '?';
      column.wraps = column.wraps || title[marks] == '~';
      column.marks += title[marks] == '?';
    }
    title.erase(0, marks);
    columns_.push_back(column);
  }
  rows_.push_back(std::move(titles));
}

void Table::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text(std::FILE* stream) const {
  return text(columns_of(stream));
}

std::string Table::text(size_t columns) const {
  constexpr size_t GAP = 2, NARROWEST = 24;  // of a column that is broken into lines
  std::vector<size_t> widths(columns_.size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], shown_width(row[i]));
  }
  std::vector<bool> shown(columns_.size(), true);
  const auto total = [&] {
    size_t sum = 0;
    for (size_t i = 0; i < widths.size(); ++i) sum += shown[i] ? widths[i] + (sum > 0 ? GAP : 0) : 0;
    return sum;
  };
  const size_t whole = total();
  const auto too_wide = [&] { return columns > 0 && total() > columns; };

  for (size_t i = 0; i < columns_.size() && too_wide(); ++i) {
    if (!columns_[i].wraps) continue;
    const size_t excess = total() - columns;
    widths[i] = std::max(std::min(NARROWEST, widths[i]), widths[i] - std::min(excess, widths[i]));
  }
  std::string left_out;
  while (too_wide()) {
    // Of those with the most marks, the last.
    size_t least = columns_.size();
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (shown[i] && columns_[i].marks > 0 &&
          (least == columns_.size() || columns_[i].marks >= columns_[least].marks)) {
        least = i;
      }
    }
    if (least == columns_.size()) break;
    shown[least] = false;
  }
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (!shown[i]) left_out += (left_out.empty() ? "" : ", ") + rows_.front()[i];
  }

  std::string text;
  for (const auto& row : rows_) {
    // A row of several lines where a cell is broken.
    std::vector<std::string> rest = row;
    for (bool more = true; more;) {
      more = false;
      std::string line;
      bool first = true;
      for (size_t i = 0; i < row.size(); ++i) {
        if (!shown[i]) continue;
        std::string cell = std::exchange(rest[i], "");
        if (columns_[i].wraps && shown_width(cell) > widths[i]) {
          const std::string lines = wrapped(cell, widths[i]);
          const size_t end = std::min(lines.find('\n'), lines.size());
          cell = lines.substr(0, end);
          rest[i] = lines.substr(std::min(end + 1, lines.size()));
          std::ranges::replace(rest[i], '\n', ' ');
          more = more || !rest[i].empty();
        }
        const size_t width = shown_width(cell);
        const std::string space(widths[i] - std::min(widths[i], width), ' ');
        line += (std::exchange(first, false) ? "" : std::string(GAP, ' ')) +
                (columns_[i].left ? cell + space : space + cell);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
  }
  if (!left_out.empty()) {
    text +=
        wrapped(fmt::format("Left out in {} columns: {}. COLUMNS={} shows all.", columns, left_out, whole), columns) +
        "\n";
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
