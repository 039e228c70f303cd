// NVML without a driver: a fake library, and none at all.
#include "harness/measure/nvml.hpp"

#include <chrono>
#include <thread>

#include "harness/tests/catch.hpp"

using namespace ladder;

TEST_CASE("without NVML, or without the card, there are no figures and no error") {
  CHECK_FALSE(Nvml::open("0000:01:00.0", "libno-such-nvml.so"));
  CHECK_FALSE(Nvml::open("0000:99:00.0", FAKE_NVML));
  CHECK_FALSE(Nvml::open("0000:01:00.0", "libm.so.6"));  // a library, but another one
}

TEST_CASE("a card's state is read in MHz, W and degrees, and polled beside a group") {
  std::optional<Nvml> nvml = Nvml::open("0000:01:00.0", FAKE_NVML);
  REQUIRE(nvml);
  CHECK(nvml->driver_version() == "580.95.05");
  const std::optional<CardState> first = nvml->now();
  REQUIRE(first);
  CHECK(first->power_w == 512.5);
  CHECK(first->temperature_c == 61);

  nvml->start();
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  const std::optional<CardState> polled = nvml->stop();
  REQUIRE(polled);
  CHECK(polled->clock_mhz < first->clock_mhz);
  CHECK(throttle_words(polled->throttle_reasons) == "power cap");
  CHECK_FALSE(nvml->stop());  // nothing was started

  nvml->start();  // a group shorter than the polling interval still has a clock
  CHECK(nvml->stop());
  nvml->start();  // and one that is abandoned does not outlive its meter
}

TEST_CASE("a summary is the median of each figure and every reason seen") {
  const std::vector<CardState> states{
      {.clock_mhz = 1980, .power_w = 300, .temperature_c = 50, .throttle_reasons = 0x1},
      {.clock_mhz = 1455, .power_w = 570, .temperature_c = 60, .throttle_reasons = 0x4},
      {.clock_mhz = 1700, .power_w = 500, .temperature_c = 70, .throttle_reasons = 0x20}};
  const std::optional<CardState> all = summary(states);
  REQUIRE(all);
  CHECK(all->clock_mhz == 1700);
  CHECK(all->power_w == 500);
  CHECK(all->temperature_c == 60);
  CHECK(throttle_words(all->throttle_reasons) == "power cap, thermal (software)");
  CHECK(throttle_words(0x3) == "");
  CHECK_FALSE(summary({}));
}
