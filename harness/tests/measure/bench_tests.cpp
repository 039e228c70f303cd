// From simulated timings to the table: pairing, ceilings, ablations, and what is said without a GPU.
#include "harness/problem/formula.hpp"
#include "harness/problem/spec.hpp"
#include "harness/verbs/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "harness/base/files.hpp"
#include "harness/measure/heats.hpp"
#include "harness/measure/results_table.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/tests/catch.hpp"
#include "harness/verbs/compare.hpp"

using namespace ladder;

namespace {

constexpr const char* TILE = "64x128, 4 warps";
const double FLOPS = flops_of(HEADLINE);

// A contestant at a rate, with the times of `rounds` rounds in which the card slows by a tenth.
struct Simulated {
  Entry entry;
  Timing timing;
};

Simulated simulated(std::string name, std::string kind, double tflops, int rounds = 20) {
  Simulated s{.entry = {.name = std::move(name), .kind = std::move(kind), .flops = FLOPS}, .timing = {}};
  for (int round = 0; round < rounds; ++round) {
    const double slowdown = 1 + 0.1 * round / 20 - 0.05;
    s.timing.ms.push_back(FLOPS / (tflops * 1e9) * slowdown);
    s.timing.before.push_back(-1);
    s.timing.clock_mhz.push_back(1800 / slowdown);
  }
  return s;
}

Simulated rung(const std::string& name, double tflops, const std::string& variant = TILE, bool is_default = true,
               const std::string& previous = "") {
  Simulated s = simulated(is_default ? name : name + "[" + variant + "]", "stage", tflops);
  s.entry.rung = name;
  s.entry.variant = variant;
  s.entry.is_default = is_default;
  s.entry.own = {"mma_sync", FLOPS};
  s.entry.previous = previous;
  return s;
}

const RunFacts FACTS{.gpu = "NVIDIA H200",
                     .sm = 90,
                     .processors = 132,
                     .driver = "580.95",
                     .cuda = "13.0",
                     .shape = HEADLINE,
                     .problem = {},
                     .inputs = "normal",
                     .regime = "turns",
                     .commit = "abc",
                     .date = "2026-11-21"};

// One heat of all of them.
struct Run {
  std::vector<Entry> entries;
  HeatRun heat{.number = 1, .own = {}, .all = {}, .timings = {.timings = {}, .balanced = true}};

  explicit Run(std::vector<Simulated> all) {
    for (Simulated& s : all) {
      heat.own.push_back(entries.size());
      entries.push_back(std::move(s.entry));
      heat.timings.timings.push_back(std::move(s.timing));
    }
    heat.all = heat.own;
  }
  Results results(std::string_view versus = "fa2") const { return evaluate(entries, heat, FACTS, versus); }
  std::string tables() const {
    std::vector<std::optional<double>> rates;
    for (size_t i = 0; i < entries.size(); ++i) {
      rates.push_back(entries[i].flops / (median(heat.timings.timings[i].ms) * 1e9));
    }
    return ablation_tables(entries, rates, results().ratios);
  }
};

const ResultRow& row(const Results& results, std::string_view name) {
  for (const ResultRow& candidate : results.rows) {
    if (candidate.rung == name) return candidate;
  }
  FAIL("no row " << name);
  throw 0;
}

}  // namespace

TEST_CASE("a row's figures follow from its rounds") {
  const Results results = Run({rung("92_quicker", 300), simulated("mma_sync", "ceiling", 600)}).results();
  REQUIRE(results.ok);
  const ResultRow& quicker = row(results, "92_quicker");
  CHECK(quicker.rounds == 20);
  CHECK(quicker.tflops == Approx(300).epsilon(0.01));
  CHECK(*quicker.ms_p20 < *quicker.ms_median);
  CHECK(*quicker.ms_p80 > *quicker.ms_median);
  CHECK(*quicker.pct_ceiling == Approx(50));
  CHECK_FALSE(quicker.power_w);  // nobody averaged it over this work
  CHECK(quicker.heat == 1);
  // 300 TFLOPS over 132 SMs at 1800 MHz, whatever the card slowed to.
  CHECK(*quicker.flop_per_clk_sm == Approx(300e12 / 132 / 1800e6).epsilon(1e-6));
  CHECK_FALSE(quicker.vs_previous);
  CHECK_FALSE(row(results, "mma_sync").pct_ceiling);
}

