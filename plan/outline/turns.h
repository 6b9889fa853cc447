#pragma once
/// The order of several buckets' parts: each next part of a bucket follows the current part of the bucket after it, so
/// that a bucket's messages move while the next bucket's gradients are made.
#include <list>
#include <utility>

namespace orrery::plan {

/// `Visit`: called with a bucket and the part of it whose turn it is.
template <class One, class Visit>
class Turns {
 public:
  explicit Turns(Visit visit) : visit_(std::move(visit)) {}

  /// The next part of each bucket before this one, then the first part of this bucket, which has `parts`.
  void add(One one, int parts) {
    move_on();
    visit_(one, 0);
    under_.push_back({std::move(one), 0, parts});
  }
  /// The remaining parts of all buckets so far.
  void flush() {
    while (!under_.empty()) move_on();
  }

 private:
  struct Under {
    One one;
    int part = 0, parts = 1;
  };
  void move_on() {
    for (Under& u : under_)
      if (++u.part < u.parts) visit_(u.one, u.part);
    under_.remove_if([](const Under& u) { return u.part + 1 >= u.parts; });
  }

  Visit visit_;
  std::list<Under> under_;
};

}  // namespace orrery::plan
