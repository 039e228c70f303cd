// What the emulator counts and a rung predicts: one list of it. Without the standard library, for every stage.cu reads it.
#pragma once
#include <cstdint>

namespace emulator {

// Exact event counts of one launch; a warp instruction counts once. Bytes are those asked for.
struct Counts {
  uint64_t mma = 0;    // of m16n8k16; a wmma.mma of m16n16k16 is two
  uint64_t wgmma = 0;  // of a warpgroup, whatever their N
  uint64_t wgmma_left_running =
      0;  // of these: a wait of their warpgroup has left them in flight, and not another one at once
  uint64_t wgmma_beside_exponentials = 0;  // of these: before the next wait it has computed exponentials
  // Whenever a warpgroup waits for copies of the copy engine: of its products those that it has issued by then and of which
  // nobody had told the thread that asked for these copies that they are over. So many may run while the copies are on their way.
  uint64_t wgmma_under_loads = 0;
  // Of a thread that hands shared memory over to the copy engine (fence.proxy.async): products of its warpgroup that run meanwhile.
  uint64_t wgmma_under_fences = 0;
  uint64_t products_of_busiest_block = 0;  // mma and wgmma of the block, of all launches, that has most of them
  // Of the multiprocessor that has most of them, if each runs a block (of a cluster, one of them) at a time, and the one that is free
  // first takes the next: blocks begin in the order of their numbers. Launches come one after the other.
  uint64_t products_of_busiest_sm = 0;
  uint64_t ldmatrix = 0;  // a wmma.load of A or B is one
  // Of these, operands B of an mma: products that the warp starts between the load and the first on them.
  uint64_t fragments_ahead = 0;
  // Operands B of mma, which must be a pair of registers, that an ldmatrix has left as one: others are moved.
  uint64_t fragments_in_pairs = 0;
  // Of a copy that a thread asks for and waits for itself, in or out: products that its warp starts in between. Of all such
  // copies, a cp.async being one.
  uint64_t products_under_copies = 0;
  uint64_t exponentials_under_copies = 0;  // that the thread computes in between, of such copies to shared memory
  uint64_t loads_awaited_by_asker =
      0;  // copies of the copy engine to shared memory for which the thread waits that asked for them
  uint64_t arrivals_under_stores =
      0;  // of threads, at mbarriers, while what they have asked to be stored or added is on its way
  // Of threads, at an mbarrier, when the thread waits for the phase that it has arrived in, and its warp has started products before
  // and none in between: a barrier for all who arrive, by another name.
  uint64_t arrivals_awaited_at_once = 0;
  uint64_t shuffles = 0;
  uint64_t shuffles_beside_products = 0;  // of these: while products of the warp's group run
  uint64_t votes = 0;
  uint64_t votes_on_scores = 0;  // before which its lanes have computed no exponential since the warp's last product
  uint64_t yes_votes = 0;  // predicted: the fewest, for the data decide; on calm data each warp may say yes once more
  uint64_t exponentials = 0;                  // ex2 and tanh, of threads
  uint64_t exponentials_beside_products = 0;  // of these: while products of their warpgroup run
  uint64_t packs_beside_products = 0;         // of threads, two numbers each, while products of their warpgroup run
  uint64_t integer_maxima = 0;                // of threads, of three integers each
  // Of warps, mma and wgmma: the first behind exponentials. So often do they go back from weights to products.
  uint64_t products_after_exponentials = 0;
  uint64_t exponentials_under_stores = 0;  // that a thread computes before it waits for its bulk store, for each store
  // Threads that have changed accumulators while no product of their warpgroup ran, for the next one to add to: wgmma.
  // Those that begin with zeros are not among them.
  uint64_t corrections_at_rest = 0;
  // Of warps, mma and wgmma, between a named barrier at which they wait and the next one, at which they arrive alone.
  uint64_t products_in_turns = 0;
  uint64_t mbarrier_waits = 0;   // of threads
  uint64_t warps = 0;            // of all blocks
  uint64_t barriers = 0;         // __syncthreads and completed named barriers, once per block; not mbarriers
  uint64_t bulk_copies = 0;      // copies and reductions that the copy engine is asked for, either way, in range or not
  uint64_t storing_threads = 0;  // of all blocks: those that ask the copy engine for a store or a reduction
  uint64_t gmem_accesses = 0;    // loads, stores and reductions of threads; not copies
  // Of 32 bytes that loads, stores and cp.async touch, request by request: of each kernel's first block, when it is launched first.
  uint64_t gmem_sectors = 0;
  uint64_t smem_wavefronts = 0;  // passes over the banks; not of cp.async's writes, bulk copies and wgmma
  uint64_t gmem_bytes_read = 0;
  uint64_t gmem_bytes_written = 0;
  uint64_t gmem_bytes_reduced = 0;  // added to what is there: red, cp.reduce.async.bulk
  uint64_t multicast_bytes = 0;     // that land in shared memory, in each block that gets them
  uint64_t conflicts =
      0;  // wavefronts of shared memory beyond those that its accesses would take without bank conflicts
  uint64_t unused_smem_bytes =
      0;                         // of those that a block asks for, of the launch that wastes most: what the block that
                                 // writes most of it has never written; with Options::check
  uint64_t idle_blocks = 0;      // that have stored nothing to global memory
  uint64_t taken_registers = 0;  // by setmaxnreg.inc; of all blocks
  uint64_t idle_registers = 0;   // given back by setmaxnreg.dec and taken by nobody when a block ends; of all blocks
  bool operator==(const Counts&) const = default;
};

// Each of them: its name in JSON, and in words.
using CountOf = uint64_t Counts::*;
enum : unsigned {
  WHERE_SAID = 1,    // held to its prediction where that is above 0: elsewhere it says nothing
  BY_VALUES = 2,     // registers are known by what they hold: on normal inputs alone
  MORE_IS_FINE = 4,  // of work that goes on meanwhile: what waits at once has less of it
  COST = 8,          // a kernel in a rung's place should have no more of it than the rung's own,
  GAIN = 16,         // and of this no less
  BY_DATA = 32,      // which the data have a say in: where a maximum grows there is more of it
};
struct Count {
  CountOf value;
  const char *name, *words;
  unsigned marks = 0;
  constexpr bool is(unsigned mark) const { return (marks & mark) != 0; }
};
inline constexpr Count COUNTS[] = {
    {&Counts::mma, "mma", "mma"},
    {&Counts::wgmma, "wgmma", "wgmma"},
    {&Counts::wgmma_left_running, "wgmma_left_running", "wgmma that a wait leaves running"},
    {&Counts::wgmma_beside_exponentials, "wgmma_beside_exponentials", "wgmma that run beside exponentials", WHERE_SAID},
    {&Counts::wgmma_under_loads, "wgmma_under_loads", "wgmma that run under awaited loads", WHERE_SAID | MORE_IS_FINE},
    {&Counts::wgmma_under_fences, "wgmma_under_fences", "wgmma that run while results are handed over",
     WHERE_SAID | MORE_IS_FINE},
    {&Counts::products_of_busiest_block, "products_of_busiest_block", "products of the block with most of them",
     WHERE_SAID | COST},
    {&Counts::products_of_busiest_sm, "products_of_busiest_sm", "products of the SM with most of them",
     WHERE_SAID | COST},
    {&Counts::ldmatrix, "ldmatrix", "ldmatrix", COST},
    {&Counts::fragments_ahead, "fragments_ahead", "products between ldmatrix and their use", WHERE_SAID | BY_VALUES},
    {&Counts::fragments_in_pairs, "fragments_in_pairs", "operands in pairs of registers", WHERE_SAID | BY_VALUES},
    {&Counts::products_under_copies, "products_under_copies", "products under awaited copies", MORE_IS_FINE},
    {&Counts::exponentials_under_copies, "exponentials_under_copies", "exponentials under awaited copies",
     WHERE_SAID | MORE_IS_FINE},
    {&Counts::loads_awaited_by_asker, "loads_awaited_by_asker", "loads that are awaited by who asked for them"},
    {&Counts::arrivals_under_stores, "arrivals_under_stores", "arrivals at mbarriers under own stores",
     WHERE_SAID | GAIN},
    {&Counts::arrivals_awaited_at_once, "arrivals_awaited_at_once", "arrivals at mbarriers that are awaited at once",
     WHERE_SAID},
    {&Counts::shuffles, "shuffles", "shuffles", BY_DATA},
    {&Counts::shuffles_beside_products, "shuffles_beside_products", "shuffles beside products", WHERE_SAID},
    {&Counts::votes, "votes", "votes", BY_DATA},
    {&Counts::votes_on_scores, "votes_on_scores", "votes on scores, before any weight", WHERE_SAID | BY_DATA},
    {&Counts::yes_votes, "yes_votes", "votes that say yes", BY_DATA},
    {&Counts::exponentials, "exponentials", "exponentials", COST | BY_DATA},
    {&Counts::exponentials_beside_products, "exponentials_beside_products", "exponentials beside products",
     WHERE_SAID | GAIN},
    {&Counts::products_after_exponentials, "products_after_exponentials", "turns from exponentials to products",
     WHERE_SAID},
    {&Counts::packs_beside_products, "packs_beside_products", "pairs packed beside products", WHERE_SAID},
    {&Counts::integer_maxima, "integer_maxima", "maxima of three integers", WHERE_SAID},
    {&Counts::exponentials_under_stores, "exponentials_under_stores", "exponentials under awaited stores",
     WHERE_SAID | MORE_IS_FINE},
    {&Counts::corrections_at_rest, "corrections_at_rest", "corrections without a product beside", BY_DATA},
    {&Counts::products_in_turns, "products_in_turns", "products that warps start in their turn", WHERE_SAID},
    {&Counts::mbarrier_waits, "mbarrier_waits", "waits at mbarriers, of threads", WHERE_SAID | COST},
    {&Counts::warps, "warps", "warps of all blocks", WHERE_SAID | COST},
    {&Counts::barriers, "barriers", "barriers", COST},
    {&Counts::bulk_copies, "bulk_copies", "copies by the copy engine"},
    {&Counts::storing_threads, "storing_threads", "threads that ask the copy engine for stores", WHERE_SAID},
    {&Counts::gmem_accesses, "gmem_accesses", "loads and stores of global memory, of threads", COST},
    {&Counts::gmem_sectors, "gmem_sectors", "global sectors of the first block's threads", WHERE_SAID | COST},
    {&Counts::smem_wavefronts, "smem_wavefronts", "shared-memory wavefronts", WHERE_SAID | COST},
    {&Counts::gmem_bytes_read, "gmem_bytes_read", "bytes read from global memory", COST},
    {&Counts::gmem_bytes_written, "gmem_bytes_written", "bytes written to global memory", COST},
    {&Counts::gmem_bytes_reduced, "gmem_bytes_reduced", "bytes added to global memory by reductions", COST},
    {&Counts::multicast_bytes, "multicast_bytes", "bytes by multicast"},
    {&Counts::conflicts, "conflicts", "wavefronts that bank conflicts add"},
    {&Counts::unused_smem_bytes, "unused_smem_bytes", "bytes of a block's shared memory that are never written"},
    {&Counts::idle_blocks, "idle_blocks", "blocks that have written nothing to global memory"},
    {&Counts::taken_registers, "taken_registers", "registers that are taken (setmaxnreg.inc)", WHERE_SAID | GAIN},
    {&Counts::idle_registers, "idle_registers", "registers that are given back (setmaxnreg.dec) and taken by nobody"},
};
static_assert(sizeof(COUNTS) / sizeof(COUNTS[0]) * sizeof(uint64_t) == sizeof(Counts), "a count has no name");

}  // namespace emulator
