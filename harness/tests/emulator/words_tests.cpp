// Words of several instructions, and parts: what they do, and whose line reports name.
#include <algorithm>
#include <cmath>

#include "common/words/forward.cuh"
#include "harness/tests/emulator/emulator_test.hpp"

using namespace emulator_test;

namespace {

__global__ void over_quads(float* out) {
  const float value = static_cast<float>(threadIdx.x * 7 % 32);
  st_global_f32(out + threadIdx.x, quad_max(value));
  st_global_f32(out + 32 + threadIdx.x, quad_sum(value));
}

// A warp brings tiles of 128 B that another one reads: more of them than there are stages.
constexpr int STAGES = 2, TILES = 5;
using Tiles = Ring<STAGES, 128>;
template <bool WAITS>
__global__ void through_a_ring(const uint4* in, uint32_t* out) {
  const Tiles ring{smem_base() + STAGES * 128, smem_base()};
  if (threadIdx.x == 0) {
    ring.init(32);
    fence_mbarrier_init();
  }
  __syncthreads();
  for (int tile = 0; tile < TILES; ++tile) {
    if (threadIdx.x == 32) {
      ring.claim(tile);
      cp_async_bulk(ring.tiles + ring.at(tile), in + 8 * tile, 128, ring.full_of(tile));
    }
    if (threadIdx.x < 32) {
      if (WAITS) ring.wait_full(tile);
      st_global_b32(out + 32 * tile + threadIdx.x,
                    ld_shared_b32(ring.tiles + ring.at(tile) + threadIdx.x * 4));  // @read
      mbarrier_arrive(ring.empty_of(tile));
    }
  }
}

// An element of T, rounded.
template <class T>
T rounded(float value) {
  if constexpr (std::is_same_v<T, bf16>)
    return to_bf16(value);
  else
    return to_f16(value);
}

// A part waits for a tile that nobody sends, and asks for a word where no shared memory is.
__global__ void lets_nothing_pass() {
  const Tiles ring{smem_base()};
  if (threadIdx.x == 0) ring.init(1);
  __syncthreads();
  forward::let_pass<true, 1>(ring, ring, 0, 1, [](const auto&, int) {});  // @pass
}
__global__ void asks_outside(int* out) {
  const forward::Work work{smem_base() + 64};
  out[threadIdx.x] = work[forward::Work::END];  // @word
  out[threadIdx.x] += work.query();             // @query
}

__global__ void nothing_comes() {
  const Tiles ring{smem_base()};
  if (threadIdx.x == 0) ring.init(1);
  __syncthreads();
  ring.wait_full(0);  // @hang
}

// A warp's 16 rows of scores: `out` has them masked and scaled, then `S`, `P` and `sums` what weights are made of.
constexpr int KEYS = 64, FIRST_QUERY = 40, D = 128;
template <class T>
struct Rows {
  float in[16][KEYS], out[16][KEYS], S[16][KEYS], largest[16], sums[16];
  T P[16][KEYS];
};
template <class T>
__global__ void on_rows(Rows<T>* rows) {
  const int lane = threadIdx.x;
  float S[KEYS / 8][4], sums[2];
  const auto each = [&](const auto& visit) {
    for (int i = 0; i < KEYS / 2; ++i)
      visit(FragmentC::row(lane, i % 4), i / 4 * 8 + FragmentC::col(lane, i % 4), S[i / 4][i % 4]);
  };
  const int of_lane[2] = {FragmentC::row(lane, 0), FragmentC::row(lane, 2)};
  each([&](int row, int key, float& score) { score = rows->in[row][key]; });
  for (int lane_row = 0; lane_row < 2; ++lane_row) {
    const float largest = quad_max(lane_max(S, lane_row));
    if (lane % 4 == 0) rows->largest[of_lane[lane_row]] = largest;
  }
  uint32_t P[KEYS / 16][4];
  exp2_weights<T>(S, P, 2, {float(of_lane[0] % 4), float(of_lane[1] % 4)}, sums);
  each([&](int row, int key, float& score) { rows->S[row][key] = score; });
  for (int i = 0; i < KEYS / 2; ++i) {
    const uint32_t two = P[i / 8][i % 8 / 2];
    rows->P[FragmentA::row(lane, i % 8)][i / 8 * 16 + FragmentA::col(lane, i % 8)].bits =
        static_cast<uint16_t>(i % 2 == 0 ? two : two >> 16);
  }
  for (int lane_row = 0; lane_row < 2; ++lane_row) {
    const float sum = quad_sum(sums[lane_row]);
    if (lane % 4 == 0) rows->sums[of_lane[lane_row]] = sum;
  }
  each([&](int row, int key, float& score) { score = rows->in[row][key]; });
  mask_diagonal(S, FIRST_QUERY);
  scale_rows(S, {float(of_lane[0] + 1), float(of_lane[1] + 1)});
  each([&](int row, int key, float& score) { rows->out[row][key] = score; });
}

// A warpgroup's 64 queries against 64 keys: O becomes 2 P V, with P = 2^(Q K^T), and each row is divided by its own 2^r.
enum class Missing { nothing, fence_of_S, fence_of_O, fence_of_copy };
template <class T, Missing MISSING>
__global__ void one_tile(const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                         const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map) {
  constexpr uint32_t TILE_BYTES = KEYS * D * 2, PANEL_BYTES = KEYS * 128;
  const uint32_t smem_Q = smem_base(), smem_K = smem_Q + TILE_BYTES, smem_V = smem_K + TILE_BYTES;
  const Ring<1, 3 * TILE_BYTES> tiles{smem_V + TILE_BYTES, smem_Q};
  if (threadIdx.x == 0) {
    tiles.init(1);
    fence_mbarrier_init();
    tiles.claim(0);
    cp_async_bulk_tensor_4d(smem_Q, Q_map, 0, 0, 0, 0, tiles.full_of(0));
    cp_async_bulk_tensor_4d(smem_K, K_map, 0, 0, 0, 0, tiles.full_of(0));
    cp_async_bulk_tensor_4d(smem_V, V_map, 0, 0, 0, 0, tiles.full_of(0));
  }
  __syncthreads();
  tiles.wait_full(0);
  float S[KEYS / 8][4], O[D / 8][4], sums[2];
  uint32_t P[KEYS / 16][4];
  if (MISSING != Missing::fence_of_S) wgmma_fence(S);
  issue_QK<T, D, KEYS, KEYS>(S, wgmma_descriptor(smem_Q), wgmma_descriptor(smem_K));  // @QK
  wgmma_commit();
  wgmma_wait<0>(S);
  exp2_weights<T>(S, P, 1, {0, 0}, sums);
  if (MISSING != Missing::fence_of_O) wgmma_fence(O, P);
  issue_PV<T>(O, P, wgmma_descriptor(smem_V, PANEL_BYTES), false);  // @PV
  issue_PV<T>(O, P, wgmma_descriptor(smem_V, PANEL_BYTES));
  wgmma_commit();
  wgmma_wait<0>(O, P);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int rows[2] = {warp * 16 + FragmentC::row(lane, 0), warp * 16 + FragmentC::row(lane, 2)};
  const float by[2] = {1.0f / float(1 << rows[0] % 3), 1.0f / float(1 << rows[1] % 3)};
  store_scaled<T, KEYS>(smem_Q + (warp * 16 + lane % 16) * 128, O, by);  // @O
  if (MISSING != Missing::fence_of_copy) fence_proxy_async_shared();
  __syncthreads();
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_store_4d(O_map, 0, 0, 0, 0, smem_Q);  // @copy
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();
  }
}

