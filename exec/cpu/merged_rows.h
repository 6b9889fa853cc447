#pragma once
/// Gradients of a table's rows, merged from the samples that looked them up.
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "exec/cpu/machine.h"
#include "exec/cpu/sample_blocks.h"
#include "exec/engine/lookups.h"

namespace orrery::exec {

/// One lookup in a shard: its row, and which sample of the step asked (member * samples + sample); of lookups with
/// weights its number instead.
struct Lookup {
  std::int32_t row = 0;
  std::int32_t number = 0;
};

/// A shard's lookups by row, and within a row in the order of their samples: a radix sort, which is stable. `starts`
/// then finds their gradients. Usage: begin(), add() each lookup, end().
class Merged {
 public:
  /// Memory beyond the operands, kept from step to step because new memory would have to be cleared each time.
  struct Room {
    std::vector<Lookup> lookups, other;
    std::vector<std::int32_t> samples;  ///< of lookups with weights, by number
    std::vector<float> weights, sorted_weights;
    std::vector<std::size_t> groups;
    std::vector<std::int64_t> starts;
  };
  /// Gradients at `data`, of samples in blocks of `block`.
  Merged(const float* data, std::int64_t block, Room& room)
      : lookups_(room.lookups),
        other_(room.other),
        samples_(room.samples),
        weights_(room.weights),
        sorted_weights_(room.sorted_weights),
        groups_(room.groups),
        starts_(room.starts),
        data_(data),
        block_(block) {}

  void begin(bool weighted) {
    lookups_.clear();
    samples_.clear();
    weights_.clear();
    weighted_ = weighted;
  }
  void add(const std::int32_t* lookup, std::int32_t sample) {
    lookups_.push_back({*lookup, weighted_ ? static_cast<std::int32_t>(samples_.size()) : sample});
    if (!weighted_) return;
    samples_.push_back(sample);
    weights_.push_back(weight_of_lookup(lookup));
  }
  /// Of a table with `rows` rows; start_of(sample) is where its gradient begins.
  template <class StartOf>
  void end(std::int64_t rows, const StartOf& start_of) {
    sort(rows);
    sorted_weights_.clear();
    if (weighted_)
      for (const Lookup& one : lookups_) sorted_weights_.push_back(weights_[static_cast<std::size_t>(one.number)]);
    // Without a branch: whether a row equals the one before it is as unpredictable as chance.
    groups_.resize(lookups_.size() + 1);
    starts_.resize(lookups_.size());
    std::size_t count = 0;
    std::int32_t row = -1;
    for (std::size_t i = 0; i < lookups_.size(); ++i) {
      groups_[count] = i;
      count += lookups_[i].row != row ? 1 : 0;
      row = lookups_[i].row;
      starts_[i] = start_of(sample_of(lookups_[i]));
    }
    groups_[count] = lookups_.size();
    groups_.resize(count + 1);
  }
  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(groups_.size()) - 1; }
  [[nodiscard]] std::int64_t row(std::int64_t group) const {
    return lookups_[groups_[static_cast<std::size_t>(group)]].row;
  }
  /// A row's summed gradient over the shard's columns: in `room` (of room_for(width)), or in place if it has only one.
  [[nodiscard]] const float* sum(std::int64_t group, const Kernels& kernels, std::int64_t width, float* room) const {
    const std::size_t begin = groups_[static_cast<std::size_t>(group)],
                      end = groups_[static_cast<std::size_t>(group) + 1];
    if (!weighted_ && end - begin == 1) {
      const auto ahead = static_cast<std::size_t>(rows_ahead(width));
      if (begin + ahead < starts_.size()) ask_for(data_ + starts_[begin + ahead], width);
      return data_ + starts_[begin];
    }
    // Two summands have one sum, unless a product is rounded in it.
    if ((!weighted_ && end - begin == 2) || block_of(begin) == block_of(end - 1)) {
      sum_run(begin, end, kernels, width, room);
      return room;
    }
    std::array<float*, kBlocksOfStep> sums{};
    float* next = room;
    for (std::size_t at = begin; at < end; next += width) {
      const std::int64_t block = block_of(at);
      const std::size_t behind = behind_block(at, end, block);
      sums[static_cast<std::size_t>(block)] = next;
      sum_run(at, behind, kernels, width, next);
      at = behind;
    }
    for (std::size_t step = 1; step < sums.size(); step *= 2)
      for (std::size_t i = 0; i < sums.size(); i += 2 * step) {
        float*& left = sums[i];
        float* const right = sums[i + step];
        if (left != nullptr && right != nullptr) kernels.add(left, right, left, width);
        if (left == nullptr) left = right;
      }
    return sums[0];
  }
  static std::int64_t room_for(std::int64_t width) { return kBlocksOfStep * width; }
  /// How many rows to prefetch to hide the latency of memory.
  static std::int64_t rows_ahead(std::int64_t width) {
    constexpr std::int64_t kValues = 2048;
    return std::max<std::int64_t>(2, kValues / width);
  }
  static void ask_for(const float* row, std::int64_t width) {
    constexpr std::int64_t line = 16;
    for (std::int64_t j = 0; j < width; j += line) __builtin_prefetch(row + j);
  }

