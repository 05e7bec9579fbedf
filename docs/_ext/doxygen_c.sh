#!/bin/sh
# Prints a C header with its comments marked for Doxygen: the first one as that of the file, and one
# at the end of a line as that of what precedes it. Leaves out the headings of its sections and the
# macros of its declarations.
exec sed -e '1s~^/\* ~/** @file\n * ~' -e '/^\/\* ----/d' -e 's~^\( *\)/\* ~\1/** ~' \
  -e 's~^\(.*[A-Za-z0-9_;,] *\) /\* \(.* \*/\)$~\1 /**< \2~' \
  -e '/^#define MCCL_\(API\|NOEXCEPT\)/d' "$1"
