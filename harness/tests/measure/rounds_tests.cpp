// The round loop on simulated contestants: a clock that only they and sleep advance.
#include "harness/measure/rounds.hpp"

#include <algorithm>
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

// A heat as the bench runs it: a look at each, then the rounds.
Result<HeatTimings> run(const std::vector<Contestant>& contestants, const Protocol& protocol, const Machine& machine) {
  const auto looks = first_look(contestants, protocol, machine);
  if (!looks) return tl::make_unexpected(looks.error());
  std::vector<double> launch_ms;
  for (const Result<double>& look : *looks) launch_ms.push_back(look.value_or(1));
  return run_heat(contestants, launch_ms, protocol, machine);
}

}  // namespace

TEST_CASE("every contestant runs once a round, in groups of at least 20 ms, after a soak of 3 s") {
  Simulation simulation;
  const std::vector<Contestant> contestants{simulation.contestant("a", 0.7), simulation.contestant("b", 3),
                                            simulation.contestant("c", 45)};
  Machine machine = simulation.machine();
  double first_round_s = -1;
  machine.progress = [&](std::string_view what, double) {
    if (what == "round 1 of 24") first_round_s = simulation.now_s, simulation.log.clear();
  };
  const auto timings = run(contestants, sustained_protocol(), machine);
  REQUIRE(timings);
  CHECK(first_round_s >= 3);
  CHECK(simulation.log.size() == 3 * 24);
  for (size_t who = 0; who < 3; ++who) {
    CHECK(timings->timings[who].ms.size() == 24);  // 20 at least, and everyone after everyone
    CHECK_FALSE(timings->timings[who].error);
    CHECK(timings->timings[who].launches * median(timings->timings[who].ms) >= 20);
  }
  CHECK(timings->timings[0].launches == 32);  // 1.1 * 20 / 0.7
  CHECK(timings->timings[2].launches == 1);
  CHECK(median(timings->timings[1].ms) == Approx(3));
}

TEST_CASE("drift misleads unpaired means, pairing sees through it") {
  // The card slows by 30 % in the course of the run. b is 1 % faster than a.
  Simulation simulation;
  simulation.slowdown = [](double now_s) { return 1 + 0.3 * std::min(now_s / 12, 1.0); };
  const Contestant a = simulation.contestant("a", 10.0), b = simulation.contestant("b", 10.0 / 1.01);

  // One after the other, as most benchmarks do.
  const auto alone_a = run({a}, sustained_protocol(), simulation.machine());
  const auto alone_b = run({b}, sustained_protocol(), simulation.machine());
  REQUIRE(alone_a);
  REQUIRE(alone_b);
  CHECK(unpaired_speedup(alone_b->timings[0], alone_a->timings[0]) < 0.95);  // "b is slower"

  simulation.now_s = 0;
  const auto paired = run({a, b}, sustained_protocol(), simulation.machine());
  REQUIRE(paired);
  const Estimate speedup = median_interval(paired_speedups(paired->timings[1].ms, paired->timings[0].ms));
  CHECK(speedup.value == Approx(1.01).margin(0.001));
  CHECK(speedup.lo > 1);
}

TEST_CASE("a sawtooth clock hides a small gain from the medians, not from the pairs") {
  // Throttling every 0.37 s, deep enough to bury 0.5 % of gain in the spread of each contestant.
  Simulation simulation;
  simulation.slowdown = [](double now_s) { return 1 + 0.2 * std::fmod(now_s, 0.37) / 0.37; };
  const std::vector contestants{simulation.contestant("a", 1.0), simulation.contestant("b", 1 / 1.005)};
  Protocol protocol = sustained_protocol();
  protocol.rounds = 40;
  const auto timings = run(contestants, protocol, simulation.machine());
  REQUIRE(timings);
  const Timing &a = timings->timings[0], &b = timings->timings[1];
  CHECK(percentile(a.ms, 80) / percentile(a.ms, 20) > 1.05);
  const Estimate speedup = median_interval(paired_speedups(b.ms, a.ms));
  CHECK(speedup.lo < 1.005);
  CHECK(speedup.hi > 1.005);
}

TEST_CASE("burst groups last at most 20 ms and follow a second of idling") {
  Simulation simulation;
  const std::vector<Contestant> contestants{simulation.contestant("a", 3), simulation.contestant("b", 45)};
  const auto timings = run(contestants, burst_protocol(), simulation.machine());
  REQUIRE(timings);
  CHECK(timings->timings[0].launches == 6);
  CHECK(timings->timings[1].launches == 1);
  CHECK(timings->timings[0].ms.size() == 10);
  CHECK(simulation.now_s >= 20);
  CHECK(simulation.now_s < 22);
}