TEST_CASE("ratios pair a stage with the one that it starts from and with FA2, by TFLOPS") {
  const Results results =
      Run({rung("91_slow", 100), rung("92_quicker", 300, TILE, true, "91_slow"),
           rung("93_longer", 300.3, TILE, true, "92_quicker"), rung("95_fifth", 310, TILE, true, "94_third"),
           rung("97_branch", 200, TILE, true, "91_slow"), simulated("fa2", "peer", 400),
           simulated("cudnn_bhnd", "peer", 600)})
          .results();
  CHECK_FALSE(row(results, "91_slow").vs_previous);
  CHECK(row(results, "91_slow").previous.empty());
  CHECK(row(results, "92_quicker").vs_previous->value == Approx(3));
  CHECK(row(results, "92_quicker").verdict == "faster");
  CHECK(row(results, "92_quicker").previous == "91_slow");
  CHECK(row(results, "93_longer").vs_previous->value == Approx(1.001));
  CHECK(row(results, "93_longer").verdict == "same");  // its interval is narrow, but the gain is below 0.2 %
  CHECK_FALSE(row(results, "95_fifth").vs_previous);   // 94 is not in the run, and 93 is no substitute
  CHECK(row(results, "95_fifth").previous.empty());
  CHECK(row(results, "95_fifth").verdict.empty());
  CHECK(row(results, "97_branch").vs_previous->value == Approx(2));  // whoever stands between
  CHECK(row(results, "92_quicker").vs_fa2->value == Approx(0.75));
  CHECK(row(results, "cudnn_bhnd").vs_fa2->value == Approx(1.5));
  CHECK_FALSE(row(results, "fa2").vs_fa2);
  CHECK_FALSE(row(results, "fa2").vs_previous);
}

TEST_CASE("a variant is compared with the same tile shape of the stage that it starts from") {
  const Results results =
      Run({rung("91_slow", 50, "64x32, 2 warps"), rung("92_quicker", 300, "64x128, 4 warps", true, "91_slow"),
           rung("92_quicker", 100, "64x32, 2 warps", false, "91_slow"),
           rung("92_quicker", 120, "32x32, 2 warps", false, "91_slow")})
          .results();
  CHECK(row(results, "92_quicker").vs_previous->value == Approx(6));
  CHECK(row(results, "92_quicker[64x32, 2 warps]").vs_previous->value == Approx(2));
  CHECK(row(results, "92_quicker[64x32, 2 warps]").previous == "91_slow");
  CHECK_FALSE(row(results, "92_quicker[32x32, 2 warps]").vs_previous);
}

TEST_CASE("a rate above its own instruction's ceiling is reported and gets no row") {
  const Results results =
      Run({rung("92_quicker", 700), simulated("fa2", "peer", 650), simulated("mma_sync", "ceiling", 635)}).results();
  CHECK_FALSE(results.ok);
  REQUIRE(results.rows.size() == 2);
  CHECK(results.rows[0].rung == "fa2");  // a peer need not use mma.sync
  REQUIRE(results.notes.size() == 1);
  CHECK_THAT(results.notes[0], Contains("92_quicker: ") && Contains("above the ceiling of"));

  // A library is no bound, neither for a peer nor for a rung.
  Simulated wgmma_stage = rung("20_rung", 780);
  wgmma_stage.entry.own = {"wgmma", FLOPS};
  std::vector<Simulated> all{wgmma_stage, simulated("fa3", "peer", 770), simulated("mma_sync", "ceiling", 635),
                             simulated("cublas", "ceiling", 750)};
  const Results without_loop = Run(all).results();
  CHECK(without_loop.ok);
  CHECK(without_loop.rows.size() == 4);
  CHECK_FALSE(row(without_loop, "20_rung").pct_ceiling);
  all.push_back(simulated("wgmma", "ceiling", 840));
  const Results with_loop = Run(all).results();
  CHECK(with_loop.ok);
  CHECK(*row(with_loop, "20_rung").pct_ceiling == Approx(100 * 780 / 840.0));
  CHECK_FALSE(row(with_loop, "fa3").pct_ceiling);
  // The loop of a faster instruction is no licence for a rung that uses mma.sync.
  all.push_back(rung("92_quicker", 700));
  all.push_back(simulated("magic", "peer", 850));
  const Results refused = Run(all).results();
  CHECK_FALSE(refused.ok);
  REQUIRE(refused.notes.size() == 2);
  CHECK_THAT(refused.notes[0], Contains("92_quicker: ") && Contains("above the ceiling of 636.6"));
  CHECK_THAT(refused.notes[1], Contains("magic: ") && Contains("above the ceiling of 842.1"));
}

