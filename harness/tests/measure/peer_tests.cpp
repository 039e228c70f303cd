// The peer protocol against a fake peer: no GPU, every way to misbehave.
#include "harness/measure/peer.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "harness/tests/catch.hpp"

using namespace ladder;
namespace fs = std::filesystem;

namespace {

const Shape SHAPE{.batch = 1, .heads = 2, .n = 128, .d = 128};
const Problem PROBLEM = make_problem(SHAPE, InputKind::normal, 1, true);

const PeerFiles& files() {
  static const Result<PeerFiles> made = PeerFiles::create(PROBLEM.inputs);
  return *made;
}
constexpr PeerLimits PATIENT{.prepare = 600, .run = 600};  // of a peer that answers: against hanging for ever
constexpr PeerLimits IMPATIENT{.prepare = 0.4, .run = 0.4};

Result<Peer> fake(const std::string& behaviour, PeerLimits limits = PATIENT) {
  return Peer::start({"fake.py", {"python3", LADDER_SOURCE_DIR "/harness/tests/fakes/fake_peer.py", behaviour}},
                     limits);
}

Result<PeerInfo> prepare(Peer& peer) {
  const Status asked = peer.ask_to_prepare(SHAPE, "normal", 1, files());
  if (!asked) return Unexpected{asked.error()};
  return peer.prepared();
}

// The error of preparing such a peer.
Error prepare_error(const std::string& behaviour, PeerLimits limits = PATIENT) {
  auto peer = fake(behaviour, limits);
  REQUIRE(peer);
  const auto info = prepare(*peer);
  REQUIRE_FALSE(info);
  return info.error();
}

// The error of the first timed group of such a peer.
Error run_error(const std::string& behaviour, PeerLimits limits = PATIENT) {
  auto peer = fake(behaviour, {.prepare = PATIENT.prepare, .run = limits.run});
  REQUIRE(peer);
  REQUIRE(prepare(*peer));
  const auto ms = peer->time_ms(12);
  REQUIRE_FALSE(ms);
  return ms.error();
}

}  // namespace

TEST_CASE("a good peer prepares several shapes and runs") {
  auto peer = fake("good");
  REQUIRE(peer);
  for (int i = 0; i < 2; ++i) {
    const auto info = prepare(*peer);
    REQUIRE(info);
    CHECK(info->name == "fake");
    CHECK(info->version == "n=128 fp16 normal");
    CHECK(info->protocol == 1);
    CHECK_FALSE(info->judged());
    CHECK_FALSE(info->ceiling);
    CHECK(peer->time_ms(12).value() == 30.0);
    CHECK(peer->time_ms(1).value() == 2.5);
  }
  CHECK(peer->usable());
}

TEST_CASE("a peer can be a ceiling with FLOPs of its own") {
  auto peer = fake("ceiling");
  REQUIRE(peer);
  const auto info = prepare(*peer);
  REQUIRE(info);
  CHECK(info->ceiling);
  CHECK(info->flops == 1e12);
}

TEST_CASE("a peer that refuses gives its reason, and is absent rather than broken") {
  const Error error = prepare_error("refuses");
  CHECK(error.code == ExitCode::cannot_run_here);
  CHECK(error.message == "peer fake.py: no module named torch");
}

TEST_CASE("a peer that dies is reported with the end of its stderr") {
  const Error at_once = prepare_error("dies-at-once");
  CHECK(at_once.code == ExitCode::check_failed);
  CHECK(at_once.message ==
        "peer fake.py: ended with exit code 3\n  The end of its standard error:\n    fake peer: dies-at-once");
  CHECK(run_error("dies").message ==
        "peer fake-dies: ended with exit code 3\n  The end of its standard error:\n    fake peer: dies\n"
        "    Traceback: CUDA out of memory");
  CHECK_THAT(run_error("aborts").message, Contains("peer fake-aborts: was ended by signal 6 (Aborted)"));
}

