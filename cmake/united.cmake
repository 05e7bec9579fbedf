# Sources of a target compiled several at a time, so that headers are read and templates made once for
# all of them: half the time of a build from nothing. What a file keeps to itself (in an anonymous
# namespace) must then have a name of its own within its namespace; where it should not, as in files that say the
# same of several systems, a source is left alone. The debug build compiles one by one.

option(MCCL_UNITED "Compile several sources at a time" ON)

# Gives a target what compiles its sources so. `ALONE` names those that are left alone.
function(mccl_unite target)
  cmake_parse_arguments(PARSE_ARGV 1 of "" "" ALONE)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${MCCL_UNITED} UNITY_BUILD_BATCH_SIZE 8)
  set_source_files_properties(${of_ALONE} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