TEST_CASE("a stage is bound by the loop of what it is predicted to execute") {
  Variant variant;
  CHECK(own_work(variant, HEADLINE).loop == "mma_sync");
  CHECK(own_work(variant, HEADLINE).work == FLOPS);
  variant.predict = [](const Shape&) { return Counts{.mma = 8}; };
  CHECK(own_work(variant, HEADLINE).loop == "mma_sync");
  variant.predict = [](const Shape&) { return Counts{.wgmma = 8}; };
  CHECK(own_work(variant, HEADLINE).loop == "wgmma");
  // One query for each of 64 sequences of 8192 keys: K and V, each once, 2 bytes an element; and queries and outputs.
  const Spec decoding = parse_spec("b=64 h=32 kv=8 nq=1 nk=8192 d=128 bf16").value();
  CHECK(own_work(variant, decoding).loop == "dram_read");
  CHECK(own_work(variant, decoding).work == 2.0 * 2 * 64 * 8 * 8192 * 128 + 2.0 * 2 * 64 * 32 * 128);
  CHECK(own_work(variant, parse_spec("b=2 h=32 kv=8 nq=1 nk=8192 d=128 bf16").value()).loop == "wgmma");  // in L2
  CHECK(own_work(variant, parse_spec("b=64 h=32 kv=8 nq=64 nk=8192 d=128 bf16").value()).loop == "wgmma");
}

TEST_CASE("a row of reads is bound by the loop that reads, and a product's loop is no bound of it") {
  Simulated decoding = rung("92_quicker", 2);
  const double bytes = FLOPS;  // one for each FLOP: 2 TB/s
  decoding.entry.own = {"dram_read", bytes, "TB/s"};
  std::vector<Simulated> all{decoding, simulated("mma_sync", "ceiling", 600), simulated("dram_read", "ceiling", 4),
                             simulated("l2_read", "ceiling", 8)};
  const Run run(all);
  const Results results = run.results();
  CHECK(results.ok);
  CHECK(*row(results, "92_quicker").pct_ceiling == Approx(50));
  CHECK(is_needed("dram_read", run.entries));
  CHECK_FALSE(is_needed("l2_read", run.entries));
  CHECK_FALSE(is_needed("dram_read", std::span(run.entries).subspan(1)));
  all[0].entry.own.work = 3 * bytes;
  const Results refused = Run(all).results();
  CHECK_FALSE(refused.ok);
  CHECK_THAT(refused.notes[0], Contains("92_quicker: 6.0 TB/s is above the ceiling of 4.0"));
}

TEST_CASE("a stage that fails has a note and no number, and nobody is paired with it") {
  Simulated broken = rung("92_quicker", 300);
  broken.timing.error = Error{ExitCode::check_failed, "wrong after a timed round"};
  Simulated peer = simulated("fa2", "peer", 400);
  peer.timing.error = Error{ExitCode::check_failed, "peer fa2: did not answer within 60 s"};
  const Results results = Run({rung("91_slow", 100), broken, rung("93_longer", 310), peer}).results();
  CHECK_FALSE(results.ok);
  CHECK(results.rows.size() == 2);
  CHECK_FALSE(row(results, "93_longer").vs_previous);
  CHECK_FALSE(row(results, "93_longer").vs_fa2);
  CHECK(results.notes == std::vector<std::string>{"92_quicker: not timed: wrong after a timed round",
                                                  "fa2: not timed: peer fa2: did not answer within 60 s"});
}

