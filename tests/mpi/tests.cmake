# The worker under mpiexec: the same numbers over MPI as over threads, and what happens when a run is stopped, killed or
# resumed. Two ranks, or four that nap: seconds even on two cores.
if(ORRERY_HAVE_WORKER)
  add_executable(test_mpi ${CMAKE_CURRENT_LIST_DIR}/training_test.cpp ${CMAKE_CURRENT_LIST_DIR}/lifetime_test.cpp
                          ${CMAKE_CURRENT_LIST_DIR}/asynchronous_test.cpp ${CMAKE_CURRENT_LIST_DIR}/precision_test.cpp
                          ${CMAKE_CURRENT_LIST_DIR}/compression_test.cpp ${CMAKE_CURRENT_LIST_DIR}/offload_test.cpp
                          ${CMAKE_CURRENT_LIST_DIR}/guards_test.cpp ${CMAKE_CURRENT_LIST_DIR}/device_failure_test.cpp
                          ${CMAKE_CURRENT_LIST_DIR}/mpi_support.cpp ${CMAKE_CURRENT_LIST_DIR}/main.cpp)
  target_link_libraries(test_mpi PRIVATE exec_support GTest::gtest orrery_flags)
  orrery_unity(test_mpi)
  target_compile_definitions(test_mpi PRIVATE ORRERY_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                             ORRERY_WORKER="$<TARGET_FILE:orrery-worker>"
                             ORRERY_HANGING_MODULE="$<TARGET_FILE:hanging_module>")
  # A module in CUDA's place, with a device that does not let go of a rank that fails.
  add_library(hanging_module SHARED ${CMAKE_CURRENT_LIST_DIR}/hanging_module.cpp)
  target_link_libraries(hanging_module PRIVATE orrery::exec orrery_flags)
  set_target_properties(hanging_module PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fakes)
  add_dependencies(test_mpi orrery-worker hanging_module)
  add_executable(mpi_sums ${CMAKE_CURRENT_LIST_DIR}/sums_program.cpp)
  target_link_libraries(mpi_sums PRIVATE orrery::exec_mpi orrery_flags)
  foreach(ranks 2 3 4 5)
    add_test(NAME mpi.long_sums_over_${ranks}_ranks COMMAND mpiexec -n ${ranks} $<TARGET_FILE:mpi_sums>)
    set_tests_properties(mpi.long_sums_over_${ranks}_ranks PROPERTIES LABELS mpi RUN_SERIAL ON TIMEOUT 120)
  endforeach()
  add_test(NAME mpi.training COMMAND test_mpi --gtest_filter=-Slow*)
  set_tests_properties(mpi.training PROPERTIES LABELS mpi RUN_SERIAL ON TIMEOUT 300)
  add_test(NAME slow.memory COMMAND test_mpi --gtest_filter=Slow*-SlowCompressionCurves*)
  set_tests_properties(slow.memory PROPERTIES LABELS slow RUN_SERIAL ON TIMEOUT 600)
  # 500 steps of nine runs: only with scripts/test --long. That compression equals its serial program is
  # tested in test_exec.
  add_test(NAME long.compression_curves COMMAND test_mpi --gtest_filter=SlowCompressionCurves*)
  set_tests_properties(long.compression_curves PROPERTIES LABELS long RUN_SERIAL ON TIMEOUT 600)
endif()
