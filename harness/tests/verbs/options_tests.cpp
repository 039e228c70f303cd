// The command line: what is understood, and what the user is told when it is not.
#include "harness/verbs/options.hpp"

#include "harness/devices/capacity.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/tests/catch.hpp"

using namespace ladder;

namespace {

std::vector<Rung> some_rungs() {
  std::vector<Rung> all(4);
  const char* names[] = {"00_first", "02_quicker", "03_longer", "06_grouped"};
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].name = names[i];
    all[i].variants.resize(1);
    all[i].variants[0].tile = {64, 128, 4};
  }
  all[0].variants[0].accepts = {.features = CAUSAL, .min_d = 1, .max_d = 256};
  all[0].variants[0].workspace_bytes = [](const Shape& shape) {
    return uint64_t(shape.batch_heads()) * shape.n * shape.n * 4;
  };
  all[0].variants[0].tile = {};
  all[3].variants[0].tile = {128, 64, 4};
  return all;
}
const std::vector<Rung> STAGES = some_rungs();

Result<Options> parse(std::vector<std::string> arguments) {
  return parse_options(arguments, STAGES);
}

std::string message(std::vector<std::string> arguments) {
  const auto options = parse(std::move(arguments));
  REQUIRE_FALSE(options);
  REQUIRE(options.error().code == ExitCode::usage);
  return options.error().message;
}

bool mentions(const std::string& text, const std::string& part) {
  UNSCOPED_INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a stage may be named in four ways, and as a completed directory") {
  for (const char* name : {"3", "03", "longer", "03_longer", "03_longer/", "LONGER"}) {
    const auto rung = find_rung(name, STAGES);
    INFO(name);
    REQUIRE(rung);
    CHECK((*rung)->name == "03_longer");
  }
}

TEST_CASE("a number may have a letter before it, and a directory a part") {
  std::vector<Rung> rungs(3);
  rungs[0].name = "00_first";
  rungs[1].name = "p03_inline";
  rungs[1].directory = "part/p03_inline";
  rungs[2].name = "p12_oneline";
  for (const char* name : {"p3", "P3", "p03", "inline", "p03_inline", "part/p03_inline", "part/p03_inline/"}) {
    const auto rung = find_rung(name, rungs);
    INFO(name);
    REQUIRE(rung);
    CHECK((*rung)->name == "p03_inline");
  }
  CHECK((*find_rung("p12", rungs))->name == "p12_oneline");
  CHECK((*find_rung("0", rungs))->name == "00_first");
  for (const char* name : {"3", "03", "p1", "p", "part"}) {
    INFO(name);
    CHECK_FALSE(find_rung(name, rungs));
  }
}

TEST_CASE("an unknown stage is answered with the nearest") {
  CHECK(mentions(message({"check", "longr"}), "There is no stage 'longr'. Nearest: 03_longer."));
  CHECK(mentions(message({"check", "03_lognre"}), "Nearest: 03_longer."));
  CHECK(mentions(message({"explain", "gruoped"}), "Nearest: 06_grouped."));
  const std::string number = message({"check", "9"});
  CHECK(mentions(number, "There is no stage '9'."));
  CHECK(mentions(number, "Nearest: 06_grouped, 03_longer, 02_quicker.\n  All 4:  ./ladder list"));
  CHECK_FALSE(mentions(message({"check", "p9"}), "Nearest"));
}

TEST_CASE("shape flags stand before or behind the verb") {
  for (const auto& arguments : {std::vector<std::string>{"--n", "1024,2048", "--batch", "2", "check", "03"},
                                {"check", "03", "--n", "1024,2048", "--batch", "2"},
                                {"--batch", "2", "check", "--n=1024,2048", "03"}}) {
    const auto options = parse(arguments);
    REQUIRE(options);
    CHECK(options->verb == Verb::check);
    CHECK(options->n == std::vector<int>{1024, 2048});
    CHECK(options->batch == 2);
    REQUIRE(options->rungs.size() == 1);
    CHECK(options->rungs_named);
  }
}

