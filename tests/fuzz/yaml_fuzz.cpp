// Whatever the text, the strict YAML reader ends, and what it read it writes so that it reads the same again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/units.h"
#include "base/yaml.h"

namespace {

using orrery::base::Cursor;

void walk(const Cursor& at) {
  for (const auto& key : at.keys()) walk(at.at(key));
  if (at.is_sequence()) {
    for (const Cursor& item : at.items()) walk(item);
  }
  (void)at.integer(-1000, 1000);
  (void)at.number(-1e9, 1e9);
  (void)at.boolean();
  (void)at.text();
  (void)at.quantity(orrery::base::UnitKind::bytes, 0, 1e15);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto first = orrery::base::Document::parse(text, "fuzz.yaml");
  if (first.findings().failed()) {
    (void)orrery::base::render(first.findings().all(), true);
    return 0;
  }
  const std::string dumped = first.root().dump();
  const auto second = orrery::base::Document::parse(dumped, "fuzz.yaml");
  if (second.findings().failed() || second.root().dump() != dumped) std::abort();
  walk(first.root());
  (void)orrery::base::render(first.close(), true);
  return 0;
}
