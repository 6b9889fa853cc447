// Builds workloads from the layer programs that training lowers.
#include "exec/probe/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/units.h"
#include "models/layers/expand.h"
#include "models/operators/fp8.h"
#include "plan/outline/outline.h"

namespace orrery::exec {
namespace {

using models::LayerKind;
using models::LayerProgram;
using models::Op;
using models::OpKind;
using models::TensorId;
using models::TensorRole;
using Fill = Workload::Fill;

constexpr std::int64_t kAlignment = 256;  // of buffers, bytes: as arenas place them
constexpr std::int64_t kFloat = 4;

int add_buffer(Workload& w, const Workload::Buffer& buffer) {
  w.buffers.push_back(buffer);
  return static_cast<int>(w.buffers.size()) - 1;
}

int add_view(Workload& w, int buffer, std::int64_t offset, std::int64_t elements) {
  w.views.push_back({buffer, offset, elements});
  return static_cast<int>(w.views.size()) - 1;
}

/// Adds a buffer and a view of all of it.
int add_whole(Workload& w, const Workload::Buffer& buffer) {
  return add_view(w, add_buffer(w, buffer), 0, buffer.elements);
}

/// Adds an operator over a flat range of elements.
void add_flat(Workload& w, OpKind kind, std::int64_t elements, std::vector<int> in, std::vector<int> out,
              models::DType dtype = models::DType::fp32) {
  Op op;
  op.kind = kind;
  op.dtype = dtype;
  op.m = elements;
  op.in = std::move(in);
  op.out = std::move(out);
  w.ops.push_back(std::move(op));
}

/// Buckets of parameters as the optimizer sees them: views of whole buffers.
struct ProbedBucket {
  std::int64_t elements = 0;
  int parameters = -1, gradients = -1;
  models::DType dtype = models::DType::fp32;           ///< of parameters; 16-bit ones are copies of a master
  models::DType gradient_dtype = models::DType::fp32;  ///< of gradients
};

/// Adds the norm of the gradients, clipping and the update.
void add_optimizer(Workload& w, const std::vector<ProbedBucket>& buckets) {
  const int total = add_whole(w, {1}), norm = add_whole(w, {1}), coefficient = add_whole(w, {1});
  for (const ProbedBucket& b : buckets)
    add_flat(w, OpKind::norm_squared, b.elements, {b.gradients}, {total}, b.gradient_dtype);
  add_flat(w, OpKind::clip_coefficient, 1, {total}, {norm, coefficient});
  for (const ProbedBucket& b : buckets) {
    const int first = add_whole(w, {b.elements}), second = add_whole(w, {b.elements});
    std::vector<int> out = {b.parameters, first, second};
    if (b.dtype != models::DType::fp32) {
      out.front() = add_whole(w, {b.elements});
      out.push_back(b.parameters);
    }
    add_flat(w, OpKind::adamw, b.elements, {b.gradients, coefficient}, std::move(out), b.gradient_dtype);
  }
}

/// Tensors that the operators of one direction touch.
std::set<TensorId> touched(const std::vector<models::Part>& parts) {
  std::set<TensorId> out;
  for (const models::Part& part : parts)
    for (const Op& op : part.ops)
      for (const std::vector<int>* side : {&op.in, &op.out})
        for (const int operand : *side) out.insert(models::tensor_of(operand));
  return out;
}

class LayersBuilder {
 public:
  explicit LayersBuilder(const LayerShape& shape) : shape_(shape) {
    constexpr std::int64_t kWidening = 4;
    model_.name = "probe";
    model_.layers = shape.layers;
    model_.hidden = shape.hidden;
    model_.heads = model_.kv_heads = shape.heads;
    model_.head_dim = shape.hidden / shape.heads;
    model_.ffn_hidden = kWidening * shape.hidden;
    model_.vocab = shape.vocab;
    model_.max_sequence = shape.sequence;
    options_.batch = shape.batch;
    options_.sequence = shape.sequence;
    options_.tensor = shape.tensor;
    options_.dtype = shape.dtype;
    options_.global_tokens = shape.batch * shape.sequence;
    out_.context.tensor_ways = shape.tensor;
    out_.name =
        fmt::format("layers: {} of width {}, {} x {} tokens, vocabulary {}{}", shape.layers, shape.hidden, shape.batch,
                    shape.sequence, shape.vocab, shape.tensor > 1 ? fmt::format(", tensor {}", shape.tensor) : "");
    if (shape.dtype != models::DType::fp32) out_.name += fmt::format(", {}", models::name_of(shape.dtype));
  }

