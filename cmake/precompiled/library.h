// Headers that many sources of the library and of mccl_cluster include.
#pragma once

#include <nlohmann/json.hpp>

#include "standard.h"
