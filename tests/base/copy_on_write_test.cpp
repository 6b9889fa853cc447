// Parts that copies share.
#include "base/copy_on_write.h"

#include <gtest/gtest.h>

#include <vector>

namespace orrery::base::copy_on_write_test {

TEST(CopyOnWrite, CopiesShareTheirValueUntilOneOfThemChangesIt) {
  CopyOnWrite<std::vector<int>> one;
  one.edit().push_back(1);
  CopyOnWrite<std::vector<int>> other = one;
  EXPECT_EQ(&*other, &*one);
  other.edit().push_back(2);
  EXPECT_EQ(*one, std::vector<int>({1}));
  EXPECT_EQ(*other, std::vector<int>({1, 2}));
}

TEST(CopyOnWrite, AloneIsChangedWhereItStands) {
  CopyOnWrite<std::vector<int>> one;
  EXPECT_TRUE(one->empty());
  one.edit().push_back(1);
  const int* const before = one->data();
  one.edit().front() = 2;
  EXPECT_EQ(one->data(), before);
}

}  // namespace orrery::base::copy_on_write_test
