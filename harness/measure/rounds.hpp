// The round loop of the bench: who runs when, for how long. It sees contestants as functions and the machine as a few more,
// so that tests run it on simulated ones.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/measure/statistics.hpp"

namespace ladder {

// What NVML says of the card.
struct CardState {
  double power_w = 0;  // averaged over about the last second
  double temperature_c = 0;
  uint64_t throttle_reasons = 0;  // NVML's bits
};

struct Contestant {
  std::string name;
  std::function<Result<double>(int launches)> time_ms;  // milliseconds of that many back-to-back launches
  // Before each group: draw its launches, poison their outputs. After it: verify them.
  std::function<Status(int launches)> before = [](int) { return Status{}; };
  std::function<Status()> after = [] { return Status{}; };
};

// What the loop needs from the machine, and what it may have.
struct Machine {
  std::function<double()> now_s;
  std::function<void(double)> sleep_s;
  std::function<Status(double ms)> load = {};  // keeps the card busy for so long, the same way for everybody
  // The mean SM clock between the two, MHz, counted on the card.
  std::function<void()> start_clock = [] {};
  std::function<std::optional<double>()> stop_clock = [] { return std::optional<double>(); };
  std::function<std::optional<CardState>()> card = [] { return std::optional<CardState>(); };
  std::function<bool()> interrupted = [] { return false; };
  std::function<void(std::string_view what, double seconds)> progress = [](std::string_view, double) {};  // comes next
};

// turns: one after the other, in short groups, on a card that a common load keeps warm: how fast, everybody at the same clock.
// alone: long groups, each after a lead-in by the same kernel: how fast at the clock that the kernel's own power leaves.
// burst: on a cool card, before it slows down.
enum class Regime { turns, alone, burst };
constexpr std::string_view to_string(Regime regime) {
  return regime == Regime::turns ? "turns" : regime == Regime::alone ? "alone" : "burst";
}

struct Protocol {
  Regime regime = Regime::turns;
  std::optional<int> rounds =
      {};  // default: the fewest, from least_rounds on, in which everyone follows everyone equally often
  int least_rounds = 20;
  double group_ms = 20;     // at least; burst: at most
  double lead_in_ms = 100;  // right before each group: of the machine's load; alone: of the contestant itself
  double warm_up_s = 10;    // of the machine's load, before the first heat of a run
  double soak_s = 3;  // before the first round: everyone in turn; alone: of each contestant by itself, for its power
  double idle_s = 0;  // burst: before each group
  double longest_launch_ms = 1500;  // a contestant slower than this is timed apart

  int rounds_of(int contestants) const;
};
Protocol turns_protocol();
Protocol alone_protocol();
Protocol burst_protocol();
Protocol apart_protocol();  // of a slow contestant by itself: a few launches

struct Timing {
  std::vector<double> ms = {};   // per launch; one per round
  std::vector<int> before = {};  // who ran right before, an index into the same heat, or -1; one per entry of `ms`
  std::vector<double> clock_mhz = {};  // one per entry of `ms`, or none where it is not counted
  std::optional<double> power_w = {};  // of its own work alone
  int launches = 0;                    // in each group
  std::optional<Error> error = {};     // it stopped here; its times are not to be used
};

// One heat: what happened to each contestant, and to the card.
struct HeatTimings {
  std::vector<Timing> timings;
  std::vector<double> idle_ms = {};    // of the card, between one group and the lead-in of the next
  std::vector<CardState> states = {};  // after each round
  bool balanced = false;               // everyone followed everyone else equally often, in enough rounds for a verdict
};

// What stops a bench in the middle of a heat.
Unexpected interruption();

// Milliseconds of a launch, on a cold card, to plan by: the first launch pays for loading the kernel and does not count
// unless it was a long one. A contestant that fails has the error. Fails only with interruption().
Result<std::vector<Result<double>>> first_look(std::span<const Contestant> contestants, const Protocol& protocol,
                                               const Machine& machine);

// The seconds that a heat of contestants with these launches will take.
double seconds_of_heat(std::span<const double> launch_ms, const Protocol& protocol);

// One Timing per contestant. A contestant that fails is left out from there on. Fails only with interruption().
Result<HeatTimings> run_heat(std::span<const Contestant> contestants, std::span<const double> launch_ms,
                             const Protocol& protocol, const Machine& machine);

// Brings the card to the temperature of a long run. Fails only with interruption().
Status warm_up(const Protocol& protocol, const Machine& machine);

}  // namespace ladder
