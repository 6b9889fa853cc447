// The one place that names all verbs.
#include "apps/verbs/list.h"

namespace orrery::apps {

Verb init_verb();
Verb plan_verb();
Verb simulate_verb();
Verb explain_verb();
Verb train_verb();
Verb calibrate_verb();
Verb report_verb();
Verb validate_verb();
Verb model_verb();
Verb collective_verb();
Verb doctor_verb();
Verb probe_verb();
Verb import_verb();
Verb export_verb();
Verb schema_verb();

std::vector<Verb> all_verbs() {
  return {init_verb(),      plan_verb(),   simulate_verb(), explain_verb(), train_verb(),
          calibrate_verb(), report_verb(), validate_verb(), model_verb(),   collective_verb(),
          doctor_verb(),    probe_verb(),  import_verb(),   export_verb(),  schema_verb()};
}

}  // namespace orrery::apps
