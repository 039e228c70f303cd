#include "harness/measure/peer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <numeric>
#include <random>
#include <utility>

#include "harness/base/json.hpp"
#include "harness/base/progress.hpp"
#include "harness/problem/shapes.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;

constexpr double WRITE_LIMIT_S = 5;

Error broken(std::string message) {
  return {ExitCode::check_failed, std::move(message)};
}

// A peer's words end up in a table, a CSV cell and on a terminal.
std::string printable(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c < ' ' || c > '~'; }, '?');
  constexpr size_t LONGEST = 200;
  return text.size() <= LONGEST ? text : text.substr(0, LONGEST) + "...";
}

// An answer with "ok":true, or what is wrong with it.
Result<Json> parse_answer(const std::string& line) {
  const Json answer = Json::parse(line);
  const std::optional<bool> ok = answer["ok"].flag();
  if (!ok) return Unexpected{broken("answered with something other than {\"ok\":...}: " + printable(line))};
  if (*ok) return answer;
  return failure(ExitCode::cannot_run_here, printable(answer["reason"].text().value_or("gave no reason")));
}

std::string text_of(const Json& answer, const char* key) {
  return printable(answer[key].text().value_or(""));
}

std::optional<double> number_of(const Json& answer, const char* key) {
  const std::optional<double> number = answer[key].number();
  return number && std::isfinite(*number) ? number : std::nullopt;
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
  std::ranges::sort(peers, {}, &PeerCommand::label);
  return peers;
}

Result<Peer> Peer::start(const PeerCommand& command, PeerLimits limits) {
  auto process = Process::start(command.arguments);
  if (!process) return failure(process.error().code, "peer {}: {}", command.label, process.error().message);
  return Peer(std::move(*process), command.label, limits);
}

Result<PeerFiles> PeerFiles::create(const Inputs& inputs) {
  uint64_t bytes = 0;
  for (const Tensor& input : inputs) bytes += input.bytes().size();
  std::error_code error;
  std::vector<std::string> tried;
  for (const fs::path& root : {fs::path("/dev/shm"), fs::temp_directory_path(error)}) {
    tried.push_back(root.string());
    // Room for the outputs of a few peers too, and not the last of it.
    if (const fs::space_info space = fs::space(root, error); error || space.available < bytes + bytes / 2) continue;
    PeerFiles files{Folder(root)};
    if (files.folder.path().empty()) continue;
    bool written = true;
    for (const Tensor& input : inputs) {
      std::ofstream file(files.of(input.name()), std::ios::binary);
      file.write(reinterpret_cast<const char*>(input.bytes().data()),
                 static_cast<std::streamsize>(input.bytes().size()));
      written = written && file.flush();
    }
    if (written) return files;
  }
  return failure(ExitCode::cannot_run_here,
                 "no peer takes part: its inputs need {:.1f} GiB of files, for which there is no room in {}",
                 double(bytes) / (1 << 30), fmt::join(tried, " or "));
}

Status Peer::send(const std::string& request) {
  if (process_->has_line()) {
    return blame(broken("spoke without being asked: " + printable(*process_->read_line(0))));
  }
  const Status sent = process_->write_line(request, WRITE_LIMIT_S);
  return sent ? sent : Status(blame(sent.error()));
}

Result<Json> Peer::ask(const Json& request, double limit_s) {
  if (const Status sent = send(request.dump()); !sent) return passed_on(sent);
  const Result<std::string> line = process_->read_line(limit_s);
  Result<Json> answer = line ? parse_answer(*line) : passed_on(line);
  if (!answer) return blame(answer.error());
  return answer;
}

