// Ends the program when a number is missing or is not valid. Apart from the header, to keep this out of the code of
// callers that have a valid number.
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
