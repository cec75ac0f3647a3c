#include "cli/commands.h"

int main(int argc, char** argv) {
  return sluice::cli::RunCommandLine(argc, argv);
}
