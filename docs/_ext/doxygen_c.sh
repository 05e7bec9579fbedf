#!/bin/sh
# Prints a C header with its comments marked for Doxygen, without the headings of its sections.
exec sed -e '/^\/\* ----/d' -e 's|^\( *\)/\* |\1/** |' -e 's|^#define MCCL_\(API\|NOEXCEPT\).*||' "$1"
