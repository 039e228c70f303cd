#include "harness/measure/csv.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <type_traits>

#include "harness/base/files.hpp"
#include "harness/base/text.hpp"
#include "harness/problem/shapes.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;

// ---- a cell's text, and back ---------------------------------------------------------------------------------------

// One number of a ratio, which has all three or none.
template <class Ratio>
struct Part {
  Ratio& ratio;
  double Estimate::*number;
};

// What a row holds as the text of a cell. Of counts and sizes 0 and an empty cell are the same, "not known". Numbers have six
// significant digits: a tenth of a clock's resolution, and the same text after a second write.
struct ToCell {
  std::string operator()(const std::string& text) const { return text; }
  std::string operator()(bool flag) const { return flag ? "1" : "0"; }
  std::string operator()(int count) const { return count == 0 ? "" : std::to_string(count); }
  std::string operator()(double number) const { return fmt::format("{:.6g}", number); }
  std::string operator()(const std::optional<int>& number) const { return number ? std::to_string(*number) : ""; }
  std::string operator()(const std::optional<double>& number) const { return number ? (*this)(*number) : ""; }
  template <class Ratio>
  std::string operator()(const Part<Ratio>& part) const {
    return part.ratio ? (*this)((*part.ratio).*part.number) : "";
  }
};
constexpr ToCell to_cell;

template <class T>
bool parse(const std::string& cell, T& value) {
  const auto number = number_in<T>(cell);
  if (number) value = *number;
  return number && std::isfinite(static_cast<double>(value));
}

// The other way round; false where the cell holds no such value.
struct FromCell {
  const std::string& cell;
  bool operator()(std::string& text) const { return text = cell, true; }
  bool operator()(bool& flag) const { return (flag = cell == "1" || cell == "true") || cell == "0" || cell == "false"; }
  bool operator()(int& count) const { return count = 0, cell.empty() || parse(cell, count); }
  bool operator()(double& number) const { return parse(cell, number); }
  template <class T>
  bool operator()(std::optional<T>& number) const {
    return cell.empty() || parse(cell, number.emplace());
  }
  bool operator()(const Part<std::optional<Estimate>>& part) const {
    if (cell.empty()) return true;
    if (!part.ratio) part.ratio.emplace();
    return parse(cell, (*part.ratio).*part.number);
  }
};

// ---- the columns ---------------------------------------------------------------------------------------------------

// Calls visit(its name, what it holds) for each column of a row.
template <class Row, class Visit>
void for_each_column(Row& row, const Visit& visit) {
  visit("stage", row.rung);
  visit("kind", row.kind);
  visit("gpu", row.gpu);
  visit("sm", row.sm);
  visit("driver", row.driver);
  visit("cuda", row.cuda);
  visit("clock_mhz", row.clock_mhz);
  visit("power_w", row.power_w);
  visit("batch", row.shape.batch);
  visit("heads", row.shape.heads);
  visit("n", row.shape.n);
  visit("d", row.shape.d);
  visit("causal", row.shape.causal);
  visit("dtype", row.dtype);
  visit("problem", row.problem);
  visit("inputs", row.inputs);
  visit("regime", row.regime);
  visit("rounds", row.rounds);
  visit("ms_median", row.ms_median);
  visit("ms_p20", row.ms_p20);
  visit("ms_p80", row.ms_p80);
  visit("tflops", row.tflops);
  visit("flop_per_clk_sm", row.flop_per_clk_sm);
  visit("pct_ceiling", row.pct_ceiling);
  visit("previous", row.previous);
  visit("vs_previous", Part{row.vs_previous, &Estimate::value});
  visit("vs_previous_lo", Part{row.vs_previous, &Estimate::lo});
  visit("vs_previous_hi", Part{row.vs_previous, &Estimate::hi});
  visit("verdict", row.verdict);
  visit("vs_fa2", Part{row.vs_fa2, &Estimate::value});
  visit("vs_fa2_lo", Part{row.vs_fa2, &Estimate::lo});
  visit("vs_fa2_hi", Part{row.vs_fa2, &Estimate::hi});
  visit("max_err", row.max_err);
  visit("registers", row.registers);
  visit("spill_bytes", row.spill_bytes);
  visit("smem_bytes", row.smem_bytes);
  visit("heat", row.heat);
  visit("version", row.version);
  visit("source", row.source);
  visit("commit", row.commit);
  visit("date", row.date);
}

