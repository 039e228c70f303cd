// NVML without a driver: a fake library, and none at all.
#include "harness/measure/nvml.hpp"

#include "harness/tests/catch.hpp"

using namespace ladder;

TEST_CASE("without NVML, or without the card, there are no figures and no error") {
  CHECK_FALSE(Nvml::open("0000:01:00.0", "libno-such-nvml.so"));
  CHECK_FALSE(Nvml::open("0000:99:00.0", FAKE_NVML));
  CHECK_FALSE(Nvml::open("0000:01:00.0", "libm.so.6"));  // a library, but another one
}

TEST_CASE("a card's state is read in W and degrees, with what slows it") {
  const std::optional<Nvml> nvml = Nvml::open("0000:01:00.0", FAKE_NVML);
  REQUIRE(nvml);
  CHECK(nvml->driver_version() == "580.95.05");
  const std::optional<CardState> state = nvml->now();
  REQUIRE(state);
  CHECK(state->power_w == 512.5);
  CHECK(state->temperature_c == 61);
  CHECK(throttle_words(state->throttle_reasons) == "power cap");
  CHECK(throttle_words(0x24) == "power cap, thermal (software)");
  CHECK(throttle_words(0x3) == "");
  CHECK(too_hot(0x24));
  CHECK(too_hot(0x40));
  CHECK_FALSE(too_hot(0x8c));  // power
}
