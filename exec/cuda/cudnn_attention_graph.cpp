// Attention as cuDNN's operations: Vaswani et al. 2017, equation 1, with the statistics and the backward pass of Dao et
// al. 2022 ("FlashAttention", algorithm 4): P = exp(S - lse), dV = P^T dY, D = rowsum(dY * Y), dS = P * (dY V^T - D),
// dQ = dS K, dK = dS^T Q. Keys and values of shared heads are broadcast; their gradients are summed over the heads that
// share them.
#include "exec/cuda/cudnn_attention_graph.h"

#if ORRERY_HAVE_CUDNN
#include <cmath>
#include <limits>

namespace orrery::exec::cuda {
namespace {

cudnnDataType_t type_of(models::DType dtype) {
  return dtype == models::DType::fp16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
}

/// The sizes of a part, and the layout of tensors, which have all heads and rows of the whole.
struct Layout {
  std::int64_t b, t, q, k, h, g, d;  ///< t: rows of a sequence; q queries and k keys of them take part
  std::int64_t all_h, all_g, key_row;
  cudnnDataType_t type;
  float scale;

  Layout(const AttentionShape& s, const AttentionShape& whole, const AttentionScope& scope, models::DType dtype)
      : b(s.batch),
        t(s.sequence),
        q(scope.queries),
        k(scope.keys),
        h(s.heads),
        g(s.kv_heads),
        d(s.head_dim),
        all_h(whole.heads),
        all_g(whole.kv_heads),
        key_row(scope.key_row),
        type(type_of(dtype)),
        scale(1.0F / std::sqrt(static_cast<float>(s.head_dim))) {}
  [[nodiscard]] std::int64_t row() const { return (all_h + 2 * all_g) * d; }  ///< of qkv, elements
  [[nodiscard]] Dims4 query_strides() const { return {t * row(), d, row(), 1}; }
  [[nodiscard]] Dims4 key_strides() const { return {t * key_row, d, key_row, 1}; }
  [[nodiscard]] Dims4 turned_key_strides() const { return {t * key_row, d, 1, key_row}; }
  [[nodiscard]] Dims4 queries() const { return {b, h, q, d}; }
  [[nodiscard]] Dims4 keys() const { return {b, g, k, d}; }
  [[nodiscard]] Dims4 turned_keys() const { return {b, g, d, k}; }
  [[nodiscard]] Dims4 plain_strides() const { return {t * all_h * d, d, all_h * d, 1}; }  ///< of y
  [[nodiscard]] Dims4 apart_strides() const { return {q * h * d, d, h * d, 1}; }
  [[nodiscard]] Dims4 scores() const { return {b, h, q, k}; }
  [[nodiscard]] Dims4 rows() const { return {b, h, q, 1}; }
  [[nodiscard]] Dims4 lse_strides() const { return {all_h * t, t, 1, 1}; }
  [[nodiscard]] Dims4 row_strides() const { return {h * q, q, 1, 1}; }  ///< of tensors that only this part has
};

/// S = Q K^T / sqrt(d), minus `less` if it is a tensor; masked scores are minus infinity.
int masked_scores(CudnnGraph& graph, const Layout& l, int q, int k, bool causal, int less) {
  int s = graph.between(l.scores(), CUDNN_DATA_FLOAT);
  graph.matmul(q, k, s);
  const auto next = [&] { return graph.between(l.scores(), CUDNN_DATA_FLOAT); };
  const int scaled = next();
  graph.pointwise(CUDNN_POINTWISE_MUL, s, graph.scalar(l.scale), scaled);
  s = scaled;
  if (less >= 0) {
    const int left = next();
    graph.pointwise(CUDNN_POINTWISE_SUB, s, less, left);
    s = left;
  }
  if (!causal) return s;
  const int row = graph.between(l.scores(), CUDNN_DATA_INT32), column = graph.between(l.scores(), CUDNN_DATA_INT32);
  graph.pointwise(CUDNN_POINTWISE_GEN_INDEX, s, -1, row, -1, 2, CUDNN_DATA_INT32);
  graph.pointwise(CUDNN_POINTWISE_GEN_INDEX, s, -1, column, -1, 3, CUDNN_DATA_INT32);
  const int seen = graph.between(l.scores(), CUDNN_DATA_BOOLEAN);
  graph.pointwise(CUDNN_POINTWISE_CMP_GE, row, column, seen, -1, -1, CUDNN_DATA_BOOLEAN);
  const int masked = next();
  graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, s, graph.scalar(-std::numeric_limits<float>::infinity()), masked,
                  seen);
  return masked;
}

}  // namespace

