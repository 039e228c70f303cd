#include "harness/measure/rounds.hpp"

#include <cmath>

#include "harness/measure/statistics.hpp"

namespace ladder {
namespace {

class Rounds {
 public:
  Rounds(std::span<const Contestant> contestants, const Protocol& protocol, const Machine& machine)
      : contestants_(contestants), protocol_(protocol), machine_(machine), timings_(contestants.size()) {}

  Result<std::vector<Timing>> run() {
    for (size_t who = 0; who < contestants_.size(); ++who) {
      if (interrupted()) return interruption();
      calibrate(who);
    }
    if (protocol_.regime == Regime::sustained && !soak()) return interruption();
    const std::vector<size_t> field = in_turn();  // fixed from here on, so that a dropout does not change the order
    for (int round = 0; round < protocol_.rounds; ++round) {
      report("round", round, protocol_.rounds);
      for (const int place : round_order(static_cast<int>(field.size()), round)) {
        if (interrupted()) return interruption();
        time_group(field[static_cast<size_t>(place)]);
      }
    }
    for (size_t who = 0; who < contestants_.size(); ++who) {
      for (int i = 0; timings_[who].alone && i < protocol_.alone_launches; ++i) {
        if (interrupted()) return interruption();
        report(contestants_[who].name, i, protocol_.alone_launches);
        time_group(who);
      }
    }
    return std::move(timings_);
  }

 private:
  bool interrupted() const { return machine_.interrupted && machine_.interrupted(); }
  void report(std::string_view what, int done, int total) const {
    if (machine_.progress) machine_.progress(what, done, total);
  }

  std::vector<size_t> in_turn() const {
    std::vector<size_t> field;
    for (size_t who = 0; who < timings_.size(); ++who) {
      if (!timings_[who].error && !timings_[who].alone) field.push_back(who);
    }
    return field;
  }

  // Milliseconds per launch, or nothing when the contestant has failed; its Timing then says why.
  std::optional<double> launch(size_t who, int launches) {
    const Result<double> total = contestants_[who].time_ms(launches);
    if (!total) {
      timings_[who].error = total.error();
      return {};
    }
    if (!(std::isfinite(*total) && *total > 0)) {
      timings_[who].error =
          Error{ExitCode::check_failed, contestants_[who].name + " reported a time that is not a positive number"};
      return {};
    }
    return *total / launches;
  }

  void size_groups(size_t who, double ms_per_launch) {
    const bool sustained = protocol_.regime == Regime::sustained;
    timings_[who].launches = sustained ? launches_for_at_least(protocol_.group_ms, ms_per_launch)
                                       : launches_for_at_most(protocol_.group_ms, ms_per_launch);
  }

  // The first launch pays for loading the kernel; the second one says how long a launch is.
  void calibrate(size_t who) {
    report(contestants_[who].name, 0, 1);
    for (int i = 0; i < 2; ++i) {
      const std::optional<double> ms = launch(who, 1);
      if (!ms) return;
      timings_[who].alone = *ms > protocol_.longest_launch_ms;
      size_groups(who, *ms);
      if (timings_[who].alone) {
        timings_[who].launches = 1;
        return;
      }
    }
  }

  // Everyone in turn until the card is as warm as it will be. Groups are sized anew from each: a cold card misleads.
  bool soak() {
    const std::vector<size_t> field = in_turn();
    const double start = machine_.now_s();
    report("soak", 0, 1);
    for (int round = 0; !field.empty() && machine_.now_s() - start < protocol_.soak_s; ++round) {
      for (const int place : round_order(static_cast<int>(field.size()), round)) {
        if (interrupted()) return false;
        const size_t who = field[static_cast<size_t>(place)];
        if (timings_[who].error) continue;
        if (const std::optional<double> ms = launch(who, timings_[who].launches)) size_groups(who, *ms);
      }
      if (in_turn().empty()) break;
    }
    return true;
  }

  void time_group(size_t who) {
    Timing& timing = timings_[who];
    const Contestant& contestant = contestants_[who];
    if (timing.error) return;
    if (contestant.before) {
      if (const Status poisoned = contestant.before(timing.launches); !poisoned) {
        timing.error = poisoned.error();
        return;
      }
    }
    if (protocol_.idle_s > 0) machine_.sleep_s(protocol_.idle_s);
    if (machine_.start_meter) machine_.start_meter();
    const std::optional<double> ms = launch(who, timing.launches);
    const std::optional<CardState> state = machine_.stop_meter ? machine_.stop_meter() : std::nullopt;
    if (!ms) return;
    timing.ms.push_back(*ms);
    if (state) timing.states.push_back(*state);
    if (contestant.after) {
      if (const Status verified = contestant.after(); !verified) timing.error = verified.error();
    }
  }

  std::span<const Contestant> contestants_;
  const Protocol& protocol_;
  const Machine& machine_;
  std::vector<Timing> timings_;
};

}  // namespace

std::string_view to_string(Regime regime) {
  return regime == Regime::sustained ? "sustained" : "burst";
}

tl::unexpected<Error> interruption() {
  return failure(ExitCode::interrupted, "interrupted; this shape is not recorded, earlier ones are");
}

Protocol sustained_protocol() {
  return {};
}

Protocol burst_protocol() {
  return {.regime = Regime::burst, .rounds = 10, .soak_s = 0, .idle_s = 1};
}

Result<std::vector<Timing>> run_rounds(std::span<const Contestant> contestants, const Protocol& protocol,
                                       const Machine& machine) {
  return Rounds(contestants, protocol, machine).run();
}

}  // namespace ladder
