// Agrees on failures with nothing but the transport's small exchanges.
#include "exec/state/agreement.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "exec/events.h"
#include "exec/failure.h"
#include "exec/state/checkpoint_manifest.h"

namespace orrery::exec {
namespace {

constexpr std::size_t kMostText = 3000;   // bytes of a sentence
constexpr std::size_t kBytesAtATime = 6;  // a double holds whole numbers of 48 bits exactly
constexpr double kDamaged = 16, kInput = 17, kBit = 256;

/// The text of rank `speaker`, on all ranks. The transport's exchanges have no broadcast; after a failure there is
/// time.
std::string spoken_by(Transport& transport, int speaker, const std::string& mine) {
  const bool speaks = transport.rank() == speaker;
  const auto length =
      static_cast<std::size_t>(transport.maximum(speaks ? static_cast<double>(std::min(mine.size(), kMostText)) : 0));
  std::string out;
  for (std::size_t at = 0; at < length; at += kBytesAtATime) {
    double packed = 0;
    if (speaks)
      for (std::size_t i = kBytesAtATime; i-- > 0;)
        packed = packed * kBit + (at + i < length ? static_cast<unsigned char>(mine[at + i]) : 0);
    auto bits = static_cast<std::uint64_t>(transport.maximum(packed));
    for (std::size_t i = 0; i < kBytesAtATime && out.size() < length; ++i, bits >>= 8)
      out += static_cast<char>(bits & 0xffU);
  }
  return out;
}

}  // namespace

void together(Transport& transport, const std::function<void()>& body) {
  std::string text;
  double kind = 0;
  bool failed = false;
  try {
    body();
  } catch (const DamagedCheckpoint& damaged) {
    failed = true, text = damaged.what(), kind = kDamaged;
  } catch (const InputFailure& input) {  // keeps its place
    failed = true, text = pack_diagnostics({input.diagnostic()}), kind = kInput;
  } catch (const Failure& failure) {
    failed = true, text = failure.what(), kind = static_cast<double>(failure.kind());
  } catch (const std::exception& error) {
    failed = true, text = error.what();
  }
  const int speaker =
      transport.size() - static_cast<int>(transport.maximum(failed ? transport.size() - transport.rank() : 0));
  if (speaker == transport.size()) return;
  kind = transport.maximum(transport.rank() == speaker ? kind : 0);
  text = spoken_by(transport, speaker, text);
  if (kind == kDamaged) throw DamagedCheckpoint(text);
  if (kind == kInput)
    if (const base::Diagnostics one = unpack_diagnostics(text); !one.empty()) throw InputFailure(one.front());
  throw Failure(text, static_cast<FailureKind>(static_cast<int>(kind)));
}

base::Result<bool> agreed(Transport& transport, base::Result<bool> mine) {
  if (transport.maximum(mine ? 0.0 : 1.0) == 0) return mine;
  const std::vector<std::string> all = transport.gather_text(mine ? std::string() : pack_diagnostics(mine.error()));
  for (const std::string& one : all)
    if (!one.empty()) return base::fail(unpack_diagnostics(one));
  return mine ? base::fail("E0622", "another rank could not read the run's input") : mine;
}

}  // namespace orrery::exec
