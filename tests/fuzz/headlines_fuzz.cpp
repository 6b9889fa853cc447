// Headlines are refused, or name rows of their own file.
#include <algorithm>

#include "sim/validate/headlines.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(headlines) {
  const auto read = orrery::sim::parse_headlines(text, "fuzz.yaml");
  if (!read) {
    orrery::fuzz::must(!read.error().empty(), "a refusal says why");
    (void)orrery::base::render(read.error(), true);
    return;
  }
  for (const orrery::sim::Headline& headline : read->headlines)
    for (const std::string& run : headline.runs)
      orrery::fuzz::must(
          std::any_of(read->runs.begin(), read->runs.end(), [&](const auto& row) { return row.setup.id == run; }),
          "a headline's run is among the rows");
}