TEST_CASE("a peer that hangs costs its time limit and no more") {
  const auto start = std::chrono::steady_clock::now();
  const Error error = prepare_error("hangs", IMPATIENT);
  CHECK(error.code == ExitCode::check_failed);
  CHECK_THAT(error.message, Contains("peer fake.py: did not answer within 0.4 s"));
  CHECK_THAT(prepare_error("half-line", IMPATIENT).message, Contains("did not answer within 0.4 s"));
  CHECK_THAT(run_error("hangs-in-run", IMPATIENT).message,
             Contains("peer fake-hangs-in-run: did not answer within 0.4 s"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::minutes(10));  // it sleeps for an hour
}

TEST_CASE("a peer that prints rubbish is quoted, without its control characters") {
  CHECK_THAT(prepare_error("rubbish").message,
             Contains("peer fake.py: answered with something other than {\"ok\":...}: "
                      "Segmentation fault? No: ?[31mhello?[0m"));
  CHECK_THAT(prepare_error("nameless").message, Contains("peer fake.py: did not say its name: {\"ok\": true}"));
  CHECK_THAT(run_error("no-time").message,
             Contains("peer fake-no-time: reported no positive time: {\"ok\":true,\"ms\":\"soon\"}"));
}

// The error of judging such a peer.
static Error judge_error(const std::string& behaviour) {
  auto peer = fake(behaviour);
  REQUIRE(peer);
  REQUIRE(prepare(*peer));
  const auto judged = judge(*peer, PROBLEM);
  REQUIRE_FALSE(judged);
  return judged.error();
}

TEST_CASE("the example that third parties copy is right, on several problems, and is judged by the reference") {
  auto peer = Peer::start({"example", {PEER_EXAMPLE}});
  REQUIRE(peer);
  const Shape causal{.batch = 2, .heads = 1, .n = 100, .d = 64, .causal = true};
  for (const Shape& shape : {SHAPE, causal, Shape{.n = 64, .d = 32, .softmax_scale = 0.5f}}) {
    const Problem problem = make_problem(shape, InputKind::peaky, 3, true);
    const auto own_files = PeerFiles::create(problem.inputs);
    REQUIRE(own_files);
    REQUIRE(peer->ask_to_prepare(shape, "peaky", 3, *own_files));
    const auto info = peer->prepared();
    REQUIRE(info);
    CHECK(info->name == "example");
    CHECK(info->judged());
    const auto error = judge(*peer, problem);
    REQUIRE(error);
    CHECK(*error > 0);
    CHECK(*error < problem.reference.tolerance());
    CHECK(peer->time_ms(2));
    CHECK(judge_some(*peer, problem, 7));
    REQUIRE(peer->poison());
    CHECK_FALSE(judge_some(*peer, problem, 8));  // nothing has run since
  }
  REQUIRE(peer->refuses_unknown_requests());
  Shape wide = SHAPE;
  wide.d = 512;
  REQUIRE(peer->ask_to_prepare(wide, "normal", 1, files()));
  const auto refused = peer->prepared();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message == "peer example: d is at most 256 here");
  CHECK(refused.error().code == ExitCode::cannot_run_here);
}

TEST_CASE("a peer that lies about its output is found out") {
  CHECK_THAT(judge_error("zeros").message, Contains("peer fake-zeros: wrong: head ") && Contains("is 0 and should be"));
  CHECK_THAT(judge_error("keeps-poison").message,
             Contains("is nan and should be") || Contains("is -nan and should be"));
  CHECK_THAT(judge_error("short-output").message,
             Contains("was asked for 256 rows of 128 fp16, 65536 bytes, and wrote 65534"));
  CHECK_THAT(judge_error("no-output").message, Contains("65536 bytes, and wrote none"));
  CHECK(judge_error("refuses-poison").message == "peer fake-refuses-poison: no poison today");
  auto sings = fake("sings");
  REQUIRE(prepare(*sings));
  CHECK_THAT(sings->refuses_unknown_requests().error().message, Contains("says yes to a request"));
}

