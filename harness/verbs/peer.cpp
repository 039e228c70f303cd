#include "harness/verbs/verbs.hpp"

#include <fmt/format.h>

#include "harness/base/interrupt.hpp"
#include "harness/devices/capacity.hpp"
#include "harness/measure/peer.hpp"
#include "harness/problem/formula.hpp"
#include "harness/problem/shapes.hpp"

namespace ladder {
namespace {

// A bench asks for these in this order; each is told as soon as it has been answered.
class Trial {
 public:
  explicit Trial(Peer& peer) : peer_(peer) {}

  Result<ExitCode> run(const Shape& shape, InputKind kind, uint64_t seed) {
    Shape second = shape;
    second.heads += 1;
    for (const Shape& asked : {shape, second}) {
      if (const Status prepared = prepare(asked, kind, seed); !prepared) return failed(prepared.error());
      if (const Status timed = time(asked); !timed) return failed(timed.error());
    }
    if (info_.judged()) {
      if (const Status refused = peer_.refuses_unknown_requests(); !refused) return failed(refused.error());
      fmt::print("unknown requests: refused\n");
    }
    fmt::print("{}\n", info_.judged() ? "It keeps the protocol: a bench would time it."
                       : info_.ceiling
                           ? "It keeps the protocol of a ceiling."
                           : "It keeps protocol 1: a bench would time it, and show its rows as unverified.");
    return ExitCode::done;
  }

 private:
  Status prepare(const Shape& shape, InputKind kind, uint64_t seed) {
    const Problem problem = make_problem(shape, kind, seed, true);
    files_ = PeerFiles::create(problem.inputs);
    if (!files_) return passed_on(files_);
    if (const Status asked = peer_.ask_to_prepare(shape, to_string(kind), seed, *files_); !asked) return asked;
    const Result<PeerInfo> info = peer_.prepared();
    if (!info) return passed_on(info);
    info_ = *info;
    fmt::print("prepare {}: {}, {}, protocol {}\n", to_string(shape), info_.name,
               info_.version.empty() ? "no version" : info_.version, info_.protocol);
    if (info_.ceiling && !info_.flops.value_or(0)) {
      return failure(ExitCode::check_failed, "a ceiling says its \"flops\" for one launch");
    }
    if (!info_.judged()) return {};
    const Result<double> error = judge(peer_, problem);
    if (!error) return passed_on(error);
    fmt::print("poison, run, output: right, max error {:.1e} of {:.1e} allowed\n", *error,
               problem.reference.tolerance());
    return {};
  }

  Status time(const Shape& shape) {
    constexpr int LAUNCHES = 3;
    const double flops = info_.ceiling ? *info_.flops : flops_of(shape);
    const Result<double> ms = believed_ms(peer_, LAUNCHES, flops, info_);
    if (!ms) return passed_on(ms);
    fmt::print("run {} launches: {:.4g} ms each\n", LAUNCHES, *ms / LAUNCHES);
    return {};
  }

  // What it keeps so far stands above.
  static Result<ExitCode> failed(const Error& error) {
    std::fflush(stdout);
    return tl::make_unexpected(error);
  }

  Peer& peer_;
  PeerInfo info_;
  Result<PeerFiles> files_ = failure(ExitCode::done, "");
};

}  // namespace

Result<ExitCode> peer_verb(const Options& options) {
  const std::vector<Shape> shapes = shapes_for(options, {.batch = 1, .heads = 2, .n = 256, .d = 128});
  if (shapes.size() > 1 || options.inputs.size() > 1) {
    return failure(ExitCode::usage, "peer tries one problem. Give one --n, and one kind of --inputs.");
  }
  const Shape& shape = shapes.front();
  if (const Status fits = fits_host_memory(shape, 0); !fits) return passed_on(fits);
  const InterruptGuard guard;
  Result<Peer> peer = Peer::start(peer_from_option(options.peers.front()));
  if (!peer) return passed_on(peer);
  const InputKind kind = options.inputs.empty() ? InputKind::normal : options.inputs.front();
  return Trial(*peer).run(shape, kind, options.seed);
}

}  // namespace ladder
