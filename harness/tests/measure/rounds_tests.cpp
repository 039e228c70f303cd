// The round loop on simulated contestants: a clock that only they and sleep advance.
#include "harness/measure/rounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

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
  if (!looks) return Unexpected{looks.error()};
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
  const auto timings = run(contestants, turns_protocol(), machine);
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
  const auto alone_a = run({a}, turns_protocol(), simulation.machine());
  const auto alone_b = run({b}, turns_protocol(), simulation.machine());
  REQUIRE(alone_a);
  REQUIRE(alone_b);
  CHECK(unpaired_speedup(alone_b->timings[0], alone_a->timings[0]) < 0.95);  // "b is slower"

  simulation.now_s = 0;
  const auto paired = run({a, b}, turns_protocol(), simulation.machine());
  REQUIRE(paired);
  const Estimate speedup = median_interval(paired_speedups(paired->timings[1].ms, paired->timings[0].ms));
  CHECK(speedup.value == Approx(1.01).margin(0.001));
  CHECK(speedup.lo > 1);
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

TEST_CASE("a warm-up lasts as long as it should, whatever the time of day") {
  Simulation simulation;
  simulation.now_s = 1000;
  Machine machine = simulation.machine();
  machine.load = [&](double ms) {
    simulation.now_s += ms / 1000;
    return Status{};
  };
  Protocol protocol = turns_protocol();
  protocol.warm_up_s = 10;
  REQUIRE(warm_up(protocol, machine));
  CHECK(simulation.now_s == Approx(1010));
  machine.interrupted = [&] { return simulation.now_s > 1015; };
  CHECK(warm_up(protocol, machine).error().code == ExitCode::interrupted);
  CHECK(simulation.now_s < 1016);
  machine.load = [](double) -> Status { return failure(ExitCode::check_failed, "refused"); };
  machine.interrupted = [] { return false; };
  CHECK(warm_up(protocol, machine));  // it ends; whoever is timed says why
}

TEST_CASE("a contestant that fails apart says why, and has no time") {
  Simulation simulation;
  const Contestant broken{.name = "broken", .time_ms = [](int) -> Result<double> {
                            return Unexpected{Error{ExitCode::check_failed, "out of memory"}};
                          }};
  const auto timings = run_heat({&broken, 1}, std::vector{2500.0}, apart_protocol(), simulation.machine());
  REQUIRE(timings);
  REQUIRE(timings->timings[0].error);
  CHECK(timings->timings[0].error->message == "out of memory");
  CHECK(timings->timings[0].ms.empty());
}

TEST_CASE("a slow contestant is timed apart, in a few launches by itself") {
  Simulation simulation;
  const Contestant slow = simulation.contestant("slow", 2500);
  const auto looks = first_look(std::vector{slow}, turns_protocol(), simulation.machine());
  REQUIRE(looks);
  CHECK(*looks->front() > turns_protocol().longest_launch_ms);
  CHECK(simulation.log.size() == 1);  // nobody waits for it twice
  Machine machine = simulation.machine();
  machine.start_clock = [] {};
  machine.stop_clock = [] { return 1500.0; };
  const auto timings = run({slow}, apart_protocol(), machine);
  REQUIRE(timings);
  CHECK(timings->timings[0].ms == std::vector<double>{2500, 2500, 2500});
  CHECK(timings->timings[0].clock_mhz == std::vector<double>{1500, 1500, 1500});
  CHECK(seconds_of_heat(std::vector{2500.0}, apart_protocol()) == Approx(7.5).epsilon(0.01));
}

