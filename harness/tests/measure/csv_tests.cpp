#include "harness/measure/csv.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/tests/catch.hpp"

using namespace ladder;
namespace fs = std::filesystem;

namespace {

ResultRow rung_row() {
  ResultRow row;
  row.rung = "93_longer";
  row.kind = "stage";
  row.gpu = "NVIDIA H200";
  row.sm = 90;
  row.driver = "580.95";
  row.cuda = "13.0";
  row.clock_mhz = 1755;
  row.power_w = 512.5;
  row.shape = {.batch = 16, .heads = 16, .n = 8192, .d = 128};
  row.inputs = "normal";
  row.regime = "turns";
  row.rounds = 20;
  row.ms_median = 27.4878;
  row.ms_p20 = 27.4;
  row.ms_p80 = 27.6;
  row.tflops = 320;
  row.flop_per_clk_sm = 1381.33;
  row.pct_ceiling = 50.4;
  row.previous = "92_quicker";
  row.vs_previous = Estimate{1.05, 1.04, 1.06};
  row.verdict = "faster";
  row.vs_fa2 = Estimate{0.92, 0.91, 0.93};
  row.max_err = 2.1e-5;
  row.registers = 204;
  row.spill_bytes = 0;
  row.smem_bytes = 81920;
  row.heat = 2;
  row.version = "pytorch 2.11";
  row.commit = "abc123";
  row.date = "2026-11-21";
  return row;
}

ResultRow ceiling_row(std::string name, double tflops) {
  ResultRow row = rung_row();
  row.rung = std::move(name);
  row.kind = "ceiling";
  row.tflops = tflops;
  row.pct_ceiling = {};
  row.vs_previous = row.vs_fa2 = {};
  row.previous = "";
  row.verdict = "";
  return row;
}

std::string file_of(std::initializer_list<ResultRow> rows) {
  std::string text = csv_header() + "\n";
  for (const ResultRow& row : rows) text += csv_line(row) + "\n";
  return text;
}

Result<std::vector<ResultRow>> read(const std::string& text) {
  std::istringstream in(text);
  return read_csv(in, "h200.csv");
}

// The message for a file whose only row has `from` replaced by `to`.
std::string complaint(const std::string& from, const std::string& to) {
  std::string text = file_of({rung_row()});
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  const auto rows = read(text.replace(at, from.size(), to));
  REQUIRE_FALSE(rows);
  return rows.error().message;
}

struct TemporaryDirectory {
  fs::path path = fs::temp_directory_path() / ("ladder_csv_tests." + std::to_string(::getpid()));
  TemporaryDirectory() { fs::create_directories(path); }
  ~TemporaryDirectory() { fs::remove_all(path); }
  std::string file(const std::string& name) const { return path / name; }
};

}  // namespace

TEST_CASE("the columns are those of the contract") {
  CHECK(csv_header() ==
        "stage,kind,gpu,sm,driver,cuda,clock_mhz,power_w,batch,heads,n,d,causal,dtype,problem,inputs,regime,rounds,"
        "ms_median,ms_p20,ms_p80,tflops,flop_per_clk_sm,pct_ceiling,previous,vs_previous,vs_previous_lo,vs_previous_hi,"
        "verdict,"
        "vs_fa2,"
        "vs_fa2_lo,vs_fa2_hi,max_err,registers,spill_bytes,smem_bytes,heat,version,source,commit,date");
}

TEST_CASE("rows survive the way to the disk and back") {
  ResultRow ablation = rung_row();
  ablation.rung = "92_quicker[64x32, \"2\" warps]";
  ablation.shape.causal = true;
  const ResultRow ceiling = ceiling_row("mma_sync", 635);
  const auto rows = read(file_of({rung_row(), ablation, ceiling}));
  REQUIRE(rows);
  REQUIRE(rows->size() == 3);
  CHECK((*rows)[1].rung == ablation.rung);
  CHECK((*rows)[1].shape == ablation.shape);
  CHECK((*rows)[0].vs_fa2 == rung_row().vs_fa2);
  CHECK_FALSE((*rows)[2].vs_previous);
  CHECK(csv_line((*rows)[0]) == csv_line(rung_row()));
  CHECK(csv_line((*rows)[1]) == csv_line(ablation));
  CHECK(csv_line((*rows)[2]) == csv_line(ceiling));
}

