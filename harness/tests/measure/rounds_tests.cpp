// The round loop on simulated contestants: a clock that only they and sleep advance.
#include "harness/measure/rounds.hpp"

#include <cmath>

#include "harness/measure/statistics.hpp"
#include "harness/tests/catch.hpp"

using namespace ladder;

namespace {

struct Simulation {
  double now_s = 0;
  std::vector<std::string> log;  // who ran, in order
  std::function<double(double now_s)> slowdown = [](double) { return 1.0; };

  Machine machine() {
    return {.now_s = [this] { return now_s; }, .sleep_s = [this](double seconds) { now_s += seconds; }};
  }

  Contestant contestant(std::string name, double ms) {
    return {.name = name, .time_ms = [this, name, ms](int launches) -> Result<double> {
              log.push_back(name);
              const double total = ms * launches * slowdown(now_s);
              now_s += total / 1000;
              return total;
            }};
  }
};

double unpaired_speedup(const Timing& a, const Timing& b) {
  return median(b.ms) / median(a.ms);
}

}  // namespace

TEST_CASE("every contestant runs once a round, in groups of at least 20 ms, after a soak of 3 s") {
  Simulation simulation;
  const std::vector<Contestant> contestants{simulation.contestant("a", 0.7), simulation.contestant("b", 3),
                                            simulation.contestant("c", 45)};
  Machine machine = simulation.machine();
  double first_round_s = -1;
  machine.progress = [&](std::string_view what, int done, int) {
    if (what == "round" && done == 0) first_round_s = simulation.now_s, simulation.log.clear();
  };
  const auto timings = run_rounds(contestants, sustained_protocol(), machine);
  REQUIRE(timings);
  CHECK(first_round_s >= 3);
  CHECK(simulation.log.size() == 60);
  for (size_t who = 0; who < 3; ++who) {
    CHECK((*timings)[who].ms.size() == 20);
    CHECK_FALSE((*timings)[who].error);
    CHECK((*timings)[who].launches * median((*timings)[who].ms) >= 20);
  }
  CHECK((*timings)[0].launches == 32);  // 1.1 * 20 / 0.7
  CHECK((*timings)[2].launches == 1);
  CHECK(median((*timings)[1].ms) == Approx(3));
}

TEST_CASE("drift misleads unpaired means, pairing sees through it") {
  // The card slows by 30 % in the course of the run. b is 1 % faster than a.
  Simulation simulation;
  simulation.slowdown = [](double now_s) { return 1 + 0.3 * std::min(now_s / 12, 1.0); };
  const Contestant a = simulation.contestant("a", 10.0), b = simulation.contestant("b", 10.0 / 1.01);

  // One after the other, as most benchmarks do.
  const auto alone_a = run_rounds(std::vector{a}, sustained_protocol(), simulation.machine());
  const auto alone_b = run_rounds(std::vector{b}, sustained_protocol(), simulation.machine());
  REQUIRE(alone_a);
  REQUIRE(alone_b);
  CHECK(unpaired_speedup((*alone_b)[0], (*alone_a)[0]) < 0.95);  // "b is slower"

  simulation.now_s = 0;
  const auto paired = run_rounds(std::vector{a, b}, sustained_protocol(), simulation.machine());
  REQUIRE(paired);
  const Estimate speedup = bootstrap_median(paired_speedups((*paired)[1].ms, (*paired)[0].ms));
  CHECK(speedup.value == Approx(1.01).margin(0.001));
  CHECK(verdict(speedup) == Verdict::faster);
}

TEST_CASE("a sawtooth clock hides a small gain from the medians, not from the pairs") {
  // Throttling every 0.37 s, deep enough to bury 0.5 % of gain in the spread of each contestant.
  Simulation simulation;
  simulation.slowdown = [](double now_s) { return 1 + 0.2 * std::fmod(now_s, 0.37) / 0.37; };
  const std::vector contestants{simulation.contestant("a", 1.0), simulation.contestant("b", 1 / 1.005)};
  Protocol protocol = sustained_protocol();
  protocol.rounds = 40;
  const auto timings = run_rounds(contestants, protocol, simulation.machine());
  REQUIRE(timings);
  const Timing &a = (*timings)[0], &b = (*timings)[1];
  CHECK(percentile(a.ms, 80) / percentile(a.ms, 20) > 1.05);
  const Estimate speedup = bootstrap_median(paired_speedups(b.ms, a.ms));
  CHECK(speedup.lo < 1.005);
  CHECK(speedup.hi > 1.005);
}

