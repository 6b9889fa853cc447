#pragma once
/// What is under way beside the host: operations, and places in a device's queues by which they are ordered. A rank
/// whose memory is the host's has requests alone; on a device the host queues work and orders it by points without
/// waiting.
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace orrery::exec {

/// A place in one of a device's queues: behind everything that was queued there before it was made.
class Point {
 public:
  virtual ~Point() = default;
  [[nodiscard]] virtual bool passed() const = 0;  ///< the device has done all before it
};
using Points = std::vector<std::shared_ptr<const Point>>;

/// A moment on the device's clock, for spans: see Backend::mark.
using Mark = std::int64_t;

class Request {
 public:
  virtual ~Request() = default;
  [[nodiscard]] virtual bool test() = 0;  ///< true once complete; drives progress
  /// Behind these the operation has ended, on the device: who depends on it is ordered behind them and need not ask
  /// `test`. Empty where only the host learns of the end.
  [[nodiscard]] virtual Points ends() const { return {}; }
  /// When it began and ended, where the transport was told to mark its operations.
  [[nodiscard]] virtual std::optional<std::pair<Mark, Mark>> marks() const { return std::nullopt; }
};

}  // namespace orrery::exec
