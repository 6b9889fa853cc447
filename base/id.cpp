// What ends the program when a number is missing or cannot be one; out of the way of those who have a number.
#include "base/id.h"

#include "base/ensure.h"

namespace orrery::base {

void id_is_none() {
  ENSURE(false, "an id that is none was used as a number");
}

void no_such_id(std::int64_t number) {
  ENSURE(false, "{} is the number of nothing", number);
}

}  // namespace orrery::base
