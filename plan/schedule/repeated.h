#pragma once
/// A long sequence that repeats itself, stored without its repetitions. A pipeline's program has some entries that fill
/// it, a few that repeat for each micro-batch, and some that drain it. The repeated entries are stored once, with their
/// number of repetitions and what each repetition adds. Elements are returned by value, made when they are asked for.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <vector>

namespace orrery::plan {

/// How a T progresses. To be specialised with
///  - `Advance`: what is added from one repetition to the next;
///  - `std::optional<Advance> between(const T& a, const T& b)`: what leads from a to b; none if b is not a later a;
///  - `T advanced(T a, const Advance& advance, std::int64_t times)`.
template <class T>
struct Progression;

template <class T>
class Repeated {
 public:
  using Advance = typename Progression<T>::Advance;

  /// Elements [first, end()): `length` elements of a pattern, `count` times.
  struct Run {
    std::int64_t first = 0;
    std::int64_t pattern = 0;  ///< index of its first element in storage
    std::int64_t length = 0, count = 1;
    Advance advance{};
    [[nodiscard]] std::int64_t end() const { return first + length * count; }
  };

  class const_iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = const T*;
    using reference = T;
    const_iterator() = default;
    const_iterator(const Repeated* of, std::size_t index) : of_(of), index_(index) {}
    T operator*() const { return of_->element(of_->runs_[run()], static_cast<std::int64_t>(index_)); }
    const_iterator& operator++() {
      ++index_;
      return *this;
    }
    const_iterator operator++(int) {
      const const_iterator before = *this;
      ++index_;
      return before;
    }
    bool operator==(const const_iterator& o) const { return index_ == o.index_; }

   private:
    [[nodiscard]] std::size_t run() const {
      while (static_cast<std::int64_t>(index_) >= of_->runs_[run_].end()) ++run_;
      return run_;
    }
    const Repeated* of_ = nullptr;
    std::size_t index_ = 0;
    mutable std::size_t run_ = 0;
  };

  Repeated() = default;
  Repeated(std::initializer_list<T> elements) { append(elements); }
  explicit Repeated(const std::vector<T>& elements) {
    append(elements);
    fold();
  }
  Repeated& operator=(std::initializer_list<T> elements) {
    clear();
    append(elements);
    return *this;
  }

  [[nodiscard]] std::size_t size() const { return runs_.empty() ? 0 : static_cast<std::size_t>(runs_.back().end()); }
  [[nodiscard]] bool empty() const { return runs_.empty(); }
  [[nodiscard]] T operator[](std::size_t index) const {
    return element(runs_[run_of(index)], static_cast<std::int64_t>(index));
  }
  [[nodiscard]] const_iterator begin() const { return {this, 0}; }
  [[nodiscard]] const_iterator end() const { return {this, size()}; }

