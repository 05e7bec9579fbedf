// The whole C++ interface.
#pragma once

#include "mccl/buffer.h"
#include "mccl/config.h"
#include "mccl/context.h"
#include "mccl/device_memory.h"
#include "mccl/error.h"
#include "mccl/export.h"
#include "mccl/fence.h"
#include "mccl/group.h"
#include "mccl/host.h"
#include "mccl/meeting.h"
#include "mccl/metal.h"
#include "mccl/metrics.h"
#include "mccl/secret.h"
#include "mccl/store.h"
#include "mccl/types.h"
#include "mccl/work.h"
