#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("a maximum that grows by 1 log2 unit from tile to tile is left as it is, one that grows by 200 is raised") {
  const auto raised = [](float growth) {  // votes that say yes
    const CheckResult result = judged(rung(), growing_scores(rung(), growth));
    INFO(reasons(result));
    CHECK(result.answers_right());
    return result.counters->yes_votes;
  };
  CHECK(raised(1.0f) == raised(0.0f));
  CHECK(raised(200.0f) > raised(0.0f));
}
