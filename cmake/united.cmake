# Compiles several sources of a target as one (unity build), so that headers are read and templates
# are instantiated once for all of them. This halves the time of a full build. Names in a file's
# anonymous namespace must therefore be unique within the enclosing namespace. Sources that should
# use the same names, such as the variants for several systems, are compiled alone. The debug build
# compiles every source alone.

option(MCCL_UNITED "Compile several sources at a time" ON)

# Enables this for a target. `ALONE` lists the sources that are compiled alone.
function(mccl_unite target)
  cmake_parse_arguments(PARSE_ARGV 1 of "" "" ALONE)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${MCCL_UNITED} UNITY_BUILD_BATCH_SIZE 16)
  set_source_files_properties(${of_ALONE} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