TEST_CASE("a peer keeps its name, knows its protocol, and speaks when it is asked") {
  auto renames = fake("renames-itself");
  REQUIRE(prepare(*renames));
  CHECK_THAT(prepare(*renames).error().message,
             Contains("has changed its name from fake-renames-itself-1 to fake-renames-itself-2"));
  CHECK_FALSE(renames->usable());
  CHECK_THAT(prepare_error("from-tomorrow").message, Contains("keeps protocol 7; there are 1 to 3"));
  auto speaks = fake("speaks-unasked");
  REQUIRE(prepare(*speaks));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until it has
  const auto ms = speaks->time_ms(1);
  REQUIRE_FALSE(ms);
  CHECK_THAT(ms.error().message, Contains("spoke without being asked: {\"ok\": true, \"ms\": 0.001}"));
  CHECK_THAT(run_error("floods").message, Contains("wrote a megabyte without a line end"));
}

TEST_CASE("the inputs are files that go away with their owner") {
  fs::path there;
  {
    const auto made = PeerFiles::create(PROBLEM.inputs);
    REQUIRE(made);
    there = made->of("K");
    CHECK(fs::file_size(there) == PROBLEM.inputs["K"].bytes().size());
  }
  CHECK_FALSE(fs::exists(there.parent_path()));
}

TEST_CASE("a peer that has hung is not asked again, one that refuses a shape is") {
  auto hanging = fake("hangs-in-run", {.prepare = PATIENT.prepare, .run = 0.2});
  REQUIRE(prepare(*hanging));
  REQUIRE_FALSE(hanging->time_ms(1));
  CHECK_FALSE(hanging->usable());
  auto refusing = fake("refuses");
  REQUIRE_FALSE(prepare(*refusing));
  CHECK(refusing->usable());
}

TEST_CASE("a peer that fills its stderr does not block") {
  auto peer = fake("talkative");
  REQUIRE(peer);
  CHECK(prepare(*peer));
  CHECK(peer->time_ms(1).value() == 2.5);
}

TEST_CASE("a program that does not exist is an error at the start") {
  const auto peer = Peer::start({"nobody", {"/no/such/program"}});
  REQUIRE_FALSE(peer);
  CHECK(peer.error().message == "peer nobody: cannot start /no/such/program: No such file or directory");
  auto typo = Peer::start(peer_from_option("no_such_command --fast"), PATIENT);
  REQUIRE(typo);
  const auto info = prepare(*typo);
  REQUIRE_FALSE(info);
  CHECK_THAT(info.error().message, Contains("peer no_such_command --fast: ended with exit code 127"));
  CHECK_THAT(info.error().message, Contains("not found"));
}

TEST_CASE("a peer of --peer is a line for the shell, and its children end with it") {
  const fs::path pid_file = fs::temp_directory_path() / ("ladder_peer_tests." + std::to_string(::getpid()));
  {
    auto peer =
        Peer::start(peer_from_option("sleep 3600 & echo $! > '" + pid_file.string() +
                                     "'; python3 '" LADDER_SOURCE_DIR "/harness/tests/fakes/fake_peer.py' good"));
    REQUIRE(peer);
    CHECK(prepare(*peer));
  }
  pid_t sleeper = 0;
  std::ifstream(pid_file) >> sleeper;
  fs::remove(pid_file);
  REQUIRE(sleeper > 0);
  bool alive = true;
  for (int i = 0; i < 3000 && alive; ++i) {
    // Killed, it may stay a zombie where nobody reaps orphans; a zombie has no command line.
    std::ifstream command("/proc/" + std::to_string(sleeper) + "/cmdline");
    alive = command && command.peek() != EOF;
    if (alive) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK_FALSE(alive);
}

TEST_CASE("peers are the executable files of their directory") {
  const fs::path directory = fs::temp_directory_path() / ("ladder_find_peers." + std::to_string(::getpid()));
  fs::create_directories(directory / "__pycache__");
  for (const char* name : {"fa2.py", "cudnn.py", "shared.py", "README.md"})
    std::ofstream(directory / name) << "#!/bin/sh\n";
  ::chmod((directory / "fa2.py").c_str(), 0755);
  ::chmod((directory / "cudnn.py").c_str(), 0755);
  const std::vector<PeerCommand> peers = find_peers(directory);
  fs::remove_all(directory);
  REQUIRE(peers.size() == 2);
  CHECK(peers[0].label == "cudnn");
  CHECK(peers[1].label == "fa2");
  CHECK(peers[1].arguments == std::vector<std::string>{directory / "fa2.py"});
  CHECK(find_peers("/no/such/directory").empty());
}