Status Peer::ask_to_prepare(const Shape& shape, std::string_view inputs, uint64_t seed, const PeerFiles& files) {
  output_ = formula_of(shape).outputs(shape).front();
  output_file_ = files.of(fmt::format("O.{}", fmt::ptr(process_)));
  Json tensors{{output_.name, output_file_.string()}};
  for (const TensorSpec& spec : formula_of(shape).inputs(shape)) {
    tensors.set(spec.name, files.of(spec.name).string());
  }
  plain_ = beyond_columns(shape).empty();
  std::vector<std::string_view> features = names_of(needs(shape));
  if (shape.formula != Spec().formula) features.push_back(formula_of(shape).name);
  const Json request{
      {"op", "prepare"},
      {"protocol", PEER_PROTOCOL},
      {"problem", to_string(shape)},
      {"features", Json::array(features)},
      {"batch", shape.batch},
      {"heads", shape.heads},
      {"kv_heads", shape.key_heads()},
      {"n", shape.n},
      {"nk", shape.keys()},
      {"d", shape.d},
      {"causal", shape.causal},
      {"window", Json::array(std::array{shape.left, shape.causal ? 0 : shape.right})},
      {"softmax_scale", shape.scale()},
      {"softcap", shape.softcap},
      {"dtype", to_string(shape.q_type)},
      {"dtypes", Json::array(std::array{to_string(shape.q_type), to_string(shape.kv_type), to_string(shape.o_type)})},
      {"inputs", inputs},
      {"seed", seed},
      {"tensors", tensors}};
  return send(request.dump());
}

Result<PeerInfo> Peer::prepared() {
  // Three minutes of silence look like a hang.
  Progress progress(limits_.prepare);
  double shown_s = 0;
  const auto waiting = [&](double waited_s) {
    progress.step(fmt::format("peer {}: not ready yet, at most", label_), waited_s - std::exchange(shown_s, waited_s));
  };
  const Result<std::string> line = process_->read_line(limits_.prepare, waiting);
  if (!line) return blame(line.error());
  const auto answer = parse_answer(*line);
  if (!answer) return blame(answer.error());
  PeerInfo info{.name = text_of(*answer, "name"),
                .version = text_of(*answer, "version"),
                .protocol = static_cast<int>(number_of(*answer, "protocol").value_or(1)),
                .ceiling = text_of(*answer, "kind") == "ceiling",
                .flops = number_of(*answer, "flops")};
  if (info.name.empty()) return blame(broken("did not say its name: " + printable(*line)));
  if (!name_.empty() && info.name != name_) {
    return blame(broken(fmt::format("has changed its name from {} to {}", name_, info.name)));
  }
  if (info.protocol < 1 || info.protocol > PEER_PROTOCOL) {
    return blame(broken(
        fmt::format("keeps protocol {}; there are 1 to {}: {}", info.protocol, PEER_PROTOCOL, printable(*line))));
  }
  label_ = name_ = info.name;
  if (info.protocol < 3 && !plain_) {
    return failure(ExitCode::cannot_run_here,
                   "peer {}: it keeps protocol {}, which knows dense and causal problems in fp16 alone", label_,
                   info.protocol);
  }
  return info;
}

Status Peer::poison() {
  return ask({{"op", "poison"}}, limits_.run).map([](const Json&) {});
}

Result<double> Peer::time_ms(int launches) {
  const auto answer = ask({{"op", "run"}, {"launches", launches}}, limits_.run);
  if (!answer) return passed_on(answer);
  const std::optional<double> ms = number_of(*answer, "ms");
  if (!ms || !(*ms > 0)) return blame(broken("reported no positive time: " + printable(answer->dump())));
  return *ms;
}

Result<Tensor> Peer::output(std::span<const Cell> cells) {
  std::vector<int64_t> rows;
  for (const Cell& cell : cells) rows.push_back(cell.unit * output_.rows() + cell.row);
  std::error_code ignored;
  fs::remove(output_file_, ignored);  // what an earlier answer left
  const auto answer = ask({{"op", "output"}, {"rows", Json::array(rows)}}, limits_.run);
  if (!answer) return passed_on(answer);
  Tensor tensor(ladder::tensor(output_.name, output_.element, {1, 1, std::ssize(rows), output_.columns()}));
  std::ifstream file(output_file_, std::ios::binary);
  const auto bytes = static_cast<std::streamsize>(tensor.bytes().size());
  file.read(reinterpret_cast<char*>(tensor.bytes().data()), bytes);
  if (file.gcount() != bytes || file.peek() != std::ifstream::traits_type::eof()) {
    const auto there = fs::file_size(output_file_, ignored);
    return blame(
        broken(fmt::format("was asked for {} rows of {} {}, {} bytes, and wrote {}", rows.size(), output_.columns(),
                           to_string(output_.element), bytes, ignored ? "none" : std::to_string(there))));
  }
  return tensor;
}

