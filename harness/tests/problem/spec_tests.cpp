// A problem as text, and its numbers' types.
#include "harness/problem/spec.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "harness/problem/element.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/tests/catch.hpp"

using namespace ladder;

TEST_CASE("a problem's text has its sizes, and leaves out what is as usual") {
  CHECK(to_string(Spec{}) == "b=1 h=1 n=512 d=128");
  const auto spec = parse_spec("b=2 h=32 kv=8 nq=1 nk=4096 d=128 bf16 causal window=1023,0 layout=bnhd");
  REQUIRE(spec);
  CHECK(to_string(*spec) == "b=2 h=32 kv=8 nq=1 nk=4096 d=128 bf16 causal window=1023,0 layout=bnhd");
  CHECK(spec->q_type == Element::bf16);
  CHECK((spec->causal && spec->left == 1023 && spec->keys() == 4096 && spec->key_heads() == 8));
  CHECK(to_string(parse_spec("window=7,0").value()) == "b=1 h=1 n=512 d=128 causal window=7,0");
  CHECK(to_string(parse_spec("kv=1 h=1 nq=512").value()) == to_string(Spec{}));
}

TEST_CASE("what a text leaves out comes from the problem that it changes") {
  const Spec from{.batch = 16, .heads = 16, .n = 8192, .causal = true};
  CHECK(parse_spec("", from).value() == from);
  CHECK(to_string(parse_spec("nq=1", from).value()) == "b=16 h=16 nq=1 nk=8192 d=128 causal");
  CHECK(to_string(parse_spec("kv=32 n=64", from).value()) == "b=16 h=64 kv=32 n=64 d=128 causal");
  CHECK(to_string(parse_spec("lens_k=5,70,0", from).value()) ==
        "b=3 h=16 nq=8192 nk=70 d=128 causal lens_q=8192,8192,8192 lens_k=5,70,0");
  CHECK(to_string(parse_spec("lens_q=5,2*3,9*70,0", from).value()) ==
        "b=13 h=16 n=70 d=128 causal lens_q=5,3,3,9*70,0 lens_k=5,3,3,9*70,0");
  CHECK(to_string(parse_spec("lens_q=5,70,0", from).value()) ==
        "b=3 h=16 n=70 d=128 causal lens_q=5,70,0 lens_k=5,70,0");
  // What has a scale is said where it is not as usual.
  CHECK(to_string(parse_spec("n=64 types=bf16,e4m3,bf16 scales=channel").value()) ==
        "b=1 h=1 n=64 d=128 types=bf16,e4m3,bf16 scales=channel");
  CHECK(to_string(parse_spec("n=64 types=bf16,e4m3,bf16 scales=head").value()) ==
        "b=1 h=1 n=64 d=128 types=bf16,e4m3,bf16");
  CHECK(to_string(parse_spec("n=64 types=bf16,s4,bf16 scales=token").value()) ==
        "b=1 h=1 n=64 d=128 types=bf16,s4,bf16");
}