template <class T>
struct Tile {
  T Q[KEYS][D] = {}, K[KEYS][D], V[KEYS][D], O[KEYS][D] = {};
  int key(int row, int column) const { return (row * 7 + column * 3 + row * column) % 4; }
  int value(int row, int column) const { return (row + column / 3 + row * column) % 2; }
  int liked(int row) const { return row * 5 % D; }  // the one column in which a query is 1
  Tile() {
    for (int row = 0; row < KEYS; ++row) {
      Q[row][liked(row)] = rounded<T>(1);
      for (int column = 0; column < D; ++column) {
        K[row][column] = rounded<T>(float(key(row, column)));
        V[row][column] = rounded<T>(float(value(row, column)));
      }
    }
  }
};

template <Missing MISSING, class T>
Device run_tile(Tile<T>& tile) {
  Device device({.threads = 1});
  const auto map = [&](const T(&matrix)[KEYS][D]) {
    return tensor_map_4d(device, &matrix[0][0], {64, KEYS, 2, 1}, {2 * D, 128, 2 * D * KEYS}, {64, KEYS, 2, 1});
  };
  device.register_buffer(&tile, sizeof tile, "tile", emulator::Access::read_write);
  launch(device, one_tile<T, MISSING>, dim3(1), dim3(128), 3 * KEYS * D * 2 + 16, map(tile.Q), map(tile.K), map(tile.V),
         map(tile.O));
  return device;
}

}  // namespace

