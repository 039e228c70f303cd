// The round loop of the bench: who runs when, for how long. It sees contestants as functions and the machine as a clock
// and a meter, so that tests run it on simulated ones.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/base/error.hpp"

namespace ladder {

// The card while a group ran.
struct CardState {
  double clock_mhz = 0;  // of the SMs
  double power_w = 0;
  double temperature_c = 0;
  uint64_t throttle_reasons = 0;  // NVML's bits, of all samples together
};

struct Contestant {
  std::string name;
  std::function<Result<double>(int launches)> time_ms;  // milliseconds of that many back-to-back launches
  std::function<Status(int launches)> before = {};      // before each group: draw its launches, poison their outputs
  std::function<Status()> after = {};                   // after each group: verify the outputs
};

// What the loop needs from the machine.
struct Machine {
  std::function<double()> now_s;
  std::function<void(double)> sleep_s;
  std::function<void()> start_meter = {};
  std::function<std::optional<CardState>()> stop_meter = {};
  std::function<bool()> interrupted = {};
  std::function<void(std::string_view what, int done, int total)> progress = {};
};

enum class Regime { sustained, burst };
std::string_view to_string(Regime regime);

struct Protocol {
  Regime regime = Regime::sustained;
  int rounds = 20;
  double group_ms = 20;             // sustained: at least; burst: at most
  double soak_s = 3;                // sustained: everyone runs in turn this long before the first round
  double idle_s = 0;                // burst: before each group
  double longest_launch_ms = 1000;  // a contestant slower than this is timed alone, after the rounds
  int alone_launches = 3;
};
Protocol sustained_protocol();
Protocol burst_protocol();

struct Timing {
  std::vector<double> ms;         // per launch; one per round, or one per launch when timed alone
  std::vector<CardState> states;  // one per entry of `ms`, or none without a meter
  int launches = 0;               // in each group
  bool alone = false;             // its times pair with nobody's
  std::optional<Error> error;     // it stopped here; its times are not to be used
};

// What stops a bench in the middle of a shape.
tl::unexpected<Error> interruption();

// One Timing per contestant. A contestant that fails is left out from there on. Fails only with interruption().
Result<std::vector<Timing>> run_rounds(std::span<const Contestant> contestants, const Protocol& protocol,
                                       const Machine& machine);

}  // namespace ladder