TEST_CASE("without a verb comes the overview, without a stage come all") {
  const auto options = parse({});
  REQUIRE(options);
  CHECK(options->verb == Verb::overview);
  CHECK(options->rungs.size() == STAGES.size());
  CHECK_FALSE(options->rungs_named);
  CHECK(options->seed == 1);
}

TEST_CASE("--causal without a stage takes those that can; a named one is taken at its word") {
  const auto able = parse({"check", "--causal"});
  REQUIRE(able);
  CHECK(able->rungs == std::vector{&STAGES[0]});
  const auto named = parse({"check", "02", "--causal"});
  REQUIRE(named);
  CHECK(named->rungs == std::vector{&STAGES[1]});  // refused later, with the reason
}

TEST_CASE("the flags of bench arrive") {
  const auto options =
      parse({"bench", "--burst", "--sweep", "--rounds", "30", "--soak", "1.5", "--peer", "python3 a.py", "--peer",
             "./b --x", "--no-peers", "--ablate", "--inputs", "normal,peaky", "--seed", "7"});
  REQUIRE(options);
  CHECK(options->burst);
  CHECK(options->sweep);
  CHECK(options->rounds == 30);
  CHECK(options->soak_seconds == 1.5);
  CHECK(options->peers == std::vector<std::string>{"python3 a.py", "./b --x"});
  CHECK(options->no_peers);
  CHECK(options->ablate);
  CHECK(options->inputs == std::vector<InputKind>{InputKind::normal, InputKind::peaky});
  CHECK(options->seed == 7);
}

TEST_CASE("absurd shapes are refused with the limit") {
  CHECK(mentions(message({"check", "--n", "0"}), "--n takes a whole number from 1 to 2147483647; '0' is none."));
  CHECK(mentions(message({"check", "--n", "-64"}), "'-64' is none"));
  CHECK(mentions(message({"check", "--n", "512,,1024"}), "--n takes a whole number"));
  CHECK(mentions(message({"check", "--n", "4k"}), "'4k' is none"));
  CHECK(mentions(message({"check", "--n", "12.5"}), "'12.5' is none"));
  CHECK(mentions(message({"check", "--n", "99999999999999999999999"}), "takes a whole number from"));
  CHECK(mentions(message({"check", "--batch", "4294967296"}), "--batch takes a whole number from"));
  CHECK(mentions(message({"check", "--d", "0"}), "--d takes a whole number from"));
  CHECK(mentions(message({"check", "--seed", "-1"}), "--seed takes a whole number from"));
  CHECK(mentions(message({"check", "--batch", "2147483647", "--heads", "2147483647"}), "must be at most 65535"));
  CHECK(mentions(message({"check", "--batch", "256", "--heads", "256"}), "65536 is not"));
  CHECK(mentions(message({"bench", "--rounds", "0"}), "--rounds takes a whole number from"));
  CHECK(mentions(message({"bench", "--soak", "nan"}), "--soak takes seconds"));
}

TEST_CASE("words that nothing takes are answered with what was perhaps meant") {
  CHECK(mentions(message({"chekc"}), "There is no verb 'chekc'. Did you mean check?"));
  CHECK(mentions(message({"03"}), "ladder check 03"));
  CHECK(mentions(message({"check", "--casual"}), "Did you mean --causal?"));
  CHECK(mentions(message({"check", "--burst"}), "There is no flag --burst here."));
  CHECK(mentions(message({"check", "--inputs", "peeky"}), "Did you mean peaky?"));
  CHECK(mentions(message({"check", "--on", "tpu"}), "auto, cpu or gpu"));
  CHECK(mentions(message({"check", "--n"}), "--n"));
  CHECK(mentions(message({"check", "bench"}), "One verb at a time"));
}

