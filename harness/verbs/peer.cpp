#include "harness/verbs/verbs.hpp"

#include <fmt/format.h>

#include <optional>

#include "harness/base/interrupt.hpp"
#include "harness/devices/capacity.hpp"
#include "harness/measure/peer.hpp"
#include "harness/problem/formula.hpp"
#include "harness/problem/shapes.hpp"

namespace ladder {
namespace {

Result<PeerInfo> prepare(Peer& peer, const Problem& problem, std::optional<PeerFiles>& files) {
  auto created = PeerFiles::create(problem.inputs);
  if (!created) return passed_on(created);
  files = std::move(*created);
  const Shape& shape = problem.shape;
  const Status asked = peer.ask_to_prepare(shape, to_string(problem.kinds.front()), problem.seed, *files);
  if (!asked) return passed_on(asked);
  const Result<PeerInfo> info = peer.prepared();
  if (!info) return info;
  fmt::print("prepare {}: {}, {}, protocol {}\n", to_string(shape), info->name,
             info->version.empty() ? "no version" : info->version, info->protocol);
  if (info->ceiling && !info->flops.value_or(0)) {
    return failure(ExitCode::check_failed, "a ceiling says its \"flops\" for one launch");
  }
  if (!info->judged()) return info;
  const Result<double> error = judge(peer, problem);
  if (!error) return passed_on(error);
  fmt::print("poison, run, output: right, max error {:.1e} of {:.1e} allowed\n", *error, problem.reference.tolerance());
  return info;
}

}  // namespace

Result<ExitCode> peer_verb(const Options& options) {
  const std::vector<Shape> shapes = shapes_for(options, {.batch = 1, .heads = 2, .n = 256, .d = 128});
  if (shapes.size() > 1 || options.inputs.size() > 1) {
    return usage("peer tries one problem. Give one --n, and one kind of --inputs.");
  }
  const Shape& shape = shapes.front();
  if (const Status fits = fits_host_memory(shape, 0); !fits) return passed_on(fits);
  const InterruptGuard guard;
  Result<Peer> peer = Peer::start(peer_from_option(options.peers.front()));
  if (!peer) return passed_on(peer);
  const InputKind kind = options.inputs.empty() ? InputKind::normal : options.inputs.front();
  // A bench asks for these in this order; each is told as soon as it has been answered.
  Shape second = shape;
  second.heads += 1;
  Result<PeerInfo> info = PeerInfo();
  std::optional<PeerFiles> files;
  for (const Shape& asked : {shape, second}) {
    info = prepare(*peer, make_problem(asked, kind, options.seed, true), files);
    if (!info) return passed_on(info);
    constexpr int LAUNCHES = 3;
    const Result<double> ms = believed_ms(*peer, LAUNCHES, info->ceiling ? *info->flops : flops_of(asked), *info);
    if (!ms) return passed_on(ms);
    fmt::print("run {} launches: {:.4g} ms each\n", LAUNCHES, *ms / LAUNCHES);
  }
  if (info->judged()) {
    if (const Status refused = peer->refuses_unknown_requests(); !refused) return passed_on(refused);
    fmt::print("unknown requests: refused\n");
  }
  fmt::print("{}\n", info->judged()  ? "It keeps the protocol: a bench would time it."
                     : info->ceiling ? "It keeps the protocol of a ceiling."
                                     : "It keeps protocol 1: a bench would time it, and show its rows as unverified.");
  return ExitCode::done;
}

}  // namespace ladder