  /// Folds by itself once enough has been added.
  void push_back(const T& element) {
    if (takes_more() && runs_.back().length >= kMostApart) fold();
    if (!takes_more() || runs_.back().length >= kMostApart)
      runs_.push_back({static_cast<std::int64_t>(size()), static_cast<std::int64_t>(kept_.size()), 0, 1, {}});
    kept_.push_back(element);
    ++runs_.back().length;
  }
  void clear() {
    runs_.clear();
    kept_.clear();
  }
  /// Replaces an element. In a run that repeats, the turn that holds it becomes a run of its own.
  void set(std::size_t index, const T& element) {
    const std::size_t r = run_of(index);
    const Run run = runs_[r];
    const std::int64_t offset = static_cast<std::int64_t>(index) - run.first, turn = offset / run.length;
    if (run.count == 1) {
      kept_[static_cast<std::size_t>(run.pattern + offset)] = element;
      return;
    }
    Run before = run, after = run, alone = run;
    before.count = turn;
    alone.first = before.end();
    alone.count = 1;
    alone.pattern = static_cast<std::int64_t>(kept_.size());
    alone.advance = {};
    for (std::int64_t i = 0; i < run.length; ++i) kept_.push_back(this->element(run, alone.first + i));
    kept_[static_cast<std::size_t>(alone.pattern + offset % run.length)] = element;
    after.first = alone.end();
    after.count = run.count - turn - 1;
    after.pattern = static_cast<std::int64_t>(kept_.size());
    for (std::int64_t i = 0; i < run.length && after.count > 0; ++i)
      kept_.push_back(this->element(run, after.first + i));
    runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(r));
    for (const Run& part : {after, alone, before})
      if (part.count > 0) runs_.insert(runs_.begin() + static_cast<std::ptrdiff_t>(r), part);
  }

  /// Looks for repetitions in what has been added since the last call.
  void fold() {
    if (!takes_more() || runs_.back().length < kWorthFolding) return;
    const Run last = runs_.back();
    const std::vector<T> fresh(kept_.begin() + static_cast<std::ptrdiff_t>(last.pattern), kept_.end());
    runs_.pop_back();
    kept_.resize(static_cast<std::size_t>(last.pattern));
    std::size_t i = go_on(fresh);
    while (i < fresh.size()) {
      Found found = repetition(fresh, i);
      // The beginning of a further turn stays unfolded until its rest is there.
      if (!runs_.empty() && runs_.back().count > 1 && static_cast<std::int64_t>(fresh.size() - i) < runs_.back().length)
        found = {static_cast<std::int64_t>(fresh.size() - i), 1, {}};
      const Run run{static_cast<std::int64_t>(size()), static_cast<std::int64_t>(kept_.size()), found.length,
                    found.count, found.advance};
      const bool alone = found.count == 1 && takes_more();
      kept_.insert(kept_.end(), fresh.begin() + static_cast<std::ptrdiff_t>(i),
                   fresh.begin() + static_cast<std::ptrdiff_t>(i) + found.length);
      if (alone)
        runs_.back().length += found.length;
      else
        runs_.push_back(run);
      i += static_cast<std::size_t>(found.length * found.count);
    }
  }

  [[nodiscard]] const std::vector<Run>& runs() const { return runs_; }
  [[nodiscard]] std::size_t run_of(std::size_t index) const {
    const auto after = std::upper_bound(runs_.begin(), runs_.end(), static_cast<std::int64_t>(index),
                                        [](std::int64_t i, const Run& run) { return i < run.first; });
    return static_cast<std::size_t>(after - runs_.begin()) - 1;
  }
  /// Number of elements in memory.
  [[nodiscard]] std::size_t kept() const { return kept_.size(); }

  /// Calls `use(first, count, advance)` for each element of each pattern, which occurs `count` times.
  template <class Use>
  void each_kind(const Use& use) const {
    for (const Run& run : runs_)
      for (std::int64_t i = 0; i < run.length; ++i)
        use(kept_[static_cast<std::size_t>(run.pattern + i)], run.count, run.advance);
  }
  /// Calls `change(element)` for each stored element. It must not change how elements progress.
  template <class Change>
  void change_all(const Change& change) {
    for (T& element : kept_) change(element);
  }

  bool operator==(const Repeated& o) const {
    if (size() != o.size()) return false;
    for (auto a = begin(), b = o.begin(); a != end(); ++a, ++b)
      if (!(*a == *b)) return false;
    return true;
  }

 private:
  static constexpr std::int64_t kWorthFolding = 64, kMostApart = 1 << 14, kLongestPattern = 1 << 12, kLeastTimes = 4;

  struct Found {
    std::int64_t length = 1, count = 1;
    Advance advance{};
  };

  // Whether elements can be added to the last run.
  [[nodiscard]] bool takes_more() const {
    return !runs_.empty() && runs_.back().count == 1 &&
           runs_.back().pattern + runs_.back().length == static_cast<std::int64_t>(kept_.size());
  }
  template <class Elements>
  void append(const Elements& elements) {
    for (const T& element : elements) push_back(element);
  }

  [[nodiscard]] T element(const Run& run, std::int64_t index) const {
    const std::int64_t offset = index - run.first;
    if (run.count == 1) return kept_[static_cast<std::size_t>(run.pattern + offset)];
    const std::int64_t turn = offset / run.length;
    return Progression<T>::advanced(kept_[static_cast<std::size_t>(run.pattern + offset - turn * run.length)],
                                    run.advance, turn);
  }

  // Extends the last run by further turns; returns how many elements they take.
  std::size_t go_on(const std::vector<T>& fresh) {
    if (runs_.empty() || runs_.back().count == 1) return 0;
    Run& run = runs_.back();
    std::size_t taken = 0;
    const auto length = static_cast<std::size_t>(run.length);
    for (; taken + length <= fresh.size(); taken += length) {
      const std::int64_t from = run.end();
      for (std::size_t i = 0; i < length; ++i)
        if (!(element(run, from + static_cast<std::int64_t>(i)) == fresh[taken + i])) return taken;
      ++run.count;
    }
    return taken;
  }

  // The pattern that begins there and covers most elements with its repetitions; otherwise one element.
  [[nodiscard]] Found repetition(const std::vector<T>& fresh, std::size_t from) const {
    Found best;
    const std::size_t left = fresh.size() - from, times = static_cast<std::size_t>(kLeastTimes);
    for (std::size_t length = 1; length <= std::min<std::size_t>(left / times, kLongestPattern); ++length) {
      const auto advance = Progression<T>::between(fresh[from], fresh[from + length]);
      if (!advance) continue;
      std::size_t same = 0;
      while (same + length < left &&
             Progression<T>::advanced(fresh[from + same], *advance, 1) == fresh[from + same + length])
        ++same;
      const auto count = static_cast<std::int64_t>(same / length) + 1, long_ = static_cast<std::int64_t>(length);
      if (count < kLeastTimes || count * long_ <= best.length * best.count) continue;
      best = {long_, count, *advance};
      if (same + length == left) break;  // reaches the end: no longer pattern covers more
    }
    return best;
  }

  std::vector<Run> runs_;
  std::vector<T> kept_;
};

}  // namespace orrery::plan
