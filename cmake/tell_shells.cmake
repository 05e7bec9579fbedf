# Runs the program to write the shell completions and the manual pages into FOLDER/share, at the
# paths where shells and man search below a prefix: cmake -DPROGRAM=… -DFOLDER=… -P this.
cmake_minimum_required(VERSION 3.25)

function(write path)
  get_filename_component(folder ${FOLDER}/share/${path} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  execute_process(COMMAND ${PROGRAM} ${ARGN} OUTPUT_FILE ${FOLDER}/share/${path}
                  COMMAND_ERROR_IS_FATAL ANY)
endfunction()

write(bash-completion/completions/mccl completion bash)
write(zsh/site-functions/_mccl completion zsh)
write(fish/vendor_completions.d/mccl.fish completion fish)
write(man/man1/mccl.1 man)
# The page of the program lists a page for each command, as in ".BR mccl\-launch (1)".
file(STRINGS ${FOLDER}/share/man/man1/mccl.1 listed REGEX "^\\.BR mccl.*\\(1\\)$")
foreach(line ${listed})
  string(REGEX MATCH "([a-z]+) \\(1\\)$" matched "${line}")
  write(man/man1/mccl-${CMAKE_MATCH_1}.1 man ${CMAKE_MATCH_1})
endforeach()
