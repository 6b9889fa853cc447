# The command and the worker. CLI11 is costly to compile: apps/command_line.cpp and apps/flags.cpp alone include it.
file(GLOB_RECURSE app_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/apps/*.cpp)
list(FILTER app_sources EXCLUDE REGEX "/apps/(main\\.cpp|worker/.*)$")
add_library(orrery_apps STATIC ${app_sources})
add_library(orrery::apps ALIAS orrery_apps)
target_link_libraries(orrery_apps PUBLIC orrery::base orrery::models orrery::clusters orrery::plan orrery::cost
                      orrery::sim orrery::exec orrery::reports PRIVATE orrery_flags)
target_compile_definitions(orrery_apps PRIVATE ORRERY_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                               ORRERY_VERSION="${PROJECT_VERSION}")
orrery_unity(orrery_apps ALONE command_line flags)
add_executable(orrery ${PROJECT_SOURCE_DIR}/apps/main.cpp)
target_link_libraries(orrery PRIVATE orrery::apps orrery_flags)
install(TARGETS orrery RUNTIME DESTINATION bin)

if(ORRERY_HAVE_WORKER)
  file(GLOB worker_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/apps/worker/*.cpp)
  add_executable(orrery-worker ${worker_sources})
  target_link_libraries(orrery-worker PRIVATE orrery::exec orrery::exec_cpu orrery::exec_mpi orrery_flags)
  install(TARGETS orrery-worker RUNTIME DESTINATION bin)
endif()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/catalog DESTINATION share/orrery/models)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/clusters/catalog ${PROJECT_SOURCE_DIR}/clusters/calibrated
        DESTINATION share/orrery/clusters)
install(FILES ${PROJECT_SOURCE_DIR}/clusters/import/known.yaml DESTINATION share/orrery/clusters/import)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tests/validation/headlines DESTINATION share/orrery/tests/validation)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tests/validation/published DESTINATION share/orrery/tests/validation)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/cost/stacks DESTINATION share/orrery/cost)
install(FILES ${PROJECT_SOURCE_DIR}/cost/intervals.yaml DESTINATION share/orrery/cost)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION share/orrery)
# What the command says of itself, for man(1) and for shells.
install(CODE "
  execute_process(COMMAND $<TARGET_FILE:orrery> help --man OUTPUT_FILE ${PROJECT_BINARY_DIR}/orrery.1
                  COMMAND_ERROR_IS_FATAL ANY)
  foreach(shell bash zsh fish)
    execute_process(COMMAND $<TARGET_FILE:orrery> completion \${shell}
                    OUTPUT_FILE ${PROJECT_BINARY_DIR}/orrery.\${shell} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()")
install(FILES ${PROJECT_BINARY_DIR}/orrery.1 DESTINATION share/man/man1)
install(FILES ${PROJECT_BINARY_DIR}/orrery.bash DESTINATION share/bash-completion/completions RENAME orrery)
install(FILES ${PROJECT_BINARY_DIR}/orrery.zsh DESTINATION share/zsh/site-functions RENAME _orrery)
install(FILES ${PROJECT_BINARY_DIR}/orrery.fish DESTINATION share/fish/vendor_completions.d)
