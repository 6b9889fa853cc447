// Embedding tables on one core, through the CPU backend: the sum of each bag's rows, and the fused update that merges
// gradients of a row. Driven by scripts/bench-tables, which has PyTorch do the same between rounds. It reads lines:
//   table ROWS WIDTH BAGS LENGTH FILE   the indices of BAGS x LENGTH lookups are int32 in FILE
//   round                               prints seconds of both on the processor, of copying 16 MiB, and of a bare loop
//                                       that only reads as many rows: what memory allows
//   check                               prints sums of what both left behind, to hold PyTorch's to
#include <fmt/core.h>

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "exec/cpu/backend.h"
#include "plan/spec/table_layout.h"

namespace {

using namespace orrery;

double processor_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

template <class Work>
double seconds_of(const Work& work) {
  const double begin = processor_seconds();
  work();
  return processor_seconds() - begin;
}

// Sums of powers of two leave no rounding: a whole number over 256.
float initial(std::int64_t i) {
  return static_cast<float>(i * 7919 % 511 - 255) / 256;
}

class Bench {
 public:
  Bench(std::int64_t rows, std::int64_t width, std::int64_t bags, std::int64_t length, const std::string& file)
      : bags_(bags), length_(length), width_(width) {
    models::Recommender model;
    model.dense_features = 1;
    model.embedding_dim = width;
    model.tables = {{rows, models::Pooling::sum, length}};
    plan::PlanSpec spec;
    spec.shape.batch = spec.shape.micro_batch = bags;
    spec.embedding.placement = *plan::TablePlacement::parse_rows({{"whole 0", {}}});
    layout_ = plan::make_table_layout(model, spec, 1);
    context_.tables = &layout_;
    context_.learning_rate = 1.0 / 1024;
    indices_.resize(static_cast<std::size_t>(bags * length));
    std::ifstream(file, std::ios::binary)
        .read(reinterpret_cast<char*>(indices_.data()), static_cast<std::streamsize>(indices_.size() * 4));
    lengths_.assign(static_cast<std::size_t>(bags), static_cast<std::int32_t>(length));
    // As the executor has them: one arena, in large pages where the system gives them.
    const auto pooled = static_cast<std::size_t>(bags * width);
    const std::size_t sizes[] = {static_cast<std::size_t>(rows * width), pooled, pooled, kCopied, kCopied};
    std::size_t all = 0;
    for (const std::size_t size : sizes) all += size + kLine;
    auto* next = reinterpret_cast<float*>(backend_->allocate_arena(static_cast<std::int64_t>(all * sizeof(float))));
    std::span<float>* const spans[] = {&table_, &pooled_, &gradient_, &copy_, &into_};
    for (std::size_t i = 0; i < std::size(sizes); ++i) {
      *spans[i] = std::span(next, sizes[i]);
      next += (sizes[i] + kLine - 1) / kLine * kLine;
    }
    for (std::size_t i = 0; i < table_.size(); ++i) table_[i] = initial(static_cast<std::int64_t>(i));
    for (std::size_t i = 0; i < gradient_.size(); ++i) gradient_[i] = initial(static_cast<std::int64_t>(i) + 1);
    std::fill(copy_.begin(), copy_.end(), 1.0F);
    std::fill(into_.begin(), into_.end(), 0.0F);
  }

  void round() {
    const double copy = seconds_of([&] { copy_part(); });
    const double forward = seconds_of([&] { run(models::OpKind::embedding_bag, table_, {of(pooled_)}); });
    copy_part();
    const double bare = seconds_of([&] { read_rows(); });
    const double update = seconds_of([&] {
      run(models::OpKind::embedding_bag_update, gradient_, {of(table_), {}, of(std::span(total_))});
    });
    fmt::print("{{\"copy_s\": {}, \"forward_s\": {}, \"bare_s\": {}, \"update_s\": {}}}\n", copy, forward, bare,
               update);
  }
  void check() const {
    double pooled = 0, table = 0;
    for (const float one : pooled_) pooled += static_cast<double>(one);
    for (const float one : table_) table += static_cast<double>(one);
    fmt::print("{{\"pooled\": {}, \"table\": {}}}\n", pooled, table);
  }

 private:
  // A part at a time, each of which has left the cache since its last turn.
  void copy_part() {
    const std::size_t part = kCopied / kCopyParts, at = turn_++ % kCopyParts * part;
    std::memcpy(into_.data() + at, copy_.data() + at, part * sizeof(float));
  }
  // Asks for each line of the rows some ahead, and reads a value of each line. The rows are as far from the table's end
  // as those of the lookups from its begin: as often the same, but none that the sums have brought into a cache.
  void read_rows() {
    constexpr std::int64_t kAhead = 2048;  // values
    const auto lookups = static_cast<std::int64_t>(indices_.size()), ahead = kAhead / width_ + 1;
    const auto rows = static_cast<std::int64_t>(table_.size()) / width_;
    const auto row = [&](std::int64_t i) {
      return table_.data() + (rows - 1 - indices_[static_cast<std::size_t>(i)]) * width_;
    };
    float sum = 0;
    for (std::int64_t i = 0; i < lookups; ++i) {
      const float* const next = row(std::min(i + ahead, lookups - 1));
      for (std::int64_t c = 0; c < width_; c += kLine) __builtin_prefetch(next + c);
      for (std::int64_t c = 0; c < width_; c += kLine) sum += row(i)[c];
    }
    read_ = sum;
  }

  template <class T>
  static exec::Operand of(std::span<T> values) {
    return {reinterpret_cast<std::byte*>(values.data()), static_cast<std::int64_t>(values.size()),
            std::is_same_v<T, float> ? models::DType::fp32 : models::DType::int32};
  }
  void run(models::OpKind kind, std::span<float> values, const std::vector<exec::Operand>& out) {
    models::Op op;
    op.kind = kind;
    op.n = bags_ * length_;
    op.m = width_;
    const std::vector<exec::Operand> in = {of(std::span(lengths_)), of(std::span(indices_)), of(values)};
    backend_->run(op, in, out, {}, context_);
  }

  static constexpr std::size_t kCopyParts = 16, kCopied = kCopyParts << 22, kLine = 16;  ///< parts of 16 MiB
  volatile float read_ = 0;
  std::int64_t bags_, length_, width_;
  std::size_t turn_ = 0;
  plan::TableLayout layout_;
  exec::StepContext context_;
  std::unique_ptr<exec::Backend> backend_ = exec::make_cpu_backend(1);
  std::vector<std::int32_t> indices_, lengths_;
  std::vector<float> total_ = {0};
  std::span<float> table_, pooled_, gradient_, copy_, into_;
};

}  // namespace

int main() {
  std::unique_ptr<Bench> bench;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb, file;
    std::int64_t rows = 0, width = 0, bags = 0, length = 0;
    words >> verb;
    if (verb == "table" && words >> rows >> width >> bags >> length >> file) {
      bench.reset();
      bench = std::make_unique<Bench>(rows, width, bags, length, file);
      fmt::print("{{}}\n");
    } else if (verb == "round" && bench) {
      bench->round();
    } else if (verb == "check" && bench) {
      bench->check();
    } else {
      fmt::print(stderr, "bench_tables: {}?\n", line);
      return 2;
    }
    std::fflush(stdout);
  }
}