TEST_CASE("the clock is counted around each group, in turns and apart") {
  Simulation simulation;
  Machine machine = simulation.machine();
  int started = 0;
  machine.start_clock = [&] { ++started; };
  machine.stop_clock = [&]() -> std::optional<double> { return 1500 + started; };
  const Contestant a = simulation.contestant("a", 3), b = simulation.contestant("b", 5);
  const auto timings = run({a, b}, sustained_protocol(), machine);
  REQUIRE(timings);
  for (const Timing& timing : timings->timings) REQUIRE(timing.clock_mhz.size() == timing.ms.size());
  CHECK(timings->timings[0].clock_mhz.back() != timings->timings[1].clock_mhz.back());
  const auto apart = run_apart(a, sustained_protocol(), machine);
  REQUIRE(apart);
  CHECK(apart->clock_mhz.size() == apart->ms.size());
}

TEST_CASE("a warm-up lasts as long as it should, whatever the time of day") {
  Simulation simulation;
  simulation.now_s = 1000;
  Machine machine = simulation.machine();
  machine.load = [&](double ms) {
    simulation.now_s += ms / 1000;
    return Status{};
  };
  Protocol protocol = sustained_protocol();
  protocol.warm_up_s = 10;
  REQUIRE(warm_up(protocol, machine));
  CHECK(simulation.now_s == Approx(1010));
}

TEST_CASE("a contestant that fails apart says why, and has no time") {
  Simulation simulation;
  const Contestant broken{.name = "broken", .time_ms = [](int) -> Result<double> {
                            return tl::make_unexpected(Error{ExitCode::check_failed, "out of memory"});
                          }};
  const auto timing = run_apart(broken, sustained_protocol(), simulation.machine());
  REQUIRE(timing);
  REQUIRE(timing->error);
  CHECK(timing->error->message == "out of memory");
  CHECK(timing->ms.empty());
}

TEST_CASE("a slow contestant is timed apart, in a few launches by itself") {
  Simulation simulation;
  const Contestant slow = simulation.contestant("slow", 2500);
  const auto looks = first_look(std::vector{slow}, sustained_protocol(), simulation.machine());
  REQUIRE(looks);
  CHECK(*looks->front() > sustained_protocol().longest_launch_ms);
  CHECK(simulation.log.size() == 1);  // nobody waits for it twice
  const auto timing = run_apart(slow, sustained_protocol(), simulation.machine());
  REQUIRE(timing);
  CHECK(timing->apart);
  CHECK(timing->ms == std::vector<double>{2500, 2500, 2500});
}

TEST_CASE("a common load comes right before each group, and the card is warmed up with it") {
  Simulation simulation;
  Machine machine = simulation.machine();
  machine.load = [&](double ms) -> Status {
    simulation.log.push_back("load");
    simulation.now_s += ms / 1000;
    return {};
  };
  REQUIRE(warm_up(sustained_protocol(), machine));
  CHECK(simulation.now_s >= 10);
  machine.progress = [&](std::string_view what, double) {
    if (what == "round 1 of 20") simulation.log.clear();
  };
  const std::vector contestants{simulation.contestant("a", 5), simulation.contestant("b", 5)};
  REQUIRE(run(contestants, sustained_protocol(), machine));
  REQUIRE(simulation.log.size() == 80);
  for (size_t i = 0; i < 80; i += 2) {
    CHECK(simulation.log[i] == "load");
    CHECK(simulation.log[i + 1] != "load");
  }
}

TEST_CASE("alone, a long group follows a lead-in by the same kernel, whose outputs are poisoned in between") {
  Simulation simulation;
  Machine machine = simulation.machine();
  bool loaded = false;
  machine.load = [&](double) -> Status { return loaded = true, Status{}; };
  machine.card = [&] { return CardState{.power_w = 600}; };
  std::vector<double> lasted;  // of each run of a, in ms
  Contestant a = simulation.contestant("a", 5);
  const auto time_ms = a.time_ms;
  bool poisoned = false;
  a.time_ms = [&](int launches) {
    lasted.push_back(poisoned ? 5.0 * launches : -5.0 * launches);  // a lead-in is negative
    poisoned = false;
    return time_ms(launches);
  };
  a.before = [&](int) -> Status { return poisoned = true, Status{}; };
  machine.progress = [&](std::string_view what, double) {
    if (what == "round 1 of 10") lasted.clear();
  };
  const auto timings = run({a, simulation.contestant("b", 7)}, alone_protocol(), machine);
  REQUIRE(timings);
  CHECK(timings->timings[0].power_w == 600.0);
  CHECK(timings->balanced);
  CHECK_FALSE(loaded);  // that would be somebody else's heat
  REQUIRE(lasted.size() == 20);
  for (size_t i = 0; i < 20; i += 2) {
    CHECK(lasted[i] <= -150);
    CHECK(lasted[i + 1] >= 150);
  }
}

