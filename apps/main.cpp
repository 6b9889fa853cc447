// orrery: plans, predicts and runs the training of large models on clusters.
#include "apps/command.h"

int main(int argc, char** argv) {
  return orrery::apps::run_command(argc, argv);
}