  Workload build() {
    add(LayerKind::embedding, 0);
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) add(LayerKind::block, layer);
    add(LayerKind::head, 0);
    for (const Layer& layer : layers_) emit(layer, layer.program.forward);
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      add_flat(out_, OpKind::fill_zero, layer->bucket.elements, {}, {layer->bucket.gradients},
               layer->bucket.gradient_dtype);
      emit(*layer, layer->program.backward);
    }
    std::vector<ProbedBucket> buckets;
    for (const Layer& layer : layers_) buckets.push_back(layer.bucket);
    add_optimizer(out_, buckets);
    return std::move(out_);
  }

 private:
  struct Layer {
    LayerProgram program;
    base::ById<TensorId, int> views;  ///< one per tensor
    ProbedBucket bucket;
  };

  /// Tensors of equal name that need not outlive their layer's pass share memory, with the size of the first of them.
  int shared(const std::string& name, const Workload::Buffer& buffer) {
    const auto found = shared_.find(name);
    if (found != shared_.end()) return found->second;
    return shared_[name] = add_whole(out_, buffer);
  }

  /// dx of a layer is dy of the layer before it: two buffers that alternate from layer to layer.
  int passed_back(std::size_t layer, const Workload::Buffer& buffer) {
    return shared(layer % 2 == 0 ? "gradient, even" : "gradient, odd", buffer);
  }

  int place(const LayerProgram& program, TensorId id, bool kept) {
    const models::Tensor& t = program.tensors[id];
    const Workload::Buffer plain{t.elements(), t.dtype};
    const std::size_t number = layers_.size();
    if (id == program.x) return last_y_;
    if (id == program.y) return last_y_ = add_whole(out_, plain);
    if (id == program.dx) return passed_back(number, plain);
    if (id == program.dy) return passed_back(number + 1, plain);
    if (is_token_ids(t.role)) return shared(t.name, {t.elements(), t.dtype, Fill::ids, shape_.vocab});
    if (t.role == TensorRole::loss || !kept) return shared(fmt::format("{} {}", t.name, t.elements()), plain);
    return add_whole(out_, plain);
  }

  void add(LayerKind kind, std::int64_t index) {
    Layer layer;
    layer.program = models::expand(model_, kind, index, options_);
    const std::set<TensorId> forward = touched(layer.program.forward), backward = touched(layer.program.backward);
    std::map<TensorId, std::int64_t> offsets;  // parameter -> offset in the bucket
    for (const TensorId i : layer.program.tensors.keys()) {
      const models::Tensor& t = layer.program.tensors[i];
      if (t.role != TensorRole::parameter) continue;
      offsets[i] = layer.bucket.elements;
      layer.bucket.elements += t.elements();
      layer.bucket.dtype = t.dtype;
      layer.bucket.gradient_dtype = plan::gradient_dtype(shape_.dtype);
    }
    const int parameters = add_buffer(out_, {layer.bucket.elements, layer.bucket.dtype, Fill::random});
    const int gradients = add_buffer(out_, {layer.bucket.elements, layer.bucket.gradient_dtype});
    layer.bucket.parameters = add_view(out_, parameters, 0, layer.bucket.elements);
    layer.bucket.gradients = add_view(out_, gradients, 0, layer.bucket.elements);
    layer.views.resize(layer.program.tensors.size(), -1);
    // x first: placing y replaces the y of the layer before.
    if (layer.program.x) layer.views[layer.program.x] = last_y_;
    for (const TensorId i : layer.views.keys()) {
      const models::Tensor& t = layer.program.tensors[i];
      if (t.role == TensorRole::parameter)
        layer.views[i] = add_view(out_, parameters, offsets.at(i), t.elements());
      else if (t.role == TensorRole::gradient)
        layer.views[i] = add_view(out_, gradients, offsets.at(t.of), t.elements());
      else if (layer.views[i] < 0)
        layer.views[i] = place(layer.program, i, forward.count(i) > 0 && backward.count(i) > 0);
    }
    layers_.push_back(std::move(layer));
  }

  void emit(const Layer& layer, const std::vector<models::Part>& parts) {
    for (const models::Part& part : parts)
      for (Op op : part.ops) {
        for (std::vector<int>* side : {&op.in, &op.out})
          for (int& operand : *side)
            if (operand >= 0) operand = layer.views[models::tensor_of(operand)];
        out_.ops.push_back(std::move(op));
      }
  }

  LayerShape shape_;
  models::Model model_;
  models::ExpandOptions options_;
  Workload out_;
  std::vector<Layer> layers_;
  std::map<std::string, int> shared_;
  int last_y_ = -1;
};

