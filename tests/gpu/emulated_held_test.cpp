// A residual's addition that ends a step waits for the norm that begins the next, and for nothing else.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "exec/cuda/backend.h"
#include "exec/cuda/fusion.h"

namespace orrery::exec::gpu_test {
namespace emulated_held_test {

using models::OpKind;

constexpr std::int64_t kRows = 6, kColumns = 40, kSize = kRows * kColumns;

/// x + y + bias at the end of a layer, and the norm of it at the beginning of the next.
class Layers {
 public:
  Layers() : backend_(0, nullptr, {.plan_file = {}, .tune_above_flops = 1e12}) {
    arena_ = backend_.allocate_arena(4096 * kPlaces);
    std::vector<float> values(kSize);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.25F * static_cast<float>(i * 37 % 23) - 2;
    for (const int place : {kX, kY, kBias, kWeight}) put(place, values);
    sum_.kind = OpKind::add_bias;
    norm_.kind = OpKind::layer_norm;
    sum_.n = norm_.n = kRows;
    sum_.m = norm_.m = kColumns;
    norm_.epsilon = 1e-5;
  }

  enum Place { kX, kY, kBias, kSum, kWeight, kNormed, kMean, kDeviation, kPlaces };
  [[nodiscard]] Operand at(int place, std::int64_t elements) const { return {arena_ + 4096 * place, elements}; }

  void end_of_layer(StepContext context = {}) {
    const std::vector<Operand> in = {at(kX, kSize), at(kY, kSize), at(kBias, kColumns)}, out = {at(kSum, kSize)};
    const models::Op op = sum_;  // gone when it runs
    const OpCall call{&op, in, out, {}};
    backend_.run_all({&call, 1}, context);
  }
  void next_layer(StepContext context = {}, int normed = kNormed) {
    const std::vector<Operand> in = {at(kSum, kSize), at(kWeight, kColumns), at(kBias, kColumns)};
    const std::vector<Operand> out = {at(normed, kSize), at(kMean, kRows), at(kDeviation, kRows)};
    const OpCall call{&norm_, in, out, {}};
    backend_.run_all({&call, 1}, context);
  }
  std::vector<float> get(int place, std::int64_t elements = kSize) {
    std::vector<float> values(static_cast<std::size_t>(elements));
    backend_.copy_to_host(std::as_writable_bytes(std::span(values)), at(place, elements).data);
    return values;
  }
  void put(int place, const std::vector<float>& values) {
    backend_.copy_to_device(at(place, kSize).data, std::as_bytes(std::span(values)));
  }
  /// Pieces of work that `what` has queued.
  static long queued(const std::function<void()>& what) {
    const long before = emulation::graph_faults().queued;
    what();
    return emulation::graph_faults().queued - before;
  }
  cuda::CudaBackend& backend() { return backend_; }