TEST_CASE("a flag of another verb is named as that, and no far word is offered") {
  CHECK(mentions(message({"check", "03", "--rounds", "3"}),
                 "There is no flag --rounds here. It belongs to bench and "
                 "compare.\n  All flags:  ./ladder check --help"));
  CHECK(mentions(message({"check", "--trace=x"}), "There is no flag --trace here. It belongs to explain."));
  CHECK_FALSE(mentions(message({"check", "--xyzzy"}), "Did you mean"));
}

TEST_CASE("all is one of the inputs, alone or among others") {
  for (const char* inputs : {"all", "all,normal", "peaky,all"}) {
    const auto options = parse({"check", "--inputs", inputs});
    REQUIRE(options);
    CHECK(options->inputs.size() == all_input_kinds().size());
  }
  CHECK(mentions(message({"check", "--inputs", "al"}), "Did you mean all?"));
  CHECK(mentions(message({"bench", "--inputs", "all"}), "nothing to time"));
}

TEST_CASE("stages with a comma between them are told of the space") {
  CHECK(mentions(message({"check", "02,03"}), "There is no stage '02,03'. Between stages stands a space:  02 03"));
}

TEST_CASE("a value that is given and empty is refused") {
  CHECK(mentions(message({"check", "--n", ""}), "--n is given, and empty. It takes N[,N..]."));
  CHECK(mentions(message({"check", "--json", ""}), "--json is given, and empty. It takes FILE."));
  CHECK(mentions(message({"--seed", "", "check"}), "--seed is given, and empty."));
  CHECK(mentions(message({"bench", "--peer", ""}), "--peer is given, and empty. It takes CMD."));
}

TEST_CASE("compare takes two stages, explain at least one") {
  CHECK(mentions(message({"compare", "02"}), "compare takes two stages"));
  CHECK(mentions(message({"compare", "02", "03", "06"}), "compare takes two stages"));
  CHECK(mentions(message({"explain"}), "explain takes a stage"));
  CHECK(parse({"compare", "02", "03"}));
}

TEST_CASE("a file that cannot be written is found before the work") {
  CHECK(mentions(message({"check", "--json", "/no/such/directory/x.json"}), "No such file or directory"));
  CHECK(mentions(message({"bench", "--csv", "/"}), "--csv /: cannot be written"));
  CHECK(mentions(message({"bench", "--csv", "-", "--json", "-"}), "Only one of --csv - and --json - can have stdout."));
  CHECK(mentions(message({"explain", "03", "--trace", "-", "--json", "-"}), "Only one of --json - and --trace -"));
  CHECK(mentions(message({"explain", "03", "--trace", "a.json", "--json", "./a.json"}),
                 "--json and --trace are the same file, a.json."));
  CHECK(mentions(message({"bench", "--csv", "/dev/null", "--json", "/dev/../dev/null"}), "are the same file"));
  CHECK(parse({"check", "--json", "-"}));
}

TEST_CASE("help is not an error, and knows all verbs") {
  const auto help = parse({"--help"});
  REQUIRE_FALSE(help);
  CHECK(help.error().code == ExitCode::done);
  for (const char* verb : {"check", "bench", "compare", "explain"}) CHECK(mentions(help.error().message, verb));
  const auto of_check = parse({"check", "--help"});
  REQUIRE_FALSE(of_check);
  CHECK(mentions(of_check.error().message, "--ablate"));
  CHECK(mentions(of_check.error().message, "--n"));
}

