# Compiles through ccache if it is installed, with the settings that precompiled headers need. Keeps
# a base_dir that the user has configured, and does nothing if a compiler launcher is already set.
find_program(CCACHE ccache)
if(NOT CCACHE OR CMAKE_CXX_COMPILER_LAUNCHER)
  return()
endif()

set(ccache_settings CCACHE_SLOPPINESS=pch_defines,time_macros)
# The precompiled headers are in the build folder, and pip uses a new one for each build. Paths
# relative to the build folder let these builds share the cache.
execute_process(COMMAND ${CCACHE} --get-config base_dir
  OUTPUT_VARIABLE base_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT base_dir)
  list(APPEND ccache_settings CCACHE_BASEDIR=${CMAKE_BINARY_DIR})
endif()
set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env ${ccache_settings} ${CCACHE})
