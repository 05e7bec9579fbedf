// The `mccl` program: a table of subcommands. main() is in a source of its own, because the
// program's other sources form a library.
#pragma once

namespace mccl::cli {

/// Runs the program with the arguments of main(). Returns its exit status.
int run_program(int argc, char** argv);

}  // namespace mccl::cli
