# Replaces find_package(Python) when extensions are cross-compiled for macOS. Uses the headers that
# tools.sh has installed and macOS's file names for extensions. The build itself runs this machine's
# Python.

set(Python_EXECUTABLE ${MCCL_MACOS_TOOLS}/venv/bin/python)
set(Python_INTERPRETER_ID Python)
execute_process(COMMAND ${Python_EXECUTABLE} -c "import platform; print(platform.python_version())"
  OUTPUT_VARIABLE Python_VERSION OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCH "^([0-9]+)\\.([0-9]+)" matched ${Python_VERSION})
set(Python_VERSION_MAJOR ${CMAKE_MATCH_1})
set(Python_VERSION_MINOR ${CMAKE_MATCH_2})
set(Python_SOABI cpython-${CMAKE_MATCH_1}${CMAKE_MATCH_2}-darwin)
set(Python_INCLUDE_DIRS ${MCCL_MACOS_TOOLS}/include/python)

add_executable(Python::Interpreter IMPORTED GLOBAL)
set_target_properties(Python::Interpreter PROPERTIES IMPORTED_LOCATION ${Python_EXECUTABLE})
add_library(Python::Module INTERFACE IMPORTED GLOBAL)
target_include_directories(Python::Module SYSTEM INTERFACE ${Python_INCLUDE_DIRS})
# The interpreter that loads an extension provides Python's symbols.
target_link_options(Python::Module INTERFACE "LINKER:-undefined,dynamic_lookup")

# Same as the function of FindPython, for modules only.
function(Python_add_library target)
  list(REMOVE_ITEM ARGN MODULE WITH_SOABI)
  add_library(${target} MODULE ${ARGN})
  set_target_properties(${target} PROPERTIES PREFIX "" SUFFIX ".${Python_SOABI}.so")
  target_link_libraries(${target} PRIVATE Python::Module)
endfunction()