TEST_CASE("an N between two multiples of the tile is answered with both") {
  const auto refuse = [](size_t rung, Shape shape) {
    const Status status = supports(STAGES[rung], STAGES[rung].variants[0], shape);
    REQUIRE_FALSE(status);
    CHECK(status.error().code == ExitCode::usage);
    return status.error().message;
  };
  CHECK(refuse(1, {.n = 1000}) ==
        "02_quicker needs N to be a multiple of 128 (its KV tile); N=1000 is not. Nearest: 896, 1024.");
  CHECK(refuse(3, {.n = 64}) ==
        "06_grouped needs N to be a multiple of 128 (its query tile); N=64 is not. Nearest: 128.");
  CHECK(mentions(refuse(1, {.n = 2147483647}), "Nearest: 2147483520."));  // the next one is no int
  CHECK(mentions(refuse(1, {.n = 512, .d = 64}), "02_quicker needs a head dimension of 128 (d=64 is not)."));
  CHECK(mentions(refuse(0, {.n = 512, .d = 512}), "00_first needs a head dimension of 1 to 256 (d=512 is not)."));
  CHECK(mentions(refuse(1, {.n = 512, .causal = true}), "02_quicker has no causal mask.\n"));
  CHECK(supports(STAGES[0], STAGES[0].variants[0], {.n = 1000, .d = 77}));
}

TEST_CASE("--problem changes what a verb takes, and no flag may say the same") {
  const auto parsed = [](std::vector<std::string> words) { return parse_options(words, STAGES); };
  const auto options = parsed({"bench", "2", "--heads", "8", "--problem", "kv=2 nq=1 nk=4096 bf16 causal"});
  REQUIRE(options);
  CHECK(to_string(shapes_for(*options, HEADLINE).front()) == "b=16 h=8 kv=2 nq=1 nk=4096 d=128 bf16 causal");
  const auto lists = parsed({"check", "--problem", "pad=8", "--n", "64,128"});
  REQUIRE(lists);
  CHECK(shapes_for(*lists, EMULATOR_SHAPE).size() == 2);
  CHECK(to_string(shapes_for(*lists, EMULATOR_SHAPE)[1]) == "b=1 h=1 n=128 d=128 pad=8");
  const std::pair<std::vector<std::string>, const char*> wrong[] = {
      {{"check", "--n", "64", "--problem", "nq=3"}, "--n and 'nq'"},
      {{"check", "--causal", "--problem", "causal"}, "--causal and 'causal'"},
      {{"bench", "--sweep", "--problem", "n=64"}, "--sweep and 'n'"},
      {{"check", "--problem", "nope=3"}, "no word 'nope'"},
      {{"check", "--problem", "b=300 h=300"}, "at most 65535"},
      {{"check", "--problem", " "}, "empty"}};
  for (const auto& [words, message] : wrong) {
    const auto refused = parsed(words);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == ExitCode::usage);
    CHECK(mentions(refused.error().message, message));
  }
}

TEST_CASE("a stage's own types, formula and head dimension are what it is asked for, unless somebody says others") {
  Accepts accepts{.min_d = 64, .max_d = 64, .q = Element::bf16, .kv = Element::bf16, .o = Element::bf16};
  Options options;
  CHECK(to_string(shapes_for(options, EMULATOR_SHAPE, &accepts).front()) == "b=1 h=1 n=512 d=64 bf16");
  options.problem = "fp16 d=128";
  CHECK(to_string(shapes_for(options, EMULATOR_SHAPE, &accepts).front()) == "b=1 h=1 n=512 d=128");
}

TEST_CASE("a variant of other elements than the problem's is refused") {
  Variant variant = STAGES[1].variants[0];
  variant.accepts.q = Element::f32;
  const Status status = supports(STAGES[1], variant, {.n = 512});
  REQUIRE_FALSE(status);
  CHECK(status.error().code == ExitCode::usage);
  CHECK(mentions(status.error().message, "takes Q, K and V, and O in fp32, fp16 and fp16, not in fp16."));
}

