/// Messages in flight, from one event to the next.
#include "cost/estimate/shared_streams.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/ensure.h"

namespace orrery::cost {

StreamRates::StreamRates(std::vector<Lanes> ranks) : ranks_(std::move(ranks)), latencies_(ranks_.size()) {
  std::map<int, std::vector<Part>> links;
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const Crossings& one = ranks_[r][lane];
      latencies_[r][lane] = std::llround(one.latency * 1e12);
      for (const auto& [link, share] : one.shares) links[link].push_back({r, static_cast<Lane>(lane), share});
    }
  for (const auto& [link, parts] : links) {
    std::map<std::pair<std::size_t, plan::Stream>, double> of_stream;  // its largest message's
    for (const Part& part : parts) {
      double& largest = of_stream[{part.rank, stream_of(part.lane)}];
      largest = std::max(largest, part.share);
    }
    double sum = 0, most = 0;
    for (const auto& [stream, share] : of_stream) sum += share, most = std::max(most, share);
    if (sum <= std::max(1.0, most) || std::ranges::find(links_, parts) != links_.end()) continue;
    across_ = across_ || parts.front().rank != parts.back().rank;
    links_.push_back(parts);
  }
}

const std::vector<StreamRates::Rates>& StreamRates::of(const LaneSets& in_flight) {
  const auto [known, fresh] = known_.try_emplace(in_flight);
  if (fresh) known->second = shared(in_flight);
  return known->second;
}

// Progressive filling (Bertsekas and Gallager 1992, "Data Networks", section 6.5.2): the rate of a connection rises for
// all alike, until a message moves as fast as its price says or a link is full.
std::vector<StreamRates::Rates> StreamRates::shared(const LaneSets& in_flight) const {
  std::vector<Rates> out(ranks_.size());
  LaneSets rising(ranks_.size(), 0), settled = rising;
  const auto has = [](const LaneSets& sets, std::size_t rank, std::size_t lane) {
    return (sets[rank] >> lane & 1U) != 0;
  };
  const auto rate = [&](std::size_t rank, std::size_t lane) { return ranks_[rank][lane].rate; };
  for (std::size_t r = 0; r < out.size(); ++r) {
    out[r].fill(1);
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      if (has(in_flight, r, lane) && rate(r, lane) > 0) rising[r] |= 1U << lane;
  }
  const auto any = [](const LaneSets& sets) {
    return std::ranges::any_of(sets, [](std::uint32_t set) { return set != 0; });
  };
  while (any(rising)) {
    double level = std::numeric_limits<double>::infinity();
    LaneSets stop(ranks_.size(), 0);
    const auto lower = [&](double to, const LaneSets& which) {
      if (to > level) return;
      if (to < level) stop.assign(ranks_.size(), 0);
      for (std::size_t r = 0; r < stop.size(); ++r) stop[r] |= which[r];
      level = to;
    };
    LaneSets one(ranks_.size(), 0);
    for (std::size_t r = 0; r < out.size(); ++r)
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        if (!has(rising, r, lane)) continue;
        one[r] = 1U << lane;
        lower(rate(r, lane), one);
        one[r] = 0;
      }
    for (const std::vector<Part>& link : links_) {
      double left = 1, slope = 0;
      LaneSets crossing(ranks_.size(), 0);
      for (const Part& part : link) {
        if (has(settled, part.rank, part.lane)) left -= part.share * out[part.rank][part.lane];
        if (!has(rising, part.rank, part.lane) || part.share <= 0) continue;
        slope += part.share / rate(part.rank, part.lane);
        crossing[part.rank] |= 1U << part.lane;
      }
      if (any(crossing)) lower(std::max(0.0, left) / slope, crossing);
    }
    for (std::size_t r = 0; r < out.size(); ++r) {
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        if (has(stop, r, lane)) out[r][lane] = std::min(1.0, level / rate(r, lane));
      rising[r] &= ~stop[r];
      settled[r] |= stop[r];
    }
  }
  return out;
}