std::string size_text(std::int64_t bytes) {
  constexpr std::int64_t kKiB = 1024, kMiB = kKiB * kKiB;
  return bytes >= kMiB ? fmt::format("{} MiB", bytes / kMiB) : fmt::format("{} KiB", bytes / kKiB);
}

}  // namespace

std::vector<std::int64_t> Workload::offsets() const {
  std::vector<std::int64_t> out;
  std::int64_t at = 0;
  for (const Buffer& b : buffers) {
    out.push_back(at);
    at += (b.elements * models::size_of(b.dtype) + kAlignment - 1) / kAlignment * kAlignment;
  }
  out.push_back(at);
  return out;
}

Workload layers_workload(const LayerShape& shape) {
  return LayersBuilder(shape).build();
}

Workload matmul_workload(std::int64_t m, std::int64_t n, std::int64_t k, bool trans_a, bool trans_b, int sets,
                         models::DType dtype) {
  Workload w;
  const bool fp8 = dtype == models::DType::fp8, rounded = fp8 || dtype == models::DType::tf32;
  const models::DType stored = fp8 ? models::DType::bf16 : rounded ? models::DType::fp32 : dtype;
  w.name = fmt::format("matrix products {} x {} x {}{}{}, {}", m, n, k, trans_a ? ", A transposed" : "",
                       trans_b ? ", B transposed" : "", base::count_of(sets, "set"));
  if (dtype != models::DType::fp32) w.name += fmt::format(", {}", models::name_of(dtype));
  for (int set = 0; set < sets; ++set) {
    Op op;
    op.kind = OpKind::matmul;
    op.dtype = stored;
    op.rounded = rounded;
    op.m = m;
    op.n = n;
    op.k = k;
    op.trans_a = trans_a;
    op.trans_b = trans_b;
    op.in = {add_whole(w, {m * k, stored, Fill::random}), add_whole(w, {k * n, stored, Fill::random}), -1};
    op.out = {add_whole(w, {m * n, stored})};
    if (fp8) op.out.push_back(add_whole(w, {models::Fp8Casts(m, n, k).bytes, models::DType::uint8}));
    w.ops.push_back(std::move(op));
  }
  return w;
}

Workload streams_workload(std::int64_t bytes, int sets) {
  Workload w;
  w.name = fmt::format("streams of {}, {}", size_text(bytes), base::count_of(sets, "set"));
  const std::int64_t elements = std::max<std::int64_t>(1, bytes / kFloat);
  const int total = add_whole(w, {1});
  std::vector<std::pair<int, int>> pairs;
  for (int set = 0; set < sets; ++set) {
    const int from = add_whole(w, {elements, models::DType::fp32, Fill::random});
    pairs.emplace_back(from, add_whole(w, {elements}));
  }
  for (const auto& [from, to] : pairs) add_flat(w, OpKind::copy, elements, {from}, {to});
  for (const auto& [from, to] : pairs) add_flat(w, OpKind::accumulate_into, elements, {from}, {to});
  for (const auto& [from, to] : pairs) add_flat(w, OpKind::norm_squared, elements, {from}, {total});
  for (const auto& [from, to] : pairs) add_flat(w, OpKind::fill_zero, elements, {}, {to});
  return w;
}

Workload optimizer_workload(std::int64_t elements, int buckets) {
  Workload w;
  w.name = fmt::format("optimizer over {} of {} parameters", base::count_of(buckets, "bucket"), elements);
  std::vector<ProbedBucket> all;
  for (int i = 0; i < buckets; ++i)
    all.push_back({elements, add_whole(w, {elements, models::DType::fp32, Fill::random}),
                   add_whole(w, {elements, models::DType::fp32, Fill::random})});
  add_optimizer(w, all);
  return w;
}