TEST_CASE("a GPU that is too old is told so, with the way out") {
  Rung rung = STAGES[2];
  rung.needs = "mma.m16n8k16, cp.async";
  GpuInfo t4;
  t4.name = "Tesla T4";
  t4.sm = 75;
  const Status status = runs_on(rung, rung.variants[0], {}, t4);
  REQUIRE_FALSE(status);
  CHECK(status.error().code == ExitCode::cannot_run_here);
  CHECK(status.error().message ==
        "03_longer needs sm_80 or newer (mma.m16n8k16, cp.async); this is a Tesla T4 (sm_75).\n"
        "  Here:  ./ladder check 03 --on cpu      the same kernel, emulated");
}

TEST_CASE("a GPU that is too new is told so as well") {
  Rung rung = STAGES[2];
  rung.min_sm = rung.max_sm = 90;
  rung.needs = "wgmma";
  GpuInfo newer;
  newer.name = "NVIDIA B200";
  newer.sm = 100;
  const Status status = runs_on(rung, rung.variants[0], {}, newer);
  REQUIRE_FALSE(status);
  CHECK(status.error().code == ExitCode::cannot_run_here);
  CHECK(
      mentions(status.error().message, "03_longer needs instructions that newer GPUs than sm_90 do not have (wgmma)"));

  GpuInfo older;
  older.sm = 80;
  const Status too_old = runs_on(rung, rung.variants[0], {}, older);
  REQUIRE_FALSE(too_old);
  CHECK(mentions(too_old.error().message, "03_longer needs sm_90 alone (wgmma)"));
}

TEST_CASE("a row of scores that shared memory cannot hold is refused with the limit") {
  Rung rung = STAGES[0];
  rung.name = "p03_inline";
  rung.variants[0].label = "one query";
  rung.variants[0].smem_bytes = 8192;
  rung.variants[0].smem_bytes_per_key = 4;
  const auto at = [](int n) { return Shape{.n = n}; };
  CHECK(supports(rung, rung.variants[0], at(56064)));
  const Status anywhere = supports(rung, rung.variants[0], at(56065));
  REQUIRE_FALSE(anywhere);
  CHECK(anywhere.error().code == ExitCode::cannot_run_here);
  CHECK(anywhere.error().message ==
        "p03_inline (one query) needs 227.0 KiB of shared memory per block for a row of 56065 scores; the largest GPU, "
        "emulated here, has 227 KiB. Largest N here: 56064.");
  GpuInfo t4;
  t4.name = "Tesla T4";
  t4.sm = 80;
  t4.smem_per_block = 64 * 1024;
  const Status here = runs_on(rung, rung.variants[0], at(16384), t4);
  REQUIRE_FALSE(here);
  CHECK(here.error().code == ExitCode::cannot_run_here);
  CHECK(mentions(here.error().message,
                 "needs 72.0 KiB of shared memory per block for a row of 16384 scores; this Tesla T4 "
                 "has 64 KiB. Largest N here: 14336."));
  CHECK(supports(rung, rung.variants[0], at(2147483647)).error().code == ExitCode::cannot_run_here);
}

TEST_CASE("what does not fit says how much is needed and how much there is") {
  GpuInfo gpu;
  gpu.name = "small GPU";
  gpu.memory_free = size_t{1} << 30;
  const Shape shape{.batch = 16, .heads = 16, .n = 8192, .d = 128};
  const Status without = fits_gpu_memory(shape, 0, gpu), with = fits_gpu_memory(shape, uint64_t{64} << 30, gpu);
  REQUIRE_FALSE(without);
  CHECK(without.error().code == ExitCode::cannot_run_here);
  CHECK(mentions(without.error().message, "needs 2.0 GiB of the small GPU's memory; 1.0 GiB are free."));
  REQUIRE_FALSE(with);
  CHECK(mentions(with.error().message, "needs 66.0 GiB of the small GPU's memory, 64.0 of them a workspace"));
  CHECK_FALSE(fits_host_memory({.batch = 255, .heads = 257, .n = 2147483647, .d = 256}, 0));
  CHECK(fits_host_memory({}, 1 << 20));
  CHECK(host_memory_available() > size_t{1} << 20);
}
