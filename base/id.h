#pragma once
/// Numbers of things, each kind with a type of its own: a buffer's number cannot be used for a group, and "none" is a
/// state of its own, not a number that must be tested for.
#include <fmt/core.h>

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

namespace orrery::base {

// Both end the program, as ENSURE does.
[[noreturn]] void id_is_none();
[[noreturn]] void no_such_id(std::int64_t number);

/// The number of a thing of kind `Tag`, counted from 0, or none. Ordered by number, none first.
template <class Tag>
class Id {
 public:
  constexpr Id() = default;  ///< none
  /// Ends the program unless 0 <= number <= 2^31 - 1.
  template <std::integral Integer>
  constexpr explicit Id(Integer number) : number_(static_cast<std::int32_t>(number)) {
    if (!std::in_range<std::int32_t>(number) || number_ < 0) no_such_id(static_cast<std::int64_t>(number));
  }
  [[nodiscard]] constexpr bool exists() const { return number_ >= 0; }
  constexpr explicit operator bool() const { return exists(); }
  /// The number as an index into a container. Ends the program if it is none.
  [[nodiscard]] constexpr std::size_t index() const {
    if (number_ < 0) id_is_none();
    return static_cast<std::size_t>(number_);
  }
  /// The number, to calculate with. Ends the program if it is none.
  [[nodiscard]] constexpr std::int32_t number() const {
    if (number_ < 0) id_is_none();
    return number_;
  }
  /// Its neighbours in order. End the program if there is none before, or if it is none itself.
  [[nodiscard]] constexpr Id previous() const { return Id(number() - 1); }
  [[nodiscard]] constexpr Id next() const { return Id(std::int64_t{number()} + 1); }
  /// As files, kernels and operators write it: -1 if it is none.
  [[nodiscard]] constexpr std::int32_t written() const { return number_; }
  template <std::integral Integer>
  [[nodiscard]] static constexpr Id read(Integer number) {
    return number == -1 ? Id() : Id(number);
  }
  constexpr auto operator<=>(const Id&) const = default;

 private:
  std::int32_t number_ = -1;
};

/// The first so many ids of a kind, in order.
template <class Key>
class Ids {
 public:
  template <std::integral Integer>
  constexpr explicit Ids(Integer count) : count_(static_cast<std::size_t>(count)) {}
  struct Iterator {
    std::size_t number;
    Key operator*() const { return Key(number); }
    Iterator& operator++() {
      ++number;
      return *this;
    }
    bool operator==(const Iterator&) const = default;
  };
  [[nodiscard]] Iterator begin() const { return {0}; }
  [[nodiscard]] Iterator end() const { return {count_}; }

 private:
  std::size_t count_;
};

/// A vector whose elements have ids: operator[] takes an id. Everything else is as in a vector, also plain indices, for
/// loops.
template <class Key, class Value>
class ById : public std::vector<Value> {
  using Base = std::vector<Value>;

 public:
  using Base::Base;
  using Base::operator[];
  [[nodiscard]] typename Base::reference operator[](Key key) { return Base::operator[](key.index()); }
  [[nodiscard]] typename Base::const_reference operator[](Key key) const { return Base::operator[](key.index()); }
  /// Adds it at the end, and returns its id.
  Key append(Value value) {
    this->push_back(std::move(value));
    return Key(this->size() - 1);
  }

  /// All ids, in order.
  [[nodiscard]] Ids<Key> keys() const { return Ids<Key>(this->size()); }
};

}  // namespace orrery::base

template <class Tag>
struct std::hash<orrery::base::Id<Tag>> {
  std::size_t operator()(orrery::base::Id<Tag> id) const {
    return id ? std::hash<std::size_t>{}(id.index()) : ~std::size_t{0};
  }
};

/// The number, or "none".
template <class Tag>
struct fmt::formatter<orrery::base::Id<Tag>> : fmt::formatter<fmt::string_view> {
  template <class Context>
  auto format(orrery::base::Id<Tag> id, Context& context) const {
    return id ? fmt::format_to(context.out(), "{}", id.index()) : fmt::format_to(context.out(), "none");
  }
};
