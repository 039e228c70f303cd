#include "harness/base/table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
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

void Table::add(std::initializer_list<std::string_view> cells) {
  rows_.emplace_back(cells.begin(), cells.end()).resize(columns_.size());
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
  std::vector<size_t> shown(columns_.size());
  std::iota(shown.begin(), shown.end(), 0);
  const auto total = [&] {
    size_t sum = 0;
    for (const size_t i : shown) sum += widths[i] + (sum > 0 ? GAP : 0);
    return sum;
  };
  const size_t whole = total();
  const auto too_wide = [&] { return columns > 0 && total() > columns; };

  for (size_t i = 0; i < columns_.size() && too_wide(); ++i) {
    if (!columns_[i].wraps) continue;
    const size_t excess = total() - columns;
    widths[i] = std::max(std::min(NARROWEST, widths[i]), widths[i] - std::min(excess, widths[i]));
  }
  while (too_wide()) {
    // Of those with the most marks, the last.
    const auto marks = [&](size_t i) { return columns_[i].marks; };
    const auto least = std::ranges::max_element(shown.rbegin(), shown.rend(), {}, marks);
    if (marks(*least) == 0) break;
    shown.erase(std::next(least).base());
  }

  std::string text;
  for (const auto& row : rows_) {
    std::vector<std::string> rest = row;  // of cells that are broken into lines
    do {
      std::string line;
      for (const size_t i : shown) {
        std::string cell = std::exchange(rest[i], "");
        if (columns_[i].wraps && shown_width(cell) > widths[i]) {
          cell = wrapped(cell, widths[i]);
          const size_t end = std::min(cell.find('\n'), cell.size());
          rest[i] = cell.substr(std::min(end + 1, cell.size()));
          std::ranges::replace(rest[i], '\n', ' ');
          cell.resize(end);
        }
        const std::string space(widths[i] - std::min(widths[i], shown_width(cell)), ' ');
        line += std::string(i == shown.front() ? 0 : GAP, ' ') + (columns_[i].left ? cell + space : space + cell);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    } while (std::ranges::any_of(shown, [&](size_t i) { return !rest[i].empty(); }));
  }
  std::vector<std::string> left_out;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (std::ranges::find(shown, i) == shown.end()) left_out.push_back(rows_.front()[i]);
  }
  if (left_out.empty()) return text;
  return text +
         wrapped(fmt::format("Left out in {} columns: {}. COLUMNS={} shows all.", columns, fmt::join(left_out, ", "),
                             whole),
                 columns) +
         "\n";
}

std::string verdict_word(bool right, std::FILE* stream, std::string_view wrong) {
  const std::string_view word = right ? "right" : wrong;
  return has_colour(stream) ? fmt::format("\x1b[{}m{}\x1b[0m", right ? 32 : 31, word) : std::string(word);
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
