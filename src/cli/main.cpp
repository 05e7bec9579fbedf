#include "cli/run_program.h"

int main(int argc, char** argv) { return mccl::cli::run_program(argc, argv); }
