// Stores saved activations in fewer bits, or without their zeros, while they wait.
#include "plan/lower/encode.h"

#include <algorithm>
#include <cmath>

#include "base/index.h"
#include "models/encoding.h"
#include "models/operators/operators.h"
#include "plan/schedule/rewrite.h"

namespace orrery::plan {

using models::Op;
using models::OpKind;

std::int64_t bits_of(ActivationEncoding encoding) {
  switch (encoding) {
    case ActivationEncoding::none:
    case ActivationEncoding::lossless: break;
    case ActivationEncoding::fp16: return 16;
    case ActivationEncoding::fp10: return 10;
    case ActivationEncoding::fp8: return 8;
  }
  return 0;
}

std::int64_t kept_values(std::int64_t elements, double capacity) {
  return std::min(elements, static_cast<std::int64_t>(std::ceil(static_cast<double>(elements) * capacity)));
}

namespace {

using base::at;

class Encoding {
 public:
  Encoding(RankClass& rank_class, const Compression& compression)
      : class_(rank_class),
        compression_(compression),
        lossless_(compression.activations == ActivationEncoding::lossless),
        rewrite_(rank_class) {}

  void run() {
    const base::ById<BufferId, Life> lives = lives_of(class_);
    lossless_ ? find_rectified() : find_statistics();
    for (const BufferId b : lives.keys()) encode(b, lives[b]);
    rewrite_.apply();
  }

 private:
  // Means and deviations of rows, and attention's row statistics: few values, on which whole rows depend.
  void find_statistics() {
    statistics_.assign(class_.buffers.size(), false);
    for (const Block& block : class_.blocks)
      for (const Step& step : block.steps)
        for (const Op& op : step.ops) {
          for (std::size_t i = 0; i < op.out.size(); ++i)
            if (op.out[i] >= 0 && models::is_statistic(op, i)) statistics_[class_.views[at(op.out[i])].buffer] = true;
        }
  }

  // Finds outputs of ReLUs, computed in place, and the product before each.
  void find_rectified() {
    products_.assign(class_.buffers.size(), Op{});
    base::ById<BufferId, Op> products(class_.buffers.size());
    for (const Block& block : class_.blocks)
      for (const Step& step : block.steps)
        for (const Op& op : step.ops) {
          if (step.phase != Phase::forward || op.out.empty() || op.out[0] < 0) continue;
          const BufferId made = class_.views[at(op.out[0])].buffer;
          if (op.kind == OpKind::matmul) products[made] = op;
          if (op.kind != OpKind::relu || products[made].in.empty()) continue;
          products_[made] = products[made];
        }
  }
  [[nodiscard]] bool left_out(BufferId buffer) const {
    const bool counts = class_.buffers[buffer].dtype == models::DType::int32;  // of a message, or places of rows
    return counts || (lossless_ ? products_[buffer].in.empty() : statistics_[buffer]);
  }

  void encode(BufferId buffer, const Life& life) {
    const Buffer known = class_.buffers[buffer];
    if (!known.per_micro_batch || known.purpose != Purpose::activations || left_out(buffer)) return;
    const auto first =
        std::find_if(life.uses.begin(), life.uses.end(), [&](const Place& p) { return of_backward(rewrite_.step(p)); });
    if (first == life.uses.begin() || first == life.uses.end()) return;
    for (auto use = first; use != life.uses.end(); ++use)
      if (!rewrite_.step(*use).layer) return;  // of the head or the embedding, or a message
    // A received buffer has a place that no message under way uses. Anywhere else, two stages that send to each other
    // could wait for each other's memory.
    if (rewrite_.step(life.birth).kind == StepKind::recv) return;
    const Place out = *std::prev(first);
    if (out.block >= first->block) return;
    const BufferId encoded = add(known, ".encoded", models::DType::uint8, waiting_bytes(known), true);
    const BufferId decoded = add(known, ".decoded", known.dtype, known.elements, life.death.block != first->block);
    class_.buffers[decoded].purpose = Purpose::workspace;
    class_.buffers[buffer].per_micro_batch = life.birth.block != out.block;
    if (!class_.buffers[buffer].per_micro_batch) class_.buffers[buffer].purpose = Purpose::workspace;

    Step pack = step(true, buffer, encoded, buffer, known, rewrite_.step(out));
    pack.births = {encoded};
    pack.deaths = {buffer};
    rewrite_.insert_after(out, std::move(pack));
    Step unpack = step(false, encoded, decoded, buffer, known, rewrite_.step(*first));
    unpack.births = {decoded};
    unpack.deaths = {encoded};
    for (auto use = first; use != life.uses.end(); ++use) rewrite_.replace(*use, buffer, decoded);
    rewrite_.replace_death(life.death, buffer, decoded);
    rewrite_.insert_before(*first, std::move(unpack));
  }

  BufferId add(const Buffer& like, const char* suffix, models::DType dtype, std::int64_t elements,
               bool per_micro_batch) {
    Buffer made = like;
    made.name += suffix;
    made.dtype = dtype;
    made.elements = elements;
    made.per_micro_batch = per_micro_batch;
    return class_.buffers.append(std::move(made));
  }

  int whole(BufferId buffer) {
    class_.views.push_back({buffer, 0, class_.buffers[buffer].elements});
    return static_cast<int>(class_.views.size()) - 1;
  }

  [[nodiscard]] std::int64_t waiting_bytes(const Buffer& values) const {
    return lossless_ ? models::sparse_bytes(values.elements, kept_values(values.elements, compression_.capacity),
                                            models::size_of(values.dtype))
                     : models::encoded_bytes(values.elements, bits_of(compression_.activations));
  }

  // `of`: the buffer before encoding.
  Step step(bool encodes, BufferId source, BufferId target, BufferId of, const Buffer& values, const Step& beside) {
    Op op;
    op.kind = encodes ? OpKind::encode : OpKind::decode;
    op.dtype = values.dtype;
    op.m = values.elements;
    op.k = bits_of(compression_.activations);
    op.in = {whole(source)};
    op.out = {whole(target)};
    Step made{.kind = StepKind::compute, .stream = Stream::compute, .phase = beside.phase, .layer = beside.layer};
    made.reads = {source};
    made.writes = {target};
    if (lossless_) {
      const Op& product = products_[of];
      op.kind = encodes ? OpKind::sparse_encode : OpKind::sparse_decode;
      op.n = product.m, op.m = product.n, op.k = encodes ? 0 : product.k;
      op.rounded = product.rounded;
      op.capacity = kept_values(values.elements, compression_.capacity);
      for (std::size_t i = 0; !encodes && i < product.in.size(); ++i) {
        op.in.push_back(product.in[i]);
        if (product.in[i] < 0) continue;
        const BufferId read = class_.views[at(product.in[i])].buffer;
        if (std::find(made.reads.begin(), made.reads.end(), read) == made.reads.end()) made.reads.push_back(read);
      }
    }
    made.part = models::name_of(op.kind);
    made.ops.push_back(std::move(op));
    return made;
  }

  RankClass& class_;
  Compression compression_;
  bool lossless_;
  Rewrite rewrite_;
  base::ById<BufferId, bool> statistics_;
  base::ById<BufferId, Op> products_;  ///< the product whose result a ReLU has replaced
};

}  // namespace

void encode_activations(RankClass& rank_class, const Compression& compression) {
  Encoding(rank_class, compression).run();
}

}  // namespace orrery::plan