TEST_CASE("a quad's four lanes have its largest number and its sum", "[emulator][words]") {
  std::vector<float> out(64);
  check_silent(run(over_quads, 32, 0, out.data()));
  for (int lane = 0; lane < 32; ++lane) {
    float largest = 0, sum = 0;
    for (int other = lane / 4 * 4; other < lane / 4 * 4 + 4; ++other) {
      largest = std::max(largest, float(other * 7 % 32));
      sum += float(other * 7 % 32);
    }
    CHECK(out[lane] == largest);
    CHECK(out[32 + lane] == sum);
  }
}

TEST_CASE("tiles go through a ring's stages in turn", "[emulator][words]") {
  std::vector<uint4> in(8 * TILES);
  for (uint32_t i = 0; i < in.size(); ++i) in[i] = {4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3};
  std::vector<uint32_t> out(32 * TILES);
  const uint32_t smem_bytes = STAGES * (128 + 16);
  check_silent(run(through_a_ring<true>, 64, smem_bytes, in.data(), out.data()));
  for (uint32_t i = 0; i < out.size(); ++i) REQUIRE(out[i] == i);
  const Device device = run(through_a_ring<false>, 64, smem_bytes, in.data(), out.data());
  REQUIRE_FALSE(device.reports().empty());
  CHECK(device.reports()[0].where[0] == MARKED("read"));
}

TEST_CASE("a report names the line of the kernel that says the word", "[emulator][words]") {
  const Device device = run(nothing_comes, 32, 64);
  check_only(device, ReportKind::deadlock, {MARKED("hang")});
}

TEST_CASE("so it does of a part, and of a word that a part asks for", "[emulator][words]") {
  const Device waiting = run(lets_nothing_pass, 32, 64);
  CHECK(only_report(waiting).where == std::vector{MARKED("pass")});
  std::vector<int> out(32);
  const Device asking = run(asks_outside, 32, 64, out.data());
  std::vector<emulator::SourceLine> places;
  for (const Report& report : asking.reports()) places.push_back(report.where[0]);
  CHECK(std::find(places.begin(), places.end(), MARKED("word")) != places.end());
}

TEMPLATE_TEST_CASE("a warp's rows: the largest, weights and their sums, the mask on the diagonal, a factor each",
                   "[emulator][words]", f16, bf16) {
  Rows<TestType> rows = {};
  for (int row = 0; row < 16; ++row) {
    for (int key = 0; key < KEYS; ++key)
      rows.in[row][key] = float((row * 5 + key * 3 + row * key) % 7) - 3 - (row == 9);
    rows.in[row][row * 11 % KEYS] = 3.5f;  // the largest stands elsewhere in each row
  }
  check_silent(run(on_rows<TestType>, 32, 0, &rows));
  for (int row = 0; row < 16; ++row) {
    float sum = 0;
    for (int key = 0; key < KEYS; ++key) {
      INFO("row " << row << ", key " << key);
      const float score = rows.in[row][key], exponent = 2 * score - float(row % 4);
      REQUIRE(rows.S[row][key] == exponent);
      REQUIRE(rows.P[row][key].bits == rounded<TestType>(std::exp2(exponent)).bits);
      sum += std::exp2(exponent);
      REQUIRE(rows.out[row][key] == (key > FIRST_QUERY + row ? -INFINITY : score * float(row + 1)));
    }
    CHECK(rows.largest[row] == 3.5f);
    CHECK(rows.sums[row] == sum);
  }
}

TEMPLATE_TEST_CASE("products over all slices of a tile, and the way out through swizzled shared memory",
                   "[emulator][words]", f16, bf16) {
  Tile<TestType> tile;
  check_silent(run_tile<Missing::nothing>(tile));
  for (int query = 0; query < KEYS; ++query) {
    for (int column = 0; column < D; ++column) {
      INFO("query " << query << ", column " << column);
      int sum = 0;
      for (int key = 0; key < KEYS; ++key) sum += tile.value(key, column) << tile.key(key, tile.liked(query));
      REQUIRE(tile.O[query][column].bits == rounded<TestType>(2.0f * float(sum) / float(1 << query % 3)).bits);
    }
  }
  const auto where = [&](const Device& device) {
    REQUIRE_FALSE(device.reports().empty());
    return device.reports()[0].where;
  };
  CHECK(where(run_tile<Missing::fence_of_S>(tile))[0] == MARKED("QK"));
  CHECK(where(run_tile<Missing::fence_of_O>(tile))[0] == MARKED("PV"));
  CHECK(where(run_tile<Missing::fence_of_copy>(tile)) == std::vector{MARKED("copy"), MARKED("O")});
}