TEST_CASE("burst groups last at most 20 ms and follow a second of idling") {
  Simulation simulation;
  const std::vector<Contestant> contestants{simulation.contestant("a", 3), simulation.contestant("b", 45)};
  const auto timings = run_rounds(contestants, burst_protocol(), simulation.machine());
  REQUIRE(timings);
  CHECK((*timings)[0].launches == 6);
  CHECK((*timings)[1].launches == 1);
  CHECK((*timings)[0].ms.size() == 10);
  CHECK(simulation.now_s >= 20);
  CHECK(simulation.now_s < 22);
}

TEST_CASE("a contestant of more than a second a launch is timed alone, after the others") {
  Simulation simulation;
  const std::vector<Contestant> contestants{simulation.contestant("slow", 2500), simulation.contestant("b", 5)};
  const auto timings = run_rounds(contestants, sustained_protocol(), simulation.machine());
  REQUIRE(timings);
  CHECK((*timings)[0].alone);
  CHECK((*timings)[0].ms == std::vector<double>{2500, 2500, 2500});
  CHECK_FALSE((*timings)[1].alone);
  CHECK((*timings)[1].ms.size() == 20);
  const auto& log = simulation.log;
  CHECK(std::vector<std::string>(log.end() - 4, log.end()) == std::vector<std::string>{"b", "slow", "slow", "slow"});
}

TEST_CASE("a contestant that fails is left out, the others go on") {
  Simulation simulation;
  Contestant dying = simulation.contestant("dying", 5);
  int runs = 0;
  dying.time_ms = [&](int launches) -> Result<double> {
    if (++runs == 150) return failure(ExitCode::check_failed, "it died");
    simulation.now_s += 0.005 * launches;
    return 5.0 * launches;
  };
  Contestant broken = simulation.contestant("broken", 5);
  broken.time_ms = [](int) -> Result<double> { return NAN; };
  const std::vector<Contestant> contestants{dying, simulation.contestant("b", 5), broken};
  Protocol protocol = sustained_protocol();
  protocol.rounds = 100;
  const auto timings = run_rounds(contestants, protocol, simulation.machine());
  REQUIRE(timings);
  REQUIRE((*timings)[0].error);
  CHECK((*timings)[0].error->message == "it died");
  CHECK((*timings)[0].ms.size() < 100);
  CHECK_FALSE((*timings)[1].error);
  CHECK((*timings)[1].ms.size() == 100);
  REQUIRE((*timings)[2].error);
  CHECK((*timings)[2].error->message == "broken reported a time that is not a positive number");
}

TEST_CASE("outputs are poisoned before every group and verified after it") {
  Simulation simulation;
  bool poisoned = false;
  int poisonings = 0, verified = 0;
  Contestant stage = simulation.contestant("stage", 5);
  const auto run = stage.time_ms;
  stage.before = [&](int launches) -> Status {
    CHECK(launches == 5);
    return poisoned = true, ++poisonings, Status{};
  };
  stage.time_ms = [&](int launches) {
    poisoned = false;
    return run(launches);
  };
  stage.after = [&]() -> Status {
    CHECK_FALSE(poisoned);
    if (++verified == 7) return failure(ExitCode::check_failed, "wrong after timing");
    return {};
  };
  const auto timings = run_rounds(std::vector{stage}, sustained_protocol(), simulation.machine());
  REQUIRE(timings);
  CHECK(verified == 7);
  CHECK(poisonings == 7);
  REQUIRE((*timings)[0].error);
  CHECK((*timings)[0].error->message == "wrong after timing");
}

TEST_CASE("the meter brackets each timed group") {
  Simulation simulation;
  Machine machine = simulation.machine();
  bool metering = false;
  machine.start_meter = [&] { metering = true; };
  machine.stop_meter = [&]() -> std::optional<CardState> {
    CHECK(metering);
    metering = false;
    return CardState{.clock_mhz = 1755, .power_w = 500};
  };
  const auto timings = run_rounds(std::vector{simulation.contestant("a", 5)}, sustained_protocol(), machine);
  REQUIRE(timings);
  CHECK((*timings)[0].states.size() == 20);
  CHECK((*timings)[0].states[7].clock_mhz == 1755);
}

TEST_CASE("an interrupt ends the loop at the next group") {
  Simulation simulation;
  Machine machine = simulation.machine();
  machine.interrupted = [&] { return simulation.now_s > 4; };
  const auto timings = run_rounds(std::vector{simulation.contestant("a", 100)}, sustained_protocol(), machine);
  REQUIRE_FALSE(timings);
  CHECK(timings.error().code == ExitCode::interrupted);
  CHECK(simulation.now_s < 4.2);
}