TEST_CASE("a common load comes right before each group, and the card is warmed up with it") {
  Simulation simulation;
  Machine machine = simulation.machine();
  machine.load = [&](double ms) -> Status {
    simulation.log.push_back("load");
    simulation.now_s += ms / 1000;
    return {};
  };
  REQUIRE(warm_up(turns_protocol(), machine));
  CHECK(simulation.now_s >= 10);
  machine.progress = [&](std::string_view what, double) {
    if (what == "round 1 of 20") simulation.log.clear();
  };
  const std::vector contestants{simulation.contestant("a", 5), simulation.contestant("b", 5)};
  REQUIRE(run(contestants, turns_protocol(), machine));
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

TEST_CASE("the estimate of a heat's time is about what it takes") {
  for (const Protocol& protocol : {turns_protocol(), alone_protocol(), burst_protocol()}) {
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

TEST_CASE("outputs are poisoned before every group and verified after it") {
  Simulation simulation;
  bool poisoned = false;
  int poisonings = 0, verified = 0;
  Contestant rung = simulation.contestant("stage", 5);
  const auto time_ms = rung.time_ms;
  rung.before = [&](int launches) -> Status {
    CHECK(launches == 5);
    return poisoned = true, ++poisonings, Status{};
  };
  rung.time_ms = [&](int launches) {
    poisoned = false;
    return time_ms(launches);
  };
  rung.after = [&]() -> Status {
    CHECK_FALSE(poisoned);
    if (++verified == 7) return failure(ExitCode::check_failed, "wrong after timing");
    return {};
  };
  const auto timings = run({rung}, turns_protocol(), simulation.machine());
  REQUIRE(timings);
  CHECK(verified == 7);
  CHECK(poisonings == 7);
  REQUIRE(timings->timings[0].error);
  CHECK(timings->timings[0].error->message == "wrong after timing");
}

// ---- any call may fail --------------------------------------------------------------------------------------------

namespace {

// A machine and contestants that write down each call, and a clock that only they advance. The time of day is not 0.
struct Recorder {
  double now_s = 1000;
  std::vector<std::string> calls;
  int fails = -1;                                     // the place among the calls of the one that fails
  int interrupted = std::numeric_limits<int>::max();  // from this question for Ctrl-C on
  int questions = 0, clocks = 0;

  Status call(const std::string& what, double seconds = 0) {
    calls.push_back(what);
    REQUIRE(calls.size() < 1000);
    now_s += seconds;
    if (std::ssize(calls) - 1 == fails) return failure(ExitCode::check_failed, "failed: " + what);
    return {};
  }
  Machine machine() {
    return {.now_s = [this] { return now_s; },
            .sleep_s = [this](double seconds) { (void)call(fmt::format("sleep {:g} s", seconds), seconds); },
            .load = [this](double ms) { return call(fmt::format("load {:g} ms", ms), ms / 1e3); },
            .start_clock = [this] { (void)call("start clock"); },
            .stop_clock = [this]() -> std::optional<double> {
              (void)call("stop clock");
              return 1500 + ++clocks;
            },
            .card = [this]() -> std::optional<CardState> {
              (void)call("card");
              return CardState{.power_w = 600};
            },
            .interrupted =
                [this] {
                  (void)call("Ctrl-C?");
                  return questions++ >= interrupted;
                },
            .progress = [this](std::string_view what,
                               double seconds) { (void)call(fmt::format("{}: {:g} s", what, seconds)); }};
  }
  // Poisoning takes 1 ms, and verifying 2 ms.
  Contestant contestant(const std::string& name, double ms) {
    return {.name = name,
            .time_ms = [this, name, ms](int launches) -> Result<double> {
              const Status ran = call(fmt::format("{} x {}", name, launches), ms * launches / 1e3);
              if (!ran) return Unexpected{ran.error()};
              return ms * launches;
            },
            .before = [this, name](
                          int launches) { return call(fmt::format("{} is poisoned for {}", name, launches), 0.001); },
            .after = [this, name] { return call(name + " is verified", 0.002); }};
  }
};

using Calls = std::vector<std::string>;

const Protocol IN_TURNS{.rounds = 2, .group_ms = 20, .lead_in_ms = 100, .soak_s = 0.3};

// Two contestants of 4 and 10 ms a launch, which were thought to take 5 and 10.
Result<HeatTimings> run(Recorder& recorder) {
  const std::vector contestants{recorder.contestant("a", 4), recorder.contestant("b", 10)};
  const Machine machine = recorder.machine();
  return run_heat(contestants, std::vector<double>{5, 10}, IN_TURNS, machine);
}

// Everything that a heat in turns does to them.
Calls all_calls() {
  Recorder recorder;
  REQUIRE(run(recorder));
  return recorder.calls;
}

}  // namespace

TEST_CASE("a heat in turns gives times, who ran before, clocks and idle time") {
  Recorder recorder;
  const auto heat = run(recorder);
  REQUIRE(heat);
  const Timing &a = heat->timings[0], &b = heat->timings[1];
  CHECK(a.ms == std::vector<double>{4, 4});
  CHECK(b.ms == std::vector<double>{10, 10});
  CHECK(a.before == std::vector<int>{-1, 1});
  CHECK(b.before == std::vector<int>{0, 1});
  CHECK(a.clock_mhz == std::vector<double>{1501, 1504});
  CHECK(b.clock_mhz == std::vector<double>{1502, 1503});
  CHECK(heat->states.size() == 2);
  REQUIRE(heat->idle_ms.size() == 3);
  for (const double ms : heat->idle_ms) CHECK(ms == Approx(3));  // the one before is verified, this one poisoned
}

TEST_CASE("whatever fails is its contestant's error and ends its turns; the others go on") {
  const Calls all = all_calls();
  for (int i = 0; i < std::ssize(all); ++i) {
    const std::string& what = all[i];
    if (!what.starts_with("a ") && !what.starts_with("b ")) continue;
    CAPTURE(i, what);
    Recorder recorder;
    recorder.fails = i;
    const auto heat = run(recorder);
    REQUIRE(heat);
    const int who = what.front() - 'a';
    const Timing &failed = heat->timings[who], &other = heat->timings[1 - who];
    REQUIRE(failed.error);
    CHECK(failed.error->message == "failed: " + what);
    CHECK_FALSE(other.error);
    CHECK(other.ms.size() == 2);
    CHECK(std::none_of(recorder.calls.begin() + i + 1, recorder.calls.end(),
                       [&](const std::string& call) { return call.starts_with(what.substr(0, 2)); }));
    // A clock that was started is stopped.
    CHECK(std::ranges::count(recorder.calls, "start clock") == std::ranges::count(recorder.calls, "stop clock"));
  }
}

TEST_CASE("a heat ends at the first Ctrl-C that it is told of, wherever that is") {
  const auto questions = std::ranges::count(all_calls(), "Ctrl-C?");
  REQUIRE(questions >= 8);
  for (int question = 0; question < questions; ++question) {
    CAPTURE(question);
    Recorder recorder;
    recorder.interrupted = question;
    const auto heat = run(recorder);
    REQUIRE_FALSE(heat);
    CHECK(heat.error().code == ExitCode::interrupted);
    CHECK(recorder.calls.back() == "Ctrl-C?");
    CHECK(std::ranges::count(recorder.calls, "Ctrl-C?") == question + 1);
  }
}

TEST_CASE("a card that does not answer leaves no figures") {
  Recorder recorder;
  Machine machine = recorder.machine();
  machine.card = [] { return std::nullopt; };
  machine.stop_clock = [] { return std::nullopt; };
  const std::vector contestants{recorder.contestant("a", 4)};
  for (const Regime regime : {Regime::turns, Regime::alone, Regime::burst}) {
    const auto heat = run_heat(contestants, std::vector<double>{4}, {.regime = regime, .rounds = 2}, machine);
    REQUIRE(heat);
    CHECK(heat->states.empty());
    CHECK_FALSE(heat->timings[0].power_w);
    CHECK(heat->timings[0].clock_mhz.empty());
    CHECK(heat->timings[0].ms == std::vector<double>{4, 4});
  }
}

TEST_CASE("the soak ends when nobody is left who could pass the time") {
  Simulation simulation;
  const Contestant broken{.name = "broken", .time_ms = [](int) -> Result<double> { return NAN; }};
  const auto heat = run_heat(std::vector{broken}, std::vector<double>{5}, {}, simulation.machine());
  REQUIRE(heat);
  CHECK(heat->timings[0].error);
}

TEST_CASE("the first launch pays for loading the kernel and does not count; whoever fails has the error") {
  Simulation simulation;
  const Contestant cold{.name = "cold", .time_ms = [first = true](int) mutable -> Result<double> {
                          return std::exchange(first, false) ? 90.0 : 4.0;
                        }};
  const Contestant broken{.name = "broken", .time_ms = [](int) -> Result<double> { return NAN; }};
  const std::vector contestants{cold, broken, simulation.contestant("b", 2)};
  Machine machine = simulation.machine();
  const auto looks = first_look(contestants, turns_protocol(), machine);
  REQUIRE(looks);
  REQUIRE(looks->size() == 3);
  CHECK((*looks)[0].value() == 4.0);
  CHECK_FALSE((*looks)[1]);
  CHECK((*looks)[2].value() == 2.0);
  machine.interrupted = [] { return true; };
  CHECK(first_look(contestants, turns_protocol(), machine).error().code == ExitCode::interrupted);
}

TEST_CASE("a time is a positive number, however small") {
  const auto looked = [](double ms) {
    const Contestant contestant{.name = "a", .time_ms = [=](int) -> Result<double> { return ms; }};
    return first_look(std::vector{contestant}, turns_protocol(), Simulation().machine())->front();
  };
  for (const double ms : {1e-9, 0.5, 1.0, 1e9}) CHECK(looked(ms));
  constexpr double INFINITE = std::numeric_limits<double>::infinity();
  for (const double ms : {0.0, -1.0, -INFINITE, INFINITE, double(NAN)})
    CHECK(looked(ms).error().message == "a reported a time that is not a positive number");
}

// ---- plans -----------------------------------------------------------------------------------------------------------

TEST_CASE("rounds are the fewest, from the least on, in which everyone follows everyone equally often") {
  for (int contestants = 0; contestants <= 25; ++contestants) {
    for (const int least : {1, 6, 7, 20, 24}) {
      CAPTURE(contestants, least);
      int expected = least;
      while (contestants > 0 && expected % round_period(contestants) != 0) ++expected;
      CHECK(Protocol{.least_rounds = least}.rounds_of(contestants) == expected);
      CHECK(Protocol{.regime = Regime::alone, .least_rounds = least}.rounds_of(contestants) == least);
      CHECK(Protocol{.regime = Regime::burst, .least_rounds = least}.rounds_of(contestants) == least);
      CHECK(Protocol{.rounds = 3, .least_rounds = least}.rounds_of(contestants) == 3);
    }
  }
}

TEST_CASE("a verdict needs eight rounds, and in turns one whole period and somebody to follow") {
  const auto balanced = [](Regime regime, int contestants, int rounds) {
    Simulation simulation;
    const std::vector<Contestant> all(static_cast<size_t>(contestants), simulation.contestant("a", 5));
    const std::vector<double> launch_ms(all.size(), 5.0);
    const Machine machine = simulation.machine();
    return run_heat(all, launch_ms, {.regime = regime, .rounds = rounds, .soak_s = 0}, machine)->balanced;
  };
  for (const Regime regime : {Regime::alone, Regime::burst}) {
    for (const int contestants : {1, 2, 5}) {
      CHECK_FALSE(balanced(regime, contestants, 7));
      CHECK(balanced(regime, contestants, 8));
    }
  }
  CHECK_FALSE(balanced(Regime::turns, 1, 20));  // it follows nobody
  CHECK_FALSE(balanced(Regime::turns, 2, 7));
  CHECK(balanced(Regime::turns, 2, 8));
  CHECK_FALSE(balanced(Regime::turns, 5, 9));
  CHECK(balanced(Regime::turns, 5, 10));
  CHECK_FALSE(balanced(Regime::turns, 12, 11));
  CHECK(balanced(Regime::turns, 12, 12));
}