AttentionTensors forward_graph(CudnnGraph& graph, const AttentionShape& part, const AttentionShape& whole,
                               const AttentionScope& scope, models::DType dtype) {
  const Layout l(part, whole, scope, dtype);
  AttentionTensors t;
  t.q = graph.tensor(l.queries(), l.query_strides(), l.type);
  t.k = graph.tensor(l.turned_keys(), l.turned_key_strides(), l.type);
  t.v = graph.tensor(l.keys(), l.key_strides(), l.type);
  t.y = graph.tensor(l.queries(), scope.apart ? l.apart_strides() : l.plain_strides(), l.type);
  t.lse = graph.tensor(l.rows(), scope.apart ? l.row_strides() : l.lse_strides(), CUDNN_DATA_FLOAT);
  const int s = masked_scores(graph, l, t.q, t.k, scope.triangle, -1);
  const auto of_rows = [&] { return graph.between(l.rows(), l.row_strides(), CUDNN_DATA_FLOAT); };
  const int most = of_rows(), sum = of_rows(), log = of_rows();
  graph.reduce(CUDNN_REDUCE_TENSOR_MAX, s, most);
  const int less = graph.between(l.scores(), CUDNN_DATA_FLOAT), e = graph.between(l.scores(), CUDNN_DATA_FLOAT);
  graph.pointwise(CUDNN_POINTWISE_SUB, s, most, less);
  graph.pointwise(CUDNN_POINTWISE_EXP, less, -1, e);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, e, sum);
  graph.pointwise(CUDNN_POINTWISE_LOG, sum, -1, log);
  graph.pointwise(CUDNN_POINTWISE_ADD, most, log, t.lse);
  const int p = graph.between(l.scores(), l.type);
  graph.pointwise(CUDNN_POINTWISE_DIV, e, sum, p);
  graph.matmul(p, t.v, t.y);
  return t;
}

AttentionTensors backward_graph(CudnnGraph& graph, const AttentionShape& part, const AttentionShape& whole,
                                const AttentionScope& scope, models::DType dtype, QueryGradient how) {
  const Layout l(part, whole, scope, dtype);
  AttentionTensors t;
  t.q = graph.tensor(l.queries(), l.query_strides(), l.type);
  t.k = graph.tensor(l.turned_keys(), l.turned_key_strides(), l.type);
  t.v = graph.tensor(l.turned_keys(), l.turned_key_strides(), l.type);
  t.y = graph.tensor(l.queries(), l.plain_strides(), l.type);
  t.dy = graph.tensor(l.queries(), l.plain_strides(), l.type);
  t.lse = graph.tensor(l.rows(), l.lse_strides(), CUDNN_DATA_FLOAT);
  t.dq = graph.tensor(l.queries(), scope.apart ? l.apart_strides() : l.query_strides(), l.type);
  t.dk = graph.tensor(l.keys(), l.key_strides(), l.type);
  t.dv = graph.tensor(l.keys(), l.key_strides(), l.type);
  t.row_dots = graph.tensor(l.rows(), l.row_strides(), CUDNN_DATA_FLOAT);
  const auto next = [&] { return graph.between(l.scores(), CUDNN_DATA_FLOAT); };
  const Dims4 turned = {l.b, l.h, l.k, l.q}, turned_strides = {l.h * l.q * l.k, l.q * l.k, 1, l.k};
  // D, a row's sum of dY * Y; times 1, where dropout would have its scale.
  const int products = graph.between(l.queries(), {l.q * l.h * l.d, l.q * l.d, l.h * l.d, 1}, CUDNN_DATA_FLOAT);
  graph.pointwise(CUDNN_POINTWISE_MUL, t.dy, t.y, products);
  const int dots = graph.between(l.rows(), l.row_strides(), CUDNN_DATA_FLOAT);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, products, dots);
  graph.pointwise(CUDNN_POINTWISE_MUL, dots, graph.scalar(1.0F), t.row_dots);
  // P, and dV = P^T dY
  const int p = next();
  graph.pointwise(CUDNN_POINTWISE_EXP, masked_scores(graph, l, t.q, t.k, scope.triangle, t.lse), -1, p);
  const auto of_keys = [&](int scores, int by, int into) {
    const int turned_scores = graph.between(turned, turned_strides, l.type);
    graph.reshape(scores, turned_scores);
    if (l.h == l.g) return graph.matmul(turned_scores, by, into);
    const int of_each_head = graph.between({l.b, l.h, l.k, l.d}, l.type);
    graph.matmul(turned_scores, by, of_each_head);
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, of_each_head, into);
  };
  of_keys(p, t.dy, t.dv);
  // dS, and dK = dS^T Q
  const int dp = next(), less = next(), ds = next(), scaled = next();
  graph.matmul(t.dy, t.v, dp);
  graph.pointwise(CUDNN_POINTWISE_SUB, dp, t.row_dots, less);
  graph.pointwise(CUDNN_POINTWISE_MUL, less, p, ds);
  graph.pointwise(CUDNN_POINTWISE_MUL, ds, graph.scalar(l.scale), scaled);
  of_keys(scaled, t.q, t.dk);
  // dQ = dS K
  const int k = graph.between(l.keys(), l.key_strides(), l.type);
  graph.reshape(t.k, k);
  if (how == QueryGradient::product) {
    graph.matmul(scaled, k, t.dq);
    return t;
  }
  t.dq_sums = graph.tensor(l.queries(), {l.h * l.q * l.d, l.q * l.d, l.d, 1}, CUDNN_DATA_FLOAT);
  graph.matmul(scaled, k, t.dq_sums);
  graph.pointwise(CUDNN_POINTWISE_IDENTITY, t.dq_sums, -1, t.dq);
  return t;
}

}  // namespace orrery::exec::cuda
#endif
