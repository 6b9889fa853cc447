#pragma once
/// Work in progress beside the host: operations, and points in a device's queues that order them. A rank that computes
/// in the host's memory has only requests; for a device, the host queues work and orders it by points without waiting.
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace orrery::exec {

/// A point in one of a device's queues: after everything that was queued there before the point was made.
class Point {
 public:
  virtual ~Point() = default;
  [[nodiscard]] virtual bool passed() const = 0;  ///< the device has done everything before it
};
using Points = std::vector<std::shared_ptr<const Point>>;

/// A moment on the device's clock, for spans: see Backend::mark.
using Mark = std::int64_t;

class Request {
 public:
  virtual ~Request() = default;
  [[nodiscard]] virtual bool test() = 0;  ///< true once complete; drives progress
  /// Once the device has passed these points, the operation has ended: work that depends on it is ordered after them
  /// and need not call `test`. Empty if only the host learns of the end.
  [[nodiscard]] virtual Points ends() const { return {}; }
  /// When it began and ended, if the transport was told to mark its operations.
  [[nodiscard]] virtual std::optional<std::pair<Mark, Mark>> marks() const { return std::nullopt; }
};

}  // namespace orrery::exec