 private:
  [[nodiscard]] std::int32_t sample_of(const Lookup& lookup) const {
    return weighted_ ? samples_[static_cast<std::size_t>(lookup.number)] : lookup.number;
  }
  [[nodiscard]] std::int64_t block_of(std::size_t i) const { return sample_of(lookups_[i]) / block_; }
  [[nodiscard]] std::size_t behind_block(std::size_t at, std::size_t end, std::int64_t block) const {
    const auto first = lookups_.begin();
    return static_cast<std::size_t>(
        std::partition_point(first + static_cast<std::ptrdiff_t>(at), first + static_cast<std::ptrdiff_t>(end),
                             [&](const Lookup& one) { return sample_of(one) / block_ == block; }) -
        first);
  }
  void sum_run(std::size_t begin, std::size_t end, const Kernels& kernels, std::int64_t width, float* to) const {
    const auto count = static_cast<std::int64_t>(end - begin),
               known = static_cast<std::int64_t>(starts_.size() - begin);
    if (weighted_)
      kernels.sum_weighted_parts(data_, starts_.data() + begin, sorted_weights_.data() + begin, count, known, width,
                                 to);
    else
      kernels.sum_parts(data_, starts_.data() + begin, count, known, width, to);
  }
  void sort(std::int64_t rows) {
    constexpr int kBits = 11, kMostPasses = 3;  // rows are below 2^31
    constexpr std::size_t kDigits = std::size_t{1} << kBits;
    int passes = 0;
    while ((std::int64_t{1} << (passes * kBits)) < rows) ++passes;
    other_.resize(lookups_.size());
    const auto digit = [](const Lookup& l, int pass) {
      return (static_cast<std::uint32_t>(l.row) >> (pass * kBits)) & (kDigits - 1);
    };
    std::array<std::array<std::uint32_t, kDigits>, kMostPasses> counts{};
    for (const Lookup& l : lookups_)
      for (int pass = 0; pass < passes; ++pass) ++counts[static_cast<std::size_t>(pass)][digit(l, pass)];
    for (int pass = 0; pass < passes; ++pass) {
      auto& at = counts[static_cast<std::size_t>(pass)];
      std::uint32_t before = 0;
      for (std::uint32_t& count : at) before += std::exchange(count, before);
      for (const Lookup& l : lookups_) other_[at[digit(l, pass)]++] = l;
      lookups_.swap(other_);
    }
  }
  std::vector<Lookup>&lookups_, &other_;
  std::vector<std::int32_t>& samples_;
  std::vector<float>&weights_, &sorted_weights_;  ///< by number; in the order of `lookups_`
  bool weighted_ = false;
  std::vector<std::size_t>& groups_;
  std::vector<std::int64_t>& starts_;  ///< of each lookup's gradients
  const float* data_;
  std::int64_t block_;
};

/// The squares of some columns of a row's gradient, as Adagrad adds them to the row's state: those of each quarter of
/// the row are rounded to fp32 and added as a binary tree, so that ranks with a half or a quarter of the columns each
/// make the same sum.
inline double squares_of_columns(const Kernels& kernels, const float* gradient, std::int64_t columns,
                                 std::int64_t width) {
  constexpr std::int64_t kParts = 4;
  const std::int64_t part = width / kParts, parts = part > 0 ? columns / part : 0;
  if (width % kParts != 0 || parts * part != columns || parts == 3)
    return static_cast<double>(static_cast<float>(kernels.sum_of_squares(gradient, columns)));
  std::array<float, kParts> sums{};
  for (std::int64_t i = 0; i < parts; ++i)
    sums[static_cast<std::size_t>(i)] = static_cast<float>(kernels.sum_of_squares(gradient + i * part, part));
  return static_cast<double>((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

}  // namespace orrery::exec
