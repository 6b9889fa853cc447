// Ids: none by default, ordered, of one kind each, and never a number when they are none.
#include "base/id.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <vector>

namespace orrery::base {
namespace id_test {

using CatId = Id<struct CatTag>;
using DogId = Id<struct DogTag>;

static_assert(std::is_trivially_copyable_v<CatId> && sizeof(CatId) == sizeof(std::int32_t));
static_assert(!std::is_convertible_v<int, CatId> && !std::is_convertible_v<CatId, int>);
static_assert(!std::is_constructible_v<CatId, DogId> && !std::is_constructible_v<std::size_t, CatId>);
static_assert(CatId(3).index() == 3 && !CatId());

TEST(AnId, IsNoneUntilItIsGivenANumber) {
  CatId id;
  EXPECT_FALSE(id.exists());
  EXPECT_FALSE(static_cast<bool>(id));
  id = CatId(std::size_t{0});
  EXPECT_TRUE(id.exists());
  EXPECT_EQ(id.index(), 0U);
  EXPECT_EQ(id, CatId(std::int64_t{0}));
  EXPECT_NE(id, CatId());
}

TEST(AnId, OrdersByNumberWithNoneFirst) {
  EXPECT_LT(CatId(), CatId(0));
  EXPECT_LT(CatId(0), CatId(1));
  std::map<CatId, int> ages;
  ages[CatId(7)] = 3;
  ages[CatId()] = 1;
  EXPECT_EQ(ages.begin()->second, 1);
  const std::unordered_set<CatId> seen = {CatId(1), CatId(2), CatId(1), CatId()};
  EXPECT_EQ(seen.size(), 3U);
}

TEST(AnId, IsWrittenAsItsNumber) {
  EXPECT_EQ(fmt::format("{} and {}", CatId(12), CatId()), "12 and none");
}

TEST(AnId, IsMinusOneWhereFilesAndKernelsHaveNone) {
  EXPECT_EQ(CatId(12).written(), 12);
  EXPECT_EQ(CatId().written(), -1);
  EXPECT_EQ(CatId::read(12), CatId(12));
  EXPECT_EQ(CatId::read(-1), CatId());
  EXPECT_DEATH(static_cast<void>(CatId::read(-2)), "-2 is the number of nothing");
}

TEST(AnId, IsANumberToCalculateWithAndHasNeighbours) {
  EXPECT_EQ(CatId(4).number() - 1, 3);
  EXPECT_EQ(CatId(4).previous(), CatId(3));
  EXPECT_EQ(CatId(4).next(), CatId(5));
  EXPECT_DEATH(static_cast<void>(CatId().number()), "an id that is none was used as a number");
  EXPECT_DEATH(static_cast<void>(CatId(0).previous()), "-1 is the number of nothing");
  EXPECT_DEATH(static_cast<void>(CatId(std::numeric_limits<std::int32_t>::max()).next()),
               "2147483648 is the number of nothing");
}

TEST(Ids, AreTheFirstSoMany) {
  std::vector<CatId> seen;
  for (const CatId id : Ids<CatId>(3)) seen.push_back(id);
  EXPECT_EQ(seen, (std::vector<CatId>{CatId(0), CatId(1), CatId(2)}));
  for (const CatId id : Ids<CatId>(0)) ADD_FAILURE() << "the first of none is " << id.number();
}

TEST(AnId, EndsTheProgramWhereNoneIsUsedAsANumber) {
  EXPECT_DEATH(static_cast<void>(CatId().index()), "an id that is none was used as a number");
  const ById<CatId, int> ages = {1, 2};
  EXPECT_DEATH(static_cast<void>(ages[CatId()]), "an id that is none was used as a number");
}

TEST(AnId, EndsTheProgramWhereANumberCannotBeOne) {
  EXPECT_DEATH(static_cast<void>(CatId(-1)), "-1 is the number of nothing");
  EXPECT_DEATH(static_cast<void>(CatId(std::numeric_limits<std::uint32_t>::max())), "4294967295 is the number of");
  EXPECT_DEATH(static_cast<void>(CatId(std::int64_t{1} << 32)), "4294967296 is the number of nothing");
}

TEST(AVectorById, IsIndexedByTheIdsThatItGives) {
  ById<CatId, std::string> names;
  const CatId first = names.append("Tom"), second = names.append("Felix");
  names[second] += "!";
  EXPECT_EQ(names[first], "Tom");
  EXPECT_EQ(names[1], "Felix!");
  std::vector<CatId> all;
  for (const CatId id : names.keys()) all.push_back(id);
  EXPECT_EQ(all, (std::vector<CatId>{first, second}));
}

}  // namespace id_test
}  // namespace orrery::base
