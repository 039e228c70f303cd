#include "harness/measure/csv.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <type_traits>

#include "harness/base/process.hpp"
#include "harness/base/text.hpp"
#include "harness/problem/shapes.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;

// ---- the columns: each knows its name and how a row's cell becomes text and back -----------------------------------

enum class CellType { text, integer, number, flag };

struct Column {
  const char* name;
  CellType type;
  std::string (*write)(const ResultRow&);
  bool (*read)(ResultRow&, const std::string&);  // false: not a number
};

template <class T>
bool parse(const std::string& cell, T& value) {
  const auto number = number_in<T>(cell);
  if (number) value = *number;
  return number && std::isfinite(static_cast<double>(value));
}

// Six significant digits: a tenth of a clock's resolution, and the same text after a second write.
std::string number(double value) {
  return fmt::format("{:.6g}", value);
}
std::string number(int value) {
  return fmt::format("{}", value);
}

template <auto FIELD>
constexpr Column text(const char* name) {
  return {name, CellType::text, [](const ResultRow& row) { return row.*FIELD; },
          [](ResultRow& row, const std::string& cell) { return row.*FIELD = cell, true; }};
}

// Counts and sizes, of a row or of its shape: 0 and an empty cell are the same, "not known".
template <auto FIELD>
auto& count_of(auto& row) {
  if constexpr (requires { row.*FIELD; }) {
    return row.*FIELD;
  } else {
    return row.shape.*FIELD;
  }
}
template <auto FIELD>
constexpr Column count(const char* name) {
  return {name, CellType::integer,
          [](const ResultRow& row) {
            const int value = count_of<FIELD>(row);
            return value == 0 ? std::string() : number(value);
          },
          [](ResultRow& row, const std::string& cell) {
            count_of<FIELD>(row) = 0;
            return cell.empty() || parse(cell, count_of<FIELD>(row));
          }};
}

template <auto FIELD>
constexpr Column optional(const char* name) {
  constexpr bool whole = std::is_same_v<decltype(FIELD), std::optional<int> ResultRow::*>;
  return {name, whole ? CellType::integer : CellType::number,
          [](const ResultRow& row) { return row.*FIELD ? number(*(row.*FIELD)) : std::string(); },
          [](ResultRow& row, const std::string& cell) { return cell.empty() || parse(cell, (row.*FIELD).emplace()); }};
}

template <auto FIELD, double Estimate::*PART>
constexpr Column estimate(const char* name) {
  return {name, CellType::number,
          [](const ResultRow& row) { return row.*FIELD ? number((*(row.*FIELD)).*PART) : std::string(); },
          [](ResultRow& row, const std::string& cell) {
            if (cell.empty()) return true;
            if (!(row.*FIELD)) (row.*FIELD).emplace();
            return parse(cell, (*(row.*FIELD)).*PART);
          }};
}

using R = ResultRow;
constexpr Column COLUMNS[] = {
    text<&R::rung>("stage"),
    text<&R::kind>("kind"),
    text<&R::gpu>("gpu"),
    count<&R::sm>("sm"),
    text<&R::driver>("driver"),
    text<&R::cuda>("cuda"),
    optional<&R::clock_mhz>("clock_mhz"),
    optional<&R::power_w>("power_w"),
    count<&Shape::batch>("batch"),
    count<&Shape::heads>("heads"),
    count<&Shape::n>("n"),
    count<&Shape::d>("d"),
    {"causal", CellType::flag, [](const R& row) { return std::string(row.shape.causal ? "1" : "0"); },
     [](R& row, const std::string& cell) {
       row.shape.causal = cell == "1" || cell == "true";
       return row.shape.causal || cell == "0" || cell == "false";
     }},
    text<&R::dtype>("dtype"),
    text<&R::problem>("problem"),
    text<&R::inputs>("inputs"),
    text<&R::regime>("regime"),
    count<&R::rounds>("rounds"),
    optional<&R::ms_median>("ms_median"),
    optional<&R::ms_p20>("ms_p20"),
    optional<&R::ms_p80>("ms_p80"),
    {"tflops", CellType::number, [](const R& row) { return number(row.tflops); },
     [](R& row, const std::string& cell) { return parse(cell, row.tflops); }},
    optional<&R::flop_per_clk_sm>("flop_per_clk_sm"),
    optional<&R::pct_ceiling>("pct_ceiling"),
    text<&R::previous>("previous"),
    estimate<&R::vs_previous, &Estimate::value>("vs_previous"),
    estimate<&R::vs_previous, &Estimate::lo>("vs_previous_lo"),
    estimate<&R::vs_previous, &Estimate::hi>("vs_previous_hi"),
    text<&R::verdict>("verdict"),
    estimate<&R::vs_fa2, &Estimate::value>("vs_fa2"),
    estimate<&R::vs_fa2, &Estimate::lo>("vs_fa2_lo"),
    estimate<&R::vs_fa2, &Estimate::hi>("vs_fa2_hi"),
    optional<&R::max_err>("max_err"),
    optional<&R::registers>("registers"),
    optional<&R::spill_bytes>("spill_bytes"),
    optional<&R::smem_bytes>("smem_bytes"),
    count<&R::heat>("heat"),
    text<&R::version>("version"),
    text<&R::source>("source"),
    text<&R::commit>("commit"),
    text<&R::date>("date"),
};

