# Two install components. `cpp` (the default) is a prefix for C and C++ programs: the library, the
# headers, and the files for find_package(mccl) and pkg-config. `python` holds all files of the
# wheel except the Python files; only scikit-build-core installs it.

# The text in an rpath that stands for the folder of the program or library itself.
if(APPLE)
  set(origin "@loader_path")
else()
  set(origin "$ORIGIN")
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/mccl)

install(TARGETS mccl EXPORT mcclTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp NAMELINK_COMPONENT cpp)
if(MCCL_CLI)
  install(TARGETS mccl_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT cpp)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/mccl
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT cpp)
install(EXPORT mcclTargets NAMESPACE mccl:: DESTINATION ${package_dir} COMPONENT cpp)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/mcclConfig.cmake.in
  ${PROJECT_BINARY_DIR}/mcclConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/mcclConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/mcclConfig.cmake ${PROJECT_BINARY_DIR}/mcclConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT cpp)

# The pkg-config file derives the prefix from its own location, so that the prefix can be moved.
file(RELATIVE_PATH to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" to_prefix ${to_prefix})
configure_file(${PROJECT_SOURCE_DIR}/cmake/mccl.pc.in ${PROJECT_BINARY_DIR}/mccl.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/mccl.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT cpp)

# A wheel cannot contain symbolic links, so the library is installed once, under its soname.
install(PROGRAMS $<TARGET_FILE:mccl> RENAME $<TARGET_SONAME_FILE_NAME:mccl>
  DESTINATION mccl COMPONENT python EXCLUDE_FROM_ALL)
