#include "harness/measure/rounds.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/measure/statistics.hpp"

namespace ladder {
namespace {

constexpr double BETWEEN_GROUPS_S = 0.005;  // drawing, poisoning, verifying: for estimates alone
constexpr int ROUNDS_FOR_A_VERDICT = 8;     // in fewer not even a sign test of one ratio says much

// Milliseconds per launch.
Result<double> time_launches(const Contestant& contestant, int launches) {
  const Result<double> total = contestant.time_ms(launches);
  if (!total) return total;
  if (!(std::isfinite(*total) && *total > 0)) {
    return failure(ExitCode::check_failed, contestant.name + " reported a time that is not a positive number");
  }
  return *total / launches;
}

int launches_of_group(const Protocol& protocol, double ms_per_launch) {
  return protocol.regime == Regime::burst ? launches_for_at_most(protocol.group_ms, ms_per_launch)
                                          : launches_for_at_least(protocol.group_ms, ms_per_launch);
}

class Heat {
 public:
  Heat(std::span<const Contestant> contestants, std::span<const double> launch_ms, const Protocol& protocol,
       const Machine& machine)
      : contestants_(contestants), protocol_(protocol), machine_(machine) {
    result_.timings.resize(contestants.size());
    for (size_t who = 0; who < contestants.size(); ++who) size_groups(who, launch_ms[who]);
    rounds_ = protocol.rounds_of(static_cast<int>(contestants.size()));
    const auto all = static_cast<int>(contestants.size());
    result_.balanced = rounds_ >= ROUNDS_FOR_A_VERDICT &&
                       (protocol.regime != Regime::turns || (all > 1 && rounds_ >= round_period(all)));
    soak_seconds_ = protocol.soak_s * (protocol.regime == Regime::alone ? double(all) : 1);
    round_seconds_ = (seconds_of_heat(launch_ms, protocol) - soak_seconds_) / rounds_;
  }

  Result<HeatTimings> run() {
    if (!soak()) return interruption();
    for (int round = 0; round < rounds_; ++round) {
      machine_.progress("round " + std::to_string(round + 1) + " of " + std::to_string(rounds_), round_seconds_);
      for (const int who : order(round)) {
        if (machine_.interrupted()) return interruption();
        time_turn(static_cast<size_t>(who));
      }
      if (const auto state = machine_.card()) result_.states.push_back(*state);
    }
    return std::move(result_);
  }

 private:
  // A dropout does not change the order of the others.
  std::vector<int> order(int round) const { return round_order(static_cast<int>(contestants_.size()), round); }

  std::optional<double> launch(size_t who, int launches) {
    const Result<double> ms = time_launches(contestants_[who], launches);
    if (ms) return *ms;
    result_.timings[who].error = ms.error();
    return {};
  }

  void size_groups(size_t who, double ms_per_launch) {
    ms_per_launch_.resize(contestants_.size());
    ms_per_launch_[who] = ms_per_launch;
    result_.timings[who].launches = launches_of_group(protocol_, ms_per_launch);
  }

  // Until the card is as warm as it will be: all of them in turn, or alone each by itself, for so long that NVML's power is of its
  // work alone. Groups are sized anew from each: a cold card misleads.
  bool soak() {
    if (protocol_.soak_s <= 0) return true;
    machine_.progress("soak", soak_seconds_);
    const bool alone = protocol_.regime == Regime::alone;
    for (size_t own = 0; own < (alone ? contestants_.size() : 1); ++own) {
      const double start = machine_.now_s();
      bool anybody = true;
      for (int round = 0; anybody && machine_.now_s() - start < protocol_.soak_s; ++round) {
        anybody = false;
        for (const int place : alone ? std::vector{static_cast<int>(own)} : order(round)) {
          const auto who = static_cast<size_t>(place);
          if (machine_.interrupted()) return false;
          if (result_.timings[who].error || !load(who)) continue;
          anybody = true;
          if (const auto ms = launch(who, result_.timings[who].launches)) size_groups(who, *ms);
        }
      }
      if (!alone || result_.timings[own].error) continue;
      if (const auto state = machine_.card()) result_.timings[own].power_w = state->power_w;
    }
    return true;
  }

  // The machine's load; false when the card refuses it.
  bool load(size_t who) {
    if (!machine_.load || protocol_.regime != Regime::turns || protocol_.lead_in_ms <= 0) return true;
    const Status loaded = machine_.load(protocol_.lead_in_ms);
    if (!loaded) result_.timings[who].error = loaded.error();
    return bool(loaded);
  }