// ---- the rules: those of docs/results/schema.json, as it was when this was built ---------------------------------------

constexpr const char* SCHEMA =
#include "schema.hpp"
    ;

// What one cell may hold.
struct Rule {
  const Column* column;
  std::string description;
  std::vector<std::string> words;  // one of these, where there are any
  bool may_be_empty = true;
  double above = -INFINITY, most = INFINITY;
};

struct Rules {
  std::vector<Rule> cells;
  std::vector<std::string> required;
  std::vector<const Column*> identity;
  std::vector<std::vector<const Column*>> ordered;  // whose cells grow from left to right
  std::map<std::string, double> ceilings;  // that bound a row with a share of a ceiling, or of a card below this sm
};

// Asked once, and not for each row of thousands.
std::vector<const Column*> columns_called(std::span<const std::string> names) {
  std::vector<const Column*> found;
  for (const std::string& name : names) found.push_back(std::ranges::find(COLUMNS, name, &Column::name));
  return found;
}

Rules read_rules() {
  const Json schema = Json::parse(SCHEMA).value()["results"];
  Rules rules{.cells = {},
              .required = schema["required"].texts(),
              .identity = columns_called(schema["identity"].texts()),
              .ordered = {},
              .ceilings = {}};
  for (const auto& [name, rule] : schema["properties"].members()) {
    const bool any_text = rule["type"].text() == "string" && !rule["minLength"].number();
    rules.cells.push_back({.column = columns_called({&name, 1}).front(),
                           .description = rule["description"].text().value_or(""),
                           .words = rule["enum"].texts(),
                           .may_be_empty = any_text || rule["type"].is_array(),
                           .above = rule["exclusiveMinimum"].number().value_or(-INFINITY),
                           .most = rule["maximum"].number().value_or(INFINITY)});
  }
  for (const Json& columns : schema["ordered"].elements()) rules.ordered.push_back(columns_called(columns.texts()));
  for (const auto& [ceiling, rule] : schema["ceilings"].members()) {
    rules.ceilings[ceiling] = rule["before_sm"].number().value_or(INFINITY);
  }
  return rules;
}

const Rules& rules() {
  static const Rules results = read_rules();
  return results;
}

// ---- the first line ---------------------------------------------------------------------------------------------------

std::string header_of(std::span<const Column> columns) {
  std::string line;
  for (const Column& column : columns) line += (line.empty() ? "" : ",") + std::string(column.name);
  return line;
}

// The columns of a file with this first line, which may lack some of those that were added later; nothing for any other.
std::vector<Column> columns_of(const std::string& header) {
  std::vector<Column> present(std::begin(COLUMNS), std::end(COLUMNS));
  const std::string named = "," + header + ",";
  std::erase_if(present, [&](const Column& column) {
    return std::ranges::find(rules().required, column.name) == rules().required.end() &&
           named.find("," + std::string(column.name) + ",") == std::string::npos;
  });
  return header == header_of(present) ? present : std::vector<Column>{};
}

// ---- RFC 4180 --------------------------------------------------------------------------------------------------------

