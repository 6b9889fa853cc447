#pragma once
/// A value that copies share until one of them changes it: for parts too large to copy with what holds them.
#include <memory>

namespace orrery::base {

template <typename T>
class CopyOnWrite {
 public:
  [[nodiscard]] const T& operator*() const { return value_ ? *value_ : empty(); }
  [[nodiscard]] const T* operator->() const { return &**this; }

  /// The value, to be changed; other copies keep what they have.
  [[nodiscard]] T& edit() {
    if (!value_)
      value_ = std::make_shared<T>();
    else if (value_.use_count() > 1)
      value_ = std::make_shared<T>(*value_);
    return *value_;
  }

 private:
  static const T& empty() {
    static const T none{};
    return none;
  }

  std::shared_ptr<T> value_;  // null: a default value
};

}  // namespace orrery::base