namespace {

constexpr std::int64_t kKiB = 1024, kMiB = kKiB * kKiB;
constexpr std::pair<bool, bool> kTransposes[] = {{false, false}, {false, true}, {true, false}};

/// Small, middle and wide layers; few and many tokens; whole and split over tensor ranks; small and large
/// vocabularies.
std::vector<Workload> core_workloads() {
  constexpr auto bf16 = models::DType::bf16;
  std::vector<Workload> all;
  all.push_back(layers_workload({4, 96, 3, 512, 2, 64, 1}));
  all.push_back(layers_workload({3, 160, 5, 384, 8, 128, 1}));
  all.push_back(layers_workload({3, 192, 6, 1024, 4, 96, 2}));
  all.push_back(layers_workload({3, 256, 4, 2048, 2, 256, 1}));
  all.push_back(layers_workload({2, 512, 8, 4096, 4, 64, 2}));
  all.push_back(layers_workload({2, 512, 8, 8192, 2, 128, 1}));
  all.push_back(layers_workload({1, 1024, 16, 16384, 4, 64, 1}));
  all.push_back(layers_workload({2, 160, 5, 384, 4, 128, 1, bf16}));
  all.push_back(layers_workload({1, 512, 8, 2048, 2, 128, 1, bf16}));
  for (const std::int64_t size : {32, 64, 128, 256, 512, 1024})
    for (const auto& [trans_a, trans_b] : kTransposes)
      all.push_back(matmul_workload(size, size, size, trans_a, trans_b, size <= 128 ? 8 : 2));
  for (const std::int64_t bytes : {16 * kKiB, 128 * kKiB, 512 * kKiB, 2 * kMiB, 8 * kMiB, 64 * kMiB})
    all.push_back(streams_workload(bytes, bytes <= 128 * kKiB ? 4 : 1));
  for (const std::int64_t elements : {1 << 14, 1 << 18, 1 << 20}) all.push_back(optimizer_workload(elements, 3));
  all.push_back(optimizer_workload(1 << 24, 1));
  return all;
}

/// Workloads that a GPU trains: layers of 640 to 4,608 columns over 2,048 to 16,384 tokens. Products with short inner
/// dimensions show the cost of a tile's beginning and end, those with few rows the cost of idle multiprocessors.
std::vector<Workload> gpu_workloads() {
  constexpr auto bf16 = models::DType::bf16, fp16 = models::DType::fp16, fp32 = models::DType::fp32,
                 tf32 = models::DType::tf32, fp8 = models::DType::fp8;
  std::vector<Workload> all;
  all.push_back(layers_workload({2, 640, 10, 32768, 8, 1024, 1, bf16}));
  all.push_back(layers_workload({2, 896, 14, 50176, 16, 1024, 1, bf16}));
  all.push_back(layers_workload({2, 1408, 11, 40960, 4, 2048, 1, bf16}));
  all.push_back(layers_workload({2, 1792, 28, 50176, 4, 1024, 2, bf16}));
  all.push_back(layers_workload({1, 2304, 18, 32768, 2, 4096, 1, bf16}));
  all.push_back(layers_workload({1, 4608, 36, 32768, 2, 2048, 4, bf16}));
  all.push_back(layers_workload({2, 896, 14, 32768, 8, 1024, 1, fp16}));
  all.push_back(layers_workload({2, 896, 14, 32768, 4, 1024, 1, fp32}));
  for (const auto dtype : {bf16, fp16})
    for (const std::int64_t size : {512, 1024, 2048, 4096, 8192})
      for (const auto& [trans_a, trans_b] : kTransposes)
        all.push_back(matmul_workload(size, size, size, trans_a, trans_b, size <= 1024 ? 4 : 1, dtype));
  for (const std::int64_t inner : {64, 128, 256, 512, 1024, 16384})
    all.push_back(matmul_workload(4096, 4096, inner, false, true, 1, bf16));
  for (const std::int64_t rows : {128, 512, 3072, 5120})
    all.push_back(matmul_workload(rows, 2816, 2816, false, true, 2, bf16));
  for (const auto dtype : {fp32, tf32})
    for (const std::int64_t size : {1024, 2048, 4096})
      all.push_back(matmul_workload(size, size, size, false, true, 1, dtype));
  for (const std::int64_t size : {1024, 4096, 8192})
    for (const bool forward : {true, false})  // forward, or a weight's gradient
      all.push_back(matmul_workload(size, size, size, !forward, forward, 1, fp8));
  for (const std::int64_t bytes : {1 * kMiB, 8 * kMiB, 64 * kMiB, 512 * kMiB})
    all.push_back(streams_workload(bytes, 1));
  for (const std::int64_t elements : {1 << 20, 1 << 24}) all.push_back(optimizer_workload(elements, 3));
  all.push_back(optimizer_workload(1 << 27, 1));
  return all;
}

}  // namespace

std::vector<Workload> standard_workloads(std::int64_t most_bytes, ProbedDevice device, bool fp8) {
  std::vector<Workload> all = device == ProbedDevice::gpu ? gpu_workloads() : core_workloads();
  std::erase_if(all, [&](const Workload& w) {
    return w.bytes() > most_bytes || (!fp8 && std::any_of(w.ops.begin(), w.ops.end(), models::is_fp8_product));
  });
  return all;
}

}  // namespace orrery::exec
