// Headers that most sources of the program include.
#pragma once

#include <CLI/CLI.hpp>

#include "library.h"