using Texts = std::vector<std::string>;  // one for each column

const Texts& column_names() {
  static const Texts all = [] {
    Texts names;
    const ResultRow any;
    for_each_column(any, [&](const char* name, const auto&) { names.emplace_back(name); });
    return names;
  }();
  return all;
}

Texts cells_of(const ResultRow& row) {
  Texts cells;
  for_each_column(row, [&](const char*, const auto& value) { cells.push_back(to_cell(value)); });
  return cells;
}

// ---- what this program asks of docs/results/schema.json, as it was when this was built. tools/results.py knows all of it ----

constexpr const char* SCHEMA =
#include "schema.hpp"
    ;

struct Rules {
  std::vector<std::string> required;
  std::map<std::string, double> ceilings;  // that bound a row with a share of a ceiling, or of a card below this sm
};

const Rules& rules() {
  static const Rules all = [] {
    const Json schema = Json::parse(SCHEMA)["results"];
    Rules rules{.required = schema["required"].texts(), .ceilings = {}};
    for (const auto& [ceiling, rule] : schema["ceilings"].members())
      rules.ceilings[ceiling] = rule["before_sm"].number().value_or(INFINITY);
    return rules;
  }();
  return all;
}

// The columns of a file with this first line, which may lack some of those that were added later; nothing for any other.
Texts columns_of(const std::string& header) {
  Texts present = column_names();
  const std::vector<std::string_view> named = split(header, ',');
  std::erase_if(present, [&](const std::string& column) {
    return std::ranges::find(rules().required, column) == rules().required.end() &&
           std::ranges::find(named, column) == named.end();
  });
  return std::ranges::equal(present, named) ? present : Texts{};
}

// ---- RFC 4180 --------------------------------------------------------------------------------------------------------

// The cells of one line, or nothing when a quote is left open or stands amid a cell.
std::optional<Texts> cells_of(const std::string& line) {
  Texts cells(1);
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == ',') {
      cells.emplace_back();
    } else if (line[i] != '"') {
      cells.back() += line[i];
    } else {
      if (!cells.back().empty()) return {};
      for (++i;; ++i) {
        if (i == line.size()) return {};
        if (line[i] == '"' && (i + 1 == line.size() || line[i + 1] != '"')) break;
        if (line[i] == '"') ++i;
        cells.back() += line[i];
      }
      if (i + 1 < line.size() && line[i + 1] != ',') return {};
    }
  }
  return cells;
}

// ---- what cannot be true ---------------------------------------------------------------------------------------------

Status check_ceilings(const std::vector<ResultRow>& rows, const std::string& file, const std::vector<int>& lines) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const ResultRow& row = rows[i];
    if (row.kind == "ceiling" || row.source != "measured") continue;
    double highest = 0;
    for (const ResultRow& ceiling : rows) {
      if (bounds(ceiling, row)) highest = std::max(highest, ceiling.tflops);
    }
    if (row.pct_ceiling.value_or(0) > 100) highest = 100 / *row.pct_ceiling * row.tflops;
    if (highest > 0 && row.tflops > highest) {
      return failure(ExitCode::check_failed, "{}:{}: {} claims {:g} TFLOPS, above this card's ceiling of {:g}", file,
                     lines[i], row.rung, row.tflops, highest);
    }
  }
  return {};
}

// What rows are added to: nothing in a file that is not there yet, and in a device.
Result<std::vector<ResultRow>> rows_before(const std::string& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored) || fs::file_size(file, ignored) == 0) return std::vector<ResultRow>();
  return read_csv(fs::path(file));
}

}  // namespace

bool bounds(const ResultRow& ceiling, const ResultRow& row) {
  if (ceiling.kind != "ceiling" || ceiling.gpu != row.gpu || ceiling.dtype != row.dtype) return false;
  const auto rule = rules().ceilings.find(ceiling.rung);
  return rule != rules().ceilings.end() &&
         (row.pct_ceiling || std::isinf(rule->second) || (row.sm > 0 && row.sm < rule->second));
}

bool can_bound(std::string_view ceiling) {
  return rules().ceilings.contains(std::string(ceiling));
}

