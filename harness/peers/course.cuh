// A kernel of the course as a peer of `ladder bench`, which holds it to the reference and times it. `./ladder learn time` writes a
// file that includes the kernel, calls its tile Tile, and includes this; nvcc compiles it. So does `./ladder grade --speed`, of the student's
// kernel and of the rung's own: PEER_WIPES fills the output with NaN before each launch, within the time, so that no launch finds an answer
// that it may leave as it is.
#pragma once
#include "harness/peers/peer.hpp"

int main() {
  const auto prepare = [](const peer::Problem& p) {
    if (p.d != 128) throw peer::Refusal("d is 128 here");
    if (p.causal) throw peer::Refusal("no mask here");
  };
  const auto launch = [](const peer::Problem& p) {
#ifdef PEER_WIPES
    peer::check(cudaMemsetAsync(p.O, 0xff, p.bytes()), "cudaMemsetAsync");
#endif
    Device device;
    run<Tile>(device, {.Q = static_cast<const f16*>(p.Q),
                       .K = static_cast<const f16*>(p.K),
                       .V = static_cast<const f16*>(p.V),
                       .O = static_cast<f16*>(p.O),
                       .LSE = nullptr,
                       .workspace = nullptr,
                       .batch_heads = p.batch * p.heads,
                       .n = p.n,
                       .d = p.d,
                       .softmax_scale = p.softmax_scale,
                       .causal = false});
    peer::check(device.error, "the launch");
  };
  return peer::serve("yours", "", prepare, launch);
}
