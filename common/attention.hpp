// The problems that stages solve, as a kernel sees them. First the plain one, O = softmax(Q K^T * softmax_scale) V:
// when causal, query i sees keys 0..i alone, the other scores are -infinity. Then what models ask besides, and
// gradients.
#pragma once
#include <cstdint>

// A 16-bit IEEE float, opaque on purpose: kernels move it, and only to_float, pack_f16x2 and the tensor cores read it.
struct f16 {
  uint16_t bits;
};

// The upper half of an f32: its exponent, and 7 bits of its mantissa. Opaque too.
struct bf16 {
  uint16_t bits;
};

// A float of 4 bits of exponent and 3 of mantissa: from 2^-9 to 448, without infinities.
struct e4m3 {
  uint8_t bits;
};

// Kernel argument, passed by value. Tensors are [batch * heads, n, d], row-major and contiguous; the caller owns them.
// They lie in GPU memory for the GPU and in host memory for the emulator.
struct AttentionParams {
  const f16* Q;
  const f16* K;
  const f16* V;
  f16* O;
  float* LSE;           // [batch * heads, n] ln of the sum of exp(scaled scores), of stages that write it; else null
  void* workspace;      // scratch in device memory, as many bytes as the variant's workspace_bytes says; else null
  int batch_heads;      // batch * heads: every (batch, head) pair is an independent problem
  int n;                // sequence length
  int d;                // head dimension
  float softmax_scale;  // 1 / sqrt(d)
  bool causal;
};

// The same as models ask it (models/): [batch, heads, n_q, d] queries, [batch, kv_heads, n_k, d] keys and values, O
// like Q. A row's d elements lie side by side, everything else where the strides say.
struct ForwardParams {
  struct Strides {  // in elements
    int64_t batch, head, row;
  };
  const void *Q, *K, *V;  // f16 or bf16, whichever the kernel is compiled for; O, too
  void* O;
  float* LSE;  // [batch, heads, n_q], contiguous; null where nobody wants it. -infinity for a query that sees no key
  Strides Q_strides, K_strides, V_strides, O_strides;
  int batch, heads, kv_heads;  // heads is a multiple of kv_heads: so many queries' heads in a row share one of keys
  int n_q, n_k;
  float softmax_scale;
  bool causal;  // the last query sees all keys, the one before it all but the last, ...
  int d;        // head dimension: at most the columns that the kernel has, and a multiple of 8
};

// And with a window, and with sequences of several lengths, which lie one behind the other: [total, heads, d]. Sequence
// s has the rows from cu_seqlens[s] on to cu_seqlens[s + 1]; n_q and n_k are those of the longest, and strides of the
// batch mean nothing.
struct ModelParams : ForwardParams {
  int left, right;                         // keys before a query's own and behind it that it sees; -1: all
  const int *cu_seqlens_q, *cu_seqlens_k;  // [batch + 1]; null where all have n_q and n_k. LSE is [heads, total] then
  void* workspace;  // scratch in device memory, as many bytes as the variant's workspace_bytes says; else null
};

// And with keys and values in a cache, which has room for n_k of each sequence. Sequence s uses the first
// cache_seqlens[s]. In pages, page j of its keys is block_table[s * most_pages + j], and batches' strides of K and V
// are a page's.
struct CacheParams : ModelParams {
  const int* cache_seqlens;  // [batch], 0 to n_k; null: all use all of them
  const int* block_table;  // [batch, most_pages], of pages in use 0 and more; null: a sequence's keys lie in one piece
  int most_pages, page_size;
};

// And with keys and values of a byte, e4m3 or int8, times a scale of each head of keys of a sequence, or of each of its
// columns.
struct ByteParams : CacheParams {
  const float *K_scales, *V_scales;  // [batch, kv_heads], or of columns [batch, kv_heads, d]; none below 0
  struct {
    int64_t batch, head;
  } scale_strides;  // of both
};

// And with keys and values of a byte, or of four bits, two to a byte, whose strides count numbers, times a scale of
// each key of each head.
struct TokenScaleParams : CacheParams {
  const float *K_scales, *V_scales;  // [batch, kv_heads, n_k], none below 0; in pages, as K and V are
  Strides scale_strides;             // of both
};

// All three of a byte, e4m3, times a scale of each head of a sequence. O has 16 bits.
struct ByteInputParams : ModelParams {
  struct Scales {
    const float* data;    // [batch, heads], or of K and V [batch, kv_heads]; none below 0
    int64_t batch, head;  // strides
  } Q_scales, K_scales, V_scales;
};

