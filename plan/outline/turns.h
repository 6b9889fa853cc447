#pragma once
/// The order of several buckets' parts: a bucket's next part stands behind the one before of the bucket after it, so
/// that a bucket's messages move while the next one's gradients are made.
#include <list>
#include <utility>

namespace orrery::plan {

/// `Visit`: called with a bucket and the part of it whose turn it is.
template <class One, class Visit>
class Turns {
 public:
  explicit Turns(Visit visit) : visit_(std::move(visit)) {}

  /// The first part of a bucket that has `parts`, behind the next one of those before it.
  void add(One one, int parts) {
    move_on();
    visit_(one, 0);
    under_.push_back({std::move(one), 0, parts});
  }
  /// What is left of the buckets so far.
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
