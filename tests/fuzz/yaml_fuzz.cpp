// Whatever the text, the strict YAML reader ends, and what it read it writes so that it reads the same again.

#include "base/units.h"
#include "base/yaml.h"
#include "tests/fuzz/target.h"

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

FUZZ_TARGET(yaml) {
  const auto first = orrery::base::Document::parse(text, "fuzz.yaml");
  if (first.findings().failed()) {
    (void)orrery::base::render(first.findings().all(), true);
    return;
  }
  const std::string dumped = first.root().dump();
  if (dumped.size() > (std::size_t{1} << 20)) return;  // what aliases multiply may be more than is read at once
  const auto second = orrery::base::Document::parse(dumped, "fuzz.yaml");
  orrery::fuzz::must(!second.findings().failed(), "what was written is YAML");
  orrery::fuzz::must(second.root().dump() == dumped, "what was read reads the same after writing");
  walk(first.root());
  (void)orrery::base::render(first.close(), true);
}