  void time_turn(size_t who) {
    Timing& timing = result_.timings[who];
    const Contestant& contestant = contestants_[who];
    if (timing.error) return;
    const auto idled = [&] {
      if (ended_s_ && protocol_.idle_s == 0) result_.idle_ms.push_back((machine_.now_s() - *ended_s_) * 1e3);
    };
    // A lead-in by the contestant itself writes outputs, so that they are poisoned after it; the common load does not.
    if (protocol_.regime == Regime::alone) {
      idled();
      const int lead_in = launches_for_at_least(protocol_.lead_in_ms, ms_per_launch_[who]);
      if (!launch(who, lead_in)) return;
    }
    if (const Status poisoned = contestant.before(timing.launches); !poisoned) {
      timing.error = poisoned.error();
      return;
    }
    if (protocol_.regime != Regime::alone) idled();
    if (!load(who)) return;
    if (protocol_.idle_s > 0) machine_.sleep_s(protocol_.idle_s);
    machine_.start_clock();
    const std::optional<double> ms = launch(who, timing.launches), mhz = machine_.stop_clock();
    ended_s_ = machine_.now_s();
    const int before = std::exchange(last_, static_cast<int>(who));
    if (!ms) return;
    timing.ms.push_back(*ms);
    timing.before.push_back(before);
    if (mhz) timing.clock_mhz.push_back(*mhz);
    if (const Status verified = contestant.after(); !verified) timing.error = verified.error();
  }

  std::span<const Contestant> contestants_;
  const Protocol& protocol_;
  const Machine& machine_;
  HeatTimings result_;
  std::vector<double> ms_per_launch_;
  int rounds_ = 0, last_ = -1;
  double soak_seconds_ = 0, round_seconds_ = 0;
  std::optional<double> ended_s_;  // when the last group did
};

}  // namespace

Unexpected interruption() {
  return failure(
      ExitCode::interrupted,
      "interrupted; this heat is not recorded, earlier ones are. The same command with --resume goes on there");
}

int Protocol::rounds_of(int contestants) const {
  if (rounds) return *rounds;
  if (regime != Regime::turns || contestants < 1) return least_rounds;
  const int period = round_period(contestants);
  return (least_rounds + period - 1) / period * period;
}

Protocol turns_protocol() {
  return {};
}

Protocol alone_protocol() {
  return {
      .regime = Regime::alone, .least_rounds = 10, .group_ms = 150, .lead_in_ms = 150, .warm_up_s = 0, .soak_s = 1.5};
}

Protocol burst_protocol() {
  return {.regime = Regime::burst, .least_rounds = 10, .lead_in_ms = 0, .warm_up_s = 0, .soak_s = 0, .idle_s = 1};
}

Protocol apart_protocol() {
  return {.rounds = 3, .group_ms = 0, .lead_in_ms = 0, .warm_up_s = 0, .soak_s = 0};
}

Result<std::vector<Result<double>>> first_look(std::span<const Contestant> contestants, const Protocol& protocol,
                                               const Machine& machine) {
  std::vector<Result<double>> launch_ms;
  for (const Contestant& contestant : contestants) {
    if (machine.interrupted()) return interruption();
    machine.progress(contestant.name, 0);
    Result<double> ms = time_launches(contestant, 1);
    if (ms && *ms <= protocol.longest_launch_ms) ms = time_launches(contestant, 1);
    launch_ms.push_back(std::move(ms));
  }
  return launch_ms;
}

double seconds_of_heat(std::span<const double> launch_ms, const Protocol& protocol) {
  double round = 0, soak = protocol.soak_s;
  for (const double ms : launch_ms) {
    const double lead_in = protocol.regime == Regime::alone ? std::max(protocol.lead_in_ms, ms) : protocol.lead_in_ms;
    round += (lead_in + launches_of_group(protocol, ms) * ms) / 1e3 + protocol.idle_s + BETWEEN_GROUPS_S;
  }
  const auto contestants = static_cast<int>(launch_ms.size());
  if (protocol.regime == Regime::alone) soak *= contestants;
  return soak + protocol.rounds_of(contestants) * round;
}

Result<HeatTimings> run_heat(std::span<const Contestant> contestants, std::span<const double> launch_ms,
                             const Protocol& protocol, const Machine& machine) {
  return Heat(contestants, launch_ms, protocol, machine).run();
}

Status warm_up(const Protocol& protocol, const Machine& machine) {
  constexpr double STEP_S = 0.5;  // between two looks at Ctrl-C
  if (!machine.load || protocol.warm_up_s <= 0) return {};
  machine.progress("warm-up", protocol.warm_up_s);
  const double start = machine.now_s();
  while (machine.now_s() - start < protocol.warm_up_s) {
    if (machine.interrupted()) return interruption();
    if (!machine.load(1e3 * STEP_S)) break;  // whoever is timed says why
  }
  return {};
}

}  // namespace ladder
