// Ping-pong of clock readings.
#include "exec/engine/clock.h"

#include <limits>

namespace orrery::exec {
namespace {

constexpr int kRounds = 16;
constexpr int kAsk = 1 << 20;  // tags far above the schedule's
constexpr int kAnswer = kAsk + 1;

void move(Transport& transport, const Waiter& waiter, bool sending, int peer, int tag, Nanoseconds& value) {
  auto* data = reinterpret_cast<std::byte*>(&value);
  const auto request = sending ? transport.send(peer, tag, models::DType::int64, data, 1)
                               : transport.receive(peer, tag, models::DType::int64, data, 1);
  waiter.finish(*request, [] { return std::string("a clock reading"); });
}

}  // namespace

ClockReading read_clock(Transport& transport, const Waiter& waiter) {
  ClockReading best{now(), 0, std::numeric_limits<Nanoseconds>::max()};
  transport.barrier();
  for (int peer = 1; peer < transport.size(); ++peer) {
    if (transport.rank() != 0 && transport.rank() != peer) continue;
    for (int round = 0; round < kRounds; ++round) {
      Nanoseconds theirs = 0;
      if (transport.rank() == 0) {
        move(transport, waiter, false, peer, kAsk, theirs);
        theirs = now();
        move(transport, waiter, true, peer, kAnswer, theirs);
        continue;
      }
      Nanoseconds asked = now();
      move(transport, waiter, true, 0, kAsk, asked);
      move(transport, waiter, false, 0, kAnswer, theirs);
      const Nanoseconds answered = now();
      const Nanoseconds error = (answered - asked) / 2;
      if (error < best.error) best = {answered, theirs - asked - error, error};
    }
  }
  if (transport.rank() == 0) best = {now(), 0, 0};
  transport.barrier();
  return best;
}

double ClockLine::seconds(Nanoseconds local, Nanoseconds origin) const {
  const double span = static_cast<double>(end.local - begin.local);
  const double along = span > 0 ? static_cast<double>(local - begin.local) / span : 0;
  const double offset = static_cast<double>(begin.offset) + along * static_cast<double>(end.offset - begin.offset);
  return (static_cast<double>(local - origin) + offset) * 1e-9;
}

}  // namespace orrery::exec