Status Peer::refuses_unknown_requests() {
  const auto answer = ask({{"op", "sing"}}, WRITE_LIMIT_S);
  if (answer) return blame(broken("says yes to a request that the protocol does not have"));
  return answer.error().code == ExitCode::cannot_run_here ? Status{} : passed_on(answer);
}

Unexpected Peer::blame(const Error& error) {
  std::string message = fmt::format("peer {}: {}", label_, error.message);
  if (error.code != ExitCode::cannot_run_here) {
    usable_ = false;
    if (const std::string tail = process_->error_tail(); !tail.empty()) {
      message += "\n  The end of its standard error:\n    ";
      for (const char c : tail) message += c == '\n' ? "\n    " : std::string(1, c);
    }
  }
  return failure(error.code, message);
}

namespace {

// Milliseconds that a peer may claim: no card does more than this, and no launch takes less.
constexpr double MOST_TFLOPS = 20000, SHORTEST_LAUNCH_MS = 1e-4;

// A group that takes longer than this beyond twice what the peer says of it was not all of the work.
constexpr double MOST_AROUND_MS = 50;

Result<double> judge_rows(Peer& peer, const Reference::Answer& answer) {
  const Result<Tensor> output = peer.output(answer.cells);
  if (!output) return passed_on(output);
  const Comparison worst = compare_rows_to_reference(answer, *output);
  if (worst.within()) return worst.max_err;
  return failure(ExitCode::check_failed,
                 "peer {}: wrong: head {}, query {}, column {} is {:g} and should be {:g}; {:.1e} is allowed",
                 peer.label(), worst.cell.unit, worst.cell.row, worst.column, worst.got, worst.expected,
                 worst.tolerance);
}

}  // namespace

Result<double> believed_ms(Peer& peer, int launches, double flops, const PeerInfo& info) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const Result<double> ms = peer.time_ms(launches);
  const std::chrono::duration<double, std::milli> passed = Clock::now() - start;
  if (!ms) return ms;
  const std::string claim =
      fmt::format("peer {}: claims {:g} ms for {} launch{}", info.name, *ms, launches, launches == 1 ? "" : "es");
  if (*ms < launches * std::max(SHORTEST_LAUNCH_MS, flops / (MOST_TFLOPS * 1e9))) {
    return failure(ExitCode::check_failed, claim + ", which no card can do");
  }
  if (info.judged() && passed.count() > 2 * *ms + MOST_AROUND_MS) {
    return failure(ExitCode::check_failed, "{}, and {:.3g} ms passed", claim, passed.count());
  }
  return ms;
}

Result<double> judge(Peer& peer, const Problem& problem) {
  if (const Status poisoned = peer.poison(); !poisoned) return passed_on(poisoned);
  if (const Result<double> ms = peer.time_ms(1); !ms) return ms;
  return judge_rows(peer, problem.reference.answers.front());
}

Status judge_some(Peer& peer, const Problem& problem, uint64_t seed) {
  constexpr size_t SOME = 64;
  const Reference::Answer& all = problem.reference.answers.front();
  std::vector<size_t> chosen(all.cells.size());
  std::iota(chosen.begin(), chosen.end(), 0);
  std::shuffle(chosen.begin(), chosen.end(), std::mt19937_64(seed));
  chosen.resize(std::min(SOME, chosen.size()));
  return judge_rows(peer, some_cells(all, chosen)).map([](double) {});
}

}  // namespace ladder