// Q and K of a byte, int8, times a scale of each row of a head. V and O have the same 16 bits.
struct RowScaleParams : ModelParams {
  struct Scales {
    const float* of;      // [batch, heads, n_q], or of K [batch, kv_heads, n_k], a head's side by side; none below 0
    int64_t batch, head;  // strides
  } Q_scales, K_scales;
};

// And with what becomes of a score s = Q K^T * softmax_scale before the softmax: softcap * tanh(s / softcap) unless
// softcap is 0, and then s - slope * |distance|, of a key from the query's own. A sink is a score of each row that
// belongs to no key.
struct ScoreParams : ModelParams {
  float softcap;
  const float *alibi_slopes, *sinks;  // [heads]; null where there are none
};

// And with a cache, too.
struct CacheScoreParams : CacheParams {
  float softcap;
  const float *alibi_slopes, *sinks;
};

// And with an interval of keys for each query, of any two numbers: of the keys that it sees otherwise, those from
// `first` on and before `end`. None, if there are none.
struct IntervalParams : ScoreParams {
  const int *first, *end;  // [batch, n_q], contiguous; null where a query sees all of them
};

// And with a list of blocks of keys for each tile of 128 queries, who see no others. A block is `block_keys` keys, 64
// or a multiple of 128. In a list those stand first of which all of the tile's queries see all keys; of each other one
// a stencil says who sees which: row r of it has a bit for each of 64 keys, in two words, the first keys' lowest.
struct BlockParams : ScoreParams {
  const int* lists;   // [.., .., tiles, most_blocks, 2]: a block's number, and that of the stencil of its first 64 keys
  const int* counts;  // [.., .., tiles, 2]: how many blocks, and how many of them are whole
  const int* order;   // [.., .., tiles]: the tiles of queries, the longest list first
  const uint32_t* stencils;  // [any number, 128, 2]: one that hides all pairs, one that hides none, and then others
  int block_keys, most_blocks;
  int of_sequence, of_head;  // how many tiles further on the next one's lists are: 0 where all have the same
};

// The way back (backward/): dO is given, how much the loss changes with each number of O, and dQ, dK and dV are wanted.
// O and LSE are what the forward pass has left; LSE is -infinity for a query that sees no key.
struct GradientParams {
  const f16 *Q, *K, *V, *O,
      *dO;            // Q, O, dO: [batch * heads, n_q, d]; K, V: [batch * heads, n_k, d]; row-major and contiguous
  const float* LSE;   // [batch * heads, n_q] ln of the sum of exp(scaled scores)
  f16 *dQ, *dK, *dV;  // each as its tensor
  void* workspace;    // scratch in device memory, as many bytes as the variant's workspace_bytes says
  int batch_heads, n_q, n_k, d;
  float softmax_scale;
  bool causal;  // the last query sees all keys, the one before it all but the last, ...
};

// The same as models ask it, in the shapes of ModelParams: Q, O, dO, dQ: [batch, heads, n_q, d]; K, V, dK, dV:
// [batch, kv_heads, n_k, d].
struct ModelGradientParams {
  using Strides = ForwardParams::Strides;
  const void *Q, *K, *V, *O, *dO;  // f16 or bf16, as ForwardParams'; dQ, dK, dV, too
  const float* LSE;
  void *dQ, *dK, *dV;
  Strides Q_strides, K_strides, V_strides, O_strides, LSE_strides;  // and of dQ, dK, dV and dO
  const int *cu_seqlens_q,
      *cu_seqlens_k;  // [batch + 1] of sequences of several lengths; null where all have n_q and n_k
  void* workspace;
  int batch, heads, kv_heads;      // heads is a multiple of kv_heads: so many queries' heads in a row share one of keys
  int n_q, n_k, total_q, total_k;  // of the longest sequence, and of all
  float softmax_scale;
  bool causal;
  int left, right;  // keys before a query's own that it sees, and behind it; all, if negative
  int d;            // as ForwardParams'
};

// And what was done to a score, as ScoreParams has it: a softcap unless it is 0, slopes and sinks unless they are null.
// Each sequence has its own gradient of a sink.
struct ScoreGradientParams : ModelGradientParams {
  float softcap;
  const float *alibi_slopes, *sinks;  // [heads]
  float* dsinks;                      // [batch, heads]
};