TEST_CASE("every problem is the one that its text says") {
  std::mt19937 random(1);
  const auto below = [&](unsigned end) { return static_cast<int>(random() % end); };
  for (int i = 0; i < 2000; ++i) {
    Spec spec{.batch = 1 + below(3), .heads = 1, .n = 1 + below(100), .d = 1 + below(300)};
    if (below(2)) spec.heads = 2 * (spec.kv_heads = 1 + below(4));
    if (below(2)) spec.n_k = spec.n + 1 + below(9);
    spec.causal = below(2);
    if (below(2)) spec.left = below(9);
    if (below(2) && !spec.causal) spec.right = 1 + below(9);
    if (below(2)) spec.softmax_scale = 1.0f / static_cast<float>(1 + below(1000));
    if (below(2)) spec.softcap = 0.1f * static_cast<float>(1 + below(1000));
    spec.alibi = below(2);
    spec.sink = below(2);
    for (Element* type : {&spec.q_type, &spec.kv_type, &spec.o_type}) *type = static_cast<Element>(below(3));
    if (below(2)) spec.layout = Layout::bnhd;
    if (below(2)) spec.pad = 8;
    if (below(2)) {
      spec.lens_q.count = spec.lens_k.count = spec.batch;
      for (int k = 0; k < spec.batch; ++k) {
        spec.lens_q.of[k] = below(static_cast<unsigned>(spec.n) + 1);
        spec.lens_k.of[k] = below(static_cast<unsigned>(spec.keys()) + 1);
      }
    }
    if (spec.lens_q.count > 0) spec.layout = Layout::bhnd;
    if (spec.lens_q.count == 0 && below(2)) {
      Intervals& intervals = spec.intervals;
      switch (below(4)) {
        case 0:
          intervals.scattered = 1 + below(99);
          break;
        case 1:
          intervals.documents = 1 + below(9), intervals.seed = 1 + below(3);
          break;
        case 2:
          intervals.rows[0] = {1 + below(9), below(9) - 4, below(99)}, intervals.rows[1] = {7, -5, 3};
          break;
        default:
          break;
      }
      if (intervals.rows[0].count > 0) intervals.listed = 2;
      if (!spec.causal && below(2)) intervals.prefix = below(9);
    }
    if (spec.lens_q.count == 0 && below(2)) {
      spec.blocks = {.density = 0.1f * static_cast<float>(1 + below(9)), .seed = 1 + below(3)};
      if (below(2)) spec.blocks.partial = 0.3f;
      if (below(2)) spec.blocks.keys = below(2) ? 64 : 256;
    }
    const std::string text = to_string(spec);
    INFO(text);
    const auto parsed = parse_spec(text);
    REQUIRE(parsed);
    REQUIRE(*parsed == spec);
  }
}

TEST_CASE("a malformed problem is refused by its word, with what that could have been") {
  const std::pair<const char*, std::vector<const char*>> wrong[] = {
      {"heads=4", {"'heads'", "h="}},
      {"causl", {"'causl'", "Did you mean causal?"}},
      {"bf61", {"'bf61'", "Did you mean bf16?"}},
      {"h", {"h takes a whole number from 1 on", "h=..."}},
      {"h=", {"h takes", "''"}},
      {"h=0", {"'0' is not"}},
      {"h=-1", {"'-1' is not"}},
      {"h=4x", {"'4x' is not"}},
      {"nk=99999999999", {"nk takes", "99999999999"}},
      {"causal=1", {"causal stands alone"}},
      {"n=4 n=5", {"n is said twice"}},
      {"bf16 fp16", {"bf16 and fp16"}},
      {"bf16 scales=token", {"scales says of what K and V of 8 or 4 bits", "types=bf16,e4m3,bf16"}},
      {"types=e4m3,e4m3,bf16 scales=channel", {"scales says of what K and V of 8 or 4 bits"}},
      {"types=bf16,s8,bf16 scales=row", {"head, token or channel", "'row'"}},
      {"types=bf16,bf16,fp32 bf16", {"types and bf16"}},
      {"forward backward", {"forward and backward"}},
      {"lens_q=321*4", {"lens_q", "320 at most"}},
      {"n=4 nk=5", {"nq and nk"}},
      {"window=5", {"window takes", "1023,0"}},
      {"window=5,-2", {"window takes"}},
      {"causal window=5,7", {"window=5,0"}},
      {"types=fp16,fp16", {"types takes", "e4m3,e4m3,bf16"}},
      {"types=fp16,fp17,fp16", {"types takes"}},
      {"scale=0", {"scale takes a number above 0"}},
      {"scale=nan", {"scale takes"}},
      {"layout=hbnd", {"bhnd or bnhd", "'hbnd'"}},
      {"h=6 kv=4", {"h=6", "kv=4", "multiple"}},
      {"b=2 lens_q=1,2,3", {"3 lengths", "b=2"}},
      {"n=8 lens_q=9", {"9 is more than n=8"}},
      {"lens_q=1,,2", {"lens_q takes"}},
      {"lens_q=0*2", {"lens_q takes"}},
      {"lens_q=300*1,300*2", {"lens_q takes"}},
      {"documents=0", {"documents takes"}},
      {"documents=3@", {"documents takes"}},
      {"documents=3 scattered=1", {"documents and scattered"}},
      {"intervals=3:4", {"intervals takes", "100*0:70"}},
      {"intervals=0*3:4", {"intervals takes"}},
      {"intervals=1*3:4,", {"intervals takes"}},
      {"prefix=-1", {"prefix takes"}},
      {"causal prefix=5", {"prefix", "causal"}},
      {"n=9 lens_q=9 documents=2", {"several lengths", "documents"}},
      {"blocks=0", {"blocks takes", "above 0"}},
      {"blocks=1.5", {"blocks takes"}},
      {"blocks=0.5@", {"blocks takes"}},
      {"blocks=0.5 partial=2", {"partial takes", "from 0 to 1"}},
      {"blocks=0.5 block_keys=96", {"block_keys takes", "64"}},
      {"partial=0.5", {"partial", "blocks=0.3"}},
      {"n=9 lens_q=9 blocks=0.5", {"several lengths", "blocks"}},
      {"types=bf16,s4,bf16 d=33", {"share a byte", "d=33 is odd"}},
  };
  for (const auto& [text, parts] : wrong) {
    INFO(text);
    const auto spec = parse_spec(text);
    REQUIRE_FALSE(spec);
    CHECK(spec.error().code == ExitCode::usage);
    for (const char* part : parts) CHECK_THAT(spec.error().message, Contains(part));
  }
}