TEST_CASE("a broken peer alone does not make the bench fail") {
  Simulated peer = simulated("fa2", "peer", 400);
  peer.timing.error = Error{ExitCode::check_failed, "peer fa2: ended with exit code 3"};
  CHECK(Run({rung("91_slow", 100), peer}).results().ok);
}

TEST_CASE("what is timed apart has its three launches, says so, and is paired with nobody") {
  Run run({rung("90_first", 3, "1x1, 8 warps"), rung("91_slow", 100), simulated("fa2", "peer", 400)});
  run.heat.number = 0;
  run.heat.own = run.heat.all = {0};
  run.heat.timings.timings.resize(1);
  Timing& first = run.heat.timings.timings[0];
  first.ms.resize(3);
  first.before.resize(3);
  first.clock_mhz.resize(3);
  const Results results = run.results();
  REQUIRE(results.rows.size() == 1);
  CHECK(row(results, "90_first").rounds == 3);
  CHECK_FALSE(row(results, "90_first").vs_fa2);
  REQUIRE(results.notes.size() == 1);
  CHECK_THAT(results.notes[0], Contains("90_first: more than 1.5 s a launch") && Contains("no paired interval"));
}

TEST_CASE("an unbalanced heat has ratios and no verdicts, and says how many rounds it takes") {
  std::vector<Simulated> all{rung("91_slow", 100), rung("92_quicker", 300, TILE, true, "91_slow"),
                             rung("93_longer", 310)};
  Run run(all);
  CHECK_FALSE(unbalanced(run.heat.timings, Regime::turns));
  run.heat.timings.balanced = false;
  const Results results = run.results();
  CHECK(row(results, "92_quicker").vs_previous->value == Approx(3));
  CHECK(row(results, "92_quicker").verdict.empty());
  const auto note = unbalanced(run.heat.timings, Regime::turns);
  REQUIRE(note);
  CHECK_THAT(*note,
             Contains("20 rounds of 3 contestants") && Contains("too few for a verdict") && Contains("--rounds 24"));
  CHECK_THAT(*unbalanced(run.heat.timings, Regime::burst), Contains("too few for a verdict"));
}

TEST_CASE("what the one before has done to a time is no gain") {
  // 92 and 91 are equally fast, but 92 always follows a contestant that heats the card: by 4 % for whoever comes next.
  const int contestants = 4, rounds = 20;
  std::vector<Simulated> all{rung("91_slow", 100, TILE, true, "90_first"),
                             rung("92_quicker", 100, TILE, true, "91_slow"), rung("93_longer", 100),
                             simulated("heater", "peer", 100)};
  std::mt19937 random(5);
  int before = -1;
  for (int round = 0; round < rounds; ++round) {
    for (const int who : round_order(contestants, round)) {
      Timing& timing = all[static_cast<size_t>(who)].timing;
      timing.ms[static_cast<size_t>(round)] *= (before == 3 ? 1.04 : 1) * (1 + 1e-4 * (random() % 21 - 10.0));
      timing.before[static_cast<size_t>(round)] = std::exchange(before, who);
    }
  }
  const ResultRow quicker = row(Run(all).results(), "92_quicker");
  CHECK(quicker.vs_previous->lo > 0.998);
  CHECK(quicker.vs_previous->hi < 1.002);
  CHECK(quicker.verdict == "same");
}

TEST_CASE("any contestant can be the denominator, beside fa2") {
  const Run run({rung("91_slow", 100), simulated("fa2", "peer", 400), simulated("fa3", "peer", 800)});
  const Results results = run.results("fa3");
  CHECK(row(results, "91_slow").vs_fa2->value == Approx(0.25));
  CHECK(row(results, "91_slow").over->estimate.value == Approx(0.125));
  CHECK_THAT(results_table(results.rows, {}, false, 0, "fa3"), Contains("vs fa3") && Contains("0.125 [0.125, 0.125]"));
}