SharedStreams::SharedStreams(std::shared_ptr<StreamRates> rates)
    : rates_(std::move(rates)), streams_(rates_->ranks().size() * plan::kStreams), in_flight_(rates_->ranks().size()) {}

void SharedStreams::begin(std::size_t stream, Lane lane, Ticks length, Ticks ready, std::vector<Place> behind,
                          Ticks input) {
  const Ticks latency = std::min(length, rates_->latency(rank_of(stream), lane));
  if (streams_[stream].all.empty()) used_.push_back(stream);
  next_.reset();
  streams_[stream].all.push_back(
      {lane, latency, static_cast<double>(length - latency), ready, -1, input, std::move(behind)});
}

bool SharedStreams::idle(std::size_t rank) const {
  return std::ranges::all_of(
      used_, [&](std::size_t s) { return rank_of(s) != rank || streams_[s].ended == streams_[s].all.size(); });
}

// A message needs those before it on its stream, and those that it waits for.
void SharedStreams::need(Place place, Ticks now) {
  OfStream& stream = streams_[place.stream];
  for (std::size_t& i = stream.needed; i <= place.number; ++i) {
    Message& message = stream.all[i];
    if (message.ready == kWhenNeeded) message.ready = now, next_.reset();
    for (const Place& before : message.behind) need(before, now);
  }
}

SharedStreams::Ticks SharedStreams::end_of(Place place, Ticks now) {
  need(place, now);
  while (message(place).end < 0) go_on();
  return message(place).end;
}

std::optional<SharedStreams::Ticks> SharedStreams::end_so_far(Place place, Ticks now) {
  need(place, now);
  const Ticks end = message(place).end;
  return end < 0 ? std::nullopt : std::optional(end);
}

SharedStreams::Ticks SharedStreams::start_of(const OfStream& stream) const {
  const Message& next = stream.all[stream.ended];
  Ticks from = std::max(next.ready, next.input);
  if (stream.ended > 0) from = std::max(from, stream.all[stream.ended - 1].end);
  for (const Place& place : next.behind) {
    const Ticks end = message(place).end;
    if (end < 0) return kWhenNeeded;
    from = std::max(from, end);
  }
  return from;
}

SharedStreams::Ticks SharedStreams::next() {
  if (next_) return *next_;
  Ticks next = kWhenNeeded;
  for (const std::size_t s : used_) {  // messages whose time has come set out
    OfStream& stream = streams_[s];
    if (stream.moving || stream.ended == stream.all.size()) continue;
    const Ticks start = start_of(stream);
    if (start == kWhenNeeded) continue;
    const Message& message = stream.all[stream.ended];
    if (start + message.latency > now_) {
      next = std::min(next, start + message.latency);
      continue;
    }
    stream.moving = true;
    in_flight_[rank_of(s)] |= 1U << message.lane;
    rates_in_flight_ = nullptr;
  }
  if (rates_in_flight_ == nullptr) rates_in_flight_ = &rates_->of(in_flight_);
  for (const std::size_t s : used_) {
    if (!streams_[s].moving) continue;
    const Message& moving = streams_[s].all[streams_[s].ended];
    const double rate = (*rates_in_flight_)[rank_of(s)][moving.lane];
    if (rate > 0) next = std::min(next, now_ + static_cast<Ticks>(std::ceil(moving.left / rate)));
  }
  next_ = next;
  return next;
}

void SharedStreams::go_on() {
  const Ticks next = this->next();
  ENSURE(next < kWhenNeeded, "a message waits for one that never begins");
  const std::vector<StreamRates::Rates>& rates = *rates_in_flight_;
  for (const std::size_t s : used_) {
    OfStream& stream = streams_[s];
    if (!stream.moving) continue;
    Message& moving = stream.all[stream.ended];
    moving.left -= static_cast<double>(next - now_) * rates[rank_of(s)][moving.lane];
    if (moving.left >= 1) continue;
    moving.end = next;
    stream.moving = false;
    in_flight_[rank_of(s)] &= ~(1U << moving.lane);
    rates_in_flight_ = nullptr;
    ++stream.ended;
  }
  now_ = next;
  next_.reset();
}

}  // namespace orrery::cost
