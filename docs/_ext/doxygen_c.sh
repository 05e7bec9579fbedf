#!/bin/sh
# Prints a C header with its comments marked for Doxygen, the first one as that of the file. Leaves
# out the headings of its sections and the macros of its declarations.
exec sed -e '1s~^/\* ~/** @file\n * ~' -e '/^\/\* ----/d' -e 's~^\( *\)/\* ~\1/** ~' \
  -e '/^#define MCCL_\(API\|NOEXCEPT\)/d' "$1"