TEST_CASE("each type's numbers are those that its bits say, and each number goes to the nearest of them") {
  for (const ElementInfo& of : all_elements()) {
    INFO(of.name);
    std::array<std::byte, 8> memory{};
    // All numbers of a small type come back, and their middles go to the even one.
    if (of.bits <= 16) {
      double before = -std::numeric_limits<double>::infinity();
      for (uint32_t bits = 0; bits < 1u << (of.bits - 1); ++bits) {
        std::memcpy(memory.data(), &bits, 2);
        const double value = of.to(memory.data());
        if (!std::isfinite(value)) continue;
        REQUIRE(value > before);
        REQUIRE(rounded(of.element, value) == value);
        REQUIRE(rounded(of.element, -value) == -value);
        if (std::isfinite(before)) {
          const double middle = (before + value) / 2, down = std::nextafter(middle, before),
                       up = std::nextafter(middle, value);
          // to_f16 takes floats; f32 holds all of these but for bf16's own range.
          if (double(float(down)) == down) REQUIRE(rounded(of.element, down) == before);
          REQUIRE(rounded(of.element, middle) == (bits % 2 == 0 ? value : before));
          if (double(float(up)) == up) REQUIRE(rounded(of.element, up) == value);
        }
        before = value;
      }
      CHECK(before == of.largest);
    }
    CHECK(rounded(of.element, 1) == 1);
    CHECK(rounded(of.element, 1 + of.eps) == 1 + of.eps);
    poison(of.element, memory);
    CHECK(is_poison(of.element, memory.data()));
    CHECK(std::isnan(of.to(memory.data())) == of.has_nan);
    CHECK_FALSE(first_not_poison(of.element, memory));
    of.from(std::numeric_limits<double>::quiet_NaN(), memory.data());
    CHECK_FALSE(is_poison(of.element, memory.data()));  // no arithmetic makes it
    CHECK(first_not_poison(of.element, memory) == 0u);
    CHECK(std::isnan(of.to(memory.data())) == of.has_nan);
  }
  CHECK(rounded(Element::e4m3, 1000) == 448);
  CHECK(rounded(Element::s8, -1000) == -128);
  CHECK(rounded(Element::s4, -1000) == -8);
  CHECK(rounded(Element::bf16, 3.0e38) == Approx(3.0e38).epsilon(0.01));
  CHECK(std::isinf(rounded(Element::bf16, 3.4e38)));
}

TEST_CASE("elements of four bits lie two to a byte, the first in the low half") {
  Tensor tensor(ladder::tensor("K", Element::s4, {1, 1, 2, 6}));
  CHECK(tensor.bytes().size() == 6);
  for (int64_t i = 0; i < 12; ++i) tensor.set(i, double(i) - 8);
  CHECK(tensor.bytes()[0] == std::byte{0x98});
  for (size_t i = 0; i < 12; ++i) CHECK(tensor[i] == std::min(double(i) - 8, 7.0));
  std::array<float, 6> row;
  tensor.read(6, row);
  CHECK(row == std::array{-2.0f, -1.0f, 0.0f, 1.0f, 2.0f, 3.0f});
  info(Element::s4).write(row, tensor.at(0));
  CHECK(tensor[5] == 3);
  CHECK(tensor[6] == -2);
}
