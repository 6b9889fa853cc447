// Samples collectives and sends.
#include "exec/probe/message_timer.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/ensure.h"
#include "exec/engine/execute.h"
#include "exec/run/measured.h"

namespace orrery::exec {
namespace {

constexpr std::int64_t kFloat = 4;
constexpr int kTag = 1;

std::int64_t elements_of(const MessageCase& one) {
  return std::max<std::int64_t>(1, one.bytes / kFloat / one.ranks) * one.ranks;
}

}  // namespace

const char* name_of(MessageKind kind) {
  switch (kind) {
    case MessageKind::all_reduce: return "all_reduce";
    case MessageKind::all_gather: return "all_gather";
    case MessageKind::reduce_scatter: return "reduce_scatter";
    case MessageKind::send: return "send";
  }
  return "?";
}

std::vector<MessageCase> standard_messages(int ranks, std::int64_t most_bytes) {
  std::vector<int> sizes;
  for (int p = 2; p < ranks; p *= 2) sizes.push_back(p);
  if (ranks >= 2) sizes.push_back(ranks);
  std::vector<MessageCase> out;
  constexpr std::int64_t kSmallest = 1 << 10, kLargest = 1 << 26, kStep = 4;
  for (const int p : sizes)
    for (std::int64_t bytes = kSmallest; bytes <= std::min(kLargest, most_bytes); bytes *= kStep) {
      out.push_back({MessageKind::all_reduce, p, bytes});
      out.push_back({MessageKind::all_gather, p, bytes});
      out.push_back({MessageKind::reduce_scatter, p, bytes});
      out.push_back({MessageKind::reduce_scatter, p, bytes, true});
      if (p == sizes.front()) out.push_back({MessageKind::send, 2, bytes});
    }
  return out;
}

MessageTimer::MessageTimer(const std::vector<MessageCase>& cases, Backend& backend, Transport& transport,
                           const Waiter& waiter)
    : backend_(backend), transport_(transport), waiter_(waiter) {
  std::int64_t most = kFloat;
  std::vector<int> sizes;
  for (const MessageCase& one : cases) {
    most = std::max(most, elements_of(one) * kFloat);
    if (std::find(sizes.begin(), sizes.end(), one.ranks) == sizes.end()) sizes.push_back(one.ranks);
  }
  for (const int p : sizes) {
    plan::Group group;
    group.name = "probe";
    group.dimensions = {{1, p}};
    group.base_limit = 1;  // only the first p ranks
    groups_.emplace_back(p, transport.make_group(group));
  }
  std::vector<int> to, from;
  if (transport.rank() == 0 && transport.size() > 1) to = {1};
  if (transport.rank() == 1) from = {0};
  transport.connect(to, from);
  source_ = backend.allocate_arena(most);
  target_ = backend.allocate_arena(most);
  flag_ = backend.allocate_arena(kFloat);
  const std::vector<std::byte> zeros(static_cast<std::size_t>(std::min<std::int64_t>(most, 1 << 20)));
  for (std::byte* buffer : {source_, target_})
    for (std::int64_t at = 0; at < most; at += static_cast<std::int64_t>(zeros.size()))
      backend.copy_to_device(buffer + at,
                             std::span(zeros).first(std::min(zeros.size(), static_cast<std::size_t>(most - at))));
  backend.copy_to_device(flag_, std::span(zeros).first(kFloat));
}

/// Reduces one number: ranks leave it awake, and within a message's time of each other.
void MessageTimer::meet(int group_ranks) {
  const auto group =
      std::find_if(groups_.begin(), groups_.end(), [&](const auto& g) { return g.first == group_ranks; });
  const auto request = transport_.all_reduce(group->second, plan::Reduce::maximum, models::DType::fp32, flag_, 1);
  waiter_.finish(*request, [] { return std::string("the ranks of a probe to meet"); });
}

std::unique_ptr<Request> MessageTimer::start(const MessageCase& one) {
  const std::int64_t all = elements_of(one), part = all / one.ranks;
  const auto group = std::find_if(groups_.begin(), groups_.end(), [&](const auto& g) { return g.first == one.ranks; });
  const models::DType fp32 = models::DType::fp32;
  const std::int64_t own = transport_.rank() * part * kFloat;
  switch (one.kind) {
    case MessageKind::all_reduce: return transport_.all_reduce(group->second, plan::Reduce::sum, fp32, source_, all);
    case MessageKind::all_gather: return transport_.all_gather(group->second, fp32, source_ + own, source_, part);
    case MessageKind::reduce_scatter:
      return transport_.reduce_scatter(group->second, fp32, source_, one.in_place ? source_ + own : target_, part);
    case MessageKind::send:
      return transport_.rank() == 0 ? transport_.send(1, kTag, fp32, source_, all)
                                    : transport_.receive(0, kTag, fp32, target_, all);
  }
  ENSURE(false, "unknown message {}", static_cast<int>(one.kind));
}

MessageTimer::Interval MessageTimer::sample(const MessageCase& one) {
  if (transport_.rank() >= one.ranks) return {};
  // Before it is sent, this rank writes the data, as if just computed.
  models::Op touch;
  touch.kind = models::OpKind::fill_zero;
  touch.m = elements_of(one);
  const Operand whole{source_, touch.m};
  backend_.run(touch, {}, {&whole, 1}, {}, {});
  backend_.synchronise();
  meet(one.ranks);
  Interval out;
  out.begin = now();
  const auto request = start(one);
  waiter_.finish(*request, [&] { return std::string(name_of(one.kind)) + " of a probe"; });
  backend_.synchronise();
  out.end = now();
  return out;
}

double message_seconds(const std::vector<std::vector<MessageTimer::Interval>>& by_rank) {
  std::vector<double> seconds;
  for (std::size_t s = 0; !by_rank.empty() && s < by_rank.front().size(); ++s) {
    std::int64_t begin = std::numeric_limits<std::int64_t>::min(), end = begin;
    for (const auto& samples : by_rank) {
      if (s >= samples.size() || samples[s].end == 0) continue;
      begin = std::max(begin, samples[s].begin);
      end = std::max(end, samples[s].end);
    }
    if (end > begin) seconds.push_back(static_cast<double>(end - begin) * 1e-9);
  }
  return median(std::move(seconds));
}

}  // namespace orrery::exec
