# Runs that are killed and stopped at random moments; the long forms are named in docs/reliability.md.
if(ORRERY_HAVE_WORKER)
  foreach(trial "kills 4" "requests 4" "ranks 1")
    string(REPLACE " " ";" arguments ${trial})
    list(GET arguments 0 kind)
    add_test(NAME lifecycle.${kind}
             COMMAND ${CMAKE_CURRENT_LIST_DIR}/lifecycle ${arguments} --orrery $<TARGET_FILE:orrery>)
    set_tests_properties(lifecycle.${kind} PROPERTIES LABELS mpi RUN_SERIAL ON TIMEOUT 300)
  endforeach()
endif()
