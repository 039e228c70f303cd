#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

constexpr Shape SHAPE{.batch = 1, .heads = 1, .n = 128, .d = 128};

}  // namespace

CLAIM("a tile takes one step: a 32nd of the exchanges") {
  CHECK(counted(previous(), SHAPE).shuffles == 32 * counted(rung(), SHAPE).shuffles);
}

CLAIM("K is read and P is stored without conflicts") {
  for (const auto& [region, instruction] : {std::pair{"K", "ld.shared.v4.b32"}, std::pair{"P", "st.shared.v4.b32"}}) {
    INFO(region);
    const Traffic all = traffic(counted(rung(), SHAPE), region, instruction);
    CHECK(all.requests > 0);
    CHECK(all.wavefronts == all.ideal);
  }
}

CLAIM("half the query tile streams K and V twice as often") {
  const auto streamed = [](const Tile& tile) {
    return counted(rung(), with_tile(rung(), tile), SHAPE).gmem_bytes_read - SHAPE.n * SHAPE.d * 2;  // without Q
  };
  CHECK(streamed({32, 64, 2}) == 2 * streamed({64, 64, 4}));
}