 private:
  cuda::CudaBackend backend_;
  std::byte* arena_ = nullptr;
  models::Op sum_, norm_;
};

TEST(HeldBack, AResidualIsOneKernelWithTheNormOfTheNextLayer) {
  Layers apart, one;
  const long wait = Layers::queued([&] { apart.backend().synchronise(); });
  EXPECT_EQ(Layers::queued([&] {
              apart.end_of_layer();
              apart.backend().synchronise();
              apart.next_layer();
            }),
            2 + wait);
  EXPECT_EQ(Layers::queued([&] {
              one.end_of_layer();
              one.next_layer();
            }),
            1);
  for (const int place : {Layers::kSum, Layers::kNormed}) EXPECT_EQ(one.get(place), apart.get(place));
  for (const int place : {Layers::kMean, Layers::kDeviation}) EXPECT_EQ(one.get(place, kRows), apart.get(place, kRows));
}

// Whoever looks, or orders anything behind it, finds it done.
TEST(HeldBack, AnythingElseThatIsQueuedFindsItRun) {
  const std::vector<std::pair<const char*, std::function<void(Layers&)>>> others = {
      {"a copy back", [](Layers& l) { static_cast<void>(l.get(Layers::kWeight)); }},
      {"a copy to the device", [](Layers& l) { l.put(Layers::kY, std::vector<float>(kSize, 7)); }},
      {"a point", [](Layers& l) { static_cast<void>(l.backend().point()); }},
      {"a mark", [](Layers& l) { static_cast<void>(l.backend().mark()); }},
      {"a wait", [](Layers& l) { l.backend().synchronise(); }},
      {"numbers for later", [](Layers& l) { l.backend().read_later(0, l.at(Layers::kSum, 1).data, 1); }},
      {"a step's begin", [](Layers& l) { l.backend().begin_step({}); }},
      {"another micro-batch", [](Layers& l) { l.next_layer({.first_sequence = 4}); }},
      {"an operator by itself",
       [](Layers& l) {
         models::Op zero;
         zero.kind = OpKind::fill_zero;
         zero.m = kSize;
         const Operand y = l.at(Layers::kY, kSize);
         l.backend().run(zero, {}, {&y, 1}, {}, {});
       }},
  };
  Layers expected;
  expected.end_of_layer();
  const std::vector<float> sum = expected.get(Layers::kSum);
  const long alone = Layers::queued([&] { expected.put(Layers::kX, std::vector<float>(kSize, 9)); });
  for (const auto& [name, other] : others) {
    Layers layers;
    layers.end_of_layer();
    other(layers);
    // What it has read may be overwritten by who has ordered himself behind it.
    layers.backend().run_all({}, {});
    const long more = Layers::queued([&] { layers.put(Layers::kX, std::vector<float>(kSize, 9)); });
    EXPECT_EQ(more, alone) << name << " has left it waiting";
    EXPECT_EQ(layers.get(Layers::kSum), sum) << name;
  }
}

TEST(HeldBack, IsPartOfTheGraphInWhichItWasHeldBack) {
  Layers layers, expected;
  expected.end_of_layer();
  layers.backend().begin_capture();
  layers.end_of_layer();
  const auto graph = layers.backend().end_capture();
  layers.put(Layers::kSum, std::vector<float>(kSize, 0));
  layers.backend().replay(*graph);
  EXPECT_EQ(layers.get(Layers::kSum), expected.get(Layers::kSum));

  Layers given_up;
  given_up.put(Layers::kSum, std::vector<float>(kSize, 3));
  given_up.backend().begin_capture();
  given_up.end_of_layer();
  given_up.backend().abandon_capture();
  EXPECT_EQ(given_up.get(Layers::kSum), std::vector<float>(kSize, 3)) << "nothing of it has run";
}

// The norm's result may lie where the addition's input did, which dies with its layer: rows would overwrite others.
TEST(HeldBack, RunsApartWhereTheNormWritesOverWhatItReads) {
  Layers layers, expected;
  expected.end_of_layer();
  expected.backend().synchronise();
  expected.next_layer({}, Layers::kY);
  layers.end_of_layer();
  EXPECT_EQ(Layers::queued([&] { layers.next_layer({}, Layers::kY); }), 2);
  EXPECT_EQ(layers.get(Layers::kY), expected.get(Layers::kY));
}

TEST(HeldBack, OverlapsAreSeenWhereverTheyBegin) {
  Layers l;
  models::Op sum, norm;
  sum.kind = OpKind::add_bias, norm.kind = OpKind::rms_norm;
  sum.n = norm.n = kRows, sum.m = norm.m = kColumns;
  const std::vector<Operand> in = {l.at(Layers::kX, kSize), l.at(Layers::kY, kSize), {}},
                             out = {l.at(Layers::kSum, kSize)};
  const std::vector<Operand> of_norm = {out[0], l.at(Layers::kWeight, kColumns)};
  const auto kind = [&](std::ptrdiff_t shift, Layers::Place of) {
    Operand normed = l.at(of, kSize), deviation = l.at(Layers::kDeviation, kRows);
    normed.data += shift;
    const std::vector<Operand> written = {normed, deviation};
    const OpCall calls[] = {{&sum, in, out, {}}, {&norm, of_norm, written, {}}};
    return cuda::fuse(calls, {}).front().kind;
  };
  EXPECT_EQ(kind(0, Layers::kNormed), cuda::Fused::add_norm);
  EXPECT_EQ(kind(64, Layers::kY), cuda::Fused::no);
  EXPECT_EQ(kind(-64, Layers::kY), cuda::Fused::no);
  EXPECT_EQ(kind(64, Layers::kSum), cuda::Fused::no) << "over the sum itself";
  EXPECT_EQ(kind(kSize * 4, Layers::kY), cuda::Fused::add_norm) << "right behind it";
}

}  // namespace emulated_held_test
}  // namespace orrery::exec::gpu_test