TEST_CASE("everywhere are the denominators and the ceilings that bound, and ratios bring guests") {
  const Run run({rung("91_slow", 100), rung("92_quicker", 300, TILE, true, "91_slow"),
                 rung("92_quicker", 100, "64x32, 2 warps", false, "91_slow"), simulated("fa2", "peer", 400),
                 simulated("fa3", "peer", 800), simulated("mma_sync", "ceiling", 600),
                 simulated("cublas", "ceiling", 700)});
  const std::vector<Candidate> all = candidates(run.entries, std::vector<double>(7, 20.0), "fa3");
  CHECK(all[1].links == std::vector<size_t>{0});
  CHECK(all[2].links == std::vector<size_t>{1});  // of another tile there is no 91: its own default alone
  CHECK((all[3].everywhere && all[4].everywhere && all[5].everywhere));
  CHECK((all[6].thermometer && !all[6].everywhere));
  CHECK_FALSE(all[0].everywhere);
}

TEST_CASE("how much a contestant that is everywhere read in each heat") {
  Run run({rung("91_slow", 100), simulated("fa2", "peer", 400)});
  HeatRun second = run.heat;
  second.number = 2;
  for (double& ms : second.timings.timings[1].ms) ms /= 1.01;
  const std::vector<HeatRun> heats{run.heat, second};
  CHECK_THAT(*everywhere_note(run.entries, heats, "fa2"), Contains("in heats 1, 2: within 1.0 %"));
  CHECK_FALSE(everywhere_note(run.entries, std::span(heats).first(1), "fa2"));
}

TEST_CASE("every group of every round can be kept") {
  Run run({rung("91_slow", 100), rung("92_quicker", 100, "64x32, 2 warps", false)});
  run.heat.timings.timings[1].before[1] = 0;
  const std::string lines = rounds_lines(run.entries, run.heat, FACTS);
  CHECK(std::ranges::count(lines, '\n') == 40);
  CHECK_THAT(lines, Contains("91_slow,stage,NVIDIA H200,16,16,8192,128,0,fp16,,normal,turns,1,1,,0,"));
  CHECK_THAT(
      lines,
      Contains("\"92_quicker[64x32, 2 warps]\",stage,NVIDIA H200,16,16,8192,128,0,fp16,,normal,turns,1,2,91_slow,0,"));
  const auto columns = [](std::string_view line) { return std::ranges::count(line, ','); };
  CHECK(columns(ROUNDS_HEADER) == columns(std::string_view(lines).substr(0, lines.find('\n'))));
}

TEST_CASE("the table shows rates, ratios with intervals and verdicts") {
  const Results results = Run({rung("91_slow", 100), rung("92_quicker", 300, TILE, true, "91_slow"),
                               simulated("fa2", "peer", 400), simulated("mma_sync", "ceiling", 600)})
                              .results();
  const std::string table = results_table(results.rows);
  CHECK_THAT(table, Contains("NVIDIA H200 (sm_90), driver 580.95, CUDA 13.0"));
  CHECK_THAT(table, Contains("b=16 h=16 n=8192 d=128, fp16, normal inputs, in turns, heat 1, 20 rounds; measured "
                             "2026-11-21, commit abc"));
  CHECK_THAT(table,
             Contains("92_quicker") && Contains("3.000 [3.000, 3.000]  faster") && Contains("0.750 [0.750, 0.750]"));
  CHECK_THAT(table, !Contains("ecorded") && !Contains("RECORDED"));
}

TEST_CASE("rows of other element types stand in a table of their own, and nobody's ratio is recorded for them") {
  const Run run({rung("92_quicker", 300), simulated("fa2", "peer", 400)});
  RunFacts facts = FACTS;
  facts.dtype = "bf16";
  const Results half = run.results(), other = evaluate(run.entries, run.heat, facts);
  std::vector<ResultRow> both = half.rows;
  both.insert(both.end(), other.rows.begin(), other.rows.end());
  const std::string text = results_table(both);
  CHECK_THAT(text, Contains(" d=128, fp16, ") && Contains(" d=128, bf16, "));
  const Run alone({rung("92_quicker", 290)});
  CHECK_THAT(results_table(alone.results().rows, other.rows), !Contains("(recorded)"));
  facts = FACTS;
  facts.problem = "window=1023,0";
  const Results windowed = evaluate(run.entries, run.heat, facts);
  CHECK_THAT(results_table(windowed.rows), Contains(" d=128, fp16, window=1023,0, normal inputs"));
  CHECK_THAT(results_table(alone.results().rows, windowed.rows), !Contains("(recorded)"));
}

