// Quantities from text, to text, and for people.
#include "base/units.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"

namespace orrery::base {
namespace units_test {

double value(const std::string& text, UnitKind kind) {
  double out = -1;
  std::string error;
  EXPECT_TRUE(parse_quantity(text, kind, out, error)) << text << ": " << error;
  return out;
}

std::string error(const std::string& text, UnitKind kind) {
  double out = -1;
  std::string why;
  EXPECT_FALSE(parse_quantity(text, kind, out, why)) << text;
  EXPECT_EQ(out, -1) << text;
  return why;
}

TEST(ParseQuantity, KnowsDecimalAndBinaryBytesApart) {
  EXPECT_EQ(value("80 GiB", UnitKind::bytes), 85899345920.0);
  EXPECT_EQ(value("80 GB", UnitKind::bytes), 80e9);
  EXPECT_EQ(value("80GB", UnitKind::bytes), 80e9);
  EXPECT_EQ(value("64 kB", UnitKind::bytes), 64000);
}

TEST(ParseQuantity, KnowsBitsAndBytesApart) {
  EXPECT_EQ(value("200 Gb/s", UnitKind::bytes_per_second), 25e9);
  EXPECT_EQ(value("200 GB/s", UnitKind::bytes_per_second), 200e9);
}

TEST(ParseQuantity, GivesTheDoubleNearestToTheWrittenNumber) {
  EXPECT_EQ(value("5 us", UnitKind::seconds), 5e-6);
  EXPECT_EQ(value("5 µs", UnitKind::seconds), 5e-6);
  EXPECT_EQ(value("1.5e-3 s", UnitKind::seconds), 1.5e-3);
  EXPECT_EQ(value("3 min", UnitKind::seconds), 180);
  EXPECT_EQ(value("312 TFLOPS", UnitKind::flops_per_second), 312e12);
  EXPECT_EQ(value("312 TFLOP/s", UnitKind::flops_per_second), 312e12);
  EXPECT_EQ(value("2 TFLOP", UnitKind::flops), 2e12);
  EXPECT_EQ(value("400 W", UnitKind::watts), 400);
  EXPECT_EQ(value("1.8 $/h", UnitKind::dollars_per_hour), 1.8);
}

TEST(ParseQuantity, RefusesABareNumberAndShowsHowToWriteIt) {
  EXPECT_EQ(error("80", UnitKind::bytes), "`80` has no unit; write it like `80 GiB`, `512 MB` or `64 kB`");
}

TEST(ParseQuantity, NamesTheUnitThatAnotherWayOfWritingMeans) {
  const auto why = [](const std::string& text, UnitKind kind) {
    double ignored = 0;
    std::string out;
    EXPECT_FALSE(parse_quantity(text, kind, ignored, out)) << text;
    return out;
  };
  EXPECT_NE(why("400 Gbps", UnitKind::bytes_per_second).find("did you mean `Gb/s`?"), std::string::npos);
  EXPECT_NE(why("50 GBps", UnitKind::bytes_per_second).find("did you mean `GB/s`?"), std::string::npos);
  EXPECT_NE(why("50 GB/sec", UnitKind::bytes_per_second).find("did you mean `GB/s`?"), std::string::npos);
  EXPECT_NE(why("312 TFlops", UnitKind::flops_per_second).find("did you mean `TFLOP"), std::string::npos)
      << why("312 TFlops", UnitKind::flops_per_second);
  EXPECT_NE(why("80 gib", UnitKind::bytes).find("did you mean `GiB`?"), std::string::npos);
  EXPECT_EQ(why("80 parsec", UnitKind::bytes).find("did you mean"), std::string::npos);
}

TEST(ParseQuantity, RefusesUnitsOfAnotherKind) {
  EXPECT_EQ(error("80 Gb", UnitKind::bytes), "unit `Gb` is unknown here; write it like `80 GiB`, `512 MB` or `64 kB`");
  for (const char* text : {"1 GB", "1 s", "1 gb/s", "1 GB / s", "1 GBps"})
    EXPECT_NE(error(text, UnitKind::bytes_per_second), "");
}

TEST(ParseQuantity, RefusesWhatIsNoPlainNumber) {
  for (const char* text : {"", " ", "GB", "nan GB", "inf GB", ".inf GB", "1e999 GB", "010 GB", "0x10 GB", "1,5 GB",
                           "1. GB", "- GB", "+1 GB", "1_000 GB", "1e GB x", "--1 GB", "1e308 TB"}) {
    EXPECT_NE(error(text, UnitKind::bytes), "") << text;
  }
}

TEST(QuantityText, SuitsTheSizeAndIsShort) {
  EXPECT_EQ(quantity_text(85899345920.0, UnitKind::bytes), "80 GiB");
  EXPECT_EQ(quantity_text(80e9, UnitKind::bytes), "80 GB");
  EXPECT_EQ(quantity_text(0, UnitKind::bytes), "0 B");
  EXPECT_EQ(quantity_text(5e-6, UnitKind::seconds), "5 us");
  EXPECT_EQ(quantity_text(3.35e12, UnitKind::bytes_per_second), "3.35 TB/s");
  EXPECT_EQ(quantity_text(312e12, UnitKind::flops_per_second), "312 TFLOPS");
  EXPECT_EQ(quantity_text(1.8, UnitKind::dollars_per_hour), "1.8 $/h");
}

TEST(QuantityText, ReadsBackToTheSameDouble) {
  const UnitKind kinds[] = {
      UnitKind::seconds,          UnitKind::bytes, UnitKind::flops,           UnitKind::bytes_per_second,
      UnitKind::flops_per_second, UnitKind::watts, UnitKind::dollars_per_hour};
  for (const UnitKind kind : kinds) {
    for (std::uint64_t i = 0; i < 500; ++i) {
      const double v = uniform(1, 0, i) * std::pow(10.0, uniform(1, 1, i) * 30 - 12);
      EXPECT_EQ(value(quantity_text(v, kind), kind), v);
    }
  }
}

TEST(Human, ShowsThreeDigits) {
  EXPECT_EQ(human(Seconds{1.234e-3}), "1.23 ms");
  EXPECT_EQ(human(Seconds{0.9999}), "1.00 s");
  EXPECT_EQ(human(Seconds{631e-6}), "631 µs") << "people read the sign, files have \"us\"";
  EXPECT_EQ(human(Seconds{0}), "0 s");
  EXPECT_EQ(human(Seconds{3e-12}), "3.00 ps");
  EXPECT_EQ(human(Seconds{1e-17}), "0 s") << "what is left of a sum, not 0.00 of a unit";
  EXPECT_EQ(human(Bytes{71.8 * 1024 * 1024 * 1024}), "71.8 GiB");
  EXPECT_EQ(human(Bytes{12}), "12 B");
  EXPECT_EQ(human(BytesPerSecond{4.61e9}), "4.61 GB/s");
  EXPECT_EQ(human(FlopsPerSecond{312e12}), "312 TFLOP/s");
  EXPECT_EQ(human_count(6738415616.0), "6.74 B");
  EXPECT_EQ(human_count(124439808), "124 M");
  EXPECT_EQ(human_count(12), "12");
  EXPECT_EQ(count_of(1, "rank") + ", " + count_of(0, "rank"), "1 rank, 0 ranks");
  EXPECT_EQ(count_of(2, "micro-batch") + " of 1 " + plural(1, "batch"), "2 micro-batches of 1 batch");
}

}  // namespace units_test
}  // namespace orrery::base