// The cells of one line, or nothing when a quote is left open or stands amid a cell.
std::optional<std::vector<std::string>> split(const std::string& line) {
  std::vector<std::string> cells(1);
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

std::optional<double> number_of(const std::string& cell) {
  double value = 0;
  if (!parse(cell, value)) return {};
  return value;
}

// "stage, peer or ceiling"
std::string listed(std::vector<std::string> words) {
  std::erase(words, "");
  const std::string last = words.back();
  words.pop_back();
  return fmt::format("{} or {}", fmt::join(words, ", "), last);
}

// Empty when the row is believable by itself.
std::string fault(const ResultRow& row) {
  for (const Rule& rule : rules().cells) {
    const bool is_bounded = !std::isinf(rule.above) || !std::isinf(rule.most);
    if (rule.words.empty() && rule.may_be_empty && !is_bounded) continue;
    const std::string cell = rule.column->write(row);
    if (!rule.words.empty()) {
      if (std::ranges::find(rule.words, cell) != rule.words.end()) continue;
      return fmt::format("{} is '{}'; expected {}", rule.column->name, cell, listed(rule.words));
    }
    if (!rule.may_be_empty && cell.empty()) return fmt::format("no {}", rule.column->name);
    if (!is_bounded) continue;
    if (const auto value = number_of(cell); value && !(*value > rule.above && *value <= rule.most)) {
      return fmt::format("{} is {:g}; {}", rule.column->name, *value, rule.description);
    }
  }
  for (const std::vector<const Column*>& ordered : rules().ordered) {
    std::vector<double> known;
    std::vector<std::string_view> names;
    for (const Column* column : ordered) {
      names.push_back(column->name);
      if (const auto value = number_of(column->write(row))) known.push_back(*value);
    }
    if (!std::ranges::is_sorted(known)) return fmt::format("{} does not hold", fmt::join(names, " <= "));
  }
  return {};
}

Status check_ceilings(const std::vector<ResultRow>& rows, const std::string& file, const std::vector<int>& lines) {
  std::vector<const ResultRow*> ceilings;
  for (const ResultRow& row : rows) {
    if (row.kind == "ceiling") ceilings.push_back(&row);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const ResultRow& row = rows[i];
    if (row.kind == "ceiling" || row.source != "measured") continue;
    double highest = 0;
    for (const ResultRow* ceiling : ceilings) {
      if (bounds(*ceiling, row)) highest = std::max(highest, ceiling->tflops);
    }
    if (highest > 0 && row.tflops > highest) {
      return failure(ExitCode::check_failed,
                     fmt::format("{}:{}: {} claims {:g} TFLOPS, above this card's ceiling of {:g}", file, lines[i],
                                 row.rung, row.tflops, highest));
    }
  }
  return {};
}

// What a row is a measurement of: equal for two that cannot stand in one file.
std::string identity(const ResultRow& row) {
  std::string key;
  for (const Column* column : rules().identity) key += column->write(row) + '\n';
  return key;
}

// ---- files -----------------------------------------------------------------------------------------------------------

Status cannot_write(const std::string& file, int error) {
  const std::string_view way_out = error == ENOSPC ? "\n  Free some space, or name a file on another disk." : "";
  return failure(ExitCode::check_failed, fmt::format("cannot write {}: {}{}", file, std::strerror(error), way_out));
}

Status write_all(int descriptor, std::string_view text, const std::string& file) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return cannot_write(file, errno);
    text.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

// Writes a whole file. A regular file is replaced only once the new text is safe on the disk.
Status replace_file(const std::string& file, std::string_view text) {
  if (file == "-") return write_all(STDOUT_FILENO, text, "standard output");
  std::error_code ignored;
  const bool special = fs::exists(file, ignored) && !fs::is_regular_file(file, ignored);
  const std::string target = special ? file : file + ".new";
  {
    const Descriptor out(::open(target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (out.get() < 0) return cannot_write(target, errno);
    Status written = write_all(out.get(), text, file);
    if (written && !special && ::fsync(out.get()) != 0) written = cannot_write(file, errno);
    if (!written) {
      if (!special) fs::remove(target, ignored);
      return written;
    }
  }
  if (!special && ::rename(target.c_str(), file.c_str()) != 0) return cannot_write(file, errno);
  return {};
}

}  // namespace

bool bounds(const ResultRow& ceiling, const ResultRow& row) {
  if (ceiling.kind != "ceiling" || ceiling.gpu != row.gpu || ceiling.dtype != row.dtype) return false;
  const auto rule = rules().ceilings.find(ceiling.rung);
  if (rule == rules().ceilings.end()) return false;
  return row.pct_ceiling || std::isinf(rule->second) || (row.sm > 0 && row.sm < rule->second);
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
  return header_of(COLUMNS);
}

std::string csv_line(const ResultRow& row) {
  std::string line;
  for (const Column& column : COLUMNS) line += quoted(column.write(row)) + ",";
  line.pop_back();
  return line;
}

Json to_json(const ResultRow& row) {
  Json object;
  for (const Column& column : COLUMNS) {
    const std::string cell = column.write(row);
    if (column.type == CellType::flag) {
      object.set(column.name, cell == "1");
    } else if (cell.empty()) {
      object.set(column.name, {});
    } else if (column.type != CellType::text) {
      object.set(column.name, Json::parse(cell).value());
    } else {
      object.set(column.name, cell);
    }
  }
  return object;
}

Result<std::vector<ResultRow>> read_csv(std::istream& text, const std::string& file) {
  int line_number = 0;
  const auto broken = [&](const std::string& what) {
    return failure(ExitCode::check_failed, fmt::format("{}:{}: {}", file, line_number, what));
  };
  std::vector<ResultRow> rows;
  std::vector<int> lines;
  std::map<std::string, int> known;
  std::vector<Column> present;
  for (std::string line; std::getline(text, line);) {
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!is_utf8(line)) return broken("not a text file in UTF-8");  // as the plots and the site want it
    if (line.find('\0') != std::string::npos) return broken("a NUL character; this is no text");
    if (line_number == 1) {
      present = columns_of(line);
      if (present.empty()) return broken("other columns than expected: " + csv_header());
      continue;
    }
    if (line.empty()) continue;
    const auto cells = split(line);
    if (!cells) return broken("a quote that is not closed, or stands within a cell");
    if (cells->size() != present.size()) {
      return broken(fmt::format("{} fields, but the header has {}", cells->size(), present.size()));
    }
    ResultRow row;
    for (size_t i = 0; i < present.size(); ++i) {
      if (present[i].read(row, (*cells)[i])) continue;
      const bool flag = present[i].type == CellType::flag;
      return broken(fmt::format("{} is '{}', which is {}", present[i].name, (*cells)[i],
                                flag ? "neither 0 nor 1" : "not a number"));
    }
    if (const std::string wrong = fault(row); !wrong.empty()) return broken(wrong);
    if (!row.problem.empty()) {
      const auto spec = parse_spec(row.problem);
      if (!spec) return broken(spec.error().first_line());
      row.shape = *spec;
    }
    if (const auto [same, is_new] = known.emplace(identity(row), line_number); !is_new) {
      return broken(fmt::format("repeats line {}: {}, the same measurement", same->second, row.rung));
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
    return failure(ExitCode::usage, fmt::format("cannot read {}: {}", file.string(), std::strerror(errno)));
  }
  return read_csv(text, file.string());
}

Status append_csv(const std::string& file, std::span<const ResultRow> rows, bool first) {
  std::error_code ignored;
  const bool regular = fs::is_regular_file(file, ignored);
  const bool special = file == "-" || (!regular && fs::exists(file, ignored));
  std::string text = special && !first ? "" : csv_header() + "\n";
  if (regular && fs::file_size(file, ignored) > 0) {
    const Result<std::vector<ResultRow>> known = read_csv(fs::path(file));
    if (!known) return passed_on(known);
    std::set<std::string> renewed;
    for (const ResultRow& row : rows) renewed.insert(identity(row));
    for (const ResultRow& old : *known) {
      if (!renewed.contains(identity(old))) text += csv_line(old) + "\n";
    }
  }
  for (const ResultRow& row : rows) text += csv_line(row) + "\n";
  return replace_file(file, text);
}

Status append_text(const std::string& file, const std::string& header, const std::string& lines) {
  std::error_code ignored;
  const bool is_new =
      !fs::exists(file, ignored) || (fs::is_regular_file(file, ignored) && fs::file_size(file, ignored) == 0);
  const Descriptor out(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (out.get() < 0) return cannot_write(file, errno);
  const uintmax_t before = is_new ? 0 : fs::file_size(file, ignored);
  Status written = write_all(out.get(), (is_new ? header : "") + lines, file);
  if (!written && fs::is_regular_file(file, ignored)) fs::resize_file(file, before, ignored);  // no half of it stays
  return written;
}

Status can_append_csv(const std::string& file) {
  std::error_code ignored;
  if (file.empty() || !fs::is_regular_file(file, ignored) || fs::file_size(file, ignored) == 0) return {};
  const Result<std::vector<ResultRow>> known = read_csv(fs::path(file));
  if (known) return {};
  return failure(ExitCode::usage,
                 known.error().message + "\n  New rows go to the end of a results file; name another one.");
}

Status write_json(const std::string& file, std::span<const ResultRow> rows) {
  Json array = Json::array();
  for (const ResultRow& row : rows) array.push_back(to_json(row));
  return replace_file(file, array.dump(1) + "\n");
}

Result<std::vector<ResultRow>> recorded_results(const fs::path& directory) {
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