TEST_CASE("without an fa2 peer the table shows the recorded ratio, marked") {
  const Results recorded = Run({rung("92_quicker", 300), simulated("fa2", "peer", 400)}).results();
  const Results today = Run({rung("92_quicker", 290)}).results();
  CHECK_FALSE(today.rows[0].vs_fa2);
  CHECK_THAT(results_table(today.rows, recorded.rows), Contains("0.750 (recorded)") && Contains("no fa2 peer ran"));
  std::vector<ResultRow> elsewhere = recorded.rows;
  for (ResultRow& other : elsewhere) other.gpu = "NVIDIA A100";
  CHECK_THAT(results_table(today.rows, elsewhere), !Contains("(recorded)"));
}

TEST_CASE("the 2 x 2 table separates the idea from the tile shape") {
  const Run run({rung("91_slow", 50, "64x32, 2 warps"), rung("91_slow", 60, "64x128, 4 warps", false),
                 rung("92_quicker", 300, TILE, true, "91_slow"),
                 rung("92_quicker", 100, "64x32, 2 warps", false, "91_slow"),
                 rung("93_longer", 330, TILE, true, "92_quicker"),
                 rung("93_longer", 320, "64x64, 4 warps", false, "92_quicker")});
  CHECK(run.tables() ==
        "92_quicker apart from its tile shape (TFLOPS; ratios are paired)\n"
        "                  64x32, 2 warps       64x128, 4 warps                 shape alone\n"
        "91_slow                     50.1                  60.2        1.200 [1.200, 1.200]\n"
        "92_quicker                 100.3                 300.8        3.000 [3.000, 3.000]\n"
        "idea alone  2.000 [2.000, 2.000]  5.000 [5.000, 5.000]  both: 6.000 [6.000, 6.000]\n"
        "\n"
        "other variants             TFLOPS               against\n"
        "93_longer[64x64, 4 warps]   320.8  0.970 [0.970, 0.970]  93_longer\n");
  const Run defaults({rung("91_slow", 50), rung("92_quicker", 60)});
  CHECK(defaults.tables().empty());
}

TEST_CASE("shapes: the headline, lists of N, the sweep, and both") {
  Options options;
  CHECK(bench_shapes(options) == std::vector<Shape>{HEADLINE});
  options.n = {1024, 2048};
  options.batch = 2;
  CHECK(bench_shapes(options) ==
        std::vector<Shape>{{.batch = 2, .heads = 16, .n = 1024}, {.batch = 2, .heads = 16, .n = 2048}});
  options = {};
  options.sweep = true;
  const std::vector<Shape> sweep = bench_shapes(options);
  REQUIRE(sweep.size() == 6);
  CHECK(sweep.front() == Shape{.batch = 32, .heads = 16, .n = 512});
  CHECK(sweep.back() == Shape{.batch = 1, .heads = 16, .n = 16384});
  for (const Shape& shape : sweep) CHECK(shape.batch * shape.n == 16384);
  options.n = {8192};
  CHECK(bench_shapes(options).back() == HEADLINE);
  CHECK(bench_shapes(options).size() == 7);
}

TEST_CASE("flags adjust the protocol and cannot mix the regimes") {
  Options options;
  CHECK(protocol_of(options).rounds_of(12) == 24);
  CHECK(protocol_of(options).soak_s == 3);
  options.rounds = 40;
  options.soak_seconds = 10;
  CHECK(protocol_of(options).rounds_of(12) == 40);
  CHECK(protocol_of(options).soak_s == 10);
  options.burst = true;
  CHECK(protocol_of(options).regime == Regime::burst);
  CHECK(protocol_of(options).soak_s == 0);
}

