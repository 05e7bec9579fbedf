# Cross-compiles for Macs with Apple silicon on Linux. scripts/macos/tools.sh installs the tools
# named here.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
# The oldest macOS that MLX's wheels support, and torch's wheels from 2.12 on.
set(CMAKE_OSX_DEPLOYMENT_TARGET 14.0 CACHE STRING "Oldest macOS")
set(CMAKE_OSX_ARCHITECTURES arm64 CACHE STRING "")
set(CMAKE_OSX_SYSROOT "" CACHE STRING "")

set(MCCL_MACOS_TOOLS ${CMAKE_CURRENT_LIST_DIR}/../../build/macos CACHE PATH "Where tools.sh has put them")
cmake_path(ABSOLUTE_PATH MCCL_MACOS_TOOLS NORMALIZE)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MCCL_MACOS_TOOLS)
set(CMAKE_CXX_COMPILER ${MCCL_MACOS_TOOLS}/bin/clang++)
set(CMAKE_C_COMPILER ${MCCL_MACOS_TOOLS}/bin/clang)
# Omits the timestamp from precompiled headers, so that ccache does not see a difference.
set(CMAKE_CXX_FLAGS_INIT "-Xclang -fno-pch-timestamp")
find_program(CMAKE_AR NAMES llvm-ar llvm-ar-14 REQUIRED)
find_program(CMAKE_RANLIB NAMES llvm-ranlib llvm-ranlib-14 REQUIRED)
find_program(CMAKE_INSTALL_NAME_TOOL NAMES llvm-install-name-tool llvm-install-name-tool-14 REQUIRED)
# Link with the final rpath: the linker signs the file, so it must not change at installation.
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_BUILD_WITH_INSTALL_NAME_DIR ON)
set(CMAKE_INSTALL_NAME_DIR @rpath)

# Libraries and headers of this machine must not be found.
set(CMAKE_FIND_ROOT_PATH ${MCCL_MACOS_TOOLS})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_PROJECT_TOP_LEVEL_INCLUDES ${CMAKE_CURRENT_LIST_DIR}/packages.cmake)
set(CMAKE_PROJECT_INCLUDE ${CMAKE_CURRENT_LIST_DIR}/rules.cmake)
