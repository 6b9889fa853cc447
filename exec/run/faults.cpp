// Parses and plants faults.
#include "exec/run/faults.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "base/ensure.h"
#include "exec/engine/half.h"
#include "exec/failure.h"
#include "exec/state/held_states.h"

namespace orrery::exec {
namespace {

constexpr const char* kCode = "E0651";
constexpr const char* kUsage =
    "ORRERY_FAULT=KIND:rank=R,step=S[,KEY=VALUE…][;…], for tests only; see exec/run/faults.h";

constexpr std::array<std::pair<const char*, FaultKind>, 11> kKinds = {{{"flip", FaultKind::flip},
                                                                       {"nan", FaultKind::nan},
                                                                       {"inf", FaultKind::infinity},
                                                                       {"kill", FaultKind::kill},
                                                                       {"stop", FaultKind::stop},
                                                                       {"exit", FaultKind::exit},
                                                                       {"abort", FaultKind::abort},
                                                                       {"throw", FaultKind::raise},
                                                                       {"spin", FaultKind::spin},
                                                                       {"slow", FaultKind::slow},
                                                                       {"collective", FaultKind::collective}}};

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(at, begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

bool read(const std::string& text, std::int64_t low, std::int64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out >= low;
}

bool read_key(const std::string& key, const std::string& value, Fault& fault) {
  struct Number {
    std::int64_t low;
    std::int64_t Fault::*into;
  };
  const std::map<std::string, Number> numbers = {{"rank", {0, &Fault::rank}}, {"step", {1, &Fault::step}},
                                                 {"part", {0, &Fault::part}}, {"element", {0, &Fault::element}},
                                                 {"bit", {0, &Fault::bit}},   {"ms", {0, &Fault::milliseconds}},
                                                 {"code", {0, &Fault::code}}};
  if (const auto number = numbers.find(key); number != numbers.end())
    return read(value, number->second.low, fault.*number->second.into);
  if (key == "at") {
    fault.within = value == "within";
    return value == "within" || value == "begin";
  }
  if (key == "state") fault.state = value;
  if (key == "once") fault.once = value;
  return (key == "state" || key == "once") && !value.empty();
}

std::optional<Fault> parse_one(const std::string& text) {
  Fault fault;
  const std::size_t colon = text.find(':');
  bool known = false;
  for (const auto& [name, kind] : kKinds)
    if (text.substr(0, colon) == name) fault.kind = kind, known = true;
  if (!known) return std::nullopt;
  if (colon == std::string::npos) return fault;
  for (const std::string& pair : split(text.substr(colon + 1), ',')) {
    const std::size_t equals = pair.find('=');
    if (equals == std::string::npos || !read_key(pair.substr(0, equals), pair.substr(equals + 1), fault))
      return std::nullopt;
  }
  return fault;
}

const char* name_of(FaultKind kind) {
  for (const auto& [name, one] : kKinds)
    if (one == kind) return name;
  return "";
}

/// Whether this is the first time; the file records it.
bool first_time(const std::string& file) {
  if (file.empty()) return true;
  const int descriptor = ::open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
  if (descriptor < 0) return false;
  ::close(descriptor);
  return true;
}

/// Prints when a fault was planted, to measure how soon it is found.
void say(const std::string& what) {
  const double seconds = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  fmt::print(stderr, "planted fault at {:.3f}: {}\n", seconds, what);
  std::fflush(stderr);
}

[[noreturn]] void spin() {
  for (volatile std::uint64_t turns = 0;;) turns = turns + 1;
}

}  // namespace

base::Result<std::vector<Fault>> parse_faults(const std::string& text) {
  std::vector<Fault> out;
  if (text.empty()) return out;
  for (const std::string& one : split(text, ';')) {
    const auto fault = parse_one(one);
    if (!fault) return base::fail(kCode, "no such fault to plant: " + base::quoted(one), kUsage);
    out.push_back(*fault);
  }
  return out;
}

FaultInjector::FaultInjector(const std::vector<Fault>& all, const CheckpointContext& context) : context_(context) {
  for (const Fault& fault : all)
    if (fault.rank == context.transport.rank()) faults_.push_back(fault);
}

bool FaultInjector::due(const Fault& fault, std::int64_t step, bool within) const {
  return fault.within == within && (fault.kind == FaultKind::slow ? step >= fault.step : step == fault.step);
}

void FaultInjector::before_step(std::int64_t step) {
  for (const Fault& fault : faults_)
    if (due(fault, step, false)) act(fault);
}

std::function<void(const plan::StepRef&)> FaultInjector::within_step(std::int64_t step) {
  std::vector<Fault> now;
  for (const Fault& fault : faults_)
    if (due(fault, step, true)) now.push_back(fault);
  if (now.empty()) return {};
  const auto middle =
      static_cast<std::int32_t>(context_.schedule.class_of(context_.transport.rank()).program.size() / 2);
  return [this, now, middle, acted = std::make_shared<bool>(false)](const plan::StepRef& at) {
    if (at.entry < middle || *acted) return;
    *acted = true;
    for (const Fault& fault : now) act(fault);
  };
}

void FaultInjector::act(const Fault& fault) {
  if (!first_time(fault.once)) return;
  if (fault.kind == FaultKind::flip || fault.kind == FaultKind::nan || fault.kind == FaultKind::infinity)
    return corrupt(fault);
  say(fmt::format("{} on rank {} in step {}", name_of(fault.kind), fault.rank, fault.step));
  switch (fault.kind) {
    case FaultKind::kill: std::raise(SIGKILL); break;
    case FaultKind::stop: std::raise(SIGSTOP); break;
    case FaultKind::exit: std::_Exit(static_cast<int>(fault.code));
    case FaultKind::abort: std::abort();
    case FaultKind::raise: throw Failure(fmt::format("a planted failure in step {}", fault.step));
    case FaultKind::spin: spin();
    case FaultKind::slow: std::this_thread::sleep_for(std::chrono::milliseconds(fault.milliseconds)); break;
    case FaultKind::collective: context_.transport.barrier(); break;
    case FaultKind::flip:
    case FaultKind::infinity:
    case FaultKind::nan: break;
  }
}

void FaultInjector::corrupt(const Fault& fault) {
  const plan::RankClass& rank_class = context_.schedule.class_of(context_.transport.rank());
  std::vector<HeldPart> parts;
  for (HeldPart& part : held_parts(context_.schedule, context_.transport.rank()))
    if (fault.state == "any" || part.state == fault.state) parts.push_back(std::move(part));
  if (parts.empty())
    throw Failure(fmt::format("no fault can be planted: rank {} holds no {}", fault.rank, fault.state));
  const HeldPart& part = parts[static_cast<std::size_t>(fault.part) % parts.size()];
  const models::DType dtype = rank_class.buffers[part.buffer].dtype;
  const std::int64_t size = models::size_of(dtype), element = fault.element % part.elements;
  std::byte* const at = context_.arena.data(part.buffer, {-1, part.version}) + (part.first + element) * size;
  std::array<std::byte, 8> value{};
  ENSURE(size <= static_cast<std::int64_t>(value.size()), "an element of {} bytes", size);
  const std::span<std::byte> bytes(value.data(), static_cast<std::size_t>(size));
  context_.backend.copy_to_host(bytes, at);
  if (fault.kind == FaultKind::flip) {
    value[static_cast<std::size_t>(fault.bit % (8 * size) / 8)] ^= std::byte{1} << (fault.bit % 8);
  } else {
    const std::array<float, 1> wild = {fault.kind == FaultKind::nan ? std::numeric_limits<float>::quiet_NaN()
                                                                    : std::numeric_limits<float>::infinity()};
    if (size == 1) throw Failure(fmt::format("no {} can be planted in codes of eight bits", name_of(fault.kind)));
    narrow(dtype, wild, value.data());
  }
  context_.backend.copy_to_device(at, bytes);
  context_.backend.synchronise();
  say(fmt::format("{} on rank {} before step {}: {} of {}, element {} of {}, version {}", name_of(fault.kind),
                  fault.rank, fault.step, part.state, part.tensor, element, part.elements, part.version));
}

}  // namespace orrery::exec