TEST_CASE("the JSON has the CSV's columns, with numbers as numbers") {
  const auto row = nlohmann::ordered_json::parse(to_json(ceiling_row("mma_sync", 635)).dump());
  std::string names;
  for (const auto& [name, value] : row.items()) names += (names.empty() ? "" : ",") + name;
  CHECK(names == csv_header());
  CHECK(row["stage"] == "mma_sync");
  CHECK(row["n"] == 8192);
  CHECK(row["tflops"] == 635);
  CHECK(row["causal"] == false);
  CHECK(row["vs_fa2"].is_null());
}

TEST_CASE("a broken file is refused with file, line and cause") {
  const auto ends_with = [](const std::string& text) { return EndsWith(text); };
  CHECK(complaint("320", "fast") == "h200.csv:2: tflops is 'fast', which is not a number");
  CHECK(complaint("320", "nan") == "h200.csv:2: tflops is 'nan', which is not a number");
  CHECK(complaint("320", "") == "h200.csv:2: tflops is '', which is not a number");
  CHECK(complaint(",20,", ",20.5,") == "h200.csv:2: rounds is '20.5', which is not a number");
  CHECK(complaint(",0,fp16", ",no,fp16") == "h200.csv:2: causal is 'no', which is neither 0 nor 1");
  CHECK(complaint(",abc123,", ",") == "h200.csv:2: 40 fields, but the header has 41");
  CHECK(complaint("abc123", "\"abc") == "h200.csv:2: a quote that is not closed, or stands within a cell");
  CHECK(complaint("abc123", "ab\"c\"") == "h200.csv:2: a quote that is not closed, or stands within a cell");
  CHECK_THAT(complaint("clock_mhz", "clock"), ends_with("other columns than expected: " + csv_header()));
  CHECK_THAT(read("").error().message, StartsWith("h200.csv:1: empty"));
}

TEST_CASE("a file from before a column was added is read, and grows it when rows are added") {
  const auto without = [](std::string text, const std::string& part) {
    const size_t at = text.find(part);
    REQUIRE(at != std::string::npos);
    return text.erase(at, part.size());
  };
  std::string old = file_of({rung_row()});
  for (const char* part : {"previous,", "92_quicker,", "heat,version,", "2,pytorch 2.11,", "problem,"})
    old = without(old, part);
  old.erase(old.find(",,normal"), 1);
  const auto rows = read(old);
  REQUIRE(rows);
  CHECK((*rows)[0].previous.empty());
  CHECK((*rows)[0].problem.empty());
  CHECK((*rows)[0].vs_previous == rung_row().vs_previous);
  CHECK((*rows)[0].date == rung_row().date);
  const TemporaryDirectory directory;
  const std::string file = directory.file("h200.csv");
  std::ofstream(file) << old;
  ResultRow burst = rung_row();
  burst.regime = "burst";
  REQUIRE(append_csv(file, std::vector{burst}, true));
  const auto grown = read_csv(fs::path(file));
  REQUIRE(grown);
  REQUIRE(grown->size() == 2);
  CHECK((*grown)[0].previous.empty());
  CHECK((*grown)[1].previous == "92_quicker");
}

