// Writes and reads lines of JSON.
#include "exec/probe/measured.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "models/operators/operators.h"

namespace orrery::exec {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr models::DType kDTypes[] = {models::DType::fp32, models::DType::bf16, models::DType::fp16};

ordered_json op_json(const OpTime& time) {
  const models::Op& op = time.op;
  ordered_json out = {{"kind", models::name_of(op.kind)}, {"count", time.count}, {"seconds", time.seconds}};
  const auto number = [&](const char* key, std::int64_t value) {
    if (value != 0) out[key] = value;
  };
  models::each_size(op, number);
  number("function", static_cast<std::int64_t>(op.function));
  if (op.dtype != models::DType::fp32) out["dtype"] = models::name_of(op.dtype);
  const auto flag = [&](const char* key, bool value) {
    if (value) out[key] = true;
  };
  flag("trans_a", op.trans_a), flag("trans_b", op.trans_b), flag("accumulate", op.accumulate);
  flag("causal", op.causal), flag("flash", op.flash), flag("rounded", op.rounded), flag("joint", op.joint);
  flag("delta", op.ssm.delta);
  if (op.cap > 0) out["cap"] = op.cap;
  if (op.score_scale > 0) out["score_scale"] = op.score_scale;
  out["in"] = op.in;
  out["out"] = op.out;
  return out;
}

OpTime op_of(const json& j) {
  OpTime out;
  const auto kind = models::op_kind(j.at("kind").get<std::string>());
  if (!kind) throw json::other_error::create(501, "an unknown operator", &j);
  out.op.kind = *kind;
  out.count = j.at("count").get<double>();
  out.seconds = j.at("seconds").get<double>();
  const auto number = [&](const char* key, std::int64_t& into) { into = j.value(key, std::int64_t{0}); };
  models::each_size(out.op, number);
  out.op.function = static_cast<models::Function>(j.value("function", 0));
  out.op.cap = j.value("cap", 0.0), out.op.score_scale = j.value("score_scale", 0.0);
  const auto flag = [&](const char* key, bool& into) { into = j.value(key, false); };
  flag("trans_a", out.op.trans_a), flag("trans_b", out.op.trans_b), flag("accumulate", out.op.accumulate);
  flag("causal", out.op.causal), flag("flash", out.op.flash), flag("rounded", out.op.rounded);
  flag("joint", out.op.joint), flag("delta", out.op.ssm.delta);
  const auto dtype = j.value("dtype", std::string(models::name_of(models::DType::fp32)));
  const auto* const known = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                         [&](models::DType one) { return dtype == models::name_of(one); });
  if (known == std::end(kDTypes)) throw json::other_error::create(501, "an unknown dtype", &j);
  out.op.dtype = *known;
  j.at("in").get_to(out.op.in);
  j.at("out").get_to(out.op.out);
  return out;
}

std::optional<MessageKind> message_kind_of(const std::string& name) {
  for (const MessageKind kind :
       {MessageKind::all_reduce, MessageKind::all_gather, MessageKind::reduce_scatter, MessageKind::send})
    if (name == name_of(kind)) return kind;
  return std::nullopt;
}

void take_workload(const json& event, Measured& into) {
  WorkloadTimes times;
  event.at("name").get_to(times.name);
  event.at("pass_s").get_to(times.pass_s);
  event.at("pass_together_s").get_to(times.pass_together_s);
  event.at("pass_slowest_s").get_to(times.pass_slowest_s);
  for (const json& op : event.at("ops")) times.ops.push_back(op_of(op));
  into.workloads.push_back(std::move(times));
}

void take_stream(const json& event, Measured& into) {
  into.streams.push_back({event.at("operation").get<std::string>(), event.at("bytes").get<std::int64_t>(),
                          event.at("ranks").get<int>(), event.at("bytes_per_s").get<double>()});
}

void take_copy(const json& event, Measured& into) {
  into.copies.push_back({event.at("to_host").get<bool>(), event.at("bytes").get<std::int64_t>(),
                         event.at("ranks").get<int>(), event.at("seconds").get<double>()});
}

void take_message(const json& event, Measured& into) {
  const auto kind = message_kind_of(event.at("operation").get<std::string>());
  if (!kind) return;
  into.messages.push_back(
      {{*kind, event.at("ranks").get<int>(), event.at("bytes").get<std::int64_t>(), event.at("in_place").get<bool>()},
       event.at("seconds").get<double>()});
}

}  // namespace

ordered_json event_of(const WorkloadTimes& times) {
  ordered_json ops = ordered_json::array();
  for (const OpTime& op : times.ops) ops.push_back(op_json(op));
  return {{"event", "workload"},
          {"name", times.name},
          {"pass_s", times.pass_s},
          {"pass_together_s", times.pass_together_s},
          {"pass_slowest_s", times.pass_slowest_s},
          {"ops", std::move(ops)}};
}

ordered_json event_of(const StreamTime& time) {
  return {{"event", "stream"},
          {"operation", time.operation},
          {"bytes", time.bytes},
          {"ranks", time.ranks},
          {"bytes_per_s", time.bytes_per_s}};
}

ordered_json event_of(const MessageTime& time) {
  return {{"event", "message"},     {"operation", name_of(time.at.kind)}, {"ranks", time.at.ranks},
          {"bytes", time.at.bytes}, {"in_place", time.at.in_place},       {"seconds", time.seconds}};
}

ordered_json event_of(const CopyTime& time) {
  return {{"event", "copy"},
          {"to_host", time.to_host},
          {"bytes", time.bytes},
          {"ranks", time.ranks},
          {"seconds", time.seconds}};
}

ordered_json end_event_of(const Measured& measured) {
  return {{"event", "end"},
          {"device", measured.device},
          {"backend", measured.backend},
          {"ranks", measured.ranks},
          {"threads", measured.threads},
          {"oversubscribed", measured.oversubscribed},
          {"seconds", measured.seconds}};
}

bool take_event(const json& event, Measured& into) {
  try {
    const auto what = event.at("event").get<std::string>();
    if (what == "workload") take_workload(event, into);
    if (what == "stream") take_stream(event, into);
    if (what == "message") take_message(event, into);
    if (what == "copy") take_copy(event, into);
    if (what != "end") return false;
    event.at("device").get_to(into.device);
    event.at("backend").get_to(into.backend);
    event.at("ranks").get_to(into.ranks);
    event.at("threads").get_to(into.threads);
    event.at("oversubscribed").get_to(into.oversubscribed);
    event.at("seconds").get_to(into.seconds);
    return true;
  } catch (const json::exception&) {
    return false;
  }
}

}  // namespace orrery::exec
