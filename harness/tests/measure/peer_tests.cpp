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

const Shape SHAPE{.batch = 2, .heads = 3, .n = 512, .d = 128};
constexpr PeerLimits PATIENT{.prepare = 600, .run = 600};  // of a peer that answers: against hanging for ever
constexpr PeerLimits IMPATIENT{.prepare = 0.4, .run = 0.4};

Result<Peer> fake(const std::string& behaviour, PeerLimits limits = PATIENT) {
  return Peer::start({"fake.py", {"python3", LADDER_SOURCE_DIR "/harness/tests/fakes/fake_peer.py", behaviour}},
                     limits);
}

Result<PeerInfo> prepare(Peer& peer) {
  if (const Status asked = peer.ask_to_prepare(SHAPE, "normal", 1); !asked) return tl::make_unexpected(asked.error());
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
    CHECK(info->version == "n=512 fp16 normal");
    CHECK(info->max_err == 2.1e-5);
    CHECK_FALSE(info->ceiling);
    CHECK(peer->time_ms(12) == 30.0);
    CHECK(peer->time_ms(1) == 2.5);
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
             Contains("peer fake-no-time: reported no positive time: {\"ok\": true, \"ms\": \"soon\"}"));
}

TEST_CASE("a peer's error is a number from 0 on, or there is none") {
  for (const char* behaviour : {"negative-error", "word-for-error"}) {
    const Error error = prepare_error(behaviour);
    CHECK(error.code == ExitCode::check_failed);
    CHECK_THAT(error.message, Contains("peer fake.py: its max_err is no error: {\"ok\": true"));
  }
  auto unverified = fake("no-error");
  const auto info = prepare(*unverified);
  REQUIRE(info);
  CHECK_FALSE(info->max_err);
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
  CHECK(peer->time_ms(1) == 2.5);
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