TEST_CASE("a rate above the card's ceiling is an error, not a record") {
  ResultRow record = rung_row();
  record.tflops = 700;
  record.inputs = "peaky";
  const ResultRow mma = ceiling_row("mma_sync", 635), gemm = ceiling_row("cublas", 720);
  const auto refused = read(file_of({mma, rung_row(), record}));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message == "h200.csv:4: 93_longer claims 700 TFLOPS, above this card's ceiling of 635");

  SECTION("another card's ceiling does not count") {
    record.gpu = "NVIDIA B200";
    CHECK(read(file_of({mma, record})));
  }
  SECTION("nor does the loop of another element type") {
    ResultRow fp8 = ceiling_row("mma_sync", 1200);
    record.dtype = fp8.dtype = "e4m3";
    CHECK(read(file_of({mma, record})));
    CHECK(read(file_of({mma, fp8, record})));
    record.tflops = 1300;
    CHECK_FALSE(read(file_of({mma, fp8, record})));
  }
  SECTION("a peer may use faster instructions than mma.sync, and may beat a library, but not the loop of wgmma") {
    record.kind = "peer";
    record.rung = "cudnn_bhnd";
    record.pct_ceiling = {};
    CHECK(read(file_of({mma, record})));
    CHECK(read(file_of({mma, gemm, record})));
    record.tflops = 730;
    CHECK(read(file_of({mma, gemm, record})));
    CHECK(read(file_of({mma, gemm, ceiling_row("wgmma", 740), record})));
    CHECK_FALSE(read(file_of({mma, gemm, ceiling_row("wgmma", 725), record})));
    record.sm = 80;  // there nothing is faster than mma.sync
    CHECK_FALSE(read(file_of({mma, gemm, record})));
  }
  SECTION("a stage is held to its own instruction's loop, which its pct_ceiling names") {
    record.pct_ceiling = 100 * 700 / 840.0;
    CHECK(read(file_of({mma, ceiling_row("wgmma", 840), record})));
    CHECK_FALSE(read(file_of({mma, gemm, record})));  // 83 % of a ceiling that nobody measured
    record.pct_ceiling = 110.2;                       // of mma_sync: the faster loop does not excuse it
    CHECK_FALSE(read(file_of({mma, ceiling_row("wgmma", 840), record})));
    record.pct_ceiling = {};  // its loop did not run beside it, so none is known to bind it but the fastest
    CHECK(read(file_of({mma, record})));
    CHECK_FALSE(read(file_of({mma, ceiling_row("wgmma", 690), record})));
  }
}

TEST_CASE("a results file grows, and a new measurement replaces the old one of the same thing") {
  const TemporaryDirectory directory;
  const std::string file = directory.file("h200.csv");
  std::ofstream(file).close();  // empty, as a check for writability leaves it
  ResultRow other = rung_row();
  other.rung = "94_third";
  REQUIRE(append_csv(file, std::vector{rung_row(), other}, true));
  ResultRow again = rung_row();
  again.tflops = 321;
  ResultRow burst = rung_row(), windowed = rung_row();
  burst.regime = "burst";
  windowed.problem = "window=1023,0";
  REQUIRE(append_csv(file, std::vector{again, burst, windowed}, true));
  const auto rows = read_csv(fs::path(file));
  REQUIRE(rows);
  REQUIRE(rows->size() == 4);
  CHECK((*rows)[0].rung == "94_third");
  CHECK((*rows)[1].tflops == 321);
  CHECK((*rows)[2].regime == "burst");
  CHECK((*rows)[3].problem == "window=1023,0");
  CHECK(recorded_results(directory.path).size() == 4);
}

TEST_CASE("a file that holds something else is not overwritten") {
  const TemporaryDirectory directory;
  const std::string file = directory.file("thesis.txt");
  std::ofstream(file) << "years of work\n";
  const Status status = append_csv(file, std::vector{rung_row()}, true);
  REQUIRE_FALSE(status);
  CHECK_THAT(status.error().message, Contains("thesis.txt:1: other columns than expected"));
  std::string kept;
  std::getline(std::ifstream(file) >> std::ws, kept);
  CHECK(kept == "years of work");
}

TEST_CASE("a full disk and a missing directory are clear errors") {
  const Status full = append_csv("/dev/full", std::vector{rung_row()}, true);
  REQUIRE_FALSE(full);
  CHECK(full.error().message ==
        "cannot write /dev/full: No space left on device\n  Free some space, or name a file on another disk.");
  CHECK(full.error().code == ExitCode::check_failed);
  const Status missing = append_csv("/no/such/directory/h200.csv", std::vector{rung_row()}, true);
  REQUIRE_FALSE(missing);
  CHECK_THAT(missing.error().message, Contains("No such file or directory"));
}

TEST_CASE("a directory without results is no error, and a broken file in it hides no other") {
  const TemporaryDirectory directory;
  CHECK(recorded_results(directory.path / "none").empty());
  std::ofstream(directory.file("a_counters.csv")) << "columns,of,its,own\n";
  CHECK(recorded_results(directory.path).empty());
  std::ofstream(directory.file("a.csv")) << "nonsense\n";
  std::ofstream(directory.file("h200.csv")) << file_of({rung_row()});
  CHECK(recorded_results(directory.path).size() == 1);
}