TEST_CASE("the card's idle time between groups is known") {
  Simulation simulation;
  Contestant a = simulation.contestant("a", 5);
  a.after = [&]() -> Status { return simulation.now_s += 0.004, Status{}; };
  const auto timings = run({a, simulation.contestant("b", 5)}, sustained_protocol(), simulation.machine());
  REQUIRE(timings);
  CHECK(timings->idle_ms.size() == 39);  // between 40 groups
  CHECK(median(timings->idle_ms) >= 0);
  CHECK(*std::max_element(timings->idle_ms.begin(), timings->idle_ms.end()) == Approx(4));
}

TEST_CASE("who ran before is known, and whether everyone followed everyone") {
  Simulation simulation;
  const std::vector contestants{simulation.contestant("a", 5), simulation.contestant("b", 5),
                                simulation.contestant("c", 5)};
  const auto timings = run(contestants, sustained_protocol(), simulation.machine());
  REQUIRE(timings);
  CHECK(timings->balanced);
  CHECK(timings->timings[0].before.front() == -1);  // round_order begins with 0
  for (const Timing& timing : timings->timings) CHECK(timing.before.size() == timing.ms.size());
  Protocol few = sustained_protocol();
  few.rounds = 5;  // of the 6 that three contestants need
  CHECK_FALSE(run(contestants, few, simulation.machine())->balanced);
  few.rounds = 6;  // as many as are balanced, but too few to say anything
  CHECK_FALSE(run(contestants, few, simulation.machine())->balanced);
}

TEST_CASE("the estimate of a heat's time is about what it takes") {
  for (const Protocol& protocol : {sustained_protocol(), alone_protocol(), burst_protocol()}) {
    Simulation simulation;
    Machine machine = simulation.machine();
    machine.load = [&](double ms) -> Status { return simulation.now_s += ms / 1000, Status{}; };
    const std::vector contestants{simulation.contestant("a", 0.7), simulation.contestant("b", 3),
                                  simulation.contestant("c", 45)};
    const std::vector<double> launch_ms{0.7, 3, 45};
    REQUIRE(run_heat(contestants, launch_ms, protocol, machine));
    CHECK(simulation.now_s == Approx(seconds_of_heat(launch_ms, protocol)).epsilon(0.1));
  }
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
  const auto timings = run(contestants, protocol, simulation.machine());
  REQUIRE(timings);
  REQUIRE(timings->timings[0].error);
  CHECK(timings->timings[0].error->message == "it died");
  CHECK(timings->timings[0].ms.size() < 100);
  CHECK_FALSE(timings->timings[1].error);
  CHECK(timings->timings[1].ms.size() == 100);
  REQUIRE(timings->timings[2].error);
  CHECK(timings->timings[2].error->message == "broken reported a time that is not a positive number");
}

TEST_CASE("outputs are poisoned before every group and verified after it") {
  Simulation simulation;
  bool poisoned = false;
  int poisonings = 0, verified = 0;
  Contestant stage = simulation.contestant("stage", 5);
  const auto time_ms = stage.time_ms;
  stage.before = [&](int launches) -> Status {
    CHECK(launches == 5);
    return poisoned = true, ++poisonings, Status{};
  };
  stage.time_ms = [&](int launches) {
    poisoned = false;
    return time_ms(launches);
  };
  stage.after = [&]() -> Status {
    CHECK_FALSE(poisoned);
    if (++verified == 7) return failure(ExitCode::check_failed, "wrong after timing");
    return {};
  };
  const auto timings = run({stage}, sustained_protocol(), simulation.machine());
  REQUIRE(timings);
  CHECK(verified == 7);
  CHECK(poisonings == 7);
  REQUIRE(timings->timings[0].error);
  CHECK(timings->timings[0].error->message == "wrong after timing");
}

TEST_CASE("the clock is counted around each timed group") {
  Simulation simulation;
  Machine machine = simulation.machine();
  bool counting = false;
  machine.start_clock = [&] { counting = true; };
  machine.stop_clock = [&]() -> std::optional<double> {
    CHECK(std::exchange(counting, false));
    return 1755;
  };
  const auto timings = run({simulation.contestant("a", 5)}, sustained_protocol(), machine);
  REQUIRE(timings);
  CHECK(timings->timings[0].clock_mhz == std::vector<double>(20, 1755));
}

TEST_CASE("an interrupt ends the loop at the next group") {
  Simulation simulation;
  Machine machine = simulation.machine();
  machine.interrupted = [&] { return simulation.now_s > 4; };
  const auto timings = run({simulation.contestant("a", 100)}, sustained_protocol(), machine);
  REQUIRE_FALSE(timings);
  CHECK(timings.error().code == ExitCode::interrupted);
  CHECK(simulation.now_s < 4.2);
}
