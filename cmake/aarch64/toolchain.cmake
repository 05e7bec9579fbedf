# Cross-compiles for Linux on ARM. scripts/aarch64/root.sh installs the libraries named here.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(MCCL_AARCH64_ROOT ${CMAKE_CURRENT_LIST_DIR}/../../build/aarch64/root CACHE PATH "Debian's libraries for ARM")
cmake_path(ABSOLUTE_PATH MCCL_AARCH64_ROOT NORMALIZE)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MCCL_AARCH64_ROOT)
# Libraries and headers of this machine must not be found.
set(CMAKE_FIND_ROOT_PATH ${MCCL_AARCH64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${MCCL_AARCH64_ROOT}/usr/lib/aarch64-linux-gnu")