std::string quoted(const std::string& cell) {
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string out = "\"";
  for (const char c : cell) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

std::string csv_header() {
  return fmt::format("{}", fmt::join(column_names(), ","));
}

std::string csv_line(const ResultRow& row) {
  Texts cells = cells_of(row);
  for (std::string& cell : cells) cell = ladder::quoted(cell);
  return fmt::format("{}", fmt::join(cells, ","));
}

Json to_json(const ResultRow& row) {
  Json object;
  for_each_column(row, [&]<class Value>(const char* name, const Value& value) {
    const std::string cell = to_cell(value);
    if constexpr (std::is_same_v<Value, bool>) {
      object.set(name, value);
    } else {
      object.set(name, cell.empty() ? Json() : std::is_same_v<Value, std::string> ? Json(cell) : Json::parse(cell));
    }
  });
  return object;
}

Result<std::vector<ResultRow>> read_csv(std::istream& text, const std::string& file) {
  int line_number = 0;
  const auto broken = [&](const std::string& what) {
    return failure(ExitCode::check_failed, "{}:{}: {}", file, line_number, what);
  };
  std::vector<ResultRow> rows;
  std::vector<int> lines;
  Texts present;
  for (std::string line; std::getline(text, line);) {
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line_number == 1) {
      present = columns_of(line);
      if (present.empty()) return broken("other columns than expected: " + csv_header());
      continue;
    }
    if (line.empty()) continue;
    const auto cells = cells_of(line);
    if (!cells) return broken("a quote that is not closed, or stands within a cell");
    if (cells->size() != present.size()) {
      return broken(fmt::format("{} fields, but the header has {}", cells->size(), present.size()));
    }
    ResultRow row;
    std::string wrong;
    size_t next = 0;
    for_each_column(row, [&]<class Value>(const char* name, Value&& value) {
      if (next == present.size() || present[next] != name) return;
      const std::string& cell = (*cells)[next++];
      if (FromCell{cell}(value) || !wrong.empty()) return;
      const bool is_flag = std::is_same_v<Value, bool&>;
      wrong = fmt::format("{} is '{}', which is {}", name, cell, is_flag ? "neither 0 nor 1" : "not a number");
    });
    if (!wrong.empty()) return broken(wrong);
    if (!row.problem.empty()) {
      const auto spec = parse_spec(row.problem);
      if (!spec) return broken(spec.error().first_line());
      row.shape = *spec;
    }
    rows.push_back(std::move(row));
    lines.push_back(line_number);
  }
  if (line_number == 0) {
    line_number = 1;
    return broken("empty; the first line names the columns: " + csv_header());
  }
  if (const Status believable = check_ceilings(rows, file, lines); !believable) return passed_on(believable);
  return rows;
}

Result<std::vector<ResultRow>> read_csv(const fs::path& file) {
  std::ifstream text(file);
  if (!text) {
    return usage("cannot read {}: {}", file.string(), std::strerror(errno));
  }
  return read_csv(text, file.string());
}

Status append_csv(const std::string& file, std::span<const ResultRow> rows, bool first) {
  const Result<std::vector<ResultRow>> known = rows_before(file);
  if (!known) return passed_on(known);
  std::error_code ignored;
  const bool special = file == "-" || (fs::exists(file, ignored) && !fs::is_regular_file(file, ignored));
  std::string text = special && !first ? "" : csv_header() + "\n";
  for (const ResultRow& old : *known) {
    const auto renews = [&](const ResultRow& row) {
      return row.rung == old.rung && row.kind == old.kind && row.source == old.source && row.same_measurement(old);
    };
    if (std::ranges::none_of(rows, renews)) text += csv_line(old) + "\n";
  }
  for (const ResultRow& row : rows) text += csv_line(row) + "\n";
  return write_text(file, text);
}

Status can_append_csv(const std::string& file) {
  const Result<std::vector<ResultRow>> known = rows_before(file);
  if (known) return {};
  return usage("{}\n  New rows go to the end of a results file; name another one.", known.error().message);
}

std::vector<ResultRow> recorded_results(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().stem().string();
    const bool is_companion = name.find('_') != std::string::npos || name == "mutants";  // which is of no card
    if (entry.path().extension() == ".csv" && !is_companion) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<ResultRow> all;
  for (const fs::path& file : files) {
    Result<std::vector<ResultRow>> rows = read_csv(file);
    if (!rows) {
      fmt::print(stderr, "Left out of the recorded figures: {}\n", rows.error().message);
      continue;
    }
    std::move(rows->begin(), rows->end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace ladder
