/// Messages in flight, from one event to the next.
#include "cost/estimate/shared_streams.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/ensure.h"

namespace orrery::cost {

StreamRates::StreamRates(const std::array<Crossings, kLanes>& crossings) {
  std::map<int, std::array<double, kLanes>> links;
  for (std::size_t s = 0; s < crossings.size(); ++s) {
    rates_[s] = crossings[s].rate;
    latencies_[s] = std::llround(crossings[s].latency * 1e12);
    for (const auto& [link, share] : crossings[s].shares) links[link][s] = share;
  }
  for (const auto& [link, shares] : links) {
    std::array<double, plan::kStreams> of_stream = {};  // its largest message's
    for (std::size_t lane = 0; lane < shares.size(); ++lane) {
      double& largest = of_stream[static_cast<std::size_t>(stream_of(static_cast<Lane>(lane)))];
      largest = std::max(largest, shares[lane]);
    }
    double sum = 0, most = 0;
    for (const double share : of_stream) sum += share, most = std::max(most, share);
    if (sum > std::max(1.0, most) && std::ranges::find(links_, shares) == links_.end()) links_.push_back(shares);
  }
}

const StreamRates::Rates& StreamRates::of(std::uint32_t lanes) {
  for (const auto& [some, rates] : known_)
    if (some == lanes) return rates;
  return known_.emplace_back(lanes, shared(lanes)).second;
}

// Progressive filling (Bertsekas and Gallager 1992, "Data Networks", section 6.5.2): the rate of a connection rises for
// all alike, until a message moves as fast as its price says or a link is full.
StreamRates::Rates StreamRates::shared(std::uint32_t lanes) const {
  Rates out;
  out.fill(1);
  std::uint32_t rising = 0;
  for (std::size_t s = 0; s < out.size(); ++s)
    if ((lanes >> s & 1U) != 0 && rates_[s] > 0) rising |= 1U << s;
  std::uint32_t settled = 0;
  while (rising != 0) {
    double level = std::numeric_limits<double>::infinity();
    std::uint32_t stop = 0;
    const auto lower = [&](double to, std::uint32_t which) {
      if (to > level) return;
      stop = to < level ? which : stop | which;
      level = to;
    };
    for (std::size_t s = 0; s < out.size(); ++s)
      if (rising >> s & 1U) lower(rates_[s], 1U << s);
    for (const std::array<double, kLanes>& link : links_) {
      double left = 1, slope = 0;
      std::uint32_t crossing = 0;
      for (std::size_t s = 0; s < link.size(); ++s) {
        if (settled >> s & 1U) left -= link[s] * out[s];
        if ((rising >> s & 1U) == 0 || link[s] <= 0) continue;
        slope += link[s] / rates_[s];
        crossing |= 1U << s;
      }
      if (crossing != 0) lower(std::max(0.0, left) / slope, crossing);
    }
    for (std::size_t s = 0; s < out.size(); ++s)
      if (stop >> s & 1U) out[s] = std::min(1.0, level / rates_[s]);
    rising &= ~stop;
    settled |= stop;
  }
  return out;
}

void SharedStreams::begin(std::size_t stream, Lane lane, Ticks length, Ticks ready, std::vector<Place> behind,
                          Ticks input) {
  const Ticks latency = std::min(length, rates_->latency(lane));
  all_[stream].push_back({lane, latency, static_cast<double>(length - latency), ready, -1, input, std::move(behind)});
}

bool SharedStreams::idle() const {
  for (std::size_t s = 0; s < all_.size(); ++s)
    if (ended_[s] < all_[s].size()) return false;
  return true;
}

// A message needs those before it on its stream, and those that it waits for.
void SharedStreams::need(Place place, Ticks now) {
  for (std::size_t& i = needed_[place.stream]; i <= place.number; ++i) {
    Message& message = all_[place.stream][i];
    if (message.ready == kWhenNeeded) message.ready = now;
    for (const Place& before : message.behind) need(before, now);
  }
}

SharedStreams::Ticks SharedStreams::end_of(Place place, Ticks now) {
  need(place, now);
  while (message(place).end < 0) go_on();
  return message(place).end;
}

SharedStreams::Ticks SharedStreams::start_of(std::size_t stream) const {
  const std::size_t number = ended_[stream];
  const Message& next = all_[stream][number];
  Ticks from = std::max(next.ready, next.input);
  if (number > 0) from = std::max(from, all_[stream][number - 1].end);
  for (const Place& place : next.behind) {
    const Ticks end = message(place).end;
    if (end < 0) return kWhenNeeded;
    from = std::max(from, end);
  }
  return from;
}

void SharedStreams::go_on() {
  Ticks next = kWhenNeeded;
  for (std::size_t s = 0; s < all_.size(); ++s) {
    if ((moving_ >> s & 1U) != 0 || ended_[s] == all_[s].size()) continue;
    const Ticks start = start_of(s);
    if (start == kWhenNeeded) continue;
    const Ticks from = start + all_[s][ended_[s]].latency;
    if (from <= now_)
      moving_ |= 1U << s;
    else
      next = std::min(next, from);
  }
  std::uint32_t lanes = 0;
  for (std::size_t s = 0; s < all_.size(); ++s)
    if ((moving_ >> s & 1U) != 0) lanes |= 1U << all_[s][ended_[s]].lane;
  const StreamRates::Rates& rates = rates_->of(lanes);
  for (std::size_t s = 0; s < all_.size(); ++s) {
    if ((moving_ >> s & 1U) == 0) continue;
    const Message& moving = all_[s][ended_[s]];
    const double rate = rates[moving.lane];
    if (rate > 0) next = std::min(next, now_ + static_cast<Ticks>(std::ceil(moving.left / rate)));
  }
  ENSURE(next < kWhenNeeded, "a message waits for one that never begins");
  for (std::size_t s = 0; s < all_.size(); ++s) {
    if ((moving_ >> s & 1U) == 0) continue;
    Message& moving = all_[s][ended_[s]];
    moving.left -= static_cast<double>(next - now_) * rates[moving.lane];
    if (moving.left >= 1) continue;
    moving.end = next;
    moving_ &= ~(1U << s);
    ++ended_[s];
  }
  now_ = next;
}

}  // namespace orrery::cost
