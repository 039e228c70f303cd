#include "harness/measure/peer.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "harness/base/progress.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double WRITE_LIMIT_S = 5;

Error broken(std::string message) {
  return {ExitCode::check_failed, std::move(message)};
}

// A peer's words end up in a table, a CSV cell and on a terminal.
std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  constexpr size_t LONGEST = 200;
  return text.size() <= LONGEST ? text : text.substr(0, LONGEST) + "...";
}

// An answer with "ok":true, or what is wrong with it.
tl::expected<json, Error> parse_answer(const std::string& line) {
  json answer = json::parse(line, nullptr, false);
  if (!answer.is_object() || !answer.contains("ok") || !answer["ok"].is_boolean()) {
    return tl::make_unexpected(broken("answered with something other than {\"ok\":...}: " + printable(line)));
  }
  if (answer["ok"]) return answer;
  const auto reason = answer.find("reason");
  const bool given = reason != answer.end() && reason->is_string();
  return failure(ExitCode::cannot_run_here, given ? printable(reason->get<std::string>()) : "gave no reason");
}

std::string text_of(const json& answer, const char* key) {
  const auto value = answer.find(key);
  return value != answer.end() && value->is_string() ? printable(value->get<std::string>()) : std::string();
}

std::optional<double> number_of(const json& answer, const char* key) {
  const auto value = answer.find(key);
  if (value == answer.end() || !value->is_number()) return {};
  const double number = *value;
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

}  // namespace

PeerCommand peer_from_option(const std::string& command_line) {
  return {command_line, {"/bin/sh", "-c", command_line}};
}

std::vector<PeerCommand> find_peers(const fs::path& directory) {
  std::vector<PeerCommand> peers;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (!entry.is_regular_file(ignored) || ::access(entry.path().c_str(), X_OK) != 0) continue;
    peers.push_back({entry.path().stem(), {entry.path()}});
  }
  std::sort(peers.begin(), peers.end(), [](const auto& a, const auto& b) { return a.label < b.label; });
  return peers;
}

Result<Peer> Peer::start(const PeerCommand& command, PeerLimits limits) {
  Result<Process> process = Process::start(command.arguments);
  if (!process) {
    return failure(process.error().code, fmt::format("peer {}: {}", command.label, process.error().message));
  }
  return Peer(std::move(*process), command.label, limits);
}

Status Peer::ask_to_prepare(const Shape& shape, std::string_view inputs, uint64_t seed) {
  const json request{{"op", "prepare"}, {"batch", shape.batch}, {"heads", shape.heads},
                     {"n", shape.n},    {"d", shape.d},         {"causal", shape.causal},
                     {"dtype", "fp16"}, {"inputs", inputs},     {"seed", seed}};
  const Status sent = process_.write_line(request.dump(), WRITE_LIMIT_S);
  return sent ? sent : tl::make_unexpected(blame(sent.error()));
}

Result<PeerInfo> Peer::prepared() {
  // Three minutes of silence look like a hang.
  Progress progress(limits_.prepare);
  double shown_s = 0;
  const auto waiting = [&](double waited_s) {
    progress.step(fmt::format("peer {}: not ready yet, at most", label_), waited_s - std::exchange(shown_s, waited_s));
  };
  const Result<std::string> line = process_.read_line(limits_.prepare, waiting);
  if (!line) return tl::make_unexpected(blame(line.error()));
  const auto answer = parse_answer(*line);
  if (!answer) return tl::make_unexpected(blame(answer.error()));
  PeerInfo info{.name = text_of(*answer, "name"),
                .version = text_of(*answer, "version"),
                .max_err = number_of(*answer, "max_err"),
                .ceiling = text_of(*answer, "kind") == "ceiling",
                .flops = number_of(*answer, "flops")};
  const auto error = answer->find("max_err");
  if (error != answer->end() && !error->is_null() && !(info.max_err && *info.max_err >= 0)) {
    return tl::make_unexpected(blame(broken("its max_err is no error: " + printable(*line))));
  }
  if (info.name.empty()) return tl::make_unexpected(blame(broken("did not say its name: " + printable(*line))));
  label_ = info.name;
  return info;
}

Result<double> Peer::time_ms(int launches) {
  const json request{{"op", "run"}, {"launches", launches}};
  if (const Status sent = process_.write_line(request.dump(), WRITE_LIMIT_S); !sent) {
    return tl::make_unexpected(blame(sent.error()));
  }
  const Result<std::string> line = process_.read_line(limits_.run);
  if (!line) return tl::make_unexpected(blame(line.error()));
  const auto answer = parse_answer(*line);
  if (!answer) return tl::make_unexpected(blame(answer.error()));
  const std::optional<double> ms = number_of(*answer, "ms");
  if (!ms || !(*ms > 0)) return tl::make_unexpected(blame(broken("reported no positive time: " + printable(*line))));
  return *ms;
}

Error Peer::blame(const Error& error) {
  std::string message = fmt::format("peer {}: {}", label_, error.message);
  if (error.code != ExitCode::cannot_run_here) {
    usable_ = false;
    if (const std::string tail = process_.error_tail(); !tail.empty()) {
      message += "\n  The end of its standard error:\n    ";
      for (const char c : tail) message += c == '\n' ? "\n    " : std::string(1, c);
    }
  }
  return {error.code, message};
}

}  // namespace ladder
