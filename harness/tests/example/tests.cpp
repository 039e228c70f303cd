// What a formula and a rung of it get without a change to anything outside of this directory: checks, counts, times, tables.
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/tests/catch.hpp"

namespace {

struct Run {
  int code = 0;
  std::string out;
};

// The program with this directory's rungs and the fake card; standard error goes with standard output, or nowhere.
Run ladder(const std::string& words, bool with_errors = true) {
  Run run;
  std::FILE* pipe = popen(("'" EXAMPLE_LADDER "' " + words + (with_errors ? " 2>&1" : " 2>/dev/null")).c_str(), "r");
  std::array<char, 4096> text;
  while (const size_t read = fread(text.data(), 1, text.size(), pipe)) run.out.append(text.data(), read);
  const int status = pclose(pipe);
  run.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  UNSCOPED_INFO(words << "\n" << run.out);
  return run;
}

}  // namespace

TEST_CASE("its rung is described by what it accepts") {
  const Run run = ladder("describe --json -", false);
  REQUIRE(run.code == 0);
  const auto rung = nlohmann::json::parse(run.out)[0];
  CHECK(rung["stage"] == "90_classify");
  CHECK(rung["variants"][0]["dtype"] == "bf16");
  CHECK(rung["variants"][0]["formula"] == "classify");
  CHECK(rung["variants"][0]["problems"] == nlohmann::json({"dense", "strides"}));
}

TEST_CASE("it is checked, with its own hostile problems, and one wrong number of one output is found") {
  const Run right = ladder("check 90 --on cpu --json -", false);
  REQUIRE(right.code == 0);
  const auto results = nlohmann::json::parse(right.out);
  std::vector<std::string> problems;
  for (const auto& result : results) {
    problems.push_back(result["problem"]);
    CHECK(result["ok"] == true);
    CHECK(result["outputs"].size() == 2);  // each with its own tolerance
    CHECK(result["outputs"][0]["tolerance"].get<double>() > 10 * result["outputs"][1]["tolerance"].get<double>());
  }
  REQUIRE(problems.size() == 6);
  CHECK_THAT(problems.front(), StartsWith("classify ") && Contains(" bf16"));
  CHECK_THAT(problems[4], Contains("pad=8"));
  CHECK_THAT(problems[5], Contains("pad="));  // rows far apart

  const Run wrong = ladder("check 91 --on cpu --json -", false);
  REQUIRE(wrong.code == 1);
  std::string said;
  for (const auto& result : nlohmann::json::parse(wrong.out)) {
    for (const auto& failure : result["failures"]) said += failure["message"].get<std::string>() + "\n";
  }
  CHECK_THAT(said, Contains("L: max error ") && Contains("head 1, row 0, column 3"));
  CHECK_THAT(said, Contains("a write between the rows of Y"));
}

TEST_CASE("it is explained: what it counts, and what its formula says of bytes") {
  const Run run = ladder("explain 90");
  CHECK(run.code == 0);
  CHECK_THAT(run.out, Contains("classify b=1 h=1 n=512 d=128 bf16") && Contains("IO model: each tensor once"));
}

TEST_CASE("it is timed on a card, in a table and a row that say the problem, and not when it is wrong there") {
  const Run run = ladder("bench 90 --no-peers --batch 1 --heads 2 --n 64 --rounds 2 --soak 0 --json -", false);
  REQUIRE(run.code == 0);
  const auto rows = nlohmann::json::parse(run.out);
  const auto& row = rows[0];
  CHECK(row["stage"] == "90_classify");
  CHECK(row["problem"] == "classify b=1 h=2 n=64 d=128 bf16");
  CHECK(row["dtype"] == "bf16");
  CHECK(row["tflops"].get<double>() * row["ms_median"].get<double>() * 1e9 ==
        Approx(2.0 * 2 * 64 * 128 * 16).epsilon(1e-3));
  const Run table =
      ladder("bench 90 --no-peers --batch 1 --heads 2 --n 64 --rounds 2 --soak 0 --problem 'layout=bnhd pad=8'");
  CHECK(table.code == 0);
  CHECK_THAT(table.out, Contains("classify b=1 h=2 n=64 d=128 bf16 layout=bnhd pad=8") && Contains("90_classify"));
  setenv("FAKE_GPU_WRONG", "90_classify", 1);
  const Run wrong = ladder("bench 90 --no-peers --batch 1 --heads 2 --n 64 --rounds 2 --soak 0");
  unsetenv("FAKE_GPU_WRONG");
  CHECK(wrong.code == 1);
  CHECK_THAT(wrong.out, Contains("90_classify: not timed: wrong: "));
  setenv("FAKE_GPU_STALE", "90_classify", 1);
  const Run stale = ladder("bench 90 --no-peers --batch 1 --heads 2 --n 64 --rounds 2 --soak 0");
  unsetenv("FAKE_GPU_STALE");
  CHECK(stale.code == 1);
  CHECK_THAT(stale.out, Contains("wrong in a timed group"));
}

TEST_CASE("what its rung does not take is refused in one sentence") {
  const Run run = ladder("check 90 --problem 'fp16 causal kv=2 d=300'");
  CHECK(run.code == 2);
  for (const char* part :
       {"has no causal mask", "as many heads of keys", "takes Q, K and V, and O in bf16, not in fp16",
        "needs a head dimension of 1 to 256 (d=300 is not)", "No stage does all of that."}) {
    CHECK_THAT(run.out, Contains(part));
  }
  CHECK_THAT(ladder("check 90 --problem forward").out, Contains("solves classify and not forward"));
  const Run padded = ladder("check 90 --problem pad=1");
  CHECK(padded.code == 2);
  CHECK_THAT(padded.out, Contains("needs 16 bytes or a multiple behind each row (pad=1 are 2)"));
}