TEST_CASE("without a GPU the recorded table is shown as recorded") {
  Rung quicker;
  quicker.name = "92_quicker";
  Options options;
  options.rungs = {&quicker};
  std::vector<ResultRow> recorded =
      Run({rung("91_slow", 100), rung("92_quicker", 300), simulated("fa2", "peer", 400)}).results().rows;
  recorded.push_back(recorded.back());  // a run on other inputs, without the rung
  recorded.back().rung = "alone";
  recorded.back().inputs = "peaky";
  const std::string table = recorded_table(recorded, options);
  CHECK_THAT(table, Contains("NVIDIA H200") && Contains("RECORDED, not measured here 2026-11-21") &&
                        Contains("92_quicker") && Contains("fa2"));
  CHECK_THAT(table, !Contains("91_slow"));  // not asked for
  CHECK_THAT(table, !Contains("alone"));
  // A new rung has none, and the peers' figures would say nothing about it.
  Rung added;
  added.name = "42_added";
  options.rungs = {&added};
  CHECK(recorded_table(recorded, options) ==
        "docs/results has no recorded figures of 42_added for b=16 h=16 n=8192 d=128.\n");
  options.rungs = {&quicker};
  options.burst = true;
  CHECK(recorded_table(recorded, options) ==
        "docs/results has no recorded figures of 92_quicker for b=16 h=16 n=8192 d=128.\n");
}

TEST_CASE("compare quotes the recorded speedup when both were recorded on one card") {
  std::vector<ResultRow> recorded = Run({rung("91_slow", 100), rung("92_quicker", 300)}).results().rows;
  recorded[1].previous = "91_slow";
  recorded[1].vs_previous = Estimate{3.01, 2.99, 3.02};
  const std::string where = ", RECORDED on NVIDIA H200, 2026-11-21, at b=16 h=16 n=8192 d=128";
  CHECK(recorded_speedup(recorded, "91_slow", "92_quicker", HEADLINE) == "3.010 [2.990, 3.020]" + where);
  CHECK(recorded_speedup(recorded, "92_quicker", "91_slow", HEADLINE) == "0.333 of the medians" + where);
  SECTION("the row says itself what its ratio is over") {
    for (const char* const previous : {"90_first", ""}) {
      recorded[1].previous = previous;
      CHECK(recorded_speedup(recorded, "91_slow", "92_quicker", HEADLINE) == "3.000 of the medians" + where);
    }
    return;
  }
  CHECK(recorded_speedup(recorded, "91_slow", "93_longer", HEADLINE).empty());
  CHECK(recorded_speedup(recorded, "91_slow", "92_quicker", {.n = 512}).empty());
  recorded[0].gpu = "NVIDIA A100";
  CHECK(recorded_speedup(recorded, "91_slow", "92_quicker", HEADLINE).empty());
  recorded[0].gpu = recorded[1].gpu;
  recorded[0].dtype = "bf16";
  CHECK(recorded_speedup(recorded, "91_slow", "92_quicker", HEADLINE).empty());
}

TEST_CASE("changed lines count the larger side of each place that differs") {
  const Folder folder(std::filesystem::temp_directory_path());
  const auto changed = [&](const char* before, const char* after) {
    std::ofstream(folder.path() / "before") << before;
    std::ofstream(folder.path() / "after") << after;
    return changed_lines(folder.path() / "before", folder.path() / "after");
  };
  CHECK(changed("a\nb\nc\n", "a\nb\nc\n") == 0);
  CHECK(changed("a\nb\nc\n", "a\nB\nc\n") == 1);
  CHECK(changed("a\nb\nc\n", "a\nx\ny\nz\nc\n") == 3);
  CHECK(changed("a\nb\nc\nd\n", "a\nd\n") == 2);
  CHECK(changed("a\nb\nc\n", "x\na\nc\ny\n") == 3);
  CHECK(changed("", "a\nb\n") == 2);
}

TEST_CASE("a variant is found by the beginning of its label, if only one has it") {
  Rung rung;
  rung.name = "92_quicker";
  for (const char* label : {"64x128, 4 warps", "64x32, 2 warps", "64x64, 4 warps"}) {
    Variant variant;
    variant.label = label;
    rung.variants.push_back(variant);
  }
  CHECK(*find_variant(rung, "") == &rung.variants[0]);
  CHECK(*find_variant(rung, "64x32") == &rung.variants[1]);
  CHECK(*find_variant(rung, "64x64, 4 warps") == &rung.variants[2]);
  CHECK_THAT(find_variant(rung, "64").error().message, Contains("more than one variant '64'"));
  CHECK_THAT(find_variant(rung, "9").error().message,
             Contains("no variant '9'") && Contains("There are: 64x128, 4 warps; 64x32, 2 warps; 64x64, 4 warps"));
}
