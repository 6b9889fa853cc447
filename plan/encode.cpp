// Saved activations in fewer bits while they wait.
#include "plan/encode.h"

#include <algorithm>

#include "models/encoding.h"
#include "plan/rewrite.h"

namespace orrery::plan {

using models::Op;
using models::OpKind;

std::int64_t bits_of(ActivationEncoding encoding) {
  switch (encoding) {
    case ActivationEncoding::none: break;
    case ActivationEncoding::fp16: return 16;
    case ActivationEncoding::fp10: return 10;
    case ActivationEncoding::fp8: return 8;
  }
  return 0;
}

namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

bool of_backward(const Step& step) {
  return step.phase == Phase::backward || step.phase == Phase::recompute;
}

class Encoding {
 public:
  Encoding(RankClass& rank_class, std::int64_t bits) : class_(rank_class), bits_(bits), rewrite_(rank_class) {}

  void run() {
    const auto buffers = static_cast<int>(class_.buffers.size());
    const std::vector<Life> lives = lives_of(class_);
    find_statistics();
    for (int b = 0; b < buffers; ++b) encode(b, lives[at(b)]);
    rewrite_.apply();
  }

 private:
  // Means and deviations of rows, and what attention keeps of them: few values, on which all of a row depends.
  void find_statistics() {
    statistics_.assign(class_.buffers.size(), false);
    for (const Block& block : class_.blocks)
      for (const Step& step : block.steps)
        for (const Op& op : step.ops) {
          const bool attends = op.kind == OpKind::attention || op.kind == OpKind::ring_attention;
          const bool normalises = op.kind == OpKind::layer_norm || op.kind == OpKind::rms_norm;
          if (!normalises && !(attends && op.flash)) continue;
          for (std::size_t i = 1; i < op.out.size(); ++i)
            if (op.out[i] >= 0) statistics_[at(class_.views[at(op.out[i])].buffer)] = true;
        }
  }

  void encode(int buffer, const Life& life) {
    const Buffer known = class_.buffers[at(buffer)];
    if (!known.per_micro_batch || known.purpose != Purpose::activations || statistics_[at(buffer)]) return;
    const auto first =
        std::find_if(life.uses.begin(), life.uses.end(), [&](const Place& p) { return of_backward(rewrite_.step(p)); });
    if (first == life.uses.begin() || first == life.uses.end()) return;
    for (auto use = first; use != life.uses.end(); ++use)
      if (rewrite_.step(*use).layer < 0) return;  // of the head or the embedding, or a message
    // What arrives has a place of its own, which no message under way still uses: elsewhere two stages that send to
    // each other could wait for each other's memory.
    if (rewrite_.step(life.birth).kind == StepKind::recv) return;
    const Place out = *std::prev(first);
    if (out.block >= first->block) return;
    const int encoded =
        add(known, ".encoded", models::DType::uint8, models::encoded_bytes(known.elements, bits_), true);
    const int decoded = add(known, ".decoded", known.dtype, known.elements, life.death.block != first->block);
    class_.buffers[at(decoded)].purpose = Purpose::workspace;
    class_.buffers[at(buffer)].per_micro_batch = life.birth.block != out.block;
    if (!class_.buffers[at(buffer)].per_micro_batch) class_.buffers[at(buffer)].purpose = Purpose::workspace;

    Step pack = step(OpKind::encode, buffer, encoded, known, rewrite_.step(out));
    pack.births = {encoded};
    pack.deaths = {buffer};
    rewrite_.insert_after(out, std::move(pack));
    Step unpack = step(OpKind::decode, encoded, decoded, known, rewrite_.step(*first));
    unpack.births = {decoded};
    unpack.deaths = {encoded};
    for (auto use = first; use != life.uses.end(); ++use) rewrite_.replace(*use, buffer, decoded);
    rewrite_.replace_death(life.death, buffer, decoded);
    rewrite_.insert_before(*first, std::move(unpack));
  }

  int add(const Buffer& like, const char* suffix, models::DType dtype, std::int64_t elements, bool per_micro_batch) {
    Buffer made = like;
    made.name += suffix;
    made.dtype = dtype;
    made.elements = elements;
    made.per_micro_batch = per_micro_batch;
    class_.buffers.push_back(std::move(made));
    return static_cast<int>(class_.buffers.size()) - 1;
  }

  int whole(int buffer) {
    class_.views.push_back({buffer, 0, class_.buffers[at(buffer)].elements, false});
    return static_cast<int>(class_.views.size()) - 1;
  }

  Step step(OpKind kind, int source, int target, const Buffer& values, const Step& beside) {
    Op op;
    op.kind = kind;
    op.dtype = values.dtype;
    op.m = values.elements;
    op.k = bits_;
    op.in = {whole(source)};
    op.out = {whole(target)};
    Step made{.kind = StepKind::compute, .stream = Stream::compute, .phase = beside.phase, .layer = beside.layer};
    made.part = models::name_of(kind);
    made.reads = {source};
    made.writes = {target};
    made.ops.push_back(std::move(op));
    return made;
  }

  RankClass& class_;
  std::int64_t bits_;
  Rewrite rewrite_;
  std::vector<bool> statistics_;
};

}  // namespace

void encode_activations(RankClass& rank_class, ActivationEncoding encoding) {
  Encoding(rank_class, bits_of(encoding)).run();
}

}  // namespace orrery::plan
