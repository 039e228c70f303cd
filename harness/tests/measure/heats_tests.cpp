// Who runs beside whom.
#include "harness/measure/heats.hpp"

#include <algorithm>
#include <random>
#include <set>

#include "harness/tests/catch.hpp"

using namespace ladder;

TEST_CASE("like runs with like, the slowest first, and those who are everywhere have their home in the fastest heat") {
  const std::vector<Candidate> candidates{{.launch_ms = 20},
                                          {.launch_ms = 500},
                                          {.launch_ms = 400},
                                          {.launch_ms = 25, .everywhere = true},
                                          {.launch_ms = 21},
                                          {.launch_ms = 100},
                                          {.launch_ms = 1, .everywhere = true}};
  const std::vector<PlannedHeat> heats = plan_heats(candidates);
  REQUIRE(heats.size() == 3);
  CHECK(heats[0].own == std::vector<size_t>{1, 2});
  CHECK(heats[0].all() == std::vector<size_t>{1, 2, 3, 6});
  CHECK(heats[1].own == std::vector<size_t>{5});
  CHECK(heats[2].own == std::vector<size_t>{4, 0, 3, 6});
}

TEST_CASE("whoever a ratio needs is a guest, however slow") {
  const std::vector<Candidate> candidates{
      {.launch_ms = 120}, {.launch_ms = 40, .links = {0}}, {.launch_ms = 20, .links = {1}}};
  const std::vector<PlannedHeat> heats = plan_heats(candidates);
  REQUIRE(heats.size() == 2);
  CHECK(heats[0].all() == std::vector<size_t>{0, 1});
  CHECK(heats[1].own == std::vector<size_t>{2});
  CHECK(heats[1].guests == std::vector<size_t>{1});
}

TEST_CASE("thermometers share the last heat, and what is recorded takes part for others alone") {
  const std::vector<Candidate> candidates{{.launch_ms = 20, .recorded = true},
                                          {.launch_ms = 21, .links = {0}},
                                          {.launch_ms = 2, .thermometer = true},
                                          {.launch_ms = 22, .recorded = true}};
  const std::vector<PlannedHeat> heats = plan_heats(candidates);
  REQUIRE(heats.size() == 2);
  CHECK(heats[0].own == std::vector<size_t>{1});
  CHECK(heats[0].all() == std::vector<size_t>{0, 1});
  CHECK(heats[1].own == std::vector<size_t>{2});
  CHECK(plan_heats({}).empty());
}

TEST_CASE("of any field, everyone has one home, and no heat is too large or too wide") {
  std::mt19937 random(3);
  for (int experiment = 0; experiment < 200; ++experiment) {
    std::vector<Candidate> candidates(1 + random() % 80);
    for (size_t i = 0; i < candidates.size(); ++i) {
      candidates[i].launch_ms = 1.0 + random() % 1000;
      candidates[i].everywhere = i < 2;
      if (i > 2 && random() % 2) candidates[i].links = {random() % i};
    }
    std::multiset<size_t> homes;
    for (const PlannedHeat& heat : plan_heats(candidates)) {
      homes.insert(heat.own.begin(), heat.own.end());
      const std::vector<size_t> all = heat.all();
      CHECK(std::set(all.begin(), all.end()).size() == all.size());
      CHECK(all.size() <= MOST_IN_A_HEAT);
      double slowest = 0, fastest = 1e9;
      for (const size_t i : heat.own) {
        for (const size_t link : candidates[i].links) CHECK(std::ranges::count(all, link) == 1);
        if (candidates[i].everywhere) continue;
        slowest = std::max(slowest, candidates[i].launch_ms);
        fastest = std::min(fastest, candidates[i].launch_ms);
      }
      CHECK(slowest <= WIDEST_HEAT * fastest);
    }
    if (candidates.size() < 3) continue;  // nobody but those who are everywhere
    CHECK(homes.size() == candidates.size());
    CHECK(std::set(homes.begin(), homes.end()).size() == homes.size());
  }
}

TEST_CASE("a schedule leaves out who failed, puts the slowest apart, and says how long it takes") {
  const std::vector<Entry> entries{{.name = "plain", .kind = "stage"},
                                   {.name = "slow", .kind = "stage"},
                                   {.name = "fa2", .kind = "peer"},
                                   {.name = "broken", .kind = "stage"},
                                   {.name = "slowest", .kind = "stage"}};
  const std::vector<Result<double>> looks{125.0, 5700.0, 25.0, Unexpected{Error{ExitCode::check_failed, "no launch"}},
                                          9000.0};
  const Protocol protocol;
  const Schedule schedule =
      make_schedule(entries, looks, protocol, "fa2", [](const Entry& entry) { return entry.name == "slowest"; });
  REQUIRE(schedule.heats.size() == 2);
  CHECK(schedule.heats[0].all() == std::vector<size_t>{0, 2});
  CHECK(schedule.heats[1].apart);
  CHECK(schedule.heats[1].own == std::vector<size_t>{1});  // the slowest has its row already
  CHECK(schedule.seconds ==
        seconds_of_heat(std::vector{5700.0}, apart_protocol()) + seconds_of_heat(std::vector{125.0, 25.0}, protocol));
  CHECK(summary(schedule, protocol) == "1 heat of 2 (20 rounds), 1 apart");
}
